"""The same place, another call: who is odd, and when that cannot be told."""

import pytest
from waiting_world import WORLD, at, inside, leg, op

from rankpulse.core.signatures import disagreements, may_not_fit, signature
from rankpulse.core.snapshot import Operation, Rank
from rankpulse.core.waiting import waits


def sized(rank: int, size: int, name: str = "all_reduce") -> Rank:
    return Rank(rank, positions=(at("world", 7, op(8, name, size)),))


def test_the_minority_is_odd() -> None:
    (found,) = disagreements(waits([inside(0), inside(1), inside(2, name="broadcast"), inside(3)], [WORLD]))
    assert (found.odd, found.is_clear) == ((2,), True)
    assert "3 ranks call all_reduce 64 float32, rank 2 calls broadcast 64 float32" in found.text


def test_another_size_is_another_call() -> None:
    (found,) = disagreements(waits([sized(0, 64), sized(1, 65), sized(2, 64)], [WORLD]))
    assert found.odd == (1,)


def test_between_two_nobody_is_odd_by_number() -> None:
    (found,) = disagreements(waits([sized(0, 64), sized(1, 65)], [WORLD]))
    assert (found.odd, found.is_clear) == ((0, 1), False)


def test_all_to_all_may_differ_in_size() -> None:
    found = waits([sized(0, 64, "all_to_all"), sized(1, 65, "all_to_all")], [WORLD])
    assert disagreements(found) == []
    (inside_of,) = found.inside.values()
    assert may_not_fit(inside_of)


@pytest.mark.parametrize("name", ["reduce_scatter", "_reduce_scatter_base", "all_gather", "nccl:all_gather"])
def test_names_that_contain_scatter_or_gather_have_even_sizes_all_the_same(name: str) -> None:
    assert signature(op(1, name))[1] == (64,)


@pytest.mark.parametrize("name", ["gather", "scatter", "nccl:gather", "all_to_all", "ALLTOALL_BASE"])
def test_sizes_of_uneven_operations_are_not_compared(name: str) -> None:
    assert signature(op(1, name))[1] == ()


def test_what_is_not_told_equals_everything() -> None:
    silent = Rank(1, positions=(at("world", 7, Operation(8, state="started")),))
    assert disagreements(waits([inside(0), silent], [WORLD])) == []


def test_a_send_and_a_receive_are_not_a_disagreement() -> None:
    ranks = [Rank(0, positions=(at("pp", -1, leg("recv", 1)),)), Rank(1, positions=(at("pp", -1, leg("send", 0)),))]
    assert disagreements(waits(ranks, [])) == []


def test_the_clear_one_comes_first() -> None:
    rows = [
        Rank(0, positions=(at("a", 0, op(1)), at("world", 7, op(8)))),
        Rank(1, positions=(at("a", 0, op(1, "broadcast")), at("world", 7, op(8)))),
        Rank(2, positions=(at("world", 7, op(8, "all_gather")),)),
    ]
    assert [one.is_clear for one in disagreements(waits(rows, []))] == [True, False]
