"""A node that works is cordoned with a drain: its job moves to a spare after the next checkpoint, losing nothing."""

import asyncio
import time
from pathlib import Path

import pytest

from rankpulse.core import codec
from rankpulse.core import records as r
from rankpulse.drills.job import Job
from rankpulse.drills.stage import Stage

pytestmark = [pytest.mark.live, pytest.mark.timeout(240)]

NODES = ("node-0", "node-1", "node-2")
SAVE_EVERY = 100


async def drain(stage: Stage, node: str) -> None:
    request = r.Request(
        id="drill-1", kind="cordon", run_uid="", node=node, author="test", reason="fan broken", at=0.0, drain=True
    )
    await stage.store.put(stage.keys.request(request.id), codec.encode(request))


async def test_a_cordon_with_a_drain_moves_the_job_to_a_spare_after_its_checkpoint(tmp_path: Path) -> None:
    async with Stage(tmp_path, nodes=NODES) as stage:
        witness, dirs = stage.witness, stage.run_dirs
        nodes = {node: dirs[node] for node in NODES[:2]}
        job = Job(
            tmp_path / "job",
            nodes,
            name="drained",
            backend="rankpulse",
            hold=True,
            max_restarts=0,
            save_every=SAVE_EVERY,
        )
        spare = job.new_launcher(NODES[2], dirs[NODES[2]], 2)

        def starts() -> list[dict]:  # type: ignore[type-arg]
            return job.events("first_step")

        def ended() -> r.Incident | None:
            return next((one for one in witness.incidents() if one.state == "closed"), None)

        try:
            job.start()
            await witness.until(lambda: len(starts()) == 4, 120.0, "a job that trains")
            spare.start()
            await witness.until(lambda: "waiting" in spare.tail(40), 90.0, "the spare to wait")
            at_step, since = job.last_step(), time.time()
            await drain(stage, "node-1")
            incident = await witness.until(
                ended, 120.0, f"the job on the spare\n{stage.monitor.tail(20)}\n{job.tail()}"
            )
            assert (incident.klass, incident.action, incident.outcome) == ("drain", "restart_without", "recovered")
            assert incident.resumed_from_step is not None
            assert incident.resumed_from_step > at_step, "a checkpoint of after it was asked for"
            assert incident.resumed_from_step % SAVE_EVERY == 0
            assert incident.lost_steps is not None
            assert incident.lost_steps < SAVE_EVERY // 2
            state = witness.run("drained")
            assert state is not None
            roster = witness.roster(state.run_uid)
            assert roster is not None
            assert {member.node for member in roster.members} == {"node-0", "node-2"}
            orders = [order for order in witness.all(r.Order) if order.kind in ("restart", "kill")]
            assert [(order.kind, order.without) for order in orders] == [("restart", ("node-1",))]
            assert [one.klass for one in witness.incidents()] == ["drain"]
            print(f"on the spare {time.time() - since:.1f} s after it was asked for, {incident.lost_steps} steps lost")
        finally:
            await asyncio.to_thread(spare.end)
            await asyncio.to_thread(job.end)
