"""What the local ranks of a round are doing: the kernel's word on each process, and torch's on its collectives.

A training process in trouble must not be made worse: nobody connects to one that is stopped (it would accept and
never answer), every question has a deadline, and a server that left questions unanswered is asked no more.
"""

import asyncio
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar

import msgspec

from rankpulse.agent import proc, trace, worker_server
from rankpulse.agent.stacks import UNANSWERED, Stacks, Told
from rankpulse.agent.trace import Trace
from rankpulse.agent.watch import Who, Worker
from rankpulse.agent.worker_server import NoAnswer
from rankpulse.core.evidence import ROWS_MAX_BYTES, Row

LOOK_S: Final = 0.4  # between the two looks at a process
_BUSY_SHARE: Final = 0.15  # of one core: our own question costs less, and so do threads that wait for Python's lock
_RAN_SHARE: Final = 0.02
_STARVED_SHARE: Final = 0.6
_ANSWER_S: Final = 1.2
_PYTHON_S: Final = 1.1  # Python that has not got its lock for so long is held: it changes hands every 5 ms
_ALL_S: Final = 1.3  # for all ranks of the node
_AT_ONCE: Final = 32  # traces in memory
_UNANSWERED_MAX: Final = 3  # in a row; a standstill is looked at twice before anything is done about it
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
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
        before, began = {one.pid: _cpu(one) for one in workers}, time.monotonic()
        servers = {one: asyncio.create_task(self._ask(one, gate)) for one in workers}
        pythons = {one: asyncio.create_task(self.stacks.of(one, _PYTHON_S)) for one in workers}
        await asyncio.sleep(LOOK_S)
        rows = {one: _kernel_row(one, before[one.pid], time.monotonic() - began) for one in workers}
        spoke = {one: asyncio.create_task(self._spoke(one)) for one in workers if not pythons[one].done()}
        if workers:
            every = {*servers.values(), *pythons.values(), *spoke.values()}
            await asyncio.wait(every, timeout=_ALL_S - LOOK_S)
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
    if task.done():
        return task.result()
    task.cancel()
    return otherwise


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


# -- the kernel's word --------------------------------------------------------------------------------------------
class _Cpu(NamedTuple):
    """`ticks`: of all its threads; `waited`: of its main thread, how long it ran and how long it waited for a CPU."""

    ticks: int
    waited: tuple[int, int] | None


def _kernel_row(worker: Worker, before: _Cpu | None, seconds: float) -> Row:
    seen, after = proc.stat(worker.pid), _cpu(worker)
    known = seen is not None and seen.start == worker.start
    moving = None if before is None or after is None else _moving(before, after, seconds)
    state = seen.state if seen and known else "X"
    return Row(worker.who.rank, worker.pid, worker.start, state, _wchan(worker.pid) if known else "", moving, "")


def _moving(before: _Cpu, after: _Cpu, seconds: float) -> bool:
    if is_busy(after.ticks - before.ticks, seconds):
        return True
    if before.waited is None or after.waited is None:
        return False
    return is_starved(after.waited[0] - before.waited[0], after.waited[1] - before.waited[1], seconds)


def is_starved(ran_ns: int, waited_ns: int, seconds: float) -> bool:
    """Whether its main thread would be at work if it were let: on a CPU, or waiting for one, nearly all the time. One
    that looks for Python's lock again and again may wait for a CPU as long, but hardly runs."""
    whole = seconds * 1e9
    return ran_ns >= _RAN_SHARE * whole and ran_ns + waited_ns >= _STARVED_SHARE * whole


def is_busy(ticks: int, seconds: float) -> bool:
    """Whether so much CPU in so much time is work of its own. One that waits uses a little, too: a full recorder takes
    tens of milliseconds to tell, and each thread that waits for Python's lock looks for it 200 times a second."""
    return ticks > busy_ticks(seconds)


def busy_ticks(seconds: float) -> float:
    return _BUSY_SHARE * seconds * _TICKS_PER_S


def _cpu(worker: Worker) -> _Cpu | None:
    """What it has used, None when it is gone."""
    ticks = proc.cpu_ticks(worker.pid, worker.start)
    return None if ticks is None else _Cpu(ticks, proc.waited(worker.pid))


def _wchan(pid: int) -> str:
    """The kernel function its main thread waits in; "" when it runs, or when that is hidden from us."""
    try:
        with open(f"/proc/{pid}/wchan", encoding="ascii", errors="replace") as file:
            name = file.read(64).strip()
    except OSError:
        return ""
    return "" if name == "0" else name
