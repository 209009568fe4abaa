"""`rankpulse dashboards`: the files of this version, without grafanalib."""

import json
import subprocess
import sys
from pathlib import Path

WITHOUT_GRAFANALIB = "import sys; sys.modules['grafanalib'] = None; from rankpulse.cli.main import main; main()"


def command(*args: str) -> tuple[int, str, str]:
    argv = [sys.executable, "-c", WITHOUT_GRAFANALIB, "dashboards", *args]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout, done.stderr


def test_it_writes_and_checks(tmp_path: Path) -> None:
    out = tmp_path / "a" / "b"
    assert command("--out", str(out), "--check")[0] == 1
    assert not out.exists()
    code, told, _ = command("--out", str(out))
    assert (code, told.count("written")) == (0, 7)
    assert command("--out", str(out), "--check")[0] == 0
    assert command("--out", str(out))[1].count("unchanged") == 7
    board = out / "rankpulse-fleet.json"
    assert json.loads(board.read_text())["uid"] == "rankpulse-fleet"
    board.write_text("{}")
    code, told, _ = command("--out", str(out), "--check")
    assert code == 1
    assert f"{board}: missing or not of this version" in told
    assert f"rankpulse dashboards --out {out}" in told


def test_runbooks_are_linked_where_they_are_kept(tmp_path: Path) -> None:
    at = 'https://wiki.example/a "b"'
    assert command("--out", str(tmp_path), "--runbooks", at)[0] == 0
    rules = (tmp_path / "rules" / "rankpulse.yml").read_text()
    assert rules.count('runbook_url: "https://wiki.example/a%20%22b%22/Rankpulse') == rules.count("- alert:") > 40
    assert "docs/runbooks" not in rules
    for board in tmp_path.glob("*.json"):
        links = [link["url"] for link in json.loads(board.read_text())["links"]]
        assert "https://wiki.example/a%20%22b%22/README.md" in links
        assert "docs/runbooks" not in board.read_text()
    assert command("--out", str(tmp_path), "--runbooks", f"{at}/", "--check")[0] == 0
    assert command("--out", str(tmp_path), "--check")[0] == 1


def test_a_place_that_cannot_be_written_is_said_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code, told, error = command("--out", str(tmp_path / "file"))
    assert (code, told) == (2, "")
    assert "choose another folder with --out" in error
    assert "Traceback" not in error
