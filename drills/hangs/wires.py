"""Machines of their own on one: a network namespace per node, and wires between them that can be cut in the middle.

Each pair of nodes has a wire for its data, each node one for everything else (`MANAGEMENT`), at whose other end the
monitor and the store are. Nobody at the ends of a wire learns that it was cut: the middle, a bridge, drops its port.
"""

import itertools
import os
import secrets
import subprocess
import time
from pathlib import Path
from typing import Self

from rankpulse.drills.children import die_with_parent

MANAGEMENT = "mgmt0"
READY_S = 5.0


class NoWires(Exception):
    """Namespaces and wires cannot be made here; the text says why."""


class Wires:
    """`with Wires(nodes) as wires`: everything is connected, and gone afterwards. Needs the privilege to."""

    def __init__(self, nodes: tuple[str, ...]) -> None:
        self.nodes = nodes
        self._tag = f"rp{secrets.token_hex(2)}"  # interfaces have names of at most 15 characters
        self._net = secrets.randbelow(254) + 1
        self._holders: dict[str, subprocess.Popen[bytes]] = {}
        self._links: list[str] = []  # on this side
        self.here = f"198.18.{self._net}.254"  # of the machine that all nodes run on (addresses for tests, RFC 2544)

    def __enter__(self) -> Self:
        try:
            _ip("link", "set", "lo", "up")
            self._bridge("m", f"{self.here}/24")
            for number, node in enumerate(self.nodes):
                self._node(number, node)
            for one, other in itertools.combinations(range(len(self.nodes)), 2):
                self._wire(one, other)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for holder in self._holders.values():
            holder.kill()  # its namespace goes with it, once the last connection in it has been given up
            holder.wait()
        for link in self._links:
            subprocess.run(["ip", "link", "del", link], capture_output=True, check=False)

    # --- what is asked

    def on(self, node: str, argv: list[str]) -> list[str]:
        """`argv`, to be started in the namespace of the node."""
        return ["nsenter", f"--net=/proc/{self._holders[node].pid}/ns/net", *argv]

    def address(self, node: str) -> str:
        """For everything but data."""
        return f"198.18.{self._net}.{self.nodes.index(node) + 1}"

    def interface(self, node: str) -> str:
        """One that has the node's address for data; the others have the same."""
        return "to1" if self.nodes.index(node) == 0 else "to0"

    def cut(self, one: str, other: str) -> None:
        """No packet passes between the two any more, and neither is told."""
        low, high = sorted((self.nodes.index(one), self.nodes.index(other)))
        _ip("link", "set", self._port(low, high), "nomaster")

    # --- how it is made

    def _bridge(self, name: str, address: str = "") -> str:
        bridge = f"{self._tag}{name}"
        _ip("link", "add", bridge, "type", "bridge")
        self._links.append(bridge)
        if address:
            _ip("addr", "add", address, "dev", bridge)
        _ip("link", "set", bridge, "up")
        return bridge

    def _node(self, number: int, node: str) -> None:
        argv = die_with_parent(["unshare", "--net", "sleep", "infinity"])
        self._holders[node] = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _until_apart(self._holders[node])
        self._in(node, "sh", "-c", "echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6 || true")
        self._in(node, "ip", "link", "set", "lo", "up")
        self._plug(node, f"{self._tag}m{number}", f"{self._tag}m", MANAGEMENT)
        self._in(node, "ip", "addr", "add", f"{self.address(node)}/24", "dev", MANAGEMENT)

    def _wire(self, low: int, high: int) -> None:
        bridge = self._bridge(f"w{low}{high}")
        for here, there in ((low, high), (high, low)):
            node, name = self.nodes[here], f"to{there}"
            self._plug(node, self._port(here, there), bridge, name)
            mine, theirs = f"198.19.0.{here + 1}", f"198.19.0.{there + 1}"
            self._in(node, "ip", "addr", "add", mine, "peer", theirs, "dev", name)

    def _port(self, here: int, there: int) -> str:
        return f"{self._tag}p{here}{there}"

    def _plug(self, node: str, port: str, bridge: str, name: str) -> None:
        """A wire from the bridge into the namespace, where it is called `name`."""
        _ip("link", "add", port, "type", "veth", "peer", "name", f"{port}x")
        self._links.append(port)
        _ip("link", "set", f"{port}x", "netns", str(self._holders[node].pid), "name", name)
        _ip("link", "set", port, "master", bridge, "up")
        self._in(node, "ip", "link", "set", name, "up")

    def _in(self, node: str, *argv: str) -> None:
        _run(self.on(node, list(argv)))


def _until_apart(holder: "subprocess.Popen[bytes]") -> None:
    ours, deadline = os.stat("/proc/self/ns/net").st_ino, time.monotonic() + READY_S
    while holder.poll() is None and time.monotonic() < deadline:
        command = Path(f"/proc/{holder.pid}/cmdline").read_bytes()
        if command.startswith(b"sleep\0") and os.stat(f"/proc/{holder.pid}/ns/net").st_ino != ours:
            return
        time.sleep(0.01)
    raise NoWires("no network namespace can be made: it takes root, or `unshare -Urn`")


def _ip(*argv: str) -> None:
    _run(["ip", *argv])


def _run(argv: list[str]) -> None:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False)
    except FileNotFoundError:
        raise NoWires(f"{argv[0]} is not here: apt-get install iproute2 util-linux") from None
    if done.returncode:
        raise NoWires(f"{' '.join(argv)}: {done.stderr.strip()}")
