"""The examples of the docs do what they say: started again from a checkpoint, they go on as if nothing had been."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
STEPS, SAVE_EVERY = 12, 5


def started(example: str, checkpoints: Path, *args: str) -> dict[int, str]:
    """step -> loss, as printed by rank 0 of two workers."""
    argv = [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"),
        *(str(EXAMPLES / example), "--checkpoints", str(checkpoints)),
        *("--steps", str(STEPS), "--save-every", str(SAVE_EVERY), *args),
    ]
    env = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "RANKPULSE_DIR": str(checkpoints.parent)}
    done = subprocess.run(argv, capture_output=True, text=True, timeout=240, check=False, env=env)
    assert done.returncode == 0, done.stderr[-3000:]
    return {int(step): loss for step, loss in re.findall(r"^step (\d+) loss (\S+)$", done.stdout, flags=re.MULTILINE)}


@pytest.mark.live
@pytest.mark.parametrize("example", ["ddp.py", "fsdp2.py", "data.py"])
def test_it_goes_on_from_its_checkpoint_as_if_nothing_had_been(example: str, tmp_path: Path) -> None:
    checkpoints = tmp_path / "checkpoints"
    undisturbed = started(example, checkpoints)
    assert list(undisturbed) == list(range(1, STEPS + 1))
    [first] = checkpoints.glob(f"step-{SAVE_EVERY:08d}-*")
    for later in checkpoints.glob("step-*"):  # as if it had been killed soon after its first checkpoint
        if later != first:
            shutil.rmtree(later)
    again = started(example, checkpoints)
    assert list(again) == list(range(SAVE_EVERY + 1, STEPS + 1)), "it went on, it did not begin anew"
    assert again == {step: undisturbed[step] for step in again}, "to the last bit"


@pytest.mark.parametrize("example", ["ddp.py", "fsdp2.py", "data.py"])
def test_it_says_how_it_is_started_and_is_short_enough_to_copy(example: str) -> None:
    text = (EXAMPLES / example).read_text(encoding="utf-8")
    assert f"torchrun --nproc-per-node 2 docs/examples/{example}" in text
    assert len(text.splitlines()) <= 75


@pytest.mark.live
@pytest.mark.parametrize(
    ("example", "needs"), [("huggingface.py", "transformers"), ("lightning_module.py", "lightning")]
)
def test_the_loop_of_others_goes_on_from_its_checkpoint_and_ends_alike(
    example: str, needs: str, tmp_path: Path
) -> None:
    pytest.importorskip(needs)
    first = ended(example, tmp_path / "checkpoints")
    [kept] = (tmp_path / "checkpoints").glob(f"step-{SAVE_EVERY:08d}-*")
    for later in (tmp_path / "checkpoints").glob("step-*"):
        if later != kept:
            shutil.rmtree(later)
    assert ended(example, tmp_path / "checkpoints") == first
    assert f"ended at step {STEPS}," in first


def ended(example: str, checkpoints: Path) -> str:
    """What it says at its end."""
    argv = [sys.executable, str(EXAMPLES / example), "--checkpoints", str(checkpoints)]
    env = os.environ | {"OMP_NUM_THREADS": "1", "RANKPULSE_DIR": str(checkpoints.parent)}
    done = subprocess.run(
        [*argv, "--steps", str(STEPS), "--save-every", str(SAVE_EVERY)],
        capture_output=True, text=True, timeout=240, check=False, env=env, cwd=checkpoints.parent,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.strip().splitlines()[-1]
