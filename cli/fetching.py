"""Fetches full dumps from agents, piece by piece, past the store: what is there already is not asked for again.

Each node in its own turn of a few at once, one question at a time: an agent that is in trouble is not pressed. A dump
that is under way lies beside its place as `.part`, and the next fetch goes on where that ends.
"""

import asyncio
import gzip
import os
import re
import secrets
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from rankpulse.core import look_evidence as wire
from rankpulse.core.addresses import BadAddress
from rankpulse.core.codec import Refused
from rankpulse.core.records import DumpRow, NodeState
from rankpulse.core.words import printable
from rankpulse.monitor import look
from rankpulse.monitor.clock import Clock
from rankpulse.monitor.names import Names, Unresolved
from rankpulse.store.secret import Tokens

AT_ONCE: Final = 16  # nodes
ASK_S: Final = 5.0  # of one question
TRIES: Final = 3
PAUSE_S: Final = 0.3  # before the second try, twice as long before each further one
WHOLE_MAX: Final = 64 * 1024 * 1024  # of one dump, unpacked: what `rankpulse diagnose` reads
_SAFE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,150}")


class Outcome(NamedTuple):
    """`why` "": it is there."""

    dump: DumpRow
    path: str
    why: str = ""


class Unreached(Exception):
    """Nothing more will come of this node; the text says why."""


class Fetcher:
    """`out`: a directory per node below it. `done` hears of bytes as they come."""

    def __init__(
        self, out: Path, tokens: Tokens, *, boot_id: str, clock: Clock, until: float, done: Callable[[int], None]
    ) -> None:
        self._out, self._tokens, self._boot_id, self._clock = out, tokens, boot_id, clock
        self._until, self._done = until, done
        self._names = Names(clock)
        self._gate = asyncio.Semaphore(AT_ONCE)

    async def node(self, name: str, state: NodeState | None, dumps: Sequence[DumpRow]) -> list[Outcome]:
        """All dumps of one node. Raises OSError for trouble on this machine, nothing for what happens out there."""
        async with self._gate:
            found: list[Outcome] = []
            lost = "" if state is not None else "it is not in the store any more: nobody knows its address"
            for dump in dumps:
                if not lost or self._path(dump).exists():
                    try:
                        found.append(await self._dump(name, state, dump))
                        continue
                    except Unreached as error:
                        lost = str(error)
                self._done(dump.bytes)
                found.append(Outcome(dump, "", lost))
            return found

    def _path(self, dump: DumpRow) -> Path:
        return self._out / dump.node / dump.name.removesuffix(".gz")

    async def _dump(self, node: str, state: NodeState | None, dump: DumpRow) -> Outcome:
        if not _SAFE.fullmatch(dump.name):
            return Outcome(dump, "", "its name is none that an agent gives")
        path = self._path(dump)
        if path.exists():
            self._done(dump.bytes)
            return Outcome(dump, str(path))
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = path.with_name(path.name + ".part")
        try:
            await self._whole(node, state or _nowhere(node), dump, part)
            _settle(part, path)
        except Refused as refused:
            return Outcome(dump, "", str(refused))
        return Outcome(dump, str(path))

    async def _whole(self, node: str, state: NodeState, dump: DumpRow, part: Path) -> None:
        """Until all of it lies in `part`. Raises `Refused` and `Unreached`."""
        offset = part.stat().st_size if part.exists() else 0
        self._done(min(offset, dump.bytes))
        while True:
            try:
                chunk = await self._piece(state, wire.Fetch(name=dump.name, offset=offset))
            except Refused:
                if not offset:
                    raise
                offset = 0  # perhaps another dump by that name: from the start
                continue
            if offset < chunk.size and not chunk.data:
                raise Refused("its agent sends nothing more of it")
            _append(part, offset, chunk.data)
            offset += len(chunk.data)
            self._done(len(chunk.data))
            if offset >= chunk.size:
                return

    async def _piece(self, state: NodeState, about: wire.Fetch) -> wire.Chunk:
        for number in range(TRIES):
            try:
                return await self._asked(state, about)
            except Unreached:
                if number == TRIES - 1:
                    raise
            await asyncio.sleep(PAUSE_S * 2**number)
        raise AssertionError

    async def _asked(self, state: NodeState, about: wire.Fetch) -> wire.Chunk:
        left_s = self._until - self._clock.now()
        if left_s <= 0:
            raise Unreached("the time for it is over: the same command goes on where this ended")
        nonce, token, time_s = secrets.token_hex(16), self._tokens.first(), min(ASK_S, left_s)
        line, outcome = wire.ask_dump(state.node, nonce, token, about), look.Outcome("", "no address")
        try:
            for place in await self._names.places(state.probe, state.boot_id, self._boot_id, time_s):
                outcome = await look.look(place, line, time_s, self._clock.now, most=wire.LINE_MAX)
                if outcome.answer == look.HEARD:
                    return wire.hear_dump(outcome.line, nonce, token, about)
        except (BadAddress, Unresolved) as error:
            raise Unreached(str(error)) from None
        raise Unreached(outcome.detail)


def _nowhere(node: str) -> NodeState:
    return NodeState(node=node, inc=0, at=0.0, host="", agent_version="", interval_s=1.0)


def _private(path: str, flags: int) -> int:
    """Dumps hold stacks and some of the environment: theirs who fetched them, as on the node."""
    return os.open(path, flags, 0o600)


def _append(part: Path, offset: int, data: bytes) -> None:
    with open(part, "ab" if offset else "wb", opener=_private) as file:
        file.write(data)


def _settle(part: Path, path: Path) -> None:
    """What was fetched, unpacked, at its place: whole or not at all. Raises `Refused` for what cannot be unpacked."""
    data = part.read_bytes()
    if data[:2] == b"\x1f\x8b":
        try:
            data = _unpacked(data)
        except (OSError, EOFError, zlib.error) as error:
            part.unlink()
            raise Refused(f"what came cannot be unpacked: {printable(error, 100)}") from None
    fresh = path.with_name(path.name + ".new")
    with open(fresh, "wb", opener=_private) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    part.unlink()


def _unpacked(data: bytes) -> bytes:
    import io

    with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
        whole = file.read(WHOLE_MAX + 1)
    if len(whole) > WHOLE_MAX:
        raise OSError(f"more than {WHOLE_MAX} bytes")
    return whole
