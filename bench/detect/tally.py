"""From added-up days to the figures that are published, each with its interval."""

import math
import statistics
from typing import Any, Final

from rankpulse.bench.detect import parameters as z
from rankpulse.bench.detect.counting import GPU_DAYS, garwood, rate
from rankpulse.bench.detect.shift import Score, Shift

LEAST_FOR_P99: Final = 299  # 0.99 ** 299 < 5 %: fewer values than that may all lie below the 99th percentile
FAILURES_PER_JOB_DAY: Final = z.FAILURES_PER_NODE_DAY * z.NODES


def added(shifts: list[Shift]) -> dict[str, dict[str, Score]]:
    """All days together, in order of the days. Table -> detector -> score."""
    total: dict[str, dict[str, Score]] = {}
    for shift in sorted(shifts, key=lambda shift: shift.day):
        for table, scores in shift.scores.items():
            for name, score in scores.items():
                total.setdefault(table, {}).setdefault(name, Score()).add(score)
    return total


def percentile(values: list[float], share: float) -> float | None:
    """The smallest value that this share does not exceed."""
    if not values:
        return None
    return sorted(values)[max(math.ceil(share * len(values)) - 1, 0)]


def p99_interval(values: list[float]) -> tuple[float, float] | None:
    """95 % for the 99th percentile, by order statistics. None where the sample is too small to have an upper end."""
    if len(values) < LEAST_FOR_P99:
        return None
    ordered, count = sorted(values), len(values)
    over = 0.01 * count
    spread = 1.96 * math.sqrt(over * 0.99)
    low = min(max(math.floor(0.99 * count - spread) - 1, 0), count - 1)
    high = min(math.ceil(0.99 * count + spread), count - 1)
    return ordered[low], ordered[high]


def figures(name: str, score: Score) -> dict[str, Any]:
    """One row of the JSON. Infinite or unknown figures are None."""
    rank_days = score.job_days * z.RANKS
    per_sender = z.RANKS / max(score.senders_per_job, 1)  # a node that is convicted takes eight ranks with it
    seen = score.detection_s
    mean = statistics.fmean(seen) if seen else None
    row: dict[str, Any] = {
        "name": name,
        "detection_mean_s": mean,
        "detection_p99_s": percentile(seen, 0.99),
        "detection_max_s": max(seen, default=None),
        "detection_p99_s_95": p99_interval(seen),
        "deaths": len(seen) + score.never,
        "deaths_never_told": score.never,
        "deaths_after_a_mistake": score.before,
        "innocents_named_with_the_dead": score.innocents,
        "rank_days": rank_days,
        "mistakes": score.mistakes,
        "mistake_s": score.mistaken_s / score.mistakes if score.mistakes and score.mistaken_s else None,
        "false_restarts": score.restarts,
        "other_incidents": score.others,
    }
    _rate(row, "mistakes_per_rank_day", score.mistakes, rank_days, per_sender)
    _rate(row, "false_restarts_per_10k_gpu_days", score.restarts, rank_days, GPU_DAYS)
    _lost(row, score, mean)
    if score.racks_s:
        row |= {
            "rack_p99_s": percentile(score.racks_s, 0.99),
            "rack_mean_s": statistics.fmean(score.racks_s),
            "rack_max_s": max(score.racks_s),
            "rack_losses": len(score.racks_s),
            "rack_decisions_mean": statistics.fmean(score.rack_decisions),
            "rack_decisions_max": max(score.rack_decisions),
        }
    if score.phases:
        row["by_phase"] = {
            phase: {"deaths": len(times), "mean_s": statistics.fmean(times), "p99_s": percentile(times, 0.99)}
            for phase, times in sorted(score.phases.items())
            if times
        }
    return row


def _rate(row: dict[str, Any], name: str, count: int, exposure: float, per: float) -> None:
    if not exposure:
        row[name] = row[name + "_95"] = None
        return
    found = rate(count, exposure, per)
    row[name], row[name + "_95"] = found.value, (found.low, found.high)


def _lost(row: dict[str, Any], score: Score, mean_s: float | None) -> None:
    """Seconds of the job lost per day: waiting for the detection of real failures, and restarts without a reason."""
    if mean_s is None or not score.job_days:
        row["job_seconds_lost_per_day"] = row["job_seconds_lost_per_day_95"] = None
        return
    waiting = FAILURES_PER_JOB_DAY * mean_s
    per_restart = z.RESTART_COST_S / score.job_days
    row["job_seconds_lost_per_day"] = waiting + score.restarts * per_restart
    row["job_seconds_lost_per_day_95"] = tuple(waiting + count * per_restart for count in garwood(score.restarts))


def floor(scale: float) -> tuple[float, float]:
    """The least loss per job-day that a single timeout can reach, were freezes its only trouble, and that timeout.

    Whoever convicts a node after T seconds without a sign of life pays T for each real failure and a restart for each
    freeze that lasts longer: evidence that a frozen machine will come back does not exist.
    """
    freezes = z.TRACE_Z["freeze"]
    per_day = freezes.rate * scale * z.NODES

    def lost(seconds: float) -> float:
        return FAILURES_PER_JOB_DAY * seconds + per_day * freezes.size.tail(seconds) * z.RESTART_COST_S

    best = min((n / 10.0 for n in range(10, 900)), key=lost)
    return lost(best), best


def frontier(scale: float, timeout_s: float, rack_s: float) -> float:
    """False restarts per 10,000 GPU-days that no pure timeout escapes: freezes, and rack pauses that stall the job."""
    freezes, racks = z.TRACE_Z["freeze"], z.TRACE_Z["rack_pause"]
    per_day = freezes.rate * z.NODES * freezes.size.tail(timeout_s)
    per_day += racks.rate * z.RACKS * z.FABRIC_SHARE * racks.size.tail(rack_s)
    return scale * per_day / z.RANKS * GPU_DAYS
