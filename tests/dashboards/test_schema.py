"""The dashboards against Grafana's published types, by the TypeScript compiler; it must refuse mutants of them."""

import copy
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rankpulse.dashboards import build

REPO = Path(__file__).resolve().parents[2]
SOURCES = Path(__file__).parent / "schema"
FILES = ("package.json", "package-lock.json", ".npmrc", "tsconfig.json", "types.ts")
Value = dict[str, Any]


def absent(why: str) -> None:
    if os.environ.get("CI"):
        pytest.fail(f"CI must be able to check the boards against Grafana's types: {why}")
    pytest.skip(why)


def place() -> Path:
    """A copy of `schema/` with its packages, below build/: made once, under a name that changes with what is pinned."""
    if not shutil.which("npm") or not shutil.which("node"):
        absent("node and npm are not here: apt-get install nodejs npm")
    lock = json.loads((SOURCES / "package-lock.json").read_text())["packages"]
    pinned = "_".join(lock[f"node_modules/{name}"]["version"] for name in ("@grafana/schema", "typescript"))
    target = REPO / "build" / f"grafana-schema-{pinned}"
    if not target.is_dir():
        install(target)
    return target


def install(target: Path) -> None:
    """Whole or not at all, also when two do it at once."""
    target.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as draft:
        for name in FILES:
            shutil.copy(SOURCES / name, draft)
        try:
            done = subprocess.run(["npm", "ci"], cwd=draft, capture_output=True, text=True, timeout=240, check=False)
        except subprocess.TimeoutExpired:
            absent("npm ci took too long: is its registry within reach?")
            return
        if done.returncode != 0:
            absent(f"npm ci: {done.stderr[-500:]}")
        if not target.is_dir():
            Path(draft, "node_modules").rename(Path(draft, "kept"))
            kept = Path(tempfile.mkdtemp(dir=target.parent))
            Path(draft, "kept").rename(kept / "node_modules")
            try:
                kept.rename(target)
            except OSError:
                shutil.rmtree(kept)  # another was faster


def panels(board: Value) -> Iterator[Value]:
    for panel in board["panels"]:
        yield panel
        yield from panel.get("panels", ())


def as_typescript(board: Value) -> str:
    """Each part as a constant of its type, so that a field that the type does not know is an error as well."""
    rest = {key: value for key, value in board.items() if key not in ("panels", "templating", "annotations")}
    parts = [("Board", rest)]
    parts += [(panel["type"].capitalize(), panel) for panel in panels(board)]
    parts += [("Variable", one) for one in board["templating"]["list"]]
    parts += [("Annotation", one) for one in board["annotations"]["list"]]
    lines = [f"export const _{number}: t.{kind} = {json.dumps(part)};" for number, (kind, part) in enumerate(parts)]
    return "\n".join(["import type * as t from '../types';", *lines, ""])


def first(board: Value, kind: str) -> Value:
    return next(panel for panel in panels(board) if panel["type"] == kind)


MUTANTS: dict[str, Callable[[Value], Any]] = {
    "unit_is_a_number": lambda board: first(board, "timeseries")["fieldConfig"]["defaults"].update(unit=1),
    "misspelled_legend": lambda board: first(board, "timeseries")["options"]["legend"].update(displayMod="list"),
    "unknown_legend_mode": lambda board: first(board, "timeseries")["options"]["legend"].update(displayMode="lst"),
    "unknown_draw_style": lambda board: first(board, "timeseries")["fieldConfig"]["defaults"]["custom"].update(
        drawStyle="dots"
    ),
    "threshold_mode": lambda board: first(board, "stat")["fieldConfig"]["defaults"]["thresholds"].update(mode="abs"),
    "stat_text_mode": lambda board: first(board, "stat")["options"].update(textMode="words"),
    "field_of_no_panel": lambda board: first(board, "stat").update(span=4),
    "no_place": lambda board: first(board, "stat")["gridPos"].pop("w"),
    "link_without_type": lambda board: board["links"][0].pop("type"),
    "refresh_of_a_variable": lambda board: board["templating"]["list"][1].update(refresh=7),
    "annotation_without_colour": lambda board: board["annotations"]["list"][0].pop("iconColor"),
    "heatmap_colours": lambda board: first(board, "heatmap")["options"]["color"].update(mode="rainbow"),
    "format_of_a_query": lambda board: first(board, "stat")["targets"][0].update(format="series"),
}


def mutant(change: Callable[[Value], Any]) -> Value:
    """One panel of each kind is enough."""
    board = copy.deepcopy(next(board for board in build.read() if board["uid"] == "rankpulse-incidents"))
    kinds = {panel["type"]: panel for panel in panels(board)}
    board["panels"] = list(kinds.values())
    change(board)
    return board


def errors(files: dict[str, str]) -> dict[str, list[str]]:
    """What the compiler says of each file, checked together."""
    home = place()
    with tempfile.TemporaryDirectory(dir=home) as work:
        for name in ("types.ts", "tsconfig.json"):
            shutil.copy(SOURCES / name, work)
        made = Path(work, "made")
        made.mkdir()
        for name, text in files.items():
            (made / f"{name}.ts").write_text(text, encoding="utf-8")
        argv = [
            "node",
            str(home / "node_modules" / "typescript" / "bin" / "tsc"),
            "--project",
            work,
            "--pretty",
            "false",
        ]
        done = subprocess.run(argv, cwd=work, capture_output=True, text=True, timeout=240, check=False)
    found: dict[str, list[str]] = {name: [] for name in files}
    for line in done.stdout.splitlines():
        place_, told = re.match(r"made/(.+)\.ts\(", line), line
        if place_:
            found[place_[1]].append(told)
        else:
            assert line.startswith(" "), f"an error in none of the files: {line}"
    assert (done.returncode == 0) == (not any(found.values())), done.stdout + done.stderr
    return found


@pytest.mark.live
def test_boards_are_what_grafana_publishes_and_mutants_are_not() -> None:
    boards = {board["uid"]: as_typescript(board) for board in build.read()}
    mutants = {name: as_typescript(mutant(change)) for name, change in MUTANTS.items()}
    found = errors({**boards, **mutants})
    assert {name: found[name] for name in boards if found[name]} == {}
    assert [name for name in mutants if not found[name]] == [], "mutants that nobody notices: the check is blind there"


def test_what_is_pinned_names_no_registry() -> None:
    lock = (SOURCES / "package-lock.json").read_text()
    assert "://" not in lock
    pinned = json.loads(lock)["packages"]
    assert all("integrity" in row for name, row in pinned.items() if name)
    assert pinned[""]["dependencies"] == json.loads((SOURCES / "package.json").read_text())["dependencies"]
