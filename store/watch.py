"""One watch on one connection, as sights. Healing lies with the caller (`EtcdStore.follow`).

Written on the raw stub: etcd3aio's watch goes on silently after a compaction, resumes from the header's revision (which
is ahead of the events while a backlog is sent), and cannot ask for progress.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from typing import Any, Final

import grpc.aio
from etcd3aio._protobuf import WatchCreateRequest, WatchRequest, WatchStub

from rankpulse.store.api import Change, Changes, Progress, Unreachable
from rankpulse.store.calls import prefix_end
from rankpulse.store.channel import Metadata

SILENT_FACTOR: Final = 3  # progress intervals without a word, then the watch counts as dead
_DELETE: Final = 1


class Cancelled(Exception):
    """etcd ended the watch: what lies between is unknown, list again. `compacted`: no fault, just history gone."""

    def __init__(self, reason: str, *, compacted: bool) -> None:
        super().__init__(reason)
        self.compacted = compacted

    @property
    def unwelcome(self) -> bool:
        """By our rights or our token."""
        return any(text in str(self) for text in ("permission denied", "auth token", "auth store", "user name"))


async def watch(
    channel: Any, metadata: Metadata, prefix: str, seen: int, progress_s: float
) -> AsyncGenerator[Changes | Progress, None]:
    """What changes under `prefix` after revision `seen`, and a `Progress` about every `progress_s` in between.

    Raises `Cancelled`, `Unreachable` when it falls silent, and gRPC's errors when the connection breaks.
    """
    call = WatchStub(channel).Watch(_requests(prefix, seen + 1, progress_s), metadata=metadata)
    pending: list[Change] = []
    behind = _Behind(progress_s)
    try:
        while True:
            answer = await _read(call, progress_s * SILENT_FACTOR)
            if answer.canceled:
                raise Cancelled(answer.cancel_reason or "cancelled by etcd", compacted=answer.compact_revision > 0)
            behind.look(answer.header.revision, seen)
            pending += _changes(answer.events)
            if answer.created or answer.fragment:
                continue
            if pending:
                # not the header's revision: more events below it may follow
                seen = pending[-1].revision
                yield Changes(seen, tuple(pending))
                pending.clear()
            else:
                # nor here: etcd before 3.5.8 may answer with a revision whose events are still to come
                yield Progress(seen)
    finally:
        call.cancel()


class _Behind:
    """A store that was restored from a backup counts from an earlier revision: etcd takes a watch from a later one, and
    delivers nothing until it is there again. A member that only lags is there within moments.
    """

    def __init__(self, patience_s: float) -> None:
        self._patience_s, self._since = patience_s, float("inf")

    def look(self, revision: int, seen: int) -> None:
        """The store's revision by an answer. Raises `Cancelled` when it is behind what we have seen for too long."""
        if not 0 < revision < seen:
            self._since = float("inf")
            return
        now = asyncio.get_running_loop().time()
        self._since = min(self._since, now)
        if now - self._since >= self._patience_s:
            raise Cancelled("the store has gone back: restored from a backup?", compacted=False)


async def _requests(prefix: str, start: int, progress_s: float) -> AsyncIterator[Any]:
    yield WatchRequest(
        create_request=WatchCreateRequest(
            key=prefix.encode(), range_end=prefix_end(prefix), start_revision=start, fragment=True
        )
    )
    ask = WatchRequest(progress_request={})
    while True:
        yield ask
        await asyncio.sleep(progress_s)


async def _read(call: Any, patience_s: float) -> Any:
    try:
        async with asyncio.timeout(patience_s):
            answer = await call.read()
    except TimeoutError:
        raise Unreachable(f"watch silent for {patience_s:g} s: the path to etcd or etcd itself is stuck") from None
    if answer is grpc.aio.EOF:
        raise Unreachable("etcd ended the watch")
    return answer


def _changes(events: Iterable[Any]) -> list[Change]:
    return [
        Change(
            event.kv.key.decode(errors="replace"),
            None if event.type == _DELETE else event.kv.value,
            event.kv.mod_revision,
        )
        for event in events
    ]
