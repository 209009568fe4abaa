"""Whatever the alignment and whatever happens: what is dead is found within its bound, what lives is not convicted."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from silence_world import SilenceWorld, settings

from rankpulse.core import events as ev

NODES = {"a": 1, "b": 1, "c": 1, "d": 1}
TICK_S = 0.25
few = hypothesis_settings(max_examples=25, deadline=None)


@dataclass
class Offbeat(SilenceWorld):
    """Each node beats at its own time; the job's hosts run ahead, or meet every so many steps only."""

    offsets: dict[str, float] = field(default_factory=dict)
    run_ahead: int = 0
    meets_every: int = 1
    beats_per_step: int = 2
    dead_at: int | None = None  # the step of the first node that died
    held: list[ev.Event] | None = None  # what the store has, and nobody sees yet
    beaten: dict[str, int] = field(default_factory=dict)

    def put(self, key: str, record: object) -> None:
        if self.held is None:
            super().put(key, record)  # type: ignore[arg-type]
            return
        step, self.engine.step = self.engine.step, self.held.append  # type: ignore[method-assign]
        super().put(key, record)  # type: ignore[arg-type]
        self.engine.step = step  # type: ignore[method-assign]

    def dies(self, node: str) -> None:
        self.machines[node] = ev.SILENT
        self.silent.add(node)
        steps = [proc.step for proc in self.procs if proc.node == node]
        self.dead_at = min([*steps, *([self.dead_at] if self.dead_at is not None else [])])

    def may_reach(self) -> float:
        """Up to which step the living get without the dead."""
        if self.dead_at is None:
            return float("inf")
        return (self.dead_at // self.meets_every + 1) * self.meets_every - 1 + self.run_ahead + (self.meets_every == 1)

    def pass_time(self, seconds: float, *, ticking: bool = True) -> None:
        for _ in range(round(seconds / TICK_S)):
            self.now = round(self.now + TICK_S, 6)
            if self.canary and self.held is None:
                self.engine.step(ev.CanarySeen(self.now))
            for node in NODES:
                count = int(self.now - self.offsets.get(node, 0.0))
                if count != self.beaten.get(node):
                    self.beaten[node] = count
                    self._step(node)
                    if node not in self.silent:
                        self.beat(node)
            if ticking:
                self.tick()

    def _step(self, node: str) -> None:
        for proc in self.procs:
            mine = proc.node == node and proc.alive and proc.phase == "train" and self.machines.get(node) is None
            if mine and self.beaten[node] % self.beats_per_step == 0 and proc.step < self.may_reach():
                proc.step = max(proc.step, 0) + 1
                proc.first_step = max(proc.first_step, 1)

    def until_convicted(self, seconds: float) -> float | None:
        began = self.now
        while self.now - began < seconds:
            self.pass_time(TICK_S)
            if "node_dead" in self.klasses():
                return self.now - began
        return None


def trained(offsets: dict[str, float] | None = None, **kwargs: object) -> Offbeat:
    world = Offbeat(offsets=offsets or {}, **kwargs)  # type: ignore[arg-type]
    for node in NODES:
        world.states(node)
    world.meets(NODES, 1)
    world.pass_time(80)
    assert world.incidents() == []
    return world


alignments = st.fixed_dictionaries({node: st.sampled_from([0.0, 0.25, 0.5, 0.75]) for node in NODES})
quarters = st.integers(0, 8).map(lambda n: n * TICK_S)


# --- what is dead


@few
@given(alignments, quarters, st.integers(0, 3), st.sampled_from([1, 8]), st.booleans())
def test_a_dead_node_is_convicted_whatever_the_run_ahead(
    offsets: dict[str, float], when: float, ahead: int, meets_every: int, reachable: bool
) -> None:
    """Also where ranks meet every eighth step only: the others go on for a while, and that excuses nobody for ever."""
    world = trained(offsets, run_ahead=ahead, meets_every=meets_every, unreachable=not reachable)
    world.pass_time(when)
    world.dies("b")
    went_on_s = (meets_every + ahead) * world.beats_per_step
    took = world.until_convicted(60)
    assert took is not None
    assert took <= max(6.0, went_on_s + 5.0) + 2.0
    assert world.incidents()[-1].nodes == ("b",)


disturbances = st.lists(
    st.one_of(
        st.tuples(st.just("evaluate"), st.integers(1, 10)),
        st.tuples(st.just("train"), st.integers(1, 10)),
        st.tuples(st.just("blind"), st.integers(1, 6)),
        st.tuples(st.just("asleep"), st.integers(1, 6)),
        st.tuples(st.just("successor"), st.integers(1, 6)),
        st.tuples(st.just("hiccup"), st.integers(1, 4)),
        st.tuples(st.just("answer"), st.integers(1, 4)),
        st.tuples(st.just("refuse"), st.integers(1, 4)),
        st.tuples(st.just("lapse"), st.integers(1, 4)),
        st.tuples(st.just("deposed"), st.integers(1, 4)),
    ),
    max_size=8,
)


def disturb(world: Offbeat, moves: list[tuple[str, int]], victim: str) -> None:
    epoch = 1
    for move, seconds in moves:
        if move in ("evaluate", "train"):
            for proc in world.procs:
                proc.phase = move
        elif move == "blind":
            world.canary = False
            world.pass_time(seconds)
            world.canary = True
        elif move == "asleep":
            world.pass_time(seconds, ticking=False)
        elif move == "successor":
            epoch += 1
            world.successor(epoch)
        elif move == "deposed":
            world.engine.step(ev.LeftOffice("deposed", world.now))
            world.pass_time(seconds)
            epoch += 1
            world.engine.step(ev.TookOffice(epoch, world.now))
        elif move == "hiccup":
            world.silent.add("c")
            world.pass_time(seconds)
            world.silent.discard("c")
        elif move in ("answer", "refuse") and victim in world.machines:
            before = world.machines[victim]
            world.machines[victim] = ev.ACCEPTED if move == "answer" else ev.REFUSED
            world.pass_time(seconds)
            world.machines[victim] = before
        elif move == "lapse" and victim in world.silent:
            world.erase(world.keys.beat(victim))
        world.pass_time(seconds)


@few
@given(alignments, disturbances, disturbances, st.sampled_from([ev.SILENT, ev.REFUSED, ev.UNABLE]))
def test_from_any_state_the_silence_of_a_needed_node_ends_in_an_incident(
    offsets: dict[str, float], before: list[tuple[str, int]], after: list[tuple[str, int]], machine: str
) -> None:
    world = trained(offsets, settings=settings(silence_ceiling_s=90.0, hang_prior_s=60.0))
    disturb(world, before, "b")
    world.dies("b")
    world.machines["b"] = machine
    disturb(world, after, "b")
    world.pass_time(90 + 30)
    named = [i for i in world.incidents() if i.state == "open" and "b" in i.nodes]
    assert len(named) == 1, world.incidents()
    [incident] = named
    assert incident.klass in {ev.SILENT: ("node_dead",), ev.REFUSED: ("unknown", "sidecar_dead")}.get(
        machine, ("node_dead", "unknown")
    )
    if machine == ev.SILENT:
        assert incident.action == "page"
    assert not [i for i in world.incidents() if i.klass == "node_dead" and i.nodes != ("b",)]


# --- what lives


@few
@given(alignments, quarters, st.floats(0.3, 45.0), st.sampled_from(["train", "evaluate"]), st.booleans())
def test_no_pause_of_the_observer_convicts_anybody(
    offsets: dict[str, float], when: float, pause: float, phase: str, reachable: bool
) -> None:
    world = trained(offsets, unreachable=not reachable)
    for proc in world.procs:
        proc.phase = phase
    world.pass_time(when + 5)
    world.held = []
    world.pass_time(pause, ticking=False)  # it sleeps; all that happens waits in its queue
    held, world.held = world.held, None
    for event in held:
        world.engine.step(event._replace(received_at=world.now))  # type: ignore[call-arg]
    world.pass_time(40)
    assert [i for i in world.incidents() if i.klass != "control_plane_delay"] == []


@few
@given(
    alignments,
    quarters,
    st.floats(0.3, 45.0),
    st.fixed_dictionaries({node: st.floats(0.0, 4.0) for node in NODES}),
    st.sampled_from(["train", "evaluate"]),
    st.sampled_from([ev.ANSWERED, ev.SILENT, ev.UNABLE]),
)
def test_no_pause_of_the_store_convicts_anybody(
    offsets: dict[str, float], when: float, pause: float, back: dict[str, float], phase: str, looks: str
) -> None:
    """Nothing comes through, agents come back within seconds after it; looks may fail meanwhile."""
    world = trained(offsets)
    for proc in world.procs:
        proc.phase = phase
    world.pass_time(when + 5)
    world.canary, began = False, world.now
    for node in NODES:
        world.silent.add(node)
        if looks != ev.ANSWERED:
            world.machines[node] = looks
    while NODES.keys() & world.silent:
        world.canary = world.now - began >= pause
        if world.canary:
            world.machines.clear()
            for node in [n for n in world.silent if world.now - began >= pause + back[n]]:
                world.silent.discard(node)
        world.pass_time(TICK_S)
    world.pass_time(40)
    assert [i for i in world.incidents() if i.klass != "control_plane_delay"] == []
    assert world.engine.snapshot(world.now)["blind"] is False


@few
@given(alignments, disturbances)
def test_a_job_that_lives_is_never_convicted(offsets: dict[str, float], moves: list[tuple[str, int]]) -> None:
    world = trained(offsets)
    disturb(world, moves, "b")
    world.pass_time(20)
    assert [i for i in world.incidents() if i.klass == "node_dead"] == []


# --- what is told twice


@few
@given(alignments, disturbances, st.sampled_from([ev.SILENT, ev.REFUSED, ev.ANSWERED]))
def test_events_that_are_told_twice_change_nothing(
    offsets: dict[str, float], moves: list[tuple[str, int]], machine: str
) -> None:
    def play(times: int) -> dict[str, tuple[bytes, int]]:
        world = Offbeat(offsets=offsets)
        engine = world.engine

        def again(event: ev.Event) -> None:
            for _ in range(times if isinstance(event, ev.Seen | ev.Probed | ev.Gone | ev.CanarySeen) else 1):
                type(engine).step(world.engine, event)

        world.engine.step = again  # type: ignore[method-assign]
        for node in NODES:
            world.states(node)
        world.meets(NODES, 1)
        world.pass_time(40)
        world.dies("b")
        world.machines["b"] = machine
        disturb(world, [move for move in moves if move[0] != "successor"], "b")
        world.pass_time(15)
        return {key: value for key, value in world.store.items() if "/learned" not in key}

    assert play(2) == play(1)


@pytest.mark.parametrize("machine", [ev.SILENT, ev.REFUSED])
def test_a_replay_of_everything_gives_the_same_incidents(machine: str) -> None:
    def play() -> tuple[list[str], list[ev.Action]]:
        world = trained({"a": 0.25, "c": 0.5})
        world.dies("b")
        world.machines["b"] = machine
        world.pass_time(60)
        return [str(i) for i in world.incidents()], world.actions

    assert play() == play()
