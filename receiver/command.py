"""Starts a job again by a program of the site's, which must do nothing for a decision that it has had."""

from collections.abc import Mapping

from rankpulse.receiver import jobs
from rankpulse.receiver.acting import Later, Programs, Refused, Scribe
from rankpulse.receiver.deciding import Plan, names
from rankpulse.receiver.programs import said
from rankpulse.receiver.settings import CommandSettings

TEMPORARY = 75  # EX_TEMPFAIL of sysexits.h: not now, ask again


class Command:
    """An `Actuator`. RANKPULSE_DECISION names the decision; RANKPULSE_AGAIN is 1 where it may have been run before."""

    def __init__(self, settings: CommandSettings, programs: Programs) -> None:
        self._settings, self._programs = settings, programs

    async def restart(self, plan: Plan, scribe: Scribe) -> str:
        argv, ended = _argv(plan), scribe.remembered("ended")
        if ended is not None:
            return ended
        again = scribe.remembered("begun") is not None
        if not again and not plan.may_begin:
            raise Refused("the decision has become too old to begin with: a person must look")
        scribe.remember("begun", "1")
        scribe.note("does", f"{' '.join(argv)}{' (again: how the last run ended is not known)' if again else ''}")
        ran = await self._programs.run(
            argv,
            timeout_s=self._settings.timeout_s,
            environ=environ(plan, again),
            output_max=self._settings.output_max,
        )
        text = f"{argv[0]}: {said(ran)}"
        scribe.note("did", text)
        if ran.code == TEMPORARY:
            raise Later(text)
        if ran.code != 0:
            raise Refused(text)
        scribe.remember("ended", text)
        return text

    async def would(self, plan: Plan, scribe: Scribe) -> list[str]:
        told = " ".join(f"{name}={value}" for name, value in environ(plan, False).items())
        return [f"run {' '.join(_argv(plan))} with {told}"]


def _argv(plan: Plan) -> tuple[str, ...]:
    return tuple(jobs.filled(one, names(plan.job, plan.data)) for one in plan.job.argv)


def environ(plan: Plan, again: bool) -> Mapping[str, str]:
    """What the program is told; texts hold no zero byte."""
    told = {
        "RANKPULSE_DECISION": plan.id,
        "RANKPULSE_MARK": plan.mark,
        "RANKPULSE_AGAIN": str(int(again)),
        "RANKPULSE_CLUSTER": plan.data.cluster,
        "RANKPULSE_INCIDENT": plan.data.incident,
        "RANKPULSE_RUN_ID": plan.data.run_id,
        "RANKPULSE_RUN_UID": plan.data.run_uid,
        "RANKPULSE_ROUND": str(plan.data.round),
        "RANKPULSE_NODES": ",".join(plan.data.nodes)[:32_768],
        "RANKPULSE_WITHOUT": ",".join(plan.data.without)[:32_768],
        "RANKPULSE_REASON": plan.reason,
    }
    return {name: value.replace("\0", "") for name, value in told.items()}
