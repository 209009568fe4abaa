"""Strikes: a node that alone is to blame for several incidents is left out, though nothing is seen to be wrong with it.

Blame is kept by node, for that is what survives a restart. It says little where there was nothing to compare with: a
run on one node blames that node whatever happens, and an error of the program that came up on another node as well is
the program's.
"""

from typing import TYPE_CHECKING, Final

import msgspec

from rankpulse.core import diagnosis as d
from rankpulse.core import incidents as book_of
from rankpulse.core import policy
from rankpulse.core import records as r
from rankpulse.core.budgets import blamed
from rankpulse.core.repeats import same

if TYPE_CHECKING:
    from rankpulse.core.desk import Desk

STRIKING: Final = (d.WORKER_DEAD, d.COLLECTIVE_HANG, d.NODE_DEAD, d.DATA_STALL, d.GPU_FAULT, d.STORAGE_STALL)
BROKEN: Final = (d.GPU_FAULT, d.NVLINK_DOMAIN, d.SILENT_CORRUPTION)
AT_ONCE_S: Final = 60.0  # two runs on one node suffer from one and the same thing, and notice it so far apart


class Strikes:
    """One per judge; holds nothing, all of it stands in incidents and in the record of their ages."""

    def __init__(self, desk: "Desk") -> None:
        self._desk = desk

    def judge(self, *, stopped: str) -> None:
        """Count what open incidents blame, and cordon whom they blame too often. `stopped`: why actions stop, or ""."""
        for incident in self._desk.book.open():
            living = incident.klass in d.STANDSTILLS or incident.klass == d.SILENT_CORRUPTION
            if incident.action == policy.RESTART_WITHOUT and living and not stopped:
                self._left_out(incident)
            if incident.klass in STRIKING and incident.run_uid:
                struck = self._counted(incident)
                if struck.strike and not _may_pass(struck):
                    self._weigh(struck, stopped)

    def _left_out(self, incident: r.Incident) -> None:
        """Who is to be left out though it lives: else it would be in the next round again."""
        if incident.klass not in BROKEN and not self._desk.settings.policy.strikes:
            return
        for node in incident.nodes:
            if node not in self._desk.folder.joint.cordons and not self._refused(incident, node):
                self._cordon(incident, node, f"{incident.action_reason} (incident {incident.id})")

    def against(self, node: str) -> list[r.Incident]:
        """The strikes that count against a node by now, the oldest first: what several runs suffered at once is one."""
        counted: list[r.Incident] = []
        for one in self._all_against(node):
            if not any(self._same_blow(one, other) for other in counted):
                counted.append(one)
        return counted

    def _same_blow(self, one: r.Incident, other: r.Incident) -> bool:
        ages = self._desk.budgets.age_s(one), self._desk.budgets.age_s(other)
        return one.run_uid != other.run_uid and abs((ages[0] or 0.0) - (ages[1] or 0.0)) < AT_ONCE_S

    def _all_against(self, node: str) -> list[r.Incident]:
        desk, window_s = self._desk, self._desk.settings.policy.strikes_window_s
        found = [
            i
            for i in desk.book
            if i.strike == node and i.outcome != book_of.PASSED and i.id not in desk.folder.pardoned
        ]
        ages = {i.id: desk.budgets.age_s(i) for i in found}
        young = [i for i in found if (age_s := ages[i.id]) is not None and age_s < window_s]
        return sorted(young, key=lambda i: (i.opened_at, i.id))

    def pardon(self, node: str) -> None:
        """Whoever lifts a cordon has looked at the node."""
        self._desk.folder.pardoned.update(dict.fromkeys(i.id for i in self._all_against(node)))

    def _counted(self, incident: r.Incident) -> r.Incident:
        """The incident with the node that it counts against, while its round is known."""
        run = self._desk.folder.fleet.runs.get(incident.run_uid)
        round_ = run.rounds.get(incident.round) if run is not None else None
        if round_ is None:
            return incident
        node = blamed(incident)
        if len(round_.nodes()) < 2 or incident.action == policy.STOP or self._elsewhere(incident, node):
            node = ""
        return self._desk.change(incident, lambda i: msgspec.structs.replace(i, strike=node))

    def _elsewhere(self, incident: r.Incident, node: str) -> bool:
        """Whether the same error of the program ended a worker on another node, too."""
        if not incident.fault:
            return False
        return any(i.fault and blamed(i) != node and same(i.fault, incident.fault) for i in self._desk.book)

    def _weigh(self, incident: r.Incident, stopped: str) -> None:
        desk, node, limit = self._desk, incident.strike, self._desk.settings.policy.strikes
        counted = self.against(node)
        if not limit or len(counted) < limit or node in desk.folder.joint.cordons:
            return
        names = ", ".join(i.id for i in counted[-8:])
        reason = f"it alone was to blame {len(counted)} times, though nothing is seen to be wrong with it: {names}"
        refusal = stopped or self._refused(incident, node)
        if refusal:
            desk.note(incident, f"{node} is not cordoned, although {reason}: {refusal}")
            return
        self._cordon(incident, node, reason)

    def _cordon(self, incident: r.Incident, node: str, reason: str) -> None:
        desk = self._desk
        cordon = r.Cordon(
            node=node, author=f"monitor, epoch {desk.epoch}", reason=reason, at=desk.at, owner="rankpulse",
            incident=incident.id,
        )  # fmt: skip
        desk.want(desk.keys.cordon(node), cordon, f"cordon of {node}: {reason}", once=True)
        desk.folder.joint.cordons[node] = cordon  # for gates of this very tick; a listing tells the truth
        desk.note(incident, f"{node} is cordoned: {reason}")
        desk.folder.say("warning", f"{node} is cordoned: {reason}")

    def _refused(self, incident: r.Incident, node: str) -> str:
        """Why the node may not be left out now."""
        desk = self._desk
        leave = desk.folder.modes.of(incident.run_uid)
        if not leave.armed:
            return leave.why
        run = desk.folder.fleet.runs.get(incident.run_uid)
        if run is None or not run.rounds or run.joint is None:
            return "its job meets through torch's own rendezvous, which takes no word of ours"
        room = desk.room(run, run.current, (node,))
        return "" if room.enough else f"its job could not go on without it: {room.words}"


def _may_pass(incident: r.Incident) -> bool:
    """Whether it may yet turn out to be nothing: then it must not be what a node is left out for."""
    standing = (d.COLLECTIVE_HANG, d.DATA_STALL, d.STORAGE_STALL)
    watched = incident.klass in standing and incident.action == policy.PAGE
    return watched or incident.action == policy.WAIT
