"""The `Store` protocol: what every room may ask of the key-value store, and the errors it answers with."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias


class StoreError(Exception):
    """Base of all store errors; the text is one sentence that says what to do."""


class Unreachable(StoreError):
    """No endpoint answered: nothing was done, or nobody can tell (see `Uncertain`)."""


class Uncertain(StoreError):
    """The call timed out or the connection broke under way: the write may have happened. Read before trying again."""


class Denied(StoreError):
    """Wrong user, password or certificate, or no permission for the key. Trying again does not help."""


class NoSpace(StoreError):
    """The store refuses writes: quota exhausted (NOSPACE alarm)."""


class TooLarge(StoreError):
    """The request is larger than the store takes (1.5 MiB in etcd by default). Nothing was done; write less at once."""


class LeaseLost(StoreError):
    """The lease is gone: whatever stood under it may be another's by now."""


@dataclass(frozen=True, slots=True)
class Item:
    """A key with its value and revisions (`created`: when the key was made; `modified`: its last write)."""

    key: str
    value: bytes
    created: int
    modified: int
    lease: int = 0


@dataclass(frozen=True, slots=True)
class Listing:
    """Everything under a prefix at `revision`, in order of `modified`. In `follow`: replaces all that came before."""

    revision: int
    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """One key put (`value`) or deleted (`value` None) at `revision`."""

    key: str
    value: bytes | None
    revision: int


@dataclass(frozen=True, slots=True)
class Changes:
    """What changed, in order, up to and including `revision`."""

    revision: int
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class Progress:
    """The watch lives and everything up to `revision` was delivered."""

    revision: int


@dataclass(frozen=True, slots=True)
class Lost:
    """Sight is lost, for this reason; a `Listing` (or `Changes`) follows when it is back."""

    reason: str


Sight: TypeAlias = Listing | Changes | Progress | Lost


@dataclass(frozen=True, slots=True)
class Guard:
    """True when `key` was last modified at `modified` (0: the key does not exist)."""

    key: str
    modified: int


@dataclass(frozen=True, slots=True)
class Put:
    key: str
    value: bytes
    lease: int = 0


@dataclass(frozen=True, slots=True)
class Delete:
    key: str


Write: TypeAlias = Put | Delete


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of a transaction: whether all guards held and the writes were done, and the store's revision after it."""

    done: bool
    revision: int


@dataclass(frozen=True, slots=True)
class Lease:
    id: int
    ttl_s: float


@dataclass(frozen=True, slots=True)
class StoreStatus:
    version: str
    db_bytes: int
    revision: int
    has_leader: bool
    alarms: tuple[str, ...] = ()
    in_use_bytes: int = 0  # of `db_bytes`, without what compaction has freed; 0: not told
    quota_bytes: int = 0  # 0: not told (etcd before 3.6)


class Store(Protocol):
    """Every call has a deadline (the store's `timeout_s`) and raises only `StoreError`s."""

    async def get(self, key: str) -> Item | None: ...

    async def list(self, prefix: str) -> Listing: ...

    async def put(self, key: str, value: bytes, *, lease: int = 0) -> int:
        """Write; returns the revision."""
        ...

    async def delete(self, key: str) -> bool:
        """Delete; False when the key did not exist."""
        ...

    async def delete_prefix(self, prefix: str) -> int: ...

    async def txn(self, guards: Sequence[Guard], writes: Sequence[Write]) -> Outcome:
        """All writes if all guards hold, else none."""
        ...

    async def grant(self, ttl_s: float) -> Lease: ...

    async def keep_alive(self, lease: Lease) -> float:
        """Renew once; returns the seconds it now lasts. Raises `LeaseLost` when it had ended."""
        ...

    async def revoke(self, lease: Lease) -> None: ...

    def follow(self, prefix: str) -> AsyncIterator[Sight]:
        """List, then watch, for ever: heals lost connections, compaction and silent watches, and says `Lost` meanwhile.

        Nothing between the listing and the watch is missed. Ends only by `aclose`, or with `Denied`.
        """
        ...

    async def compact(self, revision: int) -> None: ...

    async def status(self) -> StoreStatus: ...

    async def close(self) -> None: ...
