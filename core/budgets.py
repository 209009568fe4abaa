"""Budgets: how many orders a run, a node and the whole fleet may be given, and how soon after one another.

A run's budget counts progress: a round in which every rank made a step gives it back whole. Those of nodes and of the
fleet decay: an order weighs one when it is given and nothing a window later, and a quarter of that once the run has
gone on after it. Ages come from one record that the leader keeps, so that a new one forgets nothing.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from rankpulse.core import policy
from rankpulse.core.diagnosis import nodes_of
from rankpulse.core.fold import RESTART
from rankpulse.core.incidents import CLOSED, PASSED, RECOVERED
from rankpulse.core.records import Incident, Spent
from rankpulse.core.views import RunView

if TYPE_CHECKING:
    from rankpulse.core.desk import Desk

HELPED: Final = 0.25  # of an order after which the run went on
HELD_S: Final = 10.0  # holders let go after 15 s without a word
WRITE_S: Final = 300.0  # ages are written so often
SETTLE_S: Final = 1.0  # and so soon after one is added: many may come at once
ORDERING: Final = (policy.RESTART, policy.RESTART_WITHOUT)


def blamed(incident: Incident) -> str:
    """The one node that an incident blames, "" when it is none or several."""
    nodes = nodes_of(incident.culprits) or incident.nodes
    return nodes[0] if len(nodes) == 1 else ""


def weight(incident: Incident, age_s: float, window_s: float) -> float:
    """What an order still costs the budgets of its node and of the fleet."""
    return max(0.0, 1.0 - age_s / window_s) * (HELPED if incident.outcome == RECOVERED else 1.0)


class Budgets:
    """One per desk. Remembers only when it wrote last; all else is in the book and in the record."""

    def __init__(self, desk: "Desk") -> None:
        self._desk = desk
        self._epoch = 0
        self._written_at = 0.0

    def age_s(self, incident: Incident) -> float | None:
        """For how long monitors have known of it, by their own clocks; None: for longer than anything counts."""
        stored, seen_at = self._desk.folder.spent
        told = stored.ages_s.get(incident.id) if stored is not None else None
        if told is None and incident.state == CLOSED and incident.epoch != self._desk.epoch:
            return None  # whoever decided it would have told of it
        here = self._desk.now - self._desk.book.began.get(incident.id, self._desk.now)
        return max(here, told + self._desk.now - seen_at if told is not None else 0.0)

    # --- of a run

    def left(self, run: RunView) -> int:
        """Orders that the run may still be given."""
        return self._desk.settings.policy.orders_per_run - len(self._idle(run))

    def rests(self, run: RunView, *, held: bool) -> float:
        """For how long after the last order no other may follow, 0 when that time is over.

        `held`: dead workers wait for a verdict, and their holders not for ever.
        """
        idle = self._idle(run)
        last = self._desk.book.of_round(run.uid, max(idle)) if idle else None
        age_s = self.age_s(last) if last is not None else None
        if age_s is None:
            return 0.0
        rest_s: float = self._desk.settings.policy.backoff_s * 2 ** min(len(idle) - 1, 20)
        rest_s = min(rest_s, HELD_S) if held else rest_s
        return rest_s if age_s < rest_s else 0.0

    def _idle(self, run: RunView) -> set[int]:
        """The rounds that were ended by order since the last one in which every rank made a step."""
        stepped = [number for number, view in run.rounds.items() if view.stepped()]
        of_run = [i for i in self._desk.book if i.run_uid == run.uid]
        stepped += [i.round + i.restarts for i in of_run if i.outcome == RECOVERED]  # a new leader did not see it step
        moved = max(stepped, default=0)
        ordered = {number for uid, number, kind in self._desk.folder.orders if uid == run.uid and kind == RESTART}
        ordered |= {i.round for i in of_run if i.order_id}
        return {number for number in ordered if number >= moved}

    # --- of nodes and of the fleet

    def spent(self, run_uid: str, round_: int, nodes: Iterable[str]) -> str:
        """Why no more may be ordered for this round, of which `nodes` are to blame; "" when it may."""
        limits = self._desk.settings.policy
        others = [i for i in self._ordered() if (i.run_uid, i.round) != (run_uid, round_)]
        if self._sum(others) + 1.0 > limits.orders_per_fleet:
            return "the budget of orders for the whole fleet is used up: too much fails for restarts to be the cure"
        named = set(nodes)
        if len(named) == 1 and self._sum(i for i in others if blamed(i) in named) + 1.0 > limits.orders_per_node:
            return f"the budget of orders because of {min(named)} is used up: look at that node"
        return ""

    def _ordered(self) -> list[Incident]:
        """Incidents for which an order stands or is about to. What a person asked for is counted nowhere."""
        return [
            i
            for i in self._desk.book
            if (i.order_id or (i.state != CLOSED and i.action in ORDERING)) and not i.asked_by and i.outcome != PASSED
        ]

    def _sum(self, incidents: Iterable[Incident]) -> float:
        window_s = self._desk.settings.policy.budget_window_s
        ages = ((i, self.age_s(i)) for i in incidents)
        return sum(weight(i, age_s, window_s) for i, age_s in ages if age_s is not None)

    # --- the record

    def keep(self) -> None:
        """Want the record of ages when one is missing in it, and now and then."""
        desk = self._desk
        if desk.epoch != self._epoch:
            self._epoch, self._written_at = desk.epoch, desk.now
        stored, _ = desk.folder.spent
        limits = desk.settings.policy
        longest_s = max(limits.budget_window_s, limits.strikes_window_s if limits.strikes else 0.0)
        counted = {i.id: self.age_s(i) for i in desk.book if i.strike or (i.order_id and not i.asked_by)}
        ages = {id_: round(age, 1) for id_, age in sorted(counted.items()) if age is not None and age < longest_s}
        pardoned = tuple(id_ for id_ in desk.folder.pardoned if id_ in ages)
        told = (stored.ages_s, stored.pardoned) if stored is not None else ({}, ())
        known = told[0].keys() == ages.keys()
        if told[1] == pardoned and desk.now - self._written_at < (WRITE_S if known else SETTLE_S):
            return
        if known and told[1] == pardoned and not ages:
            return
        self._written_at = desk.now
        desk.want(
            desk.keys.spent(), Spent(at=desk.at, ages_s=ages, pardoned=pardoned), "what budgets and strikes count"
        )
