"""Answers a direct look at this agent over TCP, past the store: its present beat, and evidence on suspicion.

One line asks, one line answers, one question per connection, all of it within limits: whoever connects, however many
and however slowly, costs a bounded amount of work beside the heartbeat.
"""

import asyncio
import contextlib
import errno
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from rankpulse.agent import reach
from rankpulse.agent.log import Log
from rankpulse.core import codec, look
from rankpulse.core.addresses import parse_listen
from rankpulse.core.codec import Refused
from rankpulse.core.records import Beat
from rankpulse.core.settings import ProbeSettings
from rankpulse.core.words import printable
from rankpulse.store.secret import Tokens

ANSWERED, REFUSED = "answered", "refused"
CLIENTS_MAX: Final = 64  # open at once; then the one that has been open for longest is dropped
TIME_S: Final = 2.0  # of one connection; of one that asks for more than a look:
MORE_S: Final = 6.0
_BACKLOG: Final = 4096  # of a stopped agent the kernel still takes this many connections, if the system allows it
_BURST: Final = 16  # connections taken before the heartbeat's turn
_BREATH_S: Final = 0.01
_NO_ROOM_S: Final = 1.0  # out of file descriptors: until the next try
_SAME_BEAT_S: Final = 0.1  # a beat just made serves every question within this time
_SAY_EVERY_S: Final = 60.0  # refusals, at most: whoever knocks and is believed in turns cannot fill the log either
_ROOMLESS: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class ProbeServer:
    """`beat` makes the present beat. `towards`: hosts of the store; `name`: of this machine; `more`: what answers other
    operations."""

    def __init__(
        self,
        node: str,
        settings: ProbeSettings,
        beat: Callable[[], Beat],
        *,
        towards: Sequence[str],
        name: str,
        clock: Callable[[], float],
        log: Log,
        more: Mapping[str, Callable[[look.Ask], Awaitable[bytes]]] | None = None,
    ) -> None:
        self._more = dict(more or {})
        self.counts: Counter[str] = Counter({ANSWERED: 0, REFUSED: 0})
        self._node, self._settings, self._beat = node, settings, beat
        self._towards, self._name, self._clock, self._log = towards, name, clock, log
        self._near: list[str] = []
        self._listener: socket.socket | None = None
        self._serving: asyncio.Task[None] | None = None
        self._clients: dict[asyncio.Task[None], socket.socket] = {}  # the one that has been open for longest first
        self._proved: set[asyncio.Task[None]] = set()  # who of them waits for more than a look: displaced last
        self._made: tuple[float, bytes] | None = None
        self._refusals = _Refusals()

    async def open(self) -> None:
        """Listen. Raises OSError, ValueError or `StoreError` with the reason why not."""
        host, port = parse_listen(self._settings.listen)
        self._tokens = Tokens(
            self._settings.token_file,
            "probe.token_file",
            clock=self._clock,
            warn=lambda text: self._log.say("warning", text),
        )
        self._listener = await _listen(host, port)
        self._near = await reach.numbers_of(self._towards) if not self._settings.advertise else []
        self._serving = asyncio.create_task(self._serve(self._listener), name="probe")

    @property
    def listen(self) -> str:
        """Where it is to listen, as configured."""
        return self._settings.listen

    @property
    def address(self) -> str:
        """host:port for others, "" while nothing listens. Worked out anew each time: addresses of machines change."""
        if self._listener is None:
            return ""
        host, port = self._listener.getsockname()[:2]
        return self._settings.advertise or reach.advertised(host, port, self._name, self._near)

    async def close(self) -> None:
        tasks = [*self._clients, *([self._serving] if self._serving else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    async def _serve(self, listener: socket.socket) -> None:
        while True:
            try:
                for _ in range(_BURST):
                    self._take((await asyncio.get_running_loop().sock_accept(listener))[0])
            except OSError as error:  # a peer that has gone already, or no room for another file
                if error.errno in _ROOMLESS:
                    await asyncio.sleep(_NO_ROOM_S)
            except Exception as error:  # a bug must not make this agent look stuck for ever
                self._log.change("probe", "error", f"looks are taken up again after {error!r:.200}")
                await asyncio.sleep(_NO_ROOM_S)
            await asyncio.sleep(_BREATH_S)

    def _take(self, client: socket.socket) -> None:
        if len(self._clients) >= CLIENTS_MAX:
            eldest = next((one for one in self._clients if one not in self._proved), next(iter(self._clients)))
            del self._clients[eldest]
            eldest.cancel()
        task = asyncio.create_task(self._converse(client))
        self._clients[task] = client
        task.add_done_callback(lambda done: self._ended(done, client))

    def _ended(self, task: asyncio.Task[None], client: socket.socket) -> None:
        """Also of one that was dropped before it began."""
        self._clients.pop(task, None)
        self._proved.discard(task)
        client.close()

    async def _converse(self, client: socket.socket) -> None:
        try:
            async with asyncio.timeout(TIME_S) as limit:
                await asyncio.get_running_loop().sock_sendall(client, await self._answer(client, limit))
        except (OSError, TimeoutError):
            self.counts[REFUSED] += 1

    async def _answer(self, client: socket.socket, limit: asyncio.Timeout) -> bytes:
        """To whatever comes. Raises OSError when nothing whole comes."""
        try:
            answer = await self._to(look.understand(await _line(client)), limit)
        except Refused as refused:
            self.counts[REFUSED] += 1
            self._say_refusal(str(refused), client)
            return look.failure(str(refused))
        except OSError:
            raise
        except Exception as error:  # the answer could not be made: the agent goes on, and says that it is in trouble
            self.counts[REFUSED] += 1
            self._log.change("probe", "error", f"a look cannot be answered: {type(error).__name__}: {error}"[:300])
            return look.failure("the agent cannot tell its beat or its evidence: see its log")
        self.counts[ANSWERED] += 1
        self._refusals.answered()
        return answer

    async def _to(self, ask: look.Ask, limit: asyncio.Timeout) -> bytes:
        """The answer. Raises `Refused`. Nothing is told, not even what is wrong with it, before the asker is proved."""
        token = look.proven(ask, self._tokens.get())
        if token is None:
            raise Refused("not proved by our token: is probe.token_file the same on agents and monitors?")
        if ask.node != self._node:
            raise Refused(f"this is node {self._node}")
        if ask.op == look.PROBE:
            return look.answer(ask, self._present(), token)
        more = self._more.get(ask.op)
        if more is None:
            raise Refused(f"unknown op {ask.op}: this agent answers {', '.join((look.PROBE, *self._more))}")
        limit.reschedule(asyncio.get_running_loop().time() + MORE_S)  # only for who is proved
        if task := asyncio.current_task():
            self._proved.add(task)
        return look.answer_part(ask, await more(ask), token)

    def _present(self) -> bytes:
        now = self._clock()
        if self._made is None or not 0 <= now - self._made[0] <= _SAME_BEAT_S:
            self._made = now, codec.encode(self._beat())
        return self._made[1]

    def _say_refusal(self, reason: str, client: socket.socket) -> None:
        unsaid = self._refusals.due(self._clock())
        if unsaid is None:
            return
        more = f" (and {unsaid} more since that was last said)" if unsaid else ""
        with contextlib.suppress(OSError):
            asker = printable(client.getpeername()[0], 64)
            self._log.say("warning", f"a look from {asker} was refused: {reason}{more}")


class _Refusals:
    """Which of them are said: the first, and again once somebody was believed meanwhile and a while has passed."""

    def __init__(self) -> None:
        self._said_at: float | None = None
        self._believed = True
        self._unsaid = 0

    def answered(self) -> None:
        self._believed = True

    def due(self, now: float) -> int | None:
        """How many were not said before this one; None: nor is this one."""
        if not self._believed or (self._said_at is not None and now - self._said_at < _SAY_EVERY_S):
            self._unsaid += 1
            return None
        unsaid, self._unsaid = self._unsaid, 0
        self._said_at, self._believed = now, False
        return unsaid


async def _line(client: socket.socket) -> bytes:
    """The first line, its end included. Raises `Refused` for one that is too long, and OSError when it breaks off."""
    data = b""
    while b"\n" not in data:
        if len(data) >= look.ASK_MAX:
            raise Refused(f"more than {look.ASK_MAX} bytes")
        more = await asyncio.get_running_loop().sock_recv(client, look.ASK_MAX)
        if not more:
            raise OSError("it broke off")
        data += more
    return data[: data.index(b"\n") + 1]


async def _listen(host: str, port: int) -> socket.socket:
    """A listening socket, of both families for "::". Raises OSError."""
    rows = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, address = rows[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if host == "::" else 1)
        listener.setblocking(False)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener
