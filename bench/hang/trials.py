"""One trial: a job runs into a fault, stops, and every rule says who it was, by the dumps alone."""

import gc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final, NamedTuple

from rankpulse.bench.hang import baselines, dumps, faults
from rankpulse.bench.hang.layout import Layout
from rankpulse.bench.hang.machine import Fault, Machine
from rankpulse.bench.hang.program import Style, draw_style, stage_program
from rankpulse.core import culprit
from rankpulse.core import snapshot as s

TRIES: Final = 50
OWN: Final = -1.0  # instead of a share of missing dumps: the culprit's


class Answer(NamedTuple):
    """What a rule said: a rank alone, or a set to look in. Groups of a link stand as their members."""

    sure: bool
    ranks: frozenset[int]
    is_link: bool = False
    first: int = -1  # the likeliest, of a set


class Score(NamedTuple):
    exact: bool
    wrong: bool  # sure, and not right
    contains: bool
    size: int
    first: bool = False  # or, unsure, names the culprit before all others


@dataclass(frozen=True)
class Hang:
    """A job that has stopped."""

    layout: Layout
    fault: Fault
    machine: Machine


def hang(kind: str, layout: Layout, random: Random, style: Style | None = None, blocking: bool = False) -> Hang:
    """Runs jobs until a fault of this kind has stopped one as a whole. What a fault does not stop is no hang."""
    for _ in range(TRIES):
        drawn = style or draw_style(random, experts=layout.ep > 1)
        programs = [stage_program(stage, layout.pp, drawn) for stage in range(layout.pp)]
        fault = faults.draw(kind, layout, programs, random)
        machine = Machine(layout, programs, fault, drawn.run_ahead, blocking)
        undisturbed(machine.run)
        if not any(rank.ended for rank in machine.ranks):
            return Hang(layout, fault, machine)
    raise RuntimeError(f"{TRIES} faults of kind {kind} stopped no job")


def undisturbed(run: Callable[[], None]) -> None:
    """Without looking for garbage: there are millions of living entries and no cycles."""
    gc.disable()
    try:
        run()
    finally:
        gc.enable()


def judged(hang: Hang, rows: list[s.Rank], groups: tuple[s.Group, ...]) -> Iterator[tuple[str, Score]]:
    """Every rule's answer, scored."""
    for name, answer in answers(rows, groups):
        yield name, score(answer, hang.fault)


def answers(rows: list[s.Rank], groups: tuple[s.Group, ...], beside: bool = True) -> Iterator[tuple[str, Answer]]:
    """By name of the rule: ours, and the usual ones `beside` it."""
    yield "wait-for graph", ours(culprit.find(rows, groups))
    if not beside:
        return
    for name, ranks in baselines.all_rules(rows, groups):
        yield name, Answer(True, frozenset(ranks))


def ours(found: culprit.Finding) -> Answer:
    """A finding as a set of ranks; of a link that is not narrowed down to two, its smallest group."""
    if found.kind == culprit.LINK and found.sure:
        return Answer(True, frozenset(found.ranks or found.waits.everyone(found.meetings[0])), is_link=True)
    if found.sure:
        return Answer(True, frozenset(found.ranks))
    return Answer(False, frozenset(candidates(found)), first=found.ranks[0] if found.ranks else -1)


def candidates(found: culprit.Finding) -> set[int]:
    """Where an unsure finding says to look."""
    if found.kind in (culprit.UNCLEAR, culprit.LINK):
        return {*found.ranks, *(rank for m in found.meetings for rank in found.waits.everyone(m))}
    return set(found.ranks)


def score(answer: Answer, fault: Fault) -> Score:
    guilty = {fault.rank, fault.other} - {-1}
    contains = guilty <= answer.ranks
    if fault.kind == faults.LINK:
        exact = answer.sure and answer.is_link and contains
    else:
        exact = answer.sure and answer.ranks == guilty
    first = exact or answer.first == fault.rank
    return Score(exact, answer.sure and not exact, contains, len(answer.ranks), first)


def rows_of(
    hang: Hang, recorder: str, shares: Sequence[float], random: Random, own: bool = True
) -> Iterator[tuple[float, list[s.Rank]]]:
    """The dumps of the same hang, with more and more of them missing; and, if `own`, with the culprit's alone."""
    yield from fewer(hang, dumps.ranks(hang.machine, recorder), shares, random, own)


def fewer(
    hang: Hang, rows: list[s.Rank], shares: Sequence[float], random: Random, own: bool
) -> Iterator[tuple[float, list[s.Rank]]]:
    """These dumps, so many of them missing."""
    for share in shares:
        yield share, dumps.without(rows, share, random)
    if own:
        guilty = hang.fault.rank
        yield OWN, [s.Rank(row.rank, dump="no answer") if row.rank == guilty else row for row in rows]
