"""The session with the agent: whatever the other end is or does, it never raises and never waits."""

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import eventually_sync

from rankpulse.trainer.agentline import LINE_MAX, AgentLine, socket_path

HELLO = {"op": "rendezvous", "v": 1}


class Far:
    """The other end of a line."""

    def __init__(self, path: Path) -> None:
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen(8)
        self.connection: socket.socket | None = None

    def accept(self) -> socket.socket:
        self.connection, _ = self.listener.accept()
        self.connection.settimeout(10)
        return self.connection

    def close(self) -> None:
        for one in (self.listener, self.connection):
            if one is not None:
                one.close()


@pytest.fixture
def far(tmp_path: Path) -> Iterator[Far]:
    made = Far(tmp_path / "agent.sock")
    yield made
    made.close()


@pytest.fixture
def line(tmp_path: Path) -> Iterator[AgentLine]:
    made = AgentLine(str(tmp_path / "agent.sock"), HELLO)
    yield made
    made.close()


def test_it_says_hello_and_lines_go_both_ways(far: Far, line: AgentLine) -> None:
    assert line.open()
    assert not line.open(), "it is open already"
    connection = far.accept()
    assert line.send({"leave": {"outcome": "finished"}})
    said = b""
    while said.count(b"\n") < 2:
        said += connection.recv(4096)
    assert [json.loads(text) for text in said.splitlines()] == [HELLO, {"leave": {"outcome": "finished"}}]
    assert line.receive() == []
    connection.sendall(b'{"ok":{}}\n{"wait":"no')
    assert line.wait(10)
    assert line.receive() == [{"ok": {}}]
    connection.sendall('de ☃"}\n'.encode())
    assert line.wait(10)
    assert line.receive() == [{"wait": "node ☃"}]


def test_nobody_there(line: AgentLine) -> None:
    assert not line.open()
    assert line.trouble == "No such file or directory"
    assert not line.send({"x": 1})
    assert line.receive() == []
    assert not line.wait(0)


def test_it_tries_no_more_often_than_asked(far: Far, tmp_path: Path) -> None:
    now = 100.0
    line = AgentLine(str(tmp_path / "nowhere.sock"), HELLO, clock=lambda: now)
    line.open(1.0)
    line.path = str(tmp_path / "agent.sock")
    now = 100.9
    assert not line.open(1.0)
    now = 101.0
    assert line.open(1.0)
    line.close()


@pytest.mark.parametrize("read", [True, False], ids=["read", "reset"])
def test_the_end_of_the_agent_is_noticed_and_its_last_words_are_heard(far: Far, line: AgentLine, read: bool) -> None:
    line.open()
    connection = far.accept()
    if read:  # what it leaves unread turns its end into a reset
        connection.recv(4096)
    connection.sendall(b'{"again":{"round":1}}\n')
    far.close()
    heard = []
    eventually_sync(lambda: heard.extend(line.receive()) or not line.connected, 10, "the end of the line")
    assert heard == [{"again": {"round": 1}}]
    assert "ended the session" in line.trouble
    assert line.fileno() == -1


@pytest.mark.parametrize("bad", [b"{\n", b"[]\n", b"\xff\n", b"7\n", b"[" * 100_000 + b"\n", b"x" * (1 << 21)])
def test_what_is_no_protocol_ends_the_line(far: Far, line: AgentLine, bad: bytes) -> None:
    line.open()
    connection = far.accept()
    connection.setblocking(False)
    rest = [bad]

    def over() -> bool:
        if rest[0]:
            try:
                rest[0] = rest[0][connection.send(rest[0]) :]
            except OSError:
                rest[0] = b""
        assert line.receive() == []
        return not line.connected

    eventually_sync(over, 10, "the line to be closed")
    assert line.trouble


def test_an_agent_that_does_not_read_ends_the_line(far: Far, line: AgentLine) -> None:
    line.open()
    far.accept()
    eventually_sync(lambda: not line.send({"x": "y" * 4000}), 10, "its buffer to be full")
    assert not line.connected


def test_a_stopped_agent_with_a_full_backlog_is_away(tmp_path: Path, line: AgentLine) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "agent.sock"))
    listener.listen(0)
    others = [AgentLine(line.path, HELLO) for _ in range(8)]
    assert [other.open() for other in others].count(False) > 0
    assert any("temporarily unavailable" in other.trouble for other in others)
    for one in (listener, *others):
        one.close()


def test_a_message_too_long_for_the_agent_is_an_error_of_ours(far: Far, line: AgentLine) -> None:
    line.open()
    with pytest.raises(ValueError, match=str(LINE_MAX)):
        line.send({"x": "y" * LINE_MAX})


def test_where_the_socket_is(tmp_path: Path) -> None:
    environ = {"RANKPULSE_DIR": "/some/dir"}
    assert socket_path(environ) == "/some/dir/agent.sock"
    assert socket_path(environ, "host:29500") == "/some/dir/agent.sock", "an endpoint of another backend"
    assert socket_path(environ, str(tmp_path)) == f"{tmp_path}/agent.sock"
    assert socket_path(environ, "/no/such/agent.sock") == "/no/such/agent.sock"
    assert socket_path({}) == "/dev/shm/rankpulse/agent.sock"


def test_no_descriptor_is_left(line: AgentLine, far: Far) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        assert line.open(0.0)
        far.accept().close()
        line.close()
    assert len(os.listdir("/proc/self/fd")) <= before
