"""What is believed, as plain JSON values, for metrics, the page and commands. Reads only."""

import math
from collections.abc import Iterable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import msgspec

from rankpulse.core.fold_checkpoints import CheckpointFolder
from rankpulse.core.phases import clock_of
from rankpulse.core.records import Cordon, RunAdvice
from rankpulse.core.show_health import health
from rankpulse.core.show_ledger import ledger
from rankpulse.core.show_outbox import outbox
from rankpulse.core.show_silence import actions_stopped, conviction, suspicion
from rankpulse.core.stragglers import Straggler
from rankpulse.core.views import NodeView, RoundView, RunView

if TYPE_CHECKING:
    from rankpulse.core.engine import Engine

_MARK: Final = attrgetter("mark")
_PHASE: Final = attrgetter("phase")


def snapshot(engine: "Engine", now: float) -> dict[str, Any]:
    """Everything. Times are seconds relative to `now`, except `…_at`, which are UTC."""
    folder, sight = engine.folder, engine.sight
    armed = folder.armed
    return {
        "cluster": engine.keys.cluster,
        "leading": engine.epoch is not None,
        "epoch": engine.epoch if engine.epoch is not None else (folder.leader.epoch if folder.leader else None),
        "leader": msgspec.to_builtins(folder.leader) if folder.leader else None,
        "armed": bool(armed and armed.armed),
        "arm": msgspec.to_builtins(armed) if armed else None,
        "blind": sight.blind(now),
        "blind_reason": sight.why_blind(now),
        "blind_seconds_total": round(sight.blind_s, 3),
        "echo_age_s": round(now - sight.canary_at, 3) if math.isfinite(sight.canary_at) else None,
        "actions_stopped": actions_stopped(engine, now),
        "conviction": conviction(engine),
        "events": {kind.__name__: count for kind, count in folder.counts.items()},
        "refused": folder.refused,
        "breaker": folder.modes.open,
        "cordons": {node: _cordon(cordon) for node, cordon in sorted(folder.joint.cordons.items())},
        "maintenance": {
            node: {"author": one.author, "reason": one.reason, "at": one.at}
            for node, one in sorted(folder.modes.maintenance.items())
        },
        "nodes": {
            name: _node(node, now) | {"health": health(folder.health, name)}
            for name, node in sorted(folder.fleet.nodes.items())
        },
        "runs": {
            uid: {**run_figures(engine, run, now), "ranks": _ranks(run.current)}
            for uid, run in sorted(folder.fleet.runs.items())
            if run.rounds
        },
        "outbox": outbox(engine, now),
        "ledger": ledger(engine),
        "incidents": [msgspec.to_builtins(i) for i in sorted(engine.book, key=lambda i: (i.opened_at, i.id))],
    }


def _cordon(cordon: Cordon) -> dict[str, Any]:
    return {
        "author": cordon.author,
        "reason": cordon.reason,
        "at": cordon.at,
        "owner": cordon.owner,
        "incident": cordon.incident,
        "drain": cordon.drain,
        "until": cordon.until,
    }


def _node(node: NodeView, now: float) -> dict[str, Any]:
    last, deadline = node.arrival.last, node.arrival.deadline()
    return {
        "incarnation": node.inc,
        "seq": node.seq,
        "silence_s": round(now - last, 3) if last is not None else None,
        "deadline_s": round(deadline - last, 3) if last is not None and math.isfinite(deadline) else None,
        "suspect": node.silent_since is not None,
        "suspicion": suspicion(node.suspect, now),
        "leaving": node.leaving,
        "workers": len(node.beat.ranks) if node.beat else 0,
        "state": msgspec.to_builtins(node.state) if node.state else None,
    }


def run_figures(engine: "Engine", run: RunView, now: float) -> dict[str, Any]:
    """One run without a row for each of its ranks: small, however many they are."""
    folder = engine.folder
    return {
        **_run(run, engine.judge.stragglers.told(run.uid), now),
        "checkpoint": _checkpoint(folder.checkpoints, run.uid, now),
        "advice": _advice(folder.advice.get(run.uid)),
        "mode": folder.modes.of(run.uid).mode,
    }


def _run(run: RunView, stragglers: list[Straggler], now: float) -> dict[str, Any]:
    round_ = run.current
    ranks = round_.progress.values()
    steps = [mark.step for mark in set(map(_MARK, ranks))]  # ranks that go abreast share one
    phases = sorted(set(map(_PHASE, ranks)))
    return {
        "run_id": run.run_id,
        "outcome": run.outcome,
        "reason": run.reason,
        "ended_at": run.ended_at,
        "elastic": run.elastic,
        "joint": run.joint is not None,
        "waiting": [joiner.node for joiner in run.joint.waiting()] if run.joint is not None else [],
        "round": round_.number,
        "world_size": round_.world_size,
        "step": min(steps, default=None),
        "step_spread": max(steps) - min(steps) if steps else None,
        "phases": phases,
        "phase_deadline_s": max((run.clocks.deadline_s(name) for name in _clocks(round_, phases)), default=None),
        "clocks": {name: _clock(run, name) for name in run.clocks.known()},
        "pace": _pace(run),
        "stragglers": [_straggler(one, now) for one in stragglers],
        "synchronous": run.ahead.synchronous(),
    }


def _ranks(round_: RoundView) -> list[dict[str, Any]]:
    return [
        {
            "rank": rank,
            "node": member.node,
            "local_rank": member.local_rank,
            "pid": member.pid,
            **(_progress(round_.progress[rank]) if rank in round_.progress else {}),
        }
        for rank, member in sorted(round_.members.items())
    ]


def _clocks(round_: RoundView, phases: Iterable[str]) -> set[str]:
    """The clocks that run for its ranks."""
    first_step = 0 if round_.reporting() else -1
    return {clock_of(phase, first_step) for phase in phases}


def _clock(run: RunView, name: str) -> dict[str, Any]:
    """What was learned of a phase; `high_s` None: too little yet."""
    high_s = run.clocks.high_s(name)
    return {
        "seen": run.clocks.seen(name),
        "high_s": round(high_s, 3) if high_s is not None else None,
        "deadline_s": round(run.clocks.deadline_s(name), 3),
    }


def _pace(run: RunView) -> dict[str, Any]:
    """Seconds per step, and against the run's own past."""
    step_s, pace = run.clocks.typical_step_s(), run.clocks.pace
    usual_s, slowdown = pace.usual_s(), pace.slowdown()
    return {
        "step_s": round(step_s, 4) if step_s is not None else None,
        "usual_step_s": round(usual_s, 4) if usual_s is not None else None,
        "slowdown": round(slowdown, 3) if slowdown is not None else None,
        "slower": slowdown is not None and slowdown >= run.clocks.settings.straggler_factor,
    }


def _straggler(one: Straggler, now: float) -> dict[str, Any]:
    return {
        "rank": one.rank,
        "node": one.node,
        "ratio": round(one.ratio, 2),
        "for_s": round(now - one.since, 1),
        "why": one.why,
    }


def _checkpoint(told: CheckpointFolder, uid: str, now: float) -> dict[str, Any] | None:
    """None where the job has said nothing. Ages are this monitor's own; after its start the truth may be more."""
    state, ages = told.of(uid), told.ages(uid, now)
    if state is None:
        return None
    shown = msgspec.to_builtins(state)
    for name in ("v", "run_uid", "heard", "recent"):
        del shown[name]
    return {
        **shown,
        "age_s": round(ages.newest_s, 3) if ages.newest_s is not None else None,
        "verified_age_s": round(ages.verified_s, 3) if ages.verified_s is not None else None,
        "durable_age_s": round(ages.durable_s, 3) if ages.durable_s is not None else None,
    }


def _advice(told: RunAdvice | None) -> dict[str, Any] | None:
    """How often to save; None before a save was measured."""
    if told is None:
        return None
    return {name: value for name, value in msgspec.to_builtins(told).items() if name not in ("v", "run_uid")}


def _progress(progress: Any) -> dict[str, Any]:
    return {
        "step": progress.step,
        "first_step": progress.first_step,
        "phase": progress.phase,
        "state": progress.state,
        "stale_s": round(progress.stale_s(), 3),
    }
