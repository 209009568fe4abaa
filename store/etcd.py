"""etcd v3 behind the `Store` protocol: several endpoints, TLS, users, and errors that say what to do."""

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from math import ceil
from re import findall
from typing import Any, Final, TypeVar, cast

import grpc.aio

from rankpulse.core.settings import StoreSettings
from rankpulse.store import files
from rankpulse.store.api import (
    Changes,
    Denied,
    Guard,
    Item,
    Lease,
    LeaseLost,
    Listing,
    Lost,
    Outcome,
    Progress,
    Sight,
    Store,
    StoreError,
    StoreStatus,
    Uncertain,
    Unreachable,
    Write,
)
from rankpulse.store.auth import Identity, read_password
from rankpulse.store.calls import Wire, item, prefix_end, transaction
from rankpulse.store.channel import Certificates
from rankpulse.store.endpoints import parse_endpoints
from rankpulse.store.errors import RPC_ERRORS, Broken, details_of, stale_token, timed_out, translate
from rankpulse.store.link import Link, summary
from rankpulse.store.watch import Cancelled, watch

PROGRESS_S: Final = 2.0
_PAUSES_S: Final = (0.2, 2.0)  # between tries of a lost watch: the first, and the longest; each is cut by lot
T = TypeVar("T")
Call = Callable[[Wire, float], Awaitable[T]]  # does one thing on a connection within seconds


async def open_store(settings: StoreSettings) -> Store:
    """A store over these settings. Connects at the first call: etcd may be away when an agent starts.

    Raises `StoreError` for endpoints and files that cannot be used.
    """
    return EtcdStore(settings)


class EtcdStore:
    """`Store` over etcd. One endpoint is used until it fails, then the next; each process begins at another one."""

    def __init__(
        self,
        settings: StoreSettings,
        *,
        rng: random.Random | None = None,
        clock: Callable[[], float] = time.monotonic,
        progress_s: float = PROGRESS_S,
    ) -> None:
        self._timeout_s, self._progress_s, self._clock = settings.timeout_s, progress_s, clock
        self._rng = rng or random.Random()  # noqa: S311 - spreads load, guards nothing
        self._certificates = Certificates.of(settings)
        if missing := files.problems(settings):
            raise StoreError("; ".join(missing))
        self._endpoints = parse_endpoints(settings.endpoints, tls=bool(settings.ca_file or settings.cert_file))
        if any(endpoint.tls for endpoint in self._endpoints):
            self._certificates.context()
        if settings.user:
            read_password(settings.password_file)
        self._identity = Identity(settings, clock)
        self._links = [self._link(number) for number in range(len(self._endpoints))]
        self._turn = self._rng.randrange(len(self._links))
        self._closed = False

    # the protocol

    async def get(self, key: str) -> Item | None:
        answer = await self._call(lambda wire, s: wire.range(key, b"", s))
        return item(answer.kvs[0]) if answer.kvs else None

    async def list(self, prefix: str) -> Listing:
        end = prefix_end(prefix)
        answer = await self._call(lambda wire, s: wire.range(prefix, end, s))
        items = sorted(map(item, answer.kvs), key=lambda one: (one.modified, one.key))
        return Listing(answer.header.revision, tuple(items))

    async def put(self, key: str, value: bytes, *, lease: int = 0) -> int:
        answer = await self._call(lambda wire, s: wire.put(key, value, lease, s), write=True)
        return int(answer.header.revision)

    async def delete(self, key: str) -> bool:
        answer = await self._call(lambda wire, s: wire.delete(key, b"", s), write=True)
        return bool(answer.deleted)

    async def delete_prefix(self, prefix: str) -> int:
        end = prefix_end(prefix)
        answer = await self._call(lambda wire, s: wire.delete(prefix, end, s), write=True)
        return int(answer.deleted)

    async def txn(self, guards: Sequence[Guard], writes: Sequence[Write]) -> Outcome:
        request = transaction(guards, writes)
        answer = await self._call(lambda wire, s: wire.txn(request, s), write=bool(writes))
        return Outcome(bool(answer.succeeded), int(answer.header.revision))

    async def grant(self, ttl_s: float) -> Lease:
        ttl = max(1, ceil(ttl_s))
        answer = await self._call(lambda wire, s: wire.grant(ttl, s), write=True)
        return Lease(int(answer.ID), float(answer.TTL))

    async def keep_alive(self, lease: Lease) -> float:
        ttl = await self._call(lambda wire, s: wire.renewals.renew(lease.id, s))
        if ttl <= 0:
            raise LeaseLost(f"lease {lease.id:x} has ended")
        return float(ttl)

    async def revoke(self, lease: Lease) -> None:
        # an ended lease is what was asked for
        with contextlib.suppress(LeaseLost):
            await self._call(lambda wire, s: wire.revoke(lease.id, s), write=True)

    async def compact(self, revision: int) -> None:
        try:
            await self._call(lambda wire, s: wire.compact(revision, s))
        except StoreError as error:
            if "has been compacted" not in str(error):  # somebody else was there first
                raise

    async def status(self) -> StoreStatus:
        """Of the endpoint in use."""
        answer = await self._call(lambda wire, s: wire.status(s))
        alarms = tuple(sorted(set(findall(r"alarm:(\w+)", " ".join(answer.errors)))))
        return StoreStatus(
            answer.version,
            answer.dbSize,
            answer.header.revision,
            answer.leader != 0,
            alarms,
            answer.dbSizeInUse,
            answer.dbSizeQuota,
        )

    async def close(self) -> None:
        """Drop all connections. Followers end at their next sight."""
        self._closed = True
        for link in self._links:
            await link.close()

    async def raw(self, call: Call[T], *, write: bool = False) -> T:
        """Something else that etcd can do, with the endpoints, the limits and the errors of all other calls."""
        return cast(T, await self._call(call, write=write))

    async def follow(self, prefix: str) -> AsyncIterator[Sight]:
        prefix_end(prefix)
        seen, lost, tries, refused = 0, False, 0, False
        while not self._closed:
            try:
                if not seen:
                    listing = await self.list(prefix)
                    seen, lost = listing.revision, False
                    yield listing
                async with contextlib.aclosing(self._watch(prefix, seen)) as sights:
                    async for sight in sights:
                        seen, lost, tries, refused = sight.revision, False, 0, False
                        yield sight
            except Cancelled as cancelled:
                if cancelled.unwelcome and refused:
                    raise Denied(
                        f"no permission to watch {prefix} ({cancelled}): grant the role of this part"
                    ) from None
                seen, refused = 0, cancelled.unwelcome
                self._identity.forget()
                if cancelled.compacted:
                    continue
            except Denied:
                raise
            except StoreError as error:
                if not lost:
                    lost = True
                    yield Lost(str(error))
            await asyncio.sleep(self._pause_s(tries))
            tries += 1

    # inside

    def _link(self, number: int) -> Link:
        return Link(self._endpoints[number], self._certificates, self._identity.metadata)

    def _pause_s(self, tries: int) -> float:
        first, longest = _PAUSES_S
        return self._rng.uniform(0.1, 1.0) * min(longest, first * 2.0 ** min(tries, 10))

    def _turn_from(self, number: int) -> None:
        """The endpoint failed: begin with the next, unless another call has done so already."""
        if self._turn == number:
            self._turn = (number + 1) % len(self._links)

    async def _watch(self, prefix: str, seen: int) -> AsyncGenerator[Changes | Progress, None]:
        """Watch over a connection of its own, so that giving it up disturbs no call."""
        number = self._turn
        link = self._link(number)
        where = str(link.endpoint)
        try:
            while not self._closed:
                wire = await link.connect(self._timeout_s)
                await self._identity.ensure(wire, self._timeout_s)
                news = watch(wire.channel, self._identity.metadata(), prefix, seen, self._progress_s)
                async with contextlib.aclosing(news) as sights:
                    async for sight in sights:
                        seen = sight.revision
                        yield sight
                        link.renew_soon()
                        if self._closed or link.wire is not wire:  # from there on over the new connection
                            break
        except RPC_ERRORS as error:
            if stale_token(error):
                raise Cancelled(details_of(error), compacted=False) from None
            self._turn_from(number)
            raise self._translated(error, where, write=False) from None
        except Unreachable as error:
            self._turn_from(number)
            raise Unreachable(f"{where}: {error}" if where not in str(error) else str(error)) from None
        finally:
            await link.close()

    async def _call(self, call: Call[Any], *, write: bool = False) -> Any:
        """Do it on the endpoint in use, within the time limit; on others when nothing was done there.

        A write whose outcome is not known is not repeated: the caller must read first.
        """
        if self._closed:
            raise StoreError("the store is closed")
        deadline = self._clock() + self._timeout_s
        failures: list[StoreError] = []
        count = len(self._links)
        order = [(self._turn + nth) % count for nth in range(count)]
        for nth, number in enumerate(order):
            left = deadline - self._clock()
            if failures and left <= 0:
                break
            try:
                return await self._try(self._links[number], call, left / (len(order) - nth), left, write)
            except (Unreachable, Denied) as error:
                failures.append(error)
                if isinstance(error, Unreachable):
                    self._turn_from(number)
                if isinstance(error, Broken) and not write and len(order) == count:
                    order.append(number)  # etcd went and may be back, or the path was cut while we were idle
            except Uncertain:
                self._turn_from(number)
                raise
        raise summary(failures)

    async def _try(self, link: Link, call: Call[Any], connect_s: float, call_s: float, write: bool) -> Any:
        deadline = self._clock() + call_s
        wire = await link.connect(connect_s)
        try:
            answer = await self._with_token(wire, call, deadline)
        except grpc.aio.UsageError:
            raise Unreachable(f"the connection to {link.endpoint} was just given up") from None
        except asyncio.CancelledError:
            # grpc cancels the calls on a channel that another call gave up: that is no wish of our caller's
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            gave_up = f"the connection to {link.endpoint} was given up under way"
            failure = Uncertain(f"{gave_up}: read before trying again") if write else Unreachable(gave_up)
            raise failure from None
        except RPC_ERRORS as error:
            if timed_out(error):
                link.missed_deadline(wire, self._timeout_s + 1.0)
            raise self._translated(error, str(link.endpoint), write=write) from None
        link.answered()
        return answer

    async def _with_token(self, wire: Wire, call: Call[Any], deadline: float) -> Any:
        def left() -> float:
            return max(0.01, deadline - self._clock())

        await self._identity.ensure(wire, left())
        token = self._identity.token
        try:
            return await call(wire, left())
        except RPC_ERRORS as error:
            if not (self._identity.user and stale_token(error)):
                raise
        # refused for its token only, so nothing was done: even a write may be sent again
        await self._identity.renew(wire, token, left())
        return await call(wire, left())

    def _translated(self, error: BaseException, where: str, *, write: bool) -> StoreError:
        return translate(error, where, write=write, user=self._identity.user, timeout_s=self._timeout_s)
