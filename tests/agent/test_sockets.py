"""TCP as the kernel tells it, held against connections that were made so."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import eventually_sync

from rankpulse.agent import sockets

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"


def row(
    state: str = "01",
    waiting: int = 4096,
    retries: int = 3,
    remote: str = "0200000A:1A85",
    inode: int = 77,
    timer: str = "01",
    probes: int = 0,
) -> str:
    return (
        f"   0: 0100000A:9C40 {remote} {state} {waiting:08X}:00000000 {timer}:0000002A {retries:08X}"
        f"     0        {probes} {inode} 2 0000000000000000 30 4 30 10 -1\n"
    )


@pytest.mark.parametrize(
    ("line", "peers"),
    [
        (row(), ["10.0.0.2:6789"]),
        (row(remote="0000000000000000FFFF00000200000A:1A85"), ["10.0.0.2:6789"]),
        (row(remote="-200000A:1A85"), []),
        (row(remote="000080FE00000000FF00FC000100FEFF:0016"), ["[fe80::fc:ff:fffe:1]:22"]),
        (row(state="02", waiting=0), ["10.0.0.2:6789"]),
        (row(retries=0, timer="04", probes=3), ["10.0.0.2:6789"]),
        (row(retries=0, timer="04", probes=1), []),
        (row(retries=0, timer="02", probes=3), []),
        (row(retries=1), []),
        (row(waiting=0), []),
        (row(state="06"), []),
        (row(inode=0), []),
        ("   0: nonsense\n", []),
        (row()[:60], []),
    ],
    ids=["sent again", "mapped", "nonsense", "IPv6", "connecting", "full when cut", "does not read", "kept alive",
         "by chance", "nothing waits", "ended", "nobody's", "", "cut"],
)  # fmt: skip
def test_who_acknowledges_nothing(line: str, peers: list[str]) -> None:
    assert list(sockets.unacknowledged(sockets.rows(HEAD + line)).values()) == peers


@given(st.text(max_size=300))
def test_reading_is_total(text: str) -> None:
    list(sockets.rows(HEAD + text))
    list(sockets.local_of_trie(text))


def test_a_process_that_is_gone_has_none() -> None:
    with pytest.raises(OSError, match=r".*"):
        sockets.of_process(2**22 + 1)
    with pytest.raises(OSError, match=r".*"):
        sockets.table(2**22 + 1)
    assert sockets.addresses(2**22 + 1) == ()


def test_our_own_sockets_and_listeners() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        inode = os.fstat(server.fileno()).st_ino
        assert inode in sockets.of_process(os.getpid())
        found = [one for one in sockets.rows(sockets.table(os.getpid())) if one.inode == inode]
        assert [(one.local, one.state) for one in found] == [(server.getsockname(), sockets.LISTENING)]


TALKER = """
import socket, sys
line = socket.create_connection(("10.99.7.2", 4000))
print(line.fileno(), flush=True)
sys.stdin.readline()
line.sendall(b"x" * 1000)
print("sent", flush=True)
sys.stdin.readline()
"""
LISTENER = """
import socket, sys
server = socket.create_server(("10.99.7.2", 4000))
print("ok", flush=True)
line, _ = server.accept()
sys.stdin.read()
"""


@pytest.fixture
def cable() -> Iterator[tuple[str, str]]:
    """Two networks with a cable between them."""
    if shutil.which("ip") is None or os.geteuid():
        pytest.skip("needs root and iproute2")
    names = (f"rpa{os.getpid()}", f"rpb{os.getpid()}")
    try:
        for command in (
            f"netns add {names[0]}", f"netns add {names[1]}",
            f"link add {names[0]} netns {names[0]} type veth peer name {names[1]} netns {names[1]}",
            *(f"-n {name} addr add 10.99.7.{number}/24 dev {name}" for number, name in enumerate(names, 1)),
            *(f"-n {name} link set {name} up" for name in names),
        ):  # fmt: skip
            if subprocess.run(["ip", *command.split()], capture_output=True, check=False).returncode:
                pytest.skip("no network namespaces here")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


@pytest.mark.live
def test_a_cable_that_is_cut(cable: tuple[str, str]) -> None:
    def start(name: str, program: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            ["ip", "netns", "exec", name, sys.executable, "-c", program],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(start(cable[1], LISTENER))
        stack.callback(listener.kill)
        assert listener.stdout
        assert listener.stdout.readline() == "ok\n"
        talker = stack.enter_context(start(cable[0], TALKER))
        assert talker.stdout
        assert talker.stdin
        try:
            talker.stdout.readline()
            assert sockets.addresses(talker.pid)[0] == "10.99.7.1"
            assert sockets.namespace(talker.pid) != sockets.namespace("self")
            subprocess.run(["ip", "-n", cable[1], "link", "set", cable[1], "down"], check=True)
            talker.stdin.write("\n")
            talker.stdin.flush()
            talker.stdout.readline()

            def silent() -> list[str]:
                found = sockets.unacknowledged(sockets.rows(sockets.table(talker.pid)))
                return [peer for inode, peer in found.items() if inode in sockets.of_process(talker.pid)]

            assert eventually_sync(silent, 20, "data that is sent again") == ["10.99.7.2:4000"]
        finally:
            talker.kill()


def test_a_peer_that_only_does_not_read_is_not_silent() -> None:
    """Its machine acknowledges, and says that there is no room."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        peer, _ = server.accept()
        with peer:
            client.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                while True:
                    client.send(b"x" * 1_000_000)
            inode = os.fstat(client.fileno()).st_ino
            table = list(sockets.rows(sockets.table(os.getpid())))
        assert inode in {one.inode for one in table if one.waiting}
        assert inode not in sockets.unacknowledged(table)
