"""What follows from a broken GPU: a standstill, deaths, silence of its machine. Pure.

Whether a failure of a round is the cascade of a fault is a matter of time and of what else is known. The kernel's word
may come late: a driver tells that a device is lost when it is next asked, a stall of the firmware is told of after 6 to
45 s, NVML is asked every 15 s. And a job that has made steps for a while after a fault did not need that device.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from rankpulse.core import diagnosis as d
from rankpulse.core import gpu_faults as faults
from rankpulse.core import gpu_words
from rankpulse.core.diagnosis import NAMED_MAX, Diagnosis
from rankpulse.core.gpu_choice import proposal
from rankpulse.core.policy import CERTAIN
from rankpulse.core.records import DeviceFault, Member
from rankpulse.core.views import RoundView, RunView

LATE_S: Final = 180.0  # a standstill that is older than that by more than the run's longest phase has another cause
OUTLIVED_S: Final = 60.0
STEPS: Final = 3.0
REASONS_MAX: Final = 16
TO_KEEP_OUT: Final = "to keep it out of all rounds: "
OF_PEOPLE: Final = (d.OPERATOR_RESTART, d.DRAIN, d.BREAKER_OPEN)


class Told(NamedTuple):
    """A fault, and when it was heard by the monitor's clock: first, and last. `keys`: of the observations."""

    fault: DeviceFault
    began: float
    last: float
    keys: tuple[str, ...] = ()


def explains(told: Told, run: RunView, failed_at: float) -> bool:
    """Whether what failed then may be the consequence of this fault."""
    return told.began - before_s(run) <= failed_at <= told.last + after_s(run)


def before_s(run: RunView) -> float:
    """A job may have stood for so long before its fault is heard: nothing moves between two steps, or in a phase."""
    known = (run.clocks.high_s(name) for name in run.clocks.known())
    return LATE_S + max((high_s for high_s in known if high_s is not None), default=0.0)


def after_s(run: RunView) -> float:
    """A job may go on for so long without a device that it needs: learned from its own steps."""
    return max(OUTLIVED_S, STEPS * (run.clocks.typical_step_s() or 0.0))


def failed_at(round_: RoundView, found: Diagnosis) -> tuple[float, ...]:
    """When the failure began, as far as that is known: as it was found, and when the last rank moved."""
    moved = [progress.moved_at for progress in round_.progress.values() if progress.first_step >= 0]
    return (found.since, max(moved)) if moved else (found.since,)


def causes(told: Iterable[Told], run: RunView, round_: RoundView, found: Diagnosis) -> list[Told]:
    """The faults of which this failure is the cascade; none where it is explained without them."""
    times, nodes = failed_at(round_, found), set(round_.nodes())
    near = [one for one in told if one.fault.node in nodes and any(explains(one, run, at) for at in times)]
    if found.klass in OF_PEOPLE or is_elsewhere(found, {one.fault.node for one in near}):
        return []
    return near


def is_elsewhere(found: Diagnosis, nodes: set[str]) -> bool:
    """Whether the evidence names others for certain: a program that fails on another machine fails by itself."""
    named = set(d.nodes_of(found.culprits) or found.nodes)
    return found.klass != d.UNKNOWN and found.confidence >= CERTAIN and bool(named) and not named & nodes


def blamed(round_: RoundView, rows: Sequence[DeviceFault], found: Diagnosis) -> tuple[Member, ...]:
    """The ranks of these devices: as the evidence names them, by number of device, or all of the machine."""
    nodes = {one.node for one in rows}
    named = tuple(member for member in found.culprits if member.node in nodes)
    here = [member for member in round_.members.values() if member.node in nodes]
    places = {(one.node, one.index) for one in rows if one.index >= 0}
    theirs = [member for member in here if (member.node, member.local_rank) in places]
    return named or tuple(sorted(theirs or here, key=lambda member: member.rank))


def reasons(rows: Sequence[DeviceFault]) -> tuple[str, ...]:
    """Who told what, what is to be done, and the command for it."""
    if not rows:
        return ()
    return (*gpu_words.reasons(rows), f"{TO_KEEP_OUT}{proposal(faults.nodes(rows), gpu_words.title(rows), busy=False)}")


def told_of(told: Sequence[Told]) -> Diagnosis:
    """Of faults by which no job is seen to suffer."""
    rows = tuple(one.fault for one in told)
    return Diagnosis(
        faults.klass(rows),
        (),
        (),
        faults.nodes(rows)[:NAMED_MAX],
        faults.confidence(rows),
        gpu_words.title(rows),
        reasons(rows),
        tuple(key for one in told for key in one.keys)[:NAMED_MAX],
        min(one.began for one in told),
        signature=faults.signature(rows),
        faults=rows,
    )


def explained(told: Sequence[Told], round_: RoundView, found: Diagnosis) -> Diagnosis:
    """A failure of a round, as the consequence of these faults."""
    cause = told_of(told)
    guilty = blamed(round_, cause.faults, found)
    words = (*cause.reasons, f"then: {found.summary}", *found.reasons)
    return found._replace(
        klass=cause.klass,
        culprits=guilty[:NAMED_MAX],
        cascade=d.others(round_, guilty),
        nodes=cause.nodes,
        confidence=cause.confidence,
        summary=cause.summary,
        reasons=tuple(dict.fromkeys(words))[:REASONS_MAX],
        evidence=tuple(dict.fromkeys((*cause.evidence, *found.evidence)))[:NAMED_MAX],
        fault="",
        signature=cause.signature,
        advice=d.RESTART_WITHOUT,
        faults=cause.faults,
    )
