"""Programs that actuators call: without a shell, with a deadline, and with an output that cannot fill our memory."""

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

from rankpulse.core.words import printable
from rankpulse.receiver.acting import Later, Ran

KILL_AFTER_S: Final = 5.0
REST_S: Final = 1.0  # for the last words of one that has ended


class System:
    """`Programs` of this machine. Each in a process group of its own, that ends with it."""

    def __init__(self, kill_after_s: float = KILL_AFTER_S) -> None:
        """`kill_after_s`: from SIGTERM to SIGKILL, where a program takes too long."""
        self._kill_after_s = kill_after_s

    async def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        environ: Mapping[str, str] | None = None,
        output_max: int = 65_536,
    ) -> Ran:
        with _Words(output_max) as words:
            process = await _started(argv, environ or {}, words.theirs)
            words.listen()
            try:
                async with asyncio.timeout(timeout_s):
                    code = await process.wait()
                    with suppress(TimeoutError):
                        async with asyncio.timeout(REST_S):
                            await words.ended.wait()
                    return Ran(code, words.text())
            except TimeoutError:
                raise Later(f"{argv[0]} had not ended after {timeout_s:g} s, and was killed") from None
            finally:
                await _end(process, self._kill_after_s)


class _Words:
    """What a program says: the beginning is kept, the rest read and dropped, so that nobody waits for us.

    A pipe of our own: asyncio's would keep us waiting for whatever the program leaves running in the background.
    """

    def __init__(self, limit: int) -> None:
        self._limit, self._kept, self.ended = limit, bytearray(), asyncio.Event()

    def __enter__(self) -> "_Words":
        self._ours, self.theirs = os.pipe()
        os.set_blocking(self._ours, False)
        return self

    def listen(self) -> None:
        """Once the program has its end."""
        os.close(self.theirs)
        self.theirs = -1
        asyncio.get_running_loop().add_reader(self._ours, self._read)

    def text(self) -> str:
        return self._kept.decode(errors="replace")

    def _read(self) -> None:
        with suppress(BlockingIOError):
            if data := os.read(self._ours, 65_536):
                self._kept += data[: max(0, self._limit - len(self._kept))]
            else:
                self._leave()

    def _leave(self) -> None:
        asyncio.get_running_loop().remove_reader(self._ours)
        self.ended.set()

    def __exit__(self, *_: object) -> None:
        self._leave()
        for fd in (self._ours, self.theirs):
            if fd >= 0:
                os.close(fd)


async def _started(argv: Sequence[str], environ: Mapping[str, str], output: int) -> asyncio.subprocess.Process:
    """Raises `Later`."""
    try:
        return await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, "LC_ALL": "C", **environ},
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise Later(f"{argv[0]} cannot be started: {getattr(error, 'strerror', None) or error}") from None


async def _end(process: asyncio.subprocess.Process, kill_after_s: float) -> None:
    """Also what it started, as far as that stayed in its group."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.returncode is not None and number == signal.SIGTERM:
            break
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(TimeoutError):
            async with asyncio.timeout(kill_after_s):
                await process.wait()
                return


def said(ran: Ran) -> str:
    """Its end and its words, for a sentence."""
    how = f"signal {-ran.code}" if ran.code < 0 else f"exit code {ran.code}"
    words = printable(ran.output.strip(), 300)
    return f"{how}{f': {words}' if words else ''}"
