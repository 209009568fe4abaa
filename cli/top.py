"""`rankpulse top`: the leader's page, looked at again and again, on a terminal; once for pipes and tests."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from rich.console import Console
from rich.live import Live
from rich.text import Text

from rankpulse.cli import books, live, show
from rankpulse.cli.failing import Failed
from rankpulse.cli.top_page import Seen, screen
from rankpulse.cli.top_state import State
from rankpulse.cli.top_table import Line
from rankpulse.core.keys import Keys
from rankpulse.core.records import Leader
from rankpulse.core.settings import Settings
from rankpulse.store.api import StoreError

QUICKEST_S, SLOWEST_S = 0.2, 3600.0
_QUIT: Final = b"qQ\x04"
_SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP)


class Watcher:
    """Finds the leader and reads its page; what was read last stands until there is something newer."""

    def __init__(self, settings: Settings, url: str = "") -> None:
        """`url`: of the one monitor to read, whatever the store says; "": the leader."""
        self._settings, self._named, self._url = settings, url.rstrip("/"), url.rstrip("/")
        self._state: State | None = None
        self._read_at = 0.0

    async def look(self) -> Seen:
        """Ask the monitor that was read last; where it is gone or leads no more, ask the store who leads."""
        state, trouble = await self._read(self._url) if self._url else (None, "")
        if not self._named and (state is None or not state.leads):
            url, why = await self._leader()
            if url and url != self._url:
                state, trouble = await self._read(url)
            elif state is None:
                trouble = why or trouble
            self._url = url or self._url
        if state is not None:
            self._state, self._read_at = state, time.monotonic()
        return Seen(self._state, "" if state is not None else trouble, time.monotonic() - self._read_at, time.time())

    async def _read(self, url: str) -> tuple[State | None, str]:
        return await live.fetch_as(url, State, self._settings.http)

    async def _leader(self) -> tuple[str, str]:
        """Where the leader's page is, or "" and why that is not known."""
        try:
            async with books.opened(self._settings) as store:
                leader = await books.one(store, Keys(self._settings.cluster).leader(), Leader)
        except StoreError as error:
            return "", str(error)
        if leader is None:
            return "", "no monitor leads: start one with `rankpulse monitor`"
        return leader.url, "" if leader.url else f"{leader.monitor} leads and serves no page (monitor.listen)"


def run(settings: Settings, url: str, every_s: float, once: bool) -> int:
    """Returns the exit code: 1 where nothing is known in the end. Raises `Failed`."""
    if not QUICKEST_S <= every_s <= SLOWEST_S:
        raise Failed(f"--every {every_s:g}: give seconds from {QUICKEST_S:g} to {SLOWEST_S:g}")
    watcher, out = Watcher(settings, url), show.console()
    if once or not out.is_terminal or out.is_dumb_terminal:
        return asyncio.run(_once(watcher, out))
    with suppress(KeyboardInterrupt):
        return asyncio.run(_again_and_again(watcher, out, every_s))
    return 0


async def _once(watcher: Watcher, out: Console) -> int:
    seen = await watcher.look()
    for line in screen(seen, out.width):
        out.print(Text(line.text, style=line.style), soft_wrap=True)
    return 0 if seen.state is not None and not seen.trouble else 1


async def _again_and_again(watcher: Watcher, out: Console, every_s: float) -> int:
    """Until q. The terminal is given back as it was, however this ends."""
    quit_ = asyncio.Event()
    seen: Seen | None = None
    with (
        _asked_to_end(quit_.set),
        _keys(quit_.set),
        Live(console=out, screen=True, auto_refresh=False, transient=True) as shown,
    ):
        while not quit_.is_set():
            look = asyncio.ensure_future(watcher.look())
            seen = await _unless(quit_, look)
            if seen is not None:
                shown.update(_drawn(screen(seen, out.width, out.height - 1), every_s, out.width), refresh=True)
                with suppress(TimeoutError):
                    async with asyncio.timeout(every_s):
                        await quit_.wait()
    return 0 if seen is None or seen.state is not None else 1


async def _unless(quit_: asyncio.Event, look: "asyncio.Future[Seen]") -> Seen | None:
    """What the look came to; None where somebody did not want to wait for it."""
    stop = asyncio.ensure_future(quit_.wait())
    await asyncio.wait((look, stop), return_when=asyncio.FIRST_COMPLETED)
    stop.cancel()
    if look.done():
        return look.result()
    look.cancel()
    with suppress(asyncio.CancelledError):
        await look
    return None


def _drawn(lines: list[Line], every_s: float, width: int) -> Text:
    foot = Line(f"q quits; every {every_s:g} s"[:width], "dim")
    return Text("\n").join(Text(line.text, style=line.style, no_wrap=True) for line in (*lines, foot))


@contextmanager
def _asked_to_end(stop: Callable[[], None]) -> Iterator[None]:
    """A signal that would end us at once would leave the terminal as it is."""
    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)


@contextmanager
def _keys(stop: Callable[[], None]) -> Iterator[None]:
    """Calls `stop` when somebody presses q; keys are not echoed meanwhile."""
    if not sys.stdin.isatty():
        yield
        return
    import termios
    import tty

    fd, loop = sys.stdin.fileno(), asyncio.get_running_loop()
    before = termios.tcgetattr(fd)

    def pressed() -> None:
        keys = os.read(fd, 64)
        if not keys or any(key in _QUIT for key in keys):
            loop.remove_reader(fd)
            stop()

    tty.setcbreak(fd)
    loop.add_reader(fd, pressed)
    try:
        yield
    finally:
        loop.remove_reader(fd)
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
