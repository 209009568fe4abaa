"""Whether a node may be in a round: what was found on it, and the word that follows.

What cannot be asked is unknown: it is told of as such, never as healthy, and it keeps nobody out.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from rankpulse.core.words import printable

OK, UNKNOWN, WARN, FAIL = "ok", "unknown", "warn", "fail"
MIB: Final = 1 << 20
_TEXT_MAX: Final = 500
_NO_PYNVML: Final = -1
_LOST, _RESET_REQUIRED, _MISMATCH, _UNKNOWN_ERROR = 15, 16, 18, 999  # of NVML
_FABRIC_NOT_STARTED, _FABRIC_IN_PROGRESS = 1, 2
_SERIOUS: Final = {
    _LOST: "is not reachable any more (fallen off the bus)",
    _RESET_REQUIRED: "answers nothing before it is reset",
    _UNKNOWN_ERROR: "answers with an unknown error",
}
# NVML_FI_DEV_GET_GPU_RECOVERY_ACTION; the labels of drivers differ, the numbers do not
_ACTIONS: Final = {
    1: ("asks for a reset", "end what uses it, then `nvidia-smi --gpu-reset`"),
    2: ("asks for a reboot of the node", "reboot"),
    3: ("asks that traffic between GPUs be drained", "reset the GPUs of its NVLink domain"),
    5: ("asks for its IMEX domain to be recovered", "see the IMEX service"),
    6: ("asks for a reset of its bus", "reboot"),
    7: ("asks for a reboot of the system", "reboot"),
}
_DRAIN_AND_RESET: Final = 4  # it works on, with less: nobody is kept out of a round for that


class Finding(NamedTuple):
    """What one check has come to."""

    check: str
    level: str  # ok | unknown | warn | fail
    text: str
    remedy: str = ""


class Gpu(msgspec.Struct, frozen=True):
    """One GPU as NVML shows it. None: not told. `error`: NVML's code when it does not even tell its name, 0: none."""

    index: int
    bus: str = ""
    name: str = ""
    error: int = 0
    error_text: str = ""
    action: int | None = None
    remap_failed: bool | None = None
    remap_pending: bool | None = None
    fabric: int | None = None


class Gpus(msgspec.Struct, frozen=True):
    """All GPUs of a node. `error`: why NVML as a whole does not answer, 0: it does, -1: there is no pynvml."""

    gpus: tuple[Gpu, ...] = ()
    driver: str = ""
    error: int = 0
    error_text: str = ""


class Space(msgspec.Struct, frozen=True):
    """A directory's file system. `denied`: it may well be sound, but not for the eyes of this agent's user."""

    path: str
    free: int = 0
    read_only: bool = False
    error: str = ""
    denied: bool = False
    files_left: int | None = None  # None: it does not count them


class Holder(msgspec.Struct, frozen=True, array_like=True):
    """A process that carries a run's name in its environment and has a GPU open."""

    pid: int
    start: int
    round: int
    device: str


def refusal(findings: Iterable[Finding]) -> str:
    """Why the node may be in no round, "" when it may."""
    failed = [finding.text for finding in findings if finding.level == FAIL]
    return printable(f"refused, because {'; '.join(failed)}", _TEXT_MAX) if failed else ""


def lacking(findings: Iterable[Finding]) -> str:
    """What could not be found out, "" when everything could."""
    return printable("; ".join(f"{one.check}: {one.text}" for one in findings if one.level == UNKNOWN), _TEXT_MAX)


def again_s(failures: int, low: float, high: float) -> float:
    """How long to wait before a node that was refused so many times in a row is looked at again."""
    return min(high, low * 2.0 ** min(max(failures - 1, 0), 20))


def of_gpus(seen: Gpus, wanted: int) -> list[Finding]:
    """`wanted`: so many must be there, 0: as many as there are."""
    if seen.error:
        return [_no_answer(seen)]
    found = [finding for gpu in seen.gpus for finding in _of_gpu(gpu)]
    if len(seen.gpus) < wanted:
        text = f"the driver lists {len(seen.gpus)} of {wanted} GPUs"
        found.append(Finding("gpu", FAIL, text, "look for Xid 79 in the kernel's log; preflight.gpus says how many"))
    driver = f", driver {seen.driver}" if seen.driver else ""
    return found or [Finding("gpu", OK, f"{len(seen.gpus)} GPUs without complaint{driver}")]


def _no_answer(seen: Gpus) -> Finding:
    if seen.error == _NO_PYNVML:
        return Finding("gpu", UNKNOWN, "pynvml is not installed", "pip install nvidia-ml-py")
    if seen.error in (_LOST, _RESET_REQUIRED):
        return Finding("gpu", FAIL, f"NVML does not start: a GPU {_SERIOUS[seen.error]}", "reboot")
    if seen.error == _MISMATCH:
        text = "the driver's library is not of the version of its kernel module"
        return Finding("gpu", FAIL, text, "the driver was upgraded under a running system: reload it, or reboot")
    return Finding("gpu", UNKNOWN, f"NVML does not answer ({seen.error_text or seen.error})", "try `nvidia-smi`")


def _of_gpu(gpu: Gpu) -> list[Finding]:
    name = f"GPU {gpu.index}" + (f" ({gpu.bus})" if gpu.bus else "")
    if gpu.error in _SERIOUS:
        return [Finding("gpu", FAIL, f"{name} {_SERIOUS[gpu.error]}", "reset it or reboot; then see the kernel's log")]
    if gpu.error:
        return [Finding("gpu", UNKNOWN, f"{name} does not tell its state ({gpu.error_text or gpu.error})")]
    found = [_of_action(name, gpu.action), _of_remapping(name, gpu), _of_fabric(name, gpu.fabric)]
    return [finding for finding in found if finding is not None]


def _of_action(name: str, action: int | None) -> Finding | None:
    if action is None:
        return Finding("gpu", UNKNOWN, f"{name} does not tell its recovery action", "drivers before R565 do not")
    if action == _DRAIN_AND_RESET:
        return Finding("gpu", WARN, f"{name} works with less, and asks to be drained and reset", "when it suits")
    if not action:
        return None
    says, remedy = _ACTIONS.get(action, (f"asks for recovery action {action}", "see the driver's documentation"))
    return Finding("gpu", FAIL, f"{name} {says}", remedy)


def _of_remapping(name: str, gpu: Gpu) -> Finding | None:
    if gpu.remap_failed:
        return Finding("gpu", FAIL, f"{name} has no spare memory rows left where it needs one", "replace it")
    if gpu.remap_pending:
        return Finding("gpu", WARN, f"{name} will put a spare memory row in place at its next reset", "when it suits")
    return None


def _of_fabric(name: str, state: int | None) -> Finding | None:
    if state == _FABRIC_IN_PROGRESS:
        return Finding("gpu", FAIL, f"{name} is not part of its NVLink fabric yet", "does nvidia-fabricmanager run?")
    if state == _FABRIC_NOT_STARTED:
        return Finding("gpu", WARN, f"{name} has not begun to join its NVLink fabric", "does nvidia-fabricmanager run?")
    return None


def of_space(check: str, space: Space, wanted_mb: int) -> Finding:
    """Whether there is room, and whether it can be written to."""
    if space.denied:
        text = f"{space.path} may not be looked at by this agent's user"
        return Finding(check, UNKNOWN, text, "run the agent as root or as the job's user")
    if space.error:
        return Finding(check, FAIL, f"{space.path}: {space.error}", "mount it, or correct the setting")
    if space.read_only:
        return Finding(
            check,
            FAIL,
            f"{space.path} is mounted read-only",
            "look at that file system; if only the agent sees it so, see ReadWritePaths= in its systemd unit",
        )
    free_mb = space.free // MIB
    if free_mb < wanted_mb:
        text = f"{space.path} has {free_mb} MiB left, less than {wanted_mb}"
        return Finding(check, FAIL, text, "make room there")
    if space.files_left == 0:
        return Finding(check, FAIL, f"{space.path} takes no further file (see `df -i`)", "remove files there")
    return Finding(check, OK, f"{space.path} has {free_mb} MiB left")


def of_clock(utc: float, said: Iterable[tuple[str, float]], limit_s: float) -> Finding:
    """`said`: who wrote a record, and its UTC. One from the future shows that a clock differs; no decision reads these.

    How old a record is nobody knows, so that a clock ahead of the others is seen by the others.
    """
    who, at = max(said, key=lambda one: one[1], default=("", utc))
    if at - utc > limit_s:
        text = f"this clock is at least {at - utc:.0f} s behind that of {who}, or that one is ahead"
        return Finding("clock", WARN, text, "run NTP on both; only reports suffer")
    return Finding("clock", OK, "no record is from the future")


def is_over(round_: int, *, newest: int, left: int, alone: bool) -> bool:
    """Whether a round is certainly finished for a process of it on this node.

    `newest`: the newest round that has formed: those before it are finished. `left`: the last round of the torchrun
    that asks for the next: torchelastic has stopped its workers. `alone`: the process can be of that torchrun only.
    """
    return round_ >= 1 and (round_ < newest or (alone and round_ <= left))
