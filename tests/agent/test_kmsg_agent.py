"""A whole agent that reads the kernel's log, from a pipe that stands in for it."""

import os
import shutil
import stat
import time
from pathlib import Path

import pytest
from agent_bench import Desk
from support import eventually

from rankpulse.agent.gpu_devices import Devices
from rankpulse.core.fault_book import Book
from rankpulse.core.faults import Fault, Seen
from rankpulse.core.records import GPU_FAULT
from rankpulse.store.memory import MemoryStore

pytestmark = pytest.mark.live
BUS = "0000:18:00"
NONE = Devices(lambda: False, lambda: None)


class Log:
    """The kernel's log, as a pipe: a writer that never waits for a reader."""

    def __init__(self, tmp_path: Path) -> None:
        self.path, self.seq = str(tmp_path / "kmsg"), 0
        os.mkfifo(self.path)
        self.fd = os.open(self.path, os.O_RDWR)

    def say(self, text: str, prio: int = 4) -> None:
        self.seq += 1
        os.write(self.fd, f"{prio},{self.seq},{int(time.monotonic() * 1e6)},-;{text}\n".encode())


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


def desk(run_dir: str, log: Log, store: MemoryStore, **gpu: object) -> Desk:
    return Desk(run_dir, store, devices=NONE, gpu={"kernel_log": log.path, "host_poll_s": 0.0, **gpu}, beat_s=0.2)


async def told(at: Desk) -> list[tuple[object, ...]]:
    found = [fault.detail for fault in await at.observations(GPU_FAULT)]
    return [(one["bus"], one["what"], one["how"], one["action"], one.get("injected", False)) for one in found]


async def test_a_lost_gpu_is_told_once_and_not_again_by_the_next_agent(run_dir: str, log: Log) -> None:
    store = MemoryStore(time.monotonic)
    wanted = [(BUS, "xid_79", "opened", "drain_reboot", False)]
    async with desk(run_dir, log, store).at_work() as at:
        for _ in range(3):
            log.say(f"NVRM: Xid (PCI:{BUS}): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.")
        log.say(f"NVRM: GPU {BUS}.0: GPU has fallen off the bus.")

        async def known() -> bool:
            return await told(at) == wanted

        await eventually(known, 20, "the lost GPU")
        assert at.agent.capabilities["kernel_log"] == "ok"
    log.seq = 0  # the ring is read from its beginning again
    for _ in range(3):
        log.say(f"NVRM: Xid (PCI:{BUS}): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.")
    log.seq = 10
    log.say("Out of memory: Killed process 4711 (python) total-vm:1kB, anon-rss:1kB")
    async with desk(run_dir, log, store).at_work() as at:

        async def more() -> bool:
            return len(await told(at)) > 1

        await eventually(more, 20, "what is new")
        assert await told(at) == [*wanted, ("", "oom_kill", "seen", "restart_app", False)]


async def test_what_a_program_wrote_is_told_and_accuses_nobody(run_dir: str, log: Log) -> None:
    store = MemoryStore(time.monotonic)
    async with desk(run_dir, log, store).at_work() as at:
        log.say(f"NVRM: Xid (PCI:{BUS}): 79, GPU has fallen off the bus.", prio=12)

        async def known() -> bool:
            return await told(at) == [("", "xid_79", "seen", "drain_reboot", True)]

        await eventually(known, 20, "an injected line")
        assert at.agent.books.gpus == {}


async def test_a_drill_may_have_it_believed(run_dir: str, log: Log) -> None:
    store = MemoryStore(time.monotonic)
    async with desk(run_dir, log, store, believe_injected=True).at_work() as at:
        log.say(f"NVRM: Xid (PCI:{BUS}): 79, GPU has fallen off the bus.", prio=12)

        async def known() -> bool:
            return [one[:4] for one in await told(at)] == [(BUS, "xid_79", "opened", "drain_reboot")]

        await eventually(known, 20, "a lost GPU")


class Sick(Book):
    """A bug of ours."""

    def seen(self, seen: Seen) -> Fault | None:
        if seen.reading.xid == 31:
            raise ZeroDivisionError("a bug")
        return Book.seen(self, seen)


async def test_a_line_that_we_cannot_deal_with_costs_no_other(run_dir: str, log: Log) -> None:
    async with desk(run_dir, log, MemoryStore(time.monotonic)).at_work() as at:
        await eventually(lambda: at.agent.capabilities.get("kernel_log") == "ok", 20, "a log that is read")
        at.agent.faults.faults = Sick()
        log.say(f"NVRM: Xid (PCI:{BUS}): 31, pid=1, name=a, Ch 0")
        log.say(f"NVRM: Xid (PCI:{BUS}): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.")

        async def known() -> bool:
            return await told(at) == [(BUS, "xid_79", "opened", "drain_reboot", False)]

        await eventually(known, 20, "the lost GPU")
        assert at.agent.capabilities["kernel_log"] == "ok"


async def test_the_cursor_follows_the_spool(run_dir: str, log: Log) -> None:
    """The run directory is removed under the agent."""
    async with desk(run_dir, log, MemoryStore(time.monotonic)).at_work() as at:
        cursor = Path(run_dir, "spool", "kmsg.cursor")
        log.say("one")
        await eventually(cursor.exists, 10, "a cursor")
        shutil.rmtree(run_dir)
        await eventually(cursor.parent.exists, 20, "a new spool")
        log.say("two")
        await eventually(cursor.exists, 10, "a cursor there")
        assert at.agent.capabilities["kernel_log"] == "ok"


async def test_where_there_is_no_log_nobody_asks_for_it_every_second(
    run_dir: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, program = tmp_path / "started", tmp_path / "bin" / "journalctl"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho once >> {started}\nexit 1\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    nowhere = Desk(
        run_dir, MemoryStore(time.monotonic), devices=NONE, gpu={"kernel_log": "/none", "host_poll_s": 0.0}, beat_s=0.2
    )
    async with nowhere.at_work() as at:
        await eventually(lambda: "journalctl ended with 1" in at.agent.capabilities.get("kernel_log", ""), 20, "none")
        beats = at.agent.publisher.figures.beats
        await eventually(lambda: at.agent.publisher.figures.beats > beats + 12, 30, "some seconds of its life")
    assert started.read_text() == "once\n"
