"""Exports the ledger to a directory while this monitor leads, and says what a store that was deleted has lost.

The store is not the only place that knows the past: the directory is read first. What it has and the store has not is
history that was lost with the store; the line that says so names the command that brings it back.
"""

import asyncio
import logging
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from threading import Event, Thread
from typing import Any, Final, NamedTuple, TypeVar

from rankpulse.core import ledger_lines
from rankpulse.core.keys import Keys
from rankpulse.core.ledger import day_of
from rankpulse.core.ledger_book import LedgerBook
from rankpulse.core.ledger_lines import missing
from rankpulse.core.records import LedgerDay, LedgerEntry, Record
from rankpulse.core.settings import LedgerSettings
from rankpulse.monitor.clock import Clock
from rankpulse.monitor.vitals import Vitals
from rankpulse.store import ledger_files

POLL_S: Final = 2.0
DISK_S: Final = 60.0
CHECK_S: Final = 3600.0  # so often all files are compared with the store, whatever is known of them
T = TypeVar("T")
OK, FAILED = "ok", "failed"
log = logging.getLogger("rankpulse.monitor")


@dataclass
class _Known:
    """What was exported last, and when. `entries`: how many the store had; `files`: what they should hold."""

    at: float = float("-inf")
    looked_at: float = float("-inf")  # at all of the directory
    entries: int = -1
    lost: int = 0
    failure: str = ""
    listing: int = -1  # of the store, as of which the whole directory was looked at
    files: dict[str, dict[str, Record]] = field(default_factory=dict)


class _Done(NamedTuple):
    """What the directory should hold by now; `lost`: how many records the store should hold, None: nobody looked."""

    files: dict[str, dict[str, Record]]
    lost: int | None = None
    words: str = ""
    refused: tuple[str, ...] = ()


class LedgerExport:
    """`leads`: whether this monitor leads, and has seen what the store holds."""

    def __init__(
        self,
        settings: LedgerSettings,
        keys: Keys,
        book: LedgerBook,
        clock: Clock,
        vitals: Vitals,
        *,
        leads: Callable[[], bool],
    ) -> None:
        self._every_s, self._keys, self._book, self._clock = settings.export_every_s, keys, book, clock
        self._folder = os.path.join(settings.export_dir, keys.cluster) if settings.export_dir else ""
        self._vitals, self._leads, self._known = vitals, leads, _Known()
        self._thread: Thread | None = None
        self._answered = Event()

    async def run(self) -> None:
        """For ever; never raises for a directory that cannot serve."""
        while True:
            if self._folder and self._leads() and self._book.origin is not None and self._due():
                await self.once()
            await asyncio.sleep(POLL_S)

    def _due(self) -> bool:
        """An incident that is over is exported at once; the days now and then."""
        old = self._clock.now() - self._known.at >= self._every_s
        return old or (len(self._book.entries) != self._known.entries and not self._known.failure)

    async def once(self) -> None:
        """Read, compare, write: all of it aside, for a ledger is long and a disk may hang."""
        known, book = self._known, self._book.copied()
        known.at = self._clock.now()
        look = book.listings != known.listing or known.lost > 0 or known.at - known.looked_at >= CHECK_S
        try:
            done = await self._aside(partial(self._exchange, book, known.files, look=look))
        except TimeoutError:
            self._failed(f"{self._folder}: does not answer within {DISK_S:g} s")
            return
        except OSError as error:
            self._failed(f"{self._folder}: {error.strerror or error}")
            return
        except Exception as error:  # the monitor has more to do than this
            self._failed(f"a bug in rankpulse, please report it: {error!r:.200}")
            return
        if known.failure:
            log.info("the ledger is exported again, to %s", self._folder)
        known.failure, known.entries, known.listing, known.files = "", len(book.entries), book.listings, done.files
        self._vitals.exports[OK] += 1
        if done.lost is not None:
            known.looked_at = known.at
            self._compare(done)

    def _exchange(self, book: LedgerBook, before: dict[str, dict[str, Record]], *, look: bool) -> "_Done":
        """What the directory held before it was written to is looked at where something may be missing, here or there.

        Then every file is compared, not only those of which the store says something new.
        """
        files = ledger_lines.by_file(book)
        look = look or bool(missing({key: one for held in before.values() for key, one in held.items()}, book))
        os.makedirs(self._folder, mode=0o750, exist_ok=True)
        found = ledger_files.read(self._folder, self._keys) if look else None
        changed = {name: held for name, held in files.items() if look or held != before.get(name)}
        ledger_files.write(self._folder, changed, self._keys)
        if found is None:
            return _Done(files)
        lost = missing(found.records, book)
        words = told(lost, found.records, self._folder, self._keys.cluster) if lost else ""
        return _Done(files, len(lost), words, tuple(found.refused))

    async def _aside(self, work: Callable[[], T]) -> T:
        """In a thread of its own, which is left alone where its disk hangs: nobody waits for it at the end, either.

        Raises TimeoutError; also as long as an earlier one hangs.
        """
        if self._thread is not None and not self._answered.is_set():
            raise TimeoutError
        loop, answer = asyncio.get_running_loop(), asyncio.get_running_loop().create_future()
        answered = self._answered = Event()  # a thread that has answered may live on for a moment

        def run() -> None:
            try:
                done = partial(_answered, answer, work(), None)
            except Exception as error:
                done = partial(_answered, answer, None, error)
            answered.set()
            with suppress(RuntimeError):  # the loop is closed: nobody wants to know any more
                loop.call_soon_threadsafe(done)

        self._thread = Thread(target=run, name="ledger-export", daemon=True)
        self._thread.start()
        async with asyncio.timeout(DISK_S):
            result: T = await answer
        return result

    def _failed(self, why: str) -> None:
        self._vitals.exports[FAILED] += 1
        if why != self._known.failure:
            log.error("the ledger cannot be exported: %s; tried again in %g s", why, self._every_s)
        self._known.failure = why

    def _compare(self, done: "_Done") -> None:
        """Say it when the store has lost what was exported, and when it has it again."""
        for why in done.refused:
            log.warning("a line of the exported ledger is refused: %s", why)
        lost, before = done.lost or 0, self._known.lost
        self._vitals.ledger_missing = self._known.lost = lost
        if lost and lost != before:
            log.error("%s", done.words)
        elif before and not lost:
            log.info("the store's ledger holds again all that was exported to %s", self._folder)


def _answered(answer: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    if not answer.done():
        answer.set_exception(error) if error is not None else answer.set_result(result)


def told(lost: dict[str, Record], exported: dict[str, Record], folder: str, cluster: str) -> str:
    """What a store that was deleted, or went back in time, has lost, and how it comes back."""
    entries = sum(isinstance(record, LedgerEntry) for record in lost.values())
    days = {record.day for record in lost.values() if isinstance(record, LedgerDay)}
    upto = max(map(_upto, exported.values()), default=0.0)
    return (
        f"the store has lost history: {entries} incidents and {len(days)} days of the ledger are in {folder} and not "
        f"in the store: it was deleted or restored. What happened between the last export ({_utc(upto)}) and then is "
        f"lost for good; the rest comes back by: rankpulse ledger import {folder} --cluster {cluster}"
    )


def _upto(record: Record) -> float:
    return max(getattr(record, "closed_at", 0.0), getattr(record, "at", 0.0))


def _utc(at: float) -> str:
    seconds = int(at) % 86400
    return f"{day_of(at)} {seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d} UTC"
