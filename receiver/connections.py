"""Connections with an end: none lasts longer than its exchange may take, and the eldest goes where there are too many.

A monitor makes a connection for each event and closes it, so nothing is lost by that; who sends a byte a minute costs
little, and cannot keep others out.
"""

import asyncio
from collections.abc import Callable
from typing import Any


class Connections:
    """Makes protocols for `loop.create_server` around those that `inner` makes."""

    def __init__(
        self, inner: Callable[[], asyncio.Protocol], *, most: int, last_s: float, dropped: Callable[[], None]
    ) -> None:
        self._inner, self._most, self._last_s, self._dropped = inner, most, last_s, dropped
        self._open: dict[_Bounded, None] = {}  # in the order in which they came

    def __call__(self) -> asyncio.Protocol:
        return _Bounded(self._inner(), self)

    def __len__(self) -> int:
        return len(self._open)

    def came(self, one: "_Bounded") -> asyncio.TimerHandle:
        if len(self._open) >= self._most:
            self.drop(next(iter(self._open)))
        self._open[one] = None
        return asyncio.get_running_loop().call_later(self._last_s, self.drop, one)

    def drop(self, one: "_Bounded") -> None:
        if one in self._open:
            self._dropped()
            one.abort()
            self.gone(one)

    def gone(self, one: "_Bounded") -> None:
        self._open.pop(one, None)


class _Bounded(asyncio.Protocol):
    """Hands everything through."""

    def __init__(self, inner: asyncio.Protocol, book: Connections) -> None:
        self._inner, self._book = inner, book
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._timer = self._book.came(self)
        self._inner.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._book.gone(self)
        self._inner.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()
