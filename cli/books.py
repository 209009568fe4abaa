"""What the store holds, read once for a command."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TypeVar

from rankpulse.core import codec
from rankpulse.core.keys import Keys
from rankpulse.core.records import Incident, Record
from rankpulse.core.settings import Settings
from rankpulse.store.api import Store, StoreError

T = TypeVar("T", bound=Record)


@dataclass(frozen=True, slots=True)
class Books:
    """Every readable record of a cluster by key, and the keys of those that could not be read, with the reason."""

    records: dict[str, Record]
    refused: dict[str, str]
    revisions: dict[str, int] = field(default_factory=dict)  # by key: what was written later has a higher one

    def of(self, kind: type[T]) -> list[T]:
        return [record for record in self.records.values() if isinstance(record, kind)]

    def first(self, kind: type[T]) -> T | None:
        return next(iter(self.of(kind)), None)

    def incidents(self) -> list[Incident]:
        """In order of opening."""
        return sorted(self.of(Incident), key=lambda incident: (incident.opened_at, incident.id))


@asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[Store]:
    """A store for the length of a command."""
    from rankpulse.store.etcd import open_store

    store = await open_store(settings.store)
    try:
        yield store
    finally:
        with suppress(StoreError):
            await store.close()


async def one(store: Store, key: str, kind: type[T]) -> T | None:
    """The record under exactly this key; None: there is none that can be read. Raises `StoreError`."""
    item = await store.get(key)
    with suppress(codec.Refused):
        return codec.decode(kind, item.value) if item is not None else None
    return None


async def read(store: Store, keys: Keys, prefix: str = "") -> Books:
    """The records under `prefix` (default: the whole cluster). Raises `StoreError`."""
    records: dict[str, Record] = {}
    refused: dict[str, str] = {}
    revisions: dict[str, int] = {}
    for item in (await store.list(prefix or keys.prefix)).items:
        parsed = keys.parse(item.key)
        if parsed is None:
            continue
        try:
            records[item.key] = codec.decode_at(parsed, item.value)
            revisions[item.key] = item.modified
        except codec.Refused as error:
            refused[item.key] = str(error)
    return Books(records, refused, revisions)
