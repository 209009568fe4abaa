"""For how long something could have failed: nodes, GPUs and runs in seconds, by day of UTC, node and run.

Every monitor counts what it sees, so that one that takes over goes on from its own word since the leader's last one.
Time that nobody saw is counted as such: nothing says that nodes ran then. A rank is counted as a GPU.
"""

from collections.abc import Callable, Iterable

from rankpulse.core.exposure_day import Day, Share
from rankpulse.core.fleet import Fleet
from rankpulse.core.ledger import day_of
from rankpulse.core.records import CheckpointState, LedgerDay
from rankpulse.core.stragglers import Straggler
from rankpulse.core.views import RoundView, RunView

SAMPLE_S = 5.0
ASLEEP_S = 30.0  # between two samples: longer, and this monitor did not look
HEARD_BEATS = 10.0  # beats after which a node that says nothing is counted no more
WRITE_S, WRITE_PER_NODE_S = 60.0, 0.15  # a large day is written more seldom
SOON_S = 10.0  # after which a run that is new is told of, or time in which something failed
DAYS_KEPT = 2  # in memory: the present one, and the one before until it is written
NODES_MAX, RUNS_MAX = 10_000, 500  # rows of a day, for the store takes no record of any size; beyond, only sums count
NAME_MAX = 80
SPREAD_MAX_DAYS = 400
DAY_S = 86400.0


class Exposure:
    """One per engine. Times are the observer's monotonic seconds; `at` names the day."""

    def __init__(self, heartbeat_interval_s: float, known: Callable[[str], LedgerDay | None] = lambda _: None) -> None:
        """`known`: what the store's ledger says of a day."""
        self._known = known
        self._heard_s = HEARD_BEATS * heartbeat_interval_s
        self._days: dict[str, Day] = {}
        self._looked_at: float | None = None
        self._stored_at: float | None = None  # UTC: up to when the store's newest word counts
        self._since_s = 0.0  # counted here since that was seen
        self._written_at: float | None = None
        self._soon = True  # what is new should not wait for long
        self._ranks: dict[str, tuple[tuple[int, int, int], dict[str, int]]] = {}  # by run: alive ranks by node
        self._saves: dict[str, int] = {}

    def stored(self, told: LedgerDay, now: float, *, leading: bool) -> None:
        """The store's word on a day, seen at `now`. Who leads wrote it, and knows more by now.

        Who does not counts on from here: what came before is in it, or is counted as unseen when office is taken.
        """
        if leading:
            return
        self._days.pop(told.day, None)  # it is taken from the store again where more of it is to be counted
        if self._stored_at is None or told.at >= self._stored_at:
            self._stored_at, self._since_s, self._looked_at = told.at, 0.0, now
        self._bound()

    def begun_anew(self) -> None:
        """Somebody has begun another ledger: what was counted so far belongs to the old one."""
        self._days.clear()
        self._stored_at, self._since_s = None, 0.0

    def took_office(self, now: float, at: float) -> None:
        """What lies between the last leader's word and what this monitor has seen itself was seen by nobody.

        What it will count at its next sample began when it last looked.
        """
        looked_at = self._looked_at if self._looked_at is not None else now
        counted_to = at - (now - looked_at)
        if self._stored_at is not None:
            self._spread(self._stored_at, counted_to - self._since_s)
        self._stored_at, self._since_s, self._looked_at = counted_to, 0.0, looked_at

    def sample(
        self,
        fleet: Fleet,
        now: float,
        at: float,
        *,
        seeing: bool,
        saved: Callable[[str], CheckpointState | None],
        slow: Callable[[str], list[Straggler]],
    ) -> None:
        """Count the time since the last look, every few seconds. `seeing`: this monitor can trust its own sight."""
        if self._looked_at is None:
            self._looked_at = now
        span_s = now - self._looked_at
        if span_s < SAMPLE_S:
            self._looked_at = min(self._looked_at, now)
            return
        self._looked_at, self._since_s = now, self._since_s + span_s
        day = self._day(day_of(at))
        if not seeing or span_s > ASLEEP_S:
            day.unseen_s += span_s
        else:
            heard = self._nodes(day, fleet, now, span_s)
            for run in fleet.runs.values():
                if run.rounds and run.open():
                    self._run(day, run, span_s, heard, saved(run.uid), slow(run.uid))
        self._ranks = {uid: row for uid, row in self._ranks.items() if uid in fleet.runs}
        self._saves = {uid: count for uid, count in self._saves.items() if uid in fleet.runs}

    def hurry(self) -> None:
        """Something is to be counted against the time that ran: let it be told of soon."""
        self._soon = True

    def due(self, now: float, at: float, origin: str) -> Iterable[LedgerDay]:
        """The days as they should be written now."""
        if self._written_at is None:
            self._written_at = now
        largest = max((len(day.nodes) for day in self._days.values()), default=0)
        soon = self._soon and now - self._written_at >= SOON_S
        if not soon and now - self._written_at < max(WRITE_S, WRITE_PER_NODE_S * largest):
            return
        counted_to = at - (now - (self._looked_at if self._looked_at is not None else now))
        self._written_at, self._soon, self._stored_at, self._since_s = now, False, counted_to, 0.0
        for name, day in sorted(self._days.items()):
            if day.fresh:
                day.fresh = False
                yield day.record(name, origin, counted_to)

    def _bound(self) -> None:
        """Days that are written are the store's."""
        for name in sorted(self._days)[:-DAYS_KEPT]:
            if not self._days[name].fresh:
                del self._days[name]

    def _day(self, name: str) -> Day:
        """One that is not in memory may stand in the store: a clock that is set back comes to it a second time."""
        day = self._days.get(name)
        if day is None:
            told = self._known(name)
            day = self._days[name] = Day.of(told) if told is not None else Day()
        day.fresh = True
        self._bound()
        return day

    def _spread(self, begin: float, end: float) -> None:
        """Nobody saw from `begin` to `end`, UTC: to each day its part."""
        for _ in range(SPREAD_MAX_DAYS):
            if end - begin < 1.0:
                return
            midnight = (begin // DAY_S + 1) * DAY_S
            self._day(day_of(begin)).unseen_s += min(end, midnight) - begin
            begin = midnight

    def _nodes(self, day: Day, fleet: Fleet, now: float, span_s: float) -> set[str]:
        """Those that were heard."""
        heard = {name for name, node in fleet.nodes.items() if now - node.heard_at() <= self._heard_s}
        day.node_s += span_s * len(heard)
        for name in heard:
            _add(day.nodes, name, 0, span_s)
        return heard

    def _run(
        self,
        day: Day,
        run: RunView,
        span_s: float,
        heard: set[str],
        state: CheckpointState | None,
        slow: list[Straggler],
    ) -> None:
        share = day.runs.get(run.uid)
        if share is None:
            share = Share(run.run_id[:NAME_MAX])
            if len(day.runs) < RUNS_MAX:
                day.runs[run.uid], self._soon = share, True
        day.run_s += span_s
        share.run_s += span_s
        alive = self._alive(run.uid, run.current).items()
        for node, ranks in [row for row in alive if row[0] in heard]:
            day.gpu_s += ranks * span_s
            share.gpu_s += ranks * span_s
            _add(day.nodes, node, 1, ranks * span_s)
        saves = state.saves if state is not None else 0
        if state is not None and saves > self._saves.get(run.uid, saves):
            share.checkpoint_s += (saves - self._saves[run.uid]) * (state.save_s + state.verify_s)
        self._saves[run.uid] = saves
        if slow:
            share.straggling_s += span_s * (1.0 - 1.0 / max(slow[0].ratio, 1.0))

    def _alive(self, uid: str, round_: RoundView) -> dict[str, int]:
        """Ranks that live, by node; counted anew only when ranks came or went."""
        mark = (round_.number, len(round_.members), len(round_.exits))
        known = self._ranks.get(uid)
        if known is None or known[0] != mark:
            counts: dict[str, int] = {}
            for member in round_.alive():
                counts[member.node] = counts.get(member.node, 0) + 1
            known = self._ranks[uid] = mark, counts
        return known[1]


def _add(rows: dict[str, list[float]], name: str, place: int, seconds: float) -> None:
    row = rows.get(name)
    if row is None:
        if len(rows) >= NODES_MAX:
            return
        row = rows[name] = [0.0, 0.0]
    row[place] += seconds
