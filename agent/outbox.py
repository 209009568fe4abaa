"""Observations on their way to the store: on disk first, removed when the store has them. Bounded.

An observation gets its number from the agent's incarnation. While that is not known (the store was away when the
agent started) it lies in the spool under a provisional name; whichever agent knows its incarnation first numbers it.
"""

import asyncio
import contextlib
import os
import re
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from dataclasses import replace as changed
from pathlib import Path
from typing import Final

import msgspec

from rankpulse.agent.facts import Fact
from rankpulse.agent.ledger import replace
from rankpulse.core import codec, records
from rankpulse.core.records import Observation

_NUMBERED = re.compile(r"\d{8,}-\d{10,}\.json")
_PROVISIONAL = re.compile(r"p-\d{20}-\d{10}\.json")
_INC: Final = "inc"


@dataclass(frozen=True, slots=True)
class Entry:
    """One observation that waits. `file`: its name in the spool, "" when it is in memory only."""

    obs: Observation
    file: str = ""


@dataclass(slots=True)
class Outbox:
    """`directory` "" means: no disk, memory only. `limit`: at most so many wait; the oldest go first."""

    node: str
    directory: str
    limit: int
    utc: Callable[[], float]
    problem: Callable[[str], None] = lambda _reason: None  # told why the disk does not serve, "" when it does again
    counts: Counter[str] = field(default_factory=Counter)
    dropped: int = 0
    bad_files: int = 0
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
        numbers = [int(name.split("-")[0]) for name in self._names() if _NUMBERED.fullmatch(name)]
        with contextlib.suppress(OSError, ValueError), open(os.path.join(self.directory, _INC)) as file:
            numbers.append(int(file.read(20)))
        return max(numbers, default=0) if self.directory else 0

    def remember_inc(self, inc: int) -> None:
        if self.directory:
            with contextlib.suppress(OSError):
                replace(os.path.join(self.directory, _INC), str(inc).encode())

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
        if not self.directory:
            return entry
        name = f"{obs.inc:08d}-{obs.seq:010d}.json" if obs.inc else self._provisional_name()
        try:
            replace(os.path.join(self.directory, name), codec.encode(obs))
        except OSError as error:
            self.problem(f"observations are kept in memory only: {error.strerror} ({self.directory})")
            return entry
        self.problem("")
        return changed(entry, file=name)

    def _provisional_name(self) -> str:
        self._provisional += 1
        return f"p-{int(self.utc() * 1e9):020d}-{self._provisional:010d}.json"

    def _forget(self, entry: Entry) -> None:
        if entry.file:
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(self.directory, entry.file))

    def _names(self) -> list[str]:
        if not self.directory:
            return []
        try:
            names = os.listdir(self.directory)
        except OSError:
            return []
        return [name for name in names if _NUMBERED.fullmatch(name) or _PROVISIONAL.fullmatch(name)]

    def _read(self, name: str) -> Observation | None:
        """The observation in a file; a file that holds none is set aside, for a person to look at."""
        path = os.path.join(self.directory, name)
        try:
            with open(path, "rb") as file:
                obs = codec.decode(Observation, file.read(codec.MAX_BYTES + 1))
            if obs.inc < 0 or obs.seq < 0 or (obs.inc == 0) != bool(_PROVISIONAL.fullmatch(name)):
                raise codec.Refused("the number in the file is not the one in its name")
        except (OSError, codec.Refused):
            self.bad_files += 1
            with contextlib.suppress(OSError):
                Path(path).replace(path + ".bad")
            return None
        return obs
