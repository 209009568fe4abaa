"""The faults of the demo: each does something to a running job and holds rankpulse's answer against the truth."""

import asyncio
import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rankpulse.core import records as r
from rankpulse.drills.job import Job
from rankpulse.drills.pager import Pager
from rankpulse.drills.resumes import between_saves, watch, worth
from rankpulse.drills.spared import Spared
from rankpulse.drills.stage import NODES, Stage
from rankpulse.drills.striking import stop_outside_an_update

TRAINED_STEPS = 25  # before the first fault: the detectors have seen the job at work
STALLS_S = (3.0, 6.0, 4.0, 8.0, 5.0)
BETWEEN_S = 3.0


@dataclass
class Result:
    """What a fault came to. Times in seconds; None where there is nothing to time."""

    name: str
    done: str = ""
    diagnosis: str = "nothing noticed"
    culprits: list[int] = field(default_factory=list)
    cascade: list[int] = field(default_factory=list)
    action: str = "none"
    restarts: int = 0
    incidents: int = 0
    resumed_from_step: int | None = None
    verified: bool | None = None  # the checkpoint it resumed from, checked byte by byte by the demo itself
    last_words: bool | None = None  # whether that checkpoint is what survivors saved at the fault
    lost_steps: int | None = None
    save_every: int | None = None
    time_to_detect_s: float | None = None
    time_to_recover_s: float | None = None
    correct: bool = False
    wrong: list[str] = field(default_factory=list)

    def plain(self) -> dict[str, Any]:
        return asdict(self)


class Show:
    """What the scenes share: the stage, the running job, a source of chance, someone to tell, someone to page."""

    def __init__(
        self, stage: Stage, directory: Path, rng: random.Random, tell: Callable[[str], None], pager: Pager
    ) -> None:
        self.stage, self.directory, self.rng, self.tell, self.pager = stage, directory, rng, tell, pager
        self.job: Job | None = None
        self.trained: Job | None = None  # the same, also when it has ended
        self.spared: Spared | None = None  # the job of `node` and `cordon`
        self.results: list[Result] = []

    @property
    def nodes(self) -> dict[str, Path]:
        """Where jobs run, with the run directories."""
        return {node: self.stage.run_dirs[node] for node in NODES}

    async def running_job(self) -> tuple[Job, r.RunState]:
        """The job of the demo, started when there is none, trained until the detectors know it."""
        if self.job is None:
            self.tell("starting a real DDP job: 2 torchruns x 2 workers")
            where = self.directory / "job"
            self.job = Job(where, self.nodes, name="demo-job", backend="rankpulse", last_words=True).start()
            self.trained = self.job
        job, witness = self.job, self.stage.witness
        state = await self.until(job, lambda: witness.run(job.name), 150.0, "the job in the store")

        def trained() -> bool:
            steps = witness.steps(job.name)
            return len(steps) == job.world_size and min(steps.values()) >= TRAINED_STEPS

        await self.until(job, trained, 150.0, f"{TRAINED_STEPS} steps of training")
        return job, state

    async def alone(self) -> None:
        """End the jobs that run: the next scene has its own."""
        for job in (self.job, self.spared):
            if job is not None:
                self.tell("ending the job")
                await asyncio.to_thread(job.end)
        self.job = self.spared = None

    async def until(self, job: Job, found: Callable[[], Any], timeout_s: float, what: str) -> Any:
        try:
            return await self.stage.witness.until(found, timeout_s, what)
        except Exception as error:
            raise type(error)(f"{error}\n{job.tail()}") from error


def judge(result: Result, **expected: Any) -> Result:
    """Hold what was reported against the truth; `wrong` says where they differ."""
    for name, value in expected.items():
        got = getattr(result, name)
        if got != value:
            result.wrong.append(f"{name}: {got!r}, should be {value!r}")
    result.correct = not result.wrong
    return result


def rounds(show: Show, run_uid: str) -> int:
    roster = show.stage.witness.roster(run_uid)
    return roster.round if roster else 0


def report(show: Show, name: str, done: str, since: float, run_uid: str, rounds_before: int) -> Result:
    """What rankpulse says about the time since `since`."""
    incidents = show.stage.witness.incidents(since)
    result = Result(name, done, incidents=len(incidents), restarts=rounds(show, run_uid) - rounds_before)
    if incidents:
        enter(result, incidents[0], since)
    return result


def enter(result: Result, incident: r.Incident, since: float) -> None:
    """What rankpulse says in this incident about what was done at `since`."""
    result.diagnosis, result.action = incident.klass, incident.action
    result.culprits = sorted(member.rank for member in incident.culprits)
    result.cascade = sorted(incident.cascade)
    result.resumed_from_step = incident.resumed_from_step
    result.time_to_detect_s = round(incident.opened_at - since, 3)
    result.time_to_recover_s = incident.time_to_recover_s


async def jitter(show: Show) -> Result:
    """The path between agents and etcd is slow and stalls, again and again; the job must be left alone."""
    job, state = await show.running_job()
    before, since = rounds(show, state.run_uid), time.time()
    steps_before = show.stage.witness.steps(job.name)
    show.stage.proxy.tell("delay 0.1 0.1")
    for seconds in STALLS_S:
        show.tell(f"jitter: the control plane stalls for {seconds:.0f} s")
        await asyncio.to_thread(show.stage.proxy.tell, "stall")
        await asyncio.sleep(seconds)
        await asyncio.to_thread(show.stage.proxy.tell, "release")
        await asyncio.sleep(BETWEEN_S)
    show.stage.proxy.tell("delay 0")

    def settled() -> bool:
        incidents = show.stage.witness.incidents(since)
        return bool(incidents) and all(incident.state == "closed" for incident in incidents)

    try:
        await show.until(job, settled, 40.0, "the incident to be noticed and closed")
    except Exception as error:
        show.tell(str(error))
    done = f"the path to etcd stalled {len(STALLS_S)} times for {min(STALLS_S):.0f}-{max(STALLS_S):.0f} s"
    result = report(show, "jitter", done, since, state.run_uid, before)
    incidents = show.stage.witness.incidents(since)
    if not incidents or "job progressing" not in incidents[0].summary:
        result.wrong.append("summary: does not say that the job was progressing")
    if min(show.stage.witness.steps(job.name).values(), default=0) <= max(steps_before.values()):
        result.wrong.append("the job did not train on")
    return judge(
        result, diagnosis="control_plane_delay", culprits=[], cascade=[], action="none", restarts=0, incidents=1
    )


async def crash(show: Show) -> Result:
    """SIGKILL of one worker, drawn by lot; torchelastic restarts the job once, and nobody doubles that."""
    job, state = await show.running_job()
    before = rounds(show, state.run_uid)
    roster = show.stage.witness.roster(state.run_uid)
    assert roster is not None
    victim = show.rng.choice(roster.members)
    await between_saves(job, show.rng)
    watching = watch(job)
    show.tell(f"crash: SIGKILL for rank {victim.rank} on {victim.node} (pid {victim.pid})")
    await asyncio.to_thread(stop_outside_an_update, victim.pid, show.nodes[victim.node])
    since = time.time()
    os.kill(victim.pid, signal.SIGKILL)

    def over() -> bool:
        incidents = show.stage.witness.incidents(since)
        return bool(incidents) and all(incident.state == "closed" for incident in incidents)

    try:
        await show.until(job, over, 75.0, "the next round and the end of the incident")
    except Exception as error:
        show.tell(str(error))
    result = report(show, "crash", f"SIGKILL of rank {victim.rank} on {victim.node}", since, state.run_uid, before)
    others = sorted(member.rank for member in roster.members if member.rank != victim.rank)
    named = [m for incident in show.stage.witness.incidents(since)[:1] for m in incident.culprits]
    if [(m.node, m.pid) for m in named] != [(victim.node, victim.pid)]:
        result.wrong.append(f"culprit process: {named}, should be {victim}")
    expected = await worth(result, watching, job, state, roster.round, show.stage.witness)
    expected |= {"culprits": [victim.rank], "cascade": others}
    return judge(result, diagnosis="worker_dead", action="adopt", restarts=1, incidents=1, **expected)


async def _ending(show: Show, job: Job, name: str, done: str, expected: str, since: float, before: int) -> Result:
    """A run that ends: its outcome is its diagnosis, and there must be no incident and no restart."""
    witness = show.stage.witness

    def ended() -> r.RunState | None:
        state = witness.run(job.name)
        return state if state is not None and state.outcome != "running" else None

    try:
        state = await show.until(job, ended, 60.0, "the end of the run to be noticed")
    except Exception as error:
        show.tell(str(error))
        state = witness.run(job.name)
    await asyncio.sleep(2.0)  # whatever would be wrongly concluded from the end, would be by now
    assert state is not None
    result = report(show, name, done, since, state.run_uid, before)
    if result.incidents == 0:
        result.diagnosis = state.outcome
        result.time_to_detect_s = round(state.ended_at - since, 3) if state.ended_at else None
    return judge(result, diagnosis=expected, culprits=[], cascade=[], action="none", restarts=0, incidents=0)


async def stop(show: Show) -> Result:
    """Ctrl-C of the job: nothing has failed, nothing may be restarted."""
    job, state = await show.running_job()
    before = rounds(show, state.run_uid)
    show.tell("stop: Ctrl-C for the job")
    since = time.time()
    job.ctrl_c()
    done = "Ctrl-C for the whole job"
    result = await _ending(show, job, "stop", done, "stopped_by_user", since, before)
    await asyncio.to_thread(job.wait, 45.0)
    show.job = None
    return result


async def finish(show: Show) -> Result:
    """A second run that ends by itself."""
    show.tell("finish: a second run, of 20 steps, that ends by itself")
    args = ("--steps", "20", "--step-s", "0.05")
    job = Job(show.directory / "second", show.nodes, name="second-job", backend="rankpulse", train_args=args).start()
    try:
        since = job.started_at
        await show.until(job, lambda: show.stage.witness.run(job.name), 150.0, "the second run in the store")
        await show.until(job, lambda: len(job.events("finished")) == job.world_size, 90.0, "its end")
        since = max(entry["at"] for entry in job.events("finished"))
        result = await _ending(show, job, "finish", "a run of 20 steps ended by itself", "finished", since, 1)
    finally:
        await asyncio.to_thread(job.end)
    return result
