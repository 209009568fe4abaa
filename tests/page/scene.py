"""Played stories for the page: the real engine is told what agents of a fleet would tell, and concludes for itself."""

from dataclasses import dataclass, field

from core_world import UTC
from silence_world import SilenceWorld, settings

from rankpulse.core import events as ev
from rankpulse.core import records as r
from rankpulse.core.node_standing import STANDINGS

RACKS = ("a", "b", "c", "d")
SAVED = {"bytes": 130_000_000_000, "shards": 64, "kind": "sharded", "save_s": 31.0, "verified": True, "verify_s": 12.0}


@dataclass
class Fleet(SilenceWorld):
    """Several jobs: one that lost a node waits, the others train on."""

    waiting: set[str] = field(default_factory=set)  # runs

    def die(self, *nodes: str) -> None:
        super().die(*nodes)
        self.training = True
        self.waiting |= {proc.row.run_uid for proc in self.procs if proc.node in nodes}

    def run(self, seconds: float, *, step_s: float = 0.25) -> None:
        """In steps that are coarse, and still finer than beats."""
        super().run(seconds, step_s=step_s)

    def _advance(self) -> None:
        before = {id(proc): proc.step for proc in self.procs if proc.row.run_uid in self.waiting}
        super()._advance()
        for proc in self.procs:
            proc.step = before.get(id(proc), proc.step)


def nodes_of(rack: str, count: int = 8) -> list[str]:
    return [f"{rack}{number:02}" for number in range(1, count + 1)]


def fleet(ranks: int = 1, per_rack: int = 8) -> Fleet:
    """Four racks; two jobs train on three of them, the fourth stands by."""
    racks = {node: f"rack-{rack}" for rack in RACKS for node in nodes_of(rack, per_rack)}
    world = Fleet(settings=settings("drill"), racks=racks)
    world.put(world.keys.arm(), r.Arm(armed=True, author="ann", reason="watched it for a week", at=UTC + 200.0))
    for uid, label, own in (("llama-1f", "llama-70b", RACKS[:2]), ("moe-7c", "moe-8x7b", RACKS[2:3])):
        members = dict.fromkeys([node for rack in own for node in nodes_of(rack, per_rack)], ranks)
        launch = r.Launch(run_uid=uid, label=label, owner=1, min_nodes=1, max_nodes=32, at=0.0)
        world.put(world.keys.launch(uid), launch)
        for node in members:
            world.states(node)
        procs = world.meets(members, 1, uid=uid, first_step=4001)
        for proc in procs:
            proc.row = r.RunRow(label, proc.row.meeting, proc.row.launcher, len(procs), True, uid, 1)
    for node in nodes_of("d", per_rack):
        world.states(node)
    world.run(20)
    assert world.incidents() == []
    return world


def saves(world: Fleet, step: int) -> None:
    """Rank 0 of each job tells of a checkpoint."""
    for proc in [proc for proc in world.procs if proc.rank == 0 and proc.alive]:
        world.observe(r.CHECKPOINT, proc.node, proc, event="saved", times=1, step=step, **SAVED)


def healthy(world: Fleet, node: str, *unwell: tuple[int, str, str, str]) -> None:
    """What its agent tells of eight GPUs; `unwell`: index, level, what, text."""
    told = {index: (level, what, text) for index, level, what, text in unwell}
    gpus = []
    for index in range(8):
        level, what, text = told.get(index, ("ok", "", ""))
        at = 1_800_000_000.0 + world.now
        found = (r.HealthFinding(what, level, "drain_reboot", text, at, at),) if what else ()
        gpus.append(r.GpuRow(f"0000:{16 + index:02x}:00", f"GPU-{node}-{index}", "H100", index, level, "ignore", found))
    health = r.NodeHealth(node=node, inc=1, at=1_800_000_000.0 + world.now, driver="570.1", gpus=tuple(gpus))
    world.put(world.keys.health(node), health)


def all_standings(ranks: int = 2) -> Fleet:
    """A bad night: every state that a node can have is somewhere on the map."""
    world = fleet(ranks)
    saves(world, 4000)
    for node in nodes_of("a"):
        healthy(world, node)
    world.ask("cordon", node="d01", reason="ECC errors, ticket 4711")
    world.ask("cordon", node="c07", reason="fan is loud", drain=True)
    world.ask("maintenance", node="d02", reason="new firmware")
    world.torchrun("d03", 1, uid="llama-1f")  # waits for a round
    state = r.NodeState(
        node="d04", inc=1, at=0.0, host="d04", agent_version="1", interval_s=1.0, rack="rack-d",
        capabilities={"preflight": "refused, because /checkpoints has 3 MB left", "gpu": "NVML: driver not loaded"},
    )  # fmt: skip
    world.put(world.keys.state("d04"), state)
    world.observe(r.AGENT_STOPPING, "d05")
    world.silent.update(("d05", "d06"))
    world.put(world.keys.state("d09"), r.NodeState(
        node="d09", inc=1, at=0.0, host="d09", agent_version="1", interval_s=1.0, rack="rack-d"))  # fmt: skip
    healthy(world, "b05", (2, "sick", "corrected_errors", "212 corrected memory errors per second"))
    world.run(3)
    healthy(world, "c02", (ranks - 1, "broken", "xid_79", "XID 79: the GPU has fallen off the bus"))
    world.run(1)
    world.die("b03")
    world.run(16)
    world.cut("c05")  # its agent answers direct looks
    world.machines["c05"] = ev.ANSWERED
    world.run(3)
    world.machines["d07"] = ev.SILENT
    world.silent.add("d07")
    world.run(3)
    return world


def missing(world: Fleet) -> set[str]:
    """States that the map does not show."""
    from rankpulse.core.glance import racks
    from rankpulse.core.node_standing import Standings

    return set(STANDINGS) - {node.state for rack in racks(world.engine, Standings()) for node in rack.nodes}
