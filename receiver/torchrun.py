"""Starts a torchrun on this machine again that runs as a unit of systemd: `systemctl restart`, once for a decision.

systemd gives each start of a unit an InvocationID. The one that the decision is about is remembered before anything is
done: where the unit has another by now, it was restarted, by us or by anybody.
"""

from typing import Final

from rankpulse.receiver.acting import Later, Programs, Ran, Refused, Scribe
from rankpulse.receiver.deciding import Plan
from rankpulse.receiver.programs import said
from rankpulse.receiver.settings import TorchrunSettings

PROPERTIES: Final = ("LoadState", "ActiveState", "Result", "InvocationID")
GOING: Final = ("active", "activating", "deactivating", "reloading")


class Torchrun:
    """An `Actuator`."""

    def __init__(self, settings: TorchrunSettings, programs: Programs) -> None:
        self._settings, self._programs = settings, programs

    async def restart(self, plan: Plan, scribe: Scribe) -> str:
        if await self._is_done(plan, scribe):
            return f"{plan.target}: was restarted since the decision"
        argv = self._argv(plan)
        scribe.note("does", " ".join(argv))
        ran = await self._run(*argv[1:])
        scribe.note("did", f"systemctl restart: {said(ran)}")
        if ran.code != 0:
            raise Later(f"systemctl restart {plan.target}: {said(ran)}")
        return f"{plan.target}: restarted"

    async def would(self, plan: Plan, scribe: Scribe) -> list[str]:
        before = scribe.remembered("invocation")
        facts = await self._facts(plan)
        self._check(plan, facts, begun=before is not None)
        return [] if before not in (None, facts["InvocationID"]) else [" ".join(self._argv(plan))]

    async def _is_done(self, plan: Plan, scribe: Scribe) -> bool:
        before = scribe.remembered("invocation")
        facts = await self._facts(plan)
        self._check(plan, facts, begun=before is not None)
        if before is None:
            scribe.remember("invocation", facts["InvocationID"])
        return before is not None and before != facts["InvocationID"]

    def _check(self, plan: Plan, facts: dict[str, str], begun: bool) -> None:
        if facts["LoadState"] != "loaded":
            raise Refused(f"systemd knows no unit {plan.target} ({facts['LoadState']})")
        if begun:
            return
        if facts["ActiveState"] not in GOING and facts["Result"] == "success":
            raise Refused(f"{plan.target} is {facts['ActiveState']}: finished or stopped on purpose, and is left alone")
        if not plan.may_begin:
            raise Refused("the decision has become too old to begin with: a person must look")

    async def _facts(self, plan: Plan) -> dict[str, str]:
        ran = await self._run("show", f"--property={','.join(PROPERTIES)}", "--", plan.target)
        found = dict(line.partition("=")[::2] for line in ran.output.splitlines())
        if ran.code != 0 or not set(PROPERTIES) <= found.keys():
            raise Later(f"systemctl show {plan.target}: {said(ran)}")
        return found

    def _argv(self, plan: Plan) -> tuple[str, ...]:
        return self._settings.systemctl, "restart", "--", plan.target

    async def _run(self, *words: str) -> Ran:
        return await self._programs.run((self._settings.systemctl, *words), timeout_s=self._settings.timeout_s)
