"""What the trace makes of the job, and how direct looks fail."""

import dataclasses

import numpy as np
import pytest

from rankpulse.bench.detect import trace
from rankpulse.bench.detect.job import Death, Job, Manner, Timeline
from rankpulse.bench.detect.trace import Day, Spans
from rankpulse.bench.detect.weather import Held, Looks
from rankpulse.core import events as ev

NONE = Spans(np.empty(0), np.empty(0), np.empty(0, dtype=np.int64))


def spans(*rows: tuple[float, float, int]) -> Spans:
    table = np.array(rows, dtype=float).reshape(-1, 3)
    return Spans(table[:, 0], table[:, 1], table[:, 2].astype(np.int64))


def quiet(**changes: object) -> Day:
    """A day on which nothing happens but what is told."""
    names = ("observer", "store", "outages", "regimes", "racks", "freezes", "bursts", "checkpoints", "evaluations")
    day = trace.make_day(1, 0, 1e-9, nodes=8, seconds=1000.0)
    still = dataclasses.replace(day, **dict.fromkeys(names, NONE), fabric=np.empty(0, dtype=bool))
    return dataclasses.replace(still, **changes)  # type: ignore[arg-type]


def test_a_frozen_node_holds_everybody_up() -> None:
    job = Job(Timeline(quiet(freezes=spans((100.0, 130.0, 3)))))
    assert job.place(0, 99.9).step == pytest.approx(50, abs=2)
    assert {job.place(node, at).step for node in range(8) for at in (100.1, 115.0, 129.9)} == {job.place(0, 100.1).step}
    assert job.place(0, 200.0).step == pytest.approx(85, abs=2)


def test_only_some_rack_pauses_reach_the_job() -> None:
    racks = spans((100.0, 130.0, 0), (300.0, 330.0, 1))
    job = Job(Timeline(quiet(racks=racks, fabric=np.array([True, False]))))
    assert job.place(0, 129.0).step - job.place(0, 101.0).step == 0
    assert job.place(0, 329.0).step - job.place(0, 301.0).step == pytest.approx(14, abs=1)


def test_nobody_passes_the_step_of_a_dead_node() -> None:
    line = Timeline(quiet())
    for ahead in range(4):
        job = Job(line, Manner(ahead=ahead), Death(frozenset({2}), 200.0))
        at_death = job.place(2, 200.0).step
        assert max(job.place(node, 900.0).step for node in range(8)) == at_death + ahead


def test_local_sgd_goes_on_to_its_next_meeting() -> None:
    job = Job(Timeline(quiet()), Manner(meet_every=50), Death(frozenset({2}), 250.0))
    met = job.place(0, 900.0).step
    assert met % 50 == 0
    assert 0 < met - job.place(2, 249.0).step <= 50


def test_who_dies_in_a_checkpoint_leaves_the_others_there() -> None:
    day = quiet(checkpoints=spans((100.0, 120.0, 0), (300.0, 320.0, 0)))
    assert Job(Timeline(day)).place(0, 130.0).phase == "train"
    assert Job(Timeline(day), death=Death(frozenset({1}), 110.0)).place(0, 500.0).phase == "checkpoint"
    assert Job(Timeline(day), death=Death(frozenset({1}), 200.0)).place(0, 310.0).phase == "train"


@pytest.mark.parametrize(
    ("changes", "death", "answer"),
    [
        ({}, None, ev.ANSWERED),
        ({"freezes": spans((90.0, 110.0, 3))}, None, ev.SILENT),
        ({"racks": spans((90.0, 110.0, 0)), "fabric": np.array([False])}, None, ev.SILENT),
        ({}, Death(frozenset({3}), 95.0), ev.SILENT),
        ({}, Death(frozenset({2}), 95.0), ev.ANSWERED),
        ({"observer": spans((100.0, 104.0, 0))}, None, ev.UNABLE),
    ],
)
def test_looks_fail_as_the_network_does(changes: dict[str, object], death: Death | None, answer: str) -> None:
    seen = Looks(quiet(**changes), death, 1.0).look(3, 100.0)
    assert seen.answer == answer
    assert seen.at >= 100.0


def test_a_stalled_agent_does_not_answer_but_its_machine_takes_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = Looks(quiet(), None, 1.0)
    looks._agents[3] = Held(spans((90.0, 110.0, 0)))
    assert looks.look(3, 100.0).answer == ev.ACCEPTED
    assert looks.look(3, 109.5).answer == ev.ANSWERED


def test_a_burst_of_loss_takes_some_looks() -> None:
    looks = Looks(quiet(bursts=spans((0.0, 900.0, 3)), freezes=NONE), None, 1.0)
    found = [looks.look(3, 10.0 + n).answer for n in range(400)]
    assert 0.7 < found.count(ev.SILENT) / 400 < 0.95  # a first packet and its answer pass with 16 %
    assert ev.ANSWERED in found
    assert looks.look(4, 100.0).answer == ev.ANSWERED
