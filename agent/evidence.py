"""What the local ranks of a round are doing: the kernel's word on each process, and torch's on its collectives.

A training process in trouble must not be made worse: nobody connects to one that is stopped (it would accept and
never answer), every question has a deadline, and a server that left questions unanswered is asked no more.
"""

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

import msgspec

from rankpulse.agent import proc, trace, usage, worker_server
from rankpulse.agent.stacks import UNANSWERED, Stacks, Told
from rankpulse.agent.trace import Trace
from rankpulse.agent.watch import Who, Worker
from rankpulse.agent.worker_server import NoAnswer
from rankpulse.core.evidence import ROWS_MAX_BYTES, Row

_ANSWER_S: Final = 1.2
_PYTHON_S: Final = 1.1  # Python that has not got its lock for so long is held: it changes hands every 5 ms
_ALL_S: Final = 1.3  # for all ranks of the node
_AT_ONCE: Final = 32  # traces in memory
_UNANSWERED_MAX: Final = 3  # in a row; a standstill is looked at twice before anything is done about it
_PROMPT_S: Final = 0.5  # C++ that takes longer is starved of CPU itself: then Python's silence says nothing
_PONG_MAX: Final = 1024
_LARGE: Final = 64 * 1024  # parsed in a thread
_NOT_ASKED: Final = "not asked in time"
T = TypeVar("T")


class Seen(NamedTuple):
    """What one worker was found doing. `body`: of its trace, as it came; `held`: whether C++ answers and Python does
    not, None: not known."""

    worker: Worker
    row: Row
    trace: Trace
    body: bytes
    python: Told
    held: bool | None


class _Server(NamedTuple):
    """What its recorder said. `said`: "ok", or why there are no positions."""

    said: str
    trace: Trace = Trace()
    body: bytes = b""


@dataclass(slots=True)
class Evidence:
    """Asks for the evidence of some workers. `run_dir`: where their slots and servers lie."""

    run_dir: str
    stacks: Stacks = field(init=False)
    _unanswered: dict[Who, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.stacks = Stacks(self.run_dir)

    async def gather(self, workers: Iterable[Worker]) -> list[Row]:
        """One row per worker, within 1.5 s whatever they do."""
        return [one.row for one in await self.look(workers)]

    async def look(self, workers: Iterable[Worker]) -> list[Seen]:
        """All that they tell, and the kernel of them, in order of rank; within 1.5 s whatever they do."""
        workers = list(workers)
        gate = asyncio.Semaphore(_AT_ONCE)
        self._forget_dead()
        before, began = {one.pid: usage.cpu(one) for one in workers}, time.monotonic()
        servers = {one: asyncio.create_task(self._ask(one, gate)) for one in workers}
        pythons = {one: asyncio.create_task(self.stacks.of(one, _PYTHON_S)) for one in workers}
        await asyncio.sleep(usage.LOOK_S)
        rows = {one: usage.row(one, before[one.pid], time.monotonic() - began) for one in workers}
        spoke = {one: asyncio.create_task(self._spoke(one)) for one in workers if not pythons[one].done()}
        if workers:
            every = {*servers.values(), *pythons.values(), *spoke.values()}
            await asyncio.wait(every, timeout=_ALL_S - usage.LOOK_S)
        result = []
        for one in workers:
            server = _so_far(servers[one], _Server(_NOT_ASKED))
            python = _so_far(pythons[one], Told("", _NOT_ASKED))
            there = one in spoke and _so_far(spoke[one], False)
            result.append(_seen(one, rows[one], server, python, there=there))
        return sorted(result, key=lambda seen: (seen.row.rank, seen.row.pid))

    def close(self) -> None:
        self.stacks.close()

    async def _ask(self, worker: Worker, gate: asyncio.Semaphore) -> _Server:
        who = (worker.pid, worker.start)
        if self._unanswered.get(who, 0) >= _UNANSWERED_MAX:
            return _Server("left earlier questions unanswered: not asked again")
        async with gate:
            try:
                async with asyncio.timeout(_ANSWER_S):
                    body = await worker_server.ask(self.run_dir, worker, worker_server.TRACE, trace.TRACE_MAX_BYTES)
                    self._unanswered.pop(who, None)
                    return _Server("ok", await _read(body), body)
            except TimeoutError:
                self._unanswered[who] = self._unanswered.get(who, 0) + 1
                return _Server(f"no answer within {_ANSWER_S:g} s")
            except (NoAnswer, trace.BadTrace) as error:
                return _Server(str(error))
            except OSError as error:
                return _Server(f"its server cannot be reached: {error.strerror or error}")

    async def _spoke(self, worker: Worker) -> bool:
        """Whether its C++ answers at once, late in the look, when Python has not yet."""
        if (worker.pid, worker.start) in self._unanswered:
            return False
        try:
            async with asyncio.timeout(_PROMPT_S):
                await worker_server.ask(self.run_dir, worker, worker_server.PING, _PONG_MAX)
        except NoAnswer as error:
            return error.spoke
        except (OSError, TimeoutError):
            return False
        return True

    def _forget_dead(self) -> None:
        self.stacks.forget_dead()
        for pid, start in list(self._unanswered):
            seen = proc.stat(pid)
            if seen is None or seen.start != start:
                del self._unanswered[pid, start]


def _so_far(task: "asyncio.Task[T]", otherwise: T) -> T:
    """What it came to; `otherwise` where it is late, was given up elsewhere, or failed: that costs itself, no other."""
    if not task.done():
        task.cancel()
        return otherwise
    return otherwise if task.cancelled() or task.exception() is not None else task.result()


def _seen(worker: Worker, row: Row, server: _Server, python: Told, *, there: bool) -> Seen:
    """`there`: its C++ answers at once."""
    row = msgspec.structs.replace(row, server=server.said, positions=server.trace.rows)
    held = None
    if python.text:
        held = False
    elif python.why == UNANSWERED and there and row.state not in ("T", "t", "Z", "X"):
        held = True
    return Seen(worker, row, server.trace, server.body, python, held)


def encode(rows: list[Row]) -> str:
    """As JSON text of at most `ROWS_MAX_BYTES`: where that is too little, positions go first, of the last rows."""
    rows = list(rows)
    while True:
        text = msgspec.json.encode(rows)
        if len(text) <= ROWS_MAX_BYTES or not rows:
            return text.decode()
        fat = next((i for i in reversed(range(len(rows))) if rows[i].positions), None)
        if fat is None:
            rows.pop()
        else:
            rows[fat] = msgspec.structs.replace(rows[fat], positions=(), server="left out: too much at once")


async def _read(body: bytes) -> Trace:
    """Milliseconds of work, tens of them for a full recorder: then not on the loop."""
    if len(body) < _LARGE:
        return trace.read(body)
    return await asyncio.to_thread(trace.read, body)
