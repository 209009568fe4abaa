"""docs/receiver.md against the code: every setting with its default, examples that are good, words that are said."""

import re
import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rankpulse.core.settings import parse as parse_of_monitor
from rankpulse.receiver.jobs import Job
from rankpulse.receiver.settings import SECTIONS, ReceiverSettings, parse

REPO = Path(__file__).resolve().parents[2]
PAGE = (REPO / "docs/receiver.md").read_text()
TABLES: dict[str, type[msgspec.Struct]] = {**SECTIONS, "[jobs]": Job}


def rows(heading: str) -> dict[str, str]:
    """Defaults by setting, of the first table below a heading."""
    part = re.split(r"^##", PAGE.partition(f"\n{heading}\n")[2], flags=re.MULTILINE)[0]
    return dict(re.findall(r"^\| `(\w+)` \| (\S*) ?\|", part, flags=re.MULTILINE))


def wanted(kind: type[msgspec.Struct]) -> dict[str, str]:
    def shown(default: Any) -> str:
        if default is msgspec.NODEFAULT:
            return ""
        if default == "":
            return '`""`'
        text = str(list(default)).replace("'", '"') if isinstance(default, tuple) else str(default)
        return f"`{text}`"

    fields = msgspec.structs.fields(kind)
    return {one.name: shown(one.default) for one in fields if one.name not in (*SECTIONS, "jobs")}


@pytest.mark.parametrize("name", TABLES)
def test_every_setting_stands_there_with_its_default(name: str) -> None:
    assert rows(f"### `[{name}]`") == wanted(TABLES[name])


def test_so_do_those_of_the_top_level() -> None:
    assert rows("## Settings") == wanted(ReceiverSettings)


def test_every_example_is_good() -> None:
    head = {"secret_file": "x", "clusters": ["prod"]}
    found = [tomllib.loads(one) for one in re.findall(r"^```toml\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)]
    ours = [parse({**head, **tree}) for tree in found if "jobs" in tree]
    assert {made.jobs[0].actuator for made in ours} == {"slurm", "kubernetes", "command", "torchrun"}
    (target,) = [tree for tree in found if "webhook" in tree]
    assert parse_of_monitor(target).webhook.targets[0].events == ("restart", "page", "closed")


def test_every_word_of_the_audit_and_every_status_is_explained() -> None:
    code = "\n".join(file.read_text() for file in (REPO / "receiver").glob("*.py"))
    told = set(
        re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.*?) \|", PAGE.partition("## Was it done?")[2], re.M)))
    )
    noted = set(re.findall(r'note\(\w*\.?\w*,? ?"(\w+)"', code)) | {"begun", "heard", "done", "failed", "dry"}
    assert noted <= told
    statuses = set(re.findall(r"(?:Reply|Denied)\((\d{3})", code)) | set(re.findall(r"_deny\([^,]+, (\d{3})", code))
    assert len(statuses) >= 8
    part = PAGE.partition("| answer | means |")[2].partition("\n\n")[0]
    assert statuses <= set(re.findall(r"\b(\d{3})\b", part))
