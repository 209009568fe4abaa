"""Watching for silence: who is late, what speaks for them, whom to look at, and who is given up.

Stage 1 is the deadlines: cheap, early, reversible. Stage 2 weighs evidence before anybody is convicted. Nothing here
looks at nodes that are on time.
"""

from collections.abc import Container
from typing import NamedTuple

from rankpulse.core import cuts, silence
from rankpulse.core import diagnosis as d
from rankpulse.core import events as ev
from rankpulse.core.desk import Desk
from rankpulse.core.diagnosis import Diagnosis
from rankpulse.core.fold_beats import Return
from rankpulse.core.looks import Looks
from rankpulse.core.sight import Sight
from rankpulse.core.silence import MOVING, STALLED, Peers, Weighed
from rankpulse.core.suspects import CONVICTED, EXPIRED, HEARD, LATE, RESTARTED
from rankpulse.core.verdicts import Verdicts, dead, silent
from rankpulse.core.views import NodeView, RoundView, RunView
from rankpulse.core.weather import Weather, moved


class Conviction(NamedTuple):
    """Nodes that a run needs are dead, or it cannot be told what became of them."""

    run: RunView
    found: Diagnosis


class Watch:
    """One per judge."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._fleet = desk.folder.fleet
        self._weather = Weather(desk)
        self._looks = Looks(desk.settings.probe)
        self.verdicts = Verdicts(desk)
        self._returns: list[Return] = []
        self._peers: list[Peers] | None = None
        self._sizes: dict[str, int] | None = None
        self._judged_at: float | None = None
        self.stopped = ""  # why actions stop, "" while they do not

    # --- stage 1

    def mark(self, sight: Sight) -> Container[str]:
        """Mark who is late; returns who is seen, by beats or by looks."""
        desk, deadlines = self._desk, self._fleet.deadlines
        self._peers = self._sizes = None
        self._expect()
        deadlines.tick(desk.now)
        self._returns, desk.folder.beats.returns = desk.folder.beats.returns, []
        for back in self._returns:
            if back.moved is None and back.node in self._fleet.nodes:
                self._heard(self._fleet.nodes[back.node], back)
        if not sight.blind(desk.now):
            for node in deadlines.late.values():
                if node.silent_since is None:
                    node.silent_since = node.arrival.deadline()
                    node.suspect.learn(LATE, desk.now, "it missed its deadline")
        deadlines.answering = {
            name for name, node in deadlines.late.items() if self._alive(node) == ev.ANSWERED and node.suspect.beat
        }
        return deadlines

    def _expect(self) -> None:
        """A round was written down or has changed: beats are expected of all its nodes, also where none ever came."""
        for uid, number in self._fleet.changed_rosters:
            run = self._fleet.runs.get(uid)
            if run is None or not run.open() or not run.rounds or run.current.number != number:
                continue
            for name in run.current.nodes():
                node = self._fleet.node(name)
                if node.arrival.last is None:
                    node.arrival.expect(self._desk.now)

    def _heard(self, node: NodeView, back: Return) -> None:
        suspect = node.suspect
        if suspect.mute and not suspect.grouped and not back.restarted:
            self._desk.folder.memory.healed(min(back.silence_s, self._desk.now - suspect.life_at))
        fact = RESTARTED if back.restarted else HEARD
        suspect.learn(fact, self._desk.now, f"heard again after {back.silence_s:.1f} s")

    # --- stage 2

    def looks(self, sight: Sight) -> list[ev.Probe]:
        """Direct looks to take now: none while blind."""
        if sight.blind(self._desk.now):
            return []
        late = (node for node in self._fleet.deadlines.late.values() if node.silent_since is not None)
        return self._looks.due(late, self._desk.now)

    def judge(self, sight: Sight) -> list[Conviction]:
        """Weigh what speaks for those who are late. Returns what concerns rounds; the rest is told here."""
        desk = self._desk
        self._count(sight)
        late = [
            node
            for node in self._fleet.deadlines.late.values()
            if node.silent_since is not None and sight.proves(node.silent_since, desk.now)
        ]
        fresh_late = [node for node in late if node.suspect.state != CONVICTED]
        watched = sum(self._rack_sizes().values()) if len(fresh_late) > 1 or self.stopped else 0
        self.stopped = ""
        found = self._weigh(late, watched) if late else []
        self._weather.judge(fresh_late, watched, self._returns, withheld=self.stopped)
        self._heard_again()
        return found

    def _weigh(self, late: list[NodeView], watched: int) -> list[Conviction]:
        """Each late node by what speaks for it; those for whom nothing does, in groups that fell silent together."""
        desk, found = self._desk, []
        open_ = [node for node in late if node.suspect.state != CONVICTED]
        mute = []
        for node in late:
            if not self._spoken_for(node, found):
                mute.append(node)
        accused = [node for node in mute if node.suspect.state != CONVICTED]
        stormy = cuts.together(len(open_), watched, desk.settings.detect.shared_late_fraction)
        mass = stormy or cuts.mass(accused, self._rack_sizes() if len(accused) > 1 else {})
        if stormy:
            self.stopped = f"{len(open_)} of {watched} nodes are late together"
        elif mass:
            self.stopped = f"{len(accused)} nodes are silent at once, in more than one rack"
        for group in cuts.cuts(accused, self._rack_sizes() if len(accused) > 1 else {}, self._beat_s):
            found += self._group(group, mass=mass, stormy=stormy)
        for node in late:
            self._ceiling(node)
        return found

    def _spoken_for(self, node: NodeView, found: list[Conviction]) -> bool:
        """Whether a look or its job speaks for this node; what that comes to is told."""
        alive = self._alive(node)
        if alive:
            self._reachable(node, alive, found)
            return True
        if self._quiet_s(node) < self._soon_s():
            return False  # too early for anything to follow
        proof = self._alibi(node)
        if proof is None:
            return False
        peers, text = proof
        node.suspect.vouch(peers.moved_at, self._desk.now, text)
        if self._quiet_s(node) >= self._desk.settings.detect.sidecar_dead_after_s:
            self._tell(node, d.SIDECAR_DEAD, f"the agent on {node.name} is silent, no job suffers", text, 0.8)
        return True

    def _alibi(self, node: NodeView) -> tuple[Peers, str] | None:
        """A run that moves, and could not without this node. Where one of its runs stands still, that is used up."""
        mine = self._of(node)
        if any(peers.tell(self._beat_s) == STALLED for peers in mine):
            return None
        for peers in mine:
            text = silence.alibi(node.name, peers) if peers.tell(self._beat_s) == MOVING else None
            if text is not None:
                return peers, text
        return None

    def _reachable(self, node: NodeView, alive: str, found: list[Conviction]) -> None:
        """Its machine lives: then it is its agent, or the agent's way to the store."""
        desk, quiet_s = self._desk, self._quiet_s(node)
        said = f"a direct look: {alive}"
        if alive == ev.ANSWERED:
            if quiet_s >= desk.settings.detect.sidecar_dead_after_s:
                summary = f"the agent on {node.name} answers, but its beats do not come through the store"
                self._tell(node, d.AGENT_CUT_OFF, summary, said, 0.95)
            return
        stuck = [peers for peers in self._of(node) if peers.overdue()] if quiet_s >= desk.times.node_s else []
        for peers in stuck:
            summary = f"the job stands still and the agent on {node.name} is not to be heard: its machine lives"
            found.append(Conviction(peers.run, silent(node, d.UNKNOWN, summary, (self._said(node), said), 0.4)))
        if not stuck and quiet_s >= desk.settings.detect.sidecar_dead_after_s:
            self._tell(node, d.SIDECAR_DEAD, f"the agent on {node.name} is gone or stuck, its machine lives", said, 0.9)

    def _group(self, group: list[NodeView], *, mass: bool, stormy: bool) -> list[Conviction]:
        """Nodes that nothing speaks for, and that fell silent together."""
        desk, anew_at = self._desk, self._fleet.anew.at
        self._regroup(group, mass=mass)
        if desk.now - max(node.life_at(anew_at) for node in group) < self._soon_s():
            return []
        needed = [node for node in group if self._of(node)]
        for node in group:
            if node not in needed:
                self._idle(node, stormy=stormy)
        if not needed:
            return []
        mine = [peers for peers in self._all_peers() if any(node.name in peers.by_node for node in needed)]
        weighed = silence.weigh(needed, mine, desk.now, desk.times, self._beat_s, anew_at=anew_at, mass=mass)
        for node in needed:
            node.suspect.mute |= weighed.stalled
            node.suspect.learn(weighed.fact, desk.now, weighed.reason)
        if weighed.fact == EXPIRED:
            return [
                Conviction(p.run, dead(needed, p, weighed.reason, weighed.confidence))
                for p in weighed.runs
                if any(node.name in p.by_node for node in needed)
            ]
        self._doubtful(needed, weighed, stormy=stormy)
        return []

    def _doubtful(self, group: list[NodeView], weighed: Weighed, *, stormy: bool) -> None:
        if weighed.klass != d.UNKNOWN or stormy:
            return
        for node in group:
            if self.verdicts.about(node.name) is None:
                summary = f"{node.name} is silent; whether it lives cannot be told from here"
                self._tell(node, d.UNKNOWN, summary, weighed.reason, weighed.confidence)

    def _regroup(self, group: list[NodeView], *, mass: bool) -> None:
        """One that is left over of a group has its time anew: what ended the silence of the others may end its own."""
        many = mass or len(group) > 1
        for node in group:
            if node.suspect.in_group and not many:
                node.suspect.life_at = self._desk.now
            node.suspect.in_group = many
            node.suspect.grouped |= many

    def _idle(self, node: NodeView, *, stormy: bool) -> None:
        node.suspect.learn(LATE, self._desk.now, "no job is known to run on it")
        if self._quiet_s(node) < self._desk.settings.detect.sidecar_dead_after_s or stormy:
            return
        if not self.verdicts.convicted(node.name, node.heard_at()):
            summary = f"the agent on {node.name} is silent, no job suffers"
            self._tell(node, d.SIDECAR_DEAD, summary, f"no job is known to run on {node.name}", 0.8)

    def _ceiling(self, node: NodeView) -> None:
        """Nobody is excused for ever: after long enough somebody must look, whatever speaks for it."""
        ceiling_s = self._desk.settings.detect.silence_ceiling_s
        if self._quiet_s(node) < ceiling_s or self._alive(node) or node.suspect.state == CONVICTED:
            return
        if self._needs_page(node):
            summary = f"nothing has been heard of {node.name} on any path for {ceiling_s:g} s"
            why = node.suspect.reason or "nothing speaks for it"
            self.verdicts.tell(silent(node, d.UNKNOWN, summary, (self._said(node), why), 0.3))

    def _needs_page(self, node: NodeView) -> bool:
        """No open incident that waits for a person names it."""
        return self._of(node) != [] and not any(
            node.name in incident.nodes and incident.klass in (d.UNKNOWN, d.NODE_DEAD)
            for incident in self._desk.book.open()
        )

    def _heard_again(self) -> None:
        for back in self._returns:
            incident = self.verdicts.about(back.node)
            if incident is not None:
                moved(self._desk, incident, back)
                self.verdicts.close_of(back.node, f"{back.node} is heard again")

    def is_back(self, name: str, round_: RoundView, since: float) -> bool:
        """Whether this node speaks again since then, and its processes of the round still run."""
        node = self._fleet.nodes.get(name)
        if node is None:
            return False
        beat = node.beat if node.arrival.again_at > since else node.suspect.beat
        if beat is None:
            return False
        here = {(row.pid, row.start) for row in beat.ranks}
        return {(m.pid, m.start) for m in round_.alive() if m.node == name} <= here

    # --- what is known

    @property
    def _beat_s(self) -> float:
        return self._desk.settings.detect.heartbeat_interval_s

    def _soon_s(self) -> float:
        """Nothing follows from a shorter silence."""
        detect = self._desk.settings.detect
        return min(*self._desk.times[:3], detect.sidecar_dead_after_s) - self._beat_s

    def _alive(self, node: NodeView) -> str:
        """What the last look says if it speaks for the machine, "" otherwise."""
        now = self._desk.now
        return node.suspect.seen_alive(now, self._looks.recent_s(node, now))

    def _quiet_s(self, node: NodeView) -> float:
        """For how long no beat has come; where none ever came, since deadlines started."""
        last = node.arrival.last
        return self._desk.now - (last if last is not None else self._fleet.anew.at)

    def _said(self, node: NodeView) -> str:
        return f"{node.name} has been silent for {self._quiet_s(node):.1f} s"

    def _tell(self, node: NodeView, klass: str, summary: str, why: str, confidence: float) -> None:
        self.verdicts.tell(silent(node, klass, summary, (self._said(node), why), confidence))

    def _all_peers(self) -> list[Peers]:
        if self._peers is None:
            runs = [run for run in self._fleet.runs.values() if run.open() and run.rounds]
            self._peers = silence.gather(runs, self._fleet.deadlines)
        return self._peers

    def _of(self, node: NodeView) -> list[Peers]:
        return [peers for peers in self._all_peers() if node.name in peers.by_node]

    def _rack_sizes(self) -> dict[str, int]:
        if self._sizes is None:
            self._sizes = cuts.rack_sizes(self._fleet.nodes.values())
        return self._sizes

    def _count(self, sight: Sight) -> None:
        """Node-days that were watched with good sight."""
        now, before = self._desk.now, self._judged_at
        self._judged_at = now
        if before is None or sight.blind(now) or now < sight.hold_until:
            return
        passed_s = now - before
        if 0 < passed_s <= self._desk.settings.detect.observer_gap_s:
            seen = len(self._fleet.nodes) - len(self._fleet.deadlines.late)
            self._desk.folder.memory.watched(seen * passed_s)
