"""The worker processes of a rank's data loader: found among its children, looked at twice. Nothing is asked of them."""

import os
from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from rankpulse.core.snapshot import Loaders

WORKER: Final = "pt_data_worker"  # how torch names the main thread of one; older torch does not
MOVED_BYTES: Final = 16 * 1024  # less is how processes talk to each other
_WORST: Final = "DTtZXRSI"
_CMDLINE_MAX: Final = 4096


class Child(NamedTuple):
    """`moved`: bytes read and written so far, None: not ours to see."""

    pid: int
    start: int
    name: str
    state: str
    ticks: int
    moved: int | None


def of_parents(parents: Collection[int]) -> dict[int, list[Child]]:
    """The loader workers of each of these processes. Reads the state of every process of the machine once."""
    found: dict[int, list[Child]] = defaultdict(list)
    wanted = set(parents)
    for name in os.listdir("/proc"):
        if name.isdigit() and (seen := _seen(int(name))) and seen[0] in wanted:
            found[seen[0]].append(seen[1])
    return {parent: _workers(parent, children) for parent, children in found.items()}


def again(children: Iterable[Child]) -> list[Child]:
    """The same ones, as they are now; one that is gone by now as state X."""
    result = []
    for child in children:
        seen = _seen(child.pid)
        result.append(_weighed(seen[1]) if seen and seen[1].start == child.start else child._replace(state="X"))
    return result


def summary(before: list[Child], after: list[Child], busy_ticks: float) -> Loaders | None:
    """What both looks say of one rank's; None: it has none. `busy_ticks`: more CPU than that is work."""
    if not after:
        return None
    living = [(old, new) for old, new in zip(before, after, strict=True) if new.state not in ("Z", "X")]
    busy = any(new.ticks - old.ticks > busy_ticks or _moved(old, new) for old, new in living) if living else None
    state = min((new.state for new in after), key=lambda s: _WORST.find(s) if s in _WORST else len(_WORST))
    return Loaders(len(living), len(after) - len(living), busy, state)


def bytes_moved(pid: int) -> int | None:
    """What it has read and written so far, to whatever; None where that is not ours to see."""
    try:
        with open(f"/proc/{pid}/io", encoding="ascii", errors="replace") as file:
            rows = dict(line.split(": ", 1) for line in file.read(4096).splitlines() if ": " in line)
        return int(rows["rchar"]) + int(rows["wchar"])
    except (OSError, KeyError, ValueError):
        return None


def _moved(old: Child, new: Child) -> bool:
    return old.moved is not None and new.moved is not None and new.moved - old.moved > MOVED_BYTES


def _seen(pid: int) -> tuple[int, Child] | None:
    """Its parent, and what it is."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            head, _, tail = file.read(4096).rpartition(")")
        fields = tail.split()
        name = head.partition("(")[2]
        return int(fields[1]), Child(pid, int(fields[19]), name, fields[0], int(fields[11]) + int(fields[12]), None)
    except (OSError, ValueError, IndexError):
        return None


def _weighed(child: Child) -> Child:
    return child._replace(moved=bytes_moved(child.pid))


def _workers(parent: int, children: list[Child]) -> list[Child]:
    """Those that torch has named; where none is, those that run the parent's own program."""
    named = [child for child in children if child.name == WORKER]
    return named or [child for child in children if _forked(parent, child)]


def _forked(parent: int, child: Child) -> bool:
    own, theirs = _cmdline(parent), _cmdline(child.pid)
    if child.state == "Z":
        return child.name in (_name(parent), "python")
    return bool(theirs) and (theirs == own or b"--multiprocessing-fork" in theirs or b"spawn_main(" in theirs)


def _name(pid: int) -> str:
    seen = _seen(pid)
    return seen[1].name if seen else ""


def _cmdline(pid: int) -> bytes:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read(_CMDLINE_MAX)
    except OSError:
        return b""
