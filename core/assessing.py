"""Evidence of a standstill: asked for, waited for, and assessed, by whichever way and however much of it has come.

Whoever told something directly is diagnosed as a whole; where nobody did, the answers in the store are weighed. Both
ways lead to one word on the standstill, that changes only when more has been told.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from rankpulse.core import records as r
from rankpulse.core.assembling import Told, assembled, to_row
from rankpulse.core.conclusion import concluded
from rankpulse.core.desk import Desk
from rankpulse.core.diagnoses import Case
from rankpulse.core.diagnosis import Diagnosis
from rankpulse.core.evidence import Position, Row
from rankpulse.core.findings import finding
from rankpulse.core.snapshot import Snapshot
from rankpulse.core.standstill import Stand, diagnosed
from rankpulse.core.views import RoundView, RunView
from rankpulse.core.weighing import weigh

AGAIN_S: Final = 3.0  # a large job is not diagnosed anew for every node that tells more
KEPT: Final = 64
ABANDONED_S: Final = 60.0  # longer than any verdict is waited for
Places: TypeAlias = dict[int, tuple[Position, ...]]  # by rank
Heard: TypeAlias = tuple[int, int]  # how many nodes told directly, how many in the store


class Assessed(NamedTuple):
    """What the answers to one order come to."""

    found: Diagnosis
    at_work: bool  # who holds up the others is at work: slow, for all one sees
    places: Places  # where the ranks stood by then
    heard: Heard

    @property
    def blind(self) -> bool:
        """Nobody told anything of any rank: it is what beats say."""
        return self.heard == (0, 0)


@dataclass
class _Open:
    """One that is being diagnosed."""

    case: Case
    snapshot: Snapshot
    told: Told
    base: Assessed


class Assessor:
    """One per judge; knows the orders of this term."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._done: dict[str, tuple[Assessed, float]] = {}  # by order, and since when
        self._open: dict[str, _Open] = {}

    def ask(self, run: RunView, order: r.Order, why: str) -> r.Order:
        """The order of evidence as it stands: wanted while the store has none, and put to the nodes directly."""
        desk = self._desk
        stored = desk.folder.ordered(order.run_uid, order.round, order.kind)
        if stored is None:
            desk.want(desk.keys.order(order.run_uid, order.round, order.kind), order, why, once=True)
        order = stored or order
        desk.folder.dossiers.ask(order, _nodes(run.current), desk.folder.fleet.nodes, desk.now)
        return order

    def everybody(self, run: RunView, order: r.Order) -> bool:
        """Whether nothing more is to come: each node has told directly, or in the store where it cannot be asked."""
        dossier = self._desk.folder.dossiers.of(order.order_id)
        answered = self._desk.folder.answers.nodes(order.order_id)
        asked = dossier.asked - dossier.failed.keys()
        return all(node in dossier.parts or (node in answered and node not in asked) for node in _nodes(run.current))

    def heard(self, order: r.Order) -> Heard:
        folder = self._desk.folder
        return len(folder.dossiers.of(order.order_id).parts), len(folder.answers.nodes(order.order_id))

    def assess(self, run: RunView, stand: Stand, order: r.Order) -> Assessed | None:
        """What has been told by now comes to; None: it is being diagnosed for the first time."""
        heard, now = self.heard(order), self._desk.now
        open_, done = self._open.get(order.order_id), self._done.get(order.order_id)
        if open_ is not None and not open_.case.is_open(now):
            del self._open[order.order_id]
            done = self._keep(order, self._closed(run.current, stand, order, open_))
        elif open_ is None and self._is_due(run, order, heard, done):
            begun = self._begin(run, stand, order, heard)
            done = self._keep(order, begun) if begun is not None else done
        return done[0] if done is not None else None

    def _is_due(self, run: RunView, order: r.Order, heard: Heard, done: tuple[Assessed, float] | None) -> bool:
        if done is None:
            return True
        small = len(run.current.members) <= self._desk.folder.diagnoses.at_once_max
        ripe = small or self._desk.now - done[1] >= AGAIN_S or self.everybody(run, order)
        return done[0].heard != heard and ripe

    def _keep(self, order: r.Order, assessed: Assessed) -> tuple[Assessed, float]:
        self._done.pop(order.order_id, None)
        while len(self._done) >= KEPT:
            del self._done[next(iter(self._done))]
        kept = self._done[order.order_id] = assessed, self._desk.now
        return kept

    def _begin(self, run: RunView, stand: Stand, order: r.Order, heard: Heard) -> Assessed | None:
        """The answer, or None where it takes its time."""
        folder, round_ = self._desk.folder, run.current
        dossier = folder.dossiers.of(order.order_id)
        told = Told(dossier.copy(), folder.answers.rows(order.order_id))
        rows = _merged(round_, told)
        weighed = weigh(rows, round_.alive()) if any(rows.values()) else None
        found = diagnosed(round_, stand, weighed, folder.answers.keys(order.order_id), self._desk.now)
        base = Assessed(found, weighed is not None and weighed.at_work, _places(rows), heard)
        if not dossier.parts:
            return base
        snapshot = assembled(self._desk, run, stand, told)
        open_ = _Open(folder.diagnoses.begin(snapshot, self._desk.now), snapshot, told, base)
        if not open_.case.is_open(self._desk.now):
            return self._closed(round_, stand, order, open_)
        self._abandon()
        self._open[order.order_id] = open_
        return None

    def _abandon(self) -> None:
        """Those that nobody asked for again, since their jobs went on: a snapshot of a large job is large."""
        for order_id, open_ in list(self._open.items()):
            if self._desk.now - open_.case.asked_at >= ABANDONED_S:
                self._desk.folder.diagnoses.forget(open_.case)
                del self._open[order_id]

    def _closed(self, round_: RoundView, stand: Stand, order: r.Order, open_: _Open) -> Assessed:
        """With the verdict; where there is none, what was weighed must do."""
        verdict, base, at = open_.case.verdict, open_.base, self._desk.at
        kept = finding(verdict, open_.snapshot, open_.told, round_, order.order_id, at)
        if verdict is None:
            self._desk.folder.say("error", f"order {order.order_id}: no verdict on its evidence: {open_.case.why}")
            return base._replace(found=base.found._replace(finding=kept))
        found, at_work, named = concluded(base.found, verdict, open_.snapshot, round_, stand)
        return base._replace(found=found._replace(finding=kept), at_work=at_work or (base.at_work and not named))


def _nodes(round_: RoundView) -> set[str]:
    return {member.node for member in round_.members.values()}


def _merged(round_: RoundView, told: Told) -> Mapping[str, Sequence[Row]]:
    """All rows, as the rules that weigh them read them: what was told directly goes before what was told in the store.

    Those of strangers stay in what the store has, where they are counted and ignored.
    """
    merged: dict[str, Sequence[Row]] = dict(told.rows)
    for node, (part, _) in told.dossier.parts.items():
        direct = {}
        for rank in part.ranks:
            member = round_.members.get(rank.rank)
            if member is not None and (member.node, member.pid) == (node, rank.pid):
                direct[rank.rank] = to_row(rank, member)
        merged[node] = (*direct.values(), *(row for row in told.rows.get(node, ()) if row.rank not in direct))
    return merged


def _places(rows: Mapping[str, Sequence[Row]]) -> Places:
    """Where each rank stood; those that told of no place are left out."""
    return {row.rank: row.positions for told in rows.values() for row in told if row.positions}


def moved(before: tuple[Position, ...] | None, after: tuple[Position, ...] | None) -> bool:
    """Whether a rank went on in any group that both looks tell of."""
    if before is None or after is None:
        return False
    then = {place.group: (place.enqueued, place.completed) for place in before}
    return any(then.get(place.group, now) != now for place in after if (now := (place.enqueued, place.completed)))
