"""The demo, as a newcomer runs it: every fault named correctly, and the report in the promised shape."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rankpulse.drills.demo import in_order

FIELDS = {
    "name", "diagnosis", "culprits", "cascade", "action", "restarts", "incidents", "resumed_from_step",
    "verified", "lost_steps", "save_every", "time_to_detect_s", "time_to_recover_s", "correct",
}  # fmt: skip
BESIDE_ONE_JOB = ("jitter", "crash", "hang", "weather", "stop", "finish")
CLI = (sys.executable, "-m", "rankpulse.cli.main")


def demo(*args: str) -> tuple[int, dict, str]:
    done = subprocess.run([*CLI, "demo", "--json", *args], capture_output=True, text=True, timeout=860, check=False)
    assert done.stdout.strip(), done.stderr[-3000:]
    return done.returncode, json.loads(done.stdout), done.stderr


@pytest.mark.live
@pytest.mark.timeout(900)
def test_the_whole_demo_is_right() -> None:
    code, report, told = demo()
    assert (code, report["ok"]) == (0, True), (report, told[-3000:])
    assert report["reference_start_s"] > 0
    faults = {fault["name"]: fault for fault in report["faults"]}
    assert list(faults) == [*BESIDE_ONE_JOB, "node", "cordon", "repeat"]
    assert all(fault.keys() >= FIELDS for fault in faults.values())
    jitter, crash = faults["jitter"], faults["crash"]
    assert (jitter["diagnosis"], jitter["restarts"], jitter["incidents"]) == ("control_plane_delay", 0, 1)
    assert (crash["diagnosis"], crash["restarts"], crash["incidents"], crash["action"]) == (
        "worker_dead",
        1,
        1,
        "adopt",
    )
    assert sorted([*crash["culprits"], *crash["cascade"]]) == [0, 1, 2, 3]
    assert len(crash["culprits"]) == 1
    assert crash["resumed_from_step"] > 0
    assert crash["time_to_detect_s"] < 1.0, "named within a second of the kill"
    hang = faults["hang"]
    assert (hang["diagnosis"], hang["action"]) == ("collective_hang", "restart")
    assert (hang["restarts"], hang["incidents"]) == (1, 1)
    assert len(hang["culprits"]) == 1
    assert sorted([*hang["culprits"], *hang["cascade"]]) == [0, 1, 2, 3]
    assert hang["resumed_from_step"] > 0
    weather = faults["weather"]
    assert (weather["diagnosis"], weather["restarts"]) == ("operator_restart", 1), "only what a person asked for"
    node, cordon, repeat = faults["node"], faults["cordon"], faults["repeat"]
    assert (node["diagnosis"], node["action"], node["restarts"], node["incidents"]) == (
        "node_dead",
        "restart_without",
        1,
        1,
    )
    assert sorted([*node["culprits"], *node["cascade"]]) == [0, 1, 2, 3]
    assert node["culprits"] in ([0, 1], [2, 3]), "all ranks of one node, and of no other"
    assert (cordon["diagnosis"], cordon["action"], cordon["restarts"], cordon["incidents"]) == (
        "drain",
        "restart_without",
        1,
        1,
    )
    assert cordon["resumed_from_step"] % cordon["save_every"] == 0
    assert cordon["lost_steps"] < cordon["save_every"] // 2, "it left when its checkpoint was saved"
    assert (repeat["diagnosis"], repeat["action"], repeat["culprits"]) == ("worker_dead", "stop", [0])
    assert (repeat["restarts"], repeat["incidents"]) == (1, 2), (
        "restarted after the first failure, not after the second"
    )
    for fault in (crash, hang, weather, node, cordon, repeat):
        assert fault["verified"] is True, "what it resumed from was checked byte by byte"
        assert 0 <= fault["lost_steps"] <= fault["save_every"]
    curve = [report["curve"][name] for name in ("continuous", "wrong", "rounds")]
    assert curve == [True, [], [1, 2, 3, 4]]
    assert report["curve"]["compared"] >= crash["lost_steps"] + hang["lost_steps"] > 0
    assert "gave every rank the same loss, to the last bit" in told
    assert [faults[name]["diagnosis"] for name in ("stop", "finish")] == ["stopped_by_user", "finished"]
    assert [faults[name]["incidents"] for name in ("stop", "finish")] == [0, 0]


@pytest.mark.drill
@pytest.mark.timeout(420)
@pytest.mark.parametrize("round_", range(5))
def test_crash_of_a_worker_drawn_by_lot(round_: int) -> None:
    code, report, told = demo("crash")
    assert (code, report["ok"]) == (0, True), (report, told[-3000:])
    assert report["faults"][0]["time_to_detect_s"] < 1.0


@pytest.mark.drill
@pytest.mark.timeout(420)
@pytest.mark.parametrize("round_", range(5))
def test_hang_of_a_worker_drawn_by_lot(round_: int) -> None:
    code, report, told = demo("hang")
    assert (code, report["ok"]) == (0, True), (report, told[-3000:])


@pytest.mark.drill
@pytest.mark.timeout(420)
@pytest.mark.parametrize("round_", range(3))
def test_jitter_again(round_: int) -> None:
    code, report, told = demo("jitter")
    assert (code, report["ok"]) == (0, True), (report, told[-3000:])


def test_a_directory_in_use_is_not_taken_for_logs(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    done = subprocess.run(
        [*CLI, "demo", "--keep", str(tmp_path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert "not empty" in done.stderr


def test_unknown_fault_names_the_known_ones() -> None:
    done = subprocess.run([*CLI, "demo", "flood"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "jitter, crash, hang, weather, stop, node, cordon, repeat" in done.stderr


def test_scenes_are_played_once_each_and_what_ends_the_job_after_what_needs_it() -> None:
    assert in_order(["repeat", "stop", "crash", "crash"]) == ["crash", "stop", "repeat"]
    assert in_order([]) == ["jitter", "crash", "hang", "weather", "stop", "node", "cordon", "repeat"]
