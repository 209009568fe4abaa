"""A scene with a GPU that is lost, on a machine that has none. Played only when it is asked for by name.

The driver's word on it is injected into what stands in for the kernel's log, and marked as that.
"""

import os
import signal
import time
from pathlib import Path

from rankpulse.core import records as r
from rankpulse.drills.scenes import Result, Show, enter, judge, rounds

BUS = "0000:18:00"
GOES_ON = 20  # steps between the fault and the hang
BELIEVED = "[gpu]\nbelieve_injected = true\n"
_OF_A_PROGRAM = 12  # facility `user`, level warning: no line of the kernel's own
_BEYOND = 10**9  # the number of its first record: above any of the kernel's log that the agent may have read before


class KernelLog:
    """A pipe in the place of /dev/kmsg: a writer that never waits for a reader."""

    def __init__(self, path: Path) -> None:
        self.path, self._seq = path, _BEYOND
        os.mkfifo(path)
        self._fd = os.open(path, os.O_RDWR | os.O_NONBLOCK)

    @property
    def settings(self) -> str:
        """Of an agent that reads it, and believes it."""
        return f'{BELIEVED}kernel_log = "{self.path}"\nhost_poll_s = 0.0\n'

    def say(self, text: str) -> None:
        self._seq += 1
        os.write(self._fd, f"{_OF_A_PROGRAM},{self._seq},{int(time.monotonic() * 1e6)},-;{text}\n".encode())

    def loses_gpu(self, bus: str = BUS) -> None:
        self.say(f"NVRM: Xid (PCI:{bus}): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.")

    def close(self) -> None:
        os.close(self._fd)
        self.path.unlink(missing_ok=True)


async def gpu(show: Show) -> Result:
    """XID 79 on a node whose job goes on; then a worker of that node stops: one incident, and that is its cascade."""
    job, state = await show.running_job()
    roster = show.stage.witness.roster(state.run_uid)
    assert roster is not None
    victim, before = show.rng.choice(roster.members), rounds(show, state.run_uid)
    log = KernelLog(show.directory / f"{victim.node}.kmsg")
    try:
        await show.stage.add(victim.node, log.settings)
        show.tell(f"gpu: XID 79 at {BUS} is injected into the kernel's log of {victim.node}")
        since = time.time()
        log.loses_gpu()
        await show.until(job, lambda: _open(show, since), 60.0, "the incident of the lost GPU")
        at_step = job.last_step()
        await show.until(job, lambda: job.last_step() >= at_step + GOES_ON, 60.0, "a job that goes on")
        show.tell(f"gpu: SIGSTOP for rank {victim.rank} on {victim.node} (pid {victim.pid})")
        os.kill(victim.pid, signal.SIGSTOP)
        await show.until(job, lambda: _suffering(show, since), 60.0, "the hang as its cascade")
    finally:
        os.kill(victim.pid, signal.SIGCONT)
        log.close()
    return _judged(show, since, state.run_uid, before, roster, victim)


def _open(show: Show, since: float) -> r.Incident | None:
    return next((i for i in show.stage.witness.incidents(since) if i.faults), None)


def _suffering(show: Show, since: float) -> r.Incident | None:
    incident = _open(show, since)
    return incident if incident is not None and incident.run_uid and incident.cascade else None


def _judged(show: Show, since: float, run_uid: str, before: int, roster: r.Roster, victim: r.Member) -> Result:
    incidents = show.stage.witness.incidents(since)
    done = f"XID 79 injected on {victim.node}, then SIGSTOP of rank {victim.rank} there"
    result = Result("gpu", done, incidents=len(incidents), restarts=rounds(show, run_uid) - before)
    suffered = _suffering(show, since)
    if suffered is not None:
        enter(result, suffered, since)
        told = [(fault.node, fault.bus, fault.source) for fault in suffered.faults]
        if told != [(victim.node, BUS, "injected")]:
            result.wrong.append(f"device: {told}, should be {victim.node} at {BUS}, marked as injected")
        if not any(f"rankpulse cordon {victim.node} " in reason for reason in suffered.reasons):
            result.wrong.append("no cordon is proposed")
    elsewhere = {member.rank for member in roster.members if member.node != victim.node}
    if not elsewhere <= set(result.cascade):
        result.wrong.append(f"cascade: {result.cascade}, should contain {sorted(elsewhere)}")
    return judge(result, diagnosis="gpu_fault", restarts=0, incidents=1)
