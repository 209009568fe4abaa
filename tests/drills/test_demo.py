"""The demo, as a newcomer runs it: every fault named correctly, and the report in the promised shape."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rankpulse.drills.demo import in_order

FIELDS = {
    "name", "diagnosis", "culprits", "cascade", "action", "restarts", "incidents", "resumed_from_step",
    "verified", "last_words", "lost_steps", "save_every", "time_to_detect_s", "time_to_recover_s", "correct",
}  # fmt: skip
BESIDE_ONE_JOB = ("jitter", "crash", "hang", "weather", "stop", "finish")
Fault = dict[str, Any]
CLI = (sys.executable, "-m", "rankpulse.cli.main")


def demo(*args: str) -> tuple[int, dict, str]:
    done = subprocess.run([*CLI, "demo", "--json", *args], capture_output=True, text=True, timeout=860, check=False)
    assert done.stdout.strip(), done.stderr[-3000:]
    return done.returncode, json.loads(done.stdout), done.stderr


WHOLE = (*BESIDE_ONE_JOB, "node", "cordon", "repeat")
SHORT = ("jitter", "crash", "hang", "stop", "finish", "repeat")  # the others have tests of their own in this room


@pytest.mark.live
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "scenes", [pytest.param(SHORT, id="short"), pytest.param(WHOLE, id="whole", marks=pytest.mark.drill)]
)
def test_the_demo_is_right(scenes: tuple[str, ...]) -> None:
    code, report, told = demo(*(() if scenes == WHOLE else [name for name in scenes if name != "finish"]))
    assert (code, report["ok"]) == (0, True), (report, told[-3000:])
    assert report["reference_start_s"] > 0
    faults = {fault["name"]: fault for fault in report["faults"]}
    assert tuple(faults) == scenes
    assert all(fault.keys() >= FIELDS for fault in faults.values())
    for name, fault in faults.items():
        if name not in ("jitter", "stop", "finish"):
            assert fault["verified"] is True, "what it resumed from was checked byte by byte"
            assert 0 <= fault["lost_steps"] <= (1 if fault["last_words"] else fault["save_every"])
        RIGHT[name](fault)
    crash, hang = faults["crash"], faults["hang"]
    rounds = [1, 2, 3, 4] if scenes == WHOLE else [1, 2, 3]
    assert [report["curve"][name] for name in ("continuous", "wrong", "rounds")] == [True, [], rounds]
    assert report["curve"]["compared"] >= crash["lost_steps"] + hang["lost_steps"]
    assert crash["last_words"] or hang["last_words"], "in the middle of an update twice in a row is hardly chance"


def _came_to(fault: Fault, *wanted: object) -> None:
    assert tuple(fault[name] for name in ("diagnosis", "action", "restarts", "incidents")) == wanted


def _all_ranks(fault: Fault) -> None:
    assert sorted([*fault["culprits"], *fault["cascade"]]) == [0, 1, 2, 3]


def _jitter(fault: Fault) -> None:
    assert (fault["diagnosis"], fault["restarts"], fault["incidents"]) == ("control_plane_delay", 0, 1)


def _crash(fault: Fault) -> None:
    _came_to(fault, "worker_dead", "adopt", 1, 1)
    _all_ranks(fault)
    assert len(fault["culprits"]) == 1
    assert fault["resumed_from_step"] > 0
    assert fault["time_to_detect_s"] < 1.0, "named within a second of the kill"


def _hang(fault: Fault) -> None:
    _came_to(fault, "collective_hang", "restart", 1, 1)
    _all_ranks(fault)
    assert len(fault["culprits"]) == 1
    assert fault["resumed_from_step"] > 0


def _weather(fault: Fault) -> None:
    assert (fault["diagnosis"], fault["restarts"]) == ("operator_restart", 1), "only what a person asked for"


def _node(fault: Fault) -> None:
    _came_to(fault, "node_dead", "restart_without", 1, 1)
    _all_ranks(fault)
    assert fault["culprits"] in ([0, 1], [2, 3]), "all ranks of one node, and of no other"


def _cordon(fault: Fault) -> None:
    _came_to(fault, "drain", "restart_without", 1, 1)
    assert fault["last_words"] or fault["resumed_from_step"] % fault["save_every"] == 0
    assert fault["lost_steps"] < fault["save_every"] // 2, "it left when its checkpoint was saved"


def _repeat(fault: Fault) -> None:
    _came_to(fault, "worker_dead", "stop", 1, 2)  # restarted after the first failure, not after the second
    assert fault["culprits"] == [0]


def _stop(fault: Fault) -> None:
    assert (fault["diagnosis"], fault["incidents"]) == ("stopped_by_user", 0)


def _finish(fault: Fault) -> None:
    assert (fault["diagnosis"], fault["incidents"]) == ("finished", 0)


RIGHT = {
    "jitter": _jitter, "crash": _crash, "hang": _hang, "weather": _weather, "node": _node, "cordon": _cordon,
    "repeat": _repeat, "stop": _stop, "finish": _finish,
}  # fmt: skip


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
