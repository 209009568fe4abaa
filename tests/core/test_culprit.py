"""The end of all waiting: a rank, a communicator, a circle, or an honest set."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from waiting_world import ENQUEUED, WORLD, at, free, inside, leg, op, unseen

from rankpulse.core import culprit
from rankpulse.core.circles import circles, holders
from rankpulse.core.culprit import find
from rankpulse.core.snapshot import Group, Operation, Position, Rank
from rankpulse.core.waiting import waits

LEFT, RIGHT = Group("left", (0, 1), "tp"), Group("right", (1, 2), "tp")


def test_the_one_that_waits_for_nobody_is_the_culprit() -> None:
    found = find([inside(0), inside(1), free(2), inside(3)], [WORLD])
    assert (found.kind, found.sure, found.ranks, found.groups) == (culprit.STUCK, True, (2,), ("world",))
    assert found.reasons == ("rank 2 is in no collective; 3 ranks wait for it in collective 8 of group world",)


def test_waiting_is_followed_from_group_to_group() -> None:
    """0 waits for 1 in the left group, 1 for 2 in the right one."""
    rows = [
        Rank(0, positions=(at("left", 3, op(4)),)),
        Rank(1, positions=(at("left", 3), at("right", 5, op(6)))),
        Rank(2, positions=(at("right", 5),)),
    ]
    assert find(rows, [LEFT, RIGHT]).ranks == (2,)


def test_a_device_that_stopped_while_its_host_ran_ahead() -> None:
    ahead = Rank(2, positions=(at("world", 7, *(op(seq, state=ENQUEUED) for seq in range(8, 12))),))
    found = find([inside(0), inside(1), ahead, inside(3)], [WORLD])
    assert (found.kind, found.sure, found.ranks) == (culprit.STUCK, True, (2,))


def test_the_same_with_nothing_begun_recorded_is_a_doubt() -> None:
    rows = [Rank(rank, positions=(at("world", 7, op(8, state=ENQUEUED, order=8), timed=False),)) for rank in range(4)]
    found = find(rows, [WORLD])
    assert (found.kind, found.sure, found.assumed) == (culprit.LINK, False, True)
    assert "not recorded" in found.reasons[-1]


def test_all_came_and_nothing_moves() -> None:
    found = find([inside(rank) for rank in range(4)], [WORLD])
    assert (found.kind, found.sure, found.ranks, found.groups) == (culprit.LINK, True, (), ("world",))


def test_a_dead_link_that_several_groups_pass_is_narrowed_down_to_its_ends() -> None:
    """0 and 1 are both in the left group and neighbours in the world."""
    rows = [Rank(rank, positions=(at("left", 3, op(4)), at("world", 7, op(8)))) for rank in (0, 1)]
    found = find([*rows, inside(2), inside(3)], [LEFT, WORLD])
    assert (found.kind, found.ranks, found.groups) == (culprit.LINK, (0, 1), ("left", "world"))


def test_uneven_sizes_make_the_link_a_doubt() -> None:
    rows = [Rank(rank, positions=(at("world", 7, op(8, "all_to_all", 64 + rank)),)) for rank in range(4)]
    assert not find(rows, [WORLD]).sure


def test_another_operation_at_the_same_place() -> None:
    found = find([inside(0), inside(1, name="broadcast"), inside(2), inside(3)], [WORLD])
    assert (found.kind, found.sure, found.ranks) == (culprit.MISMATCH, True, (1,))


def test_one_against_one_is_not_decided() -> None:
    found = find([inside(0, group="left"), inside(1, name="broadcast", group="left")], [LEFT])
    assert (found.kind, found.sure, found.ranks) == (culprit.MISMATCH, False, (0, 1))


def out_of_step() -> list[Rank]:
    """Rank 3 left out the tensor parallel collective in which 0, 1 and 2 wait, and is in the next of all."""
    rows = [Rank(rank, positions=(at("tp", 7, op(8)), at("all", 2))) for rank in range(3)]
    return [*rows, Rank(3, positions=(at("tp", 7), at("all", 2, op(3))))]


def test_who_holds_a_circle_together_is_out_of_step() -> None:
    tp, everyone = Group("tp", (0, 1, 2, 3), "tp"), Group("all", (0, 1, 2, 3))
    found = find(out_of_step(), [tp, everyone])
    assert (found.kind, found.sure, found.ranks) == (culprit.OUT_OF_STEP, True, (3,))
    graph = waits(out_of_step(), [tp, everyone])
    assert circles(graph) == [{0, 1, 2, 3}]
    assert holders(graph, {0, 1, 2, 3}) == [3]


def test_two_that_wait_for_each_other_without_twins_are_both_told() -> None:
    rows = [
        Rank(0, positions=(at("left", 3, op(4)), at("other", 1))),
        Rank(1, positions=(at("left", 3), at("other", 1, op(2)))),
    ]
    found = find(rows, [LEFT, Group("other", (0, 1))])
    assert (found.kind, found.sure, found.ranks) == (culprit.OUT_OF_STEP, False, (0, 1))


def test_the_one_that_told_nothing_is_a_guess_and_never_sure() -> None:
    found = find([inside(0), inside(1), unseen(2), inside(3)], [WORLD])
    assert (found.kind, found.sure, found.ranks, found.groups) == (culprit.UNCLEAR, False, (2,), ("world",))


def test_a_proof_counts_whatever_is_missing() -> None:
    found = find([inside(0), unseen(1), free(2), inside(3)], [WORLD])
    assert (found.kind, found.sure, found.ranks) == (culprit.STUCK, True, (2,))


def test_a_send_that_was_met_while_one_still_waits_for_the_answer_is_a_doubt() -> None:
    rows = [
        Rank(0, positions=(at("pp", -1, leg("send", 1), leg("recv", 1)),)),
        Rank(1, positions=(at("pp", -1, leg("recv", 0)),)),
    ]
    found = find(rows, [Group("pp", (0, 1), "pp")])
    assert (found.kind, found.sure, found.ranks) == (culprit.LINK, False, (0, 1))


def test_nobody_waits() -> None:
    assert find([free(rank) for rank in range(4)], [WORLD]).kind == culprit.NOBODY
    assert find([], []).kind == culprit.NOBODY


def test_most_of_the_job_idle_is_no_sure_thing() -> None:
    assert not find([inside(0), free(1), free(2), free(3)], [WORLD]).sure


def test_a_group_of_all_ranks_of_a_large_job_is_cheap() -> None:
    """Every one of 16,384 waits for one: as pairs, that would be seconds even here."""
    size = 16_384
    found = find([*(inside(rank) for rank in range(size - 1)), free(size - 1)], [Group("world", tuple(range(size)))])
    assert found.ranks == (size - 1,)


numbers = st.one_of(st.none(), st.integers(-1, 3))
calls = st.builds(
    Operation,
    seq=st.integers(-1, 3),
    op=st.sampled_from(["", "all_reduce", "send", "recv", "all_to_all"]),
    sizes=st.sampled_from([(), (1,), (2,)]),
    peer=st.one_of(st.none(), st.integers(-1, 4)),
    state=st.sampled_from(["", "enqueued", "started", "completed", "?"]),
    order=numbers,
)
positions = st.builds(
    Position, st.sampled_from(["a", "b"]), numbers, numbers, numbers, st.lists(calls, max_size=3).map(tuple)
)
rows = st.lists(st.builds(Rank, st.integers(-1, 4), positions=st.lists(positions, max_size=3).map(tuple)), max_size=5)
told = st.lists(
    st.builds(
        Group,
        st.sampled_from(["a", "b", "c"]),
        st.lists(st.integers(-1, 5), max_size=4).map(tuple),
        st.sampled_from(["", "dp", "pp"]),
    ),
    max_size=3,
)


@given(rows, told)
def test_whatever_is_told_there_is_an_answer(ranks: list[Rank], groups: list[Group]) -> None:
    found = find(ranks, groups)
    assert found.kind in (
        culprit.STUCK,
        culprit.LINK,
        culprit.MISMATCH,
        culprit.OUT_OF_STEP,
        culprit.UNCLEAR,
        culprit.NOBODY,
    )
    assert find(list(reversed(ranks)), groups).kind == found.kind or len({r.rank for r in ranks}) < len(ranks)


@pytest.mark.parametrize("lost", range(4))
def test_with_any_one_dump_missing_the_culprit_stays_in_the_set(lost: int) -> None:
    rows = [inside(0), inside(1), free(2), inside(3)]
    found = find([unseen(lost) if row.rank == lost else row for row in rows], [WORLD])
    assert 2 in found.ranks
    assert found.sure == (lost != 2)
