"""A real job of our rendezvous: one rank sleeps, then the program fails twice alike. Found, ended, and stopped."""

import asyncio
import time
from pathlib import Path

import pytest
from support import eventually

from rankpulse.core import codec
from rankpulse.core import records as r
from rankpulse.drills.job import Job
from rankpulse.drills.stage import Stage

pytestmark = [pytest.mark.live, pytest.mark.timeout(280)]

SCRIPT = """
import os, time, torch, torch.distributed as dist
from rankpulse.trainer import attach

dist.init_process_group("gloo")
pulse, round_ = attach(), int(os.environ["RANKPULSE_ROUND"])
for step in range(1, 200):
    dist.all_reduce(torch.ones(1))
    time.sleep(0.1)
    pulse.step(step)
    if step == 30 and dist.get_rank() == 2 and round_ == 1:
        time.sleep(3600)
    if step == 40 and dist.get_rank() == 1:
        raise ValueError(f"bad batch, attempt {round_}")
"""


async def read(stage: Stage) -> dict[str, r.Record]:
    records = {}
    for item in (await stage.store.list(stage.keys.prefix)).items:
        parsed = stage.keys.parse(item.key)
        if parsed is not None:
            records[item.key] = codec.decode_at(parsed, item.value)
    return records


def a_job(directory: Path, stage: Stage) -> Job:
    script = directory / "script.py"
    script.write_text(SCRIPT, encoding="utf-8")
    job = Job(directory / "job", stage.run_dirs, name="twice", max_restarts=3, backend="rankpulse", hold=True)
    for launcher in job.launchers:
        launcher.argv = [*launcher.argv[: launcher.argv.index("rankpulse.drills.train") - 1], str(script)]
    return job


@pytest.mark.drill  # one after the other in one job: `make test` has both in the demo, as `hang` and as `repeat`
async def test_a_sleeper_is_found_by_evidence_and_an_error_that_repeats_ends_the_run(tmp_path: Path) -> None:
    async with Stage(tmp_path) as stage:
        await stage.store.put(
            stage.keys.arm(), codec.encode(r.Arm(armed=True, author="test", reason="test", at=time.time()))
        )
        job = a_job(tmp_path, stage).start()
        try:
            await eventually(lambda: not job.alive(), 240, f"the end of the job\n{job.tail()}")
            assert all(launcher.code() for launcher in job.launchers), "a run that failed does not look well"

            async def over() -> bool:
                states = [one for one in (await read(stage)).values() if isinstance(one, r.RunState)]
                return bool(states) and states[0].outcome == "failed"

            await eventually(over, 30, "the end of the run in the store")

            async def tidy() -> bool:
                keys = await read(stage)
                return not [k for k in keys if "/orders/" in k or "/gates/" in k or "/obs/" in k or "/rounds/" in k]

            await eventually(tidy, 60, "the keys of the run to be gone")
            incidents = sorted(
                (one for one in (await read(stage)).values() if isinstance(one, r.Incident)), key=lambda i: i.round
            )
        finally:
            await asyncio.to_thread(job.end)
    told = [(i.round, i.klass, i.action, [m.rank for m in i.culprits]) for i in incidents]
    assert told == [
        (1, "collective_hang", "restart", [2]),
        (2, "worker_dead", "restart", [1]),
        (3, "worker_dead", "stop", [1]),
    ]
    assert any("rank 2 has not called" in reason for reason in incidents[0].reasons)
