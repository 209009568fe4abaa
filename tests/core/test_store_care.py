"""What is said about a store before it hurts."""

import pytest

from rankpulse.core.store_care import FULL_SHARE, WRITES_MAX, advised_interval_s, complaints, crowded, roles_leak


@pytest.mark.parametrize("nodes", [1, 64, 2048])
def test_a_fleet_that_one_etcd_carries_keeps_its_interval(nodes: int) -> None:
    assert advised_interval_s(nodes, 1.0) == 1.0
    assert crowded(nodes, 1.0) == ""


@pytest.mark.parametrize("nodes", [2500, 4096, 12_500, 20_000])
def test_a_larger_one_is_advised_an_interval_at_which_it_is_carried(nodes: int) -> None:
    advised = advised_interval_s(nodes, 1.0)
    assert advised > 1.0
    assert nodes / advised <= WRITES_MAX
    assert f"{advised:g}" in crowded(nodes, 1.0)
    assert crowded(nodes, advised) == ""


def test_beyond_ten_seconds_it_is_not_stretched_and_an_own_choice_is_never_shortened() -> None:
    assert advised_interval_s(1_000_000, 1.0) == 10.0
    assert advised_interval_s(64, 30.0) == 30.0
    assert "divide the fleet" in crowded(1_000_000, 10.0)


@pytest.mark.parametrize(
    ("version", "leaks"), [("3.4.44", True), ("3.5.1", True), ("3.6.9", True), ("3.6.11", False), ("3.7.0-rc.0", False)]
)
def test_an_etcd_whose_roles_do_not_hold_is_told_of(version: str, leaks: bool) -> None:
    assert ("become root" in roles_leak(version)) is leaks


def test_an_old_etcd_and_a_full_one_are_told_of() -> None:
    quota = 2 << 30
    assert list(complaints("3.5.1", int(FULL_SHARE * quota), quota)) == []
    assert list(complaints("3.5.1", 1 << 40, 0)) == []
    assert "too old" in next(complaints("3.3.27", 0, quota))
    assert "--quota-backend-bytes" in next(complaints("3.6.0", int(FULL_SHARE * quota) + 10, quota))
