"""Incidents about silent nodes that concern no round yet: opened once per cause, corrected in place, closed."""

import math
from collections.abc import Iterable, Sequence

import msgspec

from rankpulse.core import diagnosis as d
from rankpulse.core import incidents as book_of
from rankpulse.core import policy
from rankpulse.core import records as r
from rankpulse.core.desk import Desk
from rankpulse.core.diagnosis import NAMED_MAX, Diagnosis
from rankpulse.core.repeats import highest_step
from rankpulse.core.silence import Peers
from rankpulse.core.views import NodeView, RunView

OF_SILENCE = (d.UNKNOWN, d.SIDECAR_DEAD, d.AGENT_CUT_OFF, d.NODE_DEAD)


class Verdicts:
    """One per judge."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def about(self, node: str) -> r.Incident | None:
        """The open incident about the silence of this node, if it concerns no round."""
        found = (i for i in self._desk.book.open() if not i.run_uid and i.klass in OF_SILENCE and node in i.nodes)
        return next(found, None)

    def tell(self, found: Diagnosis) -> None:
        """What is known of a silent node by now, where no round has an incident of it."""
        desk = self._desk
        incident = next((i for name in found.nodes if (i := self.about(name)) is not None), None)
        if incident is None:
            desk.open(found)
        elif incident.klass != found.klass or not set(found.nodes) <= set(incident.nodes):
            self.correct(incident, found)

    def correct(self, incident: r.Incident, found: Diagnosis) -> r.Incident:
        """The same incident, seen better."""
        nodes = tuple(sorted({*incident.nodes, *found.nodes}))[:NAMED_MAX]
        found = found._replace(nodes=nodes)
        incident = self._desk.note(incident, f"corrected: {found.klass}: {found.summary}")
        choice = policy.choose(found, policy.NOBODY)
        return self._desk.change(
            incident,
            lambda i: book_of.restated(i, found),
            lambda i: book_of.decided(i, choice, self._desk.at),
        )

    def adopt(self, run: RunView, found: Diagnosis) -> None:
        """What was an incident of the fleet turns out to concern this round: it goes on as the round's."""
        incident = next((i for name in found.nodes if (i := self.about(name)) is not None), None)
        if incident is None:
            return
        place = {"run_uid": run.uid, "run_id": run.run_id, "round": run.current.number}
        step = highest_step(run.current)
        incident = self._desk.change(incident, lambda i: msgspec.structs.replace(i, **place, fault_step=step))
        self._desk.note(incident, f"corrected: {found.klass}: {found.summary}")
        self._desk.change(incident, lambda i: book_of.restated(i, found))

    def close_of(self, node: str, text: str) -> None:
        """The node is heard again, or nobody waits for it."""
        incident = self.about(node)
        if incident is not None and incident.klass != d.NODE_DEAD and incident.nodes == (node,):
            self._desk.close(incident, book_of.PASSED, text)

    def convicted(self, node: str, since: float) -> bool:
        """Whether an incident, open or over, has named this node dead since it was last heard."""
        began = self._desk.book.began
        return any(
            i.klass == d.NODE_DEAD and node in i.nodes and began.get(i.id, since) >= since for i in self._desk.book
        )


def dead(group: Iterable[NodeView], peers: Peers, reason: str, confidence: float) -> Diagnosis:
    """Nodes of one run that are dead: one diagnosis for all that fell silent together."""
    nodes = [node for node in group if node.name in peers.by_node]
    names = tuple(node.name for node in nodes)
    culprits = [member for name in names for member in peers.by_node[name]]
    members = peers.run.current.members
    cascade = tuple(sorted(rank for rank, member in members.items() if member.node not in names))
    who = names[0] if len(names) == 1 else f"{len(names)} nodes at once ({in_words(names)})"
    return Diagnosis(
        d.NODE_DEAD,
        tuple(culprits[:NAMED_MAX]),
        cascade,
        names[:NAMED_MAX],
        confidence,
        f"{who} {'is' if len(names) == 1 else 'are'} dead: silent on every path",
        (reason,),
        (),
        max(node.heard_at() if math.isfinite(node.heard_at()) else _missed(node) for node in nodes),
    )


def in_words(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (", …" if len(names) > 4 else "")


def silent(node: NodeView, klass: str, summary: str, reasons: tuple[str, ...], confidence: float) -> Diagnosis:
    """Something short of death about one silent node."""
    return Diagnosis(klass, (), (), (node.name,), confidence, summary, reasons, (), _missed(node))


def _missed(node: NodeView) -> float:
    return node.silent_since if node.silent_since is not None else node.heard_at()
