"""Who can speak for a silent node: the runs it is in, its ranks there, and their peers that are on time.

Looked up when somebody is silent, and once per tick. A run that moves is seen to do so by one of its ranks.
"""

from collections.abc import Container

from rankpulse.core.fleet import Fleet
from rankpulse.core.records import Member
from rankpulse.core.silence import MOVING, STALLED, Peers, alibi, standstill_s
from rankpulse.core.slot import PHASE_TRAIN
from rankpulse.core.views import NodeView, Process, RunView, process_of

REMEMBERED_BEATS = 2.0  # where ranks of a run are, for nodes whose own beats do not tell


class Witnesses:
    """One per watch. `beat_s`: the heartbeat interval."""

    def __init__(self, fleet: Fleet, beat_s: float) -> None:
        self._fleet, self._beat_s = fleet, beat_s
        self._on_time: Container[str] = fleet.deadlines
        self._now = 0.0
        self._runs: dict[str, list[RunView]] = {}
        self._peers: dict[str, Peers] = {}
        self._words: dict[str, str] = {}
        self._places: dict[str, tuple[float, int, dict[str, list[Member]]]] = {}  # by run: when, round, its nodes

    def begin(self, now: float) -> None:
        """A tick begins."""
        self._now = now
        self._runs.clear()
        self._peers.clear()
        self._words.clear()
        if self._places and not self._fleet.deadlines.late:
            self._places.clear()

    def runs(self, node: NodeView) -> list[RunView]:
        """The open runs whose current round needs this node."""
        if node.name not in self._runs:
            self._runs[node.name] = self._by_beat(node) or self._by_place(node)
        return self._runs[node.name]

    def members(self, node: NodeView, run: RunView) -> list[Member]:
        """Its living ranks in the current round."""
        return self._nodes(run).get(node.name, [])

    def peers(self, run: RunView) -> Peers:
        """What the nodes on time say of a run."""
        if run.uid not in self._peers:
            self._peers[run.uid] = self._quick(run) or self._all(run)
        return self._peers[run.uid]

    def can_tell(self, node: NodeView) -> bool:
        """Whether one of its runs trains at a known pace: then it is seen whether that went on without it."""
        paced = (run for run in self.runs(node) if standstill_s(run, self._beat_s) is not None)
        return any(PHASE_TRAIN in self.peers(run).phases for run in paced)

    def alibi(self, node: NodeView) -> tuple[Peers, str] | None:
        """A run that moves, and could not without this node. Where one of its runs stands still that is used up."""
        mine = [self.peers(run) for run in self.runs(node)]
        told = [self._tell(peers) for peers in mine]
        if STALLED in told:
            return None
        for peers, word in zip(mine, told, strict=True):
            steps = self._steps(node, peers.run) if word == MOVING else []
            text = alibi(node.name, min(steps), peers) if steps else None
            if text is not None:
                return peers, text
        return None

    def _tell(self, peers: Peers) -> str:
        """Their word, once per tick: a thousand silent nodes may be of one run."""
        uid = peers.run.uid
        if uid not in self._words:
            self._words[uid] = peers.tell(self._beat_s)
        return self._words[uid]

    def _steps(self, node: NodeView, run: RunView) -> list[int]:
        progress = run.current.progress
        return [progress[m.rank].step for m in self.members(node, run) if m.rank in progress]

    def _by_beat(self, node: NodeView) -> list[RunView]:
        found: dict[str, RunView] = {}
        for row in node.beat.ranks if node.beat is not None else ():
            process = Process(node.name, row.pid, row.start)
            place = self._fleet.where(process)
            if place is not None and place[0].open() and place[1] is place[0].current and process not in place[1].exits:
                found[place[0].uid] = place[0]
        return list(found.values())

    def _by_place(self, node: NodeView) -> list[RunView]:
        """Its beats tell of no rank, or never came: then the round may say that it takes part."""
        going = (run for run in self._fleet.runs.values() if run.open() and run.rounds)
        return [run for run in going if node.name in self._nodes(run)]

    def _nodes(self, run: RunView) -> dict[str, list[Member]]:
        at, number, nodes = self._places.get(run.uid, (float("-inf"), -1, {}))
        if self._now - at > REMEMBERED_BEATS * self._beat_s or number != run.current.number:
            nodes = {place.node: [] for place in run.current.places} if run.joint is not None else {}
            for member in run.current.alive():
                nodes.setdefault(member.node, []).append(member)
            self._places[run.uid] = (self._now, run.current.number, nodes)
        return nodes

    def _quick(self, run: RunView) -> Peers | None:
        """One rank that is seen to move says that the run moves. None: all must be looked at."""
        round_, enough_s = run.current, standstill_s(run, self._beat_s)
        mover, member = round_.mover, round_.members.get(round_.witness)
        if mover is None or mover.untold or member is None or member.node not in self._on_time or enough_s is None:
            return None
        if mover.phase != PHASE_TRAIN or mover.stale_s() >= enough_s or process_of(member) in round_.exits:
            return None
        return Peers(run, mover.step, mover.moved_at, mover.stale_s(), {mover.phase})

    def _all(self, run: RunView) -> Peers:
        peers, round_ = Peers(run), run.current
        for rank, progress in round_.progress.items():
            member = round_.members.get(rank)
            if member is None or member.node not in self._on_time or process_of(member) in round_.exits:
                continue
            if progress.untold:
                continue
            peers.best = progress.step if peers.best is None else max(peers.best, progress.step)
            peers.moved_at = max(peers.moved_at, progress.moved_at)
            peers.still_s = min(peers.still_s, progress.stale_s())
            peers.phases.add(progress.phase)
        return peers
