"""A real Slurm on this machine: a job that hangs is requeued once and goes on; a cancelled one is left alone."""

import asyncio
import os
import shlex
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from receiver_world import restart, settings
from slurm_cluster import SlurmCluster, missing
from support import eventually
from test_server import now_signed, post

from rankpulse.core import codec
from rankpulse.core import records as r
from rankpulse.drills.job import Job
from rankpulse.drills.stage import NO_STRIKES, Stage
from rankpulse.receiver import jobs
from rankpulse.receiver.clock import system
from rankpulse.receiver.journal import Line, audit
from rankpulse.receiver.main import Receiver
from rankpulse.receiver.programs import System
from rankpulse.receiver.settings import SlurmSettings
from rankpulse.receiver.slurm import Slurm

pytestmark = [pytest.mark.drill, pytest.mark.skipif(bool(missing()), reason=missing() or "-")]

# Each task saves every step; in the first life of the job both stand still at step 3.
TASK = """#!/bin/sh
cd {folder}
step=$(cat saved-$SLURM_PROCID 2>/dev/null || echo 0)
echo "$SLURM_PROCID restart=${{SLURM_RESTART_COUNT:-0}} from=$step" >> began
while [ $step -lt 6 ]; do
  if [ $step -eq 3 ] && [ -z "$SLURM_RESTART_COUNT" ]; then echo $SLURM_PROCID >> hangs; exec sleep 600; fi
  step=$((step + 1)); echo $step > saved-$SLURM_PROCID
done
echo "$SLURM_PROCID $step" >> finished
"""


class Place:
    def __init__(self, cluster: SlurmCluster, receiver: Receiver, folder: Path) -> None:
        self.cluster, self.receiver, self.folder, self.at = cluster, receiver, folder, system().utc()

    async def run(self, *argv: str) -> str:
        return await asyncio.to_thread(self.cluster.run, *argv)

    async def submit(self, text: str) -> str:
        """The number of the job."""
        script = self.folder / "job.sh"
        script.write_text(text)
        script.chmod(0o755)
        more = ("--requeue", "--ntasks=2", "--overcommit", f"--output={self.folder}/out", f"--chdir={self.folder}")
        return (await self.run("sbatch", "--parsable", *more, str(script))).strip()

    async def state(self, job: str) -> str:
        return (await self.run("squeue", "-h", "-t", "all", "-j", job, "-o", "%T")).strip()

    async def tell(self, number: int, job: str) -> tuple[int, str, str]:
        body = restart(number, run_id=f"slurm-{job}", at=self.at, nodes=(self.cluster.host,), without=("elsewhere",))
        return await post(f"{self.receiver.server.url}/rankpulse", body, now_signed(body))

    def lines(self) -> list[Line]:
        return list(audit(self.receiver.settings.state_file))


@pytest.fixture
async def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Place]:
    folder = tmp_path / "slurm"
    folder.mkdir()
    cluster = await asyncio.to_thread(SlurmCluster(folder).__enter__)
    monkeypatch.setenv("SLURM_CONF", str(cluster.conf))
    made = settings(
        tmp_path,
        {"run_id": "slurm-*", "actuator": "slurm", "users": ["root"], "target": "{*}"},
        clusters=["prod", "demo"],
    )
    receiver = Receiver(made, acting={jobs.SLURM: Slurm(SlurmSettings(), System(), look_every_s=0.2)})
    await receiver.start()
    try:
        yield Place(cluster, receiver, tmp_path)
    finally:
        await receiver.close()
        await asyncio.to_thread(cluster.__exit__)


async def test_a_job_that_hangs_is_requeued_once_and_goes_on_from_its_checkpoint(place: Place) -> None:
    (place.folder / "task.sh").write_text(TASK.format(folder=place.folder))
    (place.folder / "task.sh").chmod(0o755)
    job = await place.submit(f"#!/bin/sh\nsrun --ntasks=2 --overcommit {place.folder}/task.sh\n")
    hangs = place.folder / "hangs"
    await eventually(lambda: hangs.exists() and len(hangs.read_text().split()) == 2, 60, "both tasks to stand")
    answers = [await place.tell(1, job) for _ in range(3)]
    assert [reason for _, reason, _ in answers] == ["accepted", "had already", "had already"]
    await eventually(lambda: place.receiver.vitals.actions["slurm", "done"], 60, "the requeue")
    assert (await place.tell(1, job))[1] == "had already"
    finished = place.folder / "finished"
    await eventually(lambda: finished.exists() and len(finished.read_text().split()) == 4, 180, "the end of the job")
    began = sorted((place.folder / "began").read_text().splitlines())
    assert began == ["0 restart=0 from=0", "0 restart=1 from=3", "1 restart=0 from=0", "1 restart=1 from=3"]
    shown = await place.run("scontrol", "-o", "show", "job", job)
    assert " Restarts=1 " in shown
    assert " ExcNodeList=elsewhere " in shown
    assert ":0:done" in shown


async def test_a_job_that_was_cancelled_is_left_alone(place: Place) -> None:
    job = await place.submit("#!/bin/sh\nsleep 600\n")

    async def is_(state: str) -> bool:
        return await place.state(job) == state

    await eventually(lambda: is_("RUNNING"), 60, "its start")
    await place.run("scancel", job)
    await eventually(lambda: is_("CANCELLED"), 60, "its end")
    assert (await place.tell(1, job))[1] == "accepted"
    await eventually(lambda: place.receiver.vitals.actions["slurm", "failed"], 30, "the refusal")
    assert "is CANCELLED" in place.lines()[-1].text
    assert await place.state(job) == "CANCELLED"


async def test_a_job_that_failed_is_started_again(place: Place) -> None:
    first = f'#!/bin/sh\necho x >> {place.folder}/runs\n[ -n "$SLURM_RESTART_COUNT" ]\n'
    job = await place.submit(first)

    async def failed() -> bool:
        return await place.state(job) == "FAILED"

    await eventually(failed, 60, "its failure")
    assert (await place.tell(1, job))[1] == "accepted"
    runs = place.folder / "runs"
    await eventually(lambda: runs.read_text() == "x\nx\n", 120, "the second run")


PATIENCE = "round_s = 5.0\nanswer_s = 2.0\nwebhook_s = 240.0\n"


def target(place: Place) -> str:
    """The receiver, as settings of a monitor."""
    url, key = f"{place.receiver.server.url}/rankpulse", place.receiver.settings.secret_file
    return f'[[webhook.targets]]\nname = "slurm"\nurl = "{url}"\nsecret_file = "{key}"\nevents = ["restart", "page"]\n'


@pytest.mark.timeout(400)
async def test_a_hang_that_the_monitor_sees_ends_in_a_requeue(place: Place) -> None:
    """The whole way: slots, agent, monitor, order, webhook, receiver, Slurm, checkpoint."""
    host, folder = place.cluster.host, place.folder / "stage"
    folder.mkdir()
    async with Stage(folder, nodes=(host,), monitor=NO_STRIKES + PATIENCE + target(place)) as stage:
        await stage.store.put(stage.keys.arm(), codec.encode(r.Arm(armed=True, author="ann", reason="drill", at=1.0)))
        job = Job(folder / "job", {host: stage.run_dirs[host]}, name="slurm-1", max_restarts=0)
        launcher = job.launchers[0]
        environ = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in (launcher.env or {}).items())
        number = await place.submit(f"#!/bin/sh\n{environ}exec srun --ntasks=1 {shlex.join(launcher.argv)}\n")
        assert number == "1"
        steps = stage.witness.steps
        await stage.witness.until(lambda: min(steps("slurm-1").values(), default=0) > 40, 120.0, "both ranks at work")
        state = stage.witness.run("slurm-1")
        assert state is not None
        roster = stage.witness.roster(state.run_uid)
        assert roster is not None
        began = time.time()
        os.kill(next(one.pid for one in roster.members if one.rank == 1), signal.SIGSTOP)
        await eventually(lambda: place.receiver.vitals.actions["slurm", "done"], 120, f"\n{stage.monitor.tail()}")
        await eventually(lambda: len(job.events("first_step")) >= 4, 120, "both ranks of the next life")
        shown = await place.run("scontrol", "-o", "show", "job", "1")
        assert " Restarts=1 " in shown

        def closed() -> bool:
            found = stage.witness.incidents(began)
            return bool(found) and all(one.state == "closed" for one in found)

        await stage.witness.until(closed, 60.0, "the end of the incident")
        (incident,) = stage.witness.incidents(began)
        assert "restart/slurm" in incident.told
        assert [entry["step"] > 0 for entry in job.events("resumed")[-2:]] == [True, True]
        await place.run("scancel", "1")
