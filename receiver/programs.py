"""Programs that actuators call: without a shell, with a deadline, and with an output that cannot fill our memory."""

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

from rankpulse.core.words import printable
from rankpulse.receiver.acting import Later, Ran

KILL_AFTER_S: Final = 5.0  # of SIGTERM


class System:
    """`Programs` of this machine. Each in a process group of its own, that ends with it."""

    async def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        environ: Mapping[str, str] | None = None,
        output_max: int = 65_536,
    ) -> Ran:
        try:
            process = await asyncio.create_subprocess_exec(
                *argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                env={**os.environ, "LC_ALL": "C", **(environ or {})},
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise Later(f"{argv[0]} cannot be started: {getattr(error, 'strerror', None) or error}") from None
        try:
            async with asyncio.timeout(timeout_s):
                output = await _read(process, output_max)
                return Ran(await process.wait(), output)
        except TimeoutError:
            raise Later(f"{argv[0]} had not ended after {timeout_s:g} s, and was killed") from None
        finally:
            await _end(process)


async def _read(process: asyncio.subprocess.Process, limit: int) -> str:
    """The beginning; what follows is read and dropped, so that nobody waits for us."""
    assert process.stdout is not None
    kept = bytearray()
    while chunk := await process.stdout.read(65_536):
        kept += chunk[: max(0, limit - len(kept))]
    return kept.decode(errors="replace")


async def _end(process: asyncio.subprocess.Process) -> None:
    """Also what it started, as far as that stayed in its group."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.returncode is not None and number == signal.SIGTERM:
            break
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(TimeoutError):
            async with asyncio.timeout(KILL_AFTER_S):
                await process.wait()
                return


def said(ran: Ran) -> str:
    """Its end and its words, for a sentence."""
    how = f"signal {-ran.code}" if ran.code < 0 else f"exit code {ran.code}"
    words = printable(ran.output.strip(), 300)
    return f"{how}{f': {words}' if words else ''}"
