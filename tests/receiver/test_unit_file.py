"""The unit of systemd: systemd itself reads it, and finds nothing to say."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

UNIT = Path(__file__).resolve().parents[2] / "deploy" / "rankpulse-receiver.service"
pytestmark = pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not here")


def test_systemd_finds_nothing_wrong_with_it(tmp_path: Path) -> None:
    text = re.sub(r"^ExecStart=\S+", f"ExecStart={sys.executable}", UNIT.read_text(), flags=re.MULTILINE)
    copy = tmp_path / UNIT.name
    copy.write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(copy)], capture_output=True, text=True, timeout=60, check=False
    )
    assert [line for line in done.stderr.splitlines() if UNIT.name in line] == []


def test_its_sandbox_is_tight() -> None:
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", str(UNIT)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    (level,) = re.findall(r"exposure level for \S+: ([0-9.]+)", done.stdout)
    assert float(level) <= 2.5
