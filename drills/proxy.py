"""A TCP proxy that makes a path slow, silent or broken: `python -m rankpulse.drills.proxy HOST PORT`.

As a program it prints its port and then obeys lines on stdin: `delay SECONDS [JITTER]`, `stall [up|down]`, `release`,
`swallow`, `cut`, `mend`. It answers each with `ok` or a sentence, and ends with its stdin.
"""

import asyncio
import contextlib
import random
import struct
import sys
import threading
from collections.abc import Callable, Coroutine
from socket import SO_LINGER, SOL_SOCKET
from typing import Any, Final, Self

CHUNK: Final = 64 * 1024
_BACKLOG: Final = 256  # chunks in flight per direction; then the sender feels back pressure, as on a real path
_RESET: Final = struct.pack("ii", 1, 0)  # close with RST


class TcpProxy:
    """Forwards `listen`:`port` to the target. Use in a loop (`async with`), or from outside with `ThreadedProxy`."""

    def __init__(
        self, target_host: str, target_port: int, *, rng: random.Random | None = None, listen: str = "127.0.0.1"
    ) -> None:
        self._target, self.listen = (target_host, target_port), listen
        self._rng = rng or random.Random()  # noqa: S311
        self._delay_s = self._jitter_s = 0.0
        self._open = {"up": asyncio.Event(), "down": asyncio.Event()}
        self._hole: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0
        self.release()

    @property
    def endpoint(self) -> str:
        return f"{self.listen}:{self.port}"

    async def start(self) -> None:
        await self._listen()

    async def stop(self) -> None:
        self.cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def delay(self, seconds: float, jitter: float = 0.0) -> None:
        """Every chunk comes `seconds` later, give or take `jitter`; order is kept. 0: none."""
        self._delay_s, self._jitter_s = seconds, jitter

    def stall(self, direction: str = "both") -> None:
        """Hold bytes, keep connections. `up`: only towards the target; `down`: only its answers."""
        for way, gate in self._open.items():
            if direction in (way, "both"):
                gate.clear()

    def release(self) -> None:
        """Let held bytes go."""
        for gate in self._open.values():
            gate.set()

    def swallow(self) -> None:
        """Present connections lose all further bytes for good, and stay open; new ones work."""
        self._hole |= self._writers

    def cut(self) -> None:
        """Reset all connections, forget held bytes, refuse new connections."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for task in self._tasks:
            task.cancel()
        for writer in self._writers:
            with contextlib.suppress(OSError):
                writer.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_LINGER, _RESET)
            writer.transport.abort()

    async def mend(self) -> None:
        """Listen again, on the same port, with nothing stalled."""
        self.release()
        await self._listen()

    async def _listen(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(self._accepted, self.listen, self.port, reuse_address=True)
            self.port = self._server.sockets[0].getsockname()[1]

    def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._keep(self._serve(reader, writer))

    def _keep(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            there, back = await asyncio.open_connection(*self._target)
        except OSError:
            self._drop(writer)
            return
        self._writers.add(back)
        try:
            await asyncio.gather(self._pipe("up", reader, back), self._pipe("down", there, writer))
        except OSError:
            pass
        finally:
            self._drop(writer)
            self._drop(back)

    def _drop(self, writer: asyncio.StreamWriter) -> None:
        self._writers.discard(writer)
        self._hole.discard(writer)
        writer.transport.abort()

    async def _pipe(self, way: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read with arrival times, write when each chunk is due: a delay delays, it does not throttle."""
        queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_BACKLOG)
        reading = self._keep(self._fill(reader, queue))
        try:
            await self._drain(way, queue, writer)
        finally:
            reading.cancel()

    async def _fill(self, reader: asyncio.StreamReader, queue: asyncio.Queue[tuple[float, bytes]]) -> None:
        loop, data = asyncio.get_running_loop(), b"-"
        while data:
            try:
                data = await reader.read(CHUNK)
            except OSError:
                data = b""
            late = self._delay_s + self._rng.uniform(-self._jitter_s, self._jitter_s)
            await queue.put((loop.time() + max(0.0, late), data))

    async def _drain(self, way: str, queue: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due, data = await queue.get()
            await asyncio.sleep(due - loop.time())
            await self._open[way].wait()
            if writer in self._hole:
                continue
            if not data:
                break
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()


class ThreadedProxy:
    """`TcpProxy` in a thread of its own, for callers without a loop. Every method returns when it has happened."""

    def __init__(self, target_host: str, target_port: int) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tcp-proxy", daemon=True)
        self._thread.start()

        async def make() -> TcpProxy:
            proxy = TcpProxy(target_host, target_port)
            await proxy.start()
            return proxy

        self._proxy: TcpProxy = self._wait(make())
        self.port = self._proxy.port
        self.endpoint = self._proxy.endpoint

    def _wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=10)

    def _do(self, act: Callable[..., None], *args: Any) -> None:
        async def inside() -> None:
            act(*args)

        self._wait(inside())

    def delay(self, seconds: float, jitter: float = 0.0) -> None:
        self._do(self._proxy.delay, seconds, jitter)

    def stall(self, direction: str = "both") -> None:
        self._do(self._proxy.stall, direction)

    def release(self) -> None:
        self._do(self._proxy.release)

    def swallow(self) -> None:
        self._do(self._proxy.swallow)

    def cut(self) -> None:
        self._do(self._proxy.cut)

    def mend(self) -> None:
        self._wait(self._proxy.mend())

    def stop(self) -> None:
        self._wait(self._proxy.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=10)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


async def obey(proxy: TcpProxy, line: str) -> str:
    """Do what one line says; the answer is `ok` or what was not understood."""
    match line.split():
        case ["delay", *numbers] if 1 <= len(numbers) <= 2:
            try:
                proxy.delay(*map(float, numbers))
            except ValueError:
                return f"delay takes seconds, not {numbers}"
        case ["stall"]:
            proxy.stall()
        case ["stall", "up" | "down" as way]:
            proxy.stall(way)
        case ["release"]:
            proxy.release()
        case ["swallow"]:
            proxy.swallow()
        case ["cut"]:
            proxy.cut()
        case ["mend"]:
            await proxy.mend()
        case _:
            return "commands: delay SECONDS [JITTER], stall [up|down], release, swallow, cut, mend"
    return "ok"


async def _main(host: str, port: int, listen: str) -> None:
    loop = asyncio.get_running_loop()
    async with TcpProxy(host, port, listen=listen) as proxy:
        print(proxy.port, flush=True)
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            print(await obey(proxy, line), flush=True)


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4) or not sys.argv[2].isdigit():
        sys.exit("usage: python -m rankpulse.drills.proxy HOST PORT [ADDRESS TO LISTEN ON]")
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_main(sys.argv[1], int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else "127.0.0.1"))
