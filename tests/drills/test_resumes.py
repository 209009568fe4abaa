"""How the demo judges a resume: by the checkpoint on the disk, whatever the job says of it."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from rankpulse.drills import curve, plain
from rankpulse.drills.job import Job
from rankpulse.drills.resumes import _checked, dear, losses
from rankpulse.trainer.checkpoint import save_sharded


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return Path(save_sharded(str(tmp_path / "checkpoints"), {"model": {"w": torch.arange(8.0)}}, 30).path)


def said(checkpoint: Path, **other: Any) -> list[dict[str, Any]]:
    return [{"rank": rank, "step": 30, "checkpoint": str(checkpoint), "skipped": [], **other} for rank in range(2)]


def test_a_sound_checkpoint_is_verified(checkpoint: Path) -> None:
    again = _checked(said(checkpoint))
    assert (again.step, again.verified, again.wrong) == (30, True, [])


def test_a_flipped_bit_is_found_though_the_job_went_on_with_it(checkpoint: Path) -> None:
    [shard] = checkpoint.glob("shard-*")
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    again = _checked(said(checkpoint))
    assert not again.verified
    assert "checksum" in again.wrong[0]


def test_another_step_than_the_job_says_is_found(checkpoint: Path) -> None:
    again = _checked(said(checkpoint, step=40))
    assert not again.verified
    assert again.wrong == ["it says step 40 and loaded the checkpoint of step 30"]


def test_checkpoints_that_were_passed_over_are_told(checkpoint: Path) -> None:
    assert "damaged" in _checked(said(checkpoint, skipped=["step 40: is damaged"])).wrong[0]


def test_ranks_that_disagree_and_a_fresh_start_are_no_resume(checkpoint: Path) -> None:
    events = said(checkpoint)
    events[1]["step"] = 20
    assert _checked(events).wrong == ["the job says it resumed from [20, 30]: not one checkpoint for all ranks"]
    assert "[0]" in _checked(said(checkpoint, step=0)).wrong[0]


@pytest.mark.parametrize(("finished", "resumed", "lost"), [(37, 30, 7), (40, 30, 10), (40, 40, 0), (51, 40, 11)])
def test_lost_is_what_was_finished_and_not_saved(finished: int, resumed: int, lost: int) -> None:
    points = [curve.Point(step, 1, rank, 1.0) for step in range(21, finished + 1) for rank in range(2)]
    points.pop()  # one of the ranks never told of the last step: it counts all the same
    assert curve.lost_steps(curve.curve_of(points, 2), 1, resumed) == lost
    assert curve.lost_steps(curve.curve_of(points, 2), 2, resumed) == 0, "a round that finished nothing loses nothing"


@pytest.mark.parametrize(
    ("lost", "spoken", "refused", "wrong"),
    [
        (1, True, [], ""),
        (2, True, [], "2 steps lost, should be at most 1"),
        (10, False, None, ""),
        (11, False, None, "11 steps lost, should be at most 10"),
        (7, False, [], "no last words: nobody said why"),
        (7, False, ["rank 0: the disk is full"], "no last words: rank 0: the disk is full"),
        (7, False, ["rank 2 was in the middle of an update: what is held there is of no step"], ""),
        (1, False, [], ""),
    ],
)
def test_what_may_be_lost_with_last_words_and_without(
    lost: int, spoken: bool, refused: list[str] | None, wrong: str
) -> None:
    assert dear(lost, 10, spoken, refused) == ([wrong] if wrong else [])


def test_the_losses_of_a_job_are_read_to_the_last_whole_line(tmp_path: Path) -> None:
    job = Job(tmp_path, {"node-0": tmp_path / "node-0"}, workers=1)
    assert (job.last_step(), losses(job).at) == (0, {})
    lines = [json.dumps({"step": step, "round": 1, "rank": 0, "loss": step / 3}) for step in range(1, 100)]
    job.losses_file.write_text("\n".join(lines) + '\n{"step": 1')
    assert job.last_step() == 99
    assert losses(job).at[1, 99] == {0: 33.0}


def test_a_job_without_rankpulse_resumes_with_its_optimizer(tmp_path: Path) -> None:
    """What rankpulse is compared with does not lose more than it must."""

    def built() -> tuple[nn.Module, torch.optim.Optimizer, plain.PlainCheckpoints]:
        torch.manual_seed(0)
        model = nn.Linear(4, 2)
        optimizer = torch.optim.AdamW(model.parameters())
        return model, optimizer, plain.PlainCheckpoints(str(tmp_path), model=model, optimizer=optimizer, every_steps=10)

    def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: range) -> None:
        for step in steps:
            optimizer.zero_grad()
            model(torch.full((3, 4), float(step))).square().sum().backward()
            optimizer.step()

    model, optimizer, checkpoints = built()
    assert checkpoints.load() is None
    train(model, optimizer, range(10))
    checkpoints._save(10)
    train(model, optimizer, range(10, 20))
    again, its_optimizer, its_checkpoints = built()
    resumed = its_checkpoints.load()
    assert resumed is not None
    assert resumed.step == 10
    train(again, its_optimizer, range(10, 20))
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))
