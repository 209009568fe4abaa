"""Watching for silence, stage 2: what speaks for those who are late, and what becomes of the others."""

from typing import Final, NamedTuple

from rankpulse.core import cuts
from rankpulse.core import diagnosis as d
from rankpulse.core import events as ev
from rankpulse.core.desk import Desk
from rankpulse.core.diagnosis import Diagnosis
from rankpulse.core.looks import Looks
from rankpulse.core.silence import Case, Weighed, weigh
from rankpulse.core.suspects import CONVICTED, EXPIRED, LATE, SHARED
from rankpulse.core.telling import CUT_OFF, NOBODY_SUFFERS, STUCK, UNTOLD, Form, Telling, dead, silent, unheard
from rankpulse.core.verdicts import Verdicts
from rankpulse.core.views import NodeView, RunView
from rankpulse.core.witnesses import Witnesses

LASTING_BEATS: Final = 5.0  # of answers to looks: after a long silence they come a little before the beats do


class Conviction(NamedTuple):
    """Nodes that a run needs are dead, or it cannot be told what became of them."""

    run: RunView
    found: Diagnosis


class Session(NamedTuple):
    """What one tick came to."""

    convictions: list[Conviction]
    withheld: str  # why nobody is convicted although it was time, or ""
    mass: str = ""  # why actions stop, or ""
    silent: frozenset[str] = frozenset()  # of whom nothing is heard on any path for as long as several are given
    fallen: frozenset[str] = frozenset()  # given up lately: they fell silent with others that are suspected still


class Hearing:
    """One per watch."""

    def __init__(self, desk: Desk, witnesses: Witnesses, verdicts: Verdicts, looks: Looks) -> None:
        self._desk, self._witnesses, self._verdicts, self._looks = desk, witnesses, verdicts, looks
        self._fleet = desk.folder.fleet
        self._detect = desk.settings.detect
        self._telling = Telling(self._detect.heartbeat_interval_s)
        self._found: list[Conviction] = []
        self._withheld = ""

    def hear(self, late: list[NodeView], sizes: dict[str, int], *, stormy: bool) -> Session:
        """Each late node by what speaks for it; the others in groups that fell silent together.

        `sizes`: nodes per rack, where several are late. `stormy`: the path they share is late.
        """
        self._telling = Telling(self._detect.heartbeat_interval_s)
        self._found, self._withheld = [], ""
        mute = [node for node in late if not self._is_spoken_for(node)]
        accused = [node for node in mute if node.suspect.state != CONVICTED]
        many = cuts.mass(accused, sizes)
        for group in cuts.cuts(accused, sizes, self._detect.heartbeat_interval_s):
            self._group(group, mass=stormy or many, stormy=stormy)
        for form, words in self._telling.groups():
            self._verdicts.together(form, words)
        self._ceiling(late)
        fallen = [node for node in self._fallen(late) if node not in accused]
        mass = ""
        if many or (accused and cuts.mass(accused + fallen, sizes)):
            mass = f"{len(accused + fallen)} nodes are silent at once, in more than one rack"
        return Session(self._found, self._withheld, mass, self._silent(mute), frozenset(node.name for node in fallen))

    def _fallen(self, late: list[NodeView]) -> list[NodeView]:
        """Those that were given up lately, while some that fell silent with them are not yet: it may be one cause.

        After twice the time that several are given, all is said about them, and the breaker has seen to it.
        """
        near_s, now, anew_at = self._desk.times.rack_s, self._desk.now, self._fleet.anew.at
        began = [node.silence_began() for node in late if node.suspect.state != CONVICTED]
        return [
            node
            for node in late
            if began
            and node.suspect.state == CONVICTED
            and now - node.life_at(anew_at) < 2 * near_s
            and min(began) - near_s <= node.silence_began() <= max(began) + near_s
            and self._witnesses.runs(node)
        ]

    def _silent(self, mute: list[NodeView]) -> frozenset[str]:
        """Those of whom nothing is heard for long, if a job needs any of them. The dead that were left out are past."""
        limit_s, anew_at = self._desk.times.rack_s, self._fleet.anew.at
        long = [
            node
            for node in mute
            if node.suspect.state == CONVICTED or self._desk.now - node.life_at(anew_at) >= limit_s
        ]
        needed = [node for node in long if self._witnesses.runs(node)]
        idle = [node for node in long if node.suspect.state != CONVICTED] if needed else []
        return frozenset(node.name for node in (*needed, *idle))

    # --- what speaks for one

    def _is_spoken_for(self, node: NodeView) -> bool:
        """Whether a look or its job speaks for this node; what that comes to is told."""
        alive = self._alive(node)
        if alive:
            self._reachable(node, alive)
            return True
        if self._quiet_s(node) < self._soon_s():
            return False  # too early for anything to follow
        proof = self._witnesses.alibi(node)
        if proof is None:
            return False
        peers, text = proof
        node.suspect.vouch(peers.moved_at, self._desk.now, text)
        if self._detect.sidecar_dead_after_s <= self._quiet_s(node) < self._detect.silence_ceiling_s:
            self._tell(node, NOBODY_SUFFERS, text)
        return True

    def _reachable(self, node: NodeView, alive: str) -> None:
        """Its machine lives: then it is its agent, or the agent's way to the store."""
        quiet_s, said = self._quiet_s(node), f"a direct look: {alive}"
        if self._verdicts.told(node.name, d.NODE_DEAD):
            return  # it comes back, perhaps without its workers: that is the end of this incident, or part of it
        since = max(node.suspect.same_since, self._fleet.anew.at)  # what did not come while we were blind is no fact
        lasting = self._desk.now - since >= LASTING_BEATS * self._detect.heartbeat_interval_s
        patient = quiet_s < self._detect.sidecar_dead_after_s or not lasting
        if alive == ev.ANSWERED:
            if not patient:
                self._tell(node, CUT_OFF, said)
            return
        runs = self._witnesses.runs(node) if quiet_s >= min(self._desk.times.node_s, self._soon_s()) else []
        stuck = [run for run in runs if quiet_s >= self._desk.times.node_s and self._witnesses.peers(run).overdue()]
        for run in stuck:
            summary = f"the job stands still, and the agent on {node.name} says nothing although its machine lives"
            self._found.append(Conviction(run, silent(node, summary, (self._said(node), said), 0.4)))
        watched = quiet_s < self._detect.silence_ceiling_s or self._is_seen_to(node)  # else the ceiling speaks of it
        if not stuck and not patient and watched:
            self._tell(node, STUCK, said)

    # --- those for whom nothing speaks

    def _group(self, group: list[NodeView], *, mass: bool, stormy: bool) -> None:
        anew_at, now = self._fleet.anew.at, self._desk.now
        self._regroup(group, mass=mass)
        if now - max(node.life_at(anew_at) for node in group) < self._soon_s():
            return
        needed = [node for node in group if self._witnesses.runs(node)]
        for node in group:
            if not self._witnesses.runs(node):
                self._idle(node, stormy=stormy)
        if not needed:
            return
        runs = {run.uid: run for node in needed for run in self._witnesses.runs(node)}
        case = Case(needed, [self._witnesses.peers(run) for run in runs.values()], anew_at, mass)
        weighed = weigh(case, now, self._desk.times, self._detect.heartbeat_interval_s)
        for node in needed:
            node.suspect.mute |= weighed.stalled
            node.suspect.learn(weighed.fact, now, weighed.reason)
        if weighed.fact == SHARED:
            self._withheld = weighed.reason
        self._conclude(needed, weighed, stormy=stormy)

    def _conclude(self, group: list[NodeView], weighed: Weighed, *, stormy: bool) -> None:
        if weighed.fact == EXPIRED:
            for run in weighed.runs:
                theirs = [node for node in group if run in self._witnesses.runs(node)]
                members = [member for node in theirs for member in self._witnesses.members(node, run)]
                self._found.append(Conviction(run, dead(run, theirs, members, weighed.reason, weighed.confidence)))
        elif weighed.klass == d.UNKNOWN and not stormy:
            for node in group:
                if self._quiet_s(node) < self._detect.silence_ceiling_s:
                    self._tell(node, UNTOLD, weighed.reason)

    def _regroup(self, group: list[NodeView], *, mass: bool) -> None:
        """One that is left over of a group has its time anew: what ended the silence of the others may end its own."""
        many = mass or len(group) > 1
        for node in group:
            if node.suspect.in_group and not many:
                node.suspect.life_at = self._desk.now
            node.suspect.in_group = many
            node.suspect.grouped |= many

    def _idle(self, node: NodeView, *, stormy: bool) -> None:
        """No job needs it. Once its lease has run out as well, it is not missed any more."""
        node.suspect.learn(LATE, self._desk.now, "no job is known to run on it")
        if node.arrival.last is None or node.lapsed_at > node.heard_at():
            del self._fleet.nodes[node.name]
            self._desk.folder.say("info", f"{node.name} is no longer watched: its lease ended and no job needs it")
            return
        told = stormy or self._verdicts.convicted(node.name, node.heard_at())
        if self._quiet_s(node) >= self._detect.sidecar_dead_after_s and not told:
            self._tell(node, NOBODY_SUFFERS, f"no job is known to run on {node.name}")

    def _ceiling(self, late: list[NodeView]) -> None:
        """Nobody is excused for ever: after long enough somebody must look, whatever speaks for it."""
        over = [
            node
            for node in late
            if self._quiet_s(node) >= self._detect.silence_ceiling_s
            and not self._is_seen_to(node)
            and node.suspect.state != CONVICTED
            and self._witnesses.runs(node)
        ]
        if over and not all(self._verdicts.told(node.name, d.UNKNOWN, d.NODE_DEAD) for node in over):
            self._verdicts.tell(unheard(over, self._detect.silence_ceiling_s))

    # --- what is known

    def _is_seen_to(self, node: NodeView) -> bool:
        """Its agent answers; or its machine does, and peers on time will tell when its job waits for it."""
        alive = self._alive(node)
        peers = [self._witnesses.peers(run) for run in self._witnesses.runs(node)] if alive else []
        return alive == ev.ANSWERED or (bool(alive) and all(one.best is not None for one in peers))

    def _soon_s(self) -> float:
        """Nothing follows from a shorter silence."""
        return min(*self._desk.times[:3], self._detect.sidecar_dead_after_s) - self._detect.heartbeat_interval_s

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

    def _tell(self, node: NodeView, form: Form, why: str) -> None:
        if not self._verdicts.of_round(node.name) and not self._verdicts.of_gpu(node, form):
            self._telling.add(form, node, self._said(node), why)
