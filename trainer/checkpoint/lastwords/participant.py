"""One rank's way through last words: announce, decide or hear what was decided, write, commit or wait, answer.

No clock and no thread of its own: whoever runs it calls `advance` again and again until there is an answer, and each
call does what can be done now. So tests can put every order of arrival to it. All it asks of other ranks is files.
"""

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

from rankpulse.trainer.checkpoint import rotation, writer
from rankpulse.trainer.checkpoint.errors import CheckpointError, SaveFailed
from rankpulse.trainer.checkpoint.lastwords import judging, writing
from rankpulse.trainer.checkpoint.lastwords.gate import Gate, Standing
from rankpulse.trainer.checkpoint.lastwords.layouts import Layouts, digest, mark_of
from rankpulse.trainer.checkpoint.lastwords.meeting import ATTEMPT_MAX, Meeting, Seen
from rankpulse.trainer.checkpoint.lastwords.moment import Keeper
from rankpulse.trainer.checkpoint.lastwords.words import REFUSED, SAVED, Announcement, Answer, Plan, Row
from rankpulse.trainer.checkpoint.manifest import MANIFEST
from rankpulse.trainer.checkpoint.state import Captured, told_values

SETTLED: Final = 0.5  # of the time that there is: nobody else is waited for who has not announced
OVER: Final = 0.75  # of it: it is decided, or refused
TURNS: Final = 3  # ranks that may decide, the lowest first
TURN: Final = 0.05  # of it: for how long each next one lets the one before decide
MISSED: Final = "the directory must be shared by all nodes"


@dataclass(frozen=True)
class Who:
    """A rank of a life, and what it needs. newest: step and path of the newest checkpoint that it knows to be
    committed. run: run_uid, run_id, round. limit: the one that the life obeyed when it loaded."""

    rank: int
    layouts: Layouts
    keeper: Keeper
    gate: Gate
    meeting: Meeting
    run: Mapping[str, Any] = field(default_factory=dict)
    limit: int | None = None
    newest: Callable[[], tuple[int, str]] = lambda: (-1, "")
    committed: Callable[[Plan, str, int, float], None] = lambda plan, path, size, took_s: None


class Participant:
    """began, until: by the clock of whoever calls `advance`; the gate is held until then."""

    def __init__(self, who: Who, began: float, until: float) -> None:
        self._who, self._began, self._until = who, began, until
        self._gone, self._torn = set[int](), set[int]()
        self._attempt = 0
        self._announced: Announcement | None = None
        self._state: Captured | None = None  # of the announcement, if it is clean
        self._standing = who.gate.hold(self, until)
        self._heard: dict[int, Announcement] = {}
        self._plan: Plan | None = None
        self._ready_at: float | None = None  # since when it could be decided
        self._told = False  # our part is there, or is said to have failed
        self._rows: dict[int, Row] = {}

    def learn(self, absent: Mapping[int, bool]) -> None:
        """Ranks that are not to be waited for, and whether each was in the middle of an update when it went. Called by
        any thread."""
        everybody = range(self._who.layouts.world)
        self._gone = self._gone | {rank for rank in absent if rank in everybody and rank != self._who.rank}
        self._torn = self._torn | {rank for rank, torn in absent.items() if torn and rank in everybody}

    def advance(self, now: float) -> Answer | None:
        """The answer, as soon as there is one. Raises nothing but what a person or the interpreter throws in."""
        try:
            found = self._advanced(now)
        except FileNotFoundError as error:
            found = self._refused(f"{error.filename} is gone: this life of the job is over, or {MISSED}")
        except (OSError, CheckpointError) as error:
            found = self._refused(str(error))
        if found is None and now >= self._until:
            found = self._late()
        return None if found is None else replace(found, took_s=max(now - self._began, 0.0))

    def close(self) -> None:
        """Updates may go on."""
        self._who.gate.release()

    def _advanced(self, now: float) -> Answer | None:
        if self._plan is None:
            step, path = self._who.newest()
            standing = self._who.gate.standing
            if 0 <= standing.step <= step and standing.clean:
                return Answer(SAVED, step, "this step was saved already", path)
            self._meet(now)
        return None if self._plan is None else self._follow(self._plan, now)

    def _meet(self, now: float) -> None:
        """Until there is a plan."""
        seen = self._who.meeting.look()
        if not self._attempt and not self._begin(seen):
            return
        self._announce()
        marks = {**seen.marks.get(self._attempt, {})}
        if self._announced is not None:
            marks[self._who.rank] = self._announced.mark
        if marks:
            self._who.gate.let_up_to((max(marks.values()) + 1) // 2)
        if self._attempt in seen.plans:
            self._plan = self._who.meeting.plan(self._attempt)
        else:
            self._decide(marks, now)

    def _begin(self, seen: Seen) -> bool:
        """Which attempt this is. An earlier one that was decided when nobody was further than this rank is answered
        as it was (False)."""
        last = seen.plans[-1] if seen.plans else 0
        plan = self._who.meeting.plan(last) if last else None
        if plan is not None and plan.top >= self._standing.step:
            self._attempt, self._plan = last, plan
            return False
        if last >= ATTEMPT_MAX:
            raise SaveFailed(f"{last} attempts at last words in one life are enough")
        self._attempt = last + 1
        return True

    def _announce(self) -> None:
        """Where this rank stands, when that has changed."""
        standing = self._who.gate.standing
        if self._announced is None or standing is not self._standing:
            self._standing = standing
            said = self._said(standing)
            self._who.meeting.announce(self._attempt, said)
            self._announced = said

    def _said(self, standing: Standing) -> Announcement:
        self._state = None
        rank, step = self._who.rank, standing.step
        if not standing.clean:
            return Announcement(rank, step, clean=False)
        try:
            state = self._who.keeper.captured(standing.moment)
            if name := standing.moment.torn():
                raise SaveFailed(
                    f"{name} was changed since the end of step {step} by something that is no optimizer's step"
                )
        except CheckpointError as error:
            return Announcement(rank, step, clean=False, unable=str(error)[:500])
        self._state = state
        return Announcement(rank, step, True, "", mark_of(state), state.compared, state.buffers, *_digests(state))

    def _decide(self, marks: Mapping[int, int], now: float) -> None:
        """If it is this rank's turn, and can be decided."""
        turn = sorted(marks).index(self._who.rank) if self._who.rank in marks else TURNS
        share = (now - self._began) / max(self._until - self._began, 1e-9)
        if turn >= TURNS:
            return
        known = judging.Known(
            self._listen(marks), self._gone, sorted(self._torn), settled=share >= SETTLED, over=share >= OVER
        )
        plan = judging.judged(self._who.layouts, known)
        if plan is None:
            self._ready_at = None
            return
        if self._ready_at is None:
            self._ready_at = now
        if now - self._ready_at < turn * TURN * (self._until - self._began):
            return
        self._publish(plan)

    def _listen(self, marks: Mapping[int, int]) -> dict[int, Announcement]:
        for rank, mark in marks.items():
            known = self._announced if rank == self._who.rank else self._heard.get(rank)
            if known is None or known.mark != mark:
                known = self._who.meeting.announced(self._attempt, rank, mark)
            if known is not None and known.rank == rank:
                self._heard[rank] = known
        return self._heard

    def _publish(self, plan: Plan) -> None:
        files, directory = self._who.meeting.files, self._who.meeting.directory
        plan = replace(plan, save_id=os.urandom(4).hex()) if plan.may else plan
        if plan.may:
            needed = writing.needed_bytes(writing.division(self._who.layouts, plan))
            free = rotation.free_bytes(directory)
            if free < needed:
                why = f"{directory} needs {needed - free} bytes more than it has"
                plan = Plan(may=False, top=plan.top, reason=why)
        if plan.may:
            writer.begin(files, directory, plan.step, plan.save_id)
        first = False
        try:
            first = self._who.meeting.decide(self._attempt, plan)
        finally:
            if plan.may and not first:
                writing.give_up(files, directory, plan)
        self._plan = plan if first else None  # else it is read at the next look

    def _follow(self, plan: Plan, now: float) -> Answer | None:
        if not plan.may:
            return Answer(REFUSED, plan.top, plan.reason)
        path = writing.attempt_of(self._who.meeting.directory, plan)
        if os.path.lexists(os.path.join(path, MANIFEST)):
            return Answer(SAVED, plan.step, "", path, absent=plan.absent)
        if self._who.rank in plan.writers and not self._told:
            self._write(plan)
        if self._who.rank == plan.writers[0]:
            return self._commit(plan, now)
        if self._attempt in self._who.meeting.look().over:
            return self._refused(self._who.meeting.given_up(self._attempt), plan.top)
        return None

    def _write(self, plan: Plan) -> None:
        """Once: our part, or why it is not there."""
        self._told = True
        meeting = self._who.meeting
        if self._attempt and self._who.rank in meeting.look().rows.get(self._attempt, ()):
            return  # asked a second time
        try:
            row = self._written(plan)
        except (OSError, CheckpointError) as error:
            row = Row(self._who.rank, failed=f"rank {self._who.rank}: {error}")
        meeting.told(self._attempt, row)

    def _written(self, plan: Plan) -> Row:
        part = self._part(plan)
        row = writing.write(self._who.meeting.files, self._who.meeting.directory, self._who.layouts, plan, part)
        self._part(plan)  # still the same
        return row

    def _part(self, plan: Plan) -> writing.Part:
        if self._state is None or not self._who.gate.held(self, plan.step) or self._standing.step != plan.step:
            raise SaveFailed(f"it does not hold the state at the end of step {plan.step} any more")
        return writing.Part(self._who.rank, self._state, self._standing.moment)

    def _commit(self, plan: Plan, now: float) -> Answer | None:
        """By the lowest writer."""
        meeting = self._who.meeting
        there = meeting.look().rows.get(self._attempt, frozenset())
        for rank in sorted(there - self._rows.keys()):
            row = meeting.row(self._attempt, rank)
            if row is not None and row.rank == rank:
                self._rows[rank] = row
        failed = [row.failed for _, row in sorted(self._rows.items()) if row.failed]
        left = [rank for rank in plan.writers if rank not in self._rows]
        if failed:
            return self._given_up(plan, failed[0])
        if left:
            late = f"rank {left[0]} has not written its part in time"
            return self._given_up(plan, late) if now >= self._until else None
        try:
            size = self._committed(plan)
        except (OSError, CheckpointError) as error:
            return self._given_up(plan, str(error))
        path = writing.attempt_of(meeting.directory, plan)
        self._who.committed(plan, path, size, now - self._began)
        return Answer(SAVED, plan.step, "", path, absent=plan.absent)

    def _committed(self, plan: Plan) -> int:
        meeting, who = self._who.meeting, self._who
        if self._state is None:
            raise SaveFailed("the part of the rank that commits is not known any more")
        part = writing.Part(who.rank, self._state, self._standing.moment)
        rows = [self._rows[rank] for rank in plan.writers]
        return writing.commit(meeting.files, meeting.directory, who.layouts, plan, part, rows, who.run, who.limit)

    def _given_up(self, plan: Plan, reason: str) -> Answer:
        with suppress(OSError):
            self._who.meeting.give_up(self._attempt, reason)
        writing.give_up(self._who.meeting.files, self._who.meeting.directory, plan)
        return self._refused(reason, plan.top)

    def _late(self) -> Answer:
        if self._plan is None:
            return self._refused("no rank has decided in time")
        return self._refused(f"rank {self._plan.writers[0]} has not committed in time", self._plan.top)

    def _refused(self, reason: str, top: int = -1) -> Answer:
        return Answer(REFUSED, max(top, self._standing.step), reason)


def _digests(state: Captured) -> tuple[str, str]:
    """Of the samples of parameters, and of what is not a tensor."""
    return digest(state.samples), digest(told_values(state))
