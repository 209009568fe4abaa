"""Folding heartbeats: when a node was heard, where its ranks are, and what its job did while it was silent."""

from collections.abc import Callable
from operator import attrgetter
from typing import NamedTuple

from rankpulse.core import events as ev
from rankpulse.core import records as r
from rankpulse.core.fleet import Fleet
from rankpulse.core.fold_ranks import RankFolder
from rankpulse.core.progress import RankProgress
from rankpulse.core.settings import DetectSettings
from rankpulse.core.views import NodeView, Process, RunView, Silence

BEAT_SLACK = 1.5  # a beat may be that much longer than its interval
_SEEN_AT, _STEP = attrgetter("clock.seen_at"), attrgetter("mark.step")
AFTERWARDS = 3  # beats after a goodbye: so many may have been under way
AHEAD_BEATS, AHEAD_FACTOR = 60, 4.0  # by so much may what an agent says when looked at be ahead of its beats
MOVED_WITHIN_S = 10.0  # after a silence: by then a beat has shown what the job did during it


class Return(NamedTuple):
    """A silent node was heard again."""

    node: str
    silence_s: float
    restarted: bool  # another incarnation of its agent
    moved: tuple[int, int, int] | None  # (rank, step before, step after): proof that its job went on meanwhile


class BeatFolder:
    """Everything believed that comes from heartbeats."""

    def __init__(self, fleet: Fleet, detect: DetectSettings, fold: Callable[[str], None]) -> None:
        """`fold`: told the keys of observations that have done their work."""
        self._fleet, self._detect, self._fold = fleet, detect, fold
        self._nodes = fleet.nodes
        self.ranks = RankFolder(fleet)
        self.returns: list[Return] = []  # taken by the judge
        self._ahead_at: dict[str, float] = {}
        self._laggards: dict[str, RankProgress] = {}  # by run_uid: not seen for the longest, when last looked

    def forget(self, run: RunView) -> None:
        self._ahead_at.pop(run.uid, None)
        self._laggards.pop(run.uid, None)

    def sample_run_ahead(self, run: RunView, now: float) -> None:
        """How far the ranks are apart, once per interval, when all of them have just been seen.

        A late beat shows its ranks as they were: the distance it makes is the path's, not the job's.
        """
        interval = self._detect.heartbeat_interval_s
        round_ = run.current
        if now - self._ahead_at.get(run.uid, float("-inf")) < interval or not round_.stepped():
            return
        laggard = self._laggards.get(run.uid)
        if laggard is not None and now - laggard.seen_at > 1.25 * interval and laggard in round_.progress.values():
            return
        laggard = self._laggards[run.uid] = min(round_.progress.values(), key=_SEEN_AT)
        if now - laggard.seen_at > 1.25 * interval:
            return
        self._ahead_at[run.uid] = now
        steps = [*map(_STEP, round_.progress.values())]
        run.ahead.saw(min(steps), max(steps))

    def beat(self, beat: r.Beat, event: ev.Seen, leading: bool) -> None:
        """A heartbeat. This is where an engine spends its time: no call, loop or lookup here without need."""
        _, _, revision, now = event
        node = self._nodes.get(beat.node)
        if (
            node is None
            or beat.inc != node.inc
            or node.silent_since is not None
            or node.relisted
            or node.looked
            or node.leaving
        ):
            self._unusual(beat, now, revision)
            return
        beats = beat.seq - node.seq
        if beats <= 0:
            return
        node.arrival.beat(now)
        if self.ranks.fold(node, beat, now, revision, self._span_s(node, beats)):
            node.beat = beat
        if node.silence is not None:
            self._moved_meanwhile(node, node.silence, beat, now)
        node.seq = beat.seq

    def _is_ahead(self, node: NodeView, beat: r.Beat, now: float) -> bool:
        """Its number is beyond all that the time since the last beat allows: it would hide the beats to come."""
        since_s = now - (node.arrival.last if node.arrival.last is not None else now)
        return beat.seq - node.seq > AHEAD_BEATS + AHEAD_FACTOR * since_s / self._detect.heartbeat_interval_s

    def _unusual(self, beat: r.Beat, now: float, revision: int) -> None:
        """The beat of a new or restarted agent, one after a silence, or the first of a listing."""
        node = self._fleet.node(beat.node)
        if (beat.inc, beat.seq) == (node.inc, node.seq):
            return
        if (beat.inc, beat.seq) < (node.inc, node.seq) and not node.relisted:
            return
        if node.relisted:
            node.relisted, node.looked = False, None
        last, steps = node.arrival.last, self._steps(node) if node.silent_since is not None else {}
        node.steps = None
        self._arrived(node, beat, now)
        self._rows(node, beat, now, revision)
        if node.silent_since is not None:
            silence = Silence(now - last if last is not None else 0.0, now, steps)
            self._returned(node, silence, restarted=beat.inc != node.inc)
        if node.silence is not None:
            self._moved_meanwhile(node, node.silence, beat, now)
        node.inc, node.seq, node.beat = beat.inc, beat.seq, beat

    def looked(self, beat: r.Beat, now: float, revision: int = 0) -> bool:
        """What an agent said of its ranks when it was looked at, past the store: progress, and no beat of the store's.

        False: nothing new. The beats of the store that it was ahead of are heard when they come; their rows are old.
        """
        node = self._nodes.get(beat.node)
        known = node is not None and beat.inc == node.inc and beat.seq > node.seq
        if (
            node is None
            or not known
            or self._is_ahead(node, beat, now)
            or (node.looked is not None and (beat.inc, beat.seq) <= node.looked)
        ):
            return False
        node.steps = self._steps(node)
        self._rows(node, beat, now, revision)
        node.looked = (beat.inc, beat.seq)
        return True

    def _rows(self, node: NodeView, beat: r.Beat, now: float, revision: int) -> None:
        """Fold the rows of a beat unless a look has told them, or newer ones."""
        here, last = (beat.inc, beat.seq), node.looked or (node.inc, node.seq)
        if node.looked is not None and here <= last:
            return
        beats = max(beat.seq - last[1], 1) if beat.inc == last[0] else 1
        self.ranks.fold(node, beat, now, revision, self._span_s(node, beats))
        node.looked = None

    def _span_s(self, node: NodeView, beats: int) -> float:
        """How much of the node's own time lies between two beats that are so many apart by its own count, at most.

        Beats that were held up arrive late and then all at once: when they arrive says nothing of what ranks did
        in between.
        """
        interval_s = node.interval_s if node.interval_s is not None else self._detect.heartbeat_interval_s
        return BEAT_SLACK * beats * interval_s

    def _arrived(self, node: NodeView, beat: r.Beat, now: float) -> None:
        if beat.inc != node.inc or (node.silent_since is not None and self._others_silent(node)):
            node.arrival.forget_next()
        if beat.inc != node.inc:
            node.leaving = False
            self._fold(node.goodbye_key)
            node.goodbye_key = ""
        elif node.leaving:
            node.afterwards += 1
            if node.afterwards > AFTERWARDS:
                self._fold(node.goodbye_key)
                node.leaving, node.goodbye_key = False, ""
        node.arrival.beat(now)

    def _others_silent(self, node: NodeView) -> bool:
        late = self._fleet.deadlines.late
        return len(late) > (node.name in late)

    def _returned(self, node: NodeView, silence: Silence, *, restarted: bool) -> None:
        """Heard again. What its job did meanwhile is judged by the beats that follow: the first may be an old one."""
        node.silence, node.silent_since = silence, None
        self.returns.append(Return(node.name, silence.lasted_s, restarted, None))

    def _steps(self, node: NodeView) -> dict[tuple[int, int], int]:
        """(pid, start) -> step, as the store's last beat told it."""
        if node.steps is not None:
            return node.steps
        steps = {}
        for row, rank in zip(node.rows, node.ranks, strict=True):
            mine = rank is not None and rank.clock is node.clock
            steps[row.pid, row.start] = rank.step if rank is not None and mine else row.step
        return steps

    def _moved_meanwhile(self, node: NodeView, silence: Silence, beat: r.Beat, now: float) -> None:
        """Steps beyond what the time since the silence allows were made during it."""
        since_s = now - silence.ended_at
        for row in beat.ranks:
            before = silence.steps.get((row.pid, row.start), row.step)
            found = self._fleet.where(Process(beat.node, row.pid, row.start))
            step_s = found[0].clocks.typical_step_s() if found is not None else None
            if (
                before >= 0
                and row.step > before
                and (row.step - before) * (step_s or 0.0) > silence.lasted_s / 2 + since_s
            ):
                self.returns.append(Return(node.name, silence.lasted_s, False, (row.rank, before, row.step)))
                node.silence = None
                return
        if since_s > MOVED_WITHIN_S:
            node.silence = None
