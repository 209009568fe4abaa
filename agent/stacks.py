"""What Python of a rank is doing: asked of the process itself, once until it answers, and read. Bounded.

The question needs Python's lock. Where that is held for long it stays open, and holds one thread of the worker server,
until it is answered: so it is not put again, and whoever looks meanwhile waits for the same answer.
"""

import asyncio
import re
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from rankpulse.agent import proc, worker_server
from rankpulse.agent.watch import Who, Worker
from rankpulse.agent.worker_server import NoAnswer
from rankpulse.core.words import printable

TEXT_MAX: Final = 1024 * 1024
FRAMES_MAX: Final = 120
UNANSWERED: Final = "Python does not answer"
_FRAME_MAX: Final = 240
_LINE_MAX: Final = 1000  # of what was written from outside: a function may have any name, and patterns take their time
_FAULTHANDLER: Final = re.compile(r'^  File "(.*)", line (\d+|\?\?\?) in (.*)$')
_PY_SPY: Final = re.compile(r"^    (\S.*) \((.*?)(?::(\d+))?\)$")
_PACKAGES: Final = re.compile(r"^.*/(?:site|dist)-packages/")
_LIBRARY: Final = re.compile(r"^.*/lib(?:64)?/python3\.\d+/")


class Told(NamedTuple):
    """The whole text, or "" and why there is none."""

    text: str
    why: str = ""


@dataclass(slots=True)
class Stacks:
    """`run_dir`: where the workers' slots and servers lie."""

    run_dir: str
    _open: dict[Who, asyncio.Task[bytes]] = field(default_factory=dict)

    async def of(self, worker: Worker, wait_s: float) -> Told:
        """The stacks of all its threads. Never raises."""
        who = (worker.pid, worker.start)
        earlier = self._open.get(who)
        if earlier is None or earlier.done():
            self._open[who] = asyncio.create_task(
                worker_server.ask(self.run_dir, worker, worker_server.TRACEBACK, TEXT_MAX)
            )
        task = self._open[who]
        await asyncio.wait({task}, timeout=wait_s)
        if not task.done():
            return Told("", UNANSWERED)
        self._open.pop(who, None)
        if task.cancelled():  # somebody else saw it end meanwhile
            return Told("", "the process is gone")
        try:
            return Told(task.result().decode("utf-8", "replace"))
        except NoAnswer as error:
            return Told("", str(error))
        except OSError as error:
            return Told("", f"its server cannot be reached: {error.strerror or error}")

    def forget_dead(self) -> None:
        for pid, start in list(self._open):
            seen = proc.stat(pid)
            if seen is None or seen.start != start:
                _drop(self._open.pop((pid, start)))

    def close(self) -> None:
        for task in self._open.values():
            _drop(task)
        self._open.clear()


def _drop(task: "asyncio.Task[bytes]") -> None:
    task.cancel()
    task.add_done_callback(lambda done: done.cancelled() or done.exception())


# -- reading -------------------------------------------------------------------------------------------------------
def main_thread(text: str) -> tuple[str, ...]:
    """Frames of the main thread, innermost last, out of what faulthandler wrote; () where it cannot be told.

    It lists the newest thread first, the main thread last; other threads of Python's making begin in `_bootstrap`.
    """
    threads = [_of_thread(block) for block in text.split("\n\n") if "hread 0x" in block]
    last = threads[-1:] if threads and threads[-1] and threads[-1][-1][2] != "_bootstrap" else []
    for frames in (*last, *(one for one in threads if one and one[-1][2] == "<module>")):
        return tuple(_frame(*frame) for frame in reversed(frames[:FRAMES_MAX]))
    return ()


def _of_thread(block: str) -> list[tuple[str, str, str]]:
    found = (_FAULTHANDLER.match(line) for line in block.splitlines())
    return [(one.group(1), one.group(2), one.group(3)) for one in found if one]


def main_thread_of_py_spy(text: str) -> tuple[str, ...]:
    """The same out of what `py-spy dump` wrote."""
    frames: list[tuple[str, str, str]] = []
    inside = False
    for line in text.splitlines():
        if line.startswith("Thread "):
            inside = '"MainThread"' in line or (not frames and not inside)
            frames = [] if '"MainThread"' in line else frames
        elif inside and len(line) <= _LINE_MAX and (found := _PY_SPY.match(line)):
            name, path, number = found.groups()
            frames.append((path, number or "?", name))
    return tuple(_frame(path, line, name) for path, line, name in reversed(frames[:FRAMES_MAX]))


def _frame(path: str, line: str, name: str) -> str:
    """path:line function; of the path what says which module it is, for directories say nothing of the program."""
    return printable(f"{short(path)}:{line} {name}", _FRAME_MAX)


def short(path: str) -> str:
    for prefix in (_PACKAGES, _LIBRARY):
        if prefix.match(path):
            return prefix.sub("", path, count=1)
    return "/".join(path.split("/")[-2:])


def bare(frame: str) -> str:
    """A frame with nothing but the file's own name and the function."""
    where, _, name = frame.rpartition(" ")
    return f"{where.rsplit('/', 1)[-1]} {name}".strip()


def redacted(text: str) -> str:
    """A whole text of stacks likewise."""
    return "\n".join(map(_redacted_line, text.split("\n")))


def _redacted_line(line: str) -> str:
    """As faulthandler or py-spy wrote it. In one pass: whose line it is may have made it as long as it likes."""
    mark = '  File "' if line.startswith('  File "') else " ("
    head, found, path = line.partition(mark)
    return f"{head}{found}{path.rpartition('/')[2]}" if found else line
