"""Requests of operators, and orders: created once, and only while what they rest on still holds."""

import msgspec

from rankpulse.core import deaths, policy, resumption
from rankpulse.core import diagnosis as d
from rankpulse.core import incidents as book_of
from rankpulse.core import records as r
from rankpulse.core.desk import Desk
from rankpulse.core.diagnosis import Diagnosis
from rankpulse.core.fold import RELEASE, RESTART
from rankpulse.core.keys import BadName, check_name
from rankpulse.core.views import RunView

ACKS_NAMED = 3


class Ordering:
    """One per judge."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def acknowledgements(self) -> None:
        """What the agents say they did about orders: one line for all that came since, a story is not told by node."""
        acks, self._desk.folder.acks = self._desk.folder.acks, []
        given = {order.order_id: order for order in self._desk.folder.orders.values()}
        done: dict[str, dict[str, int]] = {}
        for order_id, node, killed in acks:
            done.setdefault(order_id, {})[node] = killed
        for order_id, by_node in done.items():
            order = given.get(order_id)
            incident = self._desk.book.get(order.incident if order is not None else order_id)
            if incident is None:
                continue
            who = ", ".join(list(by_node)[:ACKS_NAMED])
            who += f" and {len(by_node) - ACKS_NAMED} more" if len(by_node) > ACKS_NAMED else ""
            if order is not None and order.kind == RELEASE:
                self._desk.note(incident, f"{who} told the holders to end with their trainers")
            else:
                many = f"{sum(by_node.values())} workers" if any(by_node.values()) else "none"
                self._desk.note(incident, f"{who} carried out the order: {many} had to be killed")

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
        if request.kind in ("cordon", "uncordon"):
            return self._cordon_refused(request)
        return f"{request.kind!r} is not a kind this monitor knows (restart, cordon and uncordon are)"

    def _cordon_refused(self, request: r.Request) -> str:
        desk = self._desk
        try:
            key = desk.keys.cordon(check_name(request.node, "node"))
        except BadName as error:
            return str(error)
        stands = desk.folder.joint.cordons.get(request.node)
        if request.kind == "cordon":
            if stands is not None:
                return f"{request.node} is cordoned already, by {stands.author}: {stands.reason}"
            cordon = r.Cordon(node=request.node, author=request.author, reason=request.reason, at=request.at)
            desk.want(key, cordon, f"cordon of {request.node}: {request.reason}")
            desk.folder.joint.cordons[request.node] = cordon  # for gates of this very tick; a listing tells the truth
            desk.folder.say("warning", f"{request.node} is cordoned by {request.author}: {request.reason}")
            return ""
        if stands is None:
            return f"{request.node} is not cordoned"
        desk.erase(key)
        del desk.folder.joint.cordons[request.node]
        desk.folder.say("warning", f"the cordon of {request.node} is lifted by {request.author}: {request.reason}")
        return ""

    def _restart_refused(self, request: r.Request) -> str:
        desk = self._desk
        run = desk.folder.fleet.runs.get(request.run_uid)
        if run is None or not run.rounds or not run.open():
            return f"no run {request.run_uid} is going on"
        if not run.elastic or not any(run.launchers.values()):
            return "it was not started by torchelastic, or that has ended: nothing would start the next round"
        refusal = resumption.refused(
            request.resume_before_step, joint=run.joint is not None, state=desk.folder.checkpoints.of(run.uid)
        )
        if refusal:
            return refusal
        if desk.folder.ordered(run.uid, run.current.number, RELEASE) is not None:
            return f"round {run.current.number} was left to torchelastic: wait for the next round"
        limit = request.resume_before_step
        before = f" (to go on from a checkpoint before step {limit})" if limit >= 0 else ""
        choice = policy.Choice(policy.RESTART, f"{request.author}: {request.reason}{before}")
        incident = desk.book.of_round(run.uid, run.current.number)
        if incident is not None and (
            incident.action in (policy.RESTART, policy.ADOPT) or incident.state != book_of.OPEN
        ):
            return f"round {run.current.number} is being restarted already: wait for the next round"
        if incident is None:
            incident = desk.open(self._asked(request, run), (run, run.current), choice)
        desk.change(
            incident,
            lambda i: msgspec.structs.replace(i, asked_by=request.author, resume_before_step=limit),
            lambda i: book_of.decided(i, choice, desk.at),
        )
        return ""

    def _asked(self, request: r.Request, run: RunView) -> Diagnosis:
        summary, ranks = f"restart asked for by {request.author}", tuple(sorted(run.current.members))
        return Diagnosis(d.OPERATOR_RESTART, (), ranks, (), 1.0, summary, (request.reason,), (), self._desk.now)

    # --- orders

    def orders(self, stuck: set[str]) -> None:
        """Ask for the orders that are due now. `stuck`: runs that stand still at this very tick."""
        for incident in self._desk.book.open():
            run = self._desk.folder.fleet.runs.get(incident.run_uid)
            if run is None or not run.rounds or not run.open():
                continue
            if incident.action == policy.RESTART:
                self._restart(incident, run, stuck)
            elif incident.action in (policy.RELEASE, policy.STOP):
                self._release(incident, run)

    def _restart(self, incident: r.Incident, run: RunView, stuck: set[str]) -> None:
        stands = self._desk.folder.ordered(run.uid, incident.round, RESTART)
        if stands is not None:
            self._stands(incident, stands)
        elif run.current.number != incident.round or self._desk.folder.ordered(run.uid, incident.round, RELEASE):
            return
        elif incident.asked_by or run.uid in stuck or self._held(run):
            self._order(incident, run, RESTART, incident.id)

    def _release(self, incident: r.Incident, run: RunView) -> None:
        stands = self._desk.folder.ordered(run.uid, incident.round, RELEASE)
        if stands is not None:
            self._desk.note(incident, f"order {stands.order_id} given: holders of round {stands.round} are released")
        elif run.current.number == incident.round and self._held(run) and incident.round not in run.ordered:
            self._order(incident, run, RELEASE, f"{incident.id}-release")

    def _held(self, run: RunView) -> bool:
        """Dead workers of the present round are held: that does not pass by itself."""
        return run.joint is not None and deaths.is_held(run.current)

    def _stands(self, incident: r.Incident, order: r.Order) -> None:
        """The order is in the store: from now on the incident waits for its outcome."""
        if incident.order_id != order.order_id:
            incident = self._desk.change(incident, lambda i: msgspec.structs.replace(i, order_id=order.order_id))
            limit = order.resume_before_step
            then = f", and go on from a checkpoint before step {limit}" if limit >= 0 else ""
            self._desk.note(incident, f"order {order.order_id} given: end the workers of round {order.round}{then}")

    def _order(self, incident: r.Incident, run: RunView, kind: str, order_id: str) -> None:
        alive = run.current.alive()
        living = {(m.node, m.pid, m.start) for m in alive}
        order = r.Order(
            order_id=order_id,
            run_uid=run.uid,
            run_id=run.run_id,
            round=incident.round,
            kind=kind,
            epoch=self._desk.epoch,
            incident=incident.id,
            reason=incident.action_reason,
            author=f"monitor, epoch {self._desk.epoch}",
            at=incident.opened_at,
            seats=r.seated(alive),
            nodes=run.current.nodes(),
            culprits=tuple(m for m in incident.culprits if (m.node, m.pid, m.start) in living),
            grace_s=self._desk.settings.policy.grace_s,
            resume_before_step=incident.resume_before_step if kind == RESTART else -1,
        )
        key = self._desk.keys.order(run.uid, incident.round, kind)
        self._desk.want(key, order, incident.action_reason, once=True)
