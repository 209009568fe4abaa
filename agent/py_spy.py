"""Stacks from outside, where Python does not answer: `py-spy`, if installed, reads memory and stops nobody."""

import asyncio
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from rankpulse.agent import children

AT_ONCE: Final = 2  # each takes a core for some tenths of a second
MOST: Final = 16  # of one collection
LEAST_S: Final = 0.2  # with less time it is not begun


def _installed() -> str | None:
    return shutil.which("py-spy")


@dataclass(slots=True)
class PySpy:
    """`path`: where it is, None: nowhere."""

    path: Callable[[], str | None] = field(default=_installed)

    async def stacks(self, pids: Iterable[int], within_s: float) -> dict[int, str]:
        """What it says of these processes, of as many as there is time for. Never raises."""
        program = self.path()
        if program is None or within_s < LEAST_S:
            return {}
        gate, until = asyncio.Semaphore(AT_ONCE), asyncio.get_running_loop().time() + within_s
        chosen = list(pids)[:MOST]
        found = await asyncio.gather(*(_dump(program, pid, gate, until) for pid in chosen))
        return {pid: text for pid, text in zip(chosen, found, strict=True) if text}


async def _dump(program: str, pid: int, gate: asyncio.Semaphore, until: float) -> str:
    async with gate:
        left = until - asyncio.get_running_loop().time()
        if left < LEAST_S:
            return ""
        try:
            said = await children.run([program, "dump", "--nonblocking", "--pid", str(pid)], left)
        except OSError:
            return ""
    return threads_of(said.output.decode("utf-8", "replace")) if said.code == 0 else ""


def threads_of(text: str) -> str:
    """Without what it says first: the command line, which may hold secrets, and whatever else somebody put there."""
    return text[text.rfind("\nPython v") + 1 :]
