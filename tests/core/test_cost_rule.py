"""The cost rule: what restarts cost and what silences heal decide how long to wait."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankpulse.core import cost_rule as c
from rankpulse.core import records as r
from rankpulse.core.fleet_learned import HEALED_KEPT, QUIET_WRITE_S, WRITE_S, FleetMemory
from rankpulse.core.incidents import PASSED, RECOVERED
from rankpulse.core.settings import DetectSettings, preset


@pytest.mark.parametrize(("restart_s", "best_s"), [(10, 3.0), (60, 5.75), (300, 13.0), (600, 17.5), (1800, 27.25)])
def test_cheap_restarts_buy_fast_detection(restart_s: float, best_s: float) -> None:
    assert c.best_s(c.NODE, c.Known(), restart_s) == best_s


def test_at_the_best_time_death_and_healing_weigh_the_same() -> None:
    """deaths = silences * f(T) * R, where no bound cuts it off."""
    best = c.best_s(c.NODE, c.Known(), 600.0)
    z = math.log(best / c.NODE.median_s) / c.NODE.sigma
    density = math.exp(-z * z / 2) / (best * c.NODE.sigma * math.sqrt(2 * math.pi))
    assert c.NODE.silences * density * 600.0 == pytest.approx(c.NODE.deaths, rel=0.15)


def test_presets_say_what_they_mean() -> None:
    fast = c.times(preset("fast").detect, None)
    assert (fast.node_s, fast.unwitnessed_s, fast.rack_s, fast.by_rule) == (7.0, 7.0, 16.5, ())
    default = c.times(preset("default").detect, None)
    assert default.node_s < default.unwitnessed_s
    assert (default.rack_s, default.bounded) == (17.0, ("rack_dead_after_s",)), "a lost rack is found within 18 s"
    assert len(default.by_rule) == 3


def test_a_quiet_network_is_no_reason_to_wait_longer() -> None:
    lan, default = preset("lan").detect, preset("default").detect
    assert c.times(lan, None)[:3] == c.times(default, None)[:3]
    assert (lan.margin_floor_s, lan.margin_cap_s) < (default.margin_floor_s, default.margin_cap_s)


@pytest.mark.parametrize(("cost_s", "own_s"), [(5.0, 0.0), (60.0, 0.0), (600.0, 0.0), (5.0, 15.0)])
def test_several_at_once_are_not_given_up_sooner_than_one_within_the_bound(cost_s: float, own_s: float) -> None:
    detect = DetectSettings(restart_cost_s=cost_s, node_dead_after_s=own_s)
    times = c.times(detect, None)
    assert times.rack_s >= min(times.node_s, c.RACK_MOST_S)
    assert times.rack_s <= c.RACK_MOST_S


def test_a_fleet_whose_nodes_freeze_for_long_waits_longer_and_one_that_never_does_waits_less() -> None:
    usual = c.best_s(c.NODE, c.Known(), 600.0)
    freezing = c.Known(days=5000.0, deaths=30, healed_s=tuple([20.0] * 40), healed=40)
    assert c.best_s(c.NODE, freezing, 600.0) > max(usual, 20.0)
    calm = c.Known(days=100_000.0, deaths=650)
    assert c.best_s(c.NODE, calm, 600.0) < usual / 2


def test_restarts_that_were_measured_replace_the_configured_cost() -> None:
    assert c.restart_cost_s(600.0, ()) == 600.0
    assert c.restart_cost_s(600.0, [60.0] * 20) < 150.0


def test_a_few_short_silences_do_not_promise_that_there_are_no_long_ones() -> None:
    """The same rate of silences as the prior has, all of them short."""
    few = c.Known(days=2560.0, deaths=16, healed_s=(3.0, 4.0, 2.5, 7.2, 3.3), healed=5)
    assert c.best_s(c.NODE, few, 600.0) == pytest.approx(c.best_s(c.NODE, c.Known(), 600.0), rel=0.15)


@pytest.mark.parametrize(("seconds", "freedom", "share"), [(1.812, 10, 0.05), (2.571, 5, 0.025), (1.96, 10_001, 0.025)])
def test_the_tail_is_students(seconds: float, freedom: int, share: float) -> None:
    assert c.Tail(0.0, 1.0, freedom).share_longer(math.exp(seconds)) == pytest.approx(share, rel=0.01)
    assert c.Tail(0.0, 1.0, freedom).share_longer(math.exp(-seconds)) == pytest.approx(1 - share, rel=0.01)


known = st.builds(
    c.Known,
    days=st.floats(0, 1e7),
    deaths=st.integers(0, 10**6),
    healed_s=st.lists(st.floats(0, 1e5), max_size=50).map(tuple),
    healed=st.integers(0, 10**6),
)


@given(known, st.floats(0, 1e6), st.sampled_from([c.NODE, c.UNWITNESSED, c.RACK]))
def test_the_time_is_always_within_its_bounds(known: c.Known, restart_s: float, prior: c.Prior) -> None:
    assert c.LEAST_S <= c.best_s(prior, known, restart_s) <= c.MOST_S


@given(st.floats(1, 1e5), st.floats(1, 1e5))
def test_a_dearer_restart_never_shortens_the_wait(one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert c.best_s(c.NODE, c.Known(), low) <= c.best_s(c.NODE, c.Known(), high)


# --- what is counted


def incident(**fields: object) -> r.Incident:
    full = {"id": "i1", "klass": "node_dead", "state": "closed", "opened_at": 0.0, "nodes": ("a",)} | fields
    return r.Incident(**full)  # type: ignore[arg-type]


def memory() -> FleetMemory:
    made = FleetMemory(DetectSettings())
    made.took_office()
    assert made.due(0.0, 0.0) is None
    return made


def test_it_is_written_when_something_happened_and_at_most_once_a_minute() -> None:
    mine = memory()
    assert mine.due(1000.0, 0.0) is None, "nothing happened, nobody was watched"
    mine.healed(4.0)
    record = mine.due(1000.0, 7.0)
    assert record is not None
    assert (record.healed, record.healed_s, record.at) == (1, (4.0,), 7.0)
    mine.healed(5.0)
    assert mine.due(1000.0 + WRITE_S - 1, 0.0) is None
    assert mine.due(1000.0 + WRITE_S, 0.0) is not None
    mine.watched(86400.0)
    assert mine.due(1000.0 + 2 * WRITE_S, 0.0) is None
    late = mine.due(1000.0 + WRITE_S + QUIET_WRITE_S, 0.0)
    assert late is not None
    assert late.node_days == 1.0


def test_deaths_are_nodes_that_did_not_come_back_and_restarts_cost_until_the_work_is_done_again() -> None:
    mine = memory()
    mine.closed(incident(outcome=PASSED), 2.0)
    mine.closed(incident(outcome=RECOVERED, nodes=("a", "b"), time_to_recover_s=50.0, lost_steps=10), 2.0)
    mine.closed(incident(outcome=RECOVERED, time_to_recover_s=50.0), None)
    record = mine.due(WRITE_S, 0.0)
    assert record is not None
    assert (record.deaths, record.restart_s) == (1, (70.0, 50.0))


def test_memory_is_bounded_and_what_the_store_holds_decides() -> None:
    mine = memory()
    for _ in range(HEALED_KEPT + 50):
        mine.healed(30.0)
    before = mine.times
    record = mine.due(WRITE_S, 0.0)
    assert record is not None
    assert (len(record.healed_s), record.healed) == (HEALED_KEPT, HEALED_KEPT + 50)
    assert mine.times == before
    mine.seen(record)
    assert mine.times.node_s > before.node_s
    successor = FleetMemory(DetectSettings())
    successor.seen(record)
    successor.took_office()
    assert successor.times == mine.times
    successor.healed(1.0)
    assert successor.due(0.0, 0.0) is None
    grown = successor.due(WRITE_S, 0.0)
    assert grown is not None
    assert grown.healed == HEALED_KEPT + 51
