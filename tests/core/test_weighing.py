"""Who is to blame, by the evidence: one rule after the other, and never more than the evidence bears."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import work

from rankpulse.core.evidence import GROUPS_MAX, ROWS_MAX_BYTES, SILENT, Answers, Position, Row
from rankpulse.core.records import Member
from rankpulse.core.weighing import Verdict, weigh

WORLD = 4
MEMBERS = [Member(rank, f"node-{'ab'[rank // 2]}", rank % 2, 100 + rank, 7) for rank in range(WORLD)]


def at(group: str, enqueued: int, completed: int, operation: str = "all_reduce") -> Position:
    return Position(group, enqueued, completed, operation)


def row(rank: int, *positions: Position, state: str = "S", moving: bool | None = False, server: str = "ok") -> Row:
    return Row(rank, 100 + rank, 7, state, "futex_wait", moving, server, positions)


def waiting(rank: int, group: str = "world", seq: int = 8) -> Row:
    return row(rank, at(group, seq, seq - 1))


def told(*rows: Row) -> dict[str, tuple[Row, ...]]:
    """By the node that each rank belongs to."""
    return {node: tuple(r for r in rows if MEMBERS[r.rank].node == node) for node in ("node-a", "node-b")}


def verdict(*rows: Row) -> Verdict:
    return weigh(told(*rows), MEMBERS)


def names(found: Verdict) -> list[int]:
    return [member.rank for member in found.culprits]


def test_the_stopped_one_is_it() -> None:
    found = verdict(waiting(0), row(1, state="T"), waiting(2), waiting(3))
    assert (names(found), found.cascade) == ([1], (0, 2, 3))
    assert found.confidence >= 0.9
    assert "is stopped (state T)" in " ".join(found.reasons)


def test_a_job_that_is_stopped_as_a_whole_has_no_culprit() -> None:
    found = verdict(*(row(rank, state="T") for rank in range(WORLD)))
    assert (names(found), found.confidence) == ([], 0.3)
    assert "suspended" in " ".join(found.reasons)


def test_one_that_did_not_come_to_the_collective_is_it() -> None:
    found = verdict(waiting(0), waiting(1), row(2, at("world", 7, 7)), waiting(3))
    assert (names(found), found.confidence) == ([2], 0.9)
    assert "rank 2 has not called all_reduce 8 of group world, 3 ranks wait in it" in found.reasons


def test_the_chain_is_followed_from_group_to_group() -> None:
    """Rank 3 hangs; its tensor-parallel peer 2 waits for it, and 0 and 1 wait for both in the data-parallel groups."""
    found = verdict(
        row(0, at("tp-a", 20, 20), at("dp-0", 9, 8)),
        row(1, at("tp-a", 20, 20), at("dp-1", 9, 8)),
        row(2, at("tp-b", 20, 19), at("dp-0", 8, 8)),
        row(3, at("tp-b", 19, 19), at("dp-1", 8, 8)),
    )
    assert (names(found), found.confidence) == ([3], 0.9)


def test_the_others_may_have_run_ahead_asynchronously() -> None:
    found = verdict(row(0, at("w", 12, 7)), row(1, at("w", 11, 7)), row(2, at("w", 7, 7)), row(3, at("w", 12, 7)))
    assert names(found) == [2]


def test_one_at_work_may_only_be_slow() -> None:
    found = verdict(waiting(0), waiting(1), row(2, at("world", 7, 7), state="R", moving=True), waiting(3))
    assert (names(found), found.confidence) == ([2], 0.7)
    starved = verdict(waiting(0), waiting(1), row(2, at("world", 7, 7), state="R"), waiting(3))
    assert (names(starved), starved.confidence) == ([2], 0.7), "a crowded machine gives it little of the CPU"
    spinning = [row(rank, at("world", 8, 7), state="R", moving=True) for rank in (0, 1, 3)]
    found = verdict(*spinning, row(2, at("world", 7, 7), moving=True))
    assert (names(found), found.confidence) == ([2], 0.7), "NCCL spins where it waits, and rank 2 may be saving"


def test_one_that_waits_for_a_disk_is_named_and_left_alone() -> None:
    found = verdict(waiting(0), waiting(1), row(2, at("world", 7, 7), state="D"), waiting(3))
    assert (names(found), found.confidence) == ([2], 0.7)
    assert "state D, futex_wait" in " ".join(found.reasons)


def test_another_operation_at_the_same_place_is_wrong() -> None:
    odd = row(1, at("world", 8, 7, "broadcast"))
    found = verdict(waiting(0), odd, waiting(2), waiting(3))
    assert (names(found), found.confidence) == ([1], 0.9)
    tie = verdict(waiting(0), odd, row(2, at("world", 8, 7, "broadcast")), waiting(3))
    assert (names(tie), tie.confidence) == ([], 0.3)
    assert "who is wrong cannot be told" in " ".join(tie.reasons)


def test_a_server_that_does_not_answer_while_others_do() -> None:
    for why in SILENT:
        found = verdict(waiting(0), waiting(1), row(2, server=f"{why} within 1 s"), waiting(3))
        assert names(found) == [2]
    then = verdict(waiting(0), waiting(1), row(2, server="left earlier questions unanswered: not asked"), waiting(3))
    assert then.confidence < 0.9, "it may only have been slow to answer, some other time"
    none = verdict(waiting(0), waiting(1), row(2, server="it has no worker server"), waiting(3))
    assert none.confidence < 0.9, "one that never had a server says nothing by that"
    assert names(verdict(*(row(rank, server="no answer within 1 s") for rank in range(WORLD)))) == []


def test_nobody_differs() -> None:
    found = verdict(*(waiting(rank) for rank in range(WORLD)))
    assert (names(found), found.cascade) == ([], (0, 1, 2, 3))
    assert found.confidence < 0.9
    assert "no laggard: all 4 ranks seen in it have called all_reduce 8" in " ".join(found.reasons)


def test_all_outside_of_collectives() -> None:
    found = verdict(*(row(rank, at("world", 8, 8)) for rank in range(WORLD)))
    assert (names(found), found.confidence) == ([], 0.3)
    assert "no rank waits in a collective" in found.reasons[0]


def test_what_is_missing_is_evidence_and_doubt() -> None:
    found = weigh({"node-a": (waiting(0), waiting(1)), "node-b": (waiting(2),)}, MEMBERS)
    assert names(found) == [3]
    assert found.confidence < 0.9
    assert "the agents do not tell of ranks 3" in found.reasons
    half = weigh({"node-a": (waiting(0), waiting(1))}, MEMBERS)
    assert names(half) == []
    assert "no evidence from node-b" in half.reasons


def test_a_row_counts_only_for_the_member_that_lives_there() -> None:
    forged = [
        Row(3, 103, 7, "T", "", False, "ok"),  # node-a speaks of a rank of node-b
        Row(1, 999, 7, "T", "", False, "ok"),  # another process
        Row(77, 1, 1, "T", "", False, "ok"),
    ]
    rows = told(*(waiting(rank) for rank in range(WORLD)))
    found = weigh({**rows, "node-a": (*forged, *rows["node-a"]), "node-c": tuple(forged)}, MEMBERS)
    assert names(found) == []
    assert "6 rows tell of processes that are not of this round: ignored" in found.reasons


def test_weighing_costs_what_there_are_ranks() -> None:
    """Also where every rank says it stands elsewhere: a job that lies holds up nobody else's verdict."""

    def weighed(ranks: int) -> int:
        members = [Member(rank, "n", rank, 100 + rank, 7) for rank in range(ranks)]
        rows = [
            Row(rank, 100 + rank, 7, "S", "", False, "ok", (at("a", rank + 9, rank), at("b", rank + 9, rank)))
            for rank in range(ranks)
        ]
        assert weigh({"n": rows}, members).culprits
        return work(lambda: weigh({"n": rows}, members))

    assert weighed(1600) < 16 * weighed(200)


def test_more_groups_than_an_agent_tells_of_are_not_looked_at() -> None:
    many = tuple(at(f"g{n}", 7, 7) for n in range(GROUPS_MAX))
    found = verdict(waiting(0), waiting(1), row(2, *many, at("world", 7, 7)), waiting(3))
    assert names(found) == []


def test_a_circle_names_who_is_furthest_behind_without_much_confidence() -> None:
    found = verdict(
        row(0, at("g", 5, 4), at("h", 7, 7)),
        row(1, at("g", 4, 4), at("h", 9, 7)),
        row(2, at("i", 3, 3)),
        row(3, at("i", 3, 3)),
    )
    assert found.confidence <= 0.6
    assert "in a circle" in " ".join(found.reasons)


def test_the_word_for_silence_is_the_agents_own() -> None:
    from pathlib import Path

    sources = sorted((Path(__file__).parents[2] / "agent").glob("*.py"))
    said = "".join(source.read_text(encoding="utf-8") for source in sources)
    assert [text for text in SILENT if text not in said] == []


_positions = st.lists(
    st.builds(
        Position,
        st.sampled_from(["a", "b", "c"]),
        st.integers(-1, 6),
        st.integers(-1, 6),
        st.sampled_from(["all_reduce", "broadcast"]),
        st.integers(0, 4),
    ),
    max_size=4,
)
_rows = st.lists(
    st.builds(
        Row,
        st.integers(-1, 5),
        st.sampled_from([100, 101, 102, 103, 999]),
        st.sampled_from([7, 8]),
        st.sampled_from(["S", "R", "D", "T", "t", "Z", "X", "?", ""]),
        st.text(max_size=5),
        st.sampled_from([True, False, None]),
        st.sampled_from(["ok", "no answer within 1 s", "it has no worker server", ""]),
        _positions.map(tuple),
    ),
    max_size=6,
)


@given(st.dictionaries(st.sampled_from(["node-a", "node-b", "node-c"]), _rows, max_size=3))
def test_weighing_is_total_and_names_members_only(rows: dict[str, list[Row]]) -> None:
    found = weigh(rows, MEMBERS)
    assert set(found.culprits) <= set(MEMBERS)
    assert {m.rank for m in found.culprits}.isdisjoint(found.cascade)
    assert {m.rank for m in found.culprits} | set(found.cascade) == set(range(WORLD))
    assert 0 <= found.confidence <= 1
    assert found.reasons
    assert found.culprits or found.confidence < 0.9
    assert found == weigh(dict(reversed(rows.items())), list(reversed(MEMBERS)))


def test_nothing_at_all_is_no_laggard() -> None:
    assert weigh({}, MEMBERS).culprits == ()
    assert weigh({}, []).culprits == ()


@pytest.mark.parametrize("rows", [None, 7, "", "{}", "[[1]]", "[" * 3000, "x" * (ROWS_MAX_BYTES + 1), "[" + "1," * 9])
def test_answers_that_cannot_be_read_are_refused_and_count_as_heard(rows: object) -> None:
    answers = Answers()
    superfluous, refused = answers.told("o1", "n1", "k1", rows)
    assert refused
    assert not superfluous
    assert answers.nodes("o1") == {"n1"}
    assert answers.rows("o1") == {}
    assert answers.keys("o1") == ("k1",)


def test_the_first_answer_of_a_node_counts_and_its_repetition_is_the_same() -> None:
    answers, text = Answers(), msgspec.json.encode([waiting(0)]).decode()
    assert answers.told("o1", "n1", "k1", text) == (False, "")
    assert answers.told("o1", "n1", "k1", text) == (False, "")
    assert answers.told("o1", "n1", "k2", "[]") == (True, "")
    assert answers.rows("o1") == {"n1": (waiting(0),)}
