"""Folding what our rendezvous, the cordons and the gates say. Idempotent and total, like the rest of the folding."""

from collections.abc import Iterator

from rankpulse.core import events as ev
from rankpulse.core import records as r
from rankpulse.core.fleet import Fleet
from rankpulse.core.keys import Keys, Parsed
from rankpulse.core.views import RunView


class JointFolder:
    """Everything believed about rounds that agents arrange among themselves."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self.cordons: dict[str, r.Cordon] = {}
        self.gates: dict[tuple[str, int], r.Gate] = {}

    def cordon(self, cordon: r.Cordon, event: ev.Seen, leading: bool) -> None:
        self.cordons[cordon.node] = cordon

    def gate(self, gate: r.Gate, event: ev.Seen, leading: bool) -> None:
        self.gates[gate.run_uid, gate.round] = gate

    def rendezvous(self, record: r.Launch | r.Joiner | r.Meeting, event: ev.Seen) -> None:
        """A launch, one of its torchruns, or a round of it. One that goes by the name of a plain launch is ignored."""
        run = self._fleet.joint_run(record.run_uid, event.received_at)
        if run is None or run.joint is None:
            return
        if isinstance(record, r.Launch):
            run.joint.launched(record, event.received_at)
            run.run_id = record.label
        elif isinstance(record, r.Joiner):
            self._fleet.launcher_of(run, run.joint.joined(record, event.received_at), there=not record.left)
        else:
            run.joint.met(record)
            self._fleet.convene(run, record, event.received_at)

    def gone(self, parsed: Parsed, now: float) -> None:
        """A key was deleted; what round it was stays known."""
        names = parsed.names
        if parsed.kind is r.Cordon:
            self.cordons.pop(names["node"], None)
        elif parsed.kind is r.Gate:
            self.gates.pop((names["run_uid"], names["round"]), None)
        elif parsed.kind in (r.Launch, r.Joiner):
            run = self._fleet.runs.get(names["run_uid"])
            if run is not None and run.joint is not None:
                self._parted(run, parsed, now)

    def relisted(self, now: float) -> None:
        self.cordons.clear()
        self.gates.clear()
        for run in self._fleet.runs.values():
            if run.joint is not None:
                run.joint.relisted(now)
                self._fleet.without_launchers(run)

    def leftovers(self, run: RunView, keys: Keys) -> Iterator[str]:
        """What the agents should have deleted when the run ended."""
        if run.joint is None:
            return
        for who in run.joint.joiners:
            yield keys.joiner(run.uid, who.node, who.launcher)
        for number in run.joint.meetings:
            yield keys.meeting(run.uid, number)
        if run.joint.launch is not None and not run.joint.deleted:
            yield keys.launch(run.uid)

    def _parted(self, run: RunView, parsed: Parsed, now: float) -> None:
        assert run.joint is not None
        if parsed.kind is r.Launch:
            run.joint.lost(now)
            return
        who = r.Launcher(parsed.names["node"], parsed.names["launcher"])
        run.joint.parted(who, now)
        if who in run.launchers:
            run.launchers[who] = False
