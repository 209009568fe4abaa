"""Which run an operator means: the wrong one must not be restarted."""

import pytest

from rankpulse.cli.books import Books
from rankpulse.cli.failing import Failed
from rankpulse.cli.operate import limit_note, meant
from rankpulse.core.records import CheckpointState, Record, Roster, RunState


def run(uid: str, label: str, outcome: str = "running") -> RunState:
    return RunState(run_uid=uid, run_id=label, round=1, outcome=outcome, reason="", at=1.7e9)


LONG = run("llama-long-77", "llama-long")


def test_a_run_is_meant_by_its_uid_the_beginning_of_it_or_its_label() -> None:
    known = [run("llama-1f", "llama"), LONG]
    assert meant(known, "llama-long-77", "c") is known[1]
    assert meant(known, "llama-l", "c") is known[1]
    assert meant(known, "llama", "c") is known[0], "its label, though another's uid begins so, too"


def test_two_runs_of_one_name_are_asked_for_by_uid() -> None:
    with pytest.raises(Failed, match=r"means several runs(.|\n)*llama-1f(.|\n)*llama-2e"):
        meant([run("llama-1f", "llama"), run("llama-2e", "llama")], "llama", "c")
    with pytest.raises(Failed, match="means several runs"):
        meant([run("llama-1f", "llama"), LONG], "lla", "c")


def test_a_run_that_has_ended_is_not_taken_for_another_whose_name_begins_so() -> None:
    with pytest.raises(Failed, match=r"run llama-1f has ended \(failed\)"):
        meant([run("llama-1f", "llama", "failed"), LONG], "llama", "c")


def test_one_that_is_not_there_is_told_with_those_that_are() -> None:
    with pytest.raises(Failed, match=r"no run 'bert' in cluster 'c'; going on: llama-long-77"):
        meant([LONG], "bert", "c")


@pytest.mark.parametrize("name", ["", " "])
def test_no_name_means_no_run(name: str) -> None:
    with pytest.raises(Failed, match="name a run; going on: llama-long-77"):
        meant([LONG], name, "c")


def books(*records: Record) -> Books:
    return Books({str(number): record for number, record in enumerate(records)}, {})


def roster(*, joint: bool) -> Roster:
    return Roster(run_uid="r", run_id="x", round=1, meeting="", world_size=1, elastic=True, at=0.0, joint=joint)


@pytest.mark.parametrize("step", [-1, -9, 0, 2**53 + 1])
def test_a_limit_that_can_be_none_is_told(step: int) -> None:
    with pytest.raises(Failed, match=f"--resume-before-step {step}: "):
        limit_note(books(roster(joint=True)), run("r", "x"), step)


def test_a_run_that_meets_elsewhere_is_told_where_to_set_it() -> None:
    with pytest.raises(Failed, match="set RANKPULSE_RESUME_BEFORE_STEP where torchrun is started"):
        limit_note(books(roster(joint=False)), run("r", "x"), 50)
    assert limit_note(books(roster(joint=False)), run("r", "x"), None) == ""


def test_what_becomes_of_the_checkpoints_is_said() -> None:
    assert "told of no checkpoint" in limit_note(books(roster(joint=True)), run("r", "x"), 50)
    known = books(roster(joint=True), CheckpointState(run_uid="r", step=60))
    assert "of step 50 and beyond are set aside, not deleted" in limit_note(known, run("r", "x"), 50)
    assert "that of step 60: nothing needs" in limit_note(known, run("r", "x"), 61)
