"""Leases renewed over one stream per connection: opening a stream for each costs twice what a write does."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
from etcd3aio import _protobuf as pb

from rankpulse.store.errors import Broken

Answer = asyncio.Future[int]


class Renewals:
    """Opened with the first renewal, anew after it broke. etcd answers in the order in which it was asked."""

    def __init__(self, stub: Any) -> None:
        self._stub = stub
        self._asks: asyncio.Queue[int] = asyncio.Queue()
        self._waiting: deque[tuple[int, Answer]] = deque()
        self._reader: asyncio.Task[None] | None = None

    async def renew(self, lease: int, timeout_s: float) -> int:
        """The seconds it now lasts, 0 when it has ended. Raises `Broken`, gRPC's errors and TimeoutError."""
        if self._reader is None or self._reader.done():
            self._asks, self._waiting = asyncio.Queue(), deque()
            self._reader = asyncio.create_task(self._read(self._asks, self._waiting), name="renewals")
        answer: Answer = asyncio.get_running_loop().create_future()
        self._waiting.append((lease, answer))
        self._asks.put_nowait(lease)
        try:
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError:
            self._reader.cancel()  # it may be stuck: those who wait as well are told, and the next one opens another
            raise

    async def close(self) -> None:
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)

    async def _read(self, asks: asyncio.Queue[int], waiting: deque[tuple[int, Answer]]) -> None:
        """Until it breaks; then everybody who waits is told why."""
        error: BaseException = Broken("the stream of renewals was given up: try again")
        call = self._stub.LeaseKeepAlive(_requests(asks))
        try:
            while (answer := await call.read()) is not grpc.aio.EOF:
                _tell(waiting, int(answer.ID), int(answer.TTL))
            error = Broken("etcd ended the stream of renewals: try again")
        except grpc.aio.AioRpcError as broke:
            error = broke
        finally:
            call.cancel()
            for _, future in waiting:
                if not future.done():
                    future.set_exception(error)
            waiting.clear()


async def _requests(asks: "asyncio.Queue[int]") -> AsyncIterator[Any]:
    while True:
        yield pb.LeaseKeepAliveRequest(ID=await asks.get())


def _tell(waiting: deque[tuple[int, Answer]], lease: int, ttl_s: int) -> None:
    """Those before it in the row are never answered any more."""
    while waiting:
        asked, future = waiting.popleft()
        if asked == lease:
            if not future.done():
                future.set_result(ttl_s)
            return
        if not future.done():
            future.set_exception(Broken("etcd answered another renewal: try again"))
