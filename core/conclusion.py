"""From all that nodes told of a standstill to what is said of it: the verdict on it, within the rules of doubt.

Two rules look at the same answers. Where both name somebody and they differ, nobody is certain, and a person decides.
What is seen at work, or waits for a device, may go on by itself: it is never certain either.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from rankpulse.core import diagnosis as d
from rankpulse.core import policy
from rankpulse.core import verdict as v
from rankpulse.core.assembling import NOBODY_TOLD
from rankpulse.core.causes_network import NO_LAGGARD
from rankpulse.core.diagnosis import NAMED_MAX, Diagnosis
from rankpulse.core.snapshot import Rank, Snapshot
from rankpulse.core.standstill import UNWATCHED, Stand
from rankpulse.core.verdict import Verdict
from rankpulse.core.views import RoundView
from rankpulse.core.weighing import DOUBTFUL, LIKELY, SURE
from rankpulse.core.words import printable

REASONS_MAX, TEXT_MAX = 16, 400
CLASSES: Final = (d.WORKER_DEAD, *(klass for klass in d.STANDSTILLS if klass != d.UNKNOWN))
OF_PLACES: Final = (d.GPU_FAULT, d.NVLINK_DOMAIN, d.NETWORK_STALL)  # who is blamed may be a machine of whoever waits
PASSING: Final = (policy.WAIT, policy.NONE)


class Conclusion(NamedTuple):
    found: Diagnosis
    at_work: bool  # slow, for all one sees
    named: bool  # by the verdict: else it is what rows and beats say


def concluded(found: Diagnosis, verdict: Verdict, snapshot: Snapshot, round_: RoundView, stand: Stand) -> Conclusion:
    """`found`: what beats and rows say by themselves; the verdict is the better word where it has one."""
    said = tuple(printable(text, TEXT_MAX) for text in (verdict.summary, *verdict.reasons))[:REASONS_MAX]
    passing = verdict.klass == v.PLANNED_SLOW_PHASE or (verdict.klass in CLASSES and verdict.action in PASSING)
    if verdict.klass not in CLASSES or passing or _is_half_seen(verdict, snapshot):
        return _unnamed(found, verdict, said, passing=passing)
    ranks = {rank.rank: rank for rank in snapshot.ranks}
    blamed = tuple(round_.members[rank] for rank in verdict.culprits.ranks if rank in round_.members)
    nodes = tuple(node for node in verdict.culprits.nodes if node in round_.nodes()) or d.nodes_of(blamed)
    better = found._replace(
        klass=verdict.klass,
        culprits=blamed[:NAMED_MAX],
        cascade=d.others(round_, blamed),
        nodes=nodes[:NAMED_MAX],
        confidence=_confidence(verdict, found, {member.rank for member in blamed}),
        summary=said[0],
        reasons=(*_seen(found), *said[1:]),
        signature=verdict.signature,
        advice=verdict.action,
    )
    broken = verdict.klass in (d.GPU_FAULT, d.NVLINK_DOMAIN)
    at_work = not broken and any(map(_works, (ranks[member.rank] for member in blamed)))
    return Conclusion(_doubted(better, found, stand, [ranks[m.rank] for m in blamed]), at_work, named=True)


def _seen(found: Diagnosis) -> tuple[str, ...]:
    """What the monitor has seen itself: for how long nothing moves, and whom no agent watches."""
    return (*found.reasons[:1], *(reason for reason in found.reasons[1:2] if UNWATCHED in reason))


def _unnamed(found: Diagnosis, verdict: Verdict, said: tuple[str, ...], *, passing: bool) -> Conclusion:
    """The verdict names nobody: what rows and beats say stands, and where it thinks of no failure, in doubt."""
    if verdict.klass == v.UNKNOWN:
        more = () if found.culprits else said
        return Conclusion(found._replace(reasons=(*found.reasons, *more)), at_work=False, named=False)
    doubt = found._replace(confidence=min(found.confidence, DOUBTFUL), reasons=(*found.reasons, *said))
    return Conclusion(doubt, at_work=passing, named=False)


def _is_half_seen(verdict: Verdict, snapshot: Snapshot) -> bool:
    """That everybody has come can be said only where everybody was heard: it may be one of the others."""
    silent = any(rank.dump.startswith(NOBODY_TOLD) for rank in snapshot.ranks)
    return silent and verdict.signature == f"{d.NETWORK_STALL}:{NO_LAGGARD}"


def _confidence(verdict: Verdict, found: Diagnosis, blamed: set[int]) -> float:
    """As sure as the surer of the two rules, where both name the very same ranks by what the kernel or torch says."""
    agree = bool(blamed) and blamed == {member.rank for member in found.culprits} and found.confidence >= LIKELY
    return max(verdict.confidence, found.confidence) if agree else verdict.confidence


def _works(rank: Rank) -> bool:
    return rank.state not in ("T", "Z", "X") and (rank.cpu_moving is True or rank.state == "R")


def _doubted(better: Diagnosis, found: Diagnosis, stand: Stand, blamed: list[Rank]) -> Diagnosis:
    """The same, no surer than it may be."""
    doubts = list(_doubts(better, found, blamed))
    if not stand.known and better.confidence < SURE:
        doubts.append("this run has never reported a step: whether it trains is not known")
    if not doubts:
        return better
    return better._replace(confidence=min(better.confidence, DOUBTFUL), reasons=(*better.reasons, *doubts))


def _doubts(better: Diagnosis, found: Diagnosis, blamed: list[Rank]) -> Iterator[str]:
    if _disagree(better, found):
        yield "the collectives alone name somebody else: neither is acted upon"
        yield from found.reasons[1:4]
    if better.klass in (d.GPU_FAULT, d.NVLINK_DOMAIN):
        return  # what a driver says of its device stands, whatever those do that wait for it
    if any(map(_works, blamed)):
        yield "it uses the CPU while the others wait: it may be slow, not hung"
    if any(rank.state == "D" for rank in blamed):
        yield "it waits in the kernel (state D): for storage or a driver, and no signal ends it there"


def _disagree(better: Diagnosis, found: Diagnosis) -> bool:
    """Whether both name somebody, and not the same. A guess by beats names nobody."""
    theirs, ours = {m.rank for m in found.culprits}, {m.rank for m in better.culprits}
    if not theirs or found.confidence < LIKELY or theirs & ours:
        return False
    if better.klass in OF_PLACES and {m.node for m in found.culprits} & set(better.nodes):
        return False
    return bool(ours) or better.klass == d.NETWORK_STALL
