"""Pages of one incident, one node, one run; and a sentence where there is none of that name. Pure."""

import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from rankpulse.core import node_standing as ns
from rankpulse.core.glance import Glance
from rankpulse.core.incident_sections import sections
from rankpulse.core.incident_words import facts, headline, records
from rankpulse.core.naming import names_in_words
from rankpulse.core.node_standing import Standing
from rankpulse.core.records import Finding, Incident
from rankpulse.core.words import span
from rankpulse.monitor.page import runs
from rankpulse.monitor.page.about import About
from rankpulse.monitor.page.html import Child, Html, el
from rankpulse.monitor.page.incidents import needs, runbook
from rankpulse.monitor.page.words import EM, SHAPES, clock, link, many, mark, sign

if TYPE_CHECKING:
    from rankpulse.core.engine import Engine

RANKS: Final = 64  # of a run or node that are listed one by one
ROWS: Final = 64


def incident(i: Incident, found: Finding | None, about: About) -> Html:
    """Everything about one, as `rankpulse explain` tells it."""
    told_state = needs(i) if i.state == "open" else [sign("–", "out", "over"), f" {i.outcome or i.state}"]
    rows = [_row(name, value) for name, value in facts(i, found, clock)]
    told = [(title, list(lines)) for title, lines in (*sections(i, found), *records(i))]
    more = [_lines(title, lines) for title, lines in told if lines]
    where = el("p", _links(i), "In a terminal: ", el("code", f"rankpulse explain {i.id}"), " · ", runbook(i, about))
    return el(
        "article",
        el("p", told_state, class_="needs"),
        el("h1", headline(i, found)),
        where, el("dl", rows, class_="facts"), more,
        id="main-piece", class_="detail",
    )  # fmt: skip


def _row(name: str, value: object) -> Html:
    lines = [str(line) for line in value] if isinstance(value, (list, tuple)) else [str(value)]
    body: Child = lines[0] if len(lines) == 1 else el("ul", [el("li", line) for line in lines], class_="plain")
    return el("div", el("dt", name), el("dd", body), class_="do" if name == "what to do" else None)


def _lines(title: str, lines: Iterable[str]) -> Html:
    return el("section", el("h2", title), el("ol", [el("li", line) for line in lines], class_="lines"))


def _links(i: Incident) -> Child:
    run: Child = ["Run ", link("runs", i.run_uid, i.run_id or i.run_uid), " · "] if i.run_uid else None
    nodes: Child = [[link("nodes", name), " "] for name in i.nodes[:16]]
    return [run, ["Nodes ", nodes, "· "] if i.nodes else None]


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
        el("dl", [_row(key, value) for key, value in _node_facts(engine, told, one)], class_="facts"),
        _gpus(engine, one), _concerning([i for i in (*told.open, *told.closed) if name in i.nodes]),
        _trail(engine, name, told.now),
        id="main-piece", class_="detail",
    )  # fmt: skip


def _node_facts(engine: "Engine", told: Glance, one: Standing) -> Iterator[tuple[str, object]]:
    if one.words:
        yield "why", one.words
    view = engine.folder.fleet.nodes.get(one.node)
    if view is not None and view.silent_since is not None:
        silence_s = told.now - view.heard_at()
        yield "silence", f"last heard {span(silence_s)} ago" if math.isfinite(silence_s) else "never heard"
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
    return _table("Its GPUs", ("GPU", "bus", "board", "level", "what is open"), rows)


def _table(title: str, columns: tuple[str, ...], rows: list[Html]) -> Html:
    head = el("thead", el("tr", [el("th", name, scope="col") for name in columns]))
    table = el("table", head, el("tbody", rows))
    wide = el("div", table, class_="wide", tabindex="0", role="region", aria_label=title)
    return el("section", el("h2", title), wide)


def _concerning(found: list[Incident]) -> Html | None:
    if not found:
        return None
    rows = [el("li", link("incidents", i.id), f" {i.klass}, {i.outcome or i.state}: {i.summary}") for i in found[:ROWS]]
    return el("section", el("h2", "Incidents"), el("ul", rows))


def _trail(engine: "Engine", name: str, now: float) -> Html | None:
    """How the suspicion of it went on, while there is one."""
    view = engine.folder.fleet.nodes.get(name)
    if view is None or not view.suspect.trail:
        return None
    turns = view.suspect.trail
    lines = [f"{span(max(now - one.at, 0.0))} ago: {one.fact} → {one.state}: {one.reason}" for one in turns]
    return _lines("What was thought of its silence", lines)


def run(engine: "Engine", told: Glance, uid: str, about: About) -> Html | None:
    figures = told.runs.get(uid)
    if figures is None:
        return None
    hurt = any(i.run_uid == uid for i in told.open)
    level, sign_, word = ("bad", "✕", "incident open") if hurt else ("fine", "■", figures["outcome"])
    return el(
        "article",
        el("h1", sign(sign_, level, word), f" {figures['run_id'] or uid}: {_stands(figures, hurt, told)}"),
        el("dl", [_row(key, value) for key, value in _run_facts(engine, uid, figures, told)], class_="facts"),
        _board(about, told.cluster, uid),
        _concerning([i for i in (*told.open, *told.closed) if i.run_uid == uid]),
        _ranks(engine, uid),
        id="main-piece", class_="detail",
    )  # fmt: skip


def _board(about: About, cluster: str, uid: str) -> Html | None:
    """The way to its dashboard."""
    if not about.grafana:
        return None
    where = f"{about.grafana.rstrip('/')}/d/rankpulse-run?{urlencode({'var-cluster': cluster, 'var-run': uid})}"
    return el("p", el("a", "Its dashboard in Grafana", href=where))


def _stands(run_: dict[str, Any], hurt: bool, told: Glance) -> str:
    return runs.state(run_, hurt, told.armed) if run_["outcome"] == "running" else str(run_["outcome"])


def _run_facts(engine: "Engine", uid: str, run_: dict[str, Any], told: Glance) -> Iterator[tuple[str, object]]:
    yield "run", uid
    if run_["reason"]:
        yield "ended", run_["reason"]
    for name, value in runs.figures(uid, run_, told).items():
        yield name, value if isinstance(value, str) else f"{run_['step']:,}, ranks {run_['step_spread']} apart"
    view = engine.folder.fleet.runs[uid]
    yield "nodes", names_in_words(view.current.nodes())
    yield "may be done about it", engine.folder.modes.of(uid).why or "armed: a restart may be ordered"
    checkpoint = run_["checkpoint"]
    if checkpoint is not None:
        saved, verified = checkpoint["step"], checkpoint["verified_step"]
        yield "checkpoints", f"step {saved}, verified {verified}, {checkpoint['saves']} saves"
    if run_["advice"] is not None:
        yield "advice on saving", run_["advice"]["why"]
    share = told.shares.get(uid)
    if share is not None:
        lost = {cause: s for cause, s in share["lost_s"].items() if s}
        yield "lost", ", ".join(f"{cause.replace('_', ' ')} {span(s)}" for cause, s in lost.items()) or "nothing yet"
    yield "commands", [
        f"rankpulse restart {uid} --reason '…'", f"rankpulse pause {uid} --reason '…'",
        f"rankpulse resume {uid} --reason '…'", f"rankpulse arm --run {uid} --reason '…'",
    ]  # fmt: skip


def _ranks(engine: "Engine", uid: str) -> Html:
    """Those furthest behind come first."""
    round_ = engine.folder.fleet.runs[uid].current
    steps = {rank: progress.step for rank, progress in round_.progress.items()}
    ranks = sorted(round_.members, key=lambda rank: (steps.get(rank, -2), rank))
    rows = []
    for rank in ranks[:RANKS]:
        member, progress = round_.members[rank], round_.progress.get(rank)
        step, phase, state = (str(progress.step), progress.phase, progress.state) if progress else (EM, EM, EM)
        cells = (str(rank), link("nodes", member.node), str(member.local_rank), str(member.pid), step, phase, state)
        rows.append(el("tr", [el("td", cell) for cell in cells]))
    more = f", {RANKS} of {len(ranks):,}" if len(ranks) > RANKS else ""
    columns = ("rank", "node", "local rank", "pid", "step", "phase", "state")
    return _table(f"Ranks, those behind first{more}", columns, rows)


def absent(kind: str, name: str, told: Glance) -> Html:
    """What to say where there is none of that name."""
    what = {"incidents": "incident", "nodes": "node", "runs": "run"}.get(kind, "page")
    shown = [el("li", link(kind, known)) for known in _alike(kind, name, told)]
    return el(
        "article",
        el("h1", f"No {what} {name!r} is known" if kind else f"There is no page {name!r}"),
        el("p", {
            "incidents": "One that is over is let go after a while; the ledger keeps it: rankpulse ledger show. ",
            "nodes": "A node is known once its agent has written a beat into this cluster's store. ",
            "runs": "A run that ended is let go after a while. ",
        }.get(kind, ""), "What is known now: ", el("a", "the overview", href="/"), "."),
        el("ul", shown) if shown else None,
        id="main-piece", class_="detail",
    )  # fmt: skip


def _alike(kind: str, name: str, told: Glance) -> list[str]:
    names = {
        "incidents": [i.id for i in (*told.open, *told.closed)],
        "nodes": [node.node for node in told.nodes() if node.state != ns.UNKNOWN],
        "runs": list(told.runs),
    }.get(kind, [])
    return [known for known in names if name and name.lower() in known.lower()][:ROWS]


def search(name: str, told: Glance) -> Html:
    """Nodes whose names hold these letters."""
    found = [node for node in told.nodes() if name.lower() in node.node.lower()]
    rows = [el("li", mark(node.state), " ", link("nodes", node.node), f" {SHAPES[node.state].word}") for node in found]
    return el(
        "article",
        el("h1", f"{many(len(found), 'node')} with {name!r}" if name else many(len(found), "node")),
        el("ul", rows, class_="notable"),
        id="main-piece", class_="detail",
    )  # fmt: skip
