"""The weekly report as HTML in a real Chromium: nothing asked for, nothing complained of, readable everywhere."""

from pathlib import Path
from typing import Any

import looking
import pytest
from report_world import DAYS, ENTRIES
from typer.testing import CliRunner

from rankpulse.cli.main import app
from rankpulse.core import ledger_lines

pytestmark = pytest.mark.live


@pytest.fixture
def report(tmp_path: Path) -> str:
    """The address of a report with hostile names in it."""
    lines, out = tmp_path / "ledger.jsonl", tmp_path / "week.html"
    lines.write_bytes(b"".join(ledger_lines.written(one) for one in (*DAYS, *ENTRIES)))
    found = CliRunner().invoke(app, ["report", "--from", str(lines), "--out", str(out)])
    assert found.exit_code == 0, found.stderr
    return out.as_uri()


def test_it_asks_for_nothing_and_runs_nothing(report: str, chromium: Any) -> None:
    chromium.get(report)
    assert "LEMON" in chromium.find_element("tag name", "body").text
    assert looking.asked_for(chromium) == {report}
    assert looking.complaints(chromium) == []
    assert chromium.execute_script("return document.scripts.length") == 0


def test_every_text_stands_out_in_the_light_and_in_the_dark(report: str, chromium: Any) -> None:
    chromium.get(report)
    for scheme in ("light", "dark"):
        count, faint = looking.contrasts(chromium, scheme)
        assert count > 100
        assert faint == [], scheme


@pytest.mark.parametrize("width", [360, 1400])
def test_it_fits_the_screen(report: str, chromium: Any, width: int) -> None:
    looking.size(chromium, width)
    chromium.get(report)
    assert looking.too_wide(chromium) == []
