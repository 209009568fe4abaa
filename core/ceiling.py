"""The hard ceiling: a job that is silent for hours is told of, whatever was learned, configured, or meant by it.

It is no judgement of what is wrong: perhaps nothing is. A job that was paused on a Friday and forgotten, one that waits
for a debugger, one whose ranks hang where no evidence can be had: a person must know, once.
"""

from collections.abc import Container
from typing import TYPE_CHECKING

from rankpulse.core import diagnosis as d
from rankpulse.core.diagnosis import NAMED_MAX, Diagnosis
from rankpulse.core.progress import RankProgress
from rankpulse.core.records import Incident
from rankpulse.core.slot import PHASE_CLOSED, PHASE_PAUSED
from rankpulse.core.views import RoundView, RunView

if TYPE_CHECKING:
    from rankpulse.core.desk import Desk
    from rankpulse.core.sight import Sight

SILENT = "no rank has moved for"  # how the summary of such an incident begins
LOOK_EVERY_S = 5.0


def is_of_ceiling(incident: Incident) -> bool:
    """Whether an incident only tells of a long silence."""
    return incident.klass == d.UNKNOWN and not incident.culprits and incident.summary.startswith(SILENT)


class Ceilings:
    """One per judge: when to look, and since when silence can be told from not seeing."""

    def __init__(self, desk: "Desk") -> None:
        self._desk = desk
        self._epoch = -1
        self._sighted_at = self._looked_at = float("-inf")
        self._look = False

    def begin(self, sight: "Sight") -> None:
        """A tick begins."""
        desk = self._desk
        if desk.epoch != self._epoch or sight.blind(desk.now) or desk.now < sight.hold_until:
            self._epoch, self._sighted_at = desk.epoch, desk.now
        self._look = desk.now - self._looked_at >= LOOK_EVERY_S
        if self._look:
            self._looked_at = desk.now

    def exceeded(self, run: RunView, fresh: Container[str]) -> Diagnosis | None:
        """What to say of a run that has been silent for too long and that no incident tells of yet."""
        if not self._look or run.current.number in run.ordered:
            return None
        found = exceeded(run, fresh, self._desk.now, self._sighted_at)
        told = found is not None and self._desk.book.of_round(run.uid, run.current.number) is not None
        return None if told else found


def exceeded(run: RunView, fresh: Container[str], now: float, sighted_at: float) -> Diagnosis | None:
    """The current round of `run` has not moved for longer than any phase may last, by the beats that arrived.

    `fresh`: nodes whose beats are on time; the others are judged by their silence. `sighted_at`: since when this
    monitor sees; a round of which no beat ever told is silent since then at the soonest.
    """
    round_, limit_s = run.current, run.clocks.settings.phase_ceiling_s
    witness = round_.progress.get(round_.witness)
    if witness is not None and _seen(round_, round_.witness, fresh) and witness.stale_s() < limit_s:
        return None  # as nearly always
    seen = {rank: progress for rank, progress in round_.progress.items() if _seen(round_, rank, fresh)}
    if seen:
        lasted_s = min(progress.stale_s() for progress in seen.values())
    elif round_.progress:
        told = [p.seen_at for rank, p in round_.progress.items() if _on_time(round_, rank, fresh)]
        if not told:
            return None  # nobody is seen: that is told of as silence
        lasted_s = now - max(*told, sighted_at)
    else:
        lasted_s = now - max(round_.began_at, sighted_at)
    return _diagnosis(run, round_, seen, lasted_s, now) if lasted_s >= limit_s else None


def _seen(round_: RoundView, rank: int, fresh: Container[str]) -> bool:
    return _on_time(round_, rank, fresh) and not round_.progress[rank].untold


def _on_time(round_: RoundView, rank: int, fresh: Container[str]) -> bool:
    return rank in round_.members and round_.members[rank].node in fresh


def _diagnosis(
    run: RunView, round_: RoundView, seen: dict[int, RankProgress], lasted_s: float, now: float
) -> Diagnosis:
    limit_s = run.clocks.settings.phase_ceiling_s
    why = _why(seen, begun=bool(round_.progress))
    reasons = [why, f"no phase may last longer than {limit_s:g} s without a word (detect.phase_ceiling_s)"]
    unseen = len(round_.members) - len(seen)
    if seen and unseen:
        reasons.append(f"{unseen} of {len(round_.members)} ranks are not seen and cannot be told of")
    nodes = tuple(sorted({round_.members[rank].node for rank in seen}))[:NAMED_MAX]
    return Diagnosis(
        d.UNKNOWN, (), d.others(round_, ()), nodes, 0.3, f"{SILENT} {limit_s:g} s: {why}", tuple(reasons), (),
        now - lasted_s,
    )  # fmt: skip


def _why(seen: dict[int, RankProgress], *, begun: bool) -> str:
    """What it does instead, in words that stay the same while it stands."""
    if not seen and begun:
        return "the beats of its nodes do not tell of its ranks any more"
    if not seen:
        return "the round has begun, and none of its ranks was ever seen"
    debugged = [rank for rank, progress in seen.items() if progress.state == "t"]
    if debugged:
        return f"rank {min(debugged)} is held by a debugger"
    paused = sum(progress.phase == PHASE_PAUSED for progress in seen.values())
    closed = sum(progress.phase == PHASE_CLOSED for progress in seen.values())
    if closed == len(seen):
        return "every rank has closed its pulse and none has ended"
    if paused:
        return f"{paused} of {len(seen)} ranks are paused on purpose, and nobody has gone on since"
    phases = sorted({progress.phase for progress in seen.values()})[:4]
    return f"all beats are on time; it stands in {', '.join(phases)}"
