"""Folding the rank rows of a heartbeat: what moved, and what its pace says of the run.

Nearly every beat tells of the same processes as the one before. So a node remembers where their rows belong (`Told`),
and while its ranks go abreast one comparison and one assignment are all: they share the mark of how far they are. Where
only some have moved, each is looked at. What is remembered is small, for of many nodes it is out of the processor's
caches when the next beat comes: bytes in one piece, no rows, not the beat. Whatever else a beat tells is placed anew,
row by row.
"""

import sys

from rankpulse.core import imprint as im
from rankpulse.core import records as r
from rankpulse.core.fleet import Fleet
from rankpulse.core.progress import Mark, Moment, NodeClock, RankProgress
from rankpulse.core.slot import PHASE_TRAIN
from rankpulse.core.views import Abreast, NodeView, Place, Told, process_of

SOONEST = 0.33  # of the time that a beat may take: one that comes sooner was held up before
PHASE_LETTERS = 16


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
        if told is not None and _shown(told, beat, clock):
            return False
        self._place_all(node, beat, before, revision)
        return True

    def _place_all(self, node: NodeView, beat: r.Beat, before: Moment, revision: int) -> None:
        """Fold row by row, and remember where they belong when all of them count, and this is settled."""
        names = tuple(phase[:PHASE_LETTERS] for phase in beat.phases)
        told = node.told = Told(names)
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
        settled = node.told is told and len(here) == len(beat.ranks)  # nobody was placed elsewhere, or counts nowhere
        if not (self.remember and settled and _remember(told, beat)):
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
            rank.goes(rank.step, moment)
            round_.witness = row.rank
        elif row.step != rank.step:
            if rank.first_step < 0 <= row.first_step:
                run.clocks.stayed(rank.phase, moment[0] - rank.moved[0], moment[0], -1)
            _learn(place, phase, rank.mark, row.step, node.clock)
            rank.goes(row.step, moment)
            round_.witness = row.rank
        if row.first_step != rank.first_step:
            rank.first_step = row.first_step
            round_.reporting_changed()
        if row.step != rank.step:
            rank.goes(row.step, rank.moved)
        rank.phase, rank.state = phase, sys.intern(row.state)
        return rank


def _remember(told: Told, beat: r.Beat) -> bool:
    """False: this beat cannot be told from others by its bytes."""
    try:
        imprint, told.who = im.imprint(beat), im.who(beat)
    except (OverflowError, ValueError):  # numbers that no process has
        return False
    if imprint is None:
        return False
    told.imprint, told.states_at = imprint, im.states_at(imprint)
    told.states = [rank.state for rank in told.ranks]
    _gather(told, beat.ranks)
    return True


def _shown(told: Told, beat: r.Beat, clock: NodeClock) -> bool:
    """Fold a beat of the same processes as before. False: it is not, or tells more than steps; so look row by row."""
    rows, one = beat.ranks, told.abreast
    try:
        if one is None or im.said(beat) != im.filled(told.imprint, rows[0].step):
            return _differs(told, beat, clock)
    except (IndexError, OverflowError, ValueError):  # no rows any more, or numbers that no process has
        return False
    if rows[0].step != one.step:
        _move_all(one, rows[0], clock)
    return True


def _differs(told: Told, beat: r.Beat, clock: NodeClock) -> bool:
    """The same where ranks are in other states, or not at one step."""
    rows, one, imprint = beat.ranks, told.abreast, told.imprint
    states = [row.state for row in rows]
    if states != told.states:
        imprint = im.with_states(imprint, told.states_at, told.states, states)
    if one is not None and im.said(beat) != im.filled(imprint, rows[0].step):
        one = None
    if one is None and im.who(beat) != told.who:
        return False
    if imprint is not told.imprint:
        told.imprint = imprint
        _show_states(told, states)
    if one is None:
        _move_some(told, rows, clock)
    elif rows[0].step != one.step:
        _move_all(one, rows[0], clock)
    return True


def _move_all(one: Abreast, row: r.RankRow, clock: NodeClock) -> None:
    one.place[1].witness = row.rank
    _learn(one.place, one.phase, one, row.step, clock)
    one.move(row.step, clock)


def _show_states(told: Told, states: list[str]) -> None:
    for number, state in enumerate(states):
        if state != told.states[number]:
            told.ranks[number].state = told.states[number] = sys.intern(state)


def _move_some(told: Told, rows: tuple[r.RankRow, ...], clock: NodeClock) -> None:
    """Those that have moved, one by one.

    Ranks in lockstep teach the same, and share the number of their step: the first of a node speaks for the others.
    """
    told.abreast, moment = None, clock.moment()
    mark, place, taught = None, None, False
    for row, rank, where in zip(rows, told.ranks, told.places, strict=True):
        before, step = rank.mark, row.step
        if step == before.step:
            continue
        if mark is None or step != mark.step or where is not place:
            mark, place, taught = Mark(step, moment), where, False
            where[1].witness = row.rank
        if not taught:
            taught = _learn(where, told.names[row.phase], before, step, clock)
        rank.mark = mark
    _gather(told, rows)


def _gather(told: Told, rows: tuple[r.RankRow, ...]) -> None:
    """Ranks that are at the same step since the same moment, in one phase of one round, share a mark from now on.

    Until some move alone: then `_move_some` gives these another.
    """
    if not rows:
        return
    first, phase, place = told.ranks[0].mark, rows[0].phase, told.places[0]
    for row, rank, where in zip(rows, told.ranks, told.places, strict=True):
        alike = rank.mark is first or (rank.mark.step == first.step and rank.mark.moment() == first.moment())
        if not alike or row.phase != phase or where is not place:
            return
    told.abreast = Abreast(first.step, first.moment(), sys.intern(told.names[phase]), place)
    for rank in told.ranks:
        rank.mark = told.abreast


def _learn(place: Place, phase: str, mark: Mark, step: int, clock: NodeClock) -> bool:
    """A rank went from `mark` to `step`. False: beats that were held up say nothing of how long that took."""
    if phase != PHASE_TRAIN or mark.step < 0 or mark.untimely != clock.untimely:
        return False
    place[0].clocks.stepped(step - mark.step, clock.seen_at - mark.at, 1, step, place[1].number)
    return True
