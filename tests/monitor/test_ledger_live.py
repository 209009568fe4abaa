"""The ledger on a real etcd: a monitor that is killed at random writes each entry once; a deleted store says so."""

import asyncio
import json
import os
import random
import select
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from support import eventually_sync
from typer.testing import CliRunner

from rankpulse.cli.main import app
from rankpulse.core import codec
from rankpulse.core import records as r
from rankpulse.core.keys import Keys
from rankpulse.core.settings import parse
from rankpulse.store.api import Item, Store
from rankpulse.store.etcd import open_store

pytestmark = pytest.mark.live
T = TypeVar("T")
INCIDENTS = 360  # so many that a kill comes amid them, also where the machine is busy
KILLS = 4
AT = 1_790_000_000.0


class Place:
    """A cluster with a history, and monitors that come and go."""

    def __init__(self, etcd: str, cluster: str, directory: Path) -> None:
        self.etcd, self.keys, self.directory = etcd, Keys(cluster), directory
        self.config = directory / "rankpulse.toml"
        self.exports = directory / "exports" / cluster
        self.config.write_text(
            f'cluster = "{cluster}"\npreset = "drill"\n[store]\nendpoints = ["{etcd}"]\n'
            f'[monitor]\nlease_ttl_s = 2.0\nlisten = "127.0.0.1:0"\n'
            f'[ledger]\nexport_dir = "{directory / "exports"}"\nexport_every_s = 1.0\n'
        )

    def ask(self, work: Callable[[Store], Awaitable[T]]) -> T:
        async def asked() -> T:
            store = await open_store(parse({"store": {"endpoints": [self.etcd]}}).store)
            try:
                return await work(store)
            finally:
                await store.close()

        return asyncio.run(asked())

    def seed(self) -> None:
        """Incidents that are over, as earlier monitors left them, each with what it cost."""

        async def put(store: Store) -> None:
            for number in range(INCIDENTS):
                incident = r.Incident(
                    id=f"i0000-{number:04d}", klass="gpu_fault", state="closed", opened_at=AT + number,
                    closed_at=AT + number + 60.0, run_uid="old", round=1, outcome="recovered", ranks=8,
                    lost_s={"stop": float(number)}, nodes=("node-a",),
                )  # fmt: skip
                await store.put(self.keys.incident(incident.id), codec.encode(incident))

        self.ask(put)

    def items(self, prefix: str) -> list[Item]:
        async def listed(store: Store) -> list[Item]:
            return list((await store.list(prefix)).items)

        return self.ask(listed)

    def entries(self) -> list[Item]:
        return self.items(f"{self.keys.ledger()}entries/")

    def exported(self) -> list[dict[str, Any]]:
        files = self.exports.glob("*.jsonl")
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]

    def monitor(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "rankpulse.cli.main", "monitor", "--config", str(self.config)],
            stderr=subprocess.PIPE,
            text=True,
            cwd="/",
            env={name: value for name, value in os.environ.items() if not name.startswith("RANKPULSE")},
        )

    def command(self, *args: str) -> tuple[int, str]:
        found = CliRunner().invoke(app, ["ledger", *args, "--config", str(self.config)])
        return found.exit_code, found.output


def end(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.wait()
    assert process.stderr is not None
    process.stderr.close()


def hear(process: "subprocess.Popen[str]", words: str, limit_s: float = 60.0) -> str:
    """The first line of its log with these words."""
    assert process.stderr is not None
    deadline, seen = time.monotonic() + limit_s, list[str]()
    while time.monotonic() < deadline:
        if select.select([process.stderr], [], [], 0.2)[0]:
            seen.append(process.stderr.readline())
            if words in seen[-1]:
                return seen[-1]
            assert seen[-1], f"it ended: {seen}"
    raise AssertionError(f"{words!r} not within {limit_s:g} s: {seen}")


@pytest.fixture
def place(etcd: str, cluster: str, tmp_path: Path) -> Place:
    return Place(etcd, cluster, tmp_path)


def test_killed_at_random_moments_monitors_write_each_entry_once(place: Place) -> None:
    place.seed()
    draw, amid = random.Random(11), 0
    for kill in range(KILLS + 1):
        process = place.monitor()
        try:
            before = len(place.entries())
            wanted = INCIDENTS if kill == KILLS else min(before + 1, INCIDENTS)
            eventually_sync(lambda wanted=wanted: len(place.entries()) >= wanted, 60, "the monitor to write")
            time.sleep(draw.uniform(0.0, 0.1))  # the moment of the kill, not a wait for anything
        finally:
            end(process)
        amid += before < len(place.entries()) < INCIDENTS
    entries = place.entries()
    assert amid >= 1, "no kill came amid the writing"
    assert sorted(codec.decode(r.LedgerEntry, item.value).id for item in entries) == [
        f"i0000-{number:04d}" for number in range(INCIDENTS)
    ]
    assert [item.key for item in entries if item.created != item.modified] == [], "none was written twice"
    lost = [codec.decode(r.LedgerEntry, item.value).lost_s["stop"] for item in entries[1:] if item]
    assert sum(lost) == sum(range(INCIDENTS)), "and says what its incident said"


def test_a_store_that_was_deleted_says_what_is_lost_and_gets_it_back(place: Place) -> None:
    place.seed()
    process = place.monitor()
    try:
        eventually_sync(lambda: len(place.exported()) >= INCIDENTS, 60, "the export")
    finally:
        end(process)

    async def wipe(store: Store) -> None:
        await store.delete_prefix(place.keys.prefix)

    place.ask(wipe)
    process = place.monitor()
    try:
        said = hear(process, "the store has lost history")
        assert f"{INCIDENTS} incidents" in said
        assert f"rankpulse ledger import {place.exports}" in said
        assert len(place.exported()) >= INCIDENTS, "the export keeps what the store lost"
        code, text = place.command("import", str(place.exports))
        assert (code, len(place.entries())) == (0, INCIDENTS), text
        hear(process, "holds again all that was exported")
        code, text = place.command("import", str(place.exports))
        assert (code, text.split()[0]) == (0, "0"), "a second time finds nothing to do"
        code, text = place.command("show", "--json")
        assert json.loads(text)["failures"] == {"gpu_fault/gpu": INCIDENTS}
    finally:
        end(process)
