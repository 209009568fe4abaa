"""Judging silence: marks who is late, keeps the one incident of a late control plane, and looks at single nodes."""

import msgspec

from rankpulse.core import diagnosis as d
from rankpulse.core import incidents as book_of
from rankpulse.core import records as r
from rankpulse.core import silence
from rankpulse.core.desk import Desk
from rankpulse.core.diagnosis import NAMED_MAX, Diagnosis
from rankpulse.core.fold_beats import Return
from rankpulse.core.sight import Sight
from rankpulse.core.views import NodeView


class Weather:
    """One per judge. Remembers only since when it has been quiet."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._quiet_since: float | None = None

    def mark(self, sight: Sight) -> set[str]:
        """Mark who is late; return the names of the nodes that are on time."""
        desk, fresh = self._desk, set()
        for node in desk.folder.fleet.nodes.values():
            if node.leaving or node.arrival.last is None:
                continue
            deadline = node.arrival.deadline()
            if desk.now <= deadline:
                fresh.add(node.name)
            elif node.silent_since is None and not sight.blind(desk.now):
                node.silent_since = deadline
        return fresh

    def judge(self, fresh: set[str], sight: Sight) -> None:
        desk = self._desk
        returns, desk.folder.beats.returns = desk.folder.beats.returns, []
        watched = [n for n in desk.folder.fleet.nodes.values() if not n.leaving and n.arrival.last is not None]
        late = [n for n in watched if n.silent_since is not None and sight.proves(n.silent_since, desk.now)]
        shared = silence.shared_delay(late, len(watched), desk.now, desk.settings.detect)
        incident = desk.book.open_of_fleet(d.CONTROL_PLANE_DELAY)
        if shared is not None and incident is None:
            incident, self._quiet_since = desk.open(shared), None
        stormy = silence.together(len(late), len(watched), desk.settings.detect)
        if incident is not None:
            self._goes_on(incident, shared, late, returns, stormy=stormy)
        if late:
            self._single(late, fresh, stormy=stormy)
        self._heard_again(returns)

    def _goes_on(
        self,
        incident: r.Incident,
        shared: Diagnosis | None,
        late: list[NodeView],
        returns: list[Return],
        *,
        stormy: bool,
    ) -> None:
        """The incident lasts while nodes are late together, and closes after a quiet time."""
        desk, quiet_s = self._desk, self._desk.settings.detect.quiet_s
        for back in returns:
            incident = self._moved(incident, back)
        if stormy:
            if self._quiet_since is not None and shared is not None:
                text = f"again: {len(late)} nodes silent together"
                incident = desk.change(incident, lambda i: book_of.noted(i, desk.at, text))
            names = tuple(sorted({*incident.nodes, *(node.name for node in late)}))[:NAMED_MAX]
            desk.change(incident, lambda i: msgspec.structs.replace(i, nodes=names))
            self._quiet_since = None
        elif self._quiet_since is None:
            self._quiet_since = desk.now
        elif desk.now - self._quiet_since >= quiet_s:
            desk.close(incident, book_of.PASSED, f"no nodes late together for {quiet_s:g} s")

    def _moved(self, incident: r.Incident, back: Return) -> r.Incident:
        """A node is heard again; if its job went on meanwhile, that is the proof that only the path was late."""
        text = f"{back.node} was silent for {back.silence_s:.1f} s"
        if back.restarted:
            text += ", with a new incarnation: its agent was restarted"
        if back.moved is None:
            return self._desk.change(incident, lambda i: book_of.noted(i, self._desk.at, text))
        rank, before, after = back.moved
        proof = f"rank {rank} went from step {before} to {after} meanwhile: the job was progressing"
        incident = self._desk.change(incident, lambda i: book_of.noted(i, self._desk.at, f"{text}; {proof}"))
        if incident.klass != d.CONTROL_PLANE_DELAY or "job progressing" in incident.summary:
            return incident
        summary, reasons = "control plane late, job progressing", (*incident.reasons, proof)
        return self._desk.change(
            incident, lambda i: msgspec.structs.replace(i, summary=summary, reasons=reasons, confidence=0.99)
        )

    def _single(self, late: list[NodeView], fresh: set[str], *, stormy: bool) -> None:
        """Each late node by itself. In a storm only a death counts, attested by peers that are seen and wait for it."""
        desk = self._desk
        runs = [run for run in desk.folder.fleet.runs.values() if run.open() and run.rounds]
        peers = silence.gather(runs, fresh)
        for node in late:
            found = silence.one_silent(node, peers, desk.now, desk.settings.detect)
            if found is None:
                continue
            if found.klass == d.NODE_DEAD:
                for run in runs:
                    if node.name in run.current.nodes():
                        self._dead(found, (run, run.current))
            elif not stormy and self._of(node.name) is None:
                desk.open(found)

    def _dead(self, found: Diagnosis, where: tuple) -> None:  # type: ignore[type-arg]
        if self._desk.book.of_round(where[0].uid, where[1].number) is None:
            self._desk.open(found, where)

    def _of(self, node: str) -> r.Incident | None:
        """The open incident about the silence of this node, if it concerns no job."""
        found = (self._desk.book.open_of_fleet(klass, (node,)) for klass in (d.SIDECAR_DEAD, d.UNKNOWN))
        return next((incident for incident in found if incident is not None), None)

    def _heard_again(self, returns: list[Return]) -> None:
        for back in returns:
            incident = self._of(back.node)
            if incident is not None:
                self._desk.close(self._moved(incident, back), book_of.PASSED, f"{back.node} is heard again")
