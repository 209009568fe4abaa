"""The page of one run: its figures, what it lost, its incidents, its ranks. Pure."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from rankpulse.core.glance import Glance
from rankpulse.core.naming import names_in_words
from rankpulse.core.words import span
from rankpulse.monitor.page import runs
from rankpulse.monitor.page.about import About
from rankpulse.monitor.page.blocks import concerning, row, table
from rankpulse.monitor.page.html import Html, el
from rankpulse.monitor.page.words import EM, link, sign

if TYPE_CHECKING:
    from rankpulse.core.engine import Engine

RANKS: Final = 64  # of a run or node that are listed one by one


def run(engine: "Engine", told: Glance, uid: str, about: About) -> Html | None:
    figures = told.runs.get(uid)
    if figures is None:
        return None
    hurt = any(i.run_uid == uid for i in told.open)
    level, sign_, word = ("bad", "✕", "incident open") if hurt else ("fine", "■", figures["outcome"])
    if told.unheard.get(uid) and not hurt:
        level, sign_, word = "doubt", "?", "not heard of"
    return el(
        "article",
        el("h1", sign(sign_, level, word), f" {figures['run_id'] or uid}: {_stands(uid, figures, hurt, told)}"),
        el("dl", [row(key, value) for key, value in _run_facts(engine, uid, figures, told)], class_="facts"),
        _board(about, told.cluster, uid),
        concerning([i for i in (*told.open, *told.closed) if i.run_uid == uid]),
        _ranks(engine, uid),
        id="main-piece", class_="detail",
    )  # fmt: skip


def _board(about: About, cluster: str, uid: str) -> Html | None:
    """The way to its dashboard."""
    if not about.grafana:
        return None
    where = f"{about.grafana.rstrip('/')}/d/rankpulse-run?{urlencode({'var-cluster': cluster, 'var-run': uid})}"
    return el("p", el("a", "Its dashboard in Grafana", href=where))


def _stands(uid: str, run_: dict[str, Any], hurt: bool, told: Glance) -> str:
    if run_["outcome"] != "running":
        return str(run_["outcome"])
    return runs.state(run_, hurt, told.armed, told.unheard.get(uid, 0))


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
    return table(f"Ranks, those behind first{more}", columns, rows)
