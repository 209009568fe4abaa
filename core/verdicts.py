"""Incidents about silent nodes that concern no round yet: opened once per cause, corrected in place, closed."""

from collections.abc import Iterable, Sequence

import msgspec

from rankpulse.core import diagnosis as d
from rankpulse.core import incidents as book_of
from rankpulse.core import policy
from rankpulse.core import records as r
from rankpulse.core.desk import Desk
from rankpulse.core.diagnosis import NAMED_MAX, Diagnosis
from rankpulse.core.fold_beats import Return
from rankpulse.core.records import Member
from rankpulse.core.repeats import highest_step
from rankpulse.core.views import NodeView, RoundView, RunView
from rankpulse.core.weather import moved

OF_SILENCE = (d.UNKNOWN, d.SIDECAR_DEAD, d.AGENT_CUT_OFF, d.NODE_DEAD)


class Verdicts:
    """One per judge."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def about(self, node: str) -> r.Incident | None:
        """The open incident about the silence of this node, if it concerns no round."""
        return next((i for i in self._open() if node in i.nodes), None)

    def of_round(self, node: str) -> bool:
        """Whether the open incident of a round names this node."""
        return any(node in i.nodes and i.run_uid for i in self._desk.book.open())

    def told(self, node: str, *klasses: str) -> bool:
        """Whether an open incident of one of these classes names this node."""
        return any(node in i.nodes and i.klass in klasses for i in self._desk.book.open())

    def convicted(self, node: str, since: float) -> bool:
        """Whether an incident, open or over, has named this node dead since it was last heard."""
        began = self._desk.book.began
        return any(
            i.klass == d.NODE_DEAD and node in i.nodes and began.get(i.id, since) >= since for i in self._desk.book
        )

    def tell(self, found: Diagnosis) -> None:
        """What is known of silent nodes by now, where no round has an incident of it."""
        incident = next((i for name in found.nodes if (i := self.about(name)) is not None), None)
        if incident is None:
            self._desk.open(found)
        elif incident.klass != found.klass or not set(found.nodes) <= set(incident.nodes):
            self._correct(incident, found)

    def adopt(self, run: RunView, found: Diagnosis) -> None:
        """What was an incident of the fleet turns out to concern this round: it goes on as the round's."""
        incident = next((i for name in found.nodes if (i := self.about(name)) is not None), None)
        if incident is None:
            return
        place = {"run_uid": run.uid, "run_id": run.run_id, "round": run.current.number}
        step = highest_step(run.current)
        incident = self._desk.change(incident, lambda i: msgspec.structs.replace(i, **place, fault_step=step))
        incident = self._desk.note(incident, f"corrected: {found.klass}: {found.summary}")
        self._desk.change(incident, lambda i: book_of.restated(i, found))

    def follow(self, returns: list[Return], *, seen: bool) -> None:
        """Close what is over. `seen`: sight is good, and has been for long enough to know who is there."""
        for back in returns:
            incident = self.about(back.node)
            if incident is not None:
                moved(self._desk, incident, back)
        for incident in self._open() if seen else ():
            why = [self._why_over(name, incident) for name in incident.nodes]
            if why and all(why):
                self._desk.close(incident, book_of.PASSED, why[0])

    def is_back(self, name: str, round_: RoundView, since: float) -> bool:
        """Whether this node speaks again since then, and its processes of the round still run."""
        node = self._desk.folder.fleet.nodes.get(name)
        if node is None:
            return False
        beat = node.beat if node.arrival.again_at > since else node.suspect.beat
        if beat is None:
            return False
        here = {(row.pid, row.start) for row in beat.ranks}
        return {(m.pid, m.start) for m in round_.alive() if m.node == name} <= here

    def _why_over(self, name: str, incident: r.Incident) -> str:
        """Why the silence of this node is over, "" while it is not."""
        fleet = self._desk.folder.fleet
        node = fleet.nodes.get(name)
        if node is None:
            return f"{name} is not watched any more: no job needs it"
        if node.leaving:
            return f"the agent of {name} said goodbye"
        again = node.arrival.again_at > self._desk.book.began.get(incident.id, self._desk.now)
        return f"{name} is heard again" if again and name not in fleet.deadlines.late else ""

    def _open(self) -> list[r.Incident]:
        return [i for i in self._desk.book.open() if not i.run_uid and i.klass in OF_SILENCE]

    def _correct(self, incident: r.Incident, found: Diagnosis) -> None:
        """The same incident, seen better."""
        found = found._replace(nodes=tuple(sorted({*incident.nodes, *found.nodes}))[:NAMED_MAX])
        incident = self._desk.note(incident, f"corrected: {found.klass}: {found.summary}")
        choice = policy.choose(found, policy.NOBODY)
        self._desk.change(
            incident,
            lambda i: book_of.restated(i, found),
            lambda i: book_of.decided(i, choice, self._desk.at),
        )


def joined(incident: r.Incident, found: Diagnosis) -> Diagnosis:
    """What is found of some nodes, with those that the incident tells of already: more of one cause."""
    if set(incident.nodes) <= set(found.nodes):
        return found
    nodes = tuple(sorted({*incident.nodes, *found.nodes}))[:NAMED_MAX]
    culprits = tuple(dict.fromkeys((*incident.culprits, *found.culprits)))[:NAMED_MAX]
    guilty = {member.rank for member in culprits}
    summary = incident.summary
    if not set(found.nodes) <= set(incident.nodes):
        summary = f"{found.summary}; before it {', '.join(sorted(set(incident.nodes) - set(found.nodes))[:5])}"
    return found._replace(
        nodes=nodes,
        culprits=culprits,
        cascade=tuple(rank for rank in found.cascade if rank not in guilty),
        confidence=max(incident.confidence, found.confidence),
        summary=summary,
        reasons=tuple(dict.fromkeys((*incident.reasons, *found.reasons))),
    )


def dead(run: RunView, nodes: list[NodeView], culprits: list[Member], reason: str, confidence: float) -> Diagnosis:
    """Nodes of one run that are dead: one diagnosis for all that fell silent together."""
    names = tuple(node.name for node in nodes)
    cascade = tuple(sorted(rank for rank, m in run.current.members.items() if m.node not in names))
    who = f"{names[0]} is" if len(names) == 1 else f"{len(names)} nodes at once ({in_words(names)}) are"
    return Diagnosis(
        d.NODE_DEAD,
        tuple(sorted(culprits, key=lambda member: member.rank))[:NAMED_MAX],
        cascade,
        names[:NAMED_MAX],
        confidence,
        f"{who} dead: silent on every path",
        (reason,),
        (),
        max(node.silence_began() for node in nodes),
    )


def silent(node: NodeView, klass: str, summary: str, reasons: tuple[str, ...], confidence: float) -> Diagnosis:
    """Something short of death about one silent node."""
    return Diagnosis(klass, (), (), (node.name,), confidence, summary, reasons, (), _missed(node))


def unheard(nodes: list[NodeView], ceiling_s: float) -> Diagnosis:
    """Nodes that have been silent for so long that somebody must look, whatever excused them."""
    names = tuple(sorted(node.name for node in nodes))
    reasons = tuple(dict.fromkeys(f"{node.name}: {node.suspect.reason or 'silent'}" for node in nodes[:4]))
    summary = f"nothing has been heard of {in_words(names)} on any path for {ceiling_s:g} s"
    return Diagnosis(
        d.UNKNOWN, (), (), names[:NAMED_MAX], 0.3, summary, reasons, (), min(_missed(node) for node in nodes)
    )


def in_words(names: Iterable[str]) -> str:
    """A few names, and how many more there are."""
    named: Sequence[str] = list(names)
    return ", ".join(named[:4]) + (f" and {len(named) - 4} more" if len(named) > 4 else "")


def _missed(node: NodeView) -> float:
    return node.silent_since if node.silent_since is not None else node.heard_at()
