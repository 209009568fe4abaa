"""Conversations on the agent's socket: many at once, and none that costs the others."""

import asyncio
import json
import os
import resource
import socket
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from support import eventually

from rankpulse.agent import sock
from rankpulse.agent.sock import Garbage, Line, LocalSocket, Peer

pytestmark = pytest.mark.live


class Echo:
    """Says everything back, and as much as it is asked to."""

    def __init__(self) -> None:
        self.open: list[Line] = []
        self.peers: list[Peer] = []

    async def __call__(self, line: Line, peer: Peer, pidfd: int, _hello: Mapping[str, Any]) -> None:
        os.close(pidfd)
        self.open.append(line)
        self.peers.append(peer)
        line.send({"ok": {}})
        try:
            while (message := await line.receive()) is not None:
                if "bad" in message:
                    raise Garbage("that was bad")
                for _ in range(message.get("times", 1)):
                    line.send(message)
        finally:
            self.open.remove(line)


@pytest.fixture
def echo() -> Echo:
    return Echo()


@pytest.fixture
async def server(run_dir: str, echo: Echo) -> AsyncIterator[LocalSocket]:
    server = LocalSocket(f"{run_dir}/agent.sock", {"ping": lambda uid: {"uid": uid}}, {"echo": echo})
    await server.open()
    yield server
    await server.close()


class Client:
    def __init__(self, run_dir: str) -> None:
        self.path = f"{run_dir}/agent.sock"

    async def open(self, line: bytes = b'{"op":"echo","v":1}\n') -> "Client":
        self.reader, self.writer = await asyncio.open_unix_connection(self.path)
        self.writer.write(line)
        return self

    async def hear(self) -> dict[str, Any] | None:
        line = await asyncio.wait_for(self.reader.readline(), 10)
        return json.loads(line) if line else None

    def say(self, **message: Any) -> None:
        self.writer.write(json.dumps(message).encode() + b"\n")

    def close(self) -> None:
        self.writer.close()


async def test_the_peer_is_the_kernels_word(run_dir: str, server: LocalSocket, echo: Echo) -> None:
    client = await Client(run_dir).open()
    assert await client.hear() == {"ok": {}}
    client.say(hello=1)
    assert await client.hear() == {"hello": 1}
    assert (echo.peers[0].pid, echo.peers[0].uid) == (os.getpid(), os.geteuid())
    client.close()
    await eventually(lambda: not echo.open, 5, "the conversation over")


@pytest.mark.parametrize(
    "line", [b'{"op":"echo"}\n', b'{"op":"echo","v":2}\n', b'{"op":"sing","v":1}\n', b'{"v":1}\n', b"[]\n", b"x" * 5000]
)
async def test_what_is_no_hello(run_dir: str, server: LocalSocket, line: bytes) -> None:
    client = await Client(run_dir).open(line)
    answer = await client.hear()
    assert answer
    assert set(answer) == {"error"}
    assert await client.hear() is None
    client.close()


@pytest.mark.parametrize(
    "line", [b"x\n", b"[1]\n", b"\xff\n", b"x" * 5000 + b"\n", b"[" * 4000 + b"\n", b'{"bad":1}\n']
)
async def test_garbage_in_a_conversation_is_told_and_ends_it(
    run_dir: str, server: LocalSocket, echo: Echo, line: bytes
) -> None:
    client = await Client(run_dir).open()
    await client.hear()
    client.writer.write(line)
    answer = await client.hear()
    assert answer
    assert set(answer) == {"error"}
    assert await client.hear() is None
    await eventually(lambda: not echo.open, 5, "the conversation over")
    client.close()


async def test_whoever_does_not_read_is_dropped_and_holds_up_nobody(
    run_dir: str, server: LocalSocket, echo: Echo
) -> None:
    deaf = socket.socket(socket.AF_UNIX)
    deaf.connect(f"{run_dir}/agent.sock")
    deaf.sendall(b'{"op":"echo","v":1}\n')
    await eventually(lambda: echo.open, 5, "the conversation")
    deaf.sendall(json.dumps({"text": "x" * 3000, "times": 1000}).encode() + b"\n")
    client = await Client(run_dir).open(b'{"op":"ping"}\n')
    assert await client.hear() == {"uid": os.geteuid()}
    await eventually(lambda: not echo.open, 5, "the deaf one dropped")
    client.close()
    deaf.close()


async def test_five_hundred_and_twelve_at_once(run_dir: str, server: LocalSocket, echo: Echo) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 4096:
        pytest.skip(f"the system lets this process have {hard} files only")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4096), hard))
    clients = [await Client(run_dir).open() for _ in range(512)]
    try:
        for client in clients:
            assert await client.hear() == {"ok": {}}
        for client in clients:
            client.say(n=1)
        for client in clients:
            assert await client.hear() == {"n": 1}
    finally:
        for client in clients:
            client.close()
    await eventually(lambda: not echo.open, 10, "all conversations over")


def test_one_user_cannot_take_all(run_dir: str) -> None:
    server = LocalSocket(f"{run_dir}/agent.sock", {})
    other = os.geteuid() + 1
    server._clients[other] = sock._PER_USER_MAX
    assert not server._crowded(other)
    server._clients[other] += 1
    assert server._crowded(other)
    assert not server._crowded(other + 1)
    assert not server._crowded(os.geteuid())


async def test_conversations_end_with_the_server(run_dir: str, server: LocalSocket, echo: Echo) -> None:
    client = await Client(run_dir).open()
    await client.hear()
    await server.close()
    assert await client.hear() is None
    assert not echo.open
    client.close()
