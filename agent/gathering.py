"""Everything that is collected of some ranks and their machine, side by side, each with its own deadline."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

from rankpulse.agent import kernel_lines, ras
from rankpulse.agent.aside import Aside, TooSlow
from rankpulse.agent.beside import Around, Surroundings
from rankpulse.agent.evidence import Evidence, Seen
from rankpulse.agent.gpus import Gpus, Use
from rankpulse.agent.kernel_lines import Lines
from rankpulse.agent.py_spy import PySpy
from rankpulse.agent.watch import Worker

ALL_S: Final = 1.75  # what has not come by then is left out; the rest of two seconds is for telling it
_KERNEL_S: Final = 1.0
T = TypeVar("T")


class Gathered(NamedTuple):
    """`py_spy`: stacks from outside, by pid; `ras`: NCCL's own view; `left_out`: what is missing, in words."""

    seen: list[Seen]
    around: Around
    kernel: Lines = Lines()
    use: Use = Use()
    py_spy: dict[int, str] = {}  # noqa: RUF012
    ras: str = ""
    left_out: tuple[str, ...] = ()


@dataclass(slots=True)
class Gathering:
    """`monotonic`: seconds since boot, the kernel log's clock."""

    evidence: Evidence
    gpus: Gpus
    monotonic: Callable[[], float]
    surroundings: Surroundings = field(default_factory=Surroundings)
    py_spy: PySpy = field(default_factory=PySpy)
    log: Aside = field(default_factory=lambda: Aside("rankpulse-log", 1))  # the kernel's, whatever processes do

    async def of(self, workers: Sequence[Worker]) -> Gathered:
        """Within `ALL_S`, whatever they do."""
        until = asyncio.get_running_loop().time() + ALL_S
        around = asyncio.create_task(self.surroundings.look(workers))
        kernel, use = asyncio.create_task(self._kernel()), asyncio.create_task(self.gpus.look(ALL_S - 0.15))
        text = asyncio.create_task(self._ras(around, until))
        seen = await self.evidence.look(workers)
        spied = asyncio.create_task(self._spied(seen, until))
        await asyncio.wait({around, kernel, use, text, spied}, timeout=until - asyncio.get_running_loop().time())
        lost: list[str] = []
        if _mute(seen) and self.py_spy.path() is None:
            lost.append("stacks from outside: py-spy is not installed here")
        return Gathered(
            seen,
            _told(around, Around({}), "what lies around its ranks", lost),
            _told(kernel, Lines(), "its kernel's lines", lost),
            _told(use, Use(), "its GPUs", lost),
            _told(spied, {}, "stacks from outside", lost),
            _told(text, "", "NCCL RAS", lost),
            tuple(lost),
        )

    def close(self) -> None:
        self.evidence.close()
        self.surroundings.close()
        self.log.close()

    async def _ras(self, around: "asyncio.Task[Around]", until: float) -> str:
        """What NCCL says, where a rank that can answer serves it."""
        await asyncio.wait({around})
        where = None if around.cancelled() or around.exception() else around.result().ras
        return await ras.status(where, until - asyncio.get_running_loop().time() - 0.1) if where else ""

    async def _kernel(self) -> Lines:
        try:
            return await self.log.call(_KERNEL_S, kernel_lines.read, self.monotonic())
        except TooSlow:
            return Lines()

    async def _spied(self, seen: list[Seen], until: float) -> dict[int, str]:
        """Stacks of those whose Python did not tell them. Also of one that is stopped: nobody connects to it."""
        mute = _mute(seen)
        left = until - asyncio.get_running_loop().time() - 0.1
        return await self.py_spy.stacks(mute, left) if mute else {}


def _mute(seen: list[Seen]) -> list[int]:
    """Whose Python did not tell its stacks, as far as they live."""
    return [one.row.pid for one in seen if not one.python.text and one.row.state not in ("Z", "X")]


def _told(task: "asyncio.Task[T]", otherwise: T, what: str, lost: list[str]) -> T:
    """What it came to by now. A fault of ours in one of them costs that one."""
    if not task.done():
        task.cancel()
        lost.append(f"{what}: not in time")
    elif task.cancelled() or task.exception() is not None:
        lost.append(f"{what}: looking failed ({type(task.exception()).__name__})")
    else:
        return task.result()
    return otherwise
