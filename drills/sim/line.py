"""`Store` for a program of the simulation: what a monitor holds instead of an etcd client."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

from rankpulse.drills.sim.clockwork import Program
from rankpulse.drills.sim.etcd import Etcd, Watch, Work
from rankpulse.store.api import Guard, Item, Lease, Listing, Lost, Outcome, Sight, StoreError, StoreStatus, Write


class Line:
    """Every call goes over the simulated network, and ends at its deadline at the latest."""

    def __init__(self, program: Program, etcd: Etcd, end: str, timeout_s: float = 3.0) -> None:
        self._program, self._etcd, self._end, self._timeout_s = program, etcd, end, timeout_s

    async def _ask(self, work: Work, *, write: bool = False) -> Any:
        answer = self._program.create_future()

        def settle(value: Any, error: StoreError | None) -> None:
            if answer.done():
                return
            if error is not None:
                answer.set_exception(error)
            else:
                answer.set_result(value)

        def done(value: Any, error: StoreError | None, at: float) -> None:
            self._etcd.heap.at(at, self._program.deliver, settle, value, error)

        self._etcd.call(self._end, work, done, timeout_s=self._timeout_s, write=write)
        return await answer

    async def get(self, key: str) -> Item | None:
        return await self._ask(lambda store: store.get(key))  # type: ignore[no-any-return]

    async def list(self, prefix: str) -> Listing:
        return await self._ask(lambda store: store.list(prefix))  # type: ignore[no-any-return]

    async def put(self, key: str, value: bytes, *, lease: int = 0) -> int:
        return await self._ask(lambda store: store.put(key, value, lease=lease), write=True)  # type: ignore[no-any-return]

    async def delete(self, key: str) -> bool:
        return await self._ask(lambda store: store.delete(key), write=True)  # type: ignore[no-any-return]

    async def delete_prefix(self, prefix: str) -> int:
        return await self._ask(lambda store: store.delete_prefix(prefix), write=True)  # type: ignore[no-any-return]

    async def txn(self, guards: Sequence[Guard], writes: Sequence[Write]) -> Outcome:
        guards, writes = tuple(guards), tuple(writes)
        return await self._ask(lambda store: store.txn(guards, writes), write=True)  # type: ignore[no-any-return]

    async def grant(self, ttl_s: float) -> Lease:
        return await self._ask(lambda store: store.grant(ttl_s))  # type: ignore[no-any-return]

    async def keep_alive(self, lease: Lease) -> float:
        return await self._ask(lambda store: store.keep_alive(lease))  # type: ignore[no-any-return]

    async def revoke(self, lease: Lease) -> None:
        await self._ask(lambda store: store.revoke(lease))

    async def follow(self, prefix: str) -> AsyncIterator[Sight]:
        sights: list[Sight] = []
        wake: list[Any] = []

        def come(sight: Sight) -> None:
            sights.append(sight)
            if wake and not wake[0].done():
                wake[0].set_result(None)

        while True:
            try:
                first = await self.list(prefix)
                break
            except StoreError as error:
                yield Lost(str(error))
                await self._pause(0.5)
        watch = Watch(
            self._end, False, lambda sight: self._program.deliver(come, sight), (0.001, 0.006), first.revision
        )
        self._etcd.watch(watch)
        try:
            yield first
            while True:
                while sights:
                    yield sights.pop(0)
                wake[:] = [self._program.create_future()]
                await wake[0]
        finally:
            self._etcd.unwatch(watch)

    async def _pause(self, seconds: float) -> None:
        done = self._program.create_future()
        self._program.call_later(seconds, done.set_result, None)
        await done

    async def compact(self, revision: int) -> None:
        await self._ask(lambda store: store.compact(revision), write=True)

    async def status(self) -> StoreStatus:
        return await self._ask(lambda store: store.status())  # type: ignore[no-any-return]

    async def close(self) -> None:
        """Nothing is held."""
