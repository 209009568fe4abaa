"""Requests of operators, and orders: created once, and only while what they rest on still holds."""

import msgspec

from rankpulse.core import diagnosis as d
from rankpulse.core import incidents as book_of
from rankpulse.core import policy
from rankpulse.core import records as r
from rankpulse.core.desk import Desk
from rankpulse.core.diagnosis import Diagnosis
from rankpulse.core.fleet import RunView


class Ordering:
    """One per judge."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def acknowledgements(self) -> None:
        """What the agents say they did about orders."""
        acks, self._desk.folder.acks = self._desk.folder.acks, []
        for order_id, node, killed in acks:
            incident = self._desk.book.get(order_id)
            if incident is not None:
                self._desk.note(incident, f"{node} carried out the order: {killed} workers ended")

    def requests(self) -> None:
        folder = self._desk.folder
        for key, request in list(folder.requests.items()):
            del folder.requests[key]
            folder.fold(key)
            refusal = self._refused(request)
            if refusal:
                folder.say("warning", f"request {request.id} by {request.author} refused: {refusal}")

    def _refused(self, request: r.Request) -> str:
        """Take the request up, or say why not."""
        desk = self._desk
        run = desk.folder.fleet.runs.get(request.run_uid)
        if request.kind != "restart":
            return f"{request.kind!r} is not a kind this monitor knows (restart is)"
        if run is None or not run.rounds or not run.open():
            return f"no run {request.run_uid} is going on"
        if not run.elastic or not any(run.launchers.values()):
            return "it was not started by torchelastic, or that has ended: nothing would start the next round"
        choice = policy.Choice(policy.RESTART, f"{request.author}: {request.reason}")
        incident = desk.book.of_round(run.uid, run.current.number)
        if incident is not None and (
            incident.action in (policy.RESTART, policy.ADOPT) or incident.state != book_of.OPEN
        ):
            return f"round {run.current.number} is being restarted already: wait for the next round"
        if incident is None:
            incident = desk.open(self._asked(request, run), (run, run.current), choice)
        desk.change(
            incident,
            lambda i: msgspec.structs.replace(i, asked_by=request.author),
            lambda i: book_of.decided(i, choice, desk.at),
        )
        return ""

    def _asked(self, request: r.Request, run: RunView) -> Diagnosis:
        summary, ranks = f"restart asked for by {request.author}", tuple(sorted(run.current.members))
        return Diagnosis(d.OPERATOR_RESTART, (), ranks, (), 1.0, summary, (request.reason,), (), self._desk.now)

    def orders(self, stuck: set[str]) -> None:
        """Ask for the orders that are due now. `stuck`: runs that stand still at this very tick."""
        desk = self._desk
        for incident in desk.book.open():
            run = desk.folder.fleet.runs.get(incident.run_uid)
            if incident.action != policy.RESTART or run is None or not run.rounds or not run.open():
                continue
            stands = desk.folder.orders.get((run.uid, incident.round))
            if stands is not None:
                self._stands(incident, stands)
            elif run.current.number == incident.round and (incident.asked_by or run.uid in stuck):
                self._order(incident, run)

    def _stands(self, incident: r.Incident, order: r.Order) -> None:
        """The order is in the store: from now on the incident waits for its outcome."""
        if incident.order_id != order.order_id:
            incident = self._desk.change(incident, lambda i: msgspec.structs.replace(i, order_id=order.order_id))
            self._desk.note(incident, f"order {order.order_id} given: end the workers of round {order.round}")

    def _order(self, incident: r.Incident, run: RunView) -> None:
        order = r.Order(
            order_id=incident.id,
            run_uid=run.uid,
            run_id=run.run_id,
            round=incident.round,
            kind="restart",
            epoch=self._desk.epoch,
            incident=incident.id,
            reason=incident.action_reason,
            author=f"monitor, epoch {self._desk.epoch}",
            at=incident.opened_at,
            seats=r.seated(run.current.alive()),
        )
        key = self._desk.keys.order(run.uid, incident.round, "restart")
        self._desk.want(key, order, incident.action_reason, once=True)
