"""Policy and its neighbours, by tables: what is done about what, and when an error is the program's own."""

from typing import Any

import msgspec
import pytest

from rankpulse.core import diagnosis as d
from rankpulse.core.diagnosis import Diagnosis
from rankpulse.core.exits import Exit, Kind
from rankpulse.core.incidents import Book
from rankpulse.core.phases import PhaseClocks
from rankpulse.core.policy import NOBODY, Facts, Room, choose
from rankpulse.core.progress import RankProgress
from rankpulse.core.records import Incident, Launcher, Member
from rankpulse.core.repeats import repeated, same
from rankpulse.core.settings import DetectSettings
from rankpulse.core.views import RoundView, RunView, process_of

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
        ("worker_dead", {"held": True, "repeated": "again"}, "stop"),
        ("worker_dead", {"held": True, "repeated": "again", "armed": False}, "release"),
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
        ("worker_dead", {"held": True, "parted": True, "repeated": "again"}, "stop"),
        ("unknown", {"held": True, "parted": True}, "release"),
        ("collective_hang", {"still_s": 31.0, "act_after_s": 30.0, "parted": True}, "page"),
        ("worker_dead", {"held": True, "spent": "too much"}, "release"),
        ("worker_dead", {"held": True, "rests_s": 10.0}, "wait"),
        ("worker_dead", {"held": True, "rests_s": 10.0, "repeated": "again"}, "stop"),
        ("worker_dead", {"held": True, "armed": False, "paused": True}, "release"),
        ("worker_dead", {"armed": False, "paused": True}, "none"),
        ("worker_dead", {"repeated": "again"}, "stop"),
        ("worker_dead", {"repeated": "again", "armed": False}, "adopt"),
        ("worker_dead", {"repeated": "again", "joint": False}, "adopt"),
        ("collective_hang", {"paused": True, "armed": False}, "none"),
        ("collective_hang", {"spent": "too much"}, "page"),
        ("collective_hang", {"rests_s": 10.0}, "wait"),
        ("collective_hang", {"repeated": "again"}, "stop"),
        ("collective_hang", {"repeated": "again", "armed": False}, "observe"),
        ("node_dead", {}, "page"),
        ("node_dead", {"held": True}, "page"),
        ("node_dead", {"room": Room(1, 1, 2, 2)}, "restart_without"),
        ("node_dead", {"room": Room(1, 1, 2, 2), "held": True}, "restart_without"),
        ("node_dead", {"room": Room(1, 1, 2, 2), "held": True, "armed": False}, "release"),
        ("node_dead", {"room": Room(1, 1, 2, 2), "armed": False}, "page"),
        ("node_dead", {"room": Room(1, 1, 2, 2), "paused": True, "armed": False}, "none"),
        ("node_dead", {"room": Room(1, 1, 2, 2), "joint": False}, "page"),
        ("node_dead", {"room": Room(1, 1, 2, 2), "parted": True}, "page"),
        ("node_dead", {"room": Room(1, 1, 2, 2), "orders_left": 0}, "page"),
        ("node_dead", {"room": Room(1, 1, 2, 2), "spent": "too much"}, "page"),
        ("node_dead", {"room": Room(1, 1, 2, 2), "rests_s": 10.0}, "wait"),
        ("node_dead", {"room": Room(1, 1, 2, 2), "launcher_alive": False}, "page"),
        ("node_dead", {"room": Room(1, 0, 2, 2)}, "page"),
        ("node_dead", {"room": Room(1, 0, 2, 1)}, "restart_without"),
        ("node_dead", {"room": Room(1, 0, 2, 1, shrink=False)}, "page"),
        ("node_dead", {"room": Room(0, 2, 2, 1)}, "page"),
        ("control_plane_delay", {"held": True}, "none"),
    ],
)
def test_what_is_done_about_what(klass: str, facts: dict[str, Any], action: str) -> None:
    choice = choose(found(klass), Facts(**{**GOOD, **facts}))
    assert choice.action == action
    assert choice.reason


def test_dead_nodes_that_concern_no_round_are_paged_without_a_word_on_rounds() -> None:
    choice = choose(found("node_dead"), NOBODY)
    assert (choice.action, "an incident of its own" in choice.reason) == ("page", True)


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


def failure(fault: str, **change: Any) -> Diagnosis:
    return found("worker_dead")._replace(fault=fault, **change)


def test_the_same_error_counts_as_the_programs_own_only_without_progress() -> None:
    error = failure("exited with code 1 (ValueError: bad batch 12 at 0x7e99)")
    assert "the same error of the program again (as in round 1)" in repeated(error, *story(step=90), now=120.0)
    assert repeated(error, *story(step=-1), now=120.0)
    assert not repeated(error, *story(step=91), now=120.0)
    assert not repeated(error, *story(step=10), now=100.0 + 601), "it trained for a good while"
    assert not repeated(failure("exited with code 1 (KeyError: 'x')"), *story(step=80), now=120.0)
    assert not repeated(failure(""), *story(step=80, last=""), now=120.0)


def test_steps_that_are_counted_on_show_progress_better_than_a_clock() -> None:
    """The checkpoint may lie half an hour before the step at which it fails."""
    for first_step, expected in ((81, True), (1, False), (0, False)):
        run, round_, book = story(90, last="")
        [before] = book
        book.put(msgspec.structs.replace(before, culprits=GUILTY), 0.0)
        round_.progress[0].first_step = first_step
        round_.reporting_changed()
        why = repeated(failure("", culprits=GUILTY), run, round_, book, 100.0 + 1800)
        assert ("fails at step 90 again" in why) == expected


GUILTY = (Member(0, "node-a", 0, 11, 77),)


@pytest.mark.parametrize(
    ("step", "change", "expected"),
    [
        (90, {}, True),
        (89, {}, False),
        (91, {}, False),
        (90, {"foreign": True}, False),
        (90, {"culprits": ()}, False),
        (90, {"klass": "node_dead"}, False),
        (90, {"outcome": "passed"}, False),
        (90, {"fault_step": -1}, False),
    ],
)
def test_two_failures_at_one_step_are_the_programs_own(step: int, change: dict[str, Any], expected: bool) -> None:
    run, round_, book = story(step, last="")
    [before] = book
    book.put(msgspec.structs.replace(before, **{"culprits": GUILTY, **change}), 0.0)
    why = repeated(failure("", culprits=GUILTY), run, round_, book, 120.0)
    assert ("fails at step 90 again" in why) == expected


@pytest.mark.parametrize(("signal", "expected"), [(9, False), (15, False), (11, True), (6, True)])
def test_a_process_that_was_killed_by_hand_is_no_failure_of_the_program(signal: int, expected: bool) -> None:
    run, round_, book = story(90, last="")
    [before] = book
    book.put(msgspec.structs.replace(before, culprits=GUILTY), 0.0)
    launcher = Launcher("node-a", "1.1")
    ended = Exit("k", GUILTY[0], Kind.KILLED, signal, signal == 15, "", launcher, 119.0, 1)
    round_.exits[process_of(GUILTY[0])] = ended
    assert bool(repeated(failure("", culprits=GUILTY), run, round_, book, 120.0)) == expected
    round_.exits.clear()
    round_.progress[0].state = "T"
    assert not repeated(failure("", culprits=GUILTY), run, round_, book, 120.0), "somebody has stopped it"


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
