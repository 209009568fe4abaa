"""`rankpulse kmsg` and `rankpulse xid`, as people and programs meet them."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rankpulse.cli.main import app

CASES = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "core" / "kmsg_cases.jsonl").read_text(encoding="utf-8").splitlines()
]
ALWAYS = [
    "line_no",
    "kind",
    "xid",
    "pci_bus_id",
    "pid",
    "process_name",
    "gpu_uuid",
    "recovery_action",
    "action",
    "role",
]


def said(*args: str, stdin: bytes | None = None) -> str:
    result = CliRunner().invoke(app, list(args), input=stdin)
    assert result.exit_code == 0, result.output
    return result.stdout


def rows(log: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in said("kmsg", "-", "--json", stdin=log).splitlines()]


def test_every_collected_line_has_an_object_with_what_it_says() -> None:
    log, wanted, number = b"", {}, 1
    for case in CASES:
        log += case["line"].encode() + b"\n"
        wanted[number] = case["expected"]
        number += case["line"].count("\n") + 1
    found = rows(log)
    assert [row["line_no"] for row in found] == list(range(1, number))
    for row in found:
        assert list(row)[: len(ALWAYS)] == ALWAYS
        expected = wanted.get(row["line_no"], {"kind": "none"})
        assert {name: row.get(name) for name in expected} == expected
        assert (row["kind"] == "none") == (row["role"] is None) == (row["action"] is None)


@pytest.mark.parametrize(
    ("line", "action", "role"),
    [
        ("NVRM: Xid (PCI:0000:05:00): 79, x", "drain_reboot", "cause"),
        ("12,1,2,-;NVRM: Xid (PCI:0000:05:00): 79, x", "ignore", "cause"),
        ("NVRM: Xid (PCI:0000:05:00): 31, x", "restart_app", "cause"),
        ("NVRM: Xid (PCI:0000:05:00): 48, x", "reset_gpu", "cause"),
        ("NVRM: Xid (PCI:0000:05:00): 45, x", "ignore", "consequence"),
        ("NVRM: Xid (PCI:0000:05:00): 63, x", "ignore", "informational"),
        ("NVRM: Xid (PCI:0000:05:00): 777, x", "contact_vendor", "unknown"),
        ("NVRM: Xid (PCI:0000:05:00): 154, changed from 0x0 (None) to 0x2 (OS Reboot)", "drain_reboot", "consequence"),
        ("NVRM: Xid (PCI:0000:05:00): 154, changed from 0x2 (x) to 0x0 (None)", "ignore", "consequence"),
        ("NVRM: Xid (PCI:0000:05:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 01 (0x0)", "reset_gpu", "cause"),
        ("NVRM: Xid (PCI:0000:05:00): 145, RLW_REMAP Nonfatal XC0 i0 Link 00 (0x0)", "ignore", "cause"),
        ("EDAC MC1: 262 CE memory read error on CPU_SrcID#1", "ignore", "informational"),
        ("EDAC MC1: 1 UE memory read error on CPU_SrcID#1", "drain_reboot", "cause"),
        ("mce: [Hardware Error]: Machine check events logged", "ignore", "informational"),
        ("{1}[Hardware Error]: event severity: fatal", "drain_reboot", "cause"),
        ("pcieport 0000:00:02.0: PCIe Bus Error: severity=Corrected, type=Data Link Layer", "ignore", "informational"),
        ("nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 22003, Fatal, Link 28 Minion Halt", "drain_reboot", "cause"),
        ("nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 99999, Non-fatal, Link 28 x", "ignore", "informational"),
    ],
)
def test_what_a_line_asks_for(line: str, action: str, role: str) -> None:
    (row,) = rows(line.encode())
    assert (row["action"], row["role"]) == (action, role)


def test_bytes_of_any_kind_are_read() -> None:
    lost = b"NVRM: Xid (PCI:0000:05:00): 79, pid=1, name=p\xff\xfe, GPU has fallen off the bus."
    found = rows(lost + b"\r\n\x00\xff\n" + b"x" * 300_000 + b"\n" + lost)
    assert [row["xid"] for row in found if row["xid"]] == [79, 79]
    assert found[0]["process_name"] == "p��"
    assert rows(b"") == []


def test_a_log_becomes_a_page_with_what_to_do(tmp_path: Path) -> None:
    log = tmp_path / "kern.log"
    bus = "(PCI:0000:0f:00)"
    log.write_text(
        "[   10.0] NVRM: GPU at PCI:0000:0f:00: GPU-1234\n"
        + "".join(f"[{100 + n / 1000:.3f}] NVRM: Xid {bus}: 31, pid=7, name=python3, Ch {n}\n" for n in range(500))
        + f"[  200.0] NVRM: Xid {bus}: 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"
        + "[  200.1] NVRM: GPU 0000:0f:00.0: GPU has fallen off the bus.\n"
        + f"[  200.2] NVRM: Xid {bus}: 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)\n"
        + "[  300.0] mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link DOWN\n[  301.0] mlx5_core 0000:ab:00.0 mlx5_5: "
        + "Port: 1 Link ACTIVE\n12,9,400000000,-;NVRM: Xid (PCI:0000:10:00): 48, pid=1\n"
    )
    page = said("kmsg", str(log))
    first, second = page.split("\n0000:0f:00 (GPU-1234): ")[1:3]
    assert page.startswith("507 lines, 505 of them about 5 faults")
    assert "1 lines written by a program (injected): not acted upon" in page
    assert first.startswith("XID 79: the GPU has fallen off the bus\n  do: drain the node and reboot it")
    assert "echoes: 154 (1 lines)" in first
    assert second.startswith("XID 31: memory page fault of the GPU\n  do: restart the program\n  500 lines, once")
    assert "0000:10:00: XID 48: memory error that ECC could not correct [injected]\n  do: nothing" in page


def test_a_log_without_faults_and_one_that_cannot_be_read(tmp_path: Path) -> None:
    assert said("kmsg", "-", stdin=b"[ 1.0] Linux version 6.18\n").strip() == "1 line, no fault"
    result = CliRunner().invoke(app, ["kmsg", str(tmp_path / "none")])
    assert result.exit_code == 2
    assert "cannot read" in result.output


@pytest.mark.live
def test_lines_are_told_as_they_come() -> None:
    """`dmesg -w | rankpulse kmsg - --json`: nobody waits for the end of a log that has none."""
    command = [sys.executable, "-c", "from rankpulse.cli.main import app; app()", "kmsg", "-", "--json"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ) as process:
        assert process.stdin
        assert process.stdout
        try:
            process.stdin.write(b"NVRM: Xid (PCI:0000:05:00): 79, x\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["xid"] == 79
        finally:
            process.kill()


def test_a_code_in_plain_words() -> None:
    page = said("xid", "79")
    assert page.startswith("XID 79: the GPU has fallen off the bus")
    assert "drain the node and reboot it" in page
    assert "not known" in said("xid", "88888")
    assert said("xid", "20034").startswith("SXid 20034: LTSSM Fault Up")
    found = json.loads(said("xid", "13", "--json"))
    assert (found["role"], found["scope"], found["program"], found["action"]) == (
        "cause", "process", "likely", "restart_app"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("start", "reader"),
    [(b"\x1f\x8b\x08\x00", "zcat"), (b"\xfd7zXZ\x00", "xzcat"), (b"BZh9", "bzcat"), (b"LPKSHHRH", "journalctl")],
)
def test_a_rotated_log_is_not_called_faultless(start: bytes, reader: str, tmp_path: Path) -> None:
    file = tmp_path / "kern.log.2.gz"
    file.write_bytes(start + b"\n" * 100)
    result = CliRunner().invoke(app, ["kmsg", str(file)])
    assert result.exit_code == 2
    assert f"is no text: {reader}" in result.output


def test_a_log_of_several_machines_is_not_called_faultless() -> None:
    lost = b"NVRM: Xid (PCI:0000:05:00): 79, pid=0, GPU has fallen off the bus.\n"
    assert said("kmsg", "-", stdin=b"gpu07: [ 1.0] " + lost).startswith(
        "1 line, no fault; 1 line with what looks like an Xid, not read"
    )
