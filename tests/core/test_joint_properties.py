"""Runs of our rendezvous in whatever order things happen: one verdict per round, one gate, and nothing by mistake."""

from collections import Counter
from dataclasses import dataclass, field

from core_world import World
from hypothesis import given, settings
from hypothesis import strategies as st

from rankpulse.core import events as ev
from rankpulse.core import records as r
from rankpulse.core.evidence import Position

NODES = {"node-a": 2, "node-b": 2}
_simple = ["round", "successor", "thaw", "sleep", "cordon", "uncordon", "operator", "close", "plain twin"]
_moves = st.lists(
    st.one_of(
        st.tuples(st.just("kill"), st.integers(0, 3), st.sampled_from([9, 15, 6])),
        st.tuples(st.just("error"), st.integers(0, 3), st.integers(0, 1)),
        st.tuples(st.just("freeze"), st.integers(0, 3), st.just(0)),
        st.tuples(st.just("answer"), st.sampled_from([0, 1, 2]), st.integers(0, 3)),
        st.tuples(st.just("forged"), st.integers(0, 3), st.just(0)),
        st.tuples(st.just("leave"), st.integers(0, 1), st.integers(0, 2)),
        st.tuples(st.just("deposed"), st.integers(0, 1), st.just(0)),
        st.tuples(st.just("lost writes"), st.integers(1, 4), st.just(0)),
        st.tuples(st.just("time"), st.integers(1, 12), st.just(0)),
        st.tuples(st.just("blind"), st.integers(1, 8), st.just(0)),
        st.tuples(st.sampled_from(_simple), st.just(0), st.just(0)),
    ),
    max_size=16,
)


@dataclass
class Watched(World):
    """Remembers everything that was ever created, and watches each creation."""

    created: list[tuple[str, r.Record]] = field(default_factory=list)
    healed_at: float = 0.0
    moved_at: float = 0.0
    epoch: int = 1
    round_: int = 1

    def apply(self, action: ev.Action) -> None:
        if isinstance(action, ev.Write):
            assert not action.key.startswith((self.keys.orders(), self.keys.gates())), "created, never overwritten"
        if isinstance(action, ev.Create) and not self.refuse_writes:
            assert action.key not in self.store, f"created twice: {action.key}"
            self.created.append((action.key, action.record))
            if isinstance(action.record, r.Order):
                self.check(action.record)
        super().apply(action)

    def check(self, order: r.Order) -> None:
        incident = next((i for i in self.incidents() if i.id == order.incident), None)
        assert incident is not None or order.kind.startswith("collect-"), "the incident comes first"
        members = {(m.rank, m.node, m.pid) for m in order.members}
        known = {(p.rank, p.node, p.pid) for p in self.procs if p.row.run_uid == order.run_uid}
        assert members <= known or order.run_uid != "job-1"
        assert {m.pid for m in order.culprits} <= {m.pid for m in order.members}, "the dead are not killed again"
        if incident is not None and order.kind == "restart" and incident.klass == "collective_hang":
            standing = not self.training or any(p.state == "T" for p in self.procs)
            assert standing or self.now - self.healed_at <= 1.0, "what moves is not ended"


def step(world: Watched, move: str, n: int, m: int) -> None:
    alive = [p for p in world.procs if p.alive and p.row.run_uid]
    victim = alive[n % len(alive)] if alive else None
    if move == "kill" and victim:
        world.ends(victim, signal=m, held=n % 2 == 0)
    elif move == "error" and victim:
        world.ends(victim, code=1, error="ValueError", message="bad batch", held=m == 0)
    elif move == "freeze" and victim:
        victim.state, world.training = "T", False
    elif move == "sleep":
        world.training = False
    elif move == "thaw":
        world.training, world.healed_at = True, world.now
        for proc in world.procs:
            proc.state = "S"
    elif move == "answer":
        behind = {rank: (Position("w", 7 if rank == m else 8, 7, "all_reduce"),) for rank in range(4)}
        for order in world.of_kind("collect"):
            for node in list(NODES)[:n] if n else ["node-b"]:
                world.answers(order, node, behind)
    elif move == "forged":
        for order in world.of_kind("collect"):
            world.answers(order, "node-a", rows=f'[[{n},1,1,"T","",false,"ok",[],""]]')
    else:
        _step(world, move, n, m)


def _step(world: Watched, move: str, n: int, m: int) -> None:
    if move == "round":
        for proc in [p for p in world.procs if p.alive and p.row.run_uid]:
            world.ends(proc, signal=15)
        world.round_ += 1
        world.asks(NODES, world.round_)
        world.run(0.5)
        world.training, world.healed_at = True, world.now
        world.meets(NODES, world.round_, asks=False, first_step=10)
    elif move == "successor":
        world.epoch += 1
        world.successor(world.epoch)
    elif move == "deposed":
        world.engine.step(ev.LeftOffice("deposed", world.now))
        world.run(1.0)
        if n:
            world.relist()
        world.epoch += 1
        world.engine.step(ev.TookOffice(world.epoch, world.now))
    elif move == "lost writes":
        world.refuse_writes = True
        world.run(float(n))
        world.refuse_writes = False
        world.relist()
    elif move in ("cordon", "uncordon"):
        world.ask(move, node="node-b")
    elif move == "operator":
        world.ask("restart", uid="job-1")
    elif move == "leave":
        world.leaves(list(NODES)[n], ("finished", "failed", "gone")[m], round_=world.round_)
    elif move == "close":
        world.lists(closed="enough", outcome="failed")
    elif move == "plain twin":
        world.launch({"node-a": 1}, meeting="twin", run_id="job", launchers={"node-a": "twin"})
    elif move == "time":
        world.run(float(n))
    elif move == "blind":
        world.canary = False
        world.run(float(n))
        world.canary = True


def play(moves: list[tuple[str, int, int]]) -> Watched:
    world = Watched()
    world.arm()
    world.asks(NODES, 1)
    world.run(0.2)
    world.meets(NODES, 1, asks=False)
    world.run(15)
    for move, n, m in moves:
        step(world, move, n, m)
        world.run(0.3)
    world.canary = True
    world.run(12)
    return world


@settings(max_examples=60, deadline=None)
@given(_moves)
def test_one_verdict_and_one_gate_per_round_whatever_happens(moves: list[tuple[str, int, int]]) -> None:
    world = play(moves)
    verdicts = Counter(
        (o.run_uid, o.round) for _, o in world.created if isinstance(o, r.Order) and o.kind in ("restart", "release")
    )
    assert set(verdicts.values()) <= {1}, verdicts
    asked = Counter((key, o.epoch) for key, o in world.created if isinstance(o, r.Order) and o.kind[0] == "c")
    assert all(count <= 3 for count in asked.values()), "a standstill is asked about once, not over and over"
    gates = Counter((g.run_uid, g.round) for _, g in world.created if isinstance(g, r.Gate))
    lifted = sum(move == "uncordon" for move, _, _ in moves)
    assert all(count <= 1 + lifted for count in gates.values()), gates
    of_rounds = [(i.run_uid, i.round) for i in world.incidents() if i.run_uid and i.outcome != "passed"]
    assert len(of_rounds) == len(set(of_rounds)), world.incidents()
    assert not [line for line in world.said if "could not be folded" in line or "cannot be judged" in line]
    for state in world.run_states():
        if state.outcome == "failed":
            assert [i for i in world.incidents() if i.run_uid == state.run_uid], "a run that failed has its incident"
        if state.outcome != "running":
            assert not [o for o in world.orders() + world.gates() if o.run_uid == state.run_uid]


@settings(max_examples=10, deadline=None)
@given(_moves)
def test_the_same_story_of_a_joint_run_gives_the_same_bytes(moves: list[tuple[str, int, int]]) -> None:
    assert play(moves).store == play(moves).store
