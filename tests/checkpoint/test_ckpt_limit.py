"""Which checkpoints a limit speaks of: those that lay there when it was asked for, and none that were saved since."""

import pytest

from rankpulse.trainer.checkpoint import choosing
from rankpulse.trainer.checkpoint.manifest import SHARDED, ShardManifest
from rankpulse.trainer.checkpoint.reader import Found


def found(step: int, round_: int, run_uid: str = "r-1") -> Found:
    manifest = ShardManifest(SHARDED, step, 1, "0" * 8, 0.0, (), (), run_uid=run_uid, round=round_)
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
        ("4", "", [90, 80, 85, 95]),
    ],
)
def test_what_was_saved_since_is_not_meant(round_: str, asked_in: str, steps: list[int]) -> None:
    assert meant(RUN_UID="r-1", ROUND=round_, RESUME_BEFORE_ROUND=asked_in) == steps


def test_without_a_round_all_are_meant() -> None:
    assert meant(RESUME_BEFORE_ROUND="1") == [90, 80, 85, 95]
