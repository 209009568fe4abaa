"""Virtual time: the heap of what will happen, and programs of asyncio that run on it.

The clock is the head of the heap. Events of one instant happen in the order in which they were asked for, so the same
seed gives the same run: no wall clock, no threads, no order of sets.
"""

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Heap:
    """What will happen, by time. `now`: seconds since the beginning."""

    def __init__(self) -> None:
        self.now = 0.0
        self.events = 0
        self._queue: list[tuple[float, int, Callable[..., Any], tuple[Any, ...]]] = []
        self._asked = 0

    def at(self, when: float, call: Callable[[*Ts], Any], *args: *Ts) -> None:
        """Call at `when`, or at once if that is past."""
        self._asked += 1
        heapq.heappush(self._queue, (max(when, self.now), self._asked, call, args))

    def after(self, delay_s: float, call: Callable[[*Ts], Any], *args: *Ts) -> None:
        self.at(self.now + delay_s, call, *args)

    def step(self, until: float) -> bool:
        """Let the next event happen; False when none comes before `until`."""
        if not self._queue or self._queue[0][0] > until:
            self.now = max(self.now, until)
            return False
        self.now, _, call, args = heapq.heappop(self._queue)
        self.events += 1
        call(*args)
        return True


class Program(asyncio.AbstractEventLoop):
    """One program of asyncio on the heap: it can be paused and killed, as a process can.

    What would reach a paused program waits; when it goes on everything is due at once, as after SIGCONT.
    """

    def __init__(self, heap: Heap) -> None:
        self._heap = heap
        self._ready: deque[asyncio.Handle] = deque()
        self._held: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []
        self._tasks: list[asyncio.Task[Any]] = []
        self.paused = self.dead = False
        self.failure: BaseException | None = None  # of a part that must run for ever
        self.resumed_at = 0.0

    def start(self, parts: list[Coroutine[Any, Any, Any]]) -> None:
        """Run these for ever."""
        for part in parts:
            self.create_task(part).add_done_callback(self._ended)
        self.deliver(lambda: None)

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused, self.resumed_at = False, self._heap.now
        held, self._held = self._held, []
        self.deliver(lambda: None)  # what was ready when it paused
        for call, args in held:
            self.deliver(call, *args)

    def kill(self) -> None:
        """Nothing of it runs any more."""
        self.dead = True
        self._held.clear()

    def close(self) -> None:
        """After the end of the simulation: its coroutines are left, whatever state they are in."""
        self.dead = self.paused = False
        self.failure = None
        self.deliver(lambda: [task.cancel() for task in self._tasks])
        self.dead = True

    def deliver(self, call: Callable[[*Ts], Any], *args: *Ts) -> None:
        """From outside: call it within the program, now or when it goes on."""
        if self.dead:
            return
        if self.paused:
            self._held.append((call, args))
            return
        asyncio._set_running_loop(self)
        try:
            call(*args)
            while self._ready and not self.dead and not self.paused:  # also by its own doing
                handle = self._ready.popleft()
                if not handle.cancelled():
                    handle._run()
        finally:
            asyncio._set_running_loop(None)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self.failure = task.exception()

    # --- what asyncio asks of a loop

    def time(self) -> float:
        return self._heap.now

    def call_soon(  # type: ignore[override]
        self, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._heap.at(when, self._due, handle)
        return handle

    def _due(self, handle: asyncio.TimerHandle) -> None:
        if not handle.cancelled():
            self.deliver(self._ready.append, handle)

    def create_future(self) -> "asyncio.Future[Any]":
        return asyncio.Future(loop=self)

    def create_task(
        self, coro: Any, *, name: str | None = None, context: Context | None = None, **_: Any
    ) -> asyncio.Task[Any]:
        task = asyncio.Task(coro, loop=self, name=name or "part", context=context)
        self._tasks = [one for one in self._tasks if not one.done()] + [task]
        return task

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return self.dead

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """What nobody caught is remembered, but for what becomes of tasks that were killed with their program."""
        error = context.get("exception")
        if error is not None and not self.dead:
            self.failure = error

    def _timer_handle_cancelled(self, _handle: asyncio.TimerHandle) -> None:
        """It is skipped when its time comes."""


def finish(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never really waits, as those of the store in memory."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    raise RuntimeError("this coroutine waits")
