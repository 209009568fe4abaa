"""Policy and its neighbours, by tables: what is done about what, and when an error is the program's own."""

from typing import Any

import pytest

from rankpulse.core import diagnosis as d
from rankpulse.core.diagnosis import Diagnosis
from rankpulse.core.incidents import Book
from rankpulse.core.phases import PhaseClocks
from rankpulse.core.policy import Facts, choose
from rankpulse.core.progress import RankProgress
from rankpulse.core.records import Incident
from rankpulse.core.repeats import repeated, same
from rankpulse.core.settings import DetectSettings
from rankpulse.core.views import RoundView, RunView

GOOD = {"elastic": True, "launcher_alive": True, "armed": True, "orders_left": 3, "joint": True}


def found(klass: str, confidence: float = 0.95) -> Diagnosis:
    return Diagnosis(klass, (), (), (), confidence, "", (), (), 0.0)


@pytest.mark.parametrize(
    ("klass", "facts", "action"),
    [
        ("worker_dead", {}, "adopt"),
        ("worker_dead", {"held": True}, "restart"),
        ("worker_dead", {"held": True, "armed": False}, "release"),
        ("worker_dead", {"held": True, "orders_left": 0}, "release"),
        ("worker_dead", {"held": True, "repeated": True}, "stop"),
        ("worker_dead", {"held": True, "repeated": True, "armed": False}, "release"),
        ("worker_dead", {"held": True, "launcher_alive": False}, "page"),
        ("worker_dead", {"elastic": False}, "page"),
        ("unknown", {"held": True}, "restart"),
        ("unknown", {}, "page"),
        ("unknown", {"still_s": 5.0, "act_after_s": 30.0}, "wait"),
        ("unknown", {"still_s": 31.0, "act_after_s": 30.0}, "page"),
        ("collective_hang", {"still_s": 5.0, "act_after_s": 30.0}, "wait"),
        ("collective_hang", {"still_s": 5.0, "act_after_s": 30.0, "armed": False}, "wait"),
        ("collective_hang", {"still_s": 31.0, "act_after_s": 30.0}, "restart"),
        ("collective_hang", {"still_s": 31.0, "act_after_s": 30.0, "armed": False}, "observe"),
        ("collective_hang", {"still_s": 0.0}, "restart"),
        ("collective_hang", {"orders_left": 0}, "page"),
        ("worker_dead", {"held": True, "parted": True}, "release"),
        ("worker_dead", {"held": True, "parted": True, "repeated": True}, "stop"),
        ("unknown", {"held": True, "parted": True}, "release"),
        ("collective_hang", {"still_s": 31.0, "act_after_s": 30.0, "parted": True}, "page"),
        ("node_dead", {"held": True}, "page"),
        ("control_plane_delay", {"held": True}, "none"),
    ],
)
def test_what_is_done_about_what(klass: str, facts: dict[str, Any], action: str) -> None:
    choice = choose(found(klass), Facts(**{**GOOD, **facts}))
    assert choice.action == action
    assert choice.reason


def test_a_doubtful_hang_is_paged() -> None:
    assert choose(found("collective_hang", 0.8), Facts(**GOOD)).action == "page"


ERROR = "exited with code 1 (ValueError: bad batch 7 at 0x7f00)"


def story(step: int, *, last: str = ERROR, last_step: int = 90) -> tuple[RunView, RoundView, Book]:
    """Round 2 of a run whose first round failed with `last` at `last_step`."""
    run = RunView("u", "job", True, PhaseClocks(DetectSettings()))
    for number in (1, 2):
        run.rounds[number] = RoundView(number, "", 1, 100.0)
    run.rounds[2].progress[0] = RankProgress(step=step)
    book = Book()
    book.put(
        Incident(
            id="i1", klass=d.WORKER_DEAD, state="closed", opened_at=0.0, run_uid="u", round=1, fault=last,
            fault_step=last_step,
        ),
        0.0,
    )  # fmt: skip
    return run, run.rounds[2], book


def test_the_same_error_counts_as_the_programs_own_only_without_progress() -> None:
    error = "exited with code 1 (ValueError: bad batch 12 at 0x7e99)"
    assert repeated(error, *story(step=90), now=120.0)
    assert repeated(error, *story(step=-1), now=120.0)
    assert not repeated(error, *story(step=91), now=120.0)
    assert not repeated(error, *story(step=10), now=100.0 + 601), "it trained for a good while"
    assert not repeated("exited with code 1 (KeyError: 'x')", *story(step=90), now=120.0)
    assert not repeated("", *story(step=90, last=""), now=120.0)


def test_numbers_do_not_make_another_error() -> None:
    assert same("tried to allocate 2.50 GiB", "tried to allocate 3.75 GiB")
    assert not same("", "")


def test_the_deadline_of_training_grows_with_what_healed_by_itself_and_forgets() -> None:
    clocks = PhaseClocks(DetectSettings(hang_floor_s=4.0))
    for _ in range(30):
        clocks.stepped(1, 0.1)
    assert clocks.deadline_s("train") == 4.0
    clocks.healed("i1", 20.0)
    clocks.healed("i1", 40.0)  # the same one, told again
    assert clocks.deadline_s("train") == 30.0
    for number in range(2, 7):
        clocks.healed(f"i{number}", 1.0)
    assert clocks.deadline_s("train") == 4.0
