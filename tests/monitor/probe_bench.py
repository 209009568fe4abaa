"""A prober on its own, what it is told, and places that behave in all the ways in which a machine can."""

import asyncio
import contextlib
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

from support import eventually

from rankpulse.core import codec, look
from rankpulse.core.addresses import peer
from rankpulse.core.events import Probe, Probed
from rankpulse.core.records import Beat, NodeState
from rankpulse.monitor import clock
from rankpulse.monitor.names import Names
from rankpulse.monitor.prober import Prober
from rankpulse.monitor.vitals import Vitals
from rankpulse.store.secret import Tokens

BOOT = "boot-1"
Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Lookout:
    """A prober and the results it has told."""

    def __init__(self, *, timeout_s: float = 0.4, token_file: str = "", now: Callable[[], float] | None = None) -> None:
        self.clock = clock.Clock(now=now or clock.system().now, utc=lambda: 0.0)
        self.told: list[Probed] = []
        self.vitals = Vitals()
        self.count = 0
        self.prober = Prober(
            self.told.append,
            timeout_s=timeout_s,
            tokens=Tokens(token_file, "probe.token_file"),
            boot_id=BOOT,
            clock=self.clock,
            vitals=self.vitals,
            names=Names(self.clock),
        )

    async def look(self, address: str, node: str = "n1", boot_id: str = BOOT) -> Probed:
        """One look, to its end."""
        self.count += 1
        number = self.count
        self.prober.send([Probe(node, address, boot_id, number)])
        found = await eventually(lambda: [t for t in self.told if t.number == number], 10, f"the look at {address}")
        return found[0]  # type: ignore[no-any-return]

    def learn(self, address: str, node: str = "n1", boot_id: str = BOOT) -> None:
        self.prober.learn(state(address, node, boot_id))


def state(address: str, node: str = "n1", boot_id: str = BOOT) -> NodeState:
    return NodeState(
        node=node, inc=1, at=0.0, host="h", agent_version="1", interval_s=1.0, probe=address, boot_id=boot_id
    )


def truth(node: str = "n1", token: bytes = b"") -> Talk:
    """An agent that answers."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        said = look.understand(await reader.readline())
        writer.write(look.answer(said, codec.encode(Beat(node=node, inc=3, seq=4, at=0.0)), token))

    return talk


def words(*said: bytes, pause_s: float = 0.0) -> Talk:
    """Says this whatever it is asked, with a pause after each piece."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for piece in said:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(pause_s)

    return talk


async def nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(30)


async def broken_off(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Ends with RST."""
    await reader.readline()
    sock: socket.socket = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@contextlib.asynccontextmanager
async def place(talk: Talk) -> AsyncIterator[str]:
    """Where somebody talks so; the address."""
    tasks = set[asyncio.Task[None]]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        tasks.add(task)
        with contextlib.suppress(OSError, codec.Refused, asyncio.CancelledError):
            await talk(reader, writer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield peer(*server.sockets[0].getsockname()[:2])
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@contextlib.contextmanager
def stopped() -> Iterator[str]:
    """A listener that takes no connection, as of a stopped process: its kernel does."""
    with socket.create_server(("127.0.0.1", 0), backlog=256) as listener:
        yield peer(*listener.getsockname())


@contextlib.contextmanager
def hole() -> Iterator[str]:
    """A place from which nothing comes back, not even a refusal: its queue is full, so the kernel drops what comes."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        where = listener.getsockname()
        for _ in range(20):
            filler = stack.enter_context(socket.socket())
            filler.settimeout(0.1)
            try:
                filler.connect(where)
            except TimeoutError:
                break
        else:
            raise AssertionError("this kernel's queue does not fill")
        yield peer(*where)


def closed() -> str:
    """Where nobody listens."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return peer(*sock.getsockname())
