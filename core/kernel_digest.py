"""A whole log of the kernel, digested: faults with counts, however many lines they have.

A storm prints the same fault a hundred thousand times. Of each burst the first lines are read in full; after them a
line costs one pattern and a look into a table, as long as it is the same fault and soon enough after the last.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, NamedTuple

from rankpulse.core import kernel_log
from rankpulse.core.fault_book import Book
from rankpulse.core.faults import Fault, Seen
from rankpulse.core.kernel_prefix import UP, USER, strip
from rankpulse.core.kernel_reading import NONE

IN_FULL: Final = 64  # lines of a burst that are read in full
TABLE_MAX: Final = 4096
_BODY: Final = "NVRM: Xid ("
ASKS: Final = " 154"
# what stands before, and ends in a time: an uptime, a record of /dev/kmsg
_UPTIME: Final = re.compile(r"([^;\[]{0,96})\[ {0,12}(\d{1,12}\.\d{1,9})\] ", re.ASCII)
_RECORD: Final = re.compile(r"[0-7],\d{1,20},(\d{1,18}),[^;\s]{0,64};", re.ASCII)


class Known(NamedTuple):
    fault: Fault
    asked: int | None  # the action that such a line asks for


@dataclass(slots=True)
class Digest:
    book: Book = field(default_factory=Book)
    lines: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    injected: int = 0
    quoted: int = 0  # lines with an XID in them that are not the kernel's
    short_cut: bool = True  # off in tests: it must make no difference
    _running: dict[str, Known] = field(default_factory=dict)  # what the kernel says -> what is known of it

    def feed(self, texts: Iterable[str]) -> None:
        """All lines of a log. May be called again with what follows."""
        for line in kernel_log.lines(self._others(texts) if self.short_cut else self._all(texts)):
            self._take(line)

    def _all(self, texts: Iterable[str]) -> Iterator[str]:
        for text in texts:
            self.lines += 1
            yield text

    def _others(self, texts: Iterable[str]) -> Iterator[str]:
        """The lines that are not one more of a storm; those are counted here."""
        known, same, others = self._running.get, 0, 0
        before, clock, at = "", "?", None  # lines of the same second may have the same stamp
        for text in texts:
            start = text.find(_BODY)
            if (
                start >= 0
                and (end := text.find(",", start)) > 0
                and (one := known(text[start:end]) or known(text[start:]))
            ):
                if (lead := text[:start]) != before:
                    before, (clock, at) = lead, _when(lead)
                if one.fault.more(at, clock, one.asked):
                    same += 1
                    continue
            others += 1
            yield text
        self.lines += same + others
        self.kinds["xid"] += same

    def _take(self, line: kernel_log.Line) -> None:
        reading, framed = line.reading, line.framed
        if reading.kind == NONE:
            self.quoted += _BODY in line.text
            return
        self.kinds[reading.kind] += 1
        self.injected += reading.injected
        boots = self.book.boots
        fault = self.book.seen(Seen(reading, framed.at, framed.clock, text=framed.text))
        if boots != self.book.boots:
            self._running.clear()
        if fault is None or fault.in_burst < IN_FULL or reading.xid is None or reading.injected:
            return
        same = _same(line.text)
        if same and len(self._running) < TABLE_MAX:
            self._running[same] = Known(fault, (reading.recovery_action or {}).get("to"))


def _same(text: str) -> str:
    """What says the same in every line of a storm: up to the number, but all of a 154, for it may ask for others."""
    start = text.find(_BODY)
    end = text.find(",", start) if start >= 0 else -1
    if end < 0:
        return ""
    return text[start:] if text.startswith(ASKS, end - len(ASKS)) else text[start:end]


def _when(lead: str) -> tuple[str, float | None]:
    """Clock and time by what stands before a line, as `kernel_prefix` reads it. "?": it has to be read in full."""
    if lead.endswith("] "):
        return _up(lead)
    if lead.endswith(";"):
        record = _RECORD.fullmatch(lead)
        return (UP, int(record[1]) / 1e6) if record else ("?", None)
    if lead[10:11] != "T":
        return _known(lead)
    second, fraction = _cut(lead)
    clock, at = _known(second)
    return clock, at + fraction if at is not None else None


def _up(lead: str) -> tuple[str, float | None]:
    timed = _UPTIME.fullmatch(lead)
    if timed is None:
        return _known(lead)
    before = timed[1]
    if before and _known(_cut(before)[0] + "[0.5] ") != (UP, 0.5):
        return "?", None
    return UP, float(timed[2])


def _cut(lead: str) -> tuple[str, float]:
    """An ISO stamp without its microseconds, and these: then it is the same for a second."""
    digits = lead[20:26]
    if lead[10:11] == "T" and lead[19:20] in (".", ",") and digits.isdecimal() and not lead[26:27].isdecimal():
        return lead[:19] + lead[26:], int(digits) / 1e6
    return lead, 0.0


@lru_cache(maxsize=TABLE_MAX)
def _known(lead: str) -> tuple[str, float | None]:
    """ "?" where this is not what the kernel and its loggers put before a line."""
    framed = strip(lead + _BODY)
    if framed.text != _BODY or framed.foreign or framed.origin == USER:
        return "?", None
    return framed.clock, framed.at
