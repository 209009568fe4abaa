"""Orders: created once, and only while what they rest on still holds; what follows where they bring nothing.

Nothing is remembered here but since when a rung has been seen to stand. Which rung that is, is in the records: the
orders themselves, and `Incident.rung`.
"""

from collections.abc import Sequence

import msgspec

from rankpulse.core import asking, deaths, ladder, last_words, modes, policy
from rankpulse.core import diagnosis as d
from rankpulse.core import incidents as book_of
from rankpulse.core import records as r
from rankpulse.core.acks import Ack
from rankpulse.core.announcing import takers
from rankpulse.core.desk import Desk
from rankpulse.core.fold import KILL, RELEASE, RESTART
from rankpulse.core.ladder import Patience, Rung, Standing
from rankpulse.core.lost import is_lost
from rankpulse.core.outside import heir, is_pointless, may_be_started_again
from rankpulse.core.targets import RESTART as RESTART_EVENT
from rankpulse.core.views import RunView

ACKS_NAMED = 3
ORDERED = (policy.RESTART, policy.RESTART_WITHOUT, policy.STOP)  # actions for which a restart order is given


class Orders:
    """One per judge."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._since: dict[tuple[str, str], float] = {}  # (incident, rung) -> since when it has been seen to stand
        self._epoch = 0
        policy_ = desk.settings.policy
        self._patience = Patience(policy_.grace_s + policy_.answer_s, policy_.round_s, policy_.webhook_s)

    # --- acknowledgements

    def acknowledgements(self) -> None:
        """What the agents say they did about orders: one line for all that came since, a story is not told by node."""
        acks, given = self._desk.folder.acks, {order.order_id: order for order in self._desk.folder.orders.values()}
        of: dict[str, list[r.Order]] = {}
        for order_id in acks.orders():
            order = given.get(order_id)
            incident = self._desk.book.get(order.incident) if order is not None else None
            if order is not None and incident is not None and incident.state == book_of.OPEN:
                if order.kind != RESTART or incident.order_id == order_id:  # else its story has not come so far
                    of.setdefault(incident.id, []).append(order)
            else:
                for key in acks.drop(order_id):
                    self._desk.folder.fold(key)
        for id_, orders in of.items():
            self._tell(id_, {order.order_id: order for order in orders})

    def _tell(self, id_: str, orders: dict[str, r.Order]) -> None:
        incident, acks = self._desk.book.get(id_), self._desk.folder.acks.of(*orders)
        if incident is None or len(acks) <= incident.acked:
            return
        for line in last_words.story((ack.node, ack.words) for ack in acks[incident.acked :]):
            self._desk.note(self._desk.book.get(id_) or incident, line)
        for order_id, order in orders.items():
            new = [ack for ack in acks[incident.acked :] if ack.order_id == order_id]
            if new:
                self._desk.note(self._desk.book.get(id_) or incident, _carried_out(order, new))
        self._desk.change(
            self._desk.book.get(id_) or incident,
            lambda i: last_words.heard(i, (ack.words for ack in acks)),
            lambda i: _with(i, acked=len(acks)),
        )

    # --- orders

    def give(self, stuck: set[str]) -> None:
        """Ask for the orders that are due now. `stuck`: runs that stand still at this very tick."""
        self._forget()
        for incident in self._desk.book.open():
            run = self._desk.folder.fleet.runs.get(incident.run_uid)
            if run is None or not run.rounds or not run.open():
                continue
            incident = self._late(incident, run)
            if incident.action in (policy.RESTART, policy.RESTART_WITHOUT):
                self._restart(incident, run, stuck)
            elif incident.action == policy.STOP and not self._held(run):
                self._restart(incident, run, stuck)  # workers that hang are ended; the gate allows no further round
            elif incident.action in (policy.RELEASE, policy.STOP):
                self._release(incident, run)

    def blind(self) -> None:
        """Nothing follows from what did not come meanwhile: every rung has its time anew."""
        self._since.clear()

    def _forget(self) -> None:
        """A new term gives every rung its time anew; what is over is forgotten."""
        if self._desk.epoch != self._epoch:
            self._epoch = self._desk.epoch
            self._since.clear()
        going = {incident.id for incident in self._desk.book.open()}
        self._since = {at: since for at, since in self._since.items() if at[0] in going}

    def _restart(self, incident: r.Incident, run: RunView, stuck: set[str]) -> None:
        folder = self._desk.folder
        stands = folder.ordered(run.uid, incident.round, RESTART)
        if stands is not None:
            incident = self._warned(self._stands(incident, stands), run)
            self._climb(incident, run, stands)
        elif run.current.number != incident.round or folder.ordered(run.uid, incident.round, RELEASE):
            return
        elif self._is_asked(incident) or run.uid in stuck or self._holds(incident, run):
            self._order(incident, run, RESTART, incident.id)

    def _late(self, incident: r.Incident, run: RunView) -> r.Incident:
        """Whose order was given up as not written, and was written after all: what it says is what was decided."""
        stands = self._desk.folder.ordered(run.uid, incident.round, RESTART)
        if stands is None or stands.order_id != incident.id or incident.order_id or incident.action in ORDERED:
            return incident
        action = policy.RESTART_WITHOUT if stands.without else policy.RESTART
        choice = policy.Choice(action, stands.reason)
        return self._desk.change(
            incident,
            lambda i: _with(i, resume_before_step=stands.resume_before_step),
            lambda i: book_of.decided(i, choice, self._desk.at),
        )

    def _is_asked(self, incident: r.Incident) -> bool:
        """A person, or a node that the job is to leave, is reason enough: nothing needs to stand still."""
        return bool(incident.asked_by) or incident.drain_after >= 0

    def _release(self, incident: r.Incident, run: RunView) -> None:
        stands = self._desk.folder.ordered(run.uid, incident.round, RELEASE)
        if stands is not None:
            self._desk.note(incident, f"order {stands.order_id} given: holders of round {stands.round} are released")
        elif run.current.number == incident.round and self._held(run) and incident.round not in run.ordered:
            self._order(incident, run, RELEASE, f"{incident.id}-release")

    def _held(self, run: RunView) -> bool:
        """Dead workers of the present round are held: that does not pass by itself."""
        return run.joint is not None and deaths.is_held(run.current)

    def _holds(self, incident: r.Incident, run: RunView) -> bool:
        """What an order rests on that is no standstill is still so."""
        return self._is_dead(incident, run) or self._gone(incident) or self._is_bad(incident, run)

    def _is_bad(self, incident: r.Incident, run: RunView) -> bool:
        """Its nodes tell of numbers that are not finite still, and are heard; or of replicas that differ."""
        if incident.klass == d.SILENT_CORRUPTION:
            return self._desk.folder.checksums.verdict(run.uid, incident.round, self._desk.now) is not None
        heard, late = self._desk.folder.numbers, self._desk.folder.fleet.deadlines.late
        return incident.klass == d.NON_FINITE and heard.of(run.uid, incident.round, late) is not None

    def _is_dead(self, incident: r.Incident, run: RunView) -> bool:
        """Its dead are held still; a new leader has to hear from everybody first where it may be an echo."""
        echo = incident.confidence < policy.CERTAIN and self._desk.unheard(run.current, self._desk.folder.fleet.anew.at)
        return self._held(run) and not echo

    def _gone(self, incident: r.Incident) -> bool:
        """The nodes that it takes for dead are silent still."""
        dead = incident.klass == d.NODE_DEAD and bool(incident.nodes)
        return dead and all(is_lost(self._desk, name) for name in incident.nodes)

    def _warned(self, incident: r.Incident, run: RunView) -> r.Incident:
        """Whether a scheduler starts the job anew while we restart it: that is told, and nothing is doubled."""
        other = heir(self._desk.folder.fleet.runs.values(), run)
        if other is None:
            return incident
        text = f"run {other.uid} has begun under the same label: does a scheduler retry, too?"
        if all(line.text != text for line in incident.trail):
            self._desk.folder.say("warning", f"run {run.uid} is being restarted, and {text}")
        return self._desk.note(incident, text)

    def _stands(self, incident: r.Incident, order: r.Order) -> r.Incident:
        """The order is in the store: from now on the incident waits for its outcome."""
        if incident.order_id == order.order_id:
            return incident
        rung = incident.rung or ladder.ORDER
        incident = self._desk.change(incident, lambda i: _with(i, order_id=order.order_id, rung=rung))
        return self._desk.note(asking.noted(self._desk, incident, order), _given(order))

    def _order(self, incident: r.Incident, run: RunView, kind: str, order_id: str, why: str = "") -> None:
        refusal = self._refused(incident, run) if kind != RELEASE else ""
        if refusal:
            self._desk.note(incident, f"no order to {kind}: {refusal}")
            return
        alive, words = run.current.alive(), asking.of_order(self._desk, incident, run, kind)
        living = {(m.node, m.pid, m.start) for m in alive}
        order = r.Order(
            order_id=order_id,
            run_uid=run.uid,
            run_id=run.run_id,
            round=incident.round,
            kind=kind,
            epoch=self._desk.epoch,
            incident=incident.id,
            reason=why or incident.action_reason,
            author=f"monitor, epoch {self._desk.epoch}",
            at=incident.opened_at,
            seats=r.seated(alive),
            nodes=run.current.nodes(),
            culprits=tuple(m for m in incident.culprits if (m.node, m.pid, m.start) in living),
            grace_s=self._desk.settings.policy.grace_s,
            resume_before_step=incident.resume_before_step if kind == RESTART else -1,
            without=self._without(incident, run) if kind == RESTART else (),
            last_words_s=words.within_s,
            absent=words.absent,
        )
        key = self._desk.keys.order(run.uid, incident.round, kind)
        self._desk.want(key, order, order.reason, once=True)

    def _refused(self, incident: r.Incident, run: RunView) -> str:
        """Why no worker may be ended now, although that was decided."""
        leave = self._desk.folder.modes.of(run.uid)
        asked = bool(incident.asked_by) and leave.mode not in (modes.BY_BREAKER, modes.PAUSED)
        return "" if leave.armed or asked else leave.why

    def _without(self, incident: r.Incident, run: RunView) -> tuple[str, ...]:
        """Nodes that the next round forms without: the dead, or those of the incident that people or we keep out."""
        if incident.action != policy.RESTART_WITHOUT:
            return ()
        names = [name for name in incident.nodes if name in run.current.nodes()]
        barred = {*self._desk.folder.joint.cordons, *self._desk.folder.modes.maintenance}
        if incident.klass != d.NODE_DEAD and barred.intersection(names):
            names = [name for name in names if name in barred]
        return tuple(names)

    # --- the ladder

    def _climb(self, incident: r.Incident, run: RunView, order: r.Order) -> None:
        """The next rung, where the order has brought no round in time."""
        if run.current.number != order.round or self._is_led(incident):
            return
        rung = ladder.climb(self._standing(incident, run, order), self._waits(order))
        in_hand = self._desk.folder.modes.of(run.uid).mode == modes.PAUSED  # of a person, who asked not to be paged
        if rung is None or (rung.name != ladder.KILL and (in_hand or incident.action == policy.STOP)):
            return
        if rung.name != ladder.KILL:
            self._take(incident, rung)
        else:
            self._order(incident, run, KILL, f"{incident.id}-kill", f"{incident.action_reason}; {rung.reason}")

    def _waits(self, order: r.Order) -> Patience:
        waits, more_s = self._patience, asking.patience_s(order)
        return waits._replace(answer_s=waits.answer_s + more_s, round_s=waits.round_s + more_s)

    def _is_led(self, incident: r.Incident) -> bool:
        """Whether the order was given for another incident of the round: that one climbs, for there is one restart."""
        owner = self._desk.book.get(incident.order_id)
        return owner is not None and owner.id != incident.id and owner.state == book_of.OPEN

    def _standing(self, incident: r.Incident, run: RunView, order: r.Order) -> Standing:
        kill = self._desk.folder.ordered(run.uid, order.round, KILL)
        if kill is not None and incident.rung == ladder.ORDER:
            incident = self._take(incident, Rung(ladder.KILL, f"order {kill.order_id} given, {kill.reason}"))
        off = self._desk.folder.fleet.deadlines.late.keys() | set(order.without)
        last = kill or order
        return self._beyond(incident, run)._replace(
            order_s=self._stood_s(incident, ladder.ORDER),
            kill_s=self._stood_s(incident, ladder.KILL) if kill is not None else None,
            unanswered=tuple(sorted(set(last.nodes) - off - self._desk.folder.acks.nodes(last.order_id))),
            living=len([member for member in run.current.alive() if member.node not in off]),
        )

    def _beyond(self, incident: r.Incident, run: RunView) -> Standing:
        """What counts for the rungs beyond our own means."""
        told = incident.rung == ladder.WEBHOOK
        other, barred = heir(self._desk.folder.fleet.runs.values(), run), self._refused(incident, run)
        return Standing(
            webhook_s=self._stood_s(incident, ladder.WEBHOOK) if told else None,
            paged=incident.rung == ladder.PAGE,
            actuator=bool(takers(self._desk.settings.webhook.targets, RESTART_EVENT)),
            heir=other.uid if other is not None else "",
            spent=barred or is_pointless(self._desk, incident, run),
            barred=barred,
        )

    def _stood_s(self, incident: r.Incident, rung: str) -> float:
        return self._desk.now - self._since.setdefault((incident.id, rung), self._desk.now)

    def _take(self, incident: r.Incident, rung: Rung) -> r.Incident:
        incident = self._desk.note(incident, f"{rung.name}: {rung.reason}")
        self._desk.folder.say("warning", f"incident {incident.id}: {rung.name}: {rung.reason}")
        return self._desk.change(incident, lambda i: _with(i, rung=rung.name))

    # --- a run that has ended

    def outlives(self, incident: r.Incident, run: RunView) -> bool:
        """Whether the incident of a run that has ended waits for the job to be started again from outside."""
        told = incident.rung == ladder.PAGE or self._is_led(incident)
        if told or not may_be_started_again(self._desk, incident, run):
            return False
        stands = self._beyond(incident, run)
        if incident.rung == ladder.WEBHOOK and stands.heir:
            self._desk.note(incident, f"run {stands.heir} has begun under the same label")
            return False
        if incident.rung == ladder.WEBHOOK:
            rung = ladder.climb(stands, self._patience)
        else:
            rung = ladder.outside(f"the run has ended, and nothing here starts it again: {run.reason}", stands)
        incident = self._take(incident, rung) if rung is not None else incident
        return incident.rung == ladder.WEBHOOK


def _with(incident: r.Incident, **changed: object) -> r.Incident:
    return msgspec.structs.replace(incident, **changed)


def _given(order: r.Order) -> str:
    """The order in the words of the story."""
    limit = order.resume_before_step
    then = f", and go on from a checkpoint before step {limit}" if limit >= 0 else ""
    less = f", and meet again without {', '.join(order.without[:ACKS_NAMED])}" if order.without else ""
    less += f" and {len(order.without) - ACKS_NAMED} more" if len(order.without) > ACKS_NAMED else ""
    return f"order {order.order_id} given: end the workers of round {order.round}{last_words.given(order)}{less}{then}"


def _carried_out(order: r.Order, acks: Sequence[Ack]) -> str:
    who = ", ".join(ack.node for ack in acks[:ACKS_NAMED])
    who += f" and {len(acks) - ACKS_NAMED} more" if len(acks) > ACKS_NAMED else ""
    if order.kind == RELEASE:
        return f"{who} told the holders to end with their trainers"
    killed = sum(ack.killed for ack in acks)
    return f"{who} carried out the order: {f'{killed} workers' if killed else 'none'} had to be killed"
