"""Observations on their way to the store: on disk first, removed when the store has them. Bounded.

An observation gets its number from the agent's incarnation. While that is not known (the store was away when the
agent started) it lies in the spool under a provisional name; whichever agent knows its incarnation first numbers it.
"""

import asyncio
import contextlib
import re
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from dataclasses import replace as changed
from typing import Final

import msgspec

from rankpulse.agent.facts import Fact
from rankpulse.agent.folder import Folder
from rankpulse.core import codec, records
from rankpulse.core.records import Observation

_NUMBERED = re.compile(r"\d{8,}-\d{10,}\.json")
_PROVISIONAL = re.compile(r"p-\d{20}-\d{10}\.json")
_INC: Final = "inc"
MAX_INC: Final = 2**53  # more starts than any agent will see: a higher number is an error or a forgery


@dataclass(frozen=True, slots=True)
class Entry:
    """One observation that waits. `file`: its name in the spool, "" when it is in memory only."""

    obs: Observation
    file: str = ""


@dataclass(slots=True)
class Outbox:
    """`folder` None means: no disk, memory only. `limit`: at most so many wait; the oldest go first."""

    node: str
    folder: Folder | None
    limit: int
    utc: Callable[[], float]
    problem: Callable[[str], None] = lambda _reason: None  # told why the disk does not serve, "" when it does again
    warn: Callable[[str], None] = lambda _text: None  # told what a person may want to look at
    counts: Counter[str] = field(default_factory=Counter)
    dropped: int = 0
    inc: int = 0
    _seq: int = 0
    _provisional: int = 0
    _undeclared: int = 0  # dropped and not yet told to the monitor
    _waiting: deque[Entry] = field(default_factory=deque)
    _arrived: asyncio.Event = field(default_factory=asyncio.Event)

    def load(self) -> None:
        """Take up what earlier agents could not send."""
        for name in sorted(self._names()):
            obs = self._read(name)
            if obs is None:
                continue
            if obs.node != self.node or _PROVISIONAL.fullmatch(name):
                obs = msgspec.structs.replace(obs, node=self.node, inc=0, seq=0)
            self._waiting.append(Entry(obs, name))
        self._bound()
        if self._waiting:
            self._arrived.set()

    def add(self, fact: Fact) -> None:
        """Take a fact; it is on disk when this returns, if the disk serves."""
        self.counts[fact.kind] += 1
        inc, seq = (self.inc, self._next_seq()) if self.inc else (0, 0)
        self._waiting.append(self._spool(fact.observe(self.node, inc, seq, self.utc())))
        self._bound()
        self._arrived.set()

    def number(self, inc: int) -> None:
        """The incarnation is known: what waits without a number gets one, and what comes is numbered from 1."""
        self.inc, self._seq = inc, 0
        for _ in range(len(self._waiting)):
            entry = self._waiting.popleft()
            if entry.obs.inc == 0:
                numbered = self._spool(msgspec.structs.replace(entry.obs, inc=inc, seq=self._next_seq()))
                self._forget(entry)
                entry = numbered
            self._waiting.append(entry)

    def last_inc(self) -> int:
        """The highest incarnation this spool has known: never reused, also when the store has been emptied."""
        if self.folder is None:
            return 0
        numbers = [int(name.split("-")[0]) for name in self._names() if _NUMBERED.fullmatch(name)]
        with contextlib.suppress(OSError, ValueError):
            numbers.append(int(self.folder.read(_INC, 20)))
        return max((number for number in numbers if number <= MAX_INC), default=0)

    def remember_inc(self, inc: int) -> None:
        if self.folder:
            with contextlib.suppress(OSError):
                self.folder.write(_INC, str(inc).encode())

    def move(self, folder: Folder | None) -> None:
        """The directory is another from now on: what waits is written there, too."""
        self.folder = folder
        for _ in range(len(self._waiting)):
            self._waiting.append(self._spool(self._waiting.popleft().obs))
        if self.inc:
            self.remember_inc(self.inc)

    def head(self) -> Entry | None:
        """The oldest that waits and has a number."""
        return self._waiting[0] if self._waiting and self._waiting[0].obs.inc else None

    def done(self, entry: Entry) -> None:
        """The store has it. When nothing waits any more, what had to be dropped is declared."""
        if self._waiting and self._waiting[0] is entry:
            self._waiting.popleft()
        self._forget(entry)
        if not self._waiting and self._undeclared:
            count, self._undeclared = self._undeclared, 0
            self.add(Fact(records.SPOOL_DROPPED, detail={"dropped": count}))

    async def arrived(self) -> None:
        """Wait until something may be waiting."""
        await self._arrived.wait()
        self._arrived.clear()

    def __len__(self) -> int:
        return len(self._waiting)

    def _next_seq(self) -> int:
        self._seq += 1
        return self._seq

    def _bound(self) -> None:
        while len(self._waiting) > self.limit:
            self._forget(self._waiting.popleft())
            self.dropped += 1
            self._undeclared += 1

    def _spool(self, obs: Observation) -> Entry:
        entry = Entry(obs)
        if self.folder is None:
            return entry
        name = f"{obs.inc:08d}-{obs.seq:010d}.json" if obs.inc else self._provisional_name()
        try:
            self.folder.write(name, codec.encode(obs))
        except OSError as error:
            self.problem(f"observations are kept in memory only: {error.strerror} ({self.folder.path})")
            return entry
        self.problem("")
        return changed(entry, file=name)

    def _provisional_name(self) -> str:
        self._provisional += 1
        return f"p-{int(self.utc() * 1e9):020d}-{self._provisional:010d}.json"

    def _forget(self, entry: Entry) -> None:
        if entry.file and self.folder:
            self.folder.remove(entry.file)

    def _names(self) -> list[str]:
        if self.folder is None:
            return []
        try:
            names = self.folder.names()
        except OSError:
            return []
        return [name for name in names if _NUMBERED.fullmatch(name) or _PROVISIONAL.fullmatch(name)]

    def _read(self, name: str) -> Observation | None:
        """The observation in a file; a file that holds none is set aside, for a person to look at."""
        assert self.folder is not None
        try:
            obs = codec.decode(Observation, self.folder.read(name, codec.MAX_BYTES + 1))
            if not 0 <= obs.inc <= MAX_INC or obs.seq < 0 or (obs.inc == 0) != bool(_PROVISIONAL.fullmatch(name)):
                raise codec.Refused("the number in the file is not the one in its name")
        except (OSError, codec.Refused) as error:
            self.warn(f"{self.folder.path}/{name} holds no observation and is set aside as {name}.bad: {error}")
            with contextlib.suppress(OSError):
                self.folder.rename(name, name + ".bad")
            return None
        return obs
