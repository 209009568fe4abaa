"""Programs that look where this process must not: given a time, killed when it is over, never waited for any longer."""

import asyncio
import contextlib
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Sequence
from typing import Final, NamedTuple

OUTPUT_MAX: Final = 1024 * 1024
_DIES_S: Final = 0.1


class Said(NamedTuple):
    """What it wrote, and its exit code; None: it was given up. `process`: there still, where it hangs in the kernel."""

    output: bytes = b""
    code: int | None = None
    process: Process | None = None


async def run(command: Sequence[str], within_s: float) -> Said:
    """Run it. Raises OSError where it cannot be started."""
    process = await asyncio.create_subprocess_exec(*command, stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL)
    output = bytearray()
    try:
        async with asyncio.timeout(within_s):
            if await _read(process, output):
                return Said(bytes(output), await process.wait())
    except TimeoutError:
        pass
    finally:
        await end(process)
    return Said(bytes(output), None, process)


async def _read(process: Process, output: bytearray) -> bool:
    """Whether that was all of it."""
    assert process.stdout
    while more := await process.stdout.read(65_536):
        output += more
        if len(output) >= OUTPUT_MAX:
            return False
    return True


async def end(process: Process) -> None:
    """Kill it if it is there still, and hear it out: a pipe that is not read to its end is never closed."""
    assert process.stdout
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_DIES_S):
            while await process.stdout.read(65_536):
                pass
            await process.wait()
