"""Jobs whose agents answer questions for evidence directly: what each rank does is told by the story."""

import math
from dataclasses import dataclass, field
from typing import Any

import msgspec
from core_world import UTC, Proc, World

from rankpulse.core import codec
from rankpulse.core import events as ev
from rankpulse.core import records as r
from rankpulse.core.diagnosing import diagnose
from rankpulse.core.dossier import Dump, Part
from rankpulse.core.settings import Settings
from rankpulse.core.snapshot import Loaders, Operation, Position, Rank
from rankpulse.core.snapshot_nodes import Device, Node

NODES = {"node-a": 2, "node-b": 2}
IN_BACKWARD = ("train.py:40 step", "torch/autograd/__init__.py:80 backward", "torch/distributed/c10d.py:9 all_reduce")


def waiting(rank: int, seq: int = 8, op: str = "all_reduce", sizes: tuple[int, ...] = (64,)) -> Rank:
    """It has called a collective that does not end."""
    open_ = (Operation(seq, op, sizes, "float32"),)
    return Rank(
        rank,
        state="S",
        cpu_moving=False,
        stack=IN_BACKWARD,
        positions=(Position("w", seq, completed=seq - 1, open=open_),),
    )


def elsewhere(rank: int, *stack: str, seq: int = 7, **more: Any) -> Rank:
    """It has not come to what the others wait in."""
    known = {"state": "S", "cpu_moving": False, "positions": (Position("w", seq, completed=seq),)} | more
    return Rank(rank, stack=("train.py:40 step", *stack), **known)


def locked(rank: int) -> Rank:
    return elsewhere(rank, "train.py:77 update", "threading.py:300 acquire")


def starved(rank: int) -> Rank:
    """Its data loader's worker is dead."""
    loaders = Loaders(alive=1, dead=1, busy=False)
    return elsewhere(rank, "torch/utils/data/dataloader.py:99 _next_data", "queue.py:171 get", loaders=loaders)


@dataclass
class EvidenceWorld(World):
    does: dict[int, Rank] = field(default_factory=dict)  # by rank; of the others: `waiting`
    reports: dict[str, Node] = field(default_factory=dict)
    devices: dict[str, tuple[Device, ...]] = field(default_factory=dict)
    deaf: set[str] = field(default_factory=set)  # nodes whose agents answer no question
    answered: int = 0  # questions
    thinks_s: float | None = 0.5  # how long the shell takes for a large snapshot, None: for ever
    thinking: list[tuple[float, ev.Diagnose]] = field(default_factory=list)

    def addresses(self, *nodes: str) -> None:
        """These agents can be asked."""
        for node in nodes:
            state = r.NodeState(
                node=node, inc=1, at=UTC, host=node, agent_version="1", interval_s=1.0, probe="10.0.0.1:9465",
                boot_id=f"boot-{node}",
            )  # fmt: skip
            self.put(self.keys.state(node), state)

    def part(self, ask: ev.Ask) -> Part:
        mine = [proc for proc in self.procs if proc.node == ask.node and proc.alive]
        ranks = tuple(self._rank(proc) for proc in mine)
        return Part(
            node=ask.node,
            order_id=ask.order_id,
            taken_at=UTC + self.now,
            ranks=ranks,
            report=self.reports.get(ask.node, Node(ask.node)),
            devices=self.devices.get(ask.node, ()),
            dumps=tuple(Dump(proc.rank, f"{ask.order_id}.r{proc.rank}.json.gz", 1000) for proc in mine),
        )

    def _rank(self, proc: Proc) -> Rank:
        told = self.does.get(proc.rank, waiting(proc.rank))
        state = proc.state if proc.state == "T" else told.state
        return msgspec.structs.replace(told, rank=proc.rank, pid=proc.pid, state=state)

    def tick(self) -> None:
        """The agents answer within the next tick."""
        for ask in self.questions[self.answered :]:
            if ask.node not in self.deaf:
                self.engine.step(ev.Told(ask.node, ask.order_id, self.part(ask), "", self.now))
        self.answered = len(self.questions)
        due = self.now + (math.inf if self.thinks_s is None else self.thinks_s)
        self.thinking += [(due, one) for one in self.diagnoses]
        self.diagnoses.clear()
        for at, one in [pair for pair in self.thinking if pair[0] <= self.now]:
            self.thinking.remove((at, one))
            self.engine.step(ev.Diagnosed(one.number, diagnose(one.snapshot), "", self.now))
        super().tick()

    def findings(self) -> dict[str, r.Finding]:
        return {
            key.rpartition("/")[2]: codec.decode(r.Finding, data)
            for key, (data, _) in self.store.items()
            if "/findings/" in key
        }


def trained(
    nodes: dict[str, int] | None = None, settings: Settings | None = None, *, armed: bool = True
) -> EvidenceWorld:
    """A job that trains, watched by a monitor that may act."""
    nodes = nodes or NODES
    world = EvidenceWorld(settings) if settings is not None else EvidenceWorld()
    if armed:
        world.arm()
    world.meets(nodes, 1)
    world.addresses(*nodes)
    world.run(30)
    assert (world.incidents(), world.questions) == ([], [])
    return world


def stands(world: EvidenceWorld, does: dict[int, Rank], seconds: float = 6.0) -> r.Incident:
    """The job stands still, and these ranks do that; what is said of it."""
    world.does, world.training = does, False
    world.run(seconds)
    return world.incidents()[-1]


def restarted(world: EvidenceWorld, round_: int, nodes: dict[str, int] | None = None, first_step: int = 91) -> None:
    """The order is carried out, and the job goes on."""
    [order] = [order for order in world.of_kind("restart") if order.round == round_ - 1]
    for proc in [proc for proc in world.procs if proc.alive]:
        world.ends(proc, signal=9, order_id=order.order_id)
    world.does, world.training = {}, True
    world.meets(nodes or NODES, round_, first_step=first_step)
    world.run(8)
    assert world.incidents()[-1].outcome == "recovered"
