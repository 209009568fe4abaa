"""Whatever happens in whatever order: never two orders alike for a round, never a raise, and always the same answer."""

from core_world import World
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rankpulse.core import codec
from rankpulse.core import events as ev

NODES = {"node-a": 2, "node-b": 2}
_moves = st.lists(
    st.one_of(
        st.tuples(st.just("kill"), st.integers(0, 3), st.sampled_from([9, 15, 6, 11])),
        st.tuples(st.just("victim"), st.integers(0, 3), st.just(0)),
        st.tuples(st.just("silence"), st.sampled_from([0, 1, 2]), st.just(0)),
        st.tuples(st.just("freeze"), st.integers(0, 3), st.just(0)),
        st.tuples(st.just("round"), st.just(0), st.just(0)),
        st.tuples(st.just("successor"), st.just(0), st.just(0)),
        st.tuples(st.just("deposed"), st.integers(0, 1), st.just(0)),
        st.tuples(st.just("lost writes"), st.integers(1, 5), st.just(0)),
        st.tuples(st.just("thaw"), st.just(0), st.just(0)),
        st.tuples(st.just("launcher"), st.integers(0, 3), st.just(0)),
        st.tuples(st.just("time"), st.integers(1, 20), st.just(0)),
        st.tuples(st.just("blind"), st.integers(1, 10), st.just(0)),
    ),
    max_size=14,
)


def play(moves: list[tuple[str, int, int]]) -> World:
    world = World()
    world.arm()
    world.launch(NODES, meeting="m0")
    world.run(20)
    epoch = 1
    for number, (move, n, signal) in enumerate(moves):
        alive = [p for p in world.procs if p.alive]
        if move == "kill" and alive:
            world.ends(alive[n % len(alive)], signal=signal)
        elif move == "victim" and alive:
            world.ends(alive[n % len(alive)], code=1, error="RuntimeError", message="Connection closed by peer")
        elif move == "silence":
            world.silent = [set(), {"node-b"}, {"node-a", "node-b"}][n]
        elif move == "freeze" and alive:
            alive[n % len(alive)].state, world.training = "T", False
        elif move == "round":
            for proc in alive:
                world.ends(proc, signal=15)
            world.training = True
            world.launch(NODES, meeting=f"m{number + 1}", first_step=10)
        elif move == "successor":
            epoch += 1
            world.successor(epoch)
        elif move == "deposed":
            world.engine.step(ev.LeftOffice("deposed", world.now))
            world.run(1.0)
            if n:
                world.relist()
            epoch += 1
            world.engine.step(ev.TookOffice(epoch, world.now))
        elif move == "lost writes":
            world.refuse_writes = True
            world.run(float(n))
            world.refuse_writes = False
            world.relist()
        elif move == "thaw":
            world.training = True
            for proc in alive:
                proc.state = "S"
        elif move == "launcher" and world.procs:
            world.launcher_ends(world.procs[n % len(world.procs)])
        elif move == "time":
            world.run(float(n))
        elif move == "blind":
            world.canary = False
            world.run(float(n))
            world.canary = True
    world.silent, world.canary = set(), True
    world.run(10)
    return world


@settings(max_examples=40, deadline=None)
@given(_moves)
@example([*[("round", 0, 0)] * 4, ("deposed", 1, 0)])  # the roster of a round that is forgotten is listed
def test_any_story_ends_with_at_most_one_order_and_one_incident_per_round(moves: list[tuple[str, int, int]]) -> None:
    world = play(moves)
    orders = [(order.run_uid, order.round, order.kind) for order in world.orders()]
    assert len(orders) == len(set(orders))
    assert {order[:2] for order in orders if order[2] == "kill"} <= {o[:2] for o in orders if o[2] == "restart"}
    of_rounds = [(i.run_uid, i.round) for i in world.incidents() if i.run_uid and i.outcome != "passed"]
    assert len(of_rounds) == len(set(of_rounds)), world.incidents()
    assert not [line for line in world.said if "could not be folded" in line]
    for order in world.orders():
        roster = world.store.get(world.keys.roster(order.run_uid, order.round))
        if roster is not None:
            members = codec.decode_at(
                world.keys.parse(world.keys.roster(order.run_uid, order.round)), roster[0]
            ).members  # type: ignore[arg-type,attr-defined]
            assert set(order.members) <= set(members), "an order speaks only of the processes of its round"


@settings(max_examples=10, deadline=None)
@given(_moves)
def test_the_same_story_gives_the_same_bytes(moves: list[tuple[str, int, int]]) -> None:
    assert play(moves).store == play(moves).store
