"""Who takes part in `rankpulse bench recovery`: the same job, started in three ways."""

import asyncio
import os
import shutil
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from rankpulse.core import codec
from rankpulse.core import records as r
from rankpulse.drills.children import Child
from rankpulse.drills.job import Job, free_port
from rankpulse.drills.stage import NODES, Stage
from rankpulse.drills.witness import Witness

STEP_S = ("--step-s", "0.1")


@dataclass
class Running:
    """A job that trains, and, where rankpulse watches it, what the store says."""

    job: Job
    witness: Witness | None = None


class Contestant:
    """One way to start the job. `recovers` from a fault within the limit or not: that is what is measured."""

    name = ""
    keeps_running = False  # whether one job can take one fault after another

    def missing(self) -> str:
        """Why it cannot take part here, "" when it can."""
        return ""

    @asynccontextmanager
    async def running(self, directory: Path) -> AsyncIterator[Running]:
        job = self.job(directory).start()
        try:
            yield Running(job)
        finally:
            await asyncio.to_thread(end_hard, job)

    def job(self, directory: Path) -> Job:
        raise NotImplementedError


class Torchrun(Contestant):
    """As the tutorials start it: c10d rendezvous, some restarts, torch's own timeouts."""

    name = "torchrun"

    def job(self, directory: Path) -> Job:
        nodes = {node: directory / node for node in NODES}
        env = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "0"}
        return Job(directory, nodes, name="bench", max_restarts=3, train_args=("--bare", *STEP_S), env=env)


class FtLauncher(Contestant):
    """nvidia-resiliency-ext: heartbeats from the script, timeouts learned from them, checked every second."""

    name = "ft_launcher"

    def missing(self) -> str:
        if find_spec("nvidia_resiliency_ext") is None or self._program() is None:
            return "nvidia-resiliency-ext is not installed beside this Python"
        return ""

    @staticmethod
    def _program() -> str | None:
        return shutil.which("ft_launcher", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}")

    def job(self, directory: Path) -> Job:
        return FtJob(directory, str(self._program()))


class FtJob(Job):
    """The job of the drills under ft_launcher."""

    def __init__(self, directory: Path, program: str) -> None:
        self._program, self._store_port = program, free_port()
        nodes = {node: directory / node for node in NODES}
        super().__init__(directory, nodes, name="bench", max_restarts=3, train_args=("--nvrx", *STEP_S))

    def new_launcher(self, node: str, run_dir: Path, index: int) -> Child:
        child = super().new_launcher(node, run_dir, index)
        child.argv[:3] = [
            *(self._program, "--ft-workload-check-interval", "1", "--ft-initial-rank-heartbeat-timeout", "120"),
            *("--ft-rank-heartbeat-timeout", "60", "--ft-enable-nic-monitor", "false"),
        ]
        child.env["TMPDIR"] = str(self.directory)
        return child


class Rankpulse(Contestant):
    """Agents, monitor, rendezvous and holder; `--max-restarts 0`: nothing may be burned."""

    name = "rankpulse"
    keeps_running = True

    @asynccontextmanager
    async def running(self, directory: Path) -> AsyncIterator[Running]:
        async with Stage(directory) as stage:
            arm = r.Arm(armed=True, author="bench", reason="bench recovery", at=time.time())
            await stage.store.put(stage.keys.arm(), codec.encode(arm))
            job = Job(
                directory / "job",
                stage.run_dirs,
                name="bench",
                max_restarts=0,
                backend="rankpulse",
                hold=True,
                train_args=STEP_S,
            ).start()
            try:
                yield Running(job, stage.witness)
            finally:
                await asyncio.to_thread(end_hard, job)


def end_hard(job: Job) -> None:
    """The fight is over: nobody waits for a launcher that waits for hung workers."""
    for launcher in job.launchers:
        launcher.end(grace_s=0.0)
    for pid in {event["pid"] for event in job.events("resumed")}:
        if is_trainer(pid):
            os.kill(pid, 9)


def is_trainer(pid: int) -> bool:
    """Whether `pid` is a living worker of such a job."""
    try:
        return b"rankpulse.drills.train" in Path(f"/proc/{pid}/cmdline").read_bytes()  # empty for a zombie
    except OSError:
        return False


CONTESTANTS: tuple[Contestant, ...] = (Torchrun(), FtLauncher(), Rankpulse())
