"""Out of step with those that run the same program."""

from waiting_world import COMPLETED, at, op

from rankpulse.core.snapshot import Group, Operation, Rank
from rankpulse.core.twins import Twins

TP = Group("tp", (0, 1, 2, 3), "tp")


def rank(number: int, *calls: tuple[int, int], size: int = 64) -> Rank:
    """With these ended calls in the tensor parallel group: (seq, order)."""
    ended = tuple(op(seq, size=size, state=COMPLETED, order=order) for seq, order in calls)
    return Rank(number, positions=(at("tp", max(seq for seq, _ in calls), *ended),))


def test_who_stands_with_the_same_call_elsewhere_is_apart() -> None:
    twins = Twins([*(rank(n, (5, 20)) for n in range(3)), rank(3, (5, 19))], [TP])
    assert [twins.step(n).is_apart for n in range(4)] == [False, False, False, True]
    assert twins.strays() == [3]


def test_who_does_something_else_at_the_same_place_is_apart() -> None:
    other = Rank(3, positions=(at("world", 4, op(4, state=COMPLETED, order=20)),))
    twins = Twins([*(rank(n, (5, 20)) for n in range(3)), other], [TP])
    assert twins.strays() == [3]


def test_ranks_at_different_places_of_the_same_program_are_not_apart() -> None:
    twins = Twins([rank(0, (5, 20)), rank(1, (5, 20), (6, 24)), rank(2, (6, 24)), rank(3, (6, 24))], [TP])
    assert twins.strays() == []


def test_two_against_each_other_tell_nothing() -> None:
    twins = Twins([rank(0, (5, 20)), rank(1, (5, 19))], [TP])
    assert not any(twins.step(n).is_apart or twins.step(n).comparable for n in range(2))


def test_stages_of_a_pipeline_are_no_twins() -> None:
    pp = Group("tp", (0, 1, 2, 3), "pp")
    twins = Twins([*(rank(n, (5, 20)) for n in range(3)), rank(3, (5, 19))], [pp])
    assert twins.strays() == []


def test_replicas_are_twins_through_the_groups_that_connect_them() -> None:
    left, right, dp = Group("a", (0, 1), "tp"), Group("b", (2, 3), "tp"), Group("c", (0, 2), "dp")
    rows = [
        Rank(n, positions=(at("ab"[n // 2], 5, op(5, state=COMPLETED, order=20 if n != 3 else 21)),)) for n in range(4)
    ]
    assert Twins(rows, [left, right, dp]).strays() == [3]
    assert Twins(rows, [left, right]).strays() == []


def test_names_of_groups_that_differ_between_replicas_set_nobody_apart() -> None:
    rows = [Rank(n, positions=(at(f"mp.{n // 2}", 5, op(5, state=COMPLETED, order=20)),)) for n in range(4)]
    assert Twins(rows, [TP]).strays() == []


def test_another_size_at_the_same_place_is_odd() -> None:
    twins = Twins([*(rank(n, (5, 20)) for n in range(3)), rank(3, (5, 20), size=65)], [TP])
    assert [twins.step(n).is_odd for n in range(4)] == [False, False, False, True]
    assert twins.strays() == []


def test_another_size_at_the_same_line_is_odd_only_where_the_others_agree() -> None:
    def called(number: int, seq: int, size: int) -> Rank:
        call = Operation(seq, "all_reduce", (size,), "", None, COMPLETED, "loss.backward", None or seq)
        return Rank(number, positions=(at("tp", seq, call),))

    agreed = [called(0, 4, 64), called(1, 5, 64), called(2, 6, 64)]
    assert Twins([*agreed, called(3, 7, 65)], [TP]).step(3).is_odd
    mixed = [called(0, 4, 64), called(1, 5, 64), called(2, 6, 128)]
    assert not Twins([*mixed, called(3, 7, 65)], [TP]).step(3).is_odd


def test_a_rank_without_a_dump_is_neither() -> None:
    assert Twins([rank(0, (5, 20))], [TP]).step(9) == (False, False, False)


def test_lines_are_compared_over_groups_whose_kind_is_not_told() -> None:
    def called(number: int, name: str) -> Rank:
        call = Operation(7, name, (64,), "", None, COMPLETED, "finalize.embedding", 30 + number)
        return Rank(number, positions=(at(f"embedding.{number}", 7, call), at("tp", 1)))

    twins = Twins([*(called(n, "all_reduce") for n in range(3)), called(3, "broadcast")], [TP])
    assert [twins.step(n).is_odd for n in range(4)] == [False, False, False, True]


def test_a_rank_is_comparable_by_what_it_is_in_now() -> None:
    now = op(9, order=41)
    rows = [Rank(n, positions=(at("tp", 5, op(5, state=COMPLETED, order=20), now),)) for n in range(3)]
    assert Twins(rows, [TP]).step(0).comparable
    alone = Rank(3, positions=(at("tp", 5, op(5, state=COMPLETED, order=20), op(10, order=44)),))
    assert not Twins([*rows, alone], [TP]).step(3).comparable
