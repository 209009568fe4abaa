"""The monitor's own postman tells the real receiver over real TLS; and the command as a process of its own."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from certs import Authority
from click.testing import Result
from receiver_world import KEY, SlurmWorld, other, restart, settings, signed
from support import eventually, eventually_sync
from typer.testing import CliRunner

from rankpulse.cli.main import app
from rankpulse.core import events as ev
from rankpulse.core import records as r
from rankpulse.core.settings import WebhookSettings
from rankpulse.core.targets import RESTART, WebhookTarget
from rankpulse.monitor.clock import system
from rankpulse.monitor.vitals import Vitals
from rankpulse.monitor.webhook import Postman
from rankpulse.receiver.main import Receiver
from rankpulse.receiver.settings import SlurmSettings
from rankpulse.receiver.slurm import Slurm

pytestmark = pytest.mark.live


@asynccontextmanager
async def relay(port: int, loses: Callable[[], bool]) -> AsyncIterator[int]:
    """A way to `port` on which everything that comes back is lost while `loses`."""

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, loses: Callable[[], bool]) -> None:
        try:
            while (data := await reader.read(65_536)) and not loses():
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(carry(reader, back, lambda: False), carry(there, writer, loses))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def test_a_restart_is_done_once_though_the_answer_is_lost_and_the_receiver_starts_anew(tmp_path: Path) -> None:
    authority, world, told = Authority(tmp_path, "good"), SlurmWorld(), list[ev.Posted]()
    cert, key = authority.issue("receiver")
    made = settings(tmp_path, tls={"cert_file": cert, "key_file": key})

    async def life() -> Receiver:
        receiver = Receiver(made, acting={"slurm": Slurm(SlurmSettings(), world, look_every_s=0.01)})
        await receiver.start()
        return receiver

    async def post(port: int, number: int) -> ev.Posted:
        target = WebhookTarget(
            name="t",
            url=f"https://127.0.0.1:{port}/rankpulse",
            secret_file=made.secret_file,
            ca_file=authority.ca_file,
            events=(RESTART,),
        )
        sent = WebhookSettings(targets=(target,), timeout_s=5.0)
        postman = Postman(sent, told.append, leads=lambda: True, clock=system(), vitals=Vitals())
        letter = r.Outgoing(event="i0001-0001-restart", target="t", body=body, first_at=0.0)
        postman.send([ev.Post(letter, number)])
        await eventually(lambda: len(told) == number, 10, "an answer")
        await postman.close()
        return told[-1]

    body = restart(at=system().utc()).decode()
    receiver = await life()
    port = int(receiver.server.url.rpartition(":")[2])
    async with relay(port, lambda: receiver.vitals.events["accepted"] > 0) as way:
        assert (await post(way, 1)).outcome == ev.FAILED
    await eventually(lambda: receiver.vitals.actions["slurm", "done"], 10, "the restart")
    assert (await post(port, 2)).outcome == ev.TAKEN
    await receiver.close()
    receiver = await life()
    assert (await post(int(receiver.server.url.rpartition(":")[2]), 3)).outcome == ev.TAKEN
    assert receiver.vitals.events["had"] == 1
    await receiver.close()
    world.start()
    assert (world.requeues, world.started_with) == (1, ["gpu07"])


# --- as a process

PROGRAM = """#!/bin/sh
echo $$ >> {folder}/pid
echo "$RANKPULSE_DECISION $RANKPULSE_AGAIN" >> {folder}/ran
sleep {sleep}
echo done >> {folder}/ran
"""


class Command:
    """`rankpulse webhook-receiver` with a site's program."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.config = folder, folder / "receiver.toml"
        (folder / "key").touch(mode=0o600)
        (folder / "key").write_text(f"{KEY}\n")
        self.program("0")
        self.config.write_text(
            f'clusters = ["prod"]\nlisten = "127.0.0.1:0"\nmetrics_listen = ""\nsecret_file = "{folder}/key"\n'
            f'state_file = "{folder}/journal.db"\n[[jobs]]\nrun_id = "*"\nactuator = "command"\n'
            f'argv = ["{folder}/again"]\n'
        )

    def program(self, sleep: str) -> None:
        (self.folder / "again").write_text(PROGRAM.format(folder=self.folder, sleep=sleep))
        (self.folder / "again").chmod(0o755)

    def argv(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "rankpulse.cli.entry", "webhook-receiver", *words]

    def say(self, *words: str) -> Result:
        """In this process: the same, and quicker."""
        environ = {"RANKPULSE_RECEIVER_CONFIG": str(self.config)}
        return CliRunner().invoke(app, ["webhook-receiver", *words], env=environ)

    def start(self) -> tuple[subprocess.Popen[str], str]:
        """The process and its URL."""
        with open(self.folder / "log", "w") as log:
            process = subprocess.Popen(self.argv("--config", str(self.config)), stderr=log, cwd="/", text=True)
        words = "events are taken at "
        said = eventually_sync(lambda: self.log() if words in self.log() else "", 30, "its start")
        return process, said.partition(words)[2].split()[0].rstrip(".")

    def log(self) -> str:
        return (self.folder / "log").read_text()

    def ran(self) -> list[str]:
        path = self.folder / "ran"
        return path.read_text().splitlines() if path.exists() else []


async def post(url: str, body: bytes) -> tuple[int, str]:
    import aiohttp

    headers = signed(body, at=system().utc())
    async with aiohttp.ClientSession() as session, session.post(url, data=body, headers=headers) as answer:
        return answer.status, str(answer.reason)


async def test_the_command_serves_dies_by_sigkill_and_goes_on_where_it_was(tmp_path: Path) -> None:
    command = Command(tmp_path)
    command.program("600")
    body = restart(at=system().utc())
    first, url = await asyncio.to_thread(command.start)
    try:
        assert await post(url, other("test", at=system().utc())) == (204, "heard")
        assert await post(url, body) == (204, "accepted")
        await eventually(lambda: command.ran(), 10, "the program to begin")
        first.kill()
        first.wait(10)
        command.program("0")
        second, url = await asyncio.to_thread(command.start)
        try:
            await eventually(lambda: "done" in command.ran(), 20, "the program to be run again")
            assert await post(url, body) == (204, "had already")
            second.send_signal(signal.SIGTERM)
            assert second.wait(20) == 0
        finally:
            second.kill()
    finally:
        first.kill()
        os.killpg(int((tmp_path / "pid").read_text().split()[0]), signal.SIGKILL)  # what the first has left behind
    id_ = json.loads(body)["id"]
    assert command.ran() == [f"{id_} 0", f"{id_} 1", "done"]
    shown = await asyncio.to_thread(command.say, "audit", "i0001-0001", "--json")
    lines: list[dict[str, Any]] = json.loads(shown.stdout)
    assert [one["what"] for one in lines] == ["begun", "does", "again", "does", "did", "done"]
    told = await asyncio.to_thread(command.say, "audit")
    assert "a test of this webhook" in told.stdout
    assert KEY not in command.log() + shown.stdout + told.stdout


def test_settings_are_checked_and_every_problem_is_said(tmp_path: Path) -> None:
    command = Command(tmp_path)
    good = command.say("--check")
    assert (good.exit_code, good.stdout) == (0, "good: 1 entries of jobs, events at 127.0.0.1:0/rankpulse\n")
    (tmp_path / "key").write_text("short\n")
    bad = command.say("--check")
    assert bad.exit_code == 2
    assert "a key has at least 16 bytes" in bad.stderr
    command.config.write_text('surprise = 1\nlisten = "0.0.0.0:1"\n')
    worse = command.say("--check")
    assert worse.exit_code == 2
    assert all(one in worse.stderr for one in ("surprise", "secret_file", "jobs", "listen beyond"))
    assert "Traceback" not in worse.stderr
    nothing = command.say("--check", "--config", str(tmp_path / "none"))
    assert (nothing.exit_code, "no such file" in nothing.stderr) == (2, True)


def test_an_audit_that_is_not_there_is_said(tmp_path: Path) -> None:
    shown = Command(tmp_path).say("audit")
    assert shown.exit_code == 2
    assert "unable to open database file" in shown.stderr
