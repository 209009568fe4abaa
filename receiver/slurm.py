"""Starts a Slurm job again: `scontrol requeuehold`, nodes left out, `release`. What was done stands in the job."""

import asyncio
from collections.abc import Sequence
from typing import Final

from rankpulse.receiver import slurm_job
from rankpulse.receiver.acting import Later, Programs, Ran, Refused, Scribe
from rankpulse.receiver.deciding import Plan
from rankpulse.receiver.programs import said
from rankpulse.receiver.settings import SlurmSettings
from rankpulse.receiver.slurm_job import SlurmJob, Step

STEPS_MAX: Final = 200
LOOK_EVERY_S: Final = 1.0
RESTARTS: Final = "restarts"  # of the job, when we began


class Slurm:
    """An `Actuator`. Each step is decided from how the job stands, so it can be left off at any line and taken up."""

    def __init__(self, settings: SlurmSettings, programs: Programs, look_every_s: float = LOOK_EVERY_S) -> None:
        self._settings, self._programs, self._look_every_s = settings, programs, look_every_s

    async def restart(self, plan: Plan, scribe: Scribe) -> str:
        acted = False
        for _ in range(STEPS_MAX):
            now, left = await self._left(plan, scribe)
            if not left:
                return f"job {now.number}: " + ("requeued" if acted else "was requeued for this decision before")
            if scribe.remembered(RESTARTS) is None:
                scribe.remember(RESTARTS, str(now.restarts))
            acted = True
            await self._do(left[0], scribe)
        raise Later(f"job {plan.target} does not end: {left[0].why}")

    async def would(self, plan: Plan, scribe: Scribe) -> list[str]:
        _, left = await self._left(plan, scribe)
        return [
            f"{self._settings.scontrol} {' '.join(one.argv)}: {one.why}" if one.argv else f"wait: {one.why}"
            for one in left
        ]

    async def _left(self, plan: Plan, scribe: Scribe) -> tuple[SlurmJob, list[Step]]:
        """How it stands, and what is to be done yet."""
        told = scribe.remembered(RESTARTS)
        began = int(told) if told is not None else None
        now = await self._look(plan, begun=began is not None)
        slurm_job.steps(now, plan, self._settings.mark, (), began)  # whether it may be touched at all
        without = [await self._known(name) for name in plan.data.without]
        return now, slurm_job.steps(now, plan, self._settings.mark, without, began)

    async def _known(self, name: str) -> str:
        """As Slurm calls it. Found out before anything is done: it takes no list with a name that it does not know."""
        for one in slurm_job.node_names(name):
            ran = await self._run((self._settings.scontrol, "-o", "show", "node", one))
            if ran.code == 0 and ran.output.startswith(f"NodeName={one} "):
                return one
            if "not found" not in ran.output:
                raise Later(f"Slurm does not tell of node {one}: {said(ran)}")
        raise Refused(f"Slurm knows no node {name}, which is to be left out: agents must call nodes as Slurm does")

    async def _do(self, step: Step, scribe: Scribe) -> None:
        if not step.argv:
            await asyncio.sleep(self._look_every_s)
            return
        argv = (self._settings.scontrol, *step.argv)
        scribe.note("does", f"{' '.join(argv)}: {step.why}")
        ran = await self._run(argv)
        scribe.note("did", f"scontrol {step.argv[0]}: {said(ran)}")
        if ran.code != 0:
            raise Later(f"scontrol {step.argv[0]}: {said(ran)}")

    async def _look(self, plan: Plan, *, begun: bool) -> SlurmJob:
        rows = await self._run((self._settings.squeue, "-h", "-t", "all", "-j", plan.target, "-O", slurm_job.FORMAT))
        shown = await self._run((self._settings.scontrol, "-o", "show", "job", plan.target))
        if slurm_job.GONE in rows.output or slurm_job.GONE in shown.output:
            raise Refused(f"Slurm knows no job {plan.target} (any more): start it by hand")
        if rows.code or shown.code:
            raise Later(f"Slurm does not tell of job {plan.target}: {said(rows if rows.code else shown)}")
        now = slurm_job.job(rows.output, shown.output, self._settings.mark)
        if self._settings.same_nodes and not begun:
            await self._check_nodes(now, plan)
        return now

    async def _check_nodes(self, now: SlurmJob, plan: Plan) -> None:
        """A label is its user's word: who takes another job's number for it is found out here."""
        if not now.nodes or not plan.data.nodes:
            return
        hosts = await self._run((self._settings.scontrol, "show", "hostnames", now.nodes))
        if hosts.code:
            raise Later(f"scontrol show hostnames: {said(hosts)}")
        if not slurm_job.shares_a_node(plan.data.nodes, hosts.output.split()):
            raise Refused(
                f"job {now.number} is on {now.nodes[:100]}, and the event tells of {', '.join(plan.data.nodes[:4])}: "
                "another job's number? (slurm.same_nodes)"
            )

    async def _run(self, argv: Sequence[str]) -> Ran:
        return await self._programs.run(argv, timeout_s=self._settings.timeout_s)
