"""The kernel's log: its own lines, no others, the telling ones before the rest."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankpulse.agent import kernel_lines
from rankpulse.agent.kernel_lines import LINES_MAX, line_of, read


@pytest.mark.parametrize(
    ("record", "line"),
    [
        (b"6,12,5000000,-;NVRM: Xid (PCI:0:18): 79\n SUBSYSTEM=pci\n", "[5.000000] NVRM: Xid (PCI:0:18): 79"),
        (b"3,12,5000000,-,caller=T1;oom-kill\n", "[5.000000] oom-kill"),
        (b"6,12,5000000,-;a\\x1b[2Jb\n", "[5.000000] a\\x1b[2Jb"),
        (b"14,12,5000000,-;NVRM: Xid 79 says a program\n", ""),
        (b"30,12,5000000,-;systemd\n", ""),
        (b"6,12,900000,-;old\n", ""),
        (b"nonsense", ""),
        (b"", ""),
    ],
    ids=["kernel", "with caller", "escaped", "a user's", "a daemon's", "old", "nonsense", "empty"],
)  # fmt: skip
def test_records(record: bytes, line: str) -> None:
    assert line_of(record, 1.0) == line


@given(st.binary(max_size=100), st.integers(0, 10**30))
def test_reading_is_total(tail: bytes, number: int) -> None:
    assert line_of(tail, 0.0).isprintable()
    assert line_of(f"6,1,{number},-;".encode() + tail, 0.0).isprintable()


def test_a_log_that_is_not_ours_to_see(tmp_path: Path) -> None:
    assert read(1.0, str(tmp_path / "none")) == ((), False)
    assert read(1.0, str(tmp_path)) == ((), False)


def test_telling_lines_are_kept(tmp_path: Path) -> None:
    lines = [f"[{n}.000000] a line" for n in range(500)]
    lines[3] = "[3.000000] NVRM: Xid (PCI:0000:18:00): 79"
    found = kernel_lines._chosen(lines)
    assert len(found) == LINES_MAX
    assert found[0] == lines[3]
    assert found[1:] == tuple(lines[-LINES_MAX + 1 :])


@pytest.mark.live
def test_this_machines_log() -> None:
    """What a program writes there goes by another facility, whatever it claims."""
    if not os.access(kernel_lines.PATH, os.R_OK | os.W_OK):
        pytest.skip("the kernel's log is not ours to see here")
    with open(kernel_lines.PATH, "w", encoding="ascii") as log:
        log.write("<2>NVRM: Xid (PCI:0000:18:00): 79, says a test")
    found = read(kernel_lines.WINDOW_S)
    assert found.readable
    assert found.lines
    assert not [line for line in found.lines if "says a test" in line]
