"""The proxy does to a path what it says, and nothing else."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator

import pytest

from rankpulse.drills.proxy import TcpProxy, ThreadedProxy, obey


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1000):
        writer.write(data)
        await writer.drain()
    writer.close()


@pytest.fixture
async def target() -> AsyncIterator[int]:
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


@pytest.fixture
async def proxy(target: int) -> AsyncIterator[TcpProxy]:
    async with TcpProxy("127.0.0.1", target) as made:
        yield made


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def at(cls, port: int) -> "Client":
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def say(self, text: bytes, wait_s: float = 10.0) -> bytes:
        """What comes back within the time, b"" at the end of the connection."""
        self._writer.write(text)
        return await self.hear(wait_s)

    async def hear(self, wait_s: float = 10.0) -> bytes:
        return await asyncio.wait_for(self._reader.read(1000), wait_s)


async def test_it_forwards_both_ways_and_the_end(proxy: TcpProxy) -> None:
    client = await Client.at(proxy.port)
    assert await client.say(b"hello") == b"hello"
    client._writer.write_eof()
    assert await client.hear() == b""


async def test_stalled_bytes_come_after_the_release(proxy: TcpProxy) -> None:
    client = await Client.at(proxy.port)
    for way in ("both", "up", "down"):
        proxy.stall(way)
        with pytest.raises(TimeoutError):
            await client.say(b"held", 0.1)
        proxy.release()
        assert await client.hear() == b"held"


async def test_a_cut_resets_and_refuses_until_mended(proxy: TcpProxy) -> None:
    client, port = await Client.at(proxy.port), proxy.port
    assert await client.say(b"a") == b"a"
    proxy.cut()
    with pytest.raises(ConnectionResetError):
        await client.hear()
    with pytest.raises(ConnectionRefusedError):
        await Client.at(port)
    await proxy.mend()
    await proxy.mend()
    assert proxy.port == port
    assert await (await Client.at(port)).say(b"b") == b"b"


async def test_swallowed_connections_stay_mute_and_new_ones_work(proxy: TcpProxy) -> None:
    client = await Client.at(proxy.port)
    assert await client.say(b"a") == b"a"
    proxy.swallow()
    with pytest.raises(TimeoutError):
        await client.say(b"b", 0.1)
    assert await (await Client.at(proxy.port)).say(b"c") == b"c"


async def test_a_delay_delays_and_keeps_the_order(proxy: TcpProxy) -> None:
    client, loop = await Client.at(proxy.port), asyncio.get_running_loop()
    proxy.delay(0.1, 0.05)
    begun = loop.time()
    for n in range(5):
        client._writer.write(str(n).encode())
        await client._writer.drain()
    heard = b""
    while len(heard) < 5:
        heard += await client.hear()
    assert heard == b"01234"
    assert loop.time() - begun >= 0.1  # twice at least 0.05
    proxy.delay(0)


async def test_a_dead_target_closes_the_connection(target: int) -> None:
    async with TcpProxy("127.0.0.1", 1) as proxy:
        client = await Client.at(proxy.port)
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await client._reader.readexactly(1)


async def test_lines_are_obeyed_or_answered(proxy: TcpProxy) -> None:
    for line in ("delay 0.3 0.1", "delay 0", "stall", "stall up", "release", "swallow", "cut", "mend"):
        assert await obey(proxy, line + "\n") == "ok"
    for line in ("", "delay", "delay x", "stall sideways", "explode"):
        assert await obey(proxy, line) != "ok"


async def test_in_a_thread(target: int) -> None:
    def use() -> None:
        with ThreadedProxy("127.0.0.1", target) as proxy:
            proxy.delay(0.0)
            proxy.stall()
            proxy.release()
            proxy.cut()
            proxy.mend()
            proxy.swallow()
            assert proxy.endpoint == f"127.0.0.1:{proxy.port}"

    await asyncio.to_thread(use)


@pytest.mark.live
async def test_as_a_program(target: int) -> None:
    command = [sys.executable, "-m", "rankpulse.drills.proxy", "127.0.0.1", str(target)]
    program = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert program.stdin is not None
    assert program.stdout is not None
    port = int(await asyncio.to_thread(program.stdout.readline))
    assert await (await Client.at(port)).say(b"a") == b"a"
    for line in ("cut", "mend"):
        program.stdin.write(line + "\n")
        program.stdin.flush()
        assert await asyncio.to_thread(program.stdout.readline) == "ok\n"
    assert await (await Client.at(port)).say(b"b") == b"b"
    program.stdin.close()
    assert await asyncio.to_thread(program.wait, 20) == 0
    program.stdout.close()
