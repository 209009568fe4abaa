"""The node's unix socket: what a job, or a person on the node, may ask the agent. One line in, one line out."""

import asyncio
import contextlib
import json
import os
import socket
import struct
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

_LINE_MAX: Final = 4096
_TIMEOUT_S: Final = 5.0
_CLIENTS_MAX: Final = 64
Answer: TypeAlias = Callable[[int], Mapping[str, Any]]  # given the peer's uid


class LocalSocket:
    """`answers`: what each operation returns. Who asks is the kernel's word (SO_PEERCRED), not the request's."""

    def __init__(self, path: str, answers: Mapping[str, Answer]) -> None:
        self._path = path
        self._answers = answers
        self._server: asyncio.Server | None = None
        self._clients = 0
        self._made: os.stat_result | None = None

    async def open(self) -> None:
        """Listen. Raises OSError with the reason. Any user may connect when root serves; else only our own."""
        if len(os.fsencode(self._path)) > 107:
            raise OSError(f"path of {len(self._path)} characters, a unix socket can have 107: choose a shorter run_dir")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)
        listener = self._bind()
        self._made = os.lstat(self._path)
        self._server = await asyncio.start_unix_server(self._serve, sock=listener, limit=_LINE_MAX)

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
        """Its file is removed, unless another agent's lies there by now."""
        if self._server:
            self._server.close()
            with contextlib.suppress(OSError):
                if self._made and os.path.samestat(os.lstat(self._path), self._made):
                    os.unlink(self._path)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._clients += 1
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                answer = await self._answer(reader, writer)
                writer.write(json.dumps(answer).encode() + b"\n")
                await writer.drain()
        except (OSError, TimeoutError):
            pass  # the peer went away or fell silent
        finally:
            self._clients -= 1
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Mapping[str, Any]:
        if self._clients > _CLIENTS_MAX:
            return {"error": "too many requests at once: try again"}
        try:
            line = await reader.readline()
            request = json.loads(line)
            answer = self._answers[request["op"]]
        except (ValueError, RecursionError):  # also a line over the limit
            return {"error": f"send one line of JSON of at most {_LINE_MAX} bytes"}
        except (KeyError, TypeError):
            return {"error": f'unknown request: {{"op": one of {sorted(self._answers)}}}'}
        return answer(_peer_uid(writer))


def _peer_uid(writer: asyncio.StreamWriter) -> int:
    raw = writer.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _pid, uid, _gid = struct.unpack("3i", raw)
    return int(uid)
