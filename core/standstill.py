"""Nothing moves although everything is seen: is it a hang, and whose? Judged by beats, never by silence.

A standstill is a suspicion first, shortly before its phase's deadline: then evidence is asked for where agents can
give it. Past the deadline it is diagnosed, by the evidence or, without any, by what the beats say.
"""

import math
from collections.abc import Container
from typing import NamedTuple

from rankpulse.core import diagnosis as d
from rankpulse.core.diagnosis import NAMED_MAX, Diagnosis, name
from rankpulse.core.exits import Kind
from rankpulse.core.phases import clock_of
from rankpulse.core.progress import RankProgress
from rankpulse.core.records import Member
from rankpulse.core.slot import PHASE_TRAIN
from rankpulse.core.views import RoundView, RunView
from rankpulse.core.weighing import DOUBTFUL, SURE, UNKNOWN, Verdict


class Stand(NamedTuple):
    """A round that stands still: every rank that is watched is seen, and none moves."""

    watched: dict[int, RankProgress]
    left: tuple[Member, ...]  # ended by themselves before the others
    highest: int  # step
    lasted_s: float  # by received beats alone
    ripe: bool  # past its phase's deadline: an incident, no mere suspicion
    overdue: bool  # for so long past it that it is one even when nobody is to blame
    known: bool = True  # the run reports steps at all: else nobody can tell that it does not train
    limit_s: float = 0.0  # the longest deadline of the phases that its ranks are in
    trains: bool = True  # some of them are in a step, and no first one
    vanished: tuple[Member, ...] = ()  # that their nodes' beats do not tell of any more, though no exit was seen


UNWATCHED = "are watched by no agent"
EARLY_SHARE = 1 / 3  # of a deadline: so much earlier a standstill is a suspicion
OVERDUE_S = 6.0  # past a deadline: ranks that save or tidy up together stand still for a while, and nobody is to blame
BEATS_LATE = 1.1  # intervals, with some jitter: a step may have been made so long before a beat showed it


def standing(
    run: RunView, fresh: Container[str], *, early_s: float = 0.0, floor_s: float | None = None
) -> Stand | None:
    """Whether the current round of `run` stands still for longer than its phase allows, or will soon.

    `fresh`: nodes whose beats are on time. `early_s`: a standstill is told of up to so much before its deadline.
    `floor_s`: the deadline where another monitor has found this standstill already, which may have learned more of
    the run.
    """
    round_ = run.current
    doubts = _Doubts(run, fresh, early_s, floor_s)
    witness = round_.progress.get(round_.witness)
    if not round_.exits and witness is not None and not witness.untold and doubts.of(round_.witness):
        return None  # as nearly always: one rank that moves is enough
    if not _watched_whole(run, round_) or any(exit_.kind is not Kind.CLEAN for exit_ in round_.exits.values()):
        return None
    left = tuple(exit_.member for exit_ in round_.exits.values())
    if 2 * len(left) >= len(round_.members):
        return None  # most have ended by themselves: the rest is tidying up after the training
    vanished = _vanished(round_, fresh, left)
    gone = {member.rank for member in (*left, *vanished)}
    watched = {rank: progress for rank, progress in round_.progress.items() if rank not in gone}
    doubtful = next((rank for rank in watched if doubts.of(rank)), None)
    if doubtful is not None or not watched:
        round_.witness = -1 if doubtful is None else doubtful
        return None
    spare_s = min(progress.stale_s() - doubts.limit_s(progress) for progress in watched.values()) + doubts.unseen_s
    highest, known = max(p.step for p in watched.values()), any(view.reporting() for view in run.rounds.values())
    lasted_s = min(progress.stale_s() for progress in watched.values())
    limit_s = max(map(doubts.limit_s, watched.values()))
    trains = bool(round_.reporting()) and any(p.phase == PHASE_TRAIN for p in watched.values())
    ripe, overdue = spare_s >= 0, spare_s >= OVERDUE_S
    return Stand(watched, left, highest, lasted_s, ripe, overdue, known, limit_s, trains, vanished)


def _vanished(round_: RoundView, fresh: Container[str], left: tuple[Member, ...]) -> tuple[Member, ...]:
    """Ranks that nobody tells of although the beats of their nodes come."""
    untold = (round_.members[rank] for rank, progress in round_.progress.items() if progress.untold)
    return tuple(member for member in untold if member.node in fresh and member not in left)


class _Doubts:
    """What of one rank is enough to say that the current round of its run does not stand still for too long."""

    def __init__(self, run: RunView, fresh: Container[str], early_s: float, floor_s: float | None) -> None:
        self._run, self._round, self._fresh, self._early_s = run, run.current, fresh, early_s
        self._floor_s = math.inf if floor_s is None else floor_s
        self._limits: dict[str, float] = {}  # by phase
        self.unseen_s = BEATS_LATE * run.clocks.settings.heartbeat_interval_s

    def of(self, rank: int) -> bool:
        """It rests, is not seen, or moved not long enough ago."""
        progress = self._round.progress[rank]
        if progress.resting() or self._round.members[rank].node not in self._fresh:
            return True
        stale_s, limit_s = progress.stale_s(), self.limit_s(progress)
        return stale_s <= 0 or stale_s + self.unseen_s - limit_s + min(self._early_s, EARLY_SHARE * limit_s) < 0

    def limit_s(self, progress: RankProgress) -> float:
        """The deadline of its phase. Until somebody has made a step the clock of the start runs: it compiles, reads."""
        clock = clock_of(progress.phase, 0 if self._round.reporting() else -1)
        if clock not in self._limits:
            self._limits[clock] = min(self._run.clocks.deadline_s(clock), self._floor_s)
        return self._limits[clock]


def _watched_whole(run: RunView, round_: RoundView) -> bool:
    """Every rank is told of. In our rendezvous a rank that never attached hides the others only until they train."""
    if len(round_.progress) < len(round_.members) or not round_.members:
        return False
    return round_.complete() or (run.joint is not None and len(round_.reporting()) == len(round_.members) > 1)


def diagnosed(round_: RoundView, stand: Stand, verdict: Verdict | None, keys: tuple[str, ...], now: float) -> Diagnosis:
    """Whose standstill it is. `verdict`: what the evidence under `keys` says, None without any."""
    low = min(progress.step for progress in stand.watched.values())
    steps = f"all at step {low}" if low == stand.highest else f"steps {low} to {stand.highest}"
    reasons = [f"no rank has moved for {stand.lasted_s:.1f} s, all beats are on time; {steps}"]
    unwatched = round_.world_size - len(round_.members)
    if unwatched > 0:
        reasons.append(f"{unwatched} of {round_.world_size} ranks {UNWATCHED}: it may be one of those")
    culprits, confidence = _by_evidence(verdict, reasons)
    if not culprits:
        culprits, confidence = _by_beats(round_, stand, confidence, reasons)
    if not stand.known and confidence < SURE:  # one look at a job that trains finds somebody behind, too
        confidence = min(confidence, DOUBTFUL)
        reasons.append("this run has never reported a step: whether it trains is not known")
    return Diagnosis(
        d.COLLECTIVE_HANG if culprits else d.UNKNOWN,
        tuple(culprits[:NAMED_MAX]),
        d.others(round_, culprits),
        d.nodes_of(culprits)[:NAMED_MAX],
        confidence,
        f"the job stands still: {', '.join(name(member) for member in culprits[:3]) or 'no laggard'}",
        tuple(reasons),
        keys[:NAMED_MAX],
        now - stand.lasted_s,
    )


def _by_evidence(verdict: Verdict | None, reasons: list[str]) -> tuple[list[Member], float]:
    if verdict is None:
        return [], UNKNOWN
    reasons += verdict.reasons
    return list(verdict.culprits), verdict.confidence


def _by_beats(round_: RoundView, stand: Stand, confidence: float, reasons: list[str]) -> tuple[list[Member], float]:
    """What the beats alone can tell."""
    watched = stand.watched
    stopped = [round_.members[rank] for rank, progress in watched.items() if progress.state == "T"]
    behind = [round_.members[rank] for rank, progress in watched.items() if progress.step < stand.highest]
    if stopped and len(stopped) == len(watched) > 1:
        reasons.append("every rank is stopped (state T): somebody suspended the whole job")
        return [], UNKNOWN
    if stopped:
        reasons += [f"{name(member)} is stopped (state T), its peers wait for it" for member in stopped[:8]]
        return stopped, SURE
    if stand.vanished:
        reasons += [f"the agent does not tell of {name(member)} any more" for member in stand.vanished[:8]]
        return list(stand.vanished), 0.6
    if stand.left:
        reasons += [f"{name(member)} ended by itself while the others train on" for member in stand.left[:8]]
        return list(stand.left), 0.6
    if 0 < 2 * len(behind) < len(watched):
        reasons += [f"{name(member)} is behind the others" for member in behind[:8]]
        return behind, 0.6
    if not any("no laggard" in reason for reason in reasons):
        reasons.append("no laggard: no rank differs from the others by what is known here")
    return [], min(confidence, 0.5)
