"""Reads the kernel's log: /dev/kmsg, or the journal where that may not be read. Decides nothing.

How far it came is on disk, with the boot it belongs to: a restart of the agent loses nothing and tells nothing twice.
What the ring has lost before it was read is told.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

import msgspec

from rankpulse.agent.folder import Folder
from rankpulse.agent.journal import REFUSED, Journal
from rankpulse.core.kernel_cursor import RECENT_S, RECORD_MAX, Cursor, advance, parse
from rankpulse.core.kernel_prefix import Framed

SOURCE: Final = "kernel_log"  # its name among the agent's capabilities
BATCH: Final = 256  # records; then others have their turn
PAUSE_S: Final = 0.02  # after a full batch: a storm takes a part of one core, and what it overruns is counted
_FILE: Final = "kmsg.cursor"
_CURSOR_MAX: Final = 4096
Take = Callable[[list[tuple[Framed, bool]]], None]  # records, and whether each is fresh


@dataclass(slots=True)
class KernelLog:
    """One per agent. `take` has dealt with the records when it returns; only then the cursor moves."""

    path: str
    boot_id: str
    folder: Folder | None
    take: Take
    able: Callable[[str, str], None]
    device: Callable[[str], int] = lambda path: os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    journal: Journal = field(default_factory=Journal)
    monotonic: Callable[[], float] = time.monotonic
    quiet_s: float = 10.0  # a journal of this boot that is followed and tells nothing for so long is not ours to see
    lost: int = 0  # records that were overwritten before they were read
    cursor: Cursor = field(default_factory=Cursor)
    _first: bool = False  # nobody read this log before

    async def run(self) -> None:
        """Until cancelled. Returns when there is no log to be read, to be tried again later."""
        self.cursor = self._load()
        self._first = not self.cursor.boot_id
        try:
            fd = self.device(self.path)
        except OSError as error:
            await self._from_journal(f"{self.path}: {error.strerror}")
            return
        try:
            self.able(SOURCE, "")
            self._first |= self.cursor.boot_id == self.boot_id and self.cursor.seq < 0  # so far the journal was read
            await self._follow(fd)
        finally:
            os.close(fd)

    async def _follow(self, fd: int) -> None:
        with contextlib.suppress(EOFError):  # the kernel's own never ends
            while True:
                if not self._batch(fd):
                    self._first = False  # what comes now is of now, however far the kernel's stamps have run away
                    await _readable(fd)
                await asyncio.sleep(PAUSE_S)

    def _batch(self, fd: int) -> bool:
        """Hand on what is there. Whether there may be more."""
        found, before = list(self._fresh(fd)), self.cursor
        if not found:
            return False
        self.take([(framed, fresh) for framed, fresh, _cursor in found])
        self.cursor = found[-1][2]
        if self.cursor != before:
            self._save()
        return len(found) == BATCH

    def _fresh(self, fd: int) -> Iterator[tuple[Framed, bool, Cursor]]:
        cursor = self.cursor
        for raw in _records(fd):
            record = parse(raw)
            if record is None:
                continue
            stale = self._first and self.monotonic() - (record.framed.at or 0.0) > RECENT_S
            step = advance(cursor, self.boot_id, record.seq, stale)
            cursor, self.lost = step.cursor, self.lost + step.lost
            if step.lost:
                self.able(SOURCE, f"{step.lost} records were overwritten before they were read")
                self.able(SOURCE, "")
            yield record.framed, step.fresh, cursor

    async def _from_journal(self, why: str) -> None:
        here = self.cursor.boot_id == self.boot_id
        mark = self.cursor.journal if here else ""
        self._first |= here and not mark
        before = self.cursor
        silence = f"{why}; the journal tells nothing (may this user read it?): Xids are heard of through NVML alone"
        quiet = asyncio.get_running_loop().call_later(self.quiet_s, self.able, SOURCE, silence)
        if mark:  # it has told something before, and nothing new may be long in coming
            quiet.cancel()

        def works() -> None:
            quiet.cancel()
            self.able(SOURCE, "")

        try:
            problem = await self.journal.follow(mark, self._entries, works)
        finally:
            quiet.cancel()
        if mark and self.cursor is before and problem == REFUSED:
            self.cursor = Cursor(self.boot_id)
            self._save()
        self.able(SOURCE, f"{why}; {problem}: Xids are heard of through NVML's events alone")

    def _entries(self, entries: list[Framed], mark: str) -> None:
        now = self.monotonic()
        self.take([(one, not (self._first and now - (one.at or now) > RECENT_S)) for one in entries])
        self.cursor = Cursor(self.boot_id, -1, mark)
        self._save()

    def _load(self) -> Cursor:
        """None that can be read counts as none."""
        with contextlib.suppress(OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            if self.folder is not None:
                return msgspec.json.decode(self.folder.read(_FILE, _CURSOR_MAX), type=Cursor)
        return self.cursor

    def _save(self) -> None:
        """A full disk costs that a restart tells twice, so errors pass."""
        if self.folder is not None:
            with contextlib.suppress(OSError):
                self.folder.write(_FILE, msgspec.json.encode(self.cursor))


async def _readable(fd: int) -> None:
    """The loop is told of the descriptor only while somebody waits: a storm must not wake it again and again."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(fd, lambda: None if ready.done() else ready.set_result(None))
    try:
        await ready
    finally:
        loop.remove_reader(fd)


def _records(fd: int) -> Iterator[bytes]:
    """A batch of what is there. The device gives one record with each read; what stands in for it may give more."""
    for number in range(BATCH):
        try:
            raw = os.read(fd, RECORD_MAX)
        except BlockingIOError:
            return
        except BrokenPipeError:  # the oldest were overwritten: the next read goes on behind the gap
            continue
        if not raw and not number:
            raise EOFError
        yield from raw.rstrip(b"\n").replace(b"\n ", b"\0").split(b"\n")
