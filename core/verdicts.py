"""Incidents about silent nodes that concern no round yet: opened once per cause, corrected in place, closed."""

from collections.abc import Callable, Sequence

import msgspec

from rankpulse.core import diagnosis as d
from rankpulse.core import incidents as book_of
from rankpulse.core import policy
from rankpulse.core import records as r
from rankpulse.core.desk import Desk
from rankpulse.core.diagnosis import NAMED_MAX, Diagnosis
from rankpulse.core.fold_beats import Return
from rankpulse.core.repeats import highest_step
from rankpulse.core.suspects import CONVICTED
from rankpulse.core.telling import Form, Word, in_words, said
from rankpulse.core.views import RoundView, RunView
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
        incident = self._fitting(found)
        if incident is None:
            incident = self._desk.open(found)
        elif incident.klass != found.klass or not set(found.nodes) <= set(incident.nodes):
            self._correct(incident, found)
        else:
            return
        self._part(found.nodes, incident.id)

    def together(self, form: Form, words: list[Word]) -> None:
        """The same of nodes that fell silent together: one incident, which others join that are as silent as they."""
        about = self._about_each()
        others = {i.id: i for word in words if (i := about.get(word.node.name)) is not None and i.klass != form.klass}
        for incident in others.values() if form.klass != d.UNKNOWN else ():  # else what is told already says more
            self.tell(said(form, [word for word in words if word.node.name in incident.nodes]))
        about = self._about_each() if others else about
        same = next((i for word in words if (i := about.get(word.node.name)) and i.klass == form.klass), None)
        new = [word for word in words if word.node.name not in about]
        if new and same is None:
            self._desk.open(said(form, new))
        elif new and same is not None:
            mine = {same.id, None}
            self._join(same, said(form, [word for word in words if _id(about.get(word.node.name)) in mine]))

    def adopt(self, run: RunView, found: Diagnosis) -> None:
        """What was an incident of the fleet turns out to concern this round: it goes on as the round's."""
        incident = self._fitting(found)
        self._part(found.nodes, incident.id if incident is not None else "")
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
        """Whether this node speaks again since then, and its processes of the round still run.

        Any sign of life takes a conviction back by itself: while it stands, what was heard was heard before.
        """
        node = self._desk.folder.fleet.nodes.get(name)
        if node is None or node.suspect.state == CONVICTED:
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

    def _about_each(self) -> dict[str, r.Incident]:
        """By node, the open incident about its silence."""
        return {name: incident for incident in reversed(self._open()) for name in incident.nodes}

    def _fitting(self, found: Diagnosis) -> r.Incident | None:
        """The incident that this is about: of nodes of which more is known than of the others it names, a new one."""
        about = [i for name in found.nodes if (i := self.about(name)) is not None]
        return next((i for i in about if i.klass == found.klass or set(i.nodes) <= set(found.nodes)), None)

    def _part(self, names: Sequence[str], but: str) -> None:
        """These are told of elsewhere from now on: incidents of others that name them too go on without them."""
        for incident in self._open():
            rest = tuple(name for name in incident.nodes if name not in names)
            if incident.id != but and rest and len(rest) < len(incident.nodes):
                gone = in_words(sorted(set(incident.nodes) - set(rest)))
                incident = self._desk.note(incident, f"of {gone} more is known: told of by itself")
                self._desk.change(incident, _naming(rest))

    def _join(self, incident: r.Incident, found: Diagnosis) -> None:
        """More nodes of the same cause. Of very many not all are named; how many there are is said all the same."""
        nodes = tuple(sorted({*incident.nodes, *found.nodes}))[:NAMED_MAX]
        if nodes == incident.nodes and found.summary == incident.summary:
            return
        if nodes != incident.nodes:
            new = in_words(name for name in nodes if name not in incident.nodes)
            incident = self._desk.change(incident, lambda i: book_of.noted(i, self._desk.at, f"likewise: {new}"))
        self._desk.change(incident, lambda i: book_of.restated(i, found._replace(nodes=nodes)))

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


def _naming(nodes: tuple[str, ...]) -> Callable[[r.Incident], r.Incident]:
    return lambda incident: msgspec.structs.replace(incident, nodes=nodes)


def _id(incident: r.Incident | None) -> str | None:
    return incident.id if incident is not None else None
