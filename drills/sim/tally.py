"""What many seeds add up to: how often faults were told of, how soon, and what was done about them."""

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

from rankpulse.drills.sim import plan as p
from rankpulse.drills.sim.run import Outcome


class Row(NamedTuple):
    """One kind of fault over all seeds. Seconds; None where nothing was timed.

    The percentiles are of those faults that nothing else disturbed; `worst_s` is of all.
    """

    kind: str
    injected: int
    detected: int
    overtaken: int  # its round, or the fault itself, was over before it had to be told of
    clear: int  # told of, and nothing else stood in the way
    p50_s: float | None
    p99_s: float | None
    max_s: float | None
    worst_s: float | None


class Tally(NamedTuple):
    """All seeds together. `orders` of restart; `asked`: by the operator, after a page."""

    seeds: int
    failed: tuple[int, ...]
    rows: tuple[Row, ...]
    orders: int
    asked: int
    wrong: int
    mistaken: int
    beats: int
    events: int
    recovered_max_s: float
    digest: str

    def plain(self) -> dict[str, Any]:
        return {**self._asdict(), "rows": [row._asdict() for row in self.rows]}


def percentile(values: Iterable[float], share: float) -> float | None:
    """The value that this share of them does not exceed, None of none."""
    ordered = sorted(values)
    return ordered[max(math.ceil(share * len(ordered)) - 1, 0)] if ordered else None


def tally(outcomes: list[Outcome], digest: str) -> Tally:
    """`digest`: of the digests of all traces, in order of their seeds."""
    rows = []
    for kind in p.FAULTS:
        delays = [delay for one in outcomes for delay in one.clear.get(kind, ())]
        all_ = [delay for one in outcomes for delay in one.delays.get(kind, ())]
        rows.append(
            Row(
                kind,
                sum(one.injected.get(kind, 0) for one in outcomes),
                sum(one.detected.get(kind, 0) for one in outcomes),
                sum(one.overtaken.get(kind, 0) for one in outcomes),
                len(delays),
                percentile(delays, 0.5),
                percentile(delays, 0.99),
                max(delays, default=None),
                max(all_, default=None),
            )
        )
    failed = tuple(one.seed for one in outcomes if one.violation is not None)
    wrong = sum(one.violation is not None and one.violation.rule == "only_what_is_broken" for one in outcomes)
    return Tally(
        len(outcomes), failed, tuple(row for row in rows if row.injected), sum(one.orders for one in outcomes),
        sum(one.asked for one in outcomes), wrong, sum(len(one.mistaken) for one in outcomes),
        sum(one.beats for one in outcomes), sum(one.events for one in outcomes),
        max((one.recovered_s for one in outcomes), default=0.0), digest,
    )  # fmt: skip
