"""Running time is neither lost nor counted twice, whatever happens to the monitors that count it."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from rankpulse.core.exposure import SAMPLE_S, WRITE_S, Exposure
from rankpulse.core.records import LedgerDay

UTC = 1_796_000_000.0
TICK_S = 0.5


class Node:
    def __init__(self, world: "World") -> None:
        self._world = world

    def heard_at(self) -> float:
        return self._world.now


class World:
    """One node that is always heard, a leader, a standby, and a store that shows the one what the other wrote."""

    def __init__(self) -> None:
        self.now, self.store = 1000.0, dict[str, LedgerDay]()
        self.nodes, self.runs = {"node-a": Node(self)}, dict[str, Any]()
        self.began = self.now
        self.leader, self.standby = self.fresh(), self.fresh()
        self.leads()

    def fresh(self) -> Exposure:
        """A monitor that starts: it lists the store."""
        made = Exposure(1.0, self.store.get)
        for day in self.store.values():
            made.stored(day, self.now, leading=False)
        return made

    def leads(self) -> None:
        self.leader.took_office(self.now, UTC + self.now)

    def passes(self, seconds: float, *, seeing: bool = True) -> None:
        for _ in range(round(seconds / TICK_S)):
            self.now += TICK_S
            for monitor in (self.leader, self.standby):
                monitor.sample(
                    self, self.now, UTC + self.now, seeing=seeing, saved=lambda _uid: None, slow=lambda _uid: []  # type: ignore[arg-type]
                )  # fmt: skip
            for day in self.leader.due(self.now, UTC + self.now, "o1"):
                self.store[day.day] = day
                self.leader.stored(day, self.now, leading=True)
                self.standby.stored(day, self.now, leading=False)

    def killed(self) -> None:
        """The leader dies; the standby leads, and another one starts."""
        self.leader, self.standby = self.standby, self.fresh()
        self.leads()

    def all_killed(self, seconds: float) -> None:
        """Nobody watches for so long."""
        self.now += seconds
        self.leader, self.standby = self.fresh(), self.fresh()
        self.leads()

    def seen_s(self) -> float:
        return sum(day.node_s for day in self.store.values())

    def unseen_s(self) -> float:
        return sum(day.unseen_s for day in self.store.values())


HAPPENS = st.one_of(
    st.tuples(st.just("passes"), st.integers(1, 200)),
    st.tuples(st.just("blind"), st.integers(1, 60)),
    st.tuples(st.just("killed"), st.just(0)),
    st.tuples(st.just("all killed"), st.integers(1, 500)),
)


@settings(max_examples=150)
@given(st.lists(HAPPENS, max_size=12))
def test_every_second_is_seen_or_unseen_once(story: list[tuple[str, int]]) -> None:
    world, watched_s, takeovers = World(), 0.0, 0
    for what, seconds in [*story, ("passes", int(3 * WRITE_S))]:
        if what == "passes":
            world.passes(seconds)
            watched_s += seconds
        elif what == "blind":
            world.passes(seconds, seeing=False)
        elif world.store:  # before anything was ever written nobody can know that there was something to see
            world.killed() if what == "killed" else world.all_killed(seconds)
            takeovers += 1
    elapsed_s = world.now - world.began
    total_s = world.seen_s() + world.unseen_s()
    assert total_s <= elapsed_s + 1.0, "counted twice"
    assert total_s >= elapsed_s - WRITE_S - SAMPLE_S - 1.0 * takeovers - 1.0, "lost"
    assert world.seen_s() <= watched_s + SAMPLE_S * (1 + len(story)), "what nobody saw is called running"


def test_a_standby_that_watched_leaves_hardly_a_second_unseen() -> None:
    world = World()
    world.passes(100)
    for _ in range(5):
        world.killed()
        world.passes(100)
    assert world.unseen_s() <= 5 * SAMPLE_S
    assert world.seen_s() >= 600 - WRITE_S - SAMPLE_S - 5 * SAMPLE_S
