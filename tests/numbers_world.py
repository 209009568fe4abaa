"""A run of two nodes that trains, and what its agents tell of numbers that are not finite."""

from typing import Any

import msgspec
from core_world import DRILL, Proc, World

from rankpulse.core import codec, numbers
from rankpulse.core import records as r
from rankpulse.core.settings import Settings
from rankpulse.core.slot_numbers import LOSS_NAN, Numbers

NODES = {"node-a": 2, "node-b": 2}
CONSENT = msgspec.structs.replace(DRILL, policy=msgspec.structs.replace(DRILL.policy, restart_on_non_finite=True))


def trained(settings: Settings = CONSENT, *, arm: bool = True, saved: int = 100, first_step: int = 91) -> World:
    """A run of our rendezvous at about step 120 or beyond, with checkpoints of every tenth step up to `saved`."""
    world = World(settings)
    if arm:
        world.arm()
    world.meets(NODES, 1, first_step=first_step)
    world.run(10)
    if saved:
        saves(world, saved)
        world.run(0.3)
    assert world.incidents() == []
    return world


def saves(world: World, step: int, oldest: int = 90) -> None:
    detail = {"bytes": 1000, "shards": 4, "kind": "sharded", "save_s": 0.3, "verified": True, "oldest": oldest}
    world.observe(r.CHECKPOINT, "node-a", world.procs[0], event="saved", times=1, step=step, **detail)


def bad(first: int, *, finite: int | None = None, what: int = LOSS_NAN) -> Numbers:
    return Numbers(3, first, first - 1 if finite is None else finite, first + 2, what, 3, 0)


def tells(world: World, node: str, first: dict[int, int], **more: Any) -> str:
    """A node's agent: by rank the first step of its row, 0: its numbers are finite."""
    mine = {p.rank: p for p in world.procs if p.node == node and p.alive}
    told = numbers.summed((rank, bad(at, **more) if at else Numbers()) for rank, at in first.items())
    proc = mine[min(told.movers, default=min(mine))]
    return world.observe(r.NON_FINITE, node, proc, **numbers.detail(told))


def all_tell(world: World, first: int, **more: Any) -> None:
    ranks = {node: {p.rank: first for p in world.procs if p.node == node and p.alive} for node in NODES}
    for node, steps in ranks.items():
        tells(world, node, steps, **more)


def news(world: World) -> list[str]:
    found = ((key, codec.decode(r.Observation, data)) for key, (data, _) in world.store.items() if "/obs/" in key)
    return [key for key, obs in found if obs.kind == r.NON_FINITE]


def next_round(world: World, number: int, *, first_step: int, before: int = 0) -> list[Proc]:
    """The order is carried out, and the job meets again."""
    order = world.of_kind("restart")[-1]
    for proc in [p for p in world.procs if p.alive]:
        world.ends(proc, signal=15, order_id=order.order_id)
    world.asks(NODES, number)
    world.run(0.3)
    procs = world.meets(NODES, number, first_step=first_step, asks=False, before=(before, number - 1))
    detail = {"bytes": 1, "load_s": 0.1, "verify_s": 0.1, "level": "full", "skipped": 1, "resharded_from": 0}
    world.observe(r.CHECKPOINT, "node-a", procs[0], event="loaded", times=1, step=first_step - 1, **detail)
    world.run(0.2)
    return procs
