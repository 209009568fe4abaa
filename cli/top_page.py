"""A screen of `rankpulse top` as lines: what is known, how wide and high. Pure; state is told by marks, not by colour.

`!` is trouble, `?` is in doubt, `-` was taken out on purpose.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from rankpulse.cli import show
from rankpulse.cli.top_nodes import notable
from rankpulse.cli.top_state import Incident, Run, State
from rankpulse.cli.top_table import Column, Line, Part, table, wrapped

WIDEST: Final = 200
LEAST_WIDTH: Final = 20
LEAST_ROWS: Final = 3  # of a table, however low the terminal is


class Seen(NamedTuple):
    """What a look at the monitor came to. `state` may be of an earlier look, `age_s` old; `trouble`: why."""

    state: State | None
    trouble: str
    age_s: float
    now: float  # UTC


RUNS: Final = (
    Column("", 0, 1),
    Column("run", 0, 28),
    Column("step", 0, 16),
    Column("s/step", 1, 8),
    Column("ETTR", 2, 6),
    Column("ranks", 4, 11),
    Column("phase", 5, 20),
    Column("checkpoint", 3, 14),
    Column("save every", 7, 10),
    Column("round", 6, 5),
    Column("state", 1, 40),
)
INCIDENTS: Final = (
    Column("", 0, 1),
    Column("incident", 0, 14),
    Column("class", 0, 20),
    Column("open for", 1, 8),
    Column("action", 2, 10),
    Column("run", 3, 24),
    Column("nodes", 4, 24),
)
NODES: Final = (Column("", 0, 1), Column("node", 0, 24), Column("silent for", 1, 10), Column("what", 0, 90))
_MODES: Final = {"paused": "paused", "observe": "observed only", "armed": "armed"}


def screen(seen: Seen, width: int, height: int | None = None) -> list[Line]:
    """At most `height` lines, None: as many as there are. The head and what is wrong come first."""
    width = max(min(width, WIDEST), LEAST_WIDTH)
    top = [Line(show.plain(line.text), line.style) for line in _head(seen, width)]
    if seen.state is None:
        return top[:height]
    parts = [part for part in (_incidents(seen.state, seen.now), _runs(seen.state), _nodes(seen.state)) if part]
    left = None if height is None else height - len(top)
    for number, part in enumerate(parts):
        room = None if left is None else max(left // (len(parts) - number), LEAST_ROWS + 3)
        made = [Line(""), *table(part, width, None if room is None else room - 3)]
        top += made
        left = None if left is None else left - len(made)
    return top[:height]


def _head(seen: Seen, width: int) -> Iterator[Line]:
    state = seen.state
    clock = show.clock_time(seen.now)
    if state is None:
        yield from wrapped(f"rankpulse, {clock}", width, "bold")
        yield from wrapped(f"! nothing is known: {seen.trouble}", width, "red")
        return
    yield from wrapped(f"rankpulse {state.cluster}, {clock}", width, "bold")
    if seen.trouble:
        yield from wrapped(f"! {show.span(seen.age_s)} old: {seen.trouble}", width, "red")
    if state.leads:
        yield from wrapped(f"  {state.monitor} leads, epoch {state.epoch}, {_acts(state)}", width)
    else:
        leader = state.leader.monitor if state.leader is not None else ""
        yield from wrapped(f"! {state.monitor} does not lead{f': {leader} does' if leader else ''}", width, "yellow")
    if state.blind:
        yield from wrapped(f"! BLIND, nothing is concluded: {state.blind_reason or 'no reason told'}", width, "red")
    elif state.actions_stopped:
        yield from wrapped(f"! ACTIONS STOPPED: {state.actions_stopped}", width, "red")
    yield from wrapped(f"  {_counts(state)}", width)


def _acts(state: State) -> str:
    return "armed" if state.armed else "observes only, not armed"


def _counts(state: State) -> str:
    silent = sum(node.suspect for node in state.nodes.values())
    going = [run for run in state.runs.values() if run.outcome == "running"]
    ranks = sum(len(run.ranks) for run in going)
    return (
        f"{_many(len(state.nodes), 'node')}, {silent} silent, {len(state.cordons)} cordoned; "
        f"{_many(len(going), 'run')}, {_many(ranks, 'rank')}; {_many(len(_open(state)), 'incident')} open"
    )


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _open(state: State) -> list[Incident]:
    return [incident for incident in state.incidents if incident.state == "open"]


def _incidents(state: State, now: float) -> Part | None:
    found = sorted(_open(state), key=lambda one: one.opened_at, reverse=True)
    rows: list[tuple[str, ...]] = [
        ("!", one.id, one.klass, show.span(max(now - one.opened_at, 0.0)), one.action or "-",
         one.run_id or one.run_uid or "-", " ".join(one.nodes) or "-")
        for one in found
    ]  # fmt: skip
    return Part("OPEN INCIDENTS", INCIDENTS, rows, [one.summary for one in found]) if rows else None


def _runs(state: State) -> Part:
    going = [(uid, run) for uid, run in state.runs.items() if run.outcome == "running"]
    rows = [_run(uid, run, state) for uid, run in going] or [(" ", "none is going on", *[""] * (len(RUNS) - 2))]
    return Part("RUNS", RUNS, rows, [_slow(run) for _, run in going] or [""])


def _run(uid: str, run: Run, state: State) -> tuple[str, ...]:
    share = state.ledger.runs.get(uid)
    hurt = any(one.run_uid == uid for one in _open(state))
    return (
        "!" if hurt else "?" if run.pace.slower or run.stragglers else " ",
        run.run_id or uid,
        _step(run),
        f"{run.pace.step_s:.3g}" if run.pace.step_s is not None else "-",
        f"{share.ettr:.1%}" if share is not None and share.ettr is not None else "-",
        f"{len(run.ranks)}/{run.world_size}" if run.world_size else "-",
        ", ".join(run.phases) or "-",
        _checkpoint(run),
        show.span(run.advice.interval_s) if run.advice is not None else "-",
        str(run.round),
        _state(run, hurt, state.armed),
    )


def _step(run: Run) -> str:
    if run.step is None or run.step < 0:
        return "-"
    return f"{run.step} (+{run.step_spread})" if run.step_spread else str(run.step)


def _checkpoint(run: Run) -> str:
    age_s = run.checkpoint.age_s if run.checkpoint is not None else None
    return f"{show.span(age_s)} ago" if age_s is not None else "-"


def _state(run: Run, hurt: bool, armed: bool) -> str:
    """Of what may be done about it that alone which is another than for the cluster."""
    words = ["incident open"] if hurt else []
    words += [f"{_many(len(run.waiting), 'node')} waiting for a round"] if run.waiting else []
    words += [_MODES[run.mode]] if run.mode in _MODES and run.mode != ("armed" if armed else "observe") else []
    return ", ".join(words) or "goes on"


def _slow(run: Run) -> str:
    if run.stragglers:
        one = run.stragglers[0]
        return f"rank {one.rank} on {one.node} is {one.ratio:.1f} times slower than its peers: {one.why}"
    if run.pace.slower and run.pace.slowdown is not None:
        return f"all ranks are {run.pace.slowdown:.1f} times slower than usual"
    return ""


def _nodes(state: State) -> Part | None:
    rows = notable(state)
    return Part("SILENT, BROKEN OR TAKEN OUT", NODES, rows, [""] * len(rows)) if rows else None
