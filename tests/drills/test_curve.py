"""The judge of the loss curve: it accepts a curve without a trace of its restarts, and no other."""

import math
from collections.abc import Callable, Iterator

import pytest

from rankpulse.drills import curve as c
from rankpulse.drills.drawing import draw
from rankpulse.drills.ending import ending
from rankpulse.drills.scenes import Result

WORLD = 4


class Run:
    """Training in small: a parameter and the momentum of its optimizer; both must come back for the loss to go on."""

    def __init__(self) -> None:
        self.at, self.momentum = 4.0, 0.0

    def step(self, step: int, round_: int) -> list[c.Point]:
        points = [c.Point(step, round_, rank, (self.at - rank) ** 2 + 1.0) for rank in range(WORLD)]
        gradient = math.fsum(2 * (self.at - rank) for rank in range(WORLD)) / WORLD + math.sin(step) / 10
        self.momentum = 0.9 * self.momentum + gradient
        self.at -= 0.01 * self.momentum
        return points


def restarted(
    saved_at: int = 30, killed_at: int = 37, end: int = 50, restore: Callable[[Run, Run], None] | None = None
) -> list[c.Point]:
    """Two rounds; `restore` says what of the saved run comes back, by default all of it."""
    first, saved, points = Run(), Run(), []
    for step in range(1, killed_at + 1):
        points += first.step(step, 1)
        if step == saved_at:
            saved.__dict__.update(first.__dict__)
    second = Run()
    if restore is None:
        second.__dict__.update(saved.__dict__)
    else:
        restore(second, saved)
    for step in range(saved_at + 1, end + 1):
        points += second.step(step, 2)
    return points


def wrong(points: list[c.Point]) -> list[str]:
    return c.wrong(c.curve_of(points, WORLD))


def without(points: list[c.Point], **at: int) -> Iterator[c.Point]:
    return (point for point in points if any(getattr(point, name) != value for name, value in at.items()))


def test_a_run_that_went_on_as_if_nothing_had_been_is_continuous() -> None:
    seen = c.curve_of(restarted(), WORLD)
    assert c.wrong(seen) == []
    assert c.compared(seen) == {1: 0, 2: 7}
    assert c.lost_steps(seen, 1, 30) == 7
    assert c.as_csv(seen).splitlines()[0] == "step,round,loss"
    assert len(c.as_csv(seen).splitlines()) == 1 + 37 + 20


def test_the_last_step_of_a_round_may_have_been_told_by_some_ranks_only() -> None:
    points = list(without(restarted(), round=1, step=37, rank=2))
    assert wrong(points) == []
    assert c.lost_steps(c.curve_of(points, WORLD), 1, 30) == 7, "finished by any rank"


def test_optimizer_state_that_did_not_come_back_shows_at_the_second_step() -> None:
    def parameters_only(run: Run, saved: Run) -> None:
        run.at = saved.at

    found = wrong(restarted(restore=parameters_only))
    assert found[0].startswith("step 32 gave rank 0"), found
    assert "and 1 more like that" in found


def test_a_fresh_start_that_counts_on_is_seen() -> None:
    found = wrong(restarted(restore=lambda run, saved: None))
    assert found[0].startswith("step 31 gave rank 0"), found


def test_a_gap_is_named() -> None:
    points = restarted(saved_at=30, killed_at=37)
    [found] = wrong([point for point in points if point.round == 1 or point.step > 40])
    assert found == "round 2 begins with step 41, and step 38 was computed by nobody before it"
    [found] = wrong(list(without(points, round=2, step=44)))
    assert found == "round 2: step 44 is missing"
    [found] = wrong(list(without(points, round=2, step=44, rank=1)))
    assert found == "round 2, step 44: missing for rank 1"


def test_a_step_that_only_some_ranks_finished_must_be_computed_again() -> None:
    points = [p for p in without(restarted(), round=1, step=37, rank=2) if p.round == 1 or p.step > 37]
    assert wrong(points) == ["round 2 begins with step 38, and step 37 was computed by nobody before it"]


def test_ranks_of_two_steps_mixed_are_seen_though_the_mean_hardly_moves() -> None:
    points = [
        c.Point(p.step, p.round, p.rank, math.nextafter(p.loss, 9.0) if (p.round, p.rank) == (2, 3) else p.loss)
        for p in restarted()
    ]
    found = wrong(points)
    assert len(found) == c.TOLD + 1
    assert all("ranks that differ: 3" in text for text in found[:-1])


def test_a_process_of_an_older_round_that_is_still_alive_is_seen() -> None:
    points = restarted()
    found = wrong([*points, points[-1]])
    assert found == ["round 2, step 50: rank 3 told two losses: is an older round alive?"]


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_what_is_no_number_is_no_curve(loss: float) -> None:
    points = [c.Point(p.step, p.round, p.rank, loss if p.step == 45 else p.loss) for p in restarted()]
    found = wrong(points)
    assert found[0] == f"round 2, step 45: the loss of rank 0 is {loss}"


def test_nothing_at_all_is_wrong() -> None:
    assert wrong([]) == ["no step was computed at all"]


def test_a_line_that_is_just_being_written_is_left_out() -> None:
    line = '{"step": 1, "round": 1, "rank": 0, "loss": 2.5}\n'
    assert c.read(line + line[:20]) == [c.Point(1, 1, 0, 2.5)]


def test_the_end_of_the_demo_marks_every_restart_and_passes_the_verdict_on() -> None:
    good = ending(c.curve_of(restarted(), WORLD), [Result("jitter"), Result("crash", restarts=1)])
    assert good.marks == [(30, "crash")]
    assert good.wrong == []
    assert "the 7 steps that were computed a second time" in good.sentence()
    drawn = draw(good.seen, good.marks)
    assert "crash" in drawn
    assert "\x1b" not in drawn
    assert max(map(len, drawn.splitlines())) <= 80
    bad = ending(c.curve_of(restarted(restore=lambda run, saved: None), WORLD), [Result("crash", restarts=1)])
    assert bad.plain()["continuous"] is False
    assert "NOT continuous" in bad.sentence()


def test_a_fault_after_which_nothing_can_be_compared_proves_nothing() -> None:
    seen = c.curve_of(restarted(saved_at=30, killed_at=31), WORLD)
    [found] = ending(seen, [Result("crash", restarts=1)]).wrong
    assert "after the crash only 1 steps were computed again" in found
    assert ending(seen, [Result("weather", restarts=1)]).wrong == [], "it comes when it comes"
