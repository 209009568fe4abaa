"""The order of an epoch: every sample once, another order each time, the same for ever."""

from collections import Counter
from itertools import pairwise
from math import factorial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankpulse.trainer.data.order import Order


def whole(n: int, seed: int, epoch: int = 0) -> list[int]:
    order = Order(n, seed, epoch)
    return [order[place] for place in range(n)]


@given(st.integers(1, 3000), st.integers(0, 2**63 - 1), st.integers(0, 10**6))
def test_every_sample_comes_once(n: int, seed: int, epoch: int) -> None:
    assert sorted(whole(n, seed, epoch)) == list(range(n))


def test_the_order_is_the_same_for_ever() -> None:
    """Checkpoints say a place in this order: who changes it must give it another name."""
    assert whole(10, 0) == [4, 9, 8, 1, 0, 5, 2, 3, 7, 6]
    large = Order(1_000_003, 5, 2)
    assert [large[place] for place in (0, 1, 2, 1_000_002)] == [951006, 264681, 292322, 944553]


def test_epochs_and_seeds_have_orders_of_their_own() -> None:
    orders = [tuple(whole(100, seed, epoch)) for seed in range(10) for epoch in range(10)]
    assert len(set(orders)) == 100


def test_any_place_of_a_huge_epoch_is_found_at_once() -> None:
    n = 10**15
    order = Order(n, 3, 0)
    found = {order[place] for place in (0, 1, n // 2, n - 2, n - 1)}
    assert len(found) == 5
    assert all(0 <= sample < n for sample in found)


@pytest.mark.parametrize("n", [2, 3, 4])
def test_of_few_samples_every_order_comes_equally_often(n: int) -> None:
    """Chi-squared over all n! orders; the bound is beyond the 99.99th percentile for these degrees of freedom."""
    times, expected = 500 * factorial(n), 500
    found = Counter(tuple(whole(n, seed)) for seed in range(times))
    assert len(found) == factorial(n)
    assert sum((count - expected) ** 2 / expected for count in found.values()) < 60


def test_neighbours_have_nothing_to_do_with_each_other() -> None:
    n = 10_000
    for seed in range(3):
        samples, mean = whole(n, seed), (n - 1) / 2
        spread = sum((sample - mean) ** 2 for sample in samples)
        correlation = sum((one - mean) * (other - mean) for one, other in pairwise(samples)) / spread
        assert abs(correlation) < 5 / n**0.5


def test_unshuffled_it_is_as_it_lies_and_beyond_it_is_nothing() -> None:
    order = Order(5, 0, 0, shuffle=False)
    assert list(order) == [0, 1, 2, 3, 4]  # type: ignore[call-overload]
    with pytest.raises(IndexError, match="place 5 of an epoch of 5"):
        order[5]
