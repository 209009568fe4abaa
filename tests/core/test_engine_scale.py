"""The cost of folding and judging grows with what happens, not with the fleet. Work is counted, not timed."""

import gc
from collections.abc import Iterable

import pytest
from core_world import World
from support import work

from rankpulse.core import events as ev
from rankpulse.core import records as r
from rankpulse.core.engine import Engine
from rankpulse.core.keys import Keys
from rankpulse.core.settings import Settings

KEYS = Keys("scale")
UTC = 1_800_000_000.0
TICKS_PER_S = 4


class Fleet:
    """One job on many nodes, as an engine hears of it: a beat a second from each, a tick every quarter of one."""

    def __init__(self, nodes: int, ranks: int) -> None:
        self.nodes, self.ranks = nodes, ranks
        self.now, self.revision, self.second, self.step = 1000.0, 1, 0, 100
        self.runs = (r.RunRow("job", "meeting", "1.1", nodes * ranks, True),)
        self.rows: list[tuple[r.RankRow, ...]] = [()] * nodes
        self.silent: set[int] = set()
        self.engine = Engine(Settings(), KEYS)
        for event in (ev.Relisted(1, self.now), ev.SightBack(self.now), ev.TookOffice(1, self.now)):
            self.engine.step(event)

    def beat(self, node: int, *, moved: bool) -> ev.Seen:
        """The next beat of a node; without steps it repeats its last rows."""
        if moved or not self.rows[node]:
            self.rows[node] = tuple(
                r.RankRow(0, node * self.ranks + n, n, 4000 + n, 77_000 + node, "S", 0, self.step, 1)
                for n in range(self.ranks)
            )
        beat = r.Beat(
            node=f"n{node}", inc=1, seq=self.second, at=UTC, runs=self.runs, phases=("train",), ranks=self.rows[node]
        )
        self.revision += 1
        return ev.Seen(f"{KEYS.nodes()}{beat.node}/beat", beat, self.revision, self.now)

    def hear(self, nodes: Iterable[int], *, moved: bool) -> None:
        for node in nodes:
            if node not in self.silent:
                self.engine.step(self.beat(node, moved=moved))

    def tick(self) -> None:
        """What is to be written stands in the store at once."""
        self.engine.step(ev.CanarySeen(self.now))
        for action in self.engine.tick(self.now, UTC + self.now):
            if isinstance(action, ev.Write | ev.Create):
                self.revision += 1
                self.engine.step(ev.Seen(action.key, action.record, self.revision, self.now))

    def run(self, seconds: int, *, trains: bool = True) -> None:
        """Every other second shows steps."""
        for _ in range(seconds):
            self.second += 1
            moved = trains and self.second % 2 == 0
            self.step += 3 * moved
            for part in range(TICKS_PER_S):
                self.now = round(self.now + 1 / TICKS_PER_S, 6)
                self.hear(range(part, self.nodes, TICKS_PER_S), moved=moved)
                self.tick()


def folding(nodes: int, ranks: int, *, moved: bool) -> int:
    """Lines of Python that a beat takes, in a fleet that is known for long."""
    fleet = Fleet(nodes, ranks)
    fleet.run(5)
    fleet.second += 1
    fleet.step += 3
    event = fleet.beat(nodes // 2, moved=moved)
    return work(lambda: fleet.engine.step(event))


@pytest.mark.parametrize("moved", [True, False])
def test_a_beat_costs_the_same_in_any_fleet(moved: bool) -> None:
    assert folding(16, 8, moved=moved) == folding(256, 8, moved=moved)


@pytest.mark.parametrize(("moved", "most"), [(False, 12), (True, 30)])
def test_a_rank_costs_a_few_lines(moved: bool, most: int) -> None:
    one, many = folding(8, 1, moved=moved), folding(8, 65, moved=moved)
    assert many - one <= 64 * most, (one, many)


def test_ranks_that_go_abreast_cost_no_more_than_one() -> None:
    """Lines of Python, that is: their rows are packed and compared, by code that is compiled."""
    for moved in (True, False):
        assert folding(8, 1, moved=moved) == folding(8, 65, moved=moved)


def ticking(nodes: int) -> list[int]:
    """Lines that each tick takes over ten seconds, sorted."""
    fleet = Fleet(nodes, 8)
    fleet.run(25)
    taken = []
    for _ in range(10):
        fleet.second += 1
        fleet.step += 3
        for part in range(TICKS_PER_S):
            fleet.now = round(fleet.now + 1 / TICKS_PER_S, 6)
            fleet.hear(range(part, nodes, TICKS_PER_S), moved=True)
            taken.append(work(fleet.tick))
    return sorted(taken)


def test_a_tick_does_not_look_at_quiet_nodes() -> None:
    """But for one look per node and deadline, and one at every rank in a beat's time: some lines for each beat."""
    small, large = ticking(16), ticking(256)
    assert large[0] < small[0] + 100, "a tick at which no deadline is due"
    beats = 10 * 256
    assert sum(large) - sum(small) < 15 * 8 * beats, (sum(small), sum(large))


def slowest_tick(nodes: int) -> int:
    """Lines of the slowest tick while every node of one big run falls silent together and comes back."""
    world = World()
    world.launch({f"n{n}": 8 for n in range(nodes)}, meeting="m1")
    world.run(3.0)
    slowest = 0
    for tenth in range(50):
        world.silent = {f"n{n}" for n in range(nodes)} if tenth < 40 else set()
        world.run(0.1)
        slowest = max(slowest, work(world.tick))
    return slowest


def test_a_fleet_that_is_late_together_costs_in_proportion() -> None:
    small, large = slowest_tick(16), slowest_tick(64)
    assert large < 6 * small, (small, large)


def cheapest_tick(world: World) -> int:
    taken = []
    for _ in range(10):
        world.run(0.1)
        taken.append(work(world.tick))
    return min(taken)


def test_rounds_and_runs_that_are_judged_for_good_are_not_weighed_again() -> None:
    nodes = {f"n{n}": 8 for n in range(8)}
    world = World()
    first = world.launch(nodes, meeting="m1")
    world.run(5.0)
    before = cheapest_tick(world)
    world.ends(first[0], signal=9)
    for proc in first[1:]:
        world.ends(proc, signal=15)
    last = world.launch(nodes, meeting="m2", first_step=5)
    world.run(world.settings.detect.stop_settle_s + 5.0)
    assert cheapest_tick(world) < before + 100
    for proc in last:
        world.ends(proc, code=0, closed=True)
    world.run(5.0)
    assert [state.outcome for state in world.run_states()] == ["finished"]
    assert cheapest_tick(world) < before


def test_ten_thousand_ranks_for_three_hundred_seconds() -> None:
    """Quiet all the time; then a node dies, and it is told which one."""
    fleet = Fleet(1250, 8)
    gc.freeze()  # the collector need not look through what other tests left
    try:
        fleet.run(270)
        [run] = fleet.engine.snapshot(fleet.now)["runs"].values()
        assert (run["world_size"], run["step"], run["step_spread"], run["synchronous"]) == (10_000, fleet.step, 0, True)
        assert fleet.engine.snapshot(fleet.now)["incidents"] == []
        fleet.silent = {777}
        fleet.run(30, trains=False)
    finally:
        gc.unfreeze()
    [incident] = fleet.engine.snapshot(fleet.now)["incidents"]
    assert (incident["klass"], incident["nodes"]) == ("node_dead", ("n777",))
