"""Whatever nodes tell, in whatever order it comes: nothing breaks, nobody is framed, nothing is ordered twice."""

import contextlib
from typing import Any

import msgspec
import pytest
from evidence_world import NODES, EvidenceWorld, locked, starved, trained
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rankpulse.core import dossier
from rankpulse.core import events as ev
from rankpulse.core.codec import Refused
from rankpulse.core.dossier import Dump, Part
from rankpulse.core.evidence import Position as RowPosition
from rankpulse.core.snapshot import Loaders, Operation, Position, Rank
from rankpulse.core.snapshot_nodes import Device, Link, Node, Xid

few = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
words = st.one_of(
    st.text(max_size=40),
    st.sampled_from(
        ["NVRM: Xid (PCI:0000:18:00): 79", "\x1b[2J", "queue.get", "CUDA out of memory", "loss is nan", "🙂" * 8]
    ),
)
numbers = st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1), st.integers(-2, 9))
seconds = st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False))
flags = st.one_of(st.none(), st.booleans())
operations = st.builds(
    Operation, seq=st.integers(-2, 12), op=words, sizes=st.tuples(st.integers(0, 99)), peer=numbers, state=words
)
positions = st.builds(
    Position, group=st.sampled_from(["w", "", "dp", "\x00"]), enqueued=numbers, started=numbers, completed=numbers,
    open=st.lists(operations, max_size=3).map(tuple),
)  # fmt: skip
ranks = st.builds(
    Rank, rank=st.integers(-1, 5), node=words, gpu=numbers, pid=numbers, step=numbers,
    state=st.sampled_from("RSDTtZX?"), wchan=words,
    stack=st.lists(words, max_size=4).map(tuple), cpu_moving=flags, io_moving=flags, gil_held=flags,
    alive=flags, exit_code=numbers, signal=numbers, exited_at=seconds, error=words, loss=words, dump=words,
    loaders=st.one_of(st.none(), st.builds(Loaders, alive=numbers, dead=numbers, busy=flags, state=words)),
    positions=st.lists(positions, max_size=3).map(tuple), unacked=st.lists(words, max_size=2).map(tuple),
    log=st.lists(words, max_size=3).map(tuple),
)  # fmt: skip
reports = st.builds(
    Node, node=words, silent_s=seconds, kernel=st.lists(words, max_size=3).map(tuple), uptime_s=seconds,
    links=st.lists(st.builds(Link, name=words, state=words, peer=words), max_size=2).map(tuple), round=numbers,
    disk_stuck=flags, launcher_exit=numbers, launcher_at=seconds, clock_offset_s=st.floats(-1e9, 1e9),
)  # fmt: skip
xids = st.one_of(st.integers(0, 200), st.builds(Xid, code=st.integers(0, 200), at=seconds))
devices = st.builds(
    Device, node=words, gpu=numbers, rank=numbers, lost=st.booleans(), pci=words,
    xids=st.lists(xids, max_size=3).map(tuple),
)  # fmt: skip


@given(st.binary(max_size=300))
@few
def test_any_bytes_are_evidence_or_refused(data: bytes) -> None:
    with contextlib.suppress(Refused):
        assert isinstance(dossier.decode(data), Part)


@given(st.lists(ranks, max_size=4), reports, st.lists(devices, max_size=2), st.data())
@few
def test_a_damaged_part_costs_its_damaged_rows_alone(
    rows: list[Rank], report: Node, more: list[Device], data: st.DataObject
) -> None:
    part = Part(node="n", order_id="c", taken_at=1.0, ranks=tuple(rows), report=report, devices=tuple(more))
    raw: dict[str, Any] = msgspec.json.decode(dossier.encode(part))
    damage = data.draw(st.sampled_from([None, 7, "x", [], {"rank": "no"}, {"rank": 1, "stack": ["y" * 5000]}]))
    raw["ranks"] = [damage, *raw.get("ranks", [])]
    found = dossier.decode(msgspec.json.encode(raw))
    whole = [rank for rank in rows if dossier.size(rank) <= dossier.RANK_MAX]
    assert list(found.ranks) == whole
    assert found.left_out[0].startswith("ranks[0]")


def asked(world: EvidenceWorld) -> list[ev.Ask]:
    """The questions, once all are put."""
    world.deaf.update(NODES)
    world.training = False
    for _ in range(100):
        if len(world.questions) == len(NODES):
            return list(world.questions)
        world.run(0.1)
    raise AssertionError("nobody was asked")


@given(st.lists(ranks, max_size=5), reports, st.lists(devices, max_size=2), st.booleans())
@few
def test_a_node_that_tells_anything_at_all_breaks_nothing_and_frames_no_other(
    rows: list[Rank], report: Node, more: list[Device], own: bool
) -> None:
    world = trained()
    first, second = asked(world)
    liar = second.node
    mine = {proc.rank: proc.pid for proc in world.procs if proc.node == liar}
    told = [msgspec.structs.replace(row, pid=mine.get(row.rank, row.pid)) if own else row for row in rows]
    lie = Part(
        node=liar, order_id=second.order_id, taken_at=-1e300, ranks=tuple(told), report=report, devices=tuple(more),
        dumps=(Dump(-5, "../../etc/passwd", -1),),
    )  # fmt: skip
    world.engine.step(ev.Told(liar, second.order_id, lie, "", world.now))
    world.engine.step(ev.Told(first.node, first.order_id, world.part(first), "", world.now))
    world.run(8)
    assert not [line for line in world.said if "bug" in line]
    assert len(world.of_kind("restart")) <= 1
    assert len(world.incidents()) <= 1
    for order in world.of_kind("restart"):
        assert {member.node for member in order.culprits} <= {liar}, "who told the truth is not ended for another's lie"


moves = st.lists(
    st.sampled_from(
        ["a", "b", "a again", "store a", "store b", "nothing", "wait", "wait long", "leader", "relist", "late"]
    ),
    max_size=10,
)


@pytest.mark.parametrize("culprit", [locked, starved])
@given(moves)
@few
def test_no_order_of_events_makes_two_orders_or_two_incidents(culprit: Any, story: list[str]) -> None:
    world = trained()
    world.does = {2: culprit(2)}
    questions = {ask.node: ask for ask in asked(world)}
    epoch = 1
    for move in story:
        ask = questions["node-b" if move.endswith("b") else "node-a"]
        if move in ("a", "b", "a again"):
            world.engine.step(ev.Told(ask.node, ask.order_id, world.part(ask), "", world.now))
        elif move == "nothing":
            world.engine.step(ev.Told(ask.node, ask.order_id, None, "no", world.now))
        elif move == "late":
            world.engine.step(ev.Diagnosed(1, None, "late", world.now))
        elif move.startswith("store"):
            for order in world.of_kind("collect"):
                places = {rank: (RowPosition("w", 7 if rank == 2 else 8, 7, "all_reduce"),) for rank in range(4)}
                world.answers(order, ask.node, places)
        elif move == "leader":
            epoch += 1
            world.successor(epoch)
        elif move == "relist":
            world.relist()
        world.run({"wait": 1.0, "wait long": 5.0}.get(move, 0.2))
    world.deaf.clear()
    world.run(20)
    assert len(world.of_kind("restart")) <= 1
    assert len([one for one in world.incidents() if one.state == "open"]) == 1
    [incident] = world.incidents()
    assert [member.rank for member in incident.culprits] in ([2], [2, 3], [])
    finding = world.findings().get(incident.id)
    assert finding is None or finding.klass == incident.klass
    assert world.findings().keys() <= {incident.id}
