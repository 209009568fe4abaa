"""How often a run should save, from what its ledger and its saves have shown. Pure: records in, a record out.

What is believed of a run's failure rate follows from records alone, so a new leader believes the same: from the
ledger's entries of the run, from how long it ran, and from what the rest of the fleet has shown as a first guess.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from rankpulse.core import checkpoint_cost as cost
from rankpulse.core import stages
from rankpulse.core.failure_rate import RateBelief, believing, failed_after, mtbf, passed
from rankpulse.core.interval_advice import LEAST_SAVE_S, advise, damped
from rankpulse.core.ledger_sums import NEW, Totals
from rankpulse.core.records import CheckpointState, LedgerEntry, RunAdvice

GPU_MTBF_S: Final = 8000 * 3600.0  # before a fleet has shown anything: what Meta measured of whole jobs
GPU_MTBF_WORTH: Final = 0.5  # failures' evidence that this stands for beside what the fleet has shown
GUESS_WORTH: Final = 2.0  # failures' evidence of a run's own that what its fleet has shown stands for
FAILURES_MAX: Final = 200  # the newest: older ones say little
RECOVER_S: Final = 300.0  # before a failure of the run has shown it; the interval does not depend on it
NEWEST: Final = 0.3  # the weight of the newest save in what a save costs
_STEPS: Final = 4  # guesses differ by 2^(1/4) at least, so that a fleet's every second is no other guess


class SaveCost(NamedTuple):
    """What a save holds up training, and how many saves that counts."""

    saves: int
    save_s: float


class History(NamedTuple):
    """What a run has shown. failures: those that interrupted it, in order; run_s: for how long it went on, by count of
    the monitors; guess_s: the mean time between its failures before any; whole: it has had no others."""

    failures: tuple[LedgerEntry, ...]
    run_s: float
    guess_s: float
    whole: bool = True


def history(failures: Sequence[LedgerEntry], run_s: float, guess_s: float, *, whole: bool) -> History:
    """Of all that the ledger still holds of the run. Where there were more, the first one is only a mark in time."""
    kept = tuple(failures[-FAILURES_MAX - 1 :])
    return History(kept, run_s, guess_s, whole and len(kept) == len(failures))


def measured(before: SaveCost | None, state: CheckpointState) -> SaveCost | None:
    """With what the job has said of its newest save; None before the first."""
    if state.saves <= 0 or (before is not None and before.saves == state.saves):
        return before
    took_s = state.save_s + (state.verify_s if state.verified_step == state.step else 0.0)
    if before is None or before.saves > state.saves:
        return SaveCost(state.saves, took_s)
    return SaveCost(state.saves, before.save_s + NEWEST * (took_s - before.save_s))


def guess_s(totals: Totals, run_uid: str, ranks: int) -> float:
    """What the rest of the fleet says of a run with so many GPUs. Its own failures count by themselves."""
    own = totals.runs.get(run_uid, NEW)
    failures = max(sum(totals.failures.values()) - own.failures, 0) + GPU_MTBF_WORTH
    gpu_s = max(totals.gpu_s - own.gpu_s, 0.0) + GPU_MTBF_WORTH * GPU_MTBF_S
    octaves = math.log2(gpu_s / failures / max(ranks, 1))
    return float(2 ** (round(octaves * _STEPS) / _STEPS))


def gaps(history: History, at: float) -> tuple[list[float], float]:
    """The time that ran before each failure, and since the last one. Before a mark nothing is known.

    Entries say when, by wall clocks that may be wrong; the sum is what monitors have counted, and is never exceeded.
    """
    failures = history.failures
    if not failures:
        return [], history.run_s
    between = [max(_fault_at(later) - earlier.closed_at, 0.0) for earlier, later in pairwise(failures)]
    since = max(at - failures[-1].closed_at, 0.0)
    told, down = sum(between) + since, sum(max(one.closed_at - _fault_at(one), 0.0) for one in failures)
    part = min(history.run_s / told, 1.0) if told > 0 else 0.0
    first = [max(history.run_s - told - down, 0.0)] if history.whole else []
    return [*first, *(gap * part for gap in between)], since * part


class Learning(NamedTuple):
    """What is believed as of a run's last failure, while it is worked out: the gaps between failures still to take."""

    left: tuple[float, ...]
    then: RateBelief

    def further(self, most: int) -> "Learning":
        """After so many failures more."""
        then = self.then
        for gap in self.left[:most]:
            then = failed_after(then, gap)
        return Learning(self.left[most:], then)


def learning(history: History, at: float) -> Learning:
    """The beginning of it, by what is known now."""
    return Learning(tuple(gaps(history, at)[0]), believing(history.guess_s, GUESS_WORTH))


def belief(history: History, at: float, known: RateBelief | None = None) -> RateBelief:
    """What is believed of the run's failure rate now. known: as of its last failure, where that was worked out."""
    return passed(known or at_last_failure(history, at), gaps(history, at)[1])


def at_last_failure(history: History, at: float) -> RateBelief:
    """What was believed then, by what is known now: worked out at once."""
    return learning(history, at).further(len(history.failures)).then


def recover_s(failures: Sequence[LedgerEntry]) -> float:
    """From a failure until training goes on, without the steps done again: the mean of what was measured."""
    spent = [one.lost_s for one in failures if one.lost_s]
    if not spent:
        return RECOVER_S
    return sum(s for lost_s in spent for name, s in lost_s.items() if name != stages.RECOMPUTATION) / len(spent)


def moved(in_force: RunAdvice | None, believed: RateBelief, save_s: float) -> bool:
    """Whether another interval would lose noticeably less. Cheap, where the whole advice with its bounds is not."""
    if in_force is None or in_force.interval_s <= 0:
        return True
    save_s, mean = max(save_s, LEAST_SAVE_S), mtbf(believed)
    return damped(cost.exact(save_s, mean), in_force.interval_s, save_s, mean) != in_force.interval_s


def record(run_uid: str, at: float, history: History, believed: RateBelief, saving: SaveCost) -> RunAdvice:
    """The advice as it is written, with what it rests on."""
    again_s = recover_s(history.failures)
    made = advise(believed, save_s=saving.save_s, recover_s=again_s)
    return RunAdvice(
        run_uid=run_uid,
        at=at,
        interval_s=round(made.interval_s, 3),
        low_s=round(made.bounds_s.low, 3),
        high_s=round(made.bounds_s.high, 3),
        mtbf_s=round(made.mtbf_s, 1),
        mtbf_low_s=round(made.mtbf_bounds_s.low, 1),
        mtbf_high_s=round(made.mtbf_bounds_s.high, 1),
        save_s=round(saving.save_s, 4),
        saves=saving.saves,
        recover_s=round(again_s, 1),
        failures=len(history.failures),
        lost_share=round(made.lost_share, 6),
        why=made.why,
    )


def _fault_at(entry: LedgerEntry) -> float:
    return entry.opened_at if entry.fault_at is None else entry.fault_at
