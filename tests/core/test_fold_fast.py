"""A node that remembers where its rows belong believes what one believes that places every row of every beat."""

from dataclasses import dataclass, field
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from rankpulse.core import events as ev
from rankpulse.core import records as r
from rankpulse.core.engine import Engine
from rankpulse.core.keys import Keys
from rankpulse.core.settings import preset

KEYS = Keys("twins")
NODES = 3
PHASES = ("train", "checkpoint", "paused", "evaluate", "a phase with a long name")
UTC = 1_800_000_000.0


@dataclass
class Rank:
    row: r.RunRow
    rank: int
    local_rank: int
    pid: int
    phase: str = "train"
    state: str = "S"
    step: int = -1
    first_step: int = -1
    told: bool = True


@dataclass
class Fleet:
    """What really is, and the two engines that are told of it."""

    now: float = 1000.0
    pid: int = 100
    ranks: list[list[Rank]] = field(default_factory=lambda: [[] for _ in range(NODES)])
    inc: list[int] = field(default_factory=lambda: [1] * NODES)
    seq: list[int] = field(default_factory=lambda: [0] * NODES)
    last: dict[int, r.Beat] = field(default_factory=dict)
    number: int = 0
    obs: int = 0

    def __post_init__(self) -> None:
        self.engines = [Engine(preset("drill"), KEYS) for _ in range(2)]
        self.engines[1].folder.beats.ranks.remember = False
        self.told(ev.Relisted(1, self.now))
        self.told(ev.SightBack(self.now))
        self.told(ev.TookOffice(1, self.now))

    def told(self, event: ev.Event) -> None:
        for engine in self.engines:
            engine.step(event)

    def launch(self, joint: bool, without: int = -1) -> None:
        self.number += 1
        uid, round_ = ("job-1", self.number) if joint else ("", -1)
        for node in set(range(NODES)) - {without}:
            row = r.RunRow("job", f"m{self.number}", f"{node}.1", 2 * NODES, True, uid, round_)
            mine = [Rank(row, 2 * node + local, local, self.pid + 2 * node + local) for local in range(2)]
            self.ranks[node] = [*self.ranks[node][:2], *self.ranks[node][2:][-2:], *mine]  # some never end
        self.pid += 2 * NODES

    def beat(self, node: int, seq: int = 1) -> r.Beat:
        self.seq[node] += seq
        told = [rank for rank in self.ranks[node] if rank.told]
        runs, phases = tuple(dict.fromkeys(t.row for t in told)), tuple(dict.fromkeys(t.phase for t in told))
        rows = tuple(
            r.RankRow(
                runs.index(t.row), t.rank, t.local_rank, t.pid, t.pid * 7, t.state, phases.index(t.phase), t.step,
                t.first_step,
            )
            for t in told
        )  # fmt: skip
        beat = r.Beat(
            node=f"n{node}", inc=self.inc[node], seq=self.seq[node], at=UTC, runs=runs, phases=phases, ranks=rows
        )
        self.last[node] = beat
        return beat

    def hear(self, beat: r.Beat) -> None:
        self.told(ev.Seen(KEYS.beat(beat.node), beat, 1, self.now))

    def tick(self) -> None:
        self.told(ev.CanarySeen(self.now))
        first, second = (engine.tick(self.now, UTC + self.now) for engine in self.engines)
        assert first == second


def does(fleet: Fleet, move: str, node: int, n: int) -> None:
    ranks = fleet.ranks[node]
    one = ranks[n % len(ranks)]
    if move == "all step":
        for rank in ranks:
            rank.step = max(rank.step, 0) + n
            rank.first_step = rank.first_step if rank.first_step >= 0 else rank.step
    elif move == "one steps":
        one.step += n - 1
    elif move == "phase":
        one.phase = PHASES[n % len(PHASES)]
    elif move == "state":
        one.state = "STtD"[n % 4]
    elif move == "told or not":
        one.told = not one.told
    elif move == "order":
        ranks.reverse()
    elif move == "rank taken":
        one.rank = n % (2 * NODES)
    elif move == "replaced":
        fleet.pid += 2 * NODES
        fleet.ranks[(node + n) % NODES].append(Rank(one.row, one.rank, 0, fleet.pid))
    elif move == "first step":
        one.first_step = n
    elif move == "launch":
        fleet.launch(joint=n % 2 == 0, without=n // 2)
    elif move == "agent anew":
        fleet.inc[node] += 1
    elif move == "exit":
        fleet.obs += 1
        detail: dict[str, Any] = {"code": 0 if n % 2 else 1, "signal": None, "closed": n % 2 == 1, "error": ""}
        obs = r.Observation(
            node=f"n{node}", inc=1, seq=fleet.obs, at=UTC, kind=r.WORKER_EXITED, run=one.row, rank=one.rank,
            local_rank=one.local_rank, pid=one.pid, start=one.pid * 7, detail=detail,
        )  # fmt: skip
        fleet.told(ev.Seen(KEYS.obs(f"n{node}", 1, fleet.obs), obs, fleet.obs + 100, fleet.now))
    elif move == "listed anew":
        fleet.told(ev.Relisted(1, fleet.now))
    elif move == "look":
        beat = fleet.beat(node)
        for engine in fleet.engines:
            engine.folder.beats.looked(beat, fleet.now)
    elif move == "again" and node in fleet.last:
        fleet.hear(fleet.last[node])
    elif move == "nonsense":
        beat = fleet.beat(node)
        rows = tuple(
            r.RankRow(**{**_fields(row), ("run", "phase", "rank", "pid")[n % 4]: n - 4 if n < 6 else 2**70})
            for row in beat.ranks
        )
        fleet.hear(r.Beat(**{**_fields(beat), "ranks": rows if n % 2 else rows + rows}))
    elif move == "silence":
        fleet.now += 2.0 * n
        fleet.tick()


def _fields(record: Any) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__struct_fields__}


MOVES = (
    "all step", "one steps", "phase", "state", "told or not", "order", "rank taken", "replaced", "first step", "launch",
    "agent anew", "exit", "listed anew", "look", "again", "nonsense", "silence",
)  # fmt: skip
_moves = st.lists(
    st.tuples(
        st.sampled_from((*MOVES, *["all step"] * 8)),
        st.integers(0, NODES - 1),
        st.integers(0, 7),
        st.sampled_from((0.0, 0.05, 0.5, 0.5, 0.5, 0.5, 0.9, 3.0)),
        st.sampled_from((1, 1, 1, 3)),
    ),
    max_size=40,
)


def believed(engine: Engine, now: float) -> dict[str, Any]:
    """The snapshot, and what it leaves out."""
    rounds = {
        (run.uid, number): round_ for run in engine.folder.fleet.runs.values() for number, round_ in run.rounds.items()
    }
    ranks = {
        (*key, rank): (p.moved_at, p.seen_at, round(p.stale_s(), 9), p.timely)
        for key, round_ in rounds.items()
        for rank, p in round_.progress.items()
    }
    reporting = {key: sorted(round_.reporting()) for key, round_ in rounds.items()}
    silences = {name: node.silence for name, node in engine.folder.fleet.nodes.items()}
    return {**engine.snapshot(now), "ranks": ranks, "reporting": reporting, "silences": silences}


@settings(max_examples=100, deadline=None)
@given(st.booleans(), _moves)
@example(False, [*[("launch", 0, 5, 0.5, 1)] * 6, ("one steps", 2, 2, 0.5, 1)])  # a round is forgotten, and goes on
@example(True, [*[("launch", 0, 4, 0.5, 1)] * 6, ("one steps", 2, 2, 0.5, 1)])
def test_what_is_remembered_changes_nothing_of_what_is_believed(
    joint: bool, moves: list[tuple[str, int, int, float, int]]
) -> None:
    fleet = Fleet()
    fleet.launch(joint=joint)
    for _ in range(3):
        for node in range(NODES):
            fleet.hear(fleet.beat(node))
        fleet.now += 0.5
    for move, node, n, gap_s, seq in moves:
        does(fleet, move, node, n)
        fleet.now = round(fleet.now + gap_s, 3)
        fleet.hear(fleet.beat(node, seq))
        fleet.tick()
        first, second = (believed(engine, fleet.now) for engine in fleet.engines)
        assert first == second
