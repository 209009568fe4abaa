"""What the local ranks of a round are doing: the kernel's word on each process, and torch's on its collectives.

A training process in trouble must not be made worse: nobody connects to one that is stopped (it would accept and
never answer), every question has a deadline, and a server that left questions unanswered is asked no more.
"""

import asyncio
import contextlib
import os
import socket
import stat as modes
import struct
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import msgspec

from rankpulse.agent import proc, trace
from rankpulse.agent.watch import Worker
from rankpulse.core.evidence import ROWS_MAX_BYTES, Position, Row

_LOOK_S: Final = 0.4  # between the two looks at a process's CPU time
_BUSY_SHARE: Final = 0.15  # of one core: our own question costs less, and so do threads that wait for Python's lock
_ANSWER_S: Final = 1.0
_ALL_S: Final = 1.3  # for all ranks of the node
_AT_ONCE: Final = 32  # traces in memory
_UNANSWERED_MAX: Final = 3  # in a row; a standstill is looked at twice before anything is done about it
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_REQUEST: Final = (
    b"POST /handler/fr_trace_json HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
)
_HEAD_MAX: Final = 16 * 1024
_LARGE: Final = 64 * 1024  # parsed in a thread


class NoAnswer(Exception):
    """The worker server gave no positions; the text says why."""


@dataclass(slots=True)
class Evidence:
    """Asks for the evidence of some workers. `run_dir`: where their slots and servers lie."""

    run_dir: str
    _unanswered: dict[tuple[int, int], int] = field(default_factory=dict)

    async def gather(self, workers: Iterable[Worker]) -> list[Row]:
        """One row per worker, within 1.5 s whatever they do."""
        workers = list(workers)
        gate = asyncio.Semaphore(_AT_ONCE)
        self._forget_dead()
        before, began = {one.pid: _cpu(one) for one in workers}, time.monotonic()
        asked = {one: asyncio.create_task(self._ask(one, gate)) for one in workers}
        await asyncio.sleep(_LOOK_S)
        rows = {one: _kernel_row(one, before[one.pid], time.monotonic() - began) for one in workers}
        if asked:
            await asyncio.wait(asked.values(), timeout=_ALL_S - _LOOK_S)
        result = []
        for one, task in asked.items():
            server, positions = task.result() if task.done() else ("not asked in time", ())
            task.cancel()
            result.append(msgspec.structs.replace(rows[one], server=server, positions=positions))
        return sorted(result, key=lambda row: (row.rank, row.pid))

    async def _ask(self, worker: Worker, gate: asyncio.Semaphore) -> tuple[str, tuple[Position, ...]]:
        """("ok", positions), or why there are none."""
        who = (worker.pid, worker.start)
        if self._unanswered.get(who, 0) >= _UNANSWERED_MAX:
            return "left earlier questions unanswered: not asked again", ()
        async with gate:
            try:
                async with asyncio.timeout(_ANSWER_S):
                    body = await _fetch(self.run_dir, worker)
                    self._unanswered.pop(who, None)
                    return "ok", await _read(body)
            except TimeoutError:
                self._unanswered[who] = self._unanswered.get(who, 0) + 1
                return f"no answer within {_ANSWER_S:g} s", ()
            except (NoAnswer, trace.BadTrace) as error:
                return str(error), ()
            except OSError as error:
                return f"its server cannot be reached: {error.strerror or error}", ()

    def _forget_dead(self) -> None:
        for pid, start in list(self._unanswered):
            seen = proc.stat(pid)
            if seen is None or seen.start != start:
                del self._unanswered[pid, start]


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


async def _read(body: bytes) -> tuple[Position, ...]:
    """Milliseconds of work, tens of them for a full recorder: then not on the loop."""
    if len(body) < _LARGE:
        return trace.positions(body)
    return await asyncio.to_thread(trace.positions, body)


# -- the kernel's word --------------------------------------------------------------------------------------------
def _kernel_row(worker: Worker, before: int | None, seconds: float) -> Row:
    seen, after = proc.stat(worker.pid), _cpu(worker)
    known = seen is not None and seen.start == worker.start
    moving = None if before is None or after is None else is_busy(after - before, seconds)
    state = seen.state if seen and known else "X"
    return Row(worker.who.rank, worker.pid, worker.start, state, _wchan(worker.pid) if known else "", moving, "")


def is_busy(ticks: int, seconds: float) -> bool:
    """Whether so much CPU in so much time is work of its own. One that waits uses a little, too: a full recorder takes
    tens of milliseconds to tell, and each thread that waits for Python's lock looks for it 200 times a second."""
    return ticks > _BUSY_SHARE * seconds * _TICKS_PER_S


def _cpu(worker: Worker) -> int | None:
    """Clock ticks it has used, None when it is gone."""
    return proc.cpu_ticks(worker.pid, worker.start)


def _wchan(pid: int) -> str:
    """The kernel function its main thread waits in; "" when it runs, or when that is hidden from us."""
    try:
        with open(f"/proc/{pid}/wchan", encoding="ascii", errors="replace") as file:
            name = file.read(64).strip()
    except OSError:
        return ""
    return "" if name == "0" else name


# -- the worker server ---------------------------------------------------------------------------------------------
async def _fetch(run_dir: str, worker: Worker) -> bytes:
    """The flight recorder's trace as JSON bytes. Raises `NoAnswer` and OSError."""
    seen = proc.stat(worker.pid)
    if seen is None or seen.start != worker.start or seen.state in "ZX":
        raise NoAnswer("the process is gone")
    if seen.state in "Tt":
        raise NoAnswer("not asked: the process is stopped")
    reader, writer = await asyncio.open_unix_connection(sock=_connect(run_dir, worker), limit=_HEAD_MAX)
    try:
        writer.write(_REQUEST)
        return await _response(reader)
    finally:
        writer.transport.abort()


def _connect(run_dir: str, worker: Worker) -> socket.socket:
    """Connected to the worker's own server, which lies beside its slot; never to a path that anybody claims."""
    name = f"{worker.file.name.removesuffix('.slot')}.sock"
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    dir_fd = os.open(os.path.join(run_dir, worker.file.directory), flags)
    try:
        _check_file(name, dir_fd, worker.file.uid)
        return _connected(f"/proc/self/fd/{dir_fd}/{name}", worker)
    finally:
        os.close(dir_fd)


def _check_file(name: str, dir_fd: int, uid: int) -> None:
    try:
        info = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
    except FileNotFoundError:
        raise NoAnswer("it has no worker server") from None
    if not modes.S_ISSOCK(info.st_mode) or info.st_uid != uid:
        raise NoAnswer("what lies where its worker server should be is not its socket")


def _connected(path: str, worker: Worker) -> socket.socket:
    """A unix socket connects at once or not at all. Who listens is the kernel's word."""
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
    try:
        line.connect(path)
        raw = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        pid, uid, _gid = struct.unpack("3i", raw)
        if (pid, uid) != (worker.pid, worker.file.uid):
            raise NoAnswer("another process listens where its worker server should be")
    except BlockingIOError:
        line.close()
        raise NoAnswer("its server is full of unanswered questions") from None
    except (OSError, NoAnswer):
        line.close()
        raise
    return line


async def _response(reader: asyncio.StreamReader) -> bytes:
    """The body of a good answer, by its length or up to the end."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        raise NoAnswer("its server does not speak HTTP") from None
    lines = head.split(b"\r\n")
    status = lines[0].split(b" ", 2)
    if len(status) < 2 or not status[0].startswith(b"HTTP/1.") or status[1] != b"200":
        raise NoAnswer(f"its server answered {lines[0][:60].decode('ascii', 'replace')!r}")
    return await _body(reader, _length(lines[1:]))


def _length(headers: list[bytes]) -> int | None:
    for header in headers:
        name, _, value = header.partition(b":")
        if name.strip().lower() == b"content-length":
            with contextlib.suppress(ValueError):
                return int(value.strip().decode("ascii", "replace")[:20])
            raise NoAnswer("its server does not speak HTTP")
    return None


async def _body(reader: asyncio.StreamReader, length: int | None) -> bytes:
    if length is not None and not 0 <= length <= trace.TRACE_MAX_BYTES:
        raise NoAnswer(f"its trace has more than {trace.TRACE_MAX_BYTES} bytes")
    body = bytearray()
    while length is None or len(body) < length:
        part = await reader.read(256 * 1024)
        if not part:
            break
        body += part
        if len(body) > trace.TRACE_MAX_BYTES:
            raise NoAnswer(f"its trace has more than {trace.TRACE_MAX_BYTES} bytes")
    if length is not None and len(body) < length:
        raise NoAnswer("its server broke off")
    return bytes(body)
