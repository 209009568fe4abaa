"""What this agent has seen of the rendezvous in the store: records with the revision each was last seen at.

The streams (rdzv/, gates/, cordons/ and orders/) are one picture here, folded into `core.rendezvous.View`. What we
wrote or read ourselves is folded at once; a stream that is behind it cannot take it back.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from rankpulse.agent.clock import Clock
from rankpulse.agent.log import Log
from rankpulse.core import codec, records
from rankpulse.core.keys import Keys
from rankpulse.core.rendezvous import View
from rankpulse.store.api import Changes, Listing, Lost, Progress, Store, StoreError

_RETRY_S: Final = 5.0
_GONE_MAX: Final = 10_000


class _Entry(NamedTuple):
    """`record` None: deleted at this revision, or, when `there`, bytes that cannot be read."""

    revision: int
    record: records.Record | None
    there: bool


@dataclass(slots=True)
class _Stream:
    listed: bool = False
    lost: bool = True
    revision: int = 0  # of the last sight


def _nothing(*_: Any) -> None:
    return None


@dataclass(slots=True)
class Mirror:
    """`changed` is called after each fold, `ordered` with each order that came."""

    keys: Keys
    clock: Clock
    log: Log
    changed: Callable[[], None] = _nothing
    ordered: Callable[[records.Order], None] = _nothing
    view: View = field(init=False)
    _entries: dict[str, _Entry] = field(default_factory=dict)
    _streams: dict[str, _Stream] = field(init=False)
    _graves: deque[str] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self.view = View(self.keys)
        prefixes = (self.keys.rdzv(), self.keys.gates(), self.keys.cordons(), self.keys.orders())
        self._streams = {prefix: _Stream() for prefix in prefixes}

    @property
    def ready(self) -> bool:
        """Everything has been seen once."""
        return all(stream.listed for stream in self._streams.values())

    @property
    def sighted(self) -> bool:
        """Everything is seen now, as far as can be told."""
        return self.ready and not any(stream.lost for stream in self._streams.values())

    def get(self, key: str) -> records.Record | None:
        """The record under `key`, None when there is none that can be read."""
        entry = self._entries.get(key)
        return entry.record if entry else None

    def all(self, prefix: str) -> list[records.Record]:
        return [e.record for key, e in self._entries.items() if e.record is not None and key.startswith(prefix)]

    # -- streams ------------------------------------------------------------------------------------------------
    async def follow(self, store: Store) -> None:
        """Until cancelled, whatever the store does."""
        async with asyncio.TaskGroup() as tasks:
            for prefix in self._streams:
                tasks.create_task(self._follow(store, prefix))

    async def _follow(self, store: Store, prefix: str) -> None:
        while True:
            try:
                async for sight in store.follow(prefix):
                    self.see(prefix, sight)
            except StoreError as error:
                self._streams[prefix].lost = True
                self.log.change(prefix, "warning", f"{self._name(prefix)} cannot be followed: {error}")
            await asyncio.sleep(_RETRY_S)

    def see(self, prefix: str, sight: object) -> None:
        """Fold what a stream delivered."""
        stream = self._streams[prefix]
        was_lost, stream.lost = stream.lost, isinstance(sight, Lost)
        if stream.lost:
            self.log.change(prefix, "warning", f"{self._name(prefix)} cannot be followed at present")
        else:
            self.log.change(prefix, "info", f"{self._name(prefix)} are followed")
        if isinstance(sight, Listing):
            stream.listed = True
            self._listing(prefix, sight, anew=sight.revision < stream.revision)
        elif isinstance(sight, Changes):
            for change in sight.changes:
                self.fold(change.key, change.value, change.revision)
        stream.revision = stream.revision if isinstance(sight, Lost) else getattr(sight, "revision", 0)
        if was_lost or not isinstance(sight, Progress):
            self.changed()

    def _name(self, prefix: str) -> str:
        return prefix.removeprefix(self.keys.prefix).rstrip("/").replace("rdzv", "rendezvous records")

    # -- folding ------------------------------------------------------------------------------------------------
    def _listing(self, prefix: str, listing: Listing, *, anew: bool) -> None:
        """Everything under the prefix is this, but for what we know to be newer; `anew`: the store was emptied, and
        counts from the beginning again."""
        newer = float("inf") if anew else listing.revision
        self._entries = {
            key: entry for key, entry in self._entries.items() if not key.startswith(prefix) or entry.revision > newer
        }
        there = {item.key for item in listing.items if self.keys.parse(item.key)} - self._entries.keys()
        known = {key for key, entry in self._entries.items() if entry.there}
        self.view.relisted(frozenset(known | there), self.clock.monotonic())
        for item in listing.items:
            self.fold(item.key, item.value, item.modified)

    def fold(self, key: str, value: bytes | None, revision: int) -> None:
        """One key as of `revision` (value None: deleted); what is older than what is known of it says nothing."""
        parsed = self.keys.parse(key)
        known = self._entries.get(key)
        if parsed is None or (known and revision <= known.revision):
            return
        if value is None:
            self._bury(key, revision)
            self.view.gone(key, self.clock.monotonic())
            return
        try:
            record = codec.decode_at(parsed, value)
        except codec.Refused as error:
            self._entries[key] = _Entry(revision, None, True)
            self.view.garbled(key, str(error), revision)
            self.log.change(key, "warning", f"{key} cannot be read and is not obeyed: {error}")
            return
        self.know(key, record, revision)

    def know(self, key: str, record: records.Record, revision: int) -> None:
        """The record under `key` as of `revision`, also when we wrote it ourselves."""
        known = self._entries.get(key)
        if known and revision <= known.revision:
            return
        self._entries[key] = _Entry(revision, record, True)
        if not isinstance(record, records.Order):
            self.view.put(key, record, revision, self.clock.monotonic())
            return
        if record.kind == "restart":
            self.view.put(key, record, revision, self.clock.monotonic())
        self.ordered(record)

    def _bury(self, key: str, revision: int) -> None:
        """Deleted keys are remembered for a while, so that a late word of an earlier life is not believed."""
        self._entries[key] = _Entry(revision, None, False)
        self._graves.append(key)
        if len(self._graves) > _GONE_MAX:
            oldest = self._graves.popleft()
            if oldest in self._entries and not self._entries[oldest].there:
                del self._entries[oldest]

    async def look(self, store: Store, keys: Iterable[str]) -> None:
        """Read these keys anew: a write of ours was refused, or nobody can tell what came of it."""
        for key in keys:
            listing = await store.list(key)
            item = next((item for item in listing.items if item.key == key), None)
            if item:
                self.fold(key, item.value, item.modified)
            else:
                self.fold(key, None, listing.revision)
        self.changed()
