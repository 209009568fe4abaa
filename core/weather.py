"""The one incident of a late control plane: opened when many are late together, closed after a quiet time."""

import msgspec

from rankpulse.core import diagnosis as d
from rankpulse.core import incidents as book_of
from rankpulse.core import records as r
from rankpulse.core.cuts import together
from rankpulse.core.desk import Desk
from rankpulse.core.diagnosis import NAMED_MAX, Diagnosis
from rankpulse.core.fold_beats import Return
from rankpulse.core.views import NodeView


class Weather:
    """One per judge. Remembers only since when it has been quiet."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._quiet_since: float | None = None

    def judge(self, late: list[NodeView], watched: int, returns: list[Return], *, withheld: str) -> None:
        """`late`: proven to be, and not convicted. `withheld`: why nobody is convicted although it was time, or ""."""
        desk = self._desk
        incident = desk.book.open_of_fleet(d.CONTROL_PLANE_DELAY)
        stormy = together(len(late), watched, desk.settings.detect.shared_late_fraction) or bool(withheld)
        shared = self._shared(late, watched, withheld) if stormy else None
        if shared is not None and incident is None:
            incident, self._quiet_since = desk.open(shared), None
        if incident is not None:
            self._goes_on(incident, shared, late, returns, stormy=stormy)

    def _shared(self, late: list[NodeView], watched: int, withheld: str) -> Diagnosis | None:
        """Many unrelated nodes late together: their common path is late, not they."""
        desk = self._desk
        since = min(node.silent_since for node in late if node.silent_since is not None)
        if desk.now - since < desk.settings.detect.settle_s:
            return None
        silence = desk.now - min(max(node.heard_at(), desk.folder.fleet.anew.at) for node in late)
        return Diagnosis(
            d.CONTROL_PLANE_DELAY,
            (),
            (),
            tuple(sorted(node.name for node in late))[:NAMED_MAX],
            0.9,
            f"control plane late: {len(late)} of {watched} nodes silent together, actions stop",
            (
                f"{len(late)} of {watched} nodes missed their deadline together, the longest silent for {silence:.1f} "
                "s: unrelated nodes do not die in the same second, the path they share is late",
                withheld or "this monitor's own writes came back meanwhile: its sight of the store is good",
            ),
            (),
            since,
        )

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
            incident = moved(desk, incident, back)
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


def moved(desk: Desk, incident: r.Incident, back: Return) -> r.Incident:
    """A node is heard again; if its job went on meanwhile, that is the proof that only the path was late."""
    text = f"{back.node} was silent for {back.silence_s:.1f} s"
    if back.restarted:
        text += ", with a new incarnation: its agent was restarted"
    if back.moved is None:
        return desk.change(incident, lambda i: book_of.noted(i, desk.at, text))
    rank, before, after = back.moved
    proof = f"rank {rank} went from step {before} to {after} meanwhile: the job was progressing"
    incident = desk.change(incident, lambda i: book_of.noted(i, desk.at, f"{text}; {proof}"))
    if incident.klass != d.CONTROL_PLANE_DELAY or "job progressing" in incident.summary:
        return incident
    summary, reasons = "control plane late, job progressing", (*incident.reasons, proof)
    return desk.change(
        incident, lambda i: msgspec.structs.replace(i, summary=summary, reasons=reasons, confidence=0.99)
    )
