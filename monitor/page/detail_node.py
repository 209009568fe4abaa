"""The page of one node: how it stands and why, its GPUs, its incidents, what was thought of its silence. Pure."""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rankpulse.core.glance import Glance
from rankpulse.core.node_standing import Standing
from rankpulse.core.words import span
from rankpulse.monitor.page.blocks import ROWS, concerning, lines, row, table
from rankpulse.monitor.page.html import Html, el
from rankpulse.monitor.page.words import EM, SHAPES, mark

if TYPE_CHECKING:
    from rankpulse.core.engine import Engine


def node(engine: "Engine", told: Glance, name: str) -> Html | None:
    """None: nobody ever heard of it."""
    one = next((node for node in told.nodes() if node.node == name), None)
    if one is None:
        return None
    shape = SHAPES[one.state]
    return el(
        "article",
        el("h1", mark(one.state), f" {name}: {shape.word}"),
        el("p", shape.says),
        el("dl", [row(key, value) for key, value in _node_facts(engine, told, one)], class_="facts"),
        _gpus(engine, one), concerning([i for i in (*told.open, *told.closed) if name in i.nodes]),
        _trail(engine, name, told.now),
        id="main-piece", class_="detail",
    )  # fmt: skip


def _node_facts(engine: "Engine", told: Glance, one: Standing) -> Iterator[tuple[str, object]]:
    if one.words:
        yield "why", one.words
    view = engine.folder.fleet.nodes.get(one.node)
    if view is not None and view.silent_since is not None:
        silence_s = told.now - view.heard_at()
        yield "silence", f"last heard {span(max(silence_s, 0.0))} ago" if math.isfinite(silence_s) else "never heard"
    if view is not None and view.state is not None:
        yield "machine", f"{view.state.host}, rack {view.state.rack or EM}, agent {view.state.agent_version}"
        yield "watches with", [f"{name}: {how}" for name, how in sorted(view.state.capabilities.items())] or EM
    yield "GPUs", f"{one.known_gpus} known, {len(one.gpus)} not well" if one.known_gpus else "its agent tells of none"
    for uid, ranks in _ranks_on(engine, one.node):
        yield f"run {uid}", f"ranks {ranks}"
    yield "commands", [
        f"rankpulse cordon {one.node} --reason '…'", f"rankpulse cordon {one.node} --drain --reason '…'",
        f"rankpulse maintenance {one.node} --reason '…'", f"rankpulse uncordon {one.node} --reason '…'",
    ]  # fmt: skip


def _ranks_on(engine: "Engine", node: str) -> Iterator[tuple[str, str]]:
    for run in engine.folder.fleet.runs.values():
        if run.rounds and run.open():
            ranks = sorted(rank for rank, member in run.current.members.items() if member.node == node)
            if ranks:
                yield run.run_id or run.uid, ", ".join(map(str, ranks[:ROWS]))


def _gpus(engine: "Engine", one: Standing) -> Html | None:
    record = engine.folder.health.records.get(one.node)
    if record is None or not record.gpus:
        return None
    rows = [
        el("tr", el("td", str(gpu.index)), el("td", gpu.bus), el("td", gpu.name or EM), el("td", gpu.level),
           el("td", "; ".join(f.text for f in gpu.findings if f.cleared_at is None) or EM, class_="long"))
        for gpu in record.gpus[:ROWS]
    ]  # fmt: skip
    return table("Its GPUs", ("GPU", "bus", "board", "level", "what is open"), rows)


def _trail(engine: "Engine", name: str, now: float) -> Html | None:
    """How the suspicion of it went on, while there is one."""
    view = engine.folder.fleet.nodes.get(name)
    if view is None or not view.suspect.trail:
        return None
    turns = view.suspect.trail
    said = [f"{span(max(now - one.at, 0.0))} ago: {one.fact} → {one.state}: {one.reason}" for one in turns]
    return lines("What was thought of its silence", said)
