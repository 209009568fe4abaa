"""The loss over the restarts: read and judged. A restart that restored everything leaves no trace in it.

What is judged: a step that was computed before a fault and again after the resume must have given every rank the same
loss, to the last bit. The job computes the same batch for the same step and rank wherever that rank runs, and adds up
in the same order, so nothing less is accepted: parameters or optimizer of another step, or of two steps mixed, show at
the first such step or the one after it.
"""

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

TOLD = 5  # steps of a kind that are named before "and N more"
ENOUGH = 2  # steps to be computed twice: the first shows the parameters, only the second shows the optimizer


@dataclass(frozen=True, slots=True)
class Point:
    """What one rank computed at one step, in one round."""

    step: int
    round: int
    rank: int
    loss: float


@dataclass(frozen=True, slots=True)
class Mean:
    """The mean over the ranks at one step of one round."""

    step: int
    round: int
    loss: float


@dataclass(frozen=True, slots=True)
class Curve:
    """Points by (round, step): rank -> loss. Made by `curve_of`."""

    world_size: int
    at: Mapping[tuple[int, int], Mapping[int, float]]
    twice: tuple[tuple[int, int, int], ...] = ()  # (round, step, rank) that told two losses

    @property
    def rounds(self) -> list[int]:
        return sorted({round_ for round_, _ in self.at})

    def steps(self, round_: int) -> list[int]:
        """The steps that any rank of the round finished, ascending."""
        return sorted(step for found, step in self.at if found == round_)

    def whole(self, round_: int, step: int) -> bool:
        """Whether every rank finished the step in this round."""
        return len(self.at.get((round_, step), {})) == self.world_size


def read(text: str) -> list[Point]:
    """The points of a losses file. A last line without its end is left out: it is just being written."""
    lines = text.split("\n")[:-1]
    return [Point(x["step"], x["round"], x["rank"], float(x["loss"])) for x in map(json.loads, lines)]


def curve_of(points: Iterable[Point], world_size: int) -> Curve:
    at: dict[tuple[int, int], dict[int, float]] = defaultdict(dict)
    twice = []
    for point in points:
        losses = at[point.round, point.step]
        if point.rank in losses:
            twice.append((point.round, point.step, point.rank))
        losses[point.rank] = point.loss
    return Curve(world_size, dict(at), tuple(twice))


def wrong(curve: Curve) -> list[str]:
    """What is wrong with the curve, a sentence each; empty when it is continuous."""
    found = [
        f"round {r}, step {s}: rank {rank} told two losses: is an older round alive?" for r, s, rank in curve.twice
    ]
    return [
        *_shortened(found),
        *_shortened(list(_gaps(curve))),
        *_shortened(list(_not_numbers(curve))),
        *_shortened(list(_different(curve))),
    ]


def compared(curve: Curve) -> dict[int, int]:
    """By round: how many steps of it an earlier round had computed too, and so were compared."""
    return {round_: len({step for _, before, step in _pairs(curve) if before == round_}) for round_ in curve.rounds}


def means(curve: Curve) -> list[Mean]:
    """In the order in which they were computed: of the steps that every rank finished."""
    return [
        Mean(step, round_, math.fsum(losses.values()) / len(losses))
        for (round_, step), losses in sorted(curve.at.items())
        if curve.whole(round_, step)
    ]


def as_csv(curve: Curve) -> str:
    rows = [f"{mean.step},{mean.round},{mean.loss!r}" for mean in means(curve)]
    return "\n".join(["step,round,loss", *rows]) + "\n"


def _shortened(found: list[str]) -> list[str]:
    more = len(found) - TOLD
    return found if more <= 0 else [*found[:TOLD], f"and {more} more like that"]


def _pairs(curve: Curve) -> Iterator[tuple[int, int, int]]:
    """(earlier round, later round, step): the step was computed in both. The nearest earlier one counts."""
    last: dict[int, int] = {}
    for round_, step in sorted(curve.at):
        if step in last:
            yield last[step], round_, step
        last[step] = round_


def _gaps(curve: Curve) -> Iterator[str]:
    if not curve.at:
        yield "no step was computed at all"
    reached = 0
    for round_ in curve.rounds:
        steps = curve.steps(round_)
        if steps[0] > reached + 1:
            yield f"round {round_} begins with step {steps[0]}, and step {reached + 1} was computed by nobody before it"
        expected = set(range(steps[0], steps[-1] + 1))
        for step in sorted(expected - set(steps)):
            yield f"round {round_}: step {step} is missing"
        for step in steps[:-1]:  # in the last one a round may end before all ranks have told
            if not curve.whole(round_, step):
                absent = sorted(set(range(curve.world_size)) - set(curve.at[round_, step]))
                yield f"round {round_}, step {step}: missing for rank {', '.join(map(str, absent))}"
        reached = max(reached, steps[-1] if curve.whole(round_, steps[-1]) else steps[-1] - 1)


def _not_numbers(curve: Curve) -> Iterator[str]:
    for (round_, step), losses in sorted(curve.at.items()):
        for rank, loss in sorted(losses.items()):
            if not math.isfinite(loss):
                yield f"round {round_}, step {step}: the loss of rank {rank} is {loss}"


def _different(curve: Curve) -> Iterator[str]:
    for before, after, step in _pairs(curve):
        old, new = curve.at[before, step], curve.at[after, step]
        ranks = [rank for rank in sorted(old.keys() & new.keys()) if old[rank] != new[rank]]
        if ranks:
            rank = ranks[0]
            yield (
                f"step {step} gave rank {rank} the loss {old[rank]!r} in round {before}, {new[rank]!r} in round {after}"
                f" (ranks that differ: {', '.join(map(str, ranks))})"
            )


def lost_steps(curve: Curve, round_: int, resumed_from: int) -> int:
    """Steps that the end of `round_` cost: the last that any rank had finished in it, minus the one that the job went
    on from. 0 when the round had finished none.

    Never more than the interval of the checkpoints. A save is part of its step on every rank: nobody begins the next
    step before it is committed and read back. So the fault can spoil one save at most, the one that is under way, and
    then that save's own step is the last that was finished: exactly one interval is lost. The step that is being
    computed at the fault was never finished and is not counted.
    """
    return max(curve.steps(round_), default=resumed_from) - resumed_from
