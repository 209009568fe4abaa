"""A real job that is killed at random steps: every sample once, and all else to the last bit."""

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from ckpt_worlds import Ranks
from replay_job import BATCH, SAMPLES, train
from support import eventually_sync

from rankpulse.trainer.data import GlobalBatches

SCRIPT = Path(__file__).parents[1] / "replay_job.py"
SAVE_EVERY = 3


class Job:
    """Lives of one job, in one directory."""

    def __init__(self, directory: Path, steps: int, workers: int) -> None:
        directory.mkdir()
        self.directory, self.steps, self.workers = directory, steps, workers

    def start(self, ranks: int, step_s: float = 0.0, restarts: int = 0) -> "subprocess.Popen[bytes]":
        argv = [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)),
            *("--max-restarts", str(restarts), "--monitor-interval", "0.1", str(SCRIPT), str(self.directory)),
            *(str(self.workers), str(self.steps), str(SAVE_EVERY), str(step_s)),
        ]
        # rounds that share torchrun's store would read each other's addresses
        env = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
        self.log = open(self.directory / "log", "ab")  # noqa: SIM115 (closed when the job ends)
        return subprocess.Popen(argv, env=os.environ | env, stdout=self.log, stderr=self.log, start_new_session=True)

    def undisturbed(self, ranks: int) -> None:
        """The same in ranks that are forked, which is quicker."""
        Ranks(
            ranks, lambda _: train(self.directory, self.workers, self.steps, SAVE_EVERY, 0.0), self.directory
        ).results(300)

    def ends(self, torchrun: "subprocess.Popen[bytes]", timeout_s: float = 300.0) -> None:
        try:
            assert torchrun.wait(timeout_s) == 0, (self.directory / "log").read_text()[-4000:]
        finally:
            torchrun.kill()
            self.log.close()

    def lines(self) -> list[dict[str, Any]]:
        try:
            return [json.loads(line) for line in (self.directory / "steps").read_text().splitlines()]
        except FileNotFoundError:
            return []

    def reaches(self, step: int) -> list[int]:
        """The pids of ranks that have made a step which nobody had made before: they are of the present life."""

        def at_work() -> list[int]:
            return list({line["pid"] for line in self.lines() if line["step"] >= step})

        return list(eventually_sync(at_work, 300, f"step {step}\n{(self.directory / 'log').read_text()[-3000:]}"))

    def result(self) -> dict[str, Any]:
        return dict(json.loads((self.directory / "result").read_text()))

    def losses(self) -> dict[tuple[int, int], str]:
        """As computed last, by step and rank."""
        return {(line["step"], line["rank"]): line["loss"] for line in self.lines()}

    def samples(self) -> list[int]:
        """Of the last time that each step was made, by all its ranks."""
        whole: dict[int, dict[int, list[int]]] = {}
        for line in self.lines():
            whole.setdefault(line["step"], {})[line["rank"]] = line["samples"]
        found = []
        for ranks in whole.values():
            parts, left = [], BATCH
            for rank in sorted(ranks):  # a step that was first made by four ranks and then by two has two parts of old
                if left:
                    parts += ranks[rank]
                    left -= len(ranks[rank])
            found += parts
        return found


def expected(steps: int) -> Counter[int]:
    batches = GlobalBatches(SAMPLES, BATCH, seed=5, tail="over", rank=0, world_size=1)
    stream = batches.drawing()
    return Counter(index for _ in range(steps) for _, index in batches.serials(next(stream)))


def every_sample_once(job: Job) -> None:
    due = expected(job.steps)
    assert Counter(job.samples()) == due
    assert job.result()["seen"] == [due[index] for index in range(SAMPLES)], "as the saved state counts them"


def killed(job: Job, torchrun: "subprocess.Popen[bytes]", kills: int, last: int, chance: random.Random) -> None:
    """One rank of the running world, at a random step, so many times; torchrun starts all of them anew."""
    at = max((line["step"] for line in job.lines()), default=0)
    for left in range(kills, 0, -1):
        at += chance.randint(1, max(1, (last - at) // left))
        os.kill(chance.choice(job.reaches(at)), signal.SIGKILL)
    assert torchrun.poll() is None, "it goes on"


@pytest.mark.live
@pytest.mark.timeout(600)
def test_killed_twice_it_ends_as_one_that_was_left_alone(tmp_path: Path) -> None:
    steps = 14
    undisturbed, disturbed = Job(tmp_path / "undisturbed", steps, 1), Job(tmp_path / "disturbed", steps, 1)
    undisturbed.undisturbed(2)
    torchrun = disturbed.start(2, step_s=0.1, restarts=2)
    killed(disturbed, torchrun, 2, steps - 3, random.Random(4))
    disturbed.ends(torchrun)
    assert len({line["pid"] for line in disturbed.lines()}) == 6, "three lives of two ranks"
    every_sample_once(undisturbed)
    every_sample_once(disturbed)
    assert disturbed.losses() == undisturbed.losses()
    assert disturbed.result() == undisturbed.result()


@pytest.mark.drill
@pytest.mark.timeout(1800)
def test_killed_ten_times_it_ends_as_one_that_was_left_alone(tmp_path: Path) -> None:
    steps, seed = 60, random.SystemRandom().randrange(10**6)
    undisturbed, disturbed = Job(tmp_path / "undisturbed", steps, 2), Job(tmp_path / "disturbed", steps, 2)
    undisturbed.undisturbed(4)
    torchrun = disturbed.start(4, step_s=0.1, restarts=10)
    killed(disturbed, torchrun, 10, steps - 3, random.Random(seed))
    disturbed.ends(torchrun)
    every_sample_once(disturbed)
    assert disturbed.losses() == undisturbed.losses(), f"seed {seed}"
    assert disturbed.result() == undisturbed.result(), f"seed {seed}"


@pytest.mark.drill
@pytest.mark.timeout(1800)
def test_killed_ten_times_on_four_two_and_four_ranks_every_sample_comes_once(tmp_path: Path) -> None:
    steps, seed = 60, random.SystemRandom().randrange(10**6)
    chance = random.Random(seed)
    job = Job(tmp_path / "job", steps, 2)
    for ranks, kills, last in ((4, 3, 20), (2, 3, 40), (4, 2, steps - 3)):
        torchrun = job.start(ranks, step_s=0.1, restarts=kills)
        killed(job, torchrun, kills, last, chance)
        if last < steps - 3:  # the ninth and tenth: torchrun itself, with all of its ranks
            job.reaches(last)
            torchrun.kill()
            torchrun.wait()
            job.log.close()
    job.ends(torchrun)
    every_sample_once(job)
