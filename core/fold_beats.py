"""Folding heartbeats: when a node was heard, where its ranks are, and what its job did while it was silent."""

from collections.abc import Callable
from typing import NamedTuple

from rankpulse.core import events as ev
from rankpulse.core import records as r
from rankpulse.core.fleet import Fleet
from rankpulse.core.progress import RankProgress
from rankpulse.core.settings import DetectSettings
from rankpulse.core.slot import PHASE_TRAIN
from rankpulse.core.views import NodeView, Process, RoundView, RunView, Silence, process_of

BEAT_SLACK = 1.5  # a beat may be that much longer than its interval
SOONEST = 0.33  # of that: a beat that comes sooner was held up before
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
        self.returns: list[Return] = []  # taken by the judge
        self._ahead_at: dict[str, float] = {}

    def forget(self, run: RunView) -> None:
        self._ahead_at.pop(run.uid, None)

    def sample_run_ahead(self, run: RunView, now: float) -> None:
        """How far the ranks are apart, once per interval, when all of them have just been seen.

        A late beat shows its ranks as they were: the distance it makes is the path's, not the job's.
        """
        interval = self._detect.heartbeat_interval_s
        round_ = run.current
        if now - self._ahead_at.get(run.uid, float("-inf")) < interval or not round_.stepped():
            return
        if now - min(p.seen_at for p in round_.progress.values()) > 1.25 * interval:
            return
        self._ahead_at[run.uid] = now
        steps = [p.step for p in round_.progress.values()]
        run.ahead.saw(min(steps), max(steps))

    def beat(self, beat: r.Beat, event: ev.Seen, leading: bool) -> None:
        node = self._fleet.node(beat.node)
        if (beat.inc, beat.seq) == (node.inc, node.seq):
            return
        if (beat.inc, beat.seq) < (node.inc, node.seq) and not node.relisted:
            return
        node.relisted = False
        silence_s = event.received_at - node.arrival.last if node.arrival.last is not None else 0.0
        span_s = self._span_s(node, beat)
        self._arrived(node, beat, event.received_at)
        for row in beat.ranks:
            if 0 <= row.run < len(beat.runs) and 0 <= row.phase < len(beat.phases):
                self._rank(beat, row, event, span_s)
        if node.silent_since is not None:
            self._returned(node, beat, silence_s, event.received_at)
        self._moved_meanwhile(node, beat, event.received_at)
        node.inc, node.seq, node.beat = beat.inc, beat.seq, beat

    def _span_s(self, node: NodeView, beat: r.Beat) -> float:
        """How much of the node's own time lies between this beat and the last, at most, by its own count.

        Beats that were held up arrive late and then all at once: when they arrive says nothing of what ranks did
        in between.
        """
        beats = beat.seq - node.seq if beat.inc == node.inc else 1
        interval = node.state.interval_s if node.state is not None else self._detect.heartbeat_interval_s
        return BEAT_SLACK * max(beats, 1) * interval

    def _arrived(self, node: NodeView, beat: r.Beat, now: float) -> None:
        if beat.inc != node.inc or (node.silent_since is not None and self._others_silent(node)):
            node.arrival.forget_next()
        if beat.inc != node.inc:
            node.leaving = False
            self._fold(node.goodbye_key)
            node.goodbye_key = ""
        node.arrival.beat(now)

    def _others_silent(self, node: NodeView) -> bool:
        return any(other.silent_since is not None for other in self._fleet.nodes.values() if other is not node)

    def _returned(self, node: NodeView, beat: r.Beat, silence_s: float, now: float) -> None:
        """Heard again. What its job did meanwhile is judged by the beats that follow: the first may be an old one."""
        rows = node.beat.ranks if node.beat is not None else ()
        node.silence = Silence(silence_s, now, {(row.pid, row.start): row.step for row in rows})
        node.silent_since = None
        self.returns.append(Return(node.name, silence_s, beat.inc != node.inc, None))

    def _moved_meanwhile(self, node: NodeView, beat: r.Beat, now: float) -> None:
        """Steps beyond what the time since the silence allows were made during it."""
        silence = node.silence
        if silence is None:
            return
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

    def _rank(self, beat: r.Beat, row: r.RankRow, event: ev.Seen, span_s: float) -> None:
        member = r.Member(row.rank, beat.node, row.local_rank, row.pid, row.start)
        placed = self._fleet.place(beat.runs[row.run], member, event.received_at, event.revision)
        if placed is None:
            return
        run, round_ = placed
        if round_.members.get(row.rank) != member or process_of(member) in round_.exits:
            return
        self._progress(run, round_, row, beat.phases[row.phase][:16], event.received_at, span_s)

    def _progress(self, run: RunView, round_: RoundView, row: r.RankRow, phase: str, now: float, span_s: float) -> None:
        progress = round_.progress.setdefault(row.rank, RankProgress(moved_at=now, seen_at=now))
        gap_s = now - progress.seen_at
        progress.still_s += min(gap_s, span_s)
        progress.timely &= span_s * SOONEST <= gap_s <= span_s
        if (row.step, phase) != (progress.step, progress.phase):
            elapsed = now - progress.moved_at
            if phase != progress.phase:
                run.clocks.stayed(progress.phase, elapsed)
            elif phase == PHASE_TRAIN and progress.step >= 0 and progress.timely:
                run.clocks.stepped(row.step - progress.step, elapsed)
            progress.moved_at, progress.still_s, progress.timely = now, 0.0, True
        progress.step, progress.phase, progress.state = row.step, phase, row.state
        progress.first_step, progress.seen_at = row.first_step, now
