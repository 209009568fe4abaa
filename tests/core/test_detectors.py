"""The adaptive deadline, run-ahead and exits, each by itself."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankpulse.core import records as r
from rankpulse.core.arrival import WINDOW, Arrival
from rankpulse.core.exits import Kind, in_words, kind_of
from rankpulse.core.phases import PhaseClocks
from rankpulse.core.policy import Facts, choose
from rankpulse.core.settings import DetectSettings

D = DetectSettings()


def heard(*intervals: float, start: float = 100.0) -> Arrival:
    arrival, now = Arrival(D), start
    arrival.beat(now)
    for interval in intervals:
        now += interval
        arrival.beat(now)
    return arrival


def test_no_deadline_before_the_first_beat() -> None:
    assert Arrival(D).deadline() == math.inf


def test_a_stranger_gets_the_whole_margin() -> None:
    arrival = heard(1.0, 1.0)
    assert arrival.deadline() == pytest.approx(102.0 + 1.0 + D.margin_cap_s)


def test_a_punctual_node_is_suspected_soon_and_a_jittery_one_later() -> None:
    punctual, jittery = heard(*[1.0] * 60), heard(*[1.0, 1.8] * 30)
    assert punctual.margin() == D.margin_floor_s
    assert jittery.margin() == pytest.approx(1.6)


def test_a_lasting_slowdown_is_learned() -> None:
    assert heard(*[1.0] * 60, *[4.0] * 60).margin() == D.margin_cap_s


def test_the_interval_that_spans_an_outage_is_not_learned() -> None:
    arrival = heard(*[1.0] * 60)
    arrival.renew(200.0, 5.0)
    assert arrival.deadline() == pytest.approx(200.0 + 1.0 + D.margin_floor_s + 5.0)
    arrival.beat(260.0)
    arrival.beat(261.0)
    assert arrival.margin() == D.margin_floor_s


def test_a_clock_that_goes_back_does_not_postpone_every_deadline() -> None:
    arrival = heard(*[1.0] * 60)
    arrival.renew(10.0, 0.0)
    assert arrival.deadline() < 20.0


@given(st.lists(st.floats(0.0, 1e6), max_size=60))
def test_the_deadline_always_lies_between_floor_and_cap(intervals: list[float]) -> None:
    arrival = heard(*intervals)
    assert arrival.last is not None
    wait = arrival.deadline() - arrival.last
    tolerance = 1e-6 * max(1.0, arrival.last)
    assert D.heartbeat_interval_s + D.margin_floor_s - tolerance <= wait
    assert wait <= D.heartbeat_interval_s + D.margin_cap_s + tolerance


def test_the_window_is_bounded() -> None:
    assert heard(*[1.0] * (WINDOW + 50)).beats == WINDOW


def test_step_deadlines_are_learned_and_unknown_phases_get_the_prior() -> None:
    clocks = PhaseClocks(D)
    assert clocks.deadline_s("train") == D.hang_prior_s
    for _ in range(50):
        clocks.stepped(1, 20.0)
    assert clocks.deadline_s("train") == pytest.approx(3 * 20.0 + 2)
    clocks.stayed("checkpoint", 400.0)
    assert clocks.deadline_s("checkpoint") == pytest.approx(1200.0)
    assert clocks.deadline_s("evaluate") == D.hang_prior_s


def exited(**detail: object) -> r.Observation:
    full = {"code": None, "signal": None, "closed": False, "error": "", "message": "", "order_id": ""} | detail
    return r.Observation(node="n", inc=1, seq=1, at=0.0, kind=r.WORKER_EXITED, detail=full)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("detail", "kind", "words"),
    [
        ({"signal": 9}, Kind.KILLED, "SIGKILL"),
        ({"signal": 11}, Kind.KILLED, "SIGSEGV"),
        ({"signal": 6}, Kind.ABORTED, "SIGABRT"),
        ({"signal": 15}, Kind.STOPPED, "ended by SIGTERM"),
        ({"signal": 2}, Kind.STOPPED, "SIGINT"),
        ({"signal": 63}, Kind.KILLED, "signal 63"),
        ({"code": 0}, Kind.CLEAN, "code 0"),
        ({"code": 0, "closed": True}, Kind.CLEAN, "code 0"),
        ({"code": 1, "error": "ValueError", "message": "bad shape"}, Kind.FAILED, "ValueError: bad shape"),
        ({"code": 1, "error": "KeyboardInterrupt"}, Kind.STOPPED, "KeyboardInterrupt"),
        ({"code": 1, "error": "RuntimeError", "message": "[pair.cc] Connection closed by peer"}, Kind.VICTIM, "peer"),
        ({"code": 1, "error": "DistBackendError", "message": "NCCL error"}, Kind.VICTIM, "NCCL"),
        ({"code": 3}, Kind.FAILED, "code 3"),
        ({"code": 143}, Kind.STOPPED, "143"),
        ({}, Kind.KILLED, "by whom is not known"),
        ({"closed": True}, Kind.CLEAN, "ended before an agent could watch it"),
        ({"signal": 9, "order_id": "i1"}, Kind.ORDERED, "SIGKILL"),
    ],
)
def test_exits_are_told_apart(detail: dict, kind: Kind, words: str) -> None:
    assert kind_of(exited(**detail)) is kind
    assert words in in_words(exited(**detail))


_scalar = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)


@given(st.dictionaries(st.sampled_from(["code", "signal", "closed", "error", "message", "order_id"]), _scalar))
def test_reading_an_exit_is_total(detail: dict) -> None:
    assert isinstance(kind_of(exited(**detail)), Kind)
    assert in_words(exited(**detail))


@pytest.mark.parametrize(
    "klass", ["control_plane_delay", "worker_dead", "collective_hang", "unknown", "never heard of"]
)
@pytest.mark.parametrize("elastic", [True, False])
@pytest.mark.parametrize("armed", [True, False])
@pytest.mark.parametrize("confidence", [0.3, 0.95])
def test_policy_is_total_and_restarts_only_when_armed_sure_and_able(
    klass: str, elastic: bool, armed: bool, confidence: float
) -> None:
    from rankpulse.core.diagnosis import Diagnosis

    found = Diagnosis(klass, (), (), (), confidence, "", (), (), 0.0)
    choice = choose(found, Facts(elastic, elastic, armed, 3))
    assert choice.reason
    may = klass == "collective_hang" and elastic and armed and confidence > 0.9
    assert (choice.action == "restart") == may
    assert choose(found, Facts(elastic, elastic, armed, 0)).action != "restart"
