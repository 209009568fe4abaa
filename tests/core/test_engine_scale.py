"""The cost of judging grows with the fleet, not with its square. Ratios within one run, on one machine."""

import time

from core_world import World

RANKS = 8


def slowest_tick_s(nodes: int) -> float:
    """The slowest tick while every node of one big run falls silent together and comes back."""
    world = World()
    world.launch({f"n{n}": RANKS for n in range(nodes)}, meeting="m1")
    world.run(3.0)
    slowest = 0.0
    for tenth in range(50):
        world.silent = {f"n{n}" for n in range(nodes)} if tenth < 40 else set()
        world.run(0.1)
        began = time.perf_counter()
        world.tick()
        slowest = max(slowest, time.perf_counter() - began)
    return slowest


def test_a_fleet_that_is_late_together_costs_in_proportion() -> None:
    small, large = (min(slowest_tick_s(nodes) for _ in range(2)) for nodes in (32, 256))
    assert large < 32 * max(small, 1e-3), (small, large)
