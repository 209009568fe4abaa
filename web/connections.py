"""Connections of an HTTP port of ours: bounded in number, and in time until the door has let somebody in by them."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

MOST: Final = 512  # well below the 1,024 file descriptors that a process usually has
WAIT_S: Final = 10.0


class Connections:
    """Makes protocols for `loop.create_server` around those that `inner` makes.

    Whoever sends nothing, too slowly, or only what is refused, goes after `wait_s`. Where there are too many the eldest
    of those goes for a new one; where there is none of them, the eldest of all: who was let in asks again.
    """

    def __init__(self, *, most: int = MOST, wait_s: float = WAIT_S) -> None:
        self.inner: Callable[[], Any] | None = None  # of the server, once there is one
        self._most, self._wait_s = most, wait_s
        self._waiting: dict[Any, asyncio.TimerHandle] = {}  # by transport, in the order in which they came
        self._in: dict[Any, None] = {}

    def __call__(self) -> asyncio.Protocol:
        assert self.inner is not None
        return _Bounded(self.inner(), self)

    def __len__(self) -> int:
        return len(self._waiting) + len(self._in)

    def came(self, transport: Any) -> None:
        if len(self) >= self._most:
            self._drop(next(iter(self._waiting or self._in)))
        later = asyncio.get_running_loop().call_later(self._wait_s, self._drop, transport)
        self._waiting[transport] = later

    def let_in(self, transport: Any) -> None:
        """A request by it may be answered: from now on it lasts as HTTP has it."""
        later = self._waiting.pop(transport, None)
        if later is not None:
            later.cancel()
            self._in[transport] = None

    def gone(self, transport: Any) -> None:
        self._in.pop(transport, None)
        later = self._waiting.pop(transport, None)
        if later is not None:
            later.cancel()

    def _drop(self, transport: Any) -> None:
        self.gone(transport)
        transport.abort()


class _Bounded(asyncio.Protocol):
    """Hands everything through."""

    def __init__(self, inner: Any, book: Connections) -> None:
        self._inner, self._book = inner, book
        self._transport: Any = None
        self.data_received = inner.data_received  # type: ignore[method-assign]
        self.eof_received = inner.eof_received  # type: ignore[method-assign]
        self.pause_writing = inner.pause_writing  # type: ignore[method-assign]
        self.resume_writing = inner.resume_writing  # type: ignore[method-assign]

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._book.came(transport)
        self._inner.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._book.gone(self._transport)
        self._inner.connection_lost(exc)
