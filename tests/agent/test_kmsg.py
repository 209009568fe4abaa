"""The kernel's log, read through a socket that gives one record at a time as the device does."""

import asyncio
import contextlib
import os
import socket
import stat
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support import eventually

from rankpulse.agent.folder import private
from rankpulse.agent.journal import Journal
from rankpulse.agent.kmsg import KernelLog
from rankpulse.core.kernel_log import of_message
from rankpulse.core.kernel_prefix import Framed

NOW = 5000.0


class Device:
    """Stands for /dev/kmsg: a reader that opens it gets every record that the ring holds."""

    def __init__(self, tmp_path: Path, boot: str = "boot-1") -> None:
        self.folder = private(str(tmp_path / "spool"))
        self.boot, self.seq, self.ring = boot, 0, list[bytes]()
        self.writer: socket.socket | None = None
        self.told: list[tuple[int | None, bool]] = []
        self.able: list[str] = []

    def say(self, code: int, at: float = NOW, prio: int = 4) -> None:
        line = (
            f"{prio},{self.seq},{round(at * 1e6)},-;NVRM: Xid (PCI:0000:05:00): {code}, pid=7, name=a\n SUBSYSTEM=pci\n"
        )
        self.seq += 1
        self.ring.append(line.encode())
        if self.writer is not None:
            self.writer.send(self.ring[-1])

    def open(self, _path: str) -> int:
        reader, self.writer = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.writer.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22)
        reader.setblocking(False)
        for record in self.ring:
            self.writer.send(record)
        return reader.detach()

    def take(self, records: list[tuple[Framed, bool]]) -> None:
        self.told += [(of_message(framed).xid, fresh) for framed, fresh in records]

    def log(self) -> KernelLog:
        return KernelLog(
            "kmsg", self.boot, self.folder, self.take, lambda _source, why: self.able.append(why),
            self.open, Journal(("false",)), lambda: NOW,
        )  # fmt: skip

    @contextlib.asynccontextmanager
    async def read(self) -> AsyncIterator[KernelLog]:
        log = self.log()
        task = asyncio.create_task(log.run())
        try:
            yield log
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            self.writer = None

    async def heard(self, *codes: int) -> None:
        await eventually(lambda: [code for code, _fresh in self.told] == list(codes), 10, f"{self.told}")


@pytest.fixture
def device(tmp_path: Path) -> Device:
    return Device(tmp_path)


async def test_records_are_handed_on_in_order_as_they_come(device: Device) -> None:
    device.say(79)
    async with device.read():
        await device.heard(79)
        device.say(45)
        device.say(154)
        await device.heard(79, 45, 154)
    assert device.able == [""]


async def test_a_restart_of_the_agent_loses_nothing_and_tells_nothing_twice(device: Device) -> None:
    device.say(31)
    async with device.read():
        await device.heard(31)
    device.say(79)  # while no agent runs
    device.told.clear()
    async with device.read():
        await device.heard(31, 79)
    assert device.told == [(31, False), (79, True)]


async def test_after_a_reboot_all_is_fresh(device: Device, tmp_path: Path) -> None:
    for code in (13, 31, 43):
        device.say(code)
    async with device.read():
        await device.heard(13, 31, 43)
    again = Device(tmp_path, "boot-2")
    again.say(79, at=1.0)
    async with again.read():
        await again.heard(79)
    assert again.told == [(79, True)]


async def test_the_first_agent_of_a_node_is_not_told_the_story_of_last_week(device: Device) -> None:
    device.say(119, at=10.0)
    device.say(79)
    async with device.read():
        await device.heard(119, 79)
    assert device.told == [(119, False), (79, True)]


async def test_who_read_the_journal_so_far_is_not_told_that_story_by_the_device(device: Device) -> None:
    device.folder.write("kmsg.cursor", b'{"boot_id": "boot-1", "journal": "s=1"}')
    device.say(119, at=10.0)
    device.say(79)
    async with device.read():
        await device.heard(119, 79)
    assert device.told == [(119, False), (79, True)]


async def test_what_the_first_agent_hears_later_is_new_whatever_its_stamp_says(device: Device) -> None:
    """The kernel stamps with a clock that nobody corrects: in a year it may fall a quarter of an hour behind."""
    device.say(119, at=10.0)
    async with device.read() as log:
        await device.heard(119)
        await eventually(lambda: not log._first, 10, "it has come to the end")
        device.say(79, at=NOW - 900)
        await device.heard(119, 79)
    assert device.told == [(119, False), (79, True)]


async def test_what_the_ring_has_lost_is_told(device: Device) -> None:
    device.say(31)
    async with device.read() as log:
        await device.heard(31)
        device.seq += 100
        device.say(79)
        await device.heard(31, 79)
        assert log.lost == 100
    assert "100 records were overwritten before they were read" in device.able


async def test_a_cursor_that_cannot_be_read_counts_as_none(device: Device) -> None:
    device.folder.write("kmsg.cursor", b'{"boot_id": 7')
    device.say(79)
    async with device.read():
        await device.heard(79)


async def test_a_storm_leaves_others_their_turn(device: Device) -> None:
    async with device.read():
        await eventually(lambda: device.writer is not None, 10, "open")
        for _ in range(20):
            for _ in range(100):
                device.say(31)
            await asyncio.sleep(0)
        await eventually(lambda: len(device.told) == 2000, 20, "all were read")


JOURNAL = """#!{python}
import json, sys
print(json.dumps({{"MESSAGE": " ".join(sys.argv[1:]), "_TRANSPORT": "kernel"}}))
entries = [("kernel", "0", "79"), ("kernel", "1", "48"), ("syslog", "3", "13")]
for number, (transport, facility, code) in enumerate(entries):
    line = "NVRM: Xid (PCI:0000:05:00): %s, pid=7" % code
    message = list(line.encode()) if number == 0 else line
    print(json.dumps({{"MESSAGE": message, "_TRANSPORT": transport, "SYSLOG_FACILITY": facility,
                      "__CURSOR": "s=%d" % number, "_SOURCE_MONOTONIC_TIMESTAMP": "4999000000"}}))
print("no json")
"""


async def test_where_the_device_may_not_be_read_the_journal_is(device: Device, tmp_path: Path) -> None:
    command = tmp_path / "journalctl"
    command.write_text(JOURNAL.format(python=sys.executable))
    command.chmod(command.stat().st_mode | stat.S_IXUSR)

    def denied(path: str) -> int:
        raise PermissionError(1, os.strerror(1), path)

    seen: list[Framed] = []
    for where in ("--lines=all --boot", "--after-cursor=s=2"):
        seen.clear()
        log = KernelLog(
            "kmsg", "boot-1", device.folder, lambda found: seen.extend(framed for framed, _fresh in found),
            lambda _source, why: device.able.append(why), denied, Journal((str(command),)), time.monotonic,
        )  # fmt: skip
        await asyncio.wait_for(log.run(), 20)
        found = [of_message(framed) for framed in seen]
        assert seen[0].text == where
        assert [(one.xid, one.injected) for one in found[1:]] == [(79, False), (48, True), (None, False)]
    assert device.able[-1].startswith("kmsg: Operation not permitted; journalctl ended with 0")


async def test_a_mark_that_the_journal_does_not_know_is_given_up_and_old_entries_are_not_told_again(
    device: Device, tmp_path: Path
) -> None:
    command = tmp_path / "journalctl"
    command.write_text(
        f"#!{sys.executable}\nimport json, sys\n"
        "if '--after-cursor=gone' in sys.argv: sys.exit(1)\n"
        "for at, code in ((10, 119), (4999, 79)):\n"
        "    line = f'NVRM: Xid (PCI:0000:05:00): {code}, x'\n"
        "    print(json.dumps({'MESSAGE': line, '_TRANSPORT': 'kernel', '__CURSOR': 's',\n"
        "                      '_SOURCE_MONOTONIC_TIMESTAMP': str(at * 10**6)}))\n"
    )
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    device.folder.write("kmsg.cursor", b'{"boot_id": "boot-1", "journal": "gone"}')
    for _ in range(2):
        log = device.log()
        log.device = lambda path: os.open(f"/nonexistent/{path}", os.O_RDONLY)
        log.journal = Journal((str(command),))
        await asyncio.wait_for(log.run(), 20)
    assert device.told == [(119, False), (79, True)]


async def test_where_neither_can_be_read_it_is_told(device: Device) -> None:
    log = device.log()
    log.device = lambda path: os.open(f"/nonexistent/{path}", os.O_RDONLY)
    log.journal = Journal(("/nonexistent/journalctl",))
    await asyncio.wait_for(log.run(), 20)
    assert device.able == [
        "kmsg: No such file or directory; journalctl: No such file or directory: "
        "Xids are heard of through NVML's events alone"
    ]


async def test_a_journal_that_waits_and_tells_nothing_is_not_taken_for_a_quiet_kernel(device: Device) -> None:
    """That is what journalctl does for a user who may not read it."""
    log = device.log()
    log.device = lambda path: os.open(f"/nonexistent/{path}", os.O_RDONLY)
    log.journal, log.quiet_s = Journal((sys.executable, "-c", "import time; time.sleep(60)")), 0.1
    task = asyncio.create_task(log.run())
    await eventually(lambda: device.able, 10, "it is told")
    assert "may this user read it?" in device.able[0]
    task.cancel()
    await asyncio.wait_for(asyncio.gather(task, return_exceptions=True), 10)
    assert len(device.able) == 1
