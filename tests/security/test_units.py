"""The units of systemd: systemd itself reads them, finds nothing to say, and finds their sandboxes tight."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
# the agent looks into other processes, ends them and asks devices: what that takes cannot be taken from it
EXPOSED = {"agent": 4.0, "monitor": 1.6, "receiver": 1.6}
CAPABILITIES = {"agent": 6, "monitor": 0, "receiver": 0}
analyze = pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not here")


def unit(part: str) -> Path:
    return DEPLOY / f"rankpulse-{part}.service"


def _analyze(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["systemd-analyze", *args], capture_output=True, text=True, timeout=60, check=False)


def test_no_unit_is_forgotten() -> None:
    assert {path.name for path in DEPLOY.glob("*.service")} == {unit(part).name for part in EXPOSED}


@analyze
@pytest.mark.parametrize("part", EXPOSED)
def test_systemd_finds_nothing_wrong_with_it(part: str, tmp_path: Path) -> None:
    text = re.sub(r"^ExecStart=\S+", f"ExecStart={sys.executable}", unit(part).read_text(), flags=re.MULTILINE)
    copy = tmp_path / unit(part).name
    copy.write_text(text)
    done = _analyze("verify", "--man=no", str(copy))
    assert [line for line in done.stderr.splitlines() if copy.name in line] == []


@analyze
@pytest.mark.parametrize("part", EXPOSED)
def test_its_sandbox_is_tight(part: str) -> None:
    done = _analyze("security", "--offline=true", "--no-pager", str(unit(part)))
    (level,) = re.findall(r"exposure level for \S+: ([0-9.]+)", done.stdout)
    assert float(level) <= EXPOSED[part]


@pytest.mark.parametrize("part", CAPABILITIES)
def test_it_has_no_capability_beyond_its_work(part: str) -> None:
    (line,) = re.findall(r"^CapabilityBoundingSet=(.*)$", unit(part).read_text(), flags=re.MULTILINE)
    assert len(line.split()) == CAPABILITIES[part]
    assert "CAP_SYS_ADMIN" not in line
    assert "NoNewPrivileges=yes" in unit(part).read_text()
