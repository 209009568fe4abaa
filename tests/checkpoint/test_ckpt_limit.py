"""Which checkpoints a limit speaks of: those that lay there when it was asked for, and none that were saved since."""

from pathlib import Path

import pytest
import torch

from rankpulse.trainer.checkpoint import CheckpointManager, choosing
from rankpulse.trainer.checkpoint.manifest import SHARDED, ShardManifest
from rankpulse.trainer.checkpoint.reader import Found


def found(step: int, round_: int, run_uid: str = "r-1", limit: int = -1, run_id: str = "") -> Found:
    manifest = ShardManifest(
        SHARDED, step, 1, "0" * 8, 0.0, (), (), run_uid=run_uid, run_id=run_id, round=round_, resumed_before_step=limit
    )
    return Found(f"step-{step}", step, "0" * 8, manifest, None)


LYING = (found(90, 0, "r-0"), found(60, 1), found(80, 1), found(85, 2), found(95, 3))


def meant(**environ: str) -> list[int]:
    return [
        one.step for one in choosing.too_late(LYING, 70, {f"RANKPULSE_{name}": text for name, text in environ.items()})
    ]


@pytest.mark.parametrize(
    ("round_", "asked_in", "steps"),
    [
        ("2", "1", [90, 80]),
        ("3", "1", [90, 80]),  # a second restart under the same limit: what round 2 saved since is good
        ("4", "1", [90, 80]),
        ("4", "2", [90, 80, 85]),
        ("4", "0", [90]),  # asked for where torchrun was started
        ("4", "x", [90, 80, 85, 95]),
        ("4", "", [90, 80, 85, 95]),  # from the program or by hand: nothing here was saved by a life that had obeyed
    ],
)
def test_what_was_saved_since_is_not_meant(round_: str, asked_in: str, steps: list[int]) -> None:
    assert meant(RUN_UID="r-1", ROUND=round_, RESUME_BEFORE_ROUND=asked_in) == steps


def test_without_a_round_all_are_meant() -> None:
    assert meant(RESUME_BEFORE_ROUND="1") == [90, 80, 85, 95]


SINCE = (*LYING, found(75, 4, limit=70), found(78, 4, limit=60), found(79, 1, "r-0", limit=70))


def test_a_limit_that_stays_in_the_program_or_the_environment_is_obeyed_once() -> None:
    """What was saved by lives that had obeyed it is what they were for."""
    environ = {"RANKPULSE_RUN_UID": "r-1", "RANKPULSE_ROUND": "5"}
    assert [one.step for one in choosing.too_late(SINCE, 70, environ)] == [90, 80, 85, 95, 78, 79]
    told = environ | {"RANKPULSE_RESUME_BEFORE_ROUND": "4"}  # asked for once more, by a person: rounds decide
    assert [one.step for one in choosing.too_late(SINCE, 70, told)] == [90, 80, 85, 95, 75, 78, 79]


def test_without_our_rendezvous_the_label_tells_runs_apart() -> None:
    lying = [found(75, -1, "", limit=70, run_id="a"), found(76, -1, "", run_id="a"), found(77, -1, "", 70, "b")]
    environ = {"TORCHELASTIC_RUN_ID": "a", "TORCHELASTIC_RESTART_COUNT": "1"}
    assert [one.step for one in choosing.too_late(lying, 70, environ)] == [76, 77]


def test_what_stays_is_said() -> None:
    assert choosing.saved_since([found(60, 1), found(75, 4)], 70) == [
        "checkpoints up to step 75 were saved since this run resumed before step 70: they stay"
    ]
    assert choosing.saved_since([found(60, 1)], 70) == choosing.saved_since([found(75, 4)], None) == []


def test_a_limit_left_in_a_script_costs_its_later_lives_nothing(tmp_path: Path) -> None:
    """One life obeys it and saves beyond it; the next one, by the same script, goes on from there."""
    for step in (10, 20):
        CheckpointManager(tmp_path, model=torch.nn.Linear(1, 1)).save(step)
    loaded = []
    for step in (25, 35, 45):
        manager = CheckpointManager(tmp_path, model=torch.nn.Linear(1, 1))
        resumed = manager.load(resume_before_step=15)
        loaded.append(resumed and resumed.step)
        manager.save(step)
    assert loaded == [10, 25, 35]
