"""Requests of operators: taken up, or refused with the reason."""

import msgspec

from rankpulse.core import diagnosis as d
from rankpulse.core import incidents as book_of
from rankpulse.core import modes, node_requests, policy, resumption
from rankpulse.core import records as r
from rankpulse.core.desk import Desk
from rankpulse.core.diagnosis import Diagnosis
from rankpulse.core.fold import RELEASE, RESTART
from rankpulse.core.views import RunView


class Ordering:
    """One per judge."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    # --- requests

    def requests(self) -> None:
        """Answer what operators ask for: one request per node and tick, so that each sees what the last one did."""
        folder = self._desk.folder
        nodes: set[str] = set()
        for key, request in list(folder.requests.items()):
            if request.node and request.node in nodes:
                continue
            nodes.add(request.node)
            del folder.requests[key]
            refusal = self._refused(request)
            folder.fold(key)  # last: whoever asked finds what came of it when the request is gone
            if refusal:
                folder.say("warning", f"request {request.id} by {request.author} refused: {refusal}")

    def _refused(self, request: r.Request) -> str:
        """Take the request up, or say why not."""
        if request.kind == "restart":
            return self._restart_refused(request)
        answer = node_requests.taken(self._desk, request)
        return answer if answer is not None else f"{request.kind!r} is not a kind this monitor knows"

    def _restart_refused(self, request: r.Request) -> str:
        run = self._desk.folder.fleet.runs.get(request.run_uid)
        if run is None or not run.rounds or not run.open():
            return f"no run {request.run_uid} is going on"
        incident = self._desk.book.of_round(run.uid, run.current.number)
        refusal = self._impossible(request, run) or self._ordered(run, incident)
        if not refusal:
            self._take_up(request, run, incident)
        return refusal

    def _impossible(self, request: r.Request, run: RunView) -> str:
        leave = self._desk.folder.modes.of(run.uid)
        if leave.mode in (modes.BY_BREAKER, modes.PAUSED):
            return leave.why
        if not run.elastic or not any(run.launchers.values()):
            return "it was not started by torchelastic, or that has ended: nothing would start the next round"
        state = self._desk.folder.checkpoints.of(run.uid)
        return resumption.refused(request.resume_before_step, joint=run.joint is not None, state=state)

    def _ordered(self, run: RunView, incident: r.Incident | None) -> str:
        """What is done about this round already, so that a person can add nothing to it."""
        ordered, number = self._desk.folder.ordered, run.current.number
        restart, release = ordered(run.uid, number, RESTART), ordered(run.uid, number, RELEASE)
        if incident is not None and incident.action == policy.STOP and (restart or release):
            return f"it is being stopped: {incident.action_reason}. Start the job again"
        if release is not None:
            return f"round {number} was left to torchelastic: wait for the next round"
        followed = incident is not None and (
            incident.action in (policy.RESTART, policy.ADOPT) or incident.state != book_of.OPEN
        )
        if restart is not None or followed:
            return f"round {number} is being restarted already: wait for the next round"
        return ""

    def _take_up(self, request: r.Request, run: RunView, incident: r.Incident | None) -> None:
        limit = request.resume_before_step
        before = f" (to go on from a checkpoint before step {limit})" if limit >= 0 else ""
        choice = policy.Choice(policy.RESTART, f"{request.author}: {request.reason}{before}")
        if incident is None:
            incident = self._desk.open(self._asked(request, run), (run, run.current), choice)
        self._desk.change(
            incident,
            lambda i: msgspec.structs.replace(i, asked_by=request.author, resume_before_step=limit),
            lambda i: book_of.decided(i, choice, self._desk.at),
        )

    def _asked(self, request: r.Request, run: RunView) -> Diagnosis:
        summary, ranks = f"restart asked for by {request.author}", tuple(sorted(run.current.members))
        return Diagnosis(d.OPERATOR_RESTART, (), ranks, (), 1.0, summary, (request.reason,), (), self._desk.now)
