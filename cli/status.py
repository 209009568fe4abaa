"""`rankpulse status`: how things stand, from the store and the leader's own page."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from rankpulse.cli import books, live, show, webhooks
from rankpulse.cli.books import Books
from rankpulse.cli.modes import Consent
from rankpulse.core import modes
from rankpulse.core.fold_outbox import DEAD, PENDING
from rankpulse.core.keys import Keys
from rankpulse.core.records import (
    AgentClaim,
    Arm,
    Beat,
    Breaker,
    CheckpointState,
    Cordon,
    Leader,
    Maintenance,
    NodeState,
    Outgoing,
    RunAdvice,
    RunMode,
    RunState,
)
from rankpulse.core.settings import Settings


def monitor_url(leader: Leader | None, settings: Settings) -> str:
    """Where the leader says its page is, else where ours would be."""
    return (
        leader.url
        if leader and leader.url
        else f"{'https' if settings.http.cert_file else 'http'}://{settings.monitor.listen}"
    )


async def gather(settings: Settings) -> dict[str, Any]:
    """Everything `status` shows, as JSON values. Raises `StoreError`."""
    keys = Keys(settings.cluster)
    async with books.opened(settings) as store:
        known = await books.read(store, keys)
    leader = known.first(Leader)
    state, error = (
        await live.fetch(monitor_url(leader, settings), settings.http) if leader else (None, "no monitor leads")
    )
    arm = known.first(Arm)
    return {
        "cluster": settings.cluster,
        "store": list(settings.store.endpoints),
        "armed": bool(arm and arm.armed),
        "arm": msgspec.to_builtins(arm) if arm else None,
        "leader": msgspec.to_builtins(leader) if leader else None,
        "monitor": msgspec.to_builtins(state) if state else None,
        "monitor_error": error,
        "nodes": _nodes(known, state.nodes if state else None),
        "runs": _runs(known, state.runs if state else {}),
        "breaker": _breaker(known.first(Breaker)),
        "modes": [_mode(known, keys, mode) for mode in sorted(known.of(RunMode), key=lambda m: m.run_uid)],
        "maintenance": [msgspec.to_builtins(one) for one in sorted(known.of(Maintenance), key=lambda m: m.node)],
        "cordons": [msgspec.to_builtins(cordon) for cordon in sorted(known.of(Cordon), key=lambda c: c.node)],
        "webhooks": [webhooks.row(one) for one in known.of(Outgoing) if one.state in (PENDING, DEAD)],
        "incidents_open": [msgspec.to_builtins(i) for i in known.incidents() if i.state == "open"],
        "refused": known.refused,
    }


def _mode(known: Books, keys: Keys, mode: RunMode) -> dict[str, Any]:
    """`holds`: false for an arming that a later `disarm` of the cluster has stopped."""
    arm, said = known.first(Arm), known.revisions
    stopped = mode.mode == modes.ARMED and arm is not None and not arm.armed
    later = stopped and said.get(keys.arm(), 0) > said.get(keys.run_mode(mode.run_uid), 0)
    return {**msgspec.to_builtins(mode), "holds": not later}


def _breaker(breaker: Breaker | None) -> dict[str, Any] | None:
    """Only one that is open."""
    return dict(msgspec.to_builtins(breaker)) if breaker is not None and breaker.open else None


def _nodes(known: Books, page: Mapping[str, live.Node] | None) -> list[dict[str, Any]]:
    """Every node the store knows. `page`: those that the leader watches, None where it does not say."""
    shown = page or {}
    beats = {beat.node: beat for beat in known.of(Beat)}
    states = {state.node: state for state in known.of(NodeState)}
    claims = {claim.node: claim for claim in known.of(AgentClaim)}
    unknown = msgspec.structs.asdict(live.Node()) | {"suspect": None, "leaving": None}
    return [
        {
            "node": node,
            "host": claims[node].host if node in claims else "",
            "incarnation": claims[node].inc if node in claims else None,
            "workers": len(beats[node].ranks) if node in beats else 0,
            "beat_at": beats[node].at if node in beats else None,
            **(msgspec.to_builtins(shown[node]) if node in shown else unknown),
            "watched": node in page if page is not None else None,
            "missing": {name: why for name, why in states[node].capabilities.items() if why != "ok"}
            if node in states
            else {},
        }
        for node in sorted(beats.keys() | states.keys() | claims.keys())
    ]


def _runs(known: Books, shown: Mapping[str, live.Run]) -> list[dict[str, Any]]:
    """Every launch the store knows, the newest last, with the monitor's live figures for those going on."""
    checkpoints = {state.run_uid: state for state in known.of(CheckpointState)}
    advice = {one.run_uid: one for one in known.of(RunAdvice)}
    return [
        {
            "run_uid": run.run_uid,
            "run_id": run.run_id,
            "round": run.round,
            "outcome": run.outcome,
            "reason": run.reason,
            "ended_at": run.ended_at,
            **_figures(shown.get(run.run_uid)),
            "checkpoint": _checkpoint_of(checkpoints.get(run.run_uid), shown.get(run.run_uid)),
            "advice": msgspec.to_builtins(advice.get(run.run_uid)),
        }
        for run in sorted(known.of(RunState), key=lambda run: (run.at, run.run_uid))
    ]


def _figures(run: live.Run | None) -> dict[str, Any]:
    """None where the monitor does not say."""
    if run is None:
        return dict.fromkeys(("step", "step_spread", "world_size", "phases", "ranks", "pace", "stragglers"))
    return {**msgspec.to_builtins(run), "ranks": len(run.ranks) or None}


def _checkpoint_of(state: CheckpointState | None, run: live.Run | None) -> dict[str, Any] | None:
    """What the job has said, as it stands in the store, and how long ago that is, as the monitor has seen it."""
    if state is None:
        return None
    ages = run.checkpoint if run is not None and run.checkpoint is not None else live.Checkpoint()
    told = msgspec.to_builtins(state)
    return {name: told[name] for name in told if name not in ("v", "run_uid", "heard")} | msgspec.structs.asdict(ages)


def page(status: Mapping[str, Any]) -> None:
    out = show.console()
    show.facts(out, _head(status))
    if status["nodes"]:
        out.print()
        show.table(out, ("node", "host", "agent", "workers", "silent for", "deadline", ""), map(_node, status["nodes"]))
    going = [run for run in status["runs"] if run["outcome"] == "running"]
    past = [run for run in status["runs"] if run["outcome"] != "running"][-5:]
    if going or past:
        out.print()
        show.table(out, ("run", "label", "round", "ranks", "step", "phase", "state"), map(_run, past + going))
    slow = [line for run in going for line in slowness(run)]
    if slow:
        out.print()
        show.facts(out, [("slow", slow)])
    told = [run for run in going if run["checkpoint"]]
    if told:
        names = [f"{run['run_uid']}: " if len(going) > 1 else "" for run in told]
        out.print()
        show.facts(out, [("checkpoint", [name + checkpoint(run) for name, run in zip(names, told, strict=True)])])
    if status["incidents_open"]:
        out.print("\nopen incidents", style="bold")
        rows = [(i["id"], i["klass"], i["action"], i["summary"]) for i in status["incidents_open"]]
        show.table(out, ("incident", "class", "action", "summary"), rows)
        out.print("\nThe whole story of one: rankpulse explain INCIDENT")


def _head(status: Mapping[str, Any]) -> list[tuple[str, object]]:
    leader, state, arm = status["leader"], status["monitor"], status["arm"]
    rows: list[tuple[str, object]] = [("cluster", f"{status['cluster']} at {', '.join(status['store'])}")]
    if leader is None:
        rows.append(("monitor", "none leads: nothing is being diagnosed. Start one with `rankpulse monitor`"))
    else:
        rows.append(("monitor", f"{leader['monitor']} leads, epoch {leader['epoch']}, {leader['url'] or 'no page'}"))
    if leader and state is None:
        rows.append(("", f"its page cannot be read, so live figures are missing: {status['monitor_error']}"))
    if state and state["blind"]:
        rows.append(("blind", state["blind_reason"] or "yes"))
    rows.append(("orders", _orders(status["armed"], arm)))
    rows += _kept(status)
    if kept_out := _kept_out(status["nodes"]):
        rows.append(("kept out", kept_out))
    if untold := webhooks.trouble(status.get("webhooks") or ()):
        rows.append(("NOT TOLD", untold))
    if not status["nodes"]:
        rows.append(("nodes", "none yet: start `rankpulse agent` on each node"))
    if status["refused"]:
        rows.append(("refused", [f"{key}: {why}" for key, why in list(status["refused"].items())[:5]]))
    return rows


def _orders(armed: bool, arm: Mapping[str, Any] | None) -> str:
    if not arm:
        return "observe only, not armed"
    return f"{'armed' if armed else 'observe only, disarmed'} {_said(arm)}"


def _kept(status: Mapping[str, Any]) -> Iterable[tuple[str, object]]:
    """What keeps from acting, and who is kept out of rounds."""
    breaker = status.get("breaker")
    if breaker:
        text = f"OPEN since {show.ago(breaker['at'])}: {breaker['reason']}. Nothing is ordered: look, then close it"
        yield "breaker", [text, "rankpulse breaker close --reason '…'"]
    for mode in status.get("modes", ()):
        stopped = "" if mode.get("holds", True) else ". NOT IN FORCE: the cluster was disarmed after that"
        label = "observed" if mode["mode"] == modes.OBSERVED else mode["mode"]
        more = Consent(mode.get("restart_on_non_finite"), mode.get("restart_on_corruption")).words()
        yield f"run {label}", f"{mode['run_uid']}{more}, {_said(mode)}{stopped}"
    if status["cordons"]:
        yield "cordoned", [f"{c['node']} {_said(c)}{_more(c)}" for c in status["cordons"]]
    if status.get("maintenance"):
        yield "maintenance", [f"{one['node']} {_said(one)}" for one in status["maintenance"]]


def _said(record: Mapping[str, Any]) -> str:
    return f"by {record['author']}, {show.ago(record['at'])}: {record['reason']}"


def _more(cordon: Mapping[str, Any]) -> str:
    parts = ["jobs leave it after their next checkpoint"] if cordon["drain"] else []
    parts += [f"until {show.clock_time(cordon['until'])}"] if cordon["until"] else []
    parts += [f"see rankpulse explain {cordon['incident']}"] if cordon["incident"] else []
    return f" ({'; '.join(parts)})" if parts else ""


def _kept_out(nodes: Iterable[Mapping[str, Any]]) -> list[str]:
    """Nodes that may be in no round at present, by their own agents' look at them."""
    words = [(node["node"], node["missing"].get("preflight", "")) for node in nodes]
    return [f"{name}: {why}" for name, why in words if why.startswith("refused, because ")]


def _node(node: Mapping[str, Any]) -> tuple[object, ...]:
    silence = node["silence_s"]
    silent = show.span(silence) if silence is not None else _last_beat(node["beat_at"])
    deadline = show.span(node["deadline_s"]) if node["deadline_s"] is not None else "-"
    return (
        node["node"],
        node["host"] or "-",
        f"start {node['incarnation']}" if node["incarnation"] is not None else "-",
        node["workers"],
        silent,
        deadline,
        _standing(node),
    )


def _last_beat(at: float | None) -> str:
    return f"beat {show.ago(at)}" if at is not None else "-"


def _standing(node: Mapping[str, Any]) -> str:
    """What a person must know of it, "" when there is nothing."""
    if node["suspect"]:
        return _suspect(node["suspicion"], node["look"])
    if (node.get("health") or {}).get("broken"):
        return "; ".join(node["health"]["broken"][:2])
    if node["leaving"]:
        return "left: its agent said goodbye"
    if node["watched"] is False:
        return "not watched any more: its agent left or fell silent, and no job needs it"
    return f"missing: {', '.join(node['missing'])}" if node["missing"] else ""


def _suspect(suspicion: Mapping[str, Any] | None, look: Mapping[str, Any] | None) -> str:
    state = (suspicion or {}).get("state", "")
    thought = "SUSPECT" if state in ("", "trusted") else state.upper()
    return f"{thought}, looked at directly: {look['answer']}" if look and look["answer"] else thought


def _run(run: Mapping[str, Any]) -> tuple[object, ...]:
    ranks = f"{run['ranks']}/{run['world_size']}" if run["ranks"] else "-"
    spread = f" (spread {run['step_spread']})" if run["step_spread"] else ""
    step = "-" if run["step"] is None or run["step"] < 0 else f"{run['step']}{spread}"
    state = run["outcome"] + (f": {run['reason']}" if run["reason"] else "")
    return run["run_uid"], run["run_id"] or "-", run["round"], ranks, step, ", ".join(run["phases"] or ()), state


def slowness(run: Mapping[str, Any]) -> list[str]:
    """Lines on who is slower than its peers, and whether the whole run is slower than it was, for people."""
    lines = [
        f"{run['run_uid']}: rank {one['rank']} on {one['node']}, {one['ratio']:.1f} times slower than its peers for "
        f"{show.span(one['for_s'])}: {one['why']}"
        for one in run["stragglers"] or ()
    ]
    pace = run["pace"] or {}
    if pace.get("slower"):
        lines.append(
            f"{run['run_uid']}: all ranks, {pace['slowdown']:.1f} times slower than usual "
            f"({pace['usual_step_s']:.3g} s per step)"
        )
    return lines


def checkpoint(run: Mapping[str, Any]) -> str:
    """A line on the checkpoints of a run, for people."""
    told = run["checkpoint"]
    age = f"{show.span(told['age_s'])} ago" if told["age_s"] is not None else show.ago(told["at"])
    parts = [_newest(told, age)]
    if told["failed_since"]:
        parts.append(
            f"{told['failed_since']} SAVES FAILED since, the last at step {told['failed_step']}: {told['failure']}"
        )
    if told["durable_step"] >= 0:
        age = told["durable_age_s"]
        parts.append(f"step {told['durable_step']} is beyond the nodes" + (f", {show.span(age)} ago" if age else ""))
    if told["upload_failed_since"]:
        where = f"the last at step {told['upload_failed_step']}: {told['upload_failure']}"
        parts.append(f"{told['upload_failed_since']} UPLOADS FAILED since, {where}")
    if told["loaded_step"] >= 0:
        parts.append(f"round {told['loaded_round']} resumed from step {told['loaded_step']}")
    if told["refused"]:
        parts.append(f"{told['refused']} refused")
    if told["resume_before_step"] >= 0:
        parts.append(f"the next load is to be before step {told['resume_before_step']}")
    if run.get("advice"):
        parts.append(advised(run["advice"]))
    return "; ".join(parts)


def advised(told: Mapping[str, Any]) -> str:
    """How often to save, with how sure that is."""
    spans = [show.span(told[name]) for name in ("interval_s", "low_s", "high_s", "mtbf_s")]
    return (
        f"save every {spans[0]} ({spans[1]} to {spans[2]}): a failure every {spans[3]} is expected, "
        f"{told['lost_share']:.1%} of the time lost"
    )


def _newest(told: Mapping[str, Any], age: str) -> str:
    if told["step"] < 0:
        return "none yet"
    verified = told["verified_step"] == told["step"]
    text = f"step {told['step']}, {'verified' if verified else 'NOT verified'}, {age}"
    return text + (f"; save took {told['save_s']:.1f} s" if told["saves"] else "")
