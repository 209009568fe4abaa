"""Folding the rank rows of a heartbeat: what moved, and what its pace says of the run.

Nearly every beat tells of the same processes as the one before. So a node remembers where their rows belong (`Told`):
a beat that repeats the last one costs one comparison, and one that shows no more than steps only touches what moved.
What is remembered is small, for of many nodes it is out of the processor's caches when the next beat comes: who the
rows are of and what they said are kept as bytes, and the beat itself is not kept. Whatever else a beat tells is placed
anew, row by row.
"""

import sys
from typing import Final

import msgspec

from rankpulse.core import records as r
from rankpulse.core.fleet import Fleet
from rankpulse.core.progress import Moment, RankProgress
from rankpulse.core.slot import PHASE_TRAIN
from rankpulse.core.views import NodeView, Place, Told, process_of

SOONEST = 0.33  # of the time that a beat may take: one that comes sooner was held up before
PHASE_LETTERS = 16
_packed: Final = msgspec.msgpack.Encoder().encode


class RankFolder:
    """One per engine. `remember`: off for tests, which compare it with placing every row of every beat."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self.remember = True

    def fold(self, node: NodeView, beat: r.Beat, now: float, revision: int, span_s: float) -> bool:
        """`span_s`: how much of the node's own time lies between this beat and the last, at most.

        False: it tells of the same processes as before, and need not be kept.
        """
        clock, told = node.clock, node.told
        before = (clock.seen_at, clock.heard_s, clock.untimely)
        gap_s = now - clock.seen_at
        clock.seen_at = now
        clock.heard_s += gap_s if gap_s < span_s else span_s
        if not span_s * SOONEST <= gap_s <= span_s:
            clock.untimely += 1
        same = told is not None and beat.runs == told.runs and beat.phases == told.phases
        if told is not None and same and _moved(told, beat.ranks, (now, clock.heard_s, clock.untimely)):
            return False
        self._place_all(node, beat, before, revision)
        return True

    def _place_all(self, node: NodeView, beat: r.Beat, before: Moment, revision: int) -> None:
        """Fold row by row, and remember where they belong when all of them count, and this is settled."""
        names = tuple(phase[:PHASE_LETTERS] for phase in beat.phases)
        told = node.told = Told(beat.runs, beat.phases, names)
        counted: list[RankProgress | None] = []
        for row in beat.ranks:
            counted.append(None)
            if not (0 <= row.run < len(beat.runs) and 0 <= row.phase < len(names)):
                continue
            place = self._place(node.name, beat.runs[row.run], row, node.clock.seen_at, revision)
            if place is not None:
                same = bool(told.places) and told.places[-1][1] is place[1]
                told.places.append(told.places[-1] if same else place)  # one value for all: less memory to go through
                told.ranks.append(self._rank(node, place, row, names[row.phase], before))
                counted[-1] = told.ranks[-1]
        here = {id(rank) for rank in told.ranks}
        for rank in node.ranks:
            if rank is not None and rank.clock is node.clock and id(rank) not in here:
                rank.left(before)
        node.rows, node.ranks = beat.ranks, counted
        if not (self.remember and node.told is told and len(here) == len(beat.ranks)):
            node.told = None  # somebody was placed elsewhere meanwhile, or counts nowhere
            return
        try:
            told.said, told.who = _packed(beat.ranks), _who(beat.ranks)
        except (OverflowError, ValueError):  # numbers that no process has
            node.told = None

    def _place(self, node: str, run_row: r.RunRow, row: r.RankRow, now: float, revision: int) -> Place | None:
        """Where this process counts, None: nowhere (any more)."""
        member = r.Member(row.rank, node, row.local_rank, row.pid, row.start)
        place = self._fleet.place(run_row, member, now, revision)
        if place is None or place[1].members.get(row.rank) != member or process_of(member) in place[1].exits:
            return None
        return place

    def _rank(self, node: NodeView, place: Place, row: r.RankRow, phase: str, before: Moment) -> RankProgress:
        run, round_ = place
        moment = node.clock.moment()
        rank = round_.progress.get(row.rank)
        if rank is None:
            # as it is found: nobody saw how it came to be so, and for how long it has been
            rank = round_.progress[row.rank] = RankProgress(row.step, phase=phase, moved=moment, clock=node.clock)
            round_.witness = row.rank
        elif rank.clock is not node.clock:
            rank.joined(node.clock, before)
        if phase != rank.phase:
            run.clocks.stayed(rank.phase, moment[0] - rank.moved[0], moment[0], rank.first_step)
            rank.moved, round_.witness = moment, row.rank
        elif row.step != rank.step:
            if rank.first_step < 0 <= row.first_step:
                run.clocks.stayed(rank.phase, moment[0] - rank.moved[0], moment[0], -1)
            _learn(place, phase, rank.step, row.step, rank.moved, moment)
            rank.moved, round_.witness = moment, row.rank
        if row.first_step != rank.first_step:
            rank.first_step = row.first_step
            round_.reporting_changed()
        rank.step, rank.phase, rank.state = row.step, phase, sys.intern(row.state)
        return rank


def _who(rows: tuple[r.RankRow, ...]) -> bytes:
    """All that rows say but for steps and states."""
    return _packed([(row.pid, row.start, row.rank, row.run, row.local_rank, row.phase, row.first_step) for row in rows])


def _moved(told: Told, rows: tuple[r.RankRow, ...], moment: Moment) -> bool:
    """Fold rows of the same processes as before. False: they are not, or tell more than steps; so look row by row.

    Ranks in lockstep teach the same, and share the number of their step: the first of a node speaks for the others.
    """
    try:
        said = _packed(rows)
        if said == told.said:
            return True
        if _who(rows) != told.who:
            return False
    except (OverflowError, ValueError):
        return False
    told.said = said
    step, place, taught = -1, None, False
    for row, rank, where in zip(rows, told.ranks, told.places, strict=True):
        if row.step != rank.step:
            if row.step != step or where is not place:
                step, place, taught = row.step, where, False
                where[1].witness = row.rank
            if not taught:
                taught = _learn(where, told.names[row.phase], rank.step, step, rank.moved, moment)
            rank.step, rank.moved = step, moment
        if row.state != rank.state:
            rank.state = sys.intern(row.state)
    return True


def _learn(place: Place, phase: str, base: int, step: int, since: Moment, moment: Moment) -> bool:
    """A rank went from step `base` to `step`. False: beats that were held up say nothing of how long that took."""
    if phase != PHASE_TRAIN or base < 0 or since[2] != moment[2]:
        return False
    place[0].clocks.stepped(step - base, moment[0] - since[0], 1, step, place[1].number)
    return True
