"""Nothing moves although everything is seen: is it a hang, and whose? Judged by beats, never by silence."""

from rankpulse.core import diagnosis as d
from rankpulse.core.diagnosis import NAMED_MAX, Diagnosis, name
from rankpulse.core.exits import Kind
from rankpulse.core.fleet import RoundView, RunView
from rankpulse.core.progress import RankProgress
from rankpulse.core.records import Member


def hang(run: RunView, fresh: set[str], now: float) -> Diagnosis | None:
    """The current round of `run` stands still beyond its phase's deadline. `fresh`: nodes whose beats are on time."""
    round_ = run.current
    if not round_.complete() or any(exit_.kind is not Kind.CLEAN for exit_ in round_.exits.values()):
        return None
    left = [exit_.member for exit_ in round_.exits.values()]
    if len(round_.progress) < round_.world_size or 2 * len(left) >= round_.world_size:
        return None  # most have ended by themselves: the rest is tidying up after the training
    gone = {member.rank for member in left}
    watched = {rank: progress for rank, progress in round_.progress.items() if rank not in gone}
    if any(p.resting() or p.stale_s() <= run.clocks.deadline_s(p.phase) for p in watched.values()):
        return None
    if any(round_.members[rank].node not in fresh for rank in watched):
        return None
    return _named(round_, watched, left, now)


def _named(round_: RoundView, watched: dict[int, RankProgress], left: list[Member], now: float) -> Diagnosis:
    still = min(progress.stale_s() for progress in watched.values())
    low, high = (pick(p.step for p in watched.values()) for pick in (min, max))
    steps = f"all at step {low}" if low == high else f"steps {low} to {high}"
    reasons = [f"no rank has moved for {still:.1f} s, all beats are on time; {steps}"]
    stopped = [round_.members[rank] for rank, progress in watched.items() if progress.state == "T"]
    behind = [round_.members[rank] for rank, progress in watched.items() if progress.step < high]
    if stopped:
        culprits, confidence = stopped, 0.95
        reasons += [f"{name(member)} is stopped (state T), its peers wait for it" for member in stopped[:8]]
    elif left:
        culprits, confidence = left, 0.6
        reasons += [f"{name(member)} ended by itself while the others train on" for member in left[:8]]
    elif 0 < 2 * len(behind) < len(watched):
        culprits, confidence = behind, 0.6
        reasons += [f"{name(member)} is behind the others" for member in behind[:8]]
    else:
        culprits, confidence = [], 0.3
        reasons.append("no laggard: no rank differs from the others by what is known here")
    return Diagnosis(
        d.COLLECTIVE_HANG if culprits else d.UNKNOWN,
        tuple(culprits[:NAMED_MAX]),
        d.others(round_, culprits),
        d.nodes_of(culprits)[:NAMED_MAX],
        confidence,
        f"the job stands still: {', '.join(name(member) for member in culprits[:3]) or 'no laggard'}",
        tuple(reasons),
        (),
        now - still,
    )
