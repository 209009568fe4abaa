"""A job that is killed again and again ends as one that was left alone: the same losses and parameters, bit for bit.

Two real ranks under DDP, killed by SIGKILL: one of them or both, between steps by the parent, or by their own hand
before one of the file-system calls of a save. Two ranks, because DDP adds up the first gradients of a fresh process
in another order than later ones, which three ranks would show in the last bit whether or not they were ever killed.
"""

import json
import mmap
import os
import random
import signal
import struct
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from ckpt_worlds import Ranks, build, state_bits, train  # noqa: E402
from support import eventually_sync  # noqa: E402

from rankpulse.trainer.checkpoint import CheckpointManager  # noqa: E402
from rankpulse.trainer.checkpoint.files import Files  # noqa: E402
from rankpulse.trainer.checkpoint.reader import scan, verify  # noqa: E402

KILLS, EVERY = 10, 2
CALLS = ("mkdir", "create", "write", "fsync", "close", "rename", "unlink", "rmdir", "sync_dir")


class Deadly(Files):
    """Kills its process before the call of this number, counted from when it is armed."""

    left = -1

    def __getattribute__(self, name: str) -> Any:
        if name in CALLS and self.left >= 0:
            self.left -= 1
            if self.left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return super().__getattribute__(name)


class Job:
    """What all lives of one job share: its directory, what its ranks noted, and how far each has come."""

    def __init__(self, path: Path, steps: int) -> None:
        path.mkdir()
        self.path, self.steps = path, steps
        self.progress = mmap.mmap(-1, 16)  # shared with the ranks: the last step of each

    def at(self, rank: int) -> int:
        return int(struct.unpack_from("q", self.progress, 8 * rank)[0])

    def live(self, rank: int, die_in_save: tuple[int, int, int] | None) -> Any:
        """One rank's life; `die_in_save`: (rank, step, call) where one of them kills itself."""
        torch.manual_seed(3)
        model, optimizer = build("ddp", 3, torch.bfloat16)
        scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [5, 15], gamma=0.7)
        files = Deadly()
        manager = CheckpointManager(
            self.path / "checkpoints", model=model, optimizer=optimizer, scheduler=scheduler, mode="sharded",
            every_steps=EVERY, keep_last=2, files=files,
        )  # fmt: skip
        torch.manual_seed(100 + rank)
        resumed = manager.load()
        for step in range(resumed.step + 1 if resumed else 1, self.steps + 1):
            self.note(rank, step, train(model, optimizer, scheduler))
            struct.pack_into("q", self.progress, 8 * rank, step)
            if die_in_save is not None and die_in_save[:2] == (rank, step):
                files.left = die_in_save[2]
            manager.step(step)
        return state_bits(model, optimizer)

    def note(self, rank: int, step: int, loss: float) -> None:
        fd = os.open(self.path / "losses", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(fd, f"{rank} {step} {loss.hex()}\n".encode())
        os.close(fd)

    def losses(self) -> list[tuple[int, int, str]]:
        rows = [line.split() for line in (self.path / "losses").read_text().splitlines()]
        return [(int(rank), int(step), loss) for rank, step, loss in rows]

    def newest(self) -> int:
        return max((found.step for found in scan(str(self.path / "checkpoints")).committed), default=0)


def a_life_and_its_end(job: Job, draw: random.Random) -> str:
    """One life that is killed somewhere after where it resumes; what was done, in words."""
    begins = job.newest() + 1
    step, victims = begins + draw.randrange(4), draw.choice([[0], [1], [0, 1]])
    if draw.random() < 0.5:
        step += step % EVERY  # one of the steps that save
        place = (victims[0], step, draw.randrange(12))
        ranks = Ranks(2, lambda rank: job.live(rank, place), job.path)
        eventually_sync(lambda: ended(ranks, place[0]), 30, "the rank to kill itself")
        victims = [0, 1]
        how = f"rank {place[0]} before call {place[2]} of the save of step {step}"
    else:
        struct.pack_into("qq", job.progress, 0, 0, 0)
        ranks = Ranks(2, lambda rank: job.live(rank, None), job.path)
        eventually_sync(lambda: job.at(victims[0]) >= step, 30, f"step {step}")
        how = f"ranks {victims} after step {step}"
    ranks.kill(victims)
    ranks.kill([0, 1])  # as a launcher does with the others
    ranks.results(whatever_came=True)
    return how


def ended(ranks: Ranks, rank: int) -> bool:
    """Whether a rank is dead, without collecting it."""
    found = os.waitid(os.P_PID, ranks.pids[rank], os.WEXITED | os.WNOHANG | os.WNOWAIT)
    return found is not None


@pytest.mark.live
def test_killed_ten_times_it_ends_as_if_it_had_been_left_alone(tmp_path: Path) -> None:
    seed = int(os.environ.get("RANKPULSE_TEST_SEED", "0")) or random.SystemRandom().randrange(1, 10**6)
    draw = random.Random(seed)
    job = Job(tmp_path / "killed", steps=0)
    done = [f"seed {seed} (RANKPULSE_TEST_SEED)"]
    job.steps = 10**6
    for _ in range(KILLS):
        done.append(a_life_and_its_end(job, draw))
    story = "; ".join(done)
    print(story)
    last = job.newest()
    assert last > EVERY, story
    job.steps = last + 5
    ends = Ranks(2, lambda rank: job.live(rank, None), job.path).results()
    alone = Job(tmp_path / "alone", steps=job.steps)
    expected = Ranks(2, lambda rank: alone.live(rank, None), alone.path).results()
    assert ends == expected, story
    undisturbed = {(rank, step): loss for rank, step, loss in alone.losses()}
    assert len(undisturbed) == 2 * job.steps
    again = job.losses()
    assert [row for row in again if undisturbed.get(row[:2], row[2]) != row[2]] == [], story
    assert {row[:2] for row in again} >= set(undisturbed), story
    for found in scan(str(job.path / "checkpoints")).committed:
        verify(found.path)
    assert json.dumps(ends) != "[]"
