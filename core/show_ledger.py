"""The ledger's sums as JSON values. They are those of the store, so that every monitor says the same."""

import math
from collections import Counter
from typing import TYPE_CHECKING, Any

from rankpulse.core import stages
from rankpulse.core.ledger_scores import TOP, Picture
from rankpulse.core.ledger_sums import OfRun
from rankpulse.core.lemons import Score
from rankpulse.core.records import Incident
from rankpulse.core.trend import TOO_FEW, Trend

if TYPE_CHECKING:
    from rankpulse.core.engine import Engine


def ledger(engine: "Engine") -> dict[str, Any]:
    """Seconds; runs: those that go on."""
    folder = engine.folder
    book, totals = folder.ledger, folder.ledger.totals()
    going = [uid for uid, run in sorted(folder.fleet.runs.items()) if run.rounds and run.open()]
    return {
        "origin": book.origin.origin if book.origin is not None else "",
        "began_at": book.origin.at if book.origin is not None else None,
        "entries": len(book.entries),
        "days": len(book.days),
        "failures": dict(totals.failures),
        "lost_s": {cause: round(totals.lost_s[cause], 3) for cause in stages.CAUSES},
        "lost_gpu_s": {cause: round(totals.lost_gpu_s[cause], 3) for cause in stages.CAUSES},
        "node_s": round(totals.node_s, 3),  # in another order sums differ by a hair: a counter must not fall
        "gpu_s": round(totals.gpu_s, 3),
        "run_s": round(totals.run_s, 3),
        "unseen_s": round(totals.unseen_s, 3),
        "between_failures_gpu_s": {
            name: {bound: s if math.isfinite(s) else None for bound, s in one._asdict().items()}
            for name, one in totals.between_failures().items()
        },
        **_picture(folder.ledger_scores.picture()),
        "runs": {uid: _run(_so_far(totals.runs.get(uid, OfRun()), uid, engine.book.open())) for uid in going},
    }


def _picture(seen: Picture) -> dict[str, Any]:
    """Who fails too often: the worst by name, and how many are lemons; and whether the failure rate is constant."""
    kinds = {"node": seen.nodes, "gpu": seen.gpus}
    return {
        "counted_at": seen.counted_at or None,
        "lemons": {kind: sum(score.lemon for score in scores) for kind, scores in kinds.items()},
        "suspects": [_suspect(kind, score) for kind, scores in kinds.items() for score in scores[:TOP]],
        "trend": _trend(seen.trend) if seen.trend is not None else None,
    }


def _suspect(kind: str, score: Score) -> dict[str, Any]:
    told = {"kind": kind, "name": score.name, "failures": score.failures, "lemon": score.lemon, "why": score.why}
    return {**told, "ratio": _finite(score.ratio), "low": _finite(score.bounds.low), "q": score.q}


def _trend(found: Trend) -> dict[str, Any]:
    tests = {"laplace": found.laplace_p, "lewis_robinson": found.lewis_robinson_p, "mil_hdbk_189c": found.military_p}
    bounds = {"best": found.beta, "low": found.beta_bounds.low, "high": found.beta_bounds.high}
    known = found.verdict != TOO_FEW
    return {
        "verdict": found.verdict,
        "failures": found.failures,
        "p": tests if known else {},
        "beta": {bound: _finite(value) for bound, value in bounds.items()} if known else {},
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _so_far(run: OfRun, uid: str, open_: list[Incident]) -> OfRun:
    """With what its open incidents have cost it by now."""
    lost_s = Counter(run.lost_s)
    for incident in open_:
        if incident.run_uid == uid:
            for cause in [cause for cause in incident.lost_s if cause in stages.CAUSES]:
                lost_s[cause] += incident.lost_s[cause]  # type: ignore[assignment]
    return OfRun(run.run_s, run.gpu_s, lost_s, run.failures)


def _run(run: OfRun) -> dict[str, Any]:
    return {
        "run_s": round(run.run_s, 1),
        "failures": run.failures,
        "lost_s": {cause: round(run.lost_s[cause], 3) for cause in stages.CAUSES},
        "ettr": run.ettr(),
        "goodput": run.goodput(),
    }
