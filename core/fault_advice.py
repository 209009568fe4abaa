"""What to do about a fault: by the catalogue, by what the driver asks for, and heavier where it comes again."""

from collections.abc import Callable
from typing import Final, NamedTuple

from rankpulse.core import kernel_reading as kr
from rankpulse.core import xid_catalogue as c
from rankpulse.core.faults import Fault


class Advice(NamedTuple):
    action: str
    why: str


class Step(NamedTuple):
    """From so many occurrences on, the action is another."""

    times: int
    action: str
    why: str
    counts: Callable[[Fault], int]


def _occurrences(fault: Fault) -> int:
    return fault.occurrences


def _at_one_place(fault: Fault) -> int:
    return max(fault.places.values(), default=0)


def _at_one_link(fault: Fault) -> int:
    return max(fault.links.values(), default=0)


def _of_programs(fault: Fault) -> int:
    """Occurrences, once more than one program had it: a broken program fails again by itself."""
    return fault.occurrences if len(fault.pids) > 1 else 0


_AGAIN: Final[dict[int, tuple[Step, ...]]] = {
    13: (Step(2, c.CONTACT_VENDOR, "the same GPC and TPC {n} times: the GPU, not the program", _at_one_place),),
    31: (Step(3, c.CONTACT_VENDOR, "{n} times on this GPU, in different programs: the GPU", _of_programs),),
    48: (Step(2, c.CONTACT_VENDOR, "{n} times: field diagnostics, then replacement", _occurrences),),
    62: (Step(2, c.CONTACT_VENDOR, "{n} times: hardware", _occurrences),),
    64: (Step(2, c.CONTACT_VENDOR, "{n} times: replacement", _occurrences),),
    74: (Step(2, c.CONTACT_VENDOR, "the same link {n} times: diagnostics of both ends", _at_one_link),),
    79: (Step(2, c.CONTACT_VENDOR, "{n} times: power, riser, slot, then replacement", _occurrences),),
    94: (
        Step(2, c.RESET_GPU, "{n} times: the GPU needs its reset", _occurrences),
        Step(4, c.CONTACT_VENDOR, "{n} times: as with 48", _occurrences),
    ),
    95: (Step(2, c.CONTACT_VENDOR, "{n} times: field diagnostics, then replacement", _occurrences),),
    119: (Step(2, c.DRAIN_REBOOT, "{n} times: a reset was not enough", _occurrences),),
    120: (Step(2, c.DRAIN_REBOOT, "{n} times: a reset was not enough", _occurrences),),
    143: (Step(2, c.CONTACT_VENDOR, "{n} times: hardware inspection", _occurrences),),
}
_OTHERS: Final = Step(3, c.RESET_GPU, "{n} times on this GPU, in different programs: the GPU is suspect", _of_programs)


def advice(fault: Fault) -> Advice:
    """The heaviest of what the catalogue, the driver and the repetition ask for."""
    if fault.cleared:
        return Advice(c.IGNORE, "it is over: the end was told")
    found = [Advice(base(fault), "")]
    if fault.recovery is not None:
        found.append(Advice(c.of_recovery(fault.recovery), f"the driver asks for {c.recovery_words(fault.recovery)}"))
    found += [
        Advice(step.action, step.why.format(n=n)) for step in _steps(fault) if (n := step.counts(fault)) >= step.times
    ]
    return max(found, key=lambda one: c.weight(one.action))


def base(fault: Fault) -> str:
    """What one occurrence asks for."""
    reading = fault.reading
    if fault.fatal:  # it may have been printed later than the first line
        return c.heavier(c.RESET_GPU, kr.action(reading) or c.IGNORE)
    return kr.action(reading) or c.IGNORE


def _steps(fault: Fault) -> tuple[Step, ...]:
    if fault.xid is None:
        return ()
    found = c.of(fault.xid)
    listed = _AGAIN.get(fault.xid, ())
    return listed or ((_OTHERS,) if found.role == c.CAUSE and found.scope == c.PROCESS else ())


def role(fault: Fault) -> str:
    return c.CONSEQUENCE if fault.cause is not None else kr.role(fault.reading) or c.UNKNOWN


def words(fault: Fault) -> str:
    if not fault.numbered:
        return "GPU lost, told without an XID"
    return kr.words(fault.reading)
