"""Incidents about silent nodes that concern no round yet: opened once per cause, corrected in place, closed."""

from collections.abc import Collection

import msgspec

from rankpulse.core import diagnosis as d
from rankpulse.core import incidents as book_of
from rankpulse.core import policy
from rankpulse.core import records as r
from rankpulse.core.cuts import RACK_BEATS, by_time
from rankpulse.core.desk import Desk
from rankpulse.core.diagnosis import NAMED_MAX, Diagnosis
from rankpulse.core.fold_beats import Return
from rankpulse.core.gpu_cascade import reasons
from rankpulse.core.repeats import highest_step
from rankpulse.core.rewording import form_of, without
from rankpulse.core.strikes import BROKEN
from rankpulse.core.suspects import CONVICTED
from rankpulse.core.telling import Form, Word, in_words, phrase, said
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

    def of_gpu(self, node: NodeView, form: Form) -> bool:
        """Whether this node fell silent after a GPU of it broke: then that is part of the incident about it."""
        name = node.name
        if not self._desk.folder.health.lately(name, node.silence_began()):
            return False
        incident = next((i for i in self._desk.book.open() if i.klass in BROKEN and i.faults and name in i.nodes), None)
        if incident is not None:
            self._desk.note(incident, f"then: {phrase(form, [name])}")
        return incident is not None

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
        incident = self._fitting(found, found.klass)
        if incident is None:
            incident = self._desk.open(found)
        elif incident.klass != found.klass or not set(found.nodes) <= set(incident.nodes):
            incident = self._correct(incident, found)
        else:
            return
        self.part(found.nodes, incident)

    def together(self, form: Form, words: list[Word]) -> None:
        """The same of nodes that fell silent together: one incident, which others join that are as silent as they.

        Also those that are seen better one after another: they leave the incident that said less of them.
        """
        about = self._about_each()
        new = [word for word in words if _is_news(form, about.get(word.node.name))]
        if not new:
            return
        same = self._same(form, words)
        if same is None:
            self.tell(said(form, new))
            return
        mine = [word for word in words if word in new or about[word.node.name].id == same.id]
        self.part({word.node.name for word in new}, self._join(same, form, said(form, mine), mine))

    def adopt(self, run: RunView, found: Diagnosis) -> None:
        """What was an incident of the fleet turns out to concern this round: it goes on as the round's.

        Not one that tells of others as well: of them nothing else is known than before.
        """
        incident = self._fitting(found)
        if incident is None:
            return
        place = {"run_uid": run.uid, "run_id": run.run_id, "round": run.current.number}
        step = highest_step(run.current)
        incident = self._desk.change(incident, lambda i: msgspec.structs.replace(i, **place, fault_step=step))
        if incident.faults:
            self._desk.book.concerns(incident, self._desk.now)
        self.died(incident, found)

    def died(self, incident: r.Incident, found: Diagnosis) -> None:
        """What is known of it by now is that these machines are dead; of which broken GPU, it keeps."""
        incident = self._desk.note(incident, f"corrected: {found.klass}: {found.summary}")
        found = found._replace(reasons=(*found.reasons, *reasons(incident.faults)))
        self._desk.change(incident, lambda i: book_of.restated(i, found))

    def part(self, names: Collection[str], to: r.Incident) -> None:
        """Of these `to` tells from now on: others that name them too go on without them, or are over."""
        for incident in self._open():
            gone = [name for name in incident.nodes if name in names] if incident.id != to.id else []
            if len(gone) == len(incident.nodes) > 0:
                self._desk.close(incident, book_of.SUPERSEDED, f"told of by incident {to.id}")
            elif gone:
                text = f"of {in_words(gone)} more is known: told of by incident {to.id}"
                self._leave_out(incident, gone, text)

    def follow(self, returns: list[Return], *, seen: bool) -> None:
        """Close what is over, for all or for some. `seen`: sight is good, and long enough to know who is there."""
        for back in returns:
            incident = self.about(back.node)
            if incident is not None:
                moved(self._desk, incident, back)
        for incident in self._open() if seen else ():
            over = {name: why for name in incident.nodes if (why := self._why_over(name, incident))}
            lasting = [name for name in over if self._lasts(name)]
            if over and len(over) == len(incident.nodes):
                self._desk.close(incident, book_of.PASSED, next(iter(over.values())))
            elif lasting:  # it would draw in what is lost with them another time
                self._leave_out(incident, lasting, f"over for {in_words(lasting)}: {over[lasting[0]]}")

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

    def _fitting(self, found: Diagnosis, klass: str = "") -> r.Incident | None:
        """The incident that this is about: of this class, or of no others than these nodes."""
        about = [i for name in found.nodes if (i := self.about(name)) is not None]
        if found.klass == d.NODE_DEAD:  # what a machine dies of is not another incident
            lately = [name for name in found.nodes if self._desk.folder.health.lately(name, found.since)]
            broken = [i for i in self._desk.book.open() if i.faults and i.klass in BROKEN and not i.run_uid]
            about += [i for i in broken if set(i.nodes) & set(lately)]
        return next((i for i in about if i.klass == klass or set(i.nodes) <= set(found.nodes)), None)

    def _same(self, form: Form, words: list[Word]) -> r.Incident | None:
        """The incident that says this already of nodes whose silence began with theirs."""
        detect, late_now = self._desk.settings.detect, self._desk.folder.fleet.deadlines.late
        theirs = {word.node.name: word.node for word in words}
        for incident in self._open():
            late = {name: late_now[name] for name in incident.nodes if name in late_now}
            if incident.klass != form.klass or not late:
                continue
            true = late.keys() <= theirs.keys() or form_of(incident, detect.silence_ceiling_s) == form
            at_once = by_time([*(late | theirs).values()], RACK_BEATS * detect.heartbeat_interval_s)
            if true and len(at_once) == 1:
                return incident
        return None

    def _lasts(self, name: str) -> bool:
        """Whether it is gone for good, or has been back for so long that it will not be lost again to the same."""
        node, fleet = self._desk.folder.fleet.nodes.get(name), self._desk.folder.fleet
        if node is None or node.leaving:
            return True
        back_at = max((fleet.anew.at, *(turn.at for turn in list(node.suspect.trail)[-1:])))
        return self._desk.now - back_at >= self._desk.settings.detect.quiet_s

    def _leave_out(self, incident: r.Incident, gone: list[str], why: str) -> None:
        ceiling_s = self._desk.settings.detect.silence_ceiling_s
        incident = self._desk.note(incident, why)
        self._desk.change(incident, lambda i: without(i, gone, ceiling_s))

    def _join(self, incident: r.Incident, form: Form, found: Diagnosis, words: list[Word]) -> r.Incident:
        """More nodes of the same cause. Of very many not all are named; how many there are is said all the same."""
        everybody = sorted({*incident.nodes, *(word.node.name for word in words)})
        nodes, summary = tuple(everybody[:NAMED_MAX]), phrase(form, everybody)
        if (nodes, summary) == (incident.nodes, incident.summary):
            return incident
        new = in_words(name for name in nodes if name not in incident.nodes)
        if new:
            incident = self._desk.change(incident, lambda i: book_of.noted(i, self._desk.at, f"likewise: {new}"))
        return self._desk.change(incident, lambda i: book_of.restated(i, found._replace(nodes=nodes, summary=summary)))

    def _correct(self, incident: r.Incident, found: Diagnosis) -> r.Incident:
        """The same incident, seen better."""
        found = found._replace(
            nodes=tuple(sorted({*incident.nodes, *found.nodes}))[:NAMED_MAX],
            reasons=(*found.reasons, *reasons(incident.faults)),
        )
        incident = self._desk.note(incident, f"corrected: {found.klass}: {found.summary}")
        choice = policy.choose(found, policy.NOBODY)
        return self._desk.change(
            incident,
            lambda i: book_of.restated(i, found),
            lambda i: book_of.decided(i, choice, self._desk.at),
        )


def _is_news(form: Form, incident: r.Incident | None) -> bool:
    """Whether this says more of a node than the incident about it, if there is one: "unknown" never does."""
    return incident is None or form.klass not in (incident.klass, d.UNKNOWN)
