"""Evidence made small: within its limit whatever it is, the telling parts last, and what went is said."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankpulse.core import dossier
from rankpulse.core.dossier import PART_MAX, RANK_MAX, Dump, Part, size
from rankpulse.core.reducing import fit, fit_part
from rankpulse.core.snapshot import COMPLETED, Loaders, Operation, Position, Rank
from rankpulse.core.snapshot_nodes import Node

INT = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(max_size=200) | st.sampled_from(["\0" * 300, "\u20ac" * 900, '"\\' * 600, "\U0001f600" * 400])
OPERATION = st.builds(
    Operation, INT, TEXT, st.lists(INT, max_size=20).map(tuple), TEXT, st.none() | INT, TEXT, TEXT, st.none() | INT
)
POSITION = st.builds(
    Position, TEXT, st.none() | INT, st.none() | INT, st.none() | INT, st.lists(OPERATION, max_size=30).map(tuple)
)
TEXTS = st.lists(TEXT, max_size=60).map(tuple)
RANK = st.builds(
    Rank, INT, node=TEXT, pid=st.none() | INT, phase=TEXT, state=TEXT, wchan=TEXT, stack=TEXTS, log=TEXTS, error=TEXT,
    unacked=TEXTS, pulse=TEXT, dump=TEXT, positions=st.lists(POSITION, max_size=20).map(tuple), loss=TEXT,
    loaders=st.none() | st.builds(Loaders, INT, INT, st.booleans(), TEXT), gil_held=st.none() | st.booleans(),
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(RANK, st.sampled_from([256, 512, RANK_MAX]))
def test_any_rank_fits_and_can_be_read(rank: Rank, limit: int) -> None:
    found, left_out = fit(rank, limit)
    assert size(found) <= limit
    assert msgspec.json.decode(msgspec.json.encode(found), type=Rank) == found
    assert found.rank == rank.rank
    assert bool(left_out) == (found != rank)


def test_what_fits_stays_as_it_is() -> None:
    rank = Rank(3, log=("a line",), stack=("train.py:1 main",), positions=(Position("0", 3, None, 2),))
    assert fit(rank) == (rank, ())


def operation(seq: int, **more: Any) -> Operation:
    return Operation(seq, "all_reduce", (4096, 4096), "Float", order=seq, **more)


def test_lines_go_before_operations_and_these_before_the_stack() -> None:
    ended = tuple(operation(n, state=COMPLETED) for n in range(40))
    rank = Rank(
        3, log=("x" * 200,) * 20, stack=tuple(f"train.py:{n} step" for n in range(20)),
        positions=(Position("0", 41, None, 39, (*ended, operation(40), operation(41))),),
    )  # fmt: skip
    found, left_out = fit(rank)
    assert left_out == ("lines of its log", "ended operations")
    assert found.stack == rank.stack
    assert found.positions[0].open == (operation(40), operation(41))


def test_the_first_open_operation_and_the_innermost_frames_are_kept() -> None:
    positions = tuple(
        Position(f"group {n}", 99, None, 3, tuple(operation(seq) for seq in range(4, 99))) for n in range(6)
    )
    rank = Rank(3, stack=tuple(f"deep/down/in/a/module_{n}.py:{n} function" for n in range(200)), positions=positions)
    found, left_out = fit(rank)
    assert "open operations" in left_out
    assert [position.group for position in found.positions] == [position.group for position in positions]
    assert all(position.open[0].seq == 4 for position in found.positions)
    assert found.stack[-6:] == rank.stack[-6:]
    assert found.stack[0] == rank.stack[0]


def test_what_waits_is_kept_before_what_does_not() -> None:
    done = [Position(f"done-{n:050}", 5, None, 5) for n in range(200)]
    rank = Rank(3, positions=(*done, Position("waits", 6, None, 5, (operation(6),))))
    assert [position.group for position in fit(rank).rank.positions] == ["waits"]


def part(*ranks: Rank, **more: Any) -> Part:
    return Part(node="n1", order_id="o", taken_at=0.0, ranks=ranks, report=Node("n1"), **more)


def test_an_answer_is_read_back_as_it_was_sent() -> None:
    sent = fit_part(part(Rank(1, log=("x" * 500,) * 20), Rank(2)))
    assert dossier.decode(dossier.encode(sent)) == sent
    assert sent.left_out == ("rank 1: lines of its log",)


@pytest.mark.parametrize("count", [100, 256, 4000])
def test_a_node_of_many_ranks_is_told_whole(count: int) -> None:
    stack = tuple(f"deep/down/in/a/module_{n}.py:{n} function" for n in range(80))
    dumps = tuple(Dump(n, "d" * 100, 5) for n in range(count))
    found = fit_part(part(*[Rank(n, state="S", stack=stack) for n in range(count)], dumps=dumps))
    assert len(dossier.encode(found)) <= PART_MAX
    assert len(dossier.decode(dossier.encode(found)).ranks) == count or count == 4000
    assert found.left_out


@settings(max_examples=30, deadline=None)
@given(st.lists(RANK, max_size=12), TEXTS, st.sampled_from([2048, 20_000]))
def test_any_answer_fits(ranks: list[Rank], left_out: tuple[str, ...], limit: int) -> None:
    found = fit_part(part(*ranks, left_out=tuple(text[:20] for text in left_out[:4])), limit)
    assert len(dossier.encode(found)) <= limit
    assert len(dossier.decode(dossier.encode(found)).ranks) == len(found.ranks)
