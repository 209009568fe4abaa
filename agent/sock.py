"""The node's unix socket: what a job, or a person on the node, may ask the agent. One line of JSON each way.

The first line decides: most operations are one question and one answer; a session stays open, and both sides speak
when they have something to say. Who asks is the kernel's word (SO_PEERCRED), never the request's.
"""

import asyncio
import contextlib
import json
import os
import socket
import struct
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from rankpulse.agent import proc

LINE_MAX: Final = 4096
PROTOCOL: Final = 1
_TIMEOUT_S: Final = 5.0
_CLIENTS_MAX: Final = 1024
_PER_USER_MAX: Final = 256  # of users other than root and the agent's own
_UNREAD_MAX: Final = 64 * 1024
_SO_PEERPIDFD: Final = 77  # Linux 6.5


class Garbage(Exception):
    """What the peer sent is no message; the text says what would be."""


class Peer(NamedTuple):
    """Who speaks, by the kernel's word. `start`: as in /proc/PID/stat."""

    pid: int
    start: int
    uid: int

    @property
    def launcher(self) -> str:
        return f"{self.pid}.{self.start}"


class Line:
    """One open conversation. `send` never waits: a peer that does not read what it is told is dropped."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    def send(self, message: Mapping[str, Any]) -> bool:
        """False when the peer is gone, or was dropped because it does not read."""
        transport = self._writer.transport
        if transport.is_closing():
            return False
        if transport.get_write_buffer_size() > _UNREAD_MAX:
            transport.abort()
            return False
        self._writer.write(json.dumps(message).encode() + b"\n")
        return True

    async def receive(self) -> dict[str, Any] | None:
        """The next message; None at the end. Raises `Garbage`."""
        try:
            line = await self._reader.readline()
            if not line.endswith(b"\n"):
                return None
            message = msgspec.json.decode(line)  # strict: no lone surrogates, which nothing could write down again
        except (OSError, asyncio.IncompleteReadError):
            return None
        except (ValueError, RecursionError):  # also a line over the limit
            raise Garbage(f"send one line of JSON of at most {LINE_MAX} bytes") from None
        if not isinstance(message, dict):
            raise Garbage("send a JSON object")
        return message

    async def settle(self) -> None:
        """Wait until what was sent has left, or the peer is gone."""
        with contextlib.suppress(OSError):
            await self._writer.drain()

    def close(self) -> None:
        self._writer.close()

    def peer(self) -> tuple[Peer, int] | None:
        """Who speaks, and a pidfd of it that the receiver owns; None when it is gone or cannot be seen from here."""
        pid, uid = self._credentials()
        try:
            pidfd = self._pidfd(pid)
        except OSError:
            return None
        seen = proc.stat(pid) if pid else None
        if seen is None or proc.has_exited(pidfd):
            os.close(pidfd)
            return None
        return Peer(pid, seen.start, uid), pidfd

    def uid(self) -> int:
        return self._credentials()[1]

    def _credentials(self) -> tuple[int, int]:
        raw = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        pid, uid, _gid = struct.unpack("3i", raw)
        return pid, uid

    def _pidfd(self, pid: int) -> int:
        """From the socket itself where the kernel can: a number could have been given to another process by now."""
        try:
            return int(self._socket.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD))
        except OSError:
            return os.pidfd_open(pid)

    @property
    def _socket(self) -> Any:
        return self._writer.get_extra_info("socket")


Answer: TypeAlias = Callable[[int], Mapping[str, Any]]  # given the peer's uid
Session: TypeAlias = Callable[[Line, Peer, int, Mapping[str, Any]], Awaitable[None]]  # it owns the pidfd


class LocalSocket:
    """`answers`: what each one-shot operation returns; `sessions`: what keeps up each conversation."""

    def __init__(
        self,
        path: str,
        answers: Mapping[str, Answer],
        sessions: Mapping[str, Session] | None = None,
        refused: Callable[[int, str], None] = lambda uid, why: None,
    ) -> None:
        """`refused(uid, why)` is told of everybody who was."""
        self._path, self._answers, self._sessions, self._refused = path, answers, sessions or {}, refused
        self._server: asyncio.Server | None = None
        self._clients: Counter[int] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()
        self._made: os.stat_result | None = None

    async def open(self) -> None:
        """Listen. Raises OSError with the reason. Any user may connect when root serves; else only our own."""
        if len(os.fsencode(self._path)) > 107:
            raise OSError(f"path of {len(self._path)} characters, a unix socket can have 107: choose a shorter run_dir")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)
        listener = self._bind()
        self._made = os.lstat(self._path)
        self._server = await asyncio.start_unix_server(self._serve, sock=listener, limit=LINE_MAX, backlog=512)

    def _bind(self) -> socket.socket:
        """A socket that has its mode from the first moment: no name is touched again that another could have put."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        mask = os.umask(0o111 if os.geteuid() == 0 else 0o177)
        try:
            listener.bind(self._path)
        except OSError:
            listener.close()
            raise
        finally:
            os.umask(mask)
        return listener

    async def close(self) -> None:
        """Its file is removed, unless another agent's lies there by now. Open sessions end."""
        if self._server:
            self._server.close()
            with contextlib.suppress(OSError):
                if self._made and os.path.samestat(os.lstat(self._path), self._made):
                    os.unlink(self._path)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = Line(reader, writer)
        task = asyncio.current_task()
        assert task
        self._tasks.add(task)
        uid = line.uid()
        self._clients[uid] += 1
        try:
            await self._converse(line, uid)
        except (OSError, TimeoutError, asyncio.CancelledError):
            pass  # the peer went away or fell silent, or the agent ends
        finally:
            self._tasks.discard(task)
            self._clients -= Counter([uid])  # those at zero go
            line.close()

    async def _converse(self, line: Line, uid: int) -> None:
        try:
            if self._crowded(uid):
                raise Garbage("too many connections at once: try again")
            async with asyncio.timeout(_TIMEOUT_S):
                request = await line.receive()
            if request is None:
                raise Garbage(f"send one line of JSON of at most {LINE_MAX} bytes")
            operation = request.get("op")
            if isinstance(operation, str) and operation in self._sessions:
                await self._session(self._sessions[operation], line, request)
            else:
                line.send(self._answer(operation, uid))
        except Garbage as error:
            line.send({"error": str(error)})
            self._refused(uid, str(error))
        async with asyncio.timeout(_TIMEOUT_S):
            await line.settle()

    def _crowded(self, uid: int) -> bool:
        if uid in (0, os.geteuid()):
            return self._clients.total() > 2 * _CLIENTS_MAX
        return self._clients[uid] > _PER_USER_MAX or self._clients.total() > _CLIENTS_MAX

    def _answer(self, operation: object, uid: int) -> Mapping[str, Any]:
        if not isinstance(operation, str) or operation not in self._answers:
            known = sorted([*self._answers, *self._sessions])
            raise Garbage(f'unknown request: {{"op": one of {known}}}')
        return self._answers[operation](uid)

    async def _session(self, session: Session, line: Line, hello: Mapping[str, Any]) -> None:
        if hello.get("v") != PROTOCOL:
            raise Garbage(f"this agent speaks version {PROTOCOL}: give the job and the agent the same rankpulse")
        found = line.peer()
        if found is None:
            raise Garbage("the agent cannot see your process: give it the host's pid namespace (hostPID)")
        await session(line, *found, hello)
