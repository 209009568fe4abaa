"""How much of a run's time brought it forward.

ETTR, the effective training time ratio, as in Kokolis et al., "Revisiting Reliability in Large-Scale Machine Learning
Research Clusters" (2024): productive time by the wall-clock time in which the run could have run, waiting for nodes
included. Not productive is what an interruption costs: from the fault until the lost steps are made up for. Goodput
takes off also what a run without faults pays to be able to survive them, and what slow ranks cost.
"""

from collections.abc import Iterable, Mapping

from rankpulse.core.stages import OVERHEAD


def ettr(run_s: float, lost_s: Mapping[str, float]) -> float | None:
    """Within 0..1, from the run's time and what was lost of it by cause (`stages.CAUSES`). None at no time."""
    return _left(run_s, sum(s for cause, s in lost_s.items() if cause not in OVERHEAD))


def goodput(run_s: float, lost_s: Mapping[str, float]) -> float | None:
    """What is left when saving and slow ranks are taken off as well."""
    return _left(run_s, sum(lost_s.values()))


def fleet_ettr(runs: Iterable[tuple[float, float]]) -> float | None:
    """Of many runs, each its GPU seconds and its ETTR: by GPU time, so that a small run counts for less."""
    told = list(runs)
    whole = sum(gpu_s for gpu_s, _ in told)
    return sum(gpu_s * ratio for gpu_s, ratio in told) / whole if whole > 0 else None


def _left(run_s: float, lost_s: float) -> float | None:
    return max(1.0 - lost_s / run_s, 0.0) if run_s > 0 else None
