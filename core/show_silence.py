"""What is thought of silence, as plain JSON values: each node's suspicion, and the times in force."""

from typing import TYPE_CHECKING, Any

from rankpulse.core.records import FleetLearned
from rankpulse.core.suspects import Suspect

if TYPE_CHECKING:
    from rankpulse.core.engine import Engine


def actions_stopped(engine: "Engine", now: float) -> str:
    """Why no action is taken although this monitor leads; "" while there is nothing in the way."""
    if engine.epoch is None:
        return ""
    why = engine.sight.why_blind(now)
    if why:
        return f"blind: {why}"
    breaker = engine.folder.modes.open
    return engine.judge.stopped or (f"the breaker is open: {breaker}" if breaker else "")


def conviction(engine: "Engine") -> dict[str, Any]:
    """How long nothing may be heard of a node before it is given up, and from what that follows."""
    times, learned = engine.folder.memory.times, engine.folder.memory.stored or FleetLearned(at=0.0)
    return {
        "node_dead_after_s": times.node_s,
        "unwitnessed_after_s": times.unwitnessed_s,
        "rack_dead_after_s": times.rack_s,
        "by_cost_rule": list(times.by_rule),
        "bounded": list(times.bounded),
        "restart_cost_s": round(times.restart_s, 1),
        "learned": {
            "node_days": round(learned.node_days, 3),
            "deaths": learned.deaths,
            "silences_healed": learned.healed,
            "longest_healed_s": max(learned.healed_s, default=None),
            "restarts_measured": len(learned.restart_s),
        },
    }


def suspicion(suspect: Suspect, now: float) -> dict[str, Any]:
    """One node: what is thought of it, why, the last direct look, and how it came to that."""
    look = suspect.look
    return {
        "state": suspect.state,
        "reason": suspect.reason,
        "probe": None
        if look is None
        else {"answer": look.answer, "detail": look.detail, "ago_s": round(now - look.at, 3)},
        "trail": [
            {"ago_s": round(now - turn.at, 3), "fact": turn.fact, "state": turn.state, "reason": turn.reason}
            for turn in suspect.trail
        ],
    }
