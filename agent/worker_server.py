"""torch's worker server in a training process: one question, one bounded answer, and only from that very process.

Nobody connects to a process that is stopped: it would accept and never answer, and must not be made worse.
"""

import asyncio
import contextlib
import os
import socket
import stat as modes
import struct
from typing import Final

from rankpulse.agent import proc
from rankpulse.agent.watch import Worker

TRACE: Final = "fr_trace_json"  # by C++ alone: also while Python is held
PING: Final = "ping"
TRACEBACK: Final = "dump_traceback"  # needs Python's lock: unanswered, it holds one of a few threads of the server
NO_HANDLER: Final = "404"
_REQUEST: Final = "POST /handler/{} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\nConnection: close\r\n\r\n"
_HEAD_MAX: Final = 16 * 1024


class NoAnswer(Exception):
    """The server did not tell; the text says why. `spoke`: it is there and answered otherwise, with this status."""

    def __init__(self, why: str, *, spoke: bool = False, status: str = "") -> None:
        super().__init__(why)
        self.spoke, self.status = spoke, status


async def ask(run_dir: str, worker: Worker, handler: str, limit: int, question: bytes = b"") -> bytes:
    """What that handler answers to the question, in at most `limit` bytes. Waits for as long as it takes.

    Raises `NoAnswer` and OSError.
    """
    seen = proc.stat(worker.pid)
    if seen is None or seen.start != worker.start or seen.state in "ZX":
        raise NoAnswer("the process is gone")
    if seen.state in "Tt":
        raise NoAnswer("not asked: the process is stopped")
    reader, writer = await asyncio.open_unix_connection(sock=_connect(run_dir, worker), limit=_HEAD_MAX)
    try:
        writer.write(_REQUEST.format(handler, len(question)).encode() + question)
        return await _response(reader, limit)
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


async def _response(reader: asyncio.StreamReader, limit: int) -> bytes:
    """The body of a good answer, by its length or up to the end."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        raise NoAnswer("its server does not speak HTTP") from None
    lines = head.split(b"\r\n")
    status = lines[0].split(b" ", 2)
    if len(status) < 2 or not status[0].startswith(b"HTTP/1.") or status[1] != b"200":
        code = status[1].decode("ascii", "replace")[:3] if len(status) > 1 else ""
        raise NoAnswer(f"its server answered {lines[0][:60].decode('ascii', 'replace')!r}", spoke=True, status=code)
    return await _body(reader, _length(lines[1:]), limit)


def _length(headers: list[bytes]) -> int | None:
    for header in headers:
        name, _, value = header.partition(b":")
        if name.strip().lower() == b"content-length":
            with contextlib.suppress(ValueError):
                return int(value.strip().decode("ascii", "replace")[:20])
            raise NoAnswer("its server does not speak HTTP")
    return None


async def _body(reader: asyncio.StreamReader, length: int | None, limit: int) -> bytes:
    too_much = NoAnswer(f"its answer has more than {limit} bytes", spoke=True)
    if length is not None and not 0 <= length <= limit:
        raise too_much
    body = bytearray()
    while length is None or len(body) < length:
        part = await reader.read(256 * 1024)
        if not part:
            break
        body += part
        if len(body) > limit:
            raise too_much
    if length is not None and len(body) < length:
        raise NoAnswer("its server broke off")
    return bytes(body)
