"""Eight days of a fleet of eight nodes, one of which fails again and again; names in it are hostile."""

from rankpulse.core import records as r
from rankpulse.core.ledger import day_of

DAY_S = 86400.0
T0 = 1_700_000_000.0 // DAY_S * DAY_S
EVIL = "</svg><script>alert(1)</script>|`x`\x1b[2J\n# <b>&"
DAYS = [
    r.LedgerDay(
        day=day_of(T0 + n * DAY_S), origin="o", at=T0 + (n + 1) * DAY_S, node_s=8 * DAY_S, gpu_s=64 * DAY_S,
        run_s=DAY_S, unseen_s=60.0, nodes={f"n{i}": r.NodeShare(DAY_S, 8 * DAY_S) for i in range(8)},
        runs={"u1": r.RunShare(EVIL[:80], DAY_S, 64 * DAY_S, 600.0, 0.0)},
    )
    for n in range(8)
]  # fmt: skip


def entry(number: int, days: float, **change: object) -> r.LedgerEntry:
    at = T0 + days * DAY_S
    fields: dict = {
        "id": f"i0001-{number:04d}", "klass": "gpu_fault", "component": "gpu", "blame": "machine",
        "outcome": "recovered", "action": "restart", "opened_at": at - 60, "closed_at": at, "run_uid": "u1",
        "run_id": EVIL, "ranks": 64, "lost_s": {"stop": 36.0}, "nodes": ("n3",), "node": "n3", "gpu": 1,
    }  # fmt: skip
    return r.LedgerEntry(**{**fields, **change})


ENTRIES = [entry(n, n + 0.5) for n in range(1, 6)] + [
    entry(9, 6.5, node=EVIL[:60], klass="node_dead", component="node")
]
