"""How long an agent may be away or silent while somebody waits for its answer."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from rankpulse.trainer.agentline import AgentLine
from rankpulse.trainer.session import NoAgent, Session


class World:
    """A session with its clock in our hands, and the other end of its line."""

    def __init__(self, path: Path) -> None:
        self.now = 0.0
        self.path = path
        self.listener: socket.socket | None = None
        self.connections: list[socket.socket] = []
        line = AgentLine(str(path), {"op": "rendezvous", "v": 1}, clock=lambda: self.now)
        self.session = Session(line, (30.0, 600.0), clock=lambda: self.now)
        self.session.begin()

    def agent(self) -> None:
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(self.path))
        self.listener.listen(8)

    def accept(self, *said: bytes) -> socket.socket:
        assert self.listener is not None
        connection, _ = self.listener.accept()
        self.connections.append(connection)
        for text in said:
            connection.sendall(text + b"\n")
        return connection

    def pass_(self, seconds: float) -> None:
        """Time passes in looks of a second."""
        for _ in range(int(seconds)):
            self.now += 1.0
            self.session.open()
            list(self.session.listen())
            self.session.mind()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path / "agent.sock")
    yield made
    made.session.line.close()
    for one in (made.listener, *made.connections):
        if one is not None:
            one.close()


OK = b'{"ok":{"node":"n","version":"1"}}'


def test_the_first_answer_is_waited_for_as_told(world: World) -> None:
    world.pass_(30)
    with pytest.raises(NoAgent, match=r"No such file.*`rankpulse agent`.*waited 30 s"):
        world.pass_(2)


def test_one_that_was_there_may_be_away_for_longer(world: World) -> None:
    world.agent()
    world.session.open()
    connection = world.accept(OK)
    world.pass_(1)
    connection.close()
    assert world.listener is not None
    world.listener.close()
    world.pass_(599)
    with pytest.raises(NoAgent, match="waited 600 s"):
        world.pass_(5)


def test_a_spare_waits_for_ever(world: World) -> None:
    world.agent()
    world.session.open()
    connection = world.accept(OK)
    for _ in range(50):
        connection.sendall(b'{"wait":"spare"}\n')
        world.pass_(50)


def test_a_silent_agent_is_asked_anew_and_lives(world: World) -> None:
    world.agent()
    world.session.open()
    world.accept(OK)
    for _ in range(20):
        world.pass_(63)
        world.accept(OK)
        world.pass_(1)
    assert world.session.line.connected


def test_a_frozen_agent_is_none(world: World, capfd: pytest.CaptureFixture[str]) -> None:
    """The kernel takes the connection, nobody answers."""
    world.agent()
    with pytest.raises(NoAgent, match="it does not answer"):
        world.pass_(40)
    assert capfd.readouterr().err.count("it does not answer") == 2, "once while it waited, once at the end"


def test_an_objection_is_told_and_ends_it_soon(world: World, capfd: pytest.CaptureFixture[str]) -> None:
    world.agent()
    world.session.open()
    connection = world.accept(OK, b'{"error":"wrong version"}')
    connection.close()
    world.pass_(3)
    assert "does not let this torchrun join: wrong version" in capfd.readouterr().err
    with pytest.raises(NoAgent, match=r"wrong version.*waited 30 s"):
        world.pass_(40)
