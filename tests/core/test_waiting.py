"""Who is inside what, who is late, and of whom nobody knows."""

from waiting_world import COMPLETED, ENQUEUED, WORLD, at, free, inside, leg, op, unseen

from rankpulse.core.snapshot import Group, Operation, Position, Rank
from rankpulse.core.waiting import Meeting, Waits, waits

EIGHT = Meeting("world", 8)


def test_who_has_begun_is_inside_and_who_has_not_is_late() -> None:
    found = waits([inside(0), inside(1), free(2), free(3)], [WORLD])
    assert found.inside[EIGHT].keys() == {0, 1}
    assert found.late[EIGHT] == (2, 3)
    assert found.missed() == {2, 3}
    assert found.all_came() == found.open_ended() == []


def test_what_the_host_has_called_ahead_makes_nobody_come() -> None:
    ahead = Rank(2, positions=(at("world", 7, op(8, state=ENQUEUED), op(9, state=ENQUEUED)),))
    found = waits([inside(0), inside(1), ahead, inside(3)], [WORLD])
    assert found.late[EIGHT] == (2,)
    assert 2 not in found.of


def test_who_has_left_the_meeting_has_come_to_it() -> None:
    found = waits([inside(0), inside(1), inside(2), inside(3, seq=9)], [WORLD])
    assert found.late[EIGHT] == ()
    assert found.late[Meeting("world", 9)] == (0, 1, 2)


def test_ranks_without_a_dump_are_unseen_and_not_late() -> None:
    found = waits([inside(0), inside(1), inside(2), unseen(3)], [WORLD])
    assert (found.late[EIGHT], found.unseen[EIGHT]) == ((), (3,))
    assert found.open_ended() == [EIGHT]


def test_members_that_no_row_tells_of_are_unseen() -> None:
    assert waits([inside(0), inside(1)], [WORLD]).unseen[EIGHT] == (2, 3)


def test_a_first_collective_is_waited_for_in_ranks_that_have_never_used_the_group() -> None:
    other = Rank(3, positions=(at("other", 4),))
    found = waits([inside(rank, seq=0) for rank in range(3)] + [other], [WORLD])
    assert found.late[Meeting("world", 0)] == (3,)


def test_a_position_that_is_left_out_though_the_group_was_used_is_no_proof() -> None:
    other = Rank(3, positions=(at("other", 4),))
    found = waits([inside(0), inside(1), inside(2), other], [WORLD])
    assert (found.late[EIGHT], found.unseen[EIGHT]) == ((), (3,))


def test_groups_that_nobody_declared_are_made_of_those_that_tell_of_them() -> None:
    assert waits([inside(0), free(2)], []).late[EIGHT] == (2,)


def test_a_receive_waits_for_its_sender_alone() -> None:
    ranks = [Rank(0, positions=(at("pp", -1, leg("recv", 1)),)), Rank(1, positions=(at("pp", -1),))]
    found = waits(ranks, [Group("pp", (0, 1, 2, 3), "pp")])
    assert found.late == {Meeting("pp", -1, 1, 0): (1,)}


def test_a_send_and_its_receive_meet() -> None:
    ranks = [Rank(0, positions=(at("pp", -1, leg("recv", 1)),)), Rank(1, positions=(at("pp", -1, leg("send", 0)),))]
    found = waits(ranks, [])
    assert found.all_came() == [Meeting("pp", -1, 1, 0)]
    assert found.everyone(Meeting("pp", -1, 1, 0)) == (1, 0)


def untimed(rank: int, *groups: tuple[str, int, int]) -> Rank:
    """In each group one open operation: (name, seq, order)."""
    calls = [at(g, seq - 1, op(seq, state=ENQUEUED, order=order), timed=False) for g, seq, order in groups]
    return Rank(rank, positions=tuple(calls))


def test_where_beginnings_are_not_recorded_the_earliest_open_call_is_assumed() -> None:
    found = waits([untimed(0, ("a", 5, 40), ("b", 9, 39)), untimed(1, ("a", 5, 41))], [])
    assert found.of == {0: [Meeting("b", 9)], 1: [Meeting("a", 5)]}
    assert found.assumed == {Meeting("a", 5), Meeting("b", 9)}
    assert found.late[Meeting("a", 5)] == (0,)


def test_the_whole_batch_of_the_earliest_send_is_assumed() -> None:
    calls = (leg("send", 1, ENQUEUED, seq=6, order=10), leg("recv", 1, ENQUEUED, seq=6, order=11))
    later = leg("send", 2, ENQUEUED, seq=7, order=12)
    found = waits([Rank(0, positions=(at("pp", -1, *calls, later, timed=False),))], [])
    assert found.of[0] == [Meeting("pp", -1, 0, 1), Meeting("pp", -1, 1, 0)]


def test_counters_alone_are_enough() -> None:
    ranks = [Rank(rank, positions=(Position("world", 8, 8, 7),)) for rank in range(3)]
    found = waits([*ranks, Rank(3, positions=(Position("world", 7, 7, 7),))], [WORLD])
    assert found.late[EIGHT] == (3,)
    assert not found.assumed


def test_ended_entries_beside_open_counters_do_not_make_a_rank_idle() -> None:
    last = Operation(7, "all_reduce", state=COMPLETED)
    found = waits([Rank(0, positions=(Position("world", 8, 8, 7, (last,)),)), *map(free, (1, 2, 3))], [WORLD])
    assert found.of[0] == [EIGHT]


def test_entries_that_the_counters_say_have_ended_are_not_open() -> None:
    stale = Rank(0, positions=(Position("world", 7, 7, 7, (op(7, state=ENQUEUED),)),))
    assert waits([stale], [WORLD]).inside == {}


def test_with_calls_alone_the_furthest_are_thought_to_wait_for_the_others() -> None:
    ranks = [Rank(rank, positions=(Position("world", 8),)) for rank in range(3)]
    found: Waits = waits([*ranks, Rank(3, positions=(Position("world", 7),))], [WORLD])
    assert found.late == {EIGHT: (3,)}
    assert found.assumed == {EIGHT}


def test_a_recorder_that_notes_no_beginnings_among_others_that_do_makes_nobody_idle() -> None:
    """As of a rank that only its watchdog tells of."""
    told = Rank(3, positions=(Position("world", 8, None, 7),))
    found = waits([*map(inside, (0, 1, 2)), told], [WORLD])
    assert found.of[3] == [EIGHT]
    assert found.assumed == {EIGHT}
