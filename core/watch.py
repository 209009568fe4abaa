"""Watching for silence, stage 1: who is late, whom to look at, and what they are judged by.

Nothing here looks at nodes that are on time.
"""

from collections.abc import Container

from rankpulse.core import cuts
from rankpulse.core import events as ev
from rankpulse.core.desk import Desk
from rankpulse.core.fold_beats import MOVED_WITHIN_S, Return
from rankpulse.core.hearing import Conviction, Hearing, Session
from rankpulse.core.looks import Looks
from rankpulse.core.sight import Sight
from rankpulse.core.suspects import CONVICTED, HEARD, LATE, RESTARTED
from rankpulse.core.verdicts import Verdicts
from rankpulse.core.views import NodeView
from rankpulse.core.weather import Weather
from rankpulse.core.witnesses import Witnesses

SIZES_S = 1.0  # racks do not grow faster


class Watch:
    """One per judge."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._fleet = desk.folder.fleet
        self._weather = Weather(desk)
        self._looks = Looks(desk.settings.probe)
        self._witnesses = Witnesses(self._fleet, desk.settings.detect.heartbeat_interval_s)
        self.verdicts = Verdicts(desk)
        self._hearing = Hearing(desk, self._witnesses, self.verdicts, self._looks)
        self._returns: list[Return] = []
        self._sizes: tuple[float, dict[str, int]] = (float("-inf"), {})
        self._healed: dict[str, tuple[float, float]] = {}  # silences that are over: when, and how long they lasted
        self._judged_at: float | None = None
        self.stopped = ""  # why actions stop, "" while they do not
        self.silent: frozenset[str] = frozenset()  # nodes of which nothing is heard on any path, for long

    def watched(self) -> frozenset[str]:
        """The nodes of which beats are expected."""
        in_hand = self._desk.folder.modes.maintenance
        return frozenset(
            name
            for name, node in self._fleet.nodes.items()
            if node.arrival.watched and not node.leaving and name not in in_hand
        )

    def mark(self, sight: Sight) -> Container[str]:
        """Mark who is late; returns who is seen, by beats or by looks."""
        desk, deadlines = self._desk, self._fleet.deadlines
        self._expect()
        deadlines.tick(desk.now)
        self._witnesses.begin(desk.now)
        self._returns, desk.folder.beats.returns = desk.folder.beats.returns, []
        for back in self._returns:
            if back.moved is not None:
                self._healed.pop(back.node, None)  # its job went on: only the way from it was silent
            elif back.node in self._fleet.nodes:
                self._heard(self._fleet.nodes[back.node], back)
        if not sight.blind(desk.now):
            for node in deadlines.late.values():
                if node.silent_since is None:
                    node.silent_since = node.arrival.deadline()
                    node.suspect.learn(LATE, desk.now, "it missed its deadline")
        deadlines.answering = {name for name, node in deadlines.late.items() if self._answers(node)}
        return deadlines

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
            if node.name not in desk.folder.modes.maintenance  # its silence is nobody's fault
        ]
        suspects = [node for node in late if node.suspect.state != CONVICTED]
        watched, session = 0, Session([], withheld="")
        self.stopped, self.silent = "", frozenset()
        if late:
            sizes = self._rack_sizes() if len(suspects) > 1 else {}
            watched = sum(sizes.values())
            stormy = cuts.together(len(suspects), watched, desk.settings.detect.shared_late_fraction)
            session = self._hearing.hear(late, sizes, stormy=stormy)
            self.silent = session.silent
            self.stopped = self._why_stopped(suspects, session)
        self._weather.judge(suspects, watched, self._returns, withheld=session.withheld)
        self.verdicts.follow(self._returns, seen=not sight.blind(desk.now) and desk.now >= sight.hold_until)
        return session.convictions

    def _why_stopped(self, suspects: list[NodeView], session: Session) -> str:
        """One that is given up before the others fell silent with them all the same: half of the fleet stays half."""
        together = {node.name for node in suspects} | session.fallen
        watched = sum(self._rack_sizes().values()) if len(together) > 1 else 0
        if cuts.together(len(together), watched, self._desk.settings.detect.shared_late_fraction):
            return f"{len(together)} of {watched} nodes are late together"
        return session.mass

    def _expect(self) -> None:
        """A round was written down or has changed: beats are expected of all its nodes, also where none ever came."""
        for uid, number in sorted(self._fleet.changed_rosters):
            run = self._fleet.runs.get(uid)
            if run is None or not run.open() or not run.rounds or run.current.number != number:
                continue
            for name in run.current.nodes():
                node = self._fleet.node(name)
                if node.arrival.last is None:
                    node.arrival.expect(self._desk.now)

    def _heard(self, node: NodeView, back: Return) -> None:
        suspect = node.suspect
        mute_s = min(back.silence_s, self._desk.now - suspect.life_at) if suspect.mute else 0.0
        lasted_s = max(mute_s, suspect.muted_s)
        in_hand = node.name in self._desk.folder.modes.maintenance
        otherwise = suspect.grouped or suspect.vouched or back.restarted or in_hand
        least_s = self._desk.settings.detect.heartbeat_interval_s + self._desk.settings.detect.margin_floor_s
        if lasted_s >= least_s and not otherwise and self._witnesses.can_tell(node):
            self._healed[node.name] = (self._desk.now, lasted_s)
        fact = RESTARTED if back.restarted else HEARD
        suspect.learn(fact, self._desk.now, f"heard again after {back.silence_s:.1f} s")

    def _answers(self, node: NodeView) -> bool:
        now = self._desk.now
        alive = node.suspect.seen_alive(now, self._looks.recent_s(node, now))
        return alive == ev.ANSWERED and node.suspect.beat is not None

    def _rack_sizes(self) -> dict[str, int]:
        at, sizes = self._sizes
        if not 0 <= self._desk.now - at < SIZES_S:
            sizes = cuts.rack_sizes(self._fleet.nodes.values())
            self._sizes = (self._desk.now, sizes)
        return sizes

    def _count(self, sight: Sight) -> None:
        """Silences that have healed, and node-days that were watched with good sight."""
        now, before = self._desk.now, self._judged_at
        for name, (at, lasted_s) in list(self._healed.items()):
            if now - at > MOVED_WITHIN_S:  # by now it would be known that the job went on meanwhile
                del self._healed[name]
                self._desk.folder.memory.healed(lasted_s)
        self._judged_at = now
        if before is None or sight.blind(now) or now < sight.hold_until:
            return
        if 0 < now - before <= self._desk.settings.detect.observer_gap_s:
            seen = len(self._fleet.nodes) - len(self._fleet.deadlines.late)
            self._desk.folder.memory.watched(seen * (now - before))
