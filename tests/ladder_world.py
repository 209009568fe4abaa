"""A job with a dead worker, an order that was given for it, and what nodes say about that."""

import msgspec
from core_world import DRILL as PRESET
from core_world import World

from rankpulse.core import records as r
from rankpulse.core.settings import Settings
from rankpulse.core.targets import WebhookTarget

NODES = {"node-a": 2, "node-b": 2}
DRILL = msgspec.structs.replace(PRESET, policy=msgspec.structs.replace(PRESET.policy, round_s=40.0, webhook_s=50.0))
ANSWER_S = DRILL.policy.grace_s + DRILL.policy.answer_s
ROUND_S, WEBHOOK_S = DRILL.policy.round_s, DRILL.policy.webhook_s
TARGET = WebhookTarget(name="slurm", url="http://127.0.0.1:1/", secret_file="s", events=("page", "restart", "closed"))


def hooked(base: Settings = DRILL) -> Settings:
    """With a webhook that takes restarts."""
    return msgspec.structs.replace(base, webhook=msgspec.structs.replace(base.webhook, targets=(TARGET,)))


def held(settings: Settings = DRILL) -> tuple[World, r.Order]:
    """A job with a dead worker that is held, and the order that was given for it."""
    world = World(settings=settings)
    world.arm()
    procs = world.meets(NODES, 1)
    world.run(10)
    world.ends(procs[3], signal=9, held=True)
    world.run(0.3)
    [order] = world.of_kind("restart")
    return world, order


def acknowledged(world: World, order: r.Order, *nodes: str, killed: int = 0) -> None:
    for node in nodes:
        world.observe(r.ORDER_DONE, node, order_id=order.order_id, killed=killed)


def carried_out(world: World, order: r.Order) -> None:
    """Every node ends its workers and says so."""
    for proc in [proc for proc in world.procs if proc.alive]:
        world.ends(proc, signal=15, order_id=order.order_id)
    acknowledged(world, order, *NODES)


def trail(world: World) -> list[str]:
    [incident] = [incident for incident in world.incidents() if incident.run_uid]
    return [line.text for line in incident.trail]
