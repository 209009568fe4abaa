"""Scenes about meeting again: a hang that has to be ended, and a rendezvous that outlives what happens around it."""

import asyncio
import signal
import time
from pathlib import Path

from rankpulse.core import codec
from rankpulse.core import records as r
from rankpulse.drills.job import Job
from rankpulse.drills.resumes import between_saves, watch, worth
from rankpulse.drills.scenes import Result, Show, judge, report, rounds
from rankpulse.drills.striking import stop_outside_an_update

STORE_GONE_S = 30.0
HOUR_S = 3600


async def arm(show: Show, reason: str) -> None:
    """What `rankpulse arm` does: from now on the monitor may order restarts."""
    record = r.Arm(armed=True, author="demo", reason=reason, at=time.time())
    await show.stage.store.put(show.stage.keys.arm(), codec.encode(record))
    show.tell(f"rankpulse arm --reason '{reason}'")


async def hang(show: Show) -> Result:
    """SIGSTOP of one worker in the middle of a step: the others wait for it in the collective, and would for ever."""
    job, state = await show.running_job()
    await arm(show, "the demo shows a restart")
    before, roster = rounds(show, state.run_uid), show.stage.witness.roster(state.run_uid)
    assert roster is not None
    victim = show.rng.choice(roster.members)
    await between_saves(job, show.rng)
    watching = watch(job)
    await asyncio.to_thread(_into_a_step, job, victim)
    show.tell(f"hang: SIGSTOP for rank {victim.rank} on {victim.node} (pid {victim.pid})")
    since = time.time()
    await asyncio.to_thread(stop_outside_an_update, victim.pid, show.nodes[victim.node])
    await closed(show, job, since, "the restart that ends the hang")
    done = f"SIGSTOP of rank {victim.rank} on {victim.node}, in the middle of a step"
    result = report(show, "hang", done, since, state.run_uid, before)
    others = sorted(member.rank for member in roster.members if member.rank != victim.rank)
    expected = await worth(result, watching, job, state, roster.round, show.stage.witness)
    expected |= {"culprits": [victim.rank], "cascade": others}
    return judge(result, diagnosis="collective_hang", action="restart", restarts=1, incidents=1, **expected)


def _into_a_step(job: Job, victim: r.Member, timeout_s: float = 10.0) -> None:
    """Wait until the victim computes: between its steps the script sleeps, as a GPU job's host does."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline and job.alive():
        try:
            fields = Path(f"/proc/{victim.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:
            return
        if fields[0] == "R":
            return
        time.sleep(0.001)


async def closed(show: Show, job: Job, since: float, what: str, timeout_s: float = 90.0) -> None:
    """Wait for the end of all incidents since then; that it does not come is told, and for the judge."""

    def over() -> bool:
        incidents = show.stage.witness.incidents(since)
        return bool(incidents) and all(incident.state == "closed" for incident in incidents)

    try:
        await show.until(job, over, timeout_s, what)
    except Exception as error:
        show.tell(str(error))


async def weather(show: Show) -> Result:
    """Agent restarted, store gone, one node's clock wrong by an hour: the round stands; and the next one forms."""
    job, state = await show.running_job()
    before, since = rounds(show, state.run_uid), time.time()
    pids = {entry["pid"] for entry in job.events("resumed")}
    await _agent_anew(show, "node-1", None, "weather: the agent of node-1 is killed and started again")
    clock = _clock_off(HOUR_S)
    if clock is not None:
        await _agent_anew(show, "node-0", clock, "weather: node-0 thinks it is an hour later")
    else:
        show.tell("weather: no libfaketime here, the clock of node-0 stays right (apt-get install faketime)")
    await _store_gone(show)
    await _trains_on(show, job, 20)
    result = Result("weather", f"agent killed, store gone {STORE_GONE_S:.0f} s, clock of a node off by an hour")
    if {entry["pid"] for entry in job.events("resumed")} != pids:
        result.wrong.append("the job was disturbed: it has other processes")
    quiet = report(show, "weather", result.done, since, state.run_uid, before)
    if quiet.restarts or any(incident.run_uid for incident in show.stage.witness.incidents(since)):
        result.wrong.append(f"the job was not left alone: {quiet.restarts} restarts, diagnosis {quiet.diagnosis}")
    return await _ordered_round(show, job, state, result)


async def _ordered_round(show: Show, job: Job, state: r.RunState, result: Result) -> Result:
    """A restart that a person asks for, while the clocks of the two nodes are an hour apart."""
    before, since = rounds(show, state.run_uid), time.time()
    watching = watch(job)
    show.tell("weather: rankpulse restart, with the clocks of the nodes an hour apart")
    asked = r.Request(id="demo", kind="restart", run_uid=state.run_uid, author="demo", reason="drill", at=since)
    await show.stage.store.put(show.stage.keys.request("demo"), codec.encode(asked))
    await closed(show, job, since, "the round that was asked for")
    final = report(show, "weather", result.done, since, state.run_uid, before)
    final.wrong = result.wrong
    expected = await worth(final, watching, job, state, before, show.stage.witness)
    await _agent_anew(show, "node-0", None, "weather: node-0 gets its clock back")
    return judge(
        final, diagnosis="operator_restart", culprits=[], action="restart", restarts=1, incidents=1, **expected
    )


async def _agent_anew(show: Show, node: str, env: dict[str, str] | None, what: str) -> None:
    show.tell(what)
    old = next((beat.inc for beat in show.stage.witness.all(r.Beat) if beat.node == node), 0)
    show.stage.agents[node].signal(signal.SIGKILL)
    await asyncio.to_thread(show.stage.agents[node].wait, 5.0)
    show.stage.agents[node] = show.stage.new_agent(node, env).start()
    workers = show.job.workers if show.job is not None else 0

    def speaks() -> bool:
        beats = [beat for beat in show.stage.witness.all(r.Beat) if beat.node == node]
        return any(beat.inc > old and len(beat.ranks) >= workers for beat in beats)

    await show.stage.witness.until(speaks, 30.0, f"the next agent of {node}")


async def _store_gone(show: Show) -> None:
    show.tell(f"weather: etcd is killed for {STORE_GONE_S:.0f} s")
    await asyncio.to_thread(show.stage.etcd.kill)
    await asyncio.sleep(STORE_GONE_S)
    await asyncio.to_thread(show.stage.etcd.restart)
    show.tell("weather: etcd is back")


async def _trains_on(show: Show, job: Job, steps: int) -> None:
    witness = show.stage.witness
    await show.until(job, lambda: bool(witness.steps(job.name)), 60.0, "the witness to see again")
    goal = min(witness.steps(job.name).values()) + steps

    def reached() -> bool:
        return min(witness.steps(job.name).values(), default=0) >= goal

    await show.until(job, reached, 60.0, f"step {goal}")


def _clock_off(seconds: int) -> dict[str, str] | None:
    """The environment in which a process sees another wall clock and the true monotonic one, where that can be had."""
    library = next((p for p in Path("/usr/lib").glob("*/faketime/libfaketime.so.1")), None)
    if library is None:
        return None
    return {
        "LD_PRELOAD": str(library),
        "FAKETIME": f"{seconds:+d}",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
    }
