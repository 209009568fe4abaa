"""Public incidents of large trainings as snapshots: class, family, culprits, action and steps of each.

The files in `snapshots/` are those that the builders make by default: `test_the_files_are_those_of_the_builders`.
"""

import json
from pathlib import Path
from typing import NamedTuple

import diagnosis_incidents
import pytest

from rankpulse.core import policy
from rankpulse.core import verdict as v
from rankpulse.core.diagnosing import diagnose
from rankpulse.core.snapshot_codec import decode
from rankpulse.core.verdict import Verdict

SNAPSHOTS = Path(__file__).parent / "snapshots"


class Expected(NamedTuple):
    klass: str
    kind: str
    ranks: tuple[int, ...]
    nodes: tuple[str, ...]
    action: str
    step: str  # one of the steps
    word: str = ""  # in summary, reasons or hints


EXPECTED = {
    "fallen_domain": Expected(
        v.NVLINK_DOMAIN, "nvlink_domain", tuple(range(16)), tuple(f"node-0{i}" for i in range(4)),
        policy.RESTART_WITHOUT, "restart_excluding(nvl-0)", "node-03 told first",
    ),
    "evaluation_hang": Expected(
        v.DATA_STALL, "data_stall", (5,), ("node-00",), policy.RESTART, "restart_job", "num_workers=0 for evaluation"
    ),
    "loader_stuck": Expected(
        v.DATA_STALL, "data_stall", (0,), ("node-00",), policy.RESTART, "restart_job", "waiting for its data loader"
    ),
    "mismatch": Expected(v.COLLECTIVE_MISMATCH, "desync", (2, 3), (), policy.PAGE, "tell_user", "24084544"),
    "long_save": Expected(
        v.PLANNED_SLOW_PHASE, "planned_slow_phase", (0,), ("node-00",), policy.WAIT, "wait", "raise that limit"
    ),
    "nobody_behind": Expected(v.NETWORK_STALL, "network", (), (), policy.RESTART, "probe_fabric", "no laggard"),
    "false_alarm": Expected(v.PLANNED_SLOW_PHASE, "planned_slow_phase", (), (), policy.WAIT, "wait"),
    "unresolved": Expected(
        v.STARTUP_FAILURE, "control_plane", tuple(range(40, 48)), ("node-05",), policy.WAIT, "fix_config(node-05)",
        "7 of 8 nodes",
    ),
    "dead_node": Expected(
        v.NODE_DEAD, "host_fault", tuple(range(8, 16)), ("node-01",), policy.RESTART_WITHOUT,
        "restart_excluding(node-01)", "exporter is silent",
    ),
    "deaf_survivors": Expected(
        v.WORKER_DEAD, "unknown", (2,), ("node-00",), policy.RESTART, "drain_reboot(node-01)", "killed by signal 9"
    ),
    "closed_rendezvous": Expected(
        v.PREEMPTED, "control_plane", tuple(range(32, 40)), ("node-04",), policy.RESTART, "restart_job", "new run id"
    ),
    "stale_round": Expected(
        v.STARTUP_FAILURE, "control_plane", (), ("node-00", "node-01", "node-02"), policy.RESTART, "restart_job",
        "rounds differ",
    ),
    "crash_and_wait": Expected(
        v.WORKER_DEAD, "app_bug", (17,), ("node-02",), policy.RESTART, "kill_step(SIGTERM,then SIGKILL)",
        "--kill-on-bad-exit=1",
    ),
    "same_bad_node": Expected(
        v.GPU_FAULT, "gpu_fault", (19,), ("node-02",), policy.RESTART_WITHOUT, "restart_excluding(node-02)",
        "seen 5 times before",
    ),
    "illegal_instruction": Expected(
        v.WORKER_DEAD, "unknown", (77,), ("node-09",), policy.RESTART, "restart_job", "remember this node and GPU"
    ),
    "nvlink_before_save": Expected(
        v.GPU_FAULT, "nvlink_domain", (35,), ("node-04",), policy.RESTART_WITHOUT, "reset_gpu(node-04/GPU3)",
        "54 min of work",
    ),
    "lemons": Expected(
        v.GPU_FAULT, "host_fault", tuple(range(48, 56)), ("node-06",), policy.RESTART_WITHOUT,
        "restart_excluding(node-06)", "too few spares",
    ),
    "corrected_storm": Expected(
        v.GPU_FAULT, "gpu_fault", (22,), ("node-02",), policy.DRAIN, "drain_reboot(node-02)", "4600 corrected"
    ),
    "gsp_timeout": Expected(
        v.GPU_FAULT, "gpu_fault", (12,), ("node-01",), policy.RESTART_WITHOUT, "reset_gpu(node-01/GPU4)",
        "not the one to blame",
    ),
    "flapping_port": Expected(
        v.NETWORK_STALL, "network", (16,), ("node-02", "node-05"), policy.RESTART, "probe_fabric(node-02,node-05)",
        "check cable",
    ),
    "left_over": Expected(
        v.OOM, "orphan_process", (), ("node-00",), policy.PAGE, "kill_orphans(node-00:5150)", "115 GiB"
    ),
    "bus_error": Expected(v.OOM, "orphan_process", (), ("node-00",), policy.PAGE, "kill_orphans(node-00:88)", "71 GiB"),
    "killed_by_nine": Expected(
        v.WORKER_DEAD, "unknown", (6,), ("node-00",), policy.RESTART, "restart_job",
        "no OOM record of it seen (log readable: yes)",
    ),
    "driver_changed": Expected(
        v.STARTUP_FAILURE, "host_fault", (), ("node-02",), policy.NONE, "drain_after_job(node-02)", "new jobs will fail"
    ),
    "half_a_checkpoint": Expected(
        v.STORAGE_STALL, "storage", (), (), policy.RESTART, "restart_job", "newest complete checkpoint (step 3000)"
    ),
    "fleet_rates": Expected(
        v.GPU_FAULT, "gpu_fault", (29,), ("node-03",), policy.RESTART_WITHOUT, "restart_excluding(node-03)",
        "too few spares: 4 are there, 7.76 fail",
    ),
    "lost_progress": Expected(v.STORAGE_STALL, "storage", (), (), policy.PAGE, "tell_user", "8000 steps lost"),
}  # fmt: skip


def verdict_of(name: str) -> Verdict:
    return diagnose(decode((SNAPSHOTS / f"{name}.json").read_bytes()))


@pytest.mark.parametrize("name", EXPECTED)
def test_an_incident_is_read_as_it_was(name: str) -> None:
    found, expected = verdict_of(name), EXPECTED[name]
    assert (found.klass, found.kind, found.action) == (expected.klass, expected.kind, expected.action)
    assert (found.culprits.ranks, found.culprits.nodes) == (expected.ranks, expected.nodes)
    assert expected.step in found.steps
    assert expected.word in " ".join((found.summary, *found.reasons, *found.hints))
    assert found.unread == ()


def test_beside_a_sick_gpu_the_monitor_tells_of_its_own_blocked_probe() -> None:
    for name in ("corrected_storm", "gsp_timeout"):
        assert [one.klass for one in verdict_of(name).also] == [v.MONITOR_BLIND], name


def test_the_port_that_failed_first_is_named_and_no_other() -> None:
    assert verdict_of("flapping_port").culprits.links == ("node-02/mlx5_7",)


def test_who_only_suffers_is_the_cascade() -> None:
    found = verdict_of("crash_and_wait")
    assert found.cascade == tuple(rank for rank in range(48) if rank != 17)


@pytest.mark.parametrize("name", diagnosis_incidents.ALL)
def test_the_files_are_those_of_the_builders(name: str) -> None:
    assert json.loads((SNAPSHOTS / f"{name}.json").read_text()) == diagnosis_incidents.ALL[name]()


def test_every_incident_has_its_expectation() -> None:
    assert set(EXPECTED) == set(diagnosis_incidents.ALL) == {path.stem for path in SNAPSHOTS.glob("*.json")}
