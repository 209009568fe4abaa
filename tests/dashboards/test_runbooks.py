"""Every alert has its page, every page an alert, and each page the same four headings."""

import re
from pathlib import Path

import pytest

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


def test_the_list_of_them_and_the_example_for_alertmanager_are_those_of_the_rules() -> None:
    assert differing(REPO, build.beside()) == [], "run `make dashboards` and commit what it writes"


def test_the_list_of_them_names_each_once() -> None:
    listed = re.findall(
        r"^\| \[(\w+)\]\(\1\.md\)", (REPO / runbooks.INDEX).read_text(encoding="utf-8"), flags=re.MULTILINE
    )
    assert listed == [alert.name for alert in rules.ALERTS]
