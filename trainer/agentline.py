"""A session with the node's agent over its unix socket: one line of JSON each way, and never a wait inside.

For torchrun (the rendezvous handler) and for the worker holder, not for the training process. Whoever uses it waits
by itself (`wait`), so that signals and other descriptors are met as well. When the agent is away the line is closed,
and `open` opens it anew.
"""

import json
import os
import select
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rankpulse.trainer.place import run_dir

SOCKET = "agent.sock"
LINE_MAX = 4096  # what the agent reads
_READ = 65536
_BUFFER_MAX = 1 << 20  # an answer without an end is no answer


def socket_path(environ: Mapping[str, str], endpoint: str = "") -> str:
    """Where the agent listens: `endpoint` if that is a path (of the socket or of its directory), else the run dir's."""
    if not endpoint.startswith("/"):
        return f"{run_dir(environ)}/{SOCKET}"
    return f"{endpoint.rstrip('/')}/{SOCKET}" if os.path.isdir(endpoint) else endpoint


class AgentLine:
    """One session, begun with `hello` whenever the line is opened. `trouble`: why it is closed, for people."""

    def __init__(
        self,
        path: str,
        hello: Mapping[str, Any],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.path = path
        self.trouble = ""
        self._hello = hello
        self._clock = clock
        self._tried_at = float("-inf")
        self._socket: socket.socket | None = None
        self._rest = b""

    @property
    def connected(self) -> bool:
        return self._socket is not None

    def fileno(self) -> int:
        """For poll; -1 while closed."""
        return -1 if self._socket is None else self._socket.fileno()

    def open(self, retry_s: float = 1.0) -> bool:
        """Connect unless connected, or tried less than `retry_s` ago. True when this call has opened the line."""
        now = self._clock()
        if self._socket is not None or now - self._tried_at < retry_s:
            return False
        self._tried_at = now
        line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        try:
            line.connect(self.path)
        except OSError as error:  # EAGAIN, too: its backlog is full, so it is stopped or drowned
            line.close()
            self.trouble = os.strerror(error.errno) if error.errno else str(error)
            return False
        self._socket, self._rest, self.trouble = line, b"", ""
        return self.send(self._hello)

    def send(self, message: Mapping[str, Any]) -> bool:
        """False when it did not go out: the line is closed then. Raises ValueError when it is longer than LINE_MAX."""
        data = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        if len(data) > LINE_MAX:
            raise ValueError(f"{len(data)} bytes for the agent, which reads {LINE_MAX}: shorten the label of the run")
        if self._socket is None:
            return False
        try:
            sent = self._socket.send(data, socket.MSG_NOSIGNAL)
        except OSError as error:
            self.close(str(error))
            return False
        if sent != len(data):  # its buffer is full of what it does not read
            self.close("the agent does not read")
            return False
        return True

    def receive(self) -> list[dict[str, Any]]:
        """What has come, in order. A line that ends, or speaks what we do not understand, is closed."""
        resets = 0
        while self._socket is not None and len(self._rest) < _BUFFER_MAX:
            try:
                data = self._socket.recv(_READ)
            except BlockingIOError:
                break
            except OSError as error:
                # it ended with words of ours unread; what it said last is still there
                resets += 1
                if resets == 1 and isinstance(error, ConnectionResetError):
                    continue
                self.close(str(error))
                break
            if not data:
                messages = self._messages()
                self.close("the agent ended the session")
                return messages
            self._rest += data
        return self._messages()

    def _messages(self) -> list[dict[str, Any]]:
        *lines, self._rest = self._rest.split(b"\n")
        found = []
        for line in lines:
            try:
                message = json.loads(line)
            except (ValueError, RecursionError):
                message = None
            if not isinstance(message, dict):
                self.close("the agent said what is no JSON object")
                break
            found.append(message)
        if len(self._rest) >= _BUFFER_MAX:
            self.close("the agent said a line without an end")
        return found

    def wait(self, timeout_s: float, also: Sequence[int] = ()) -> bool:
        """Until the agent says something (True), one of the descriptors `also` is readable, or time is up."""
        poller = select.poll()
        for fd in (self.fileno(), *also):
            if fd >= 0:
                poller.register(fd, select.POLLIN)
        ready = poller.poll(max(timeout_s, 0.0) * 1000)
        return any(fd == self.fileno() for fd, _ in ready)

    def close(self, why: str = "") -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket, self._rest, self.trouble = None, b"", why or self.trouble
