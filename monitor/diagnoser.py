"""Diagnoses large snapshots in a process of its own: seconds of work that must not stop the monitor's loop.

A monitor that thinks for seconds seems asleep to itself and loses its lease. So the snapshot goes to a child on a
pipe, one at a time, and whatever becomes of it each one ends in exactly one `Diagnosed`.
"""

import asyncio
import contextlib
import logging
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from rankpulse.core import snapshot_codec
from rankpulse.core.diagnosing import diagnose
from rankpulse.core.events import Action, Diagnose, Diagnosed
from rankpulse.core.snapshot import Snapshot
from rankpulse.core.verdict import Verdict
from rankpulse.monitor.clock import Clock

TIME_S: Final = 20.0
WAITING_MAX: Final = 16
VERDICT_MAX: Final = 16 * 1024 * 1024  # bytes
CHILD: Final = (sys.executable, "-P", "-m", "rankpulse.monitor.diagnoser")
log = logging.getLogger("rankpulse.monitor")


class NoVerdict(Exception):
    """None came; the text says why."""


class Diagnoser:
    """`tell` receives each verdict."""

    def __init__(
        self,
        tell: Callable[[Diagnosed], None],
        *,
        clock: Clock,
        child: Sequence[str] = CHILD,
        time_s: float = TIME_S,
    ) -> None:
        self._tell, self._clock, self._child, self._time_s = tell, clock, child, time_s
        self._waiting: deque[Diagnose] = deque()
        self._task: asyncio.Task[None] | None = None

    def send(self, actions: Iterable[Action]) -> None:
        """Begin with the snapshots among `actions`. Returns at once."""
        for action in actions:
            if isinstance(action, Diagnose):
                if len(self._waiting) >= WAITING_MAX:
                    self._end(self._waiting.popleft(), None, "too many snapshots wait already")
                self._waiting.append(action)
        if self._waiting and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._work(), name="diagnoser")

    async def close(self) -> None:
        self._waiting.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task], timeout=2.0)

    async def _work(self) -> None:
        while self._waiting:
            asked = self._waiting.popleft()
            try:
                verdict, why = await self._verdict(asked.snapshot), ""
            except NoVerdict as error:
                verdict, why = None, str(error)
            except Exception as error:  # a bug of ours must not end all diagnosing
                log.exception("a snapshot cannot be diagnosed: a bug in rankpulse, please report it")
                verdict, why = None, f"{type(error).__name__}: {error}"
            self._end(asked, verdict, why)

    async def _verdict(self, snapshot: Snapshot) -> Verdict:
        data = await asyncio.to_thread(msgspec.json.encode, snapshot)
        try:
            child = await asyncio.create_subprocess_exec(*self._child, stdin=PIPE, stdout=PIPE, stderr=DEVNULL)
        except OSError as error:
            raise NoVerdict(f"no process for it could be started: {error.strerror or error}") from None
        try:
            async with asyncio.timeout(self._time_s):
                said, _ = await child.communicate(data)
                return _read(said, child.returncode)
        except TimeoutError:
            raise NoVerdict(f"it took longer than {self._time_s:g} s") from None
        finally:
            await _end(child)

    def _end(self, asked: Diagnose, verdict: Verdict | None, why: str) -> None:
        self._tell(Diagnosed(asked.number, verdict, why[:300], self._clock.now()))


def _read(said: bytes, code: int | None) -> Verdict:
    if code != 0 or len(said) > VERDICT_MAX:
        raise NoVerdict(f"the process that diagnoses ended with code {code}")
    try:
        return msgspec.json.decode(said, type=Verdict)
    except msgspec.DecodeError as error:
        raise NoVerdict(f"the process that diagnoses said nothing sound: {error}") from None


async def _end(child: Process) -> None:
    if child.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        await child.wait()


def main() -> int:
    """The child: a snapshot in, a verdict out. It gives way to everything else on the machine."""
    with contextlib.suppress(OSError):
        os.nice(5)
    found = diagnose(snapshot_codec.decode(sys.stdin.buffer.read()))
    sys.stdout.buffer.write(msgspec.json.encode(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
