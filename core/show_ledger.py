"""The ledger's sums as JSON values. They are those of the store, so that every monitor says the same."""

import math
from collections import Counter
from typing import TYPE_CHECKING, Any

from rankpulse.core import stages
from rankpulse.core.ledger_sums import OfRun
from rankpulse.core.records import Incident

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
        "node_s": totals.node_s,
        "gpu_s": totals.gpu_s,
        "run_s": totals.run_s,
        "unseen_s": totals.unseen_s,
        "between_failures_gpu_s": {
            name: {bound: s if math.isfinite(s) else None for bound, s in one._asdict().items()}
            for name, one in totals.between_failures().items()
        },
        "runs": {uid: _run(_so_far(totals.runs.get(uid, OfRun()), uid, engine.book.open())) for uid in going},
    }


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
