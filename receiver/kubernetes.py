"""Starts a job of Kubernetes again: suspended, then resumed; nodes left out are cordoned first.

What was done stands in the object itself.
"""

import asyncio
import json
from typing import Any, Final

from rankpulse.core.words import printable
from rankpulse.receiver import kube_objects
from rankpulse.receiver.acting import Api, Later, Refused, Scribe
from rankpulse.receiver.deciding import Plan
from rankpulse.receiver.kube_objects import Step
from rankpulse.receiver.settings import KubernetesSettings

STEPS_MAX: Final = 200
LOOK_EVERY_S: Final = 1.0


class Kubernetes:
    """An `Actuator`."""

    def __init__(self, settings: KubernetesSettings, api: Api, look_every_s: float = LOOK_EVERY_S) -> None:
        self._settings, self._api, self._look_every_s = settings, api, look_every_s

    async def restart(self, plan: Plan, scribe: Scribe) -> str:
        acted, name = False, f"{plan.job.kind} {plan.job.namespace}/{plan.target}"
        for _ in range(STEPS_MAX):
            left = await self._left(plan)
            if not left:
                return f"{name}: " + ("suspended and resumed" if acted else "was restarted for this decision before")
            acted = True
            await self._do(left[0], scribe)
        raise Later(f"{name} does not go on: {left[0].why}")

    async def would(self, plan: Plan, scribe: Scribe) -> list[str]:
        return [
            f"PATCH {one.path} {json.dumps(one.body)}: {one.why}" if one.path else f"wait: {one.why}"
            for one in await self._left(plan)
        ]

    async def _left(self, plan: Plan) -> list[Step]:
        now = await self._get(kube_objects.path(plan))
        names = kube_objects.left_out(plan, self._settings.cordon_max) if self._settings.cordon else ()
        nodes = [await self._get(kube_objects.node_path(name)) for name in names]
        return kube_objects.steps(now, nodes, plan)

    async def _do(self, step: Step, scribe: Scribe) -> None:
        if not step.path:
            await asyncio.sleep(self._look_every_s)
            return
        scribe.note("does", f"PATCH {step.path}: {step.why}")
        answer = await self._api.patch(step.path, step.body)
        scribe.note("did", f"PATCH {step.path}: {answer.status}")
        if answer.status == 409:
            return  # somebody else was quicker; how it stands now is looked at anew
        if answer.status != 200:
            raise Later(f"PATCH {step.path}: {_words(answer.status, answer.tree)}")

    async def _get(self, path: str) -> Any:
        answer = await self._api.get(path)
        if answer.status == 404:
            raise Refused(f"{path}: there is no such object")
        if answer.status != 200:
            raise Later(f"GET {path}: {_words(answer.status, answer.tree)}")
        return answer.tree


def _words(status: int, tree: Any) -> str:
    hint = " (deploy/kubernetes/receiver/rbac.yaml says what is needed)" if status == 403 else ""
    return f"{status} {printable(tree.get('message', ''), 200)}{hint}"
