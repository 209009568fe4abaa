"""Runs on the page: how far, how fast, how well, and what is said of them. Pure."""

from typing import Any, Final

from rankpulse.core.glance import Glance
from rankpulse.monitor.page.html import Child, Html, el
from rankpulse.monitor.page.words import EM, link, many, roughly, sign

RUNS: Final = 200  # rows; a cluster that has more is read by `rankpulse status`
COLUMNS: Final = ("run", "step", "s/step", "ETTR", "ranks", "checkpoint", "save every", "state")
_MODES: Final = {"paused": "paused", "observe": "observed only", "armed": "armed", "breaker": "held by the breaker"}


def runs(told: Glance) -> Html:
    going = {uid: run for uid, run in told.runs.items() if run["outcome"] == "running"}
    hurt = {i.run_uid for i in told.open if i.run_uid}
    shown = sorted(going, key=lambda uid: (uid not in hurt, going[uid]["run_id"], uid))[:RUNS]
    rows = [_row(uid, going[uid], told, uid in hurt) for uid in shown]
    title = el("h2", f"Runs ({len(going)})" if going else "Runs")
    if not rows:
        return el("section", title, el("p", "None is going on.", class_="quiet"), id="runs")
    head = el("thead", el("tr", [el("th", name, scope="col") for name in COLUMNS]))
    table = el("table", head, el("tbody", rows), class_="runs")
    more = el("p", f"and {many(len(going) - RUNS, 'more run')}") if len(going) > RUNS else None
    return el("section", title, _wide(table, "runs"), more, id="runs")


def _wide(table: Html, name: str) -> Html:
    """It scrolls by itself where the screen is narrow, also by keys."""
    return el("div", table, class_="wide", tabindex="0", role="region", aria_label=name)


def _row(uid: str, run: dict[str, Any], told: Glance, hurt: bool) -> Html:
    cells = figures(uid, run, told)
    unheard = told.unheard.get(uid, 0)
    level = "bad" if hurt else "doubt" if unheard or run["pace"]["slower"] or run["stragglers"] else "fine"
    doubt = "not heard of" if unheard else "slow"
    shape = {"bad": ("✕", "incident open"), "doubt": ("?", doubt), "fine": ("■", "goes on")}[level]
    name = el("th", sign(shape[0], level, shape[1]), " ", link("runs", uid, run["run_id"] or uid), scope="row")
    told_cells = [el("td", cells[column], data_label=column) for column in COLUMNS[1:-1]]
    return el("tr", name, told_cells, el("td", state(run, hurt, told.armed, unheard), data_label="state"), class_=level)


def figures(uid: str, run: dict[str, Any], told: Glance) -> dict[str, Child]:
    """By column."""
    share, checkpoint, advice = told.shares.get(uid, {}), run["checkpoint"] or {}, run["advice"] or {}
    ettr, step_s = share.get("ettr"), run["pace"]["step_s"]
    age = checkpoint.get("age_s")
    return {
        "step": _step(run),
        "s/step": f"{step_s:.3g}" if step_s is not None else EM,
        "ETTR": f"{ettr:.1%}" if ettr is not None else EM,
        "ranks": f"{run['world_size']:,}" if run["world_size"] else EM,
        "round": str(run["round"]),
        "checkpoint": f"{roughly(age)} old" if age is not None else EM,
        "save every": roughly(advice.get("interval_s")),
    }


def _step(run: dict[str, Any]) -> Child:
    if run["step"] is None or run["step"] < 0:
        return EM
    spread = run["step_spread"]
    return [f"{run['step']:,}", el("small", f" +{spread}") if spread else None]


def state(run: dict[str, Any], hurt: bool, armed: bool, unheard: int = 0) -> str:
    """In words; of what may be done about it only what is another than for the cluster.

    `unheard`: nodes of it that are late or silent: what is shown of them is old.
    """
    words = ["incident open"] if hurt else []
    words += [f"{many(unheard, 'node')} of it late or silent"] if unheard else []
    words += [_slow(run)] if _slow(run) else []
    words += [f"{many(len(run['waiting']), 'node')} waiting for a round"] if run["waiting"] else []
    usual = run["mode"] == ("armed" if armed else "observe")
    words += [_MODES[run["mode"]]] if run["mode"] in _MODES and not usual else []
    phases = [phase for phase in run["phases"] if phase != "train"]
    words += [f"phase {', '.join(phases[:3])}"] if phases else []
    return "; ".join(words) or "goes on"


def _slow(run: dict[str, Any]) -> str:
    if run["stragglers"]:
        one = run["stragglers"][0]
        return f"rank {one['rank']} on {one['node']} is {one['ratio']:.1f} times slower than its peers"
    pace = run["pace"]
    if pace["slower"] and pace["slowdown"] is not None:
        return f"all ranks are {pace['slowdown']:.1f} times slower than usual"
    return ""
