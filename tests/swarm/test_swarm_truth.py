"""What the monitor says, held against what was done."""

import pytest

from rankpulse.core import diagnosis as d
from rankpulse.core.records import Incident, Member
from rankpulse.drills.swarm.plan import DEATH, HANG, PAUSE, SLOW
from rankpulse.drills.swarm.truth import AFTER_S, Truth


def said(klass: str, *nodes: str, run: str = "run0", id_: str = "i1") -> Incident:
    return Incident(id=id_, klass=klass, state="open", opened_at=0.0, run_id=run, nodes=nodes)


def test_who_was_killed_is_found_when_it_is_first_said_of_it() -> None:
    truth = Truth()
    truth.add(DEATH, "a", "run0", 100.0, 0.0)
    truth.add(DEATH, "b", "run0", 101.0, 0.0)
    truth.heard(said(d.NODE_DEAD, "a"), 110.0)
    truth.heard(said(d.NODE_DEAD, "a", "b"), 112.0)
    assert [deed.found for deed in truth.killed()] == [10.0, 11.0]
    assert truth.wrong() == []


@pytest.mark.parametrize("kind", [SLOW, HANG])
def test_only_who_was_silent_may_be_called_dead(kind: str) -> None:
    truth = Truth()
    truth.add(kind, "a", "run0", 100.0, 10.0)
    truth.heard(said(d.NODE_DEAD, "a"), 105.0)
    assert [incident.klass for incident in truth.wrong()] == [d.NODE_DEAD]


def test_another_beside_the_one_is_an_accusation() -> None:
    truth = Truth()
    truth.add(DEATH, "a", "run0", 100.0, 0.0)
    truth.heard(said(d.NODE_DEAD, "a", "b"), 110.0)
    assert truth.wrong()


def test_culprits_go_before_the_nodes_of_a_whole_run() -> None:
    truth = Truth()
    truth.add(HANG, "a", "run0", 100.0, 30.0)
    hang = Incident(
        id="i1", klass=d.COLLECTIVE_HANG, state="open", opened_at=0.0, run_id="run0", nodes=("a", "b"),
        culprits=(Member(0, "a", 0, 1, 1),),
    )  # fmt: skip
    truth.heard(hang, 110.0)
    assert truth.wrong() == []


def test_a_run_without_a_name_is_explained_by_what_was_done_to_it_and_not_for_ever() -> None:
    truth = Truth()
    truth.add(PAUSE, "a", "run0", 100.0, 10.0)
    truth.heard(said(d.UNKNOWN, id_="i1"), 105.0)
    truth.heard(said(d.UNKNOWN, run="run1", id_="i2"), 105.0)
    truth.heard(said(d.UNKNOWN, id_="i3"), 111.0 + AFTER_S)
    assert [incident.id for incident in truth.wrong()] == ["i2", "i3"]


def test_what_blames_nobody_accuses_nobody() -> None:
    truth = Truth()
    truth.heard(said(d.CONTROL_PLANE_DELAY, "a", "b"), 5.0)
    assert truth.wrong() == []
