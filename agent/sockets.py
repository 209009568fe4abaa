"""TCP as the kernel sees it: which peers of a process acknowledge nothing, who listens, which addresses are ours."""

import contextlib
import ipaddress
import os
import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

TABLE_MAX: Final = 8 << 20  # bytes of one table
FILES_MAX: Final = 65_536  # open files of a process
ADDRESSES_MAX: Final = 64
PEERS_MAX: Final = 32
RETRIES: Final = 2  # one is chance
PROBES: Final = 3  # of a full window: a peer that only does not read answers each of them, also while it is stopped
_FULL_WINDOW: Final = "04:"  # the timer that runs
_SENDING: Final = ("01", "02", "04", "08")  # established, connecting, closing from either side
LISTENING: Final = "0A"
_INODE: Final = re.compile(r"socket:\[(\d+)\]")


class Socket(NamedTuple):
    """One row of /proc/net/tcp. `waiting`: bytes not acknowledged; `retries`: how often the eldest was sent again;
    `probes`: of a full window, how many were not answered."""

    local: tuple[str, int]
    remote: tuple[str, int]
    state: str
    waiting: int
    retries: int
    inode: int
    probes: int = 0


def rows(table: str) -> Iterator[Socket]:
    """Of /proc/net/tcp or tcp6. What cannot be read is passed over."""
    for line in table.splitlines()[1:]:
        fields = line.split(None, 11)
        with contextlib.suppress(ValueError, IndexError, OverflowError):
            local, remote, state = _place(fields[1]), _place(fields[2]), fields[3]
            waiting, retries = int(fields[4].partition(":")[0], 16), int(fields[6], 16)
            probes = int(fields[8]) if fields[5].startswith(_FULL_WINDOW) else 0
            yield Socket(local, remote, state, waiting, retries, int(fields[9]), probes)


def unacknowledged(found: Iterable[Socket]) -> dict[int, str]:
    """Peers that acknowledge nothing, as ip:port, by inode of the socket."""
    return {
        one.inode: _text(one.remote)
        for one in found
        if one.state in _SENDING and _is_mute(one) and (one.waiting or one.state == "02") and one.inode
    }


def _is_mute(one: Socket) -> bool:
    return one.retries >= RETRIES or one.probes >= PROBES


def of_process(pid: int) -> set[int]:
    """Inodes of its sockets. Raises OSError where that is not ours to see."""
    found: set[int] = set()
    with os.scandir(f"/proc/{pid}/fd") as entries:
        for count, entry in enumerate(entries):
            if count >= FILES_MAX:
                break
            with contextlib.suppress(OSError):
                if match := _INODE.fullmatch(os.readlink(entry.path)):
                    found.add(int(match.group(1)))
    return found


def table(pid: int) -> str:
    """All TCP sockets of its network namespace. Raises OSError."""
    return _read(f"/proc/{pid}/net/tcp") + _rest(f"/proc/{pid}/net/tcp6")


def namespace(pid: int | str) -> str:
    """Which network it is in, "" where that is not ours to see."""
    try:
        return os.readlink(f"/proc/{pid}/ns/net")
    except OSError:
        return ""


def addresses(pid: int) -> tuple[str, ...]:
    """IP addresses of this machine as that process sees them, its own loopback left out."""
    four = local_of_trie(_rest(f"/proc/{pid}/net/fib_trie"))
    six = (_six(line.split()[0]) for line in _rest(f"/proc/{pid}/net/if_inet6").splitlines() if line.split())
    found = dict.fromkeys([*four, *(one for one in six if one)])
    return tuple(one for one in found if not ipaddress.ip_address(one).is_loopback)[:ADDRESSES_MAX]


def local_of_trie(text: str) -> Iterator[str]:
    """Of /proc/net/fib_trie: an address, and on the next line that it is the machine's own."""
    before = ""
    for line in text.splitlines():
        if line.strip().startswith("/32 host LOCAL"):
            with contextlib.suppress(ValueError):
                yield str(ipaddress.IPv4Address(before))
        before = line.strip().removeprefix("|-- ")


def _place(text: str) -> tuple[str, int]:
    """As the kernel writes it: words of 32 bits in the machine's own order."""
    number, _, port = text.partition(":")
    data = b"".join(int(number[i : i + 8], 16).to_bytes(4, "little") for i in range(0, len(number), 8))
    return _plain(ipaddress.ip_address(data)), int(port, 16)


def _plain(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
    """An IPv4 address that came through an IPv6 socket is one."""
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)


def _six(text: str) -> str:
    try:
        return str(ipaddress.IPv6Address(bytes.fromhex(text)))
    except ValueError:
        return ""


def _text(place: tuple[str, int]) -> str:
    host, port = place
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _read(path: str) -> str:
    with open(path, encoding="ascii", errors="replace") as file:
        return file.read(TABLE_MAX)


def _rest(path: str) -> str:
    """What may be missing: a machine without IPv6, say."""
    try:
        return _read(path)
    except OSError:
        return ""
