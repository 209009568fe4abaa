"""Which run an operator means: the wrong one must not be restarted."""

import pytest

from rankpulse.cli.failing import Failed
from rankpulse.cli.operate import meant
from rankpulse.core.records import RunState


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
