"""An agent that speaks the socket protocol to torchruns and holders, and does as the test says.

`World` is what the agents of all nodes know together: it lets a round begin once as many torchruns wait as it wants.
"""

import contextlib
import json
import os
import socket
import struct
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from support import eventually_sync


class Session:
    """One connection: whose it is, what it said, and how to answer."""

    def __init__(self, connection: socket.socket, hello: dict[str, Any], pid: int) -> None:
        self.connection, self.hello, self.pid = connection, hello, pid
        self.said: list[dict[str, Any]] = []
        self.open = True

    def send(self, **message: Any) -> None:
        with contextlib.suppress(OSError):
            self.connection.sendall(json.dumps(message).encode() + b"\n")

    def heard(self, key: str) -> list[Any]:
        return [message[key] for message in self.said if key in message]


class World:
    """`nodes`: how many torchruns make a round; 0: joins are left unanswered."""

    def __init__(self, nodes: int = 1, run_uid: str = "demo-1") -> None:
        self.nodes, self.run_uid = nodes, run_uid
        self.round = 0
        self.lock = threading.RLock()
        self.sessions: list[Session] = []
        self.members: list[int] = []  # pids by group rank
        self.waiting: dict[int, dict[str, Any]] = {}
        self.outcomes: list[dict[str, Any]] = []
        self.meetings: list[dict[str, Any]] = []  # as told to group rank 0
        self.on_join: Callable[[Session, dict[str, Any]], bool] = lambda _session, _join: False  # True: it answered
        self.on_ended: Callable[[Session, dict[str, Any]], None] = lambda _session, _ended: None

    def of(self, op: str) -> list[Session]:
        with self.lock:
            return [session for session in self.sessions if session.hello["op"] == op]

    def torchruns(self) -> list[Session]:
        return [session for session in self.of("rendezvous") if session.open]

    def heard(self, key: str, op: str = "rendezvous") -> list[Any]:
        return [said for session in self.of(op) for said in session.heard(key)]

    def handle(self, session: Session, message: dict[str, Any]) -> None:
        with self.lock:
            session.said.append(message)
            if "join" in message and not self.on_join(session, message["join"]):
                self._join(session, message["join"])
            if "leave" in message:
                self.outcomes.append(message["leave"])
                session.send(left=True)
            if "ended" in message:
                self.on_ended(session, message["ended"])

    def _join(self, session: Session, join: Mapping[str, Any]) -> None:
        self.waiting[session.pid] = {**join, "session": session}
        if session.pid in self.members:
            self.again("a member waits", but=session.pid)
        if len(self.waiting) != self.nodes:
            session.send(wait=f"{len(self.waiting)} of {self.nodes} nodes here")
            return
        known = [pid for pid in self.members if pid in self.waiting]
        self.members = known + [pid for pid in self.waiting if pid not in known]
        self.round += 1
        first = self.waiting[self.members[0]]
        for rank, pid in enumerate(self.members):
            met = {
                "run_uid": self.run_uid, "round": self.round, "rank": rank, "nodes": self.nodes,
                "address": first["address"], "port": first["port"],
            }  # fmt: skip
            if rank == 0:
                self.meetings.append(met)
            self.waiting[pid]["session"].send(met=met)
        self.waiting.clear()

    def again(self, reason: str = "ordered", *, but: int = 0, round_: int | None = None) -> None:
        with self.lock:
            for session in self.torchruns():
                if session.pid != but and session.pid in self.members:
                    session.send(again={"round": round_ or self.round, "waiting": 1, "reason": reason})

    def order(self) -> None:
        """All of the round meet again, and have done so when this returns."""
        before = self.round
        self.again()
        eventually_sync(lambda: self.round > before, 60, "the next round")


class FakeAgent:
    """The socket of one node. `start` and `stop` as often as a test likes."""

    def __init__(self, directory: Path, world: World) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory, self.world = directory, world
        self.path = str(directory / "agent.sock")
        self._listener: socket.socket | None = None
        self._mine: list[Session] = []

    def start(self) -> "FakeAgent":
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.path)
        self._listener.listen(64)
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()
        return self

    def stop(self) -> None:
        """As if it were killed: its socket file stays."""
        if self._listener is not None:
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
        for session in self._mine:
            with contextlib.suppress(OSError):
                session.connection.shutdown(socket.SHUT_RDWR)
        self._mine.clear()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        pid = struct.unpack("3i", raw)[0]
        with connection, contextlib.suppress(OSError), connection.makefile("rb") as lines:
            hello = json.loads(lines.readline() or b'{"op":""}')
            session = Session(connection, hello, pid)
            session.send(ok={"node": self.directory.name, "version": "0"})
            with self.world.lock:
                self.world.sessions.append(session)
                self._mine.append(session)
            try:
                for line in lines:
                    self.world.handle(session, json.loads(line))
            finally:
                session.open = False
