"""What a finished round has left behind on this node: processes that hold slots or GPUs that the next round needs.

Ended only where it is certain that their round is over and the run is the one that asks; each through a pidfd that was
opened here, after the kernel has shown whose it is.
"""

import asyncio
import os
import signal
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from rankpulse.agent import proc
from rankpulse.agent.torchruns import Torchrun, Torchruns
from rankpulse.agent.watch import Workers
from rankpulse.core.preflight import FAIL, OK, WARN, Finding, Holder, is_over
from rankpulse.core.rendezvous import View, label_name

DIES_S: Final = 5.0
_LOOK_S: Final = 0.05


class Leftover(NamedTuple):
    """A process of a finished round. `what`: it holds this."""

    pid: int
    start: int
    round: int
    what: str

    def __str__(self) -> str:
        return f"process {self.pid} of round {self.round}, which is over, holds {self.what}"


@dataclass(slots=True)
class Leftovers:
    """`view`: what is seen of the rendezvous; `say`: into the log."""

    workers: Workers
    torchruns: Torchruns
    view: Callable[[], View]
    say: Callable[[str], None]
    may_end: bool = True

    def run_of(self, one: Torchrun) -> str:
        """The run that it asks for a round of, as far as is known; "" for one that founds a run."""
        if one.run_uid or one.me is None:
            return one.run_uid
        view = self.view()
        label = view.labels.get(view.keys.label(label_name(one.me.label, one.me.owner)))
        return label.record.run_uid if label else ""

    def in_slots(self, one: Torchrun) -> list[Leftover]:
        """Watched workers of finished rounds of its run."""
        uid, own = self.run_of(one), (one.pid, one.start)
        return [
            Leftover(worker.pid, worker.start, worker.who.run.round, "a slot")
            for worker in self.workers.table.values()
            if uid and worker.who.run.run_uid == uid and worker.file.uid == one.owner
            if self._over(one, worker.who.run.round, own=worker.launcher == own)
            if not proc.has_exited(worker.pidfd)
        ]

    def on_gpus(self, one: Torchrun, holders: Iterable[Holder]) -> list[Leftover]:
        """Likewise of processes that nobody watches, helpers of workers for one."""
        return [
            Leftover(held.pid, held.start, held.round, held.device)
            for held in holders
            if (held.pid, held.start) not in self.torchruns.table and self._over(one, held.round, own=False)
        ]

    def _over(self, one: Torchrun, round_: int, *, own: bool) -> bool:
        uid = self.run_of(one)
        run = self.view().runs.get(uid)
        others = [other for other in self.torchruns.table.values() if other is not one and other.run_uid == uid]
        left = one.me.after if one.me else 0  # it may have met meanwhile: then the last round is one that goes on
        return is_over(round_, newest=run.last if run else 0, left=left, alone=own or not others)

    async def end(self, one: Torchrun, found: Iterable[Leftover]) -> list[Finding]:
        """Kill them, and wait a moment for their end. One that does not end keeps the node out."""
        found = list(dict.fromkeys(found))
        if not self.may_end:
            return [Finding("leftovers", WARN, f"{left}", "preflight.end_leftovers is off") for left in found]
        return list(await asyncio.gather(*(self._end(one, left) for left in found)))

    async def _end(self, one: Torchrun, left: Leftover) -> Finding:
        pidfd = _open(left, one.owner)
        if pidfd < 0:
            return Finding("leftovers", OK, f"process {left.pid} has ended by itself")
        try:
            self.workers.blame(left.pid, left.start, "preflight")
            try:
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            except PermissionError:
                text = f"{left}, and this agent may not end it"
                return Finding("leftovers", FAIL, text, "run the agent as root or as the job's user")
            except OSError:
                return Finding("leftovers", OK, f"process {left.pid} has ended by itself")
            self.say(f"{left}: ended, so that run {self.run_of(one)} can go on here")
            return await _ended(left, pidfd)
        finally:
            os.close(pidfd)


def _open(left: Leftover, owner: int) -> int:
    """A pidfd of that very process, if it lives and is that user's; else -1."""
    try:
        pidfd = os.pidfd_open(left.pid)
    except OSError:
        return -1
    seen, of = proc.stat(left.pid), proc.status(left.pid)
    if seen is None or of is None or seen.start != left.start or of.uids != (owner,) * 3 or proc.has_exited(pidfd):
        os.close(pidfd)
        return -1
    return pidfd


async def _ended(left: Leftover, pidfd: int) -> Finding:
    until = asyncio.get_running_loop().time() + DIES_S
    while not proc.has_exited(pidfd):
        if asyncio.get_running_loop().time() > until:
            state = seen.state if (seen := proc.stat(left.pid)) else "?"
            return Finding("leftovers", FAIL, f"{left}, and does not end (state {state})", "reboot, if it is state D")
        await asyncio.sleep(_LOOK_S)
    return Finding("leftovers", OK, f"process {left.pid} of round {left.round} was ended: it held {left.what}")
