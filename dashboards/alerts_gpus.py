"""Alerts on GPUs: as agents tell of them, and as incidents that name one."""

from typing import Final

from rankpulse.dashboards.alerting import IN_CLUSTER, INFO, OPEN, WARNING, Alert, ask

BY: Final = "cluster, Hostname, gpu, UUID"
WHICH: Final = "GPU {{ $labels.gpu }} of {{ $labels.Hostname }}"
HARDWARE: Final = 'class=~"gpu_fault|nvlink_domain"'
DOWN, RECOVERS = 'what="nvlink_down"', 'what="nvlink_errors"'
BROKEN, SICK, UNKNOWN = 4, 3, 2  # values of `rankpulse_gpu_health`


def _max(name: str, *matchers: str) -> str:
    return f"max by ({BY}) ({ask(name, *matchers)})"


def _xids() -> str:
    """More than three within an hour. `increase` sees no fault that a series begins with, as that of a new code does;
    the difference to an hour ago sees none after the agent has started anew."""
    now, known = ask("rankpulse_gpu_xids"), f"max by ({BY}) ({ask('rankpulse_gpu_info')} offset 1h)"
    gained = f"sum by ({BY}) ({now}) - (sum by ({BY}) ({now} offset 1h) or {known} * 0)"
    return f"{gained} > 3 or sum by ({BY}) (increase({now}[1h])) > 3"


GPUS: Final = (
    Alert(
        "RankpulseGpuFault",
        f"sum by (cluster, class) ({OPEN}{{{HARDWARE}}}) > 0 or "
        f"max by (cluster, class) (increase({ask('rankpulse_incidents', HARDWARE)}[1h])) > 0",
        "0m",
        WARNING,
        f"an incident of class {{{{ $labels.class }}}} names a GPU as its cause{IN_CLUSTER}",
        "The job may go on without that node already. That mends no GPU: `rankpulse explain last` names it.",
    ),
    Alert(
        "RankpulseGpuBroken",
        f"{_max('rankpulse_gpu_health')} == {BROKEN}",
        "1m",
        WARNING,
        f"{WHICH} is broken{IN_CLUSTER}",
        "Work on it fails, or will. `rankpulse gpu` on that node says what was found and what mends it.",
    ),
    Alert(
        "RankpulseGpuSick",
        f"{_max('rankpulse_gpu_health')} == {SICK}",
        "5m",
        WARNING,
        f"{WHICH} is sick{IN_CLUSTER}",
        "It works, and is likely to fail: corrected errors without end, fewer PCIe lanes, a fabric that is degraded.",
    ),
    Alert(
        "RankpulseGpuUnknown",
        f"{_max('rankpulse_gpu_health')} == {UNKNOWN}",
        "5m",
        WARNING,
        f"{WHICH} does not say how it is{IN_CLUSTER}",
        "Its driver does not answer about it, or with an error. It need not be the GPU: a container may have lost it.",
    ),
    Alert(
        "RankpulseGpuProbeStuck",
        f"max by (cluster, Hostname) ({ask('rankpulse_gpu_probes_stuck')}) > 0",
        "5m",
        WARNING,
        f"{{{{ $value }}}} processes hang in the driver on {{{{ $labels.Hostname }}}}{IN_CLUSTER}",
        "They asked a GPU and do not come back, not even by SIGKILL. Whatever calls that driver next may hang as well.",
    ),
    Alert(
        "RankpulseGpuReplace",
        f"{_max('rankpulse_gpu_row_remap_failed')} == 1 or {_max('rankpulse_gpu_sram_threshold_exceeded')} == 1",
        "0m",
        WARNING,
        f"{WHICH} is to be replaced{IN_CLUSTER}",
        "Its memory has failed for good: a row could not be remapped, or its SRAM has had too many errors.",
    ),
    Alert(
        "RankpulseGpuRemapPending",
        f"{_max('rankpulse_gpu_row_remap_pending')} == 1 or {_max('rankpulse_gpu_retired_pages_pending')} == 1",
        "1h",
        INFO,
        f"{WHICH} waits for a reset to mend its memory{IN_CLUSTER}",
        "A bad row or page is set aside at the next reset. What runs is not affected.",
    ),
    Alert(
        "RankpulseGpuUncorrectedErrors",
        f"max by ({BY}) (increase({ask('rankpulse_gpu_ecc_uncorrected_aggregate')}[1h])) > 0",
        "0m",
        INFO,
        f"{WHICH} had memory errors that could not be corrected{IN_CLUSTER}",
        "Whatever used that memory has ended or will. Once is chance; again on the same board is not.",
    ),
    Alert(
        "RankpulseGpuXids",
        _xids(),
        "1m",
        WARNING,
        f'{WHICH} had {{{{ printf "%.0f" $value }}}} Xids within an hour{IN_CLUSTER}',
        "Faults again and again, of the board or of the program that runs on it. The codes tell which.",
    ),
    Alert(
        "RankpulseNvlinkDown",
        f"{_max('rankpulse_gpu_finding', DOWN)} == 1",
        "1m",
        WARNING,
        f"an NVLink of {WHICH} is down{IN_CLUSTER}",
        "It was up before. Collectives over it fail or take another way; behind an NVSwitch all its GPUs may suffer.",
    ),
    Alert(
        "RankpulseNvlinkErrors",
        f"{_max('rankpulse_gpu_finding', RECOVERS)} == 1",
        "10m",
        WARNING,
        f"an NVLink of {WHICH} recovers again and again{IN_CLUSTER}",
        "A link that does so more than ten times an hour mostly fails for good within days.",
    ),
)
