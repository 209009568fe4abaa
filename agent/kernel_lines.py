"""What the kernel of this machine has said of late. Only the kernel: whoever may write to its log writes as another."""

import contextlib
import errno
import os
import re
from typing import Final, NamedTuple

from rankpulse.core import signs
from rankpulse.core.words import printable

PATH: Final = "/dev/kmsg"
WINDOW_S: Final = 600.0
LINES_MAX: Final = 48
LINE_MAX: Final = 240
_RECORDS_MAX: Final = 200_000
_RECORD_MAX: Final = 8192
_HEAD: Final = re.compile(rb"(\d+),\d+,(\d+),[^;]*;([^\n]*)")
_PASSED: Final = (errno.EPIPE,)  # written over while we read: the next one is there


class Lines(NamedTuple):
    """`readable` False: the log is not ours to see; then there are none."""

    lines: tuple[str, ...] = ()
    readable: bool = False


def read(now: float, path: str = PATH) -> Lines:
    """The lines of the last minutes, oldest first, as `[seconds since boot] text`. `now`: seconds since boot.

    Lines that are a sign of something are kept before those that are none.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return Lines()
    try:
        return Lines(_chosen(_records(fd, now - WINDOW_S)), True)
    except OSError:
        return Lines()
    finally:
        os.close(fd)


def _records(fd: int, since: float) -> list[str]:
    found = []
    for _ in range(_RECORDS_MAX):
        try:
            raw = os.read(fd, _RECORD_MAX)
        except BlockingIOError:
            break
        except OSError as error:
            if error.errno in _PASSED:
                continue
            raise
        if not raw:
            break
        if line := line_of(raw, since):
            found.append(line)
    return found


def line_of(record: bytes, since: float) -> str:
    """One record as a line; "" where it is old, or not the kernel's own (a facility other than 0)."""
    head = _HEAD.match(record)
    if head is None:
        return ""
    at = int(head.group(2)[:18]) / 1e6
    if int(head.group(1)[:9]) >> 3 or at < since:
        return ""
    text = head.group(3).decode("utf-8", "replace")
    with contextlib.suppress(ValueError):
        text = re.sub(r"\\x([0-9a-f]{2})", lambda m: chr(int(m.group(1), 16)), text)
    return printable(f"[{at:.6f}] {text}", LINE_MAX)


def _chosen(lines: list[str]) -> tuple[str, ...]:
    """At most so many: those that tell something, and the newest."""
    telling = {place for place, line in enumerate(lines) if signs.sign(line)}
    order = sorted(range(len(lines)), key=lambda place: (place in telling, place), reverse=True)
    return tuple(lines[place] for place in sorted(order[:LINES_MAX]))
