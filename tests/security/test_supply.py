"""What is installed with rankpulse is listed: `make sbom`."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
TOOL = shutil.which("cyclonedx-py", path=f"{REPO}/build/tools/bin") or shutil.which("cyclonedx-py")


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.mark.skipif(TOOL is None, reason="cyclonedx-py is not here: `make sbom` installs it into build/tools")
def test_the_list_of_parts_is_valid_and_holds_our_dependencies(tmp_path: Path) -> None:
    assert TOOL is not None
    out, pyproject = tmp_path / "sbom.json", REPO / "pyproject.toml"
    subprocess.run(
        [TOOL, "environment", "--pyproject", str(pyproject), "--of", "JSON", "-o", str(out), sys.executable],
        capture_output=True, timeout=120, check=True,
    )  # fmt: skip
    made = json.loads(out.read_text())
    assert (made["bomFormat"], made["metadata"]["component"]["name"]) == ("CycloneDX", "rankpulse")
    listed = {_normal(part["name"]): part["version"] for part in made["components"]}
    wanted = tomllib.loads(pyproject.read_text())["project"]["dependencies"]
    assert {_normal(re.split(r"[<>=~!]", line)[0]) for line in wanted} <= listed.keys()
    assert all(listed.values())
