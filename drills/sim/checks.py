"""What must never happen, whatever is done to the cluster. Each rule is a pure function of what was written and what
is true; it returns what is wrong, or "".

A rule is asked after every event that wrote something. `Scene.now` is the store's time.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from rankpulse.core import records as r
from rankpulse.core.settings import Settings
from rankpulse.drills.sim.plan import BREAK_RUNS, CRASH, ERROR, HANG, PASSING, SILENCES, Book
from rankpulse.drills.sim.watcher import Decision

HEALED_S: Final = 2.0  # what was silent until so long ago may still be thought dead: a beat has to come first
BACK_S: Final = 4.0  # an agent needs a moment to be heard again
SURE: Final = 0.9


@dataclass(frozen=True)
class Written:
    """One record that came to stand in the store, and what its author knew; None: nobody of ours decided it."""

    at: float
    key: str
    record: r.Record
    decision: Decision | None = None


@dataclass
class Scene:
    """All that the rules look at."""

    settings: Settings
    truth: Book
    now: float = 0.0
    new: list[Written] = field(default_factory=list)  # by the last event
    orders: dict[tuple[str, int, str], list[r.Order]] = field(default_factory=dict)  # every one that ever stood
    incidents: dict[str, r.Incident] = field(default_factory=dict)  # as they were before `new`
    observed: set[str] = field(default_factory=set)  # keys of observations that ever stood
    armed: bool = False
    disarmed_at: float = float("-inf")
    leader: r.Leader | None = None
    progress: dict[str, int] = field(default_factory=dict)  # run -> orders of restart since it last trained
    failures: list[str] = field(default_factory=list)  # of engines and programs
    mistaken: list[str] = field(default_factory=list)  # thought dead, and came back: physics, not an error
    ended_runs: list[str] = field(default_factory=list)  # said to have ended

    def new_orders(self, kind: str = "") -> list[Written]:
        found = [one for one in self.new if isinstance(one.record, r.Order)]
        return [one for one in found if not kind or one.record.kind == kind]  # type: ignore[attr-defined]

    def asked(self, order: r.Order) -> bool:
        """Whether a person wanted it."""
        incident = self.incidents.get(order.incident)
        return incident is not None and bool(incident.asked_by)

    def decided_at(self, one: Written) -> float:
        """What its author could know is judged: a record that waited in a broken connection comes to stand later."""
        return one.decision.at if one.decision is not None else self.now

    def new_incidents(self) -> list[tuple[Written, r.Incident]]:
        return [(one, one.record) for one in self.new if isinstance(one.record, r.Incident)]


Rule = Callable[[Scene], str]


def no_failure(scene: Scene) -> str:
    """No part of rankpulse fails, whatever comes."""
    return scene.failures[0] if scene.failures else ""


def one_restart_per_round(scene: Scene) -> str:
    """At most one restart order per run and round, for ever; and no more of the rung above it, only after it."""
    for (run, round_, kind), orders in scene.orders.items():
        if kind in ("restart", "kill") and len(orders) > 1:
            return f"{len(orders)} {kind} orders for round {round_} of {run}: {[o.order_id for o in orders]}"
        if kind == "kill" and (run, round_, "restart") not in scene.orders:
            return f"an order to kill round {round_} of {run}, and none to restart it before"
    return ""


def never_while_blind(scene: Scene) -> str:
    """No order and no conviction from silence by a monitor that knew itself to be blind.

    The end of a worker is the kernel's word, not silence: it is told of as soon as it is read, by a new leader too.
    """
    for one in scene.new:
        decision = one.decision
        if decision is None or not decision.blind:
            continue
        record = one.record
        if isinstance(record, r.Order) or (isinstance(record, r.Incident) and _from_silence(scene, record)):
            return f"{one.key} was decided by {decision.monitor} while blind ({decision.blind})"
    return ""


def _from_silence(scene: Scene, incident: r.Incident) -> bool:
    of_exits = incident.klass == "worker_dead" and bool(incident.evidence)
    return _convicts(scene, incident) and not of_exits


def _convicts(scene: Scene, incident: r.Incident) -> bool:
    before = scene.incidents.get(incident.id)
    return incident.state == "open" and (before is None or before.klass != incident.klass)


def _named_anew(scene: Scene, incident: r.Incident) -> list[str]:
    """The nodes of which it says this for the first time: more may join an incident that stands."""
    before = scene.incidents.get(incident.id)
    known = before.nodes if before is not None and before.klass == incident.klass else ()
    return [node for node in incident.nodes if node not in known] if incident.state == "open" else []


def only_when_armed(scene: Scene) -> str:
    """No restart order while orders are not armed, unless a person asked for it. A change takes a moment to be seen."""
    for one in scene.new_orders("restart"):
        order = one.record
        assert isinstance(order, r.Order)
        if not scene.armed and not scene.asked(order) and one.at - scene.disarmed_at > 5.0:
            return f"order {order.order_id} while orders were not armed"
    return ""


def within_budget(scene: Scene) -> str:
    """No more orders of restart without progress in between than the budget allows."""
    most = scene.settings.policy.orders_per_run
    for one in scene.new_orders("restart"):
        order = one.record
        assert isinstance(order, r.Order)
        given = scene.progress.get(order.run_uid, 0)
        if given > most and not scene.asked(order):
            return f"order {order.order_id} is number {given} of run {order.run_uid} without progress, {most} allowed"
    return ""


def fenced(scene: Scene) -> str:
    """Every order carries the epoch of whoever leads at that moment."""
    for one in scene.new_orders():
        order = one.record
        assert isinstance(order, r.Order)
        if scene.leader is None or order.epoch != scene.leader.epoch:
            leads = scene.leader.epoch if scene.leader else "nobody"
            return f"order {order.order_id} of epoch {order.epoch}, the leader's is {leads}"
    return ""


def cited(scene: Scene) -> str:
    """Every order that does something cites an incident of the store that has its reasons or its evidence."""
    for one in scene.new_orders():
        order = one.record
        assert isinstance(order, r.Order)
        if order.kind.startswith("collect-"):
            continue
        incident = scene.incidents.get(order.incident)
        if incident is None:
            return f"order {order.order_id} cites incident {order.incident!r}, which is not in the store"
        if not incident.reasons and not incident.evidence:
            return f"incident {incident.id}, cited by an order, has neither reasons nor evidence"
        lost = [key for key in incident.evidence if key not in scene.observed]
        if lost:
            return f"incident {incident.id} cites {lost[0]}, which nobody ever wrote"
    return ""


def only_what_is_broken(scene: Scene) -> str:
    """A restart order is for a round that a fault has broken, or that has lost nodes, or that a person gave up.

    A node that is silent for so long and comes back cannot be told from a dead one.
    """
    for one in scene.new_orders("restart"):
        order = one.record
        assert isinstance(order, r.Order)
        if scene.asked(order):
            continue
        living = [node for node in order.without if scene.truth.silent(node, scene.now, HEALED_S) is None]
        if living:
            return f"order {order.order_id} leaves out {living[0]}, which lives"
        if not order.without and not scene.truth.of_round(order.run_uid, order.round, BREAK_RUNS):
            return f"order {order.order_id} restarts round {order.round} of {order.run_uid}, which was healthy"
    return ""


def dead_are_silent(scene: Scene) -> str:
    """A node is called dead only while it is silent on every path, whatever was done to observers and stores.

    One that is silent for so long and comes back cannot be told from a dead one: counted, as mistaken.
    """
    for one, incident in scene.new_incidents():
        if incident.klass != "node_dead":
            continue
        for node in _named_anew(scene, incident):
            cause = scene.truth.silent(node, scene.decided_at(one), HEALED_S)
            if cause is None:
                return f"{incident.id}: {node} is called dead, and lives ({incident.summary})"
            if cause.kind in PASSING:
                scene.mistaken.append(f"{one.at:.1f} s: {node}, {cause.kind} for {one.at - cause.at:.1f} s by then")
    return ""


def agents_are_out(scene: Scene) -> str:
    """An agent is called gone or cut off only while its beats do not come, for a reason that is its own or its path's.

    What an outage of the store or a pause of the monitor looks like is neither.
    """
    for one, incident in scene.new_incidents():
        if incident.klass not in ("sidecar_dead", "agent_cut_off"):
            continue
        for node in _named_anew(scene, incident):
            if scene.truth.silent(node, scene.decided_at(one), BACK_S, SILENCES) is None:
                return f"{incident.id}: the agent on {node} is called out ({incident.klass}), and is well"
    return ""


def right_culprits(scene: Scene) -> str:
    """Who is blamed for a crash or a hang is who was made to crash or to hang."""
    for _one, incident in scene.new_incidents():
        if incident.state != "open" or not incident.culprits:
            continue
        named = {(member.rank, member.pid) for member in incident.culprits}
        if incident.klass == "worker_dead":
            kinds: tuple[str, ...] = (CRASH, ERROR)
        elif incident.klass == "collective_hang" and incident.confidence >= SURE:
            kinds = (HANG,)
        else:
            continue
        truths = scene.truth.of_round(incident.run_uid, incident.round, kinds)
        guilty = {member for truth in truths for member in truth.members}
        if not named <= guilty:
            return f"{incident.id} ({incident.klass}): blamed are {sorted(named)}, guilty are {sorted(guilty)}"
    return ""


def closed_stays_closed(scene: Scene) -> str:
    """A closed incident is never opened again."""
    for _one, incident in scene.new_incidents():
        before = scene.incidents.get(incident.id)
        if before is not None and before.state == "closed" and incident.state != "closed":
            return f"{incident.id} was closed ({before.outcome}) and is {incident.state} again"
    return ""


def nothing_ended(scene: Scene) -> str:
    """No run is said to have ended: all of them go on."""
    return scene.ended_runs[0] if scene.ended_runs else ""


RULES: Final[tuple[Rule, ...]] = (
    no_failure,
    one_restart_per_round,
    never_while_blind,
    only_when_armed,
    within_budget,
    fenced,
    cited,
    only_what_is_broken,
    dead_are_silent,
    agents_are_out,
    right_culprits,
    closed_stays_closed,
    nothing_ended,
)


def broken(scene: Scene) -> tuple[str, str] | None:
    """The first rule that does not hold, and why."""
    for rule in RULES:
        wrong = rule(scene)
        if wrong:
            return rule.__name__, wrong
    return None
