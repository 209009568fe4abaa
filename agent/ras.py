"""NCCL's own view of its communicators (RAS), from the rank of this machine that serves it. Text, read by people."""

import asyncio
from typing import Final

from rankpulse.core.words import printable

ADDRESS: Final = ("127.0.0.1", 28028)
VARIABLE: Final = "NCCL_RAS_ADDR"
TEXT_MAX: Final = 64 * 1024
_ASK: Final = (b"timeout 1\n", b"verbose status\n")  # its own wait for silent peers is five seconds


def place(environment: dict[str, str]) -> tuple[str, int]:
    """Where it listens for clients, by the environment of a rank. Only ever this machine is asked."""
    port = environment.get(VARIABLE, "").rpartition(":")[2]
    return ADDRESS[0], int(port) if port.isdecimal() and 0 < int(port) < 65_536 else ADDRESS[1]


async def status(where: tuple[str, int], within_s: float) -> str:
    """What it says by then, perhaps not all of it; "" where nobody answers. Never raises."""
    heard = bytearray()
    try:
        async with asyncio.timeout(within_s):
            await _converse(where, heard)
    except (OSError, TimeoutError):
        pass
    return heard.decode("utf-8", "replace")


async def _converse(where: tuple[str, int], heard: bytearray) -> None:
    reader, writer = await asyncio.open_connection(*where)
    try:
        writer.write(_ASK[0])
        await reader.readline()
        writer.write(_ASK[1])
        while len(heard) < TEXT_MAX and (more := await reader.read(8192)):
            heard += more
    finally:
        writer.transport.abort()


def first_lines(text: str, most: int = 6) -> tuple[str, ...]:
    """What tells something, for a line each."""
    told = [line.strip() for line in text.splitlines() if any(letter.isalnum() for letter in line)]
    return tuple(f"NCCL RAS: {printable(line, 160)}" for line in told[:most])
