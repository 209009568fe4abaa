"""Every alert has its page, every page an alert, and each page the same four headings."""

import re
import shlex
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup

from rankpulse.cli.main import app
from rankpulse.dashboards import build, rules, runbooks
from rankpulse.dashboards.alerting import RUNBOOKS, Alert
from rankpulse.dashboards.shipped import differing

REPO = Path(__file__).resolve().parents[2]
PAGES = {path.stem: path for path in (REPO / RUNBOOKS).glob("*.md") if path.name != "README.md"}
LINES_MAX = 40  # of a page: for somebody who was just woken


def sections(page: str) -> dict[str, str]:
    """What stands below each heading."""
    _, *parts = re.split(r"^## (.+)$", page, flags=re.MULTILINE)
    return dict(zip(parts[::2], map(str.strip, parts[1::2]), strict=True))


def commands() -> set[str]:
    found = {command.name or getattr(command.callback, "__name__", "") for command in app.registered_commands}
    return found | {str(group.name) for group in app.registered_groups}


def test_every_alert_has_its_page_and_every_page_its_alert() -> None:
    assert PAGES.keys() == {alert.name for alert in rules.ALERTS}


@pytest.mark.parametrize("alert", rules.ALERTS, ids=lambda alert: alert.name)
def test_a_page_says_what_is_needed(alert: Alert) -> None:
    page = (REPO / alert.runbook).read_text(encoding="utf-8")
    assert page.startswith(f"# {alert.name}\n\n*{runbooks.when(alert)}* · [all alerts](README.md)\n\n## ")
    told = sections(page)
    assert tuple(told) == runbooks.HEADINGS
    assert all(len(text.split()) >= 3 for text in told.values())
    assert len(page.splitlines()) <= LINES_MAX


@pytest.mark.parametrize("path", PAGES.values(), ids=PAGES)
def test_a_page_names_commands_and_metrics_that_exist(path: Path) -> None:
    page = re.sub(r"\s+", " ", path.read_text(encoding="utf-8"))
    assert set(re.findall(r"`rankpulse ([a-z]+)", page)) <= commands()
    assert set(re.findall(r"\bRankpulse[A-Z]\w+", page)) <= PAGES.keys()


PLACEHOLDERS = {
    "NODE": "node-a", "RUN_UID": "job-1", "STEP": "100", "N": "256", "CODE": "79", "ID": "i0001-0001", "DIR": "/d",
    "FILE": "f.jsonl", "FAILURES/GPU_HOURS": "12/96000",
}  # fmt: skip


def parsed(line: str) -> str:
    """ "" where the command line takes it, with something for each placeholder; else why not. Nothing is run."""
    words = [PLACEHOLDERS.get(word, word) for word in shlex.split(line)]
    command, context, name = typer.main.get_command(app), None, words.pop(0)
    try:
        while isinstance(command, TyperGroup):
            context = command.make_context(name, words[:1], parent=context)
            name = words.pop(0) if words else ""
            found = command.get_command(context, name)
            if found is None:
                return f"{line}: there is no {name!r}"
            command = found
        command.make_context(name, words, parent=context)
    except Exception as error:
        return f"{line}: {error}"
    return ""


@pytest.mark.parametrize("path", PAGES.values(), ids=PAGES)
def test_the_commands_of_a_page_can_be_typed_as_they_stand(path: Path) -> None:
    page = re.sub(r"\s+", " ", path.read_text(encoding="utf-8"))
    lines = re.findall(r"`(rankpulse [^`]+)`", page)
    assert [why for line in lines if (why := parsed(line))] == []


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("rankpulse cordon NODE --drain", "reason"),
        ("rankpulse cordon NODE --reason x --soon", "--soon"),
        ("rankpulse restart --reason x", "run"),
        ("rankpulse breaker mend", "mend"),
    ],
)
def test_a_command_that_cannot_be_typed_so_is_noticed(line: str, words: str) -> None:
    assert words in parsed(line)


def test_the_list_of_them_and_the_example_for_alertmanager_are_those_of_the_rules() -> None:
    assert differing(REPO, build.beside()) == [], "run `make dashboards` and commit what it writes"


def test_the_list_of_them_names_each_once() -> None:
    listed = re.findall(
        r"^\| \[(\w+)\]\(\1\.md\)", (REPO / runbooks.INDEX).read_text(encoding="utf-8"), flags=re.MULTILINE
    )
    assert listed == [alert.name for alert in rules.ALERTS]
