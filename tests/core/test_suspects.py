"""The table of suspicion, the heap of deadlines, who is looked at, and who fell silent together."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankpulse.core import events as ev
from rankpulse.core import suspects as s
from rankpulse.core.arrival import Anew, Arrival
from rankpulse.core.cuts import cuts, mass, rack_sizes, together
from rankpulse.core.deadlines import Deadlines
from rankpulse.core.looks import AT_ONCE, RARELY, Looks
from rankpulse.core.records import NodeState
from rankpulse.core.settings import DetectSettings, ProbeSettings
from rankpulse.core.views import NodeView

D = DetectSettings()


@pytest.mark.parametrize("state", s.STATES)
@pytest.mark.parametrize("fact", s.FACTS)
def test_every_state_knows_every_fact(state: str, fact: str) -> None:
    assert s.TABLE[state, fact] in s.STATES


def test_the_table_knows_nothing_else() -> None:
    assert set(s.TABLE) == {(state, fact) for state in s.STATES for fact in s.FACTS}


def test_only_suspicion_leads_to_conviction_and_only_a_sign_of_life_or_blindness_back() -> None:
    into = {(state, fact) for (state, fact), after in s.TABLE.items() if after == s.CONVICTED and state != s.CONVICTED}
    assert into == {(s.SUSPECT, s.EXPIRED), (s.EXCUSED, s.EXPIRED)}
    out = {fact for (state, fact), after in s.TABLE.items() if state == s.CONVICTED and after != s.CONVICTED}
    assert out == {s.HEARD, s.RESTARTED, s.ANSWERED, s.MACHINE_LIVES, s.VOUCHED, s.BLIND, s.LEFT}
    assert {after for (state, _), after in s.TABLE.items() if state == s.TRUSTED} == {s.TRUSTED, s.SUSPECT}


@given(st.lists(st.sampled_from(s.FACTS), max_size=60))
def test_each_turn_keeps_its_reason_and_the_trail_is_bounded(facts: list[str]) -> None:
    suspect = s.Suspect()
    for n, fact in enumerate(facts):
        suspect.learn(fact, float(n), f"because {fact}")
        assert suspect.state in s.STATES
        assert bool(suspect.reason) == (suspect.state != s.TRUSTED)
    assert len(suspect.trail) <= s.TRAIL_KEPT
    assert all(turn.reason == f"because {turn.fact}" for turn in suspect.trail)


@pytest.mark.parametrize("over", [s.HEARD, s.BLIND])
def test_for_how_long_looks_have_shown_the_same_counts_in_this_silence_alone(over: str) -> None:
    suspect = s.Suspect()

    def look(answer: str, now: float) -> float:
        suspect.ask(int(now), now)
        assert suspect.looked(int(now), answer, "", now)
        return suspect.same_since

    suspect.learn(s.LATE, 10.0, "late")
    shown = (ev.ANSWERED, ev.ANSWERED, ev.ACCEPTED, ev.REFUSED, ev.UNABLE, ev.ANSWERED, ev.ANSWERED)
    assert [look(answer, 11.0 + n) for n, answer in enumerate(shown)] == [11, 11, 13, 13, 15, 16, 16]
    suspect.learn(over, 20.0, "over")
    suspect.learn(s.LATE, 30.0, "late")
    assert look(ev.ANSWERED, 31.0) == 31.0


def test_the_job_vouches_once_per_silence() -> None:
    suspect = s.Suspect()
    suspect.learn(s.LATE, 10.0, "late")
    suspect.vouch(12.0, 13.0, "step")
    suspect.vouch(20.0, 21.0, "step")
    assert suspect.life_at == 12.0
    suspect.learn(s.HEARD, 30.0, "heard")
    suspect.learn(s.LATE, 40.0, "late")
    suspect.vouch(42.0, 43.0, "step")
    assert suspect.life_at == 42.0


# --- deadlines


class Fleet:
    """Nodes and their deadlines, and the slow way to say who is late."""

    def __init__(self, names: str) -> None:
        self.anew = Anew()
        self.nodes: dict[str, NodeView] = {}
        self.deadlines = Deadlines(self.nodes, D)
        for name in names:
            self.add(name)

    def add(self, name: str) -> None:
        self.nodes[name] = NodeView(name, Arrival(D, self.anew))
        self.deadlines.watch(self.nodes[name])

    def late(self, now: float) -> set[str]:
        return {name for name, node in self.nodes.items() if now > node.arrival.deadline() and not node.leaving}


_moves = st.lists(
    st.tuples(
        st.sampled_from(["beat", "beat", "beat", "tick", "anew", "leave", "back", "drop", "expect"]),
        st.sampled_from("abcd"),
        st.floats(0.0, 3.0),
    ),
    max_size=120,
)


@given(_moves)
def test_the_heap_says_what_a_look_at_every_node_would_say(moves: list[tuple[str, str, float]]) -> None:
    fleet, now = Fleet("abcd"), 100.0
    for move, name, later in moves:
        now += later
        if name not in fleet.nodes:
            fleet.add(name)
        node = fleet.nodes[name]
        if move == "beat":
            node.arrival.beat(now)
        elif move == "anew":
            fleet.anew.start(now, later)
        elif move in ("leave", "back"):
            node.leaving = move == "leave"
            if move == "back":  # a beat is what says so
                node.arrival.beat(now)
        elif move == "drop":
            del fleet.nodes[name]
        elif move == "expect":
            node.arrival.expect(now)
        fleet.deadlines.tick(now)
        assert set(fleet.deadlines.late) == fleet.late(now)
        seen = {n for n, v in fleet.nodes.items() if v.arrival.last is not None and not v.leaving}
        assert {n for n in "abcd" if n in fleet.deadlines} == seen - fleet.late(now)


def test_a_tick_looks_at_what_is_due_and_at_nothing_else() -> None:
    fleet = Fleet("")
    for n in range(1000):
        fleet.add(f"n{n}")
        fleet.nodes[f"n{n}"].arrival.beat(100.0)
    fleet.deadlines.tick(100.0)
    looked: list[str] = []
    for node in fleet.nodes.values():
        node.arrival = _Counting(node.name, looked, fleet.anew)  # type: ignore[assignment]
        node.arrival.beat(100.0)
    fleet.deadlines.tick(100.5)
    fleet.deadlines.tick(101.5)
    assert looked == []


class _Counting(Arrival):
    __slots__ = ("_looked", "_name")

    def __init__(self, name: str, looked: list[str], anew: Anew) -> None:
        super().__init__(D, anew)
        self._name, self._looked = name, looked

    def deadline(self) -> float:
        self._looked.append(self._name)
        return super().deadline()


def test_a_node_that_no_beat_ever_came_of_is_late_only_when_one_is_expected() -> None:
    fleet = Fleet("ab")
    fleet.anew.start(100.0, 5.0)
    fleet.nodes["a"].arrival.expect(100.0)
    fleet.deadlines.tick(1000.0)
    assert set(fleet.deadlines.late) == {"a"}
    assert fleet.nodes["b"].arrival.deadline() == math.inf


# --- looks


def suspected(name: str, heard_at: float, address: str = "10.0.0.1:9", state: str = s.SUSPECT) -> NodeView:
    node = NodeView(name, Arrival(D))
    node.arrival.beat(heard_at)
    node.state = NodeState(
        node=name, inc=1, at=0.0, host=name, agent_version="1", interval_s=1.0, probe=address, boot_id="b"
    )
    node.silent_since, node.suspect.state = heard_at + 2.0, state
    return node


def test_the_longest_silent_are_looked_at_first_and_nobody_without_an_address() -> None:
    looks = Looks(ProbeSettings())
    nodes = [suspected(f"n{n}", 100.0 - n) for n in range(AT_ONCE + 10)]
    nodes += [suspected("dead", 1.0, state=s.CONVICTED), suspected("mute", 0.0, address="")]
    asked = looks.due(nodes, 110.0)
    assert [probe.node for probe in asked] == [f"n{n}" for n in range(AT_ONCE + 9, 9, -1)]
    assert {probe.boot_id for probe in asked} == {"b"}
    assert looks.due(nodes, 110.2) == []
    assert len(looks.due(nodes, 110.0 + ProbeSettings().interval_s)) == AT_ONCE


def test_where_more_are_suspected_than_are_looked_at_once_nobody_is_left_out() -> None:
    looks, interval_s = Looks(ProbeSettings()), ProbeSettings().interval_s
    nodes = [suspected(f"n{n:03d}", 100.0 - n / 1000) for n in range(3 * AT_ONCE)]
    asked: dict[str, list[float]] = {}
    for tick in range(40):
        now = 110.0 + tick * interval_s / 2
        found = looks.due(nodes, now)
        assert len(found) <= AT_ONCE
        for probe in found:
            asked.setdefault(probe.node, []).append(now)
    assert len(asked) == len(nodes)
    assert {len(times) for times in asked.values()} <= {6, 7}


def test_who_is_convicted_is_looked_at_rarely() -> None:
    looks, node = Looks(ProbeSettings()), suspected("dead", 1.0, state=s.CONVICTED)
    asked = [now for tenth in range(200) if looks.due([node], now := 10.0 + tenth / 10)]
    assert len(asked) == pytest.approx(20.0 / (RARELY * ProbeSettings().interval_s), abs=1)


def test_looks_that_never_come_back_are_forgotten() -> None:
    suspect = s.Suspect()
    for number in range(100):
        suspect.ask(number, float(number))
    assert len(suspect.asked) == s.ASKED_MAX
    assert not suspect.looked(0, ev.SILENT, "", 200.0)
    assert suspect.looked(99, ev.SILENT, "", 200.0)


# --- cuts


def racked(name: str, heard_at: float, rack: str) -> NodeView:
    node = suspected(name, heard_at)
    assert node.state is not None
    node.state = NodeState(
        node=name, inc=1, at=0.0, host=name, agent_version="1", interval_s=1.0, rack=rack, probe="10.0.0.1:9"
    )
    return node


@pytest.mark.parametrize(
    ("silent", "groups"),
    [
        ([("a", 0.0, "r1"), ("b", 0.5, "r1")], [["a", "b"]]),  # half of a rack of four
        ([("a", 0.0, "r1")], [["a"]]),
        ([("a", 0.0, "r1"), ("e", 0.0, "r2")], [["a"], ["e"]]),  # one of each
        ([("a", 0.0, "r1"), ("b", 60.0, "r1")], [["a"], ["b"]]),  # a minute apart: not one cause
        ([("a", 0.0, ""), ("b", 1.4, ""), ("c", 2.8, "")], [["a", "b", "c"]]),  # no racks: by time, as a chain
        ([("a", 0.0, ""), ("b", 1.6, "")], [["a"], ["b"]]),
        ([("i", 0.0, "r3"), ("j", 0.5, "r3")], [["i"], ["j"]]),  # two of eight
    ],
)
def test_who_fell_silent_together_is_judged_as_one(silent: list[tuple], groups: list[list[str]]) -> None:
    sizes = {"r1": 4, "r2": 4, "r3": 8, "": 10}
    found = cuts([racked(*row) for row in silent], sizes, 1.0)
    assert [[node.name for node in group] for group in found] == groups


def test_many_in_several_racks_are_a_mass_and_one_rack_is_not() -> None:
    nodes = [racked(name, 0.0, "r1") for name in "abcd"]
    sizes = rack_sizes(nodes)
    assert sizes == {"r1": 4}
    assert not mass(nodes, sizes)
    assert not mass([nodes[0], racked("e", 0.0, "r2")], sizes)
    assert mass([*nodes, racked("e", 0.0, "r2")], sizes)
    assert mass([racked(name, 0.0, "") for name in "abc"], {"": 3})
    assert [together(*of, 0.5) for of in ((2, 4), (1, 2), (2, 5))] == [True, False, False]
