"""One direct look at an agent over TCP, and what may be concluded from how it ends.

The facts are about a machine that may be dead, so each way in which a connection can fail is told apart: what the other
machine did, what the path did, and what this machine could not do, which is no fact about anybody else.
"""

import asyncio
import errno
import select
import socket
from collections.abc import Callable
from typing import Final, NamedTuple

from rankpulse.core.events import ACCEPTED, REFUSED, SILENT, UNABLE
from rankpulse.core.look import ANSWER_MAX

HEARD: Final = "heard"  # a line came back; whether it is an answer is for others to say
_OVERSLEPT: Final = 1.5  # times the time allowed: this monitor itself did not run meanwhile


class Sign(NamedTuple):
    """What an error of the connection means."""

    answer: str
    reason: str


class Outcome(NamedTuple):
    """`answer`: `HEARD` with the line, or accepted | refused | silent | unable; `detail` in words."""

    answer: str
    detail: str
    line: bytes = b""


# What came back after a SYN had left: from the other machine, or from a router on the way.
FROM_AFAR: Final = {
    errno.ECONNREFUSED: Sign(REFUSED, "the machine says that nobody listens there"),
    errno.ETIMEDOUT: Sign(SILENT, "nothing came back"),
    # no machine answers to that address on its network: also what a gateway says for a machine that is off
    errno.EHOSTUNREACH: Sign(SILENT, "no such machine can be found any more (no route to host)"),
    errno.EHOSTDOWN: Sign(SILENT, "the machine is said to be down"),
    # a whole network that is gone is trouble of the path, perhaps of ours
    errno.ENETUNREACH: Sign(UNABLE, "a router knows no way to its network"),
    errno.ENETDOWN: Sign(UNABLE, "this machine's network is down"),
    errno.EACCES: Sign(UNABLE, "a firewall on the way forbids it"),
    errno.EPERM: Sign(UNABLE, "a firewall forbids it"),
    errno.ECONNRESET: Sign(UNABLE, "the connection was broken off while it was made"),
    errno.ENOPROTOOPT: Sign(UNABLE, "the other side does not speak TCP"),
}
# What this machine said at once, before anything left it: never a fact about the other one.
HERE: Final = {
    errno.ENETUNREACH: "this machine has no way to that network",
    errno.EHOSTUNREACH: "this machine's own routes exclude that address",
    errno.ENETDOWN: "this machine's network is down",
    errno.EACCES: "this machine's own rules forbid it",
    errno.EPERM: "this machine's own firewall forbids it",
    errno.EADDRNOTAVAIL: "this machine has no free port or no address for it",
    errno.EAFNOSUPPORT: "this machine does not speak that kind of address",
    errno.EINVAL: "that is no address to connect to",
    errno.EMFILE: "this monitor has no file descriptors left (raise its limit, ulimit -n)",
    errno.ENFILE: "this machine has no file descriptors left",
    errno.ENOBUFS: "this machine has no memory for connections left",
    errno.ENOMEM: "this machine has no memory left",
}


def sign(number: int, *, left: bool) -> Sign:
    """What an errno means. `left`: something was sent before. (A refusal over loopback comes at once, and counts.)"""
    if left or number == errno.ECONNREFUSED:
        return FROM_AFAR.get(number) or Sign(UNABLE, f"the connection failed: {_name(number)}")
    return Sign(UNABLE, HERE.get(number) or f"this machine cannot connect: {_name(number)}")


async def look(
    address: tuple[str, int], ask: bytes, timeout_s: float, now: Callable[[], float], *, most: int = ANSWER_MAX
) -> Outcome:
    """Connect to an IP address and port, say `ask`, hear one line. Never raises for what happens out there.

    `now`: monotonic seconds that count suspension, too: what took far longer than `timeout_s` tells of us alone.
    `most`: bytes of that line.
    """
    began = now()
    outcome = await _look(address, ask, timeout_s, most)
    took = now() - began
    if took > _OVERSLEPT * timeout_s + 0.1:
        return Outcome(UNABLE, f"this monitor itself did not run meanwhile: it took {took:.1f} s")
    return outcome


async def _look(address: tuple[str, int], ask: bytes, timeout_s: float, most: int) -> Outcome:
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    try:
        sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    except OSError as error:
        return Outcome(*sign(error.errno or 0, left=False))
    with sock:
        deadline = asyncio.get_running_loop().time() + timeout_s
        failed = await _connect(sock, address, deadline)
        if failed is not None:
            return Outcome(*failed)
        return await _talk(sock, ask, deadline, most)


async def _connect(sock: socket.socket, address: tuple[str, int], deadline: float) -> Sign | None:
    """None once connected."""
    try:
        number = sock.connect_ex(address)
    except (OSError, UnicodeError, OverflowError) as error:
        return sign(getattr(error, "errno", None) or errno.EINVAL, left=False)
    if number == errno.EINPROGRESS:
        if not await _settled(sock, deadline):
            return FROM_AFAR[errno.ETIMEDOUT]
        number = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if number:
            return sign(number, left=True)
    elif number:
        return sign(number, left=False)
    return FROM_AFAR[errno.ECONNREFUSED] if _meets_itself(sock) else None


def _meets_itself(sock: socket.socket) -> bool:
    """Where nobody listens on a port of this very machine TCP may connect a socket to itself."""
    try:
        return bool(sock.getsockname() == sock.getpeername())
    except OSError:  # broken off already: the conversation will tell
        return False


async def _settled(sock: socket.socket, deadline: float) -> bool:
    """Whether the connection is made or has failed in time."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_writer(sock, _set, ready)
    try:
        async with asyncio.timeout_at(deadline):
            await ready
    except TimeoutError:
        poll = select.poll()  # after a pause of our own the clock is quicker than the news
        poll.register(sock, select.POLLOUT)
        return bool(poll.poll(0))
    finally:
        loop.remove_writer(sock)
    return True


def _set(ready: "asyncio.Future[None]") -> None:
    if not ready.done():
        ready.set_result(None)


async def _talk(sock: socket.socket, ask: bytes, deadline: float, most: int) -> Outcome:
    """On a connection that stands: the other machine's kernel has taken it, whatever its agent does."""
    loop, line = asyncio.get_running_loop(), bytearray()
    try:
        async with asyncio.timeout_at(deadline):
            await loop.sock_sendall(sock, ask)
            while not line.endswith(b"\n"):  # one line is all that an agent says
                if len(line) > most:
                    return Outcome(UNABLE, "what answers there does not stop talking: no agent")
                more = await loop.sock_recv(sock, 65536)
                if not more:
                    return Outcome(UNABLE, "the connection was taken and closed without an answer")
                line += more
    except TimeoutError:
        return Outcome(ACCEPTED, "the machine took the connection, its agent said nothing in time")
    except OSError as error:
        return Outcome(UNABLE, f"the connection was taken and broken off: {_name(error.errno or 0)}")
    return Outcome(HEARD, "", bytes(line))


def _name(number: int) -> str:
    return errno.errorcode.get(number, str(number))
