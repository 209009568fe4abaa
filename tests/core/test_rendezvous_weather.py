"""The rendezvous under weather: whatever happens in whatever order, no round has two rosters, and calm heals all."""

from hypothesis import given, settings
from hypothesis import strategies as st
from rdzv_world import World

SETTLES_S = 400.0
KINDS = [
    *["run"] * 8, *["turns"] * 8, *["start"] * 4, *["crash"] * 2, *["back"] * 3, *["agent up"] * 2, *["time"] * 2,
    "die", "finish", "fail", "agent down", "power", "outage", "fails", "lost answer", "cordon", "uncordon", "uncordon",
    "gate", "order", "lag", "lag", "catch up", "stick",
]  # fmt: skip
_moves = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 11)), min_size=20, max_size=80)


def move(world: World, kind: str, n: int) -> None:
    nodes = list(world.agents)
    node = nodes[n % len(nodes)]
    alive = [tr for tr in world.torchruns if tr.state in ("asking", "in")]
    inside = [tr for tr in alive if tr.state == "in"]
    launches = [x for x in world.launches() if not x.closed]
    if kind == "start" and world.agents[node].up and len(alive) < 8:
        world.start(node)
    elif kind == "die" and alive:
        alive[n % len(alive)].state = "dead"
    elif kind in ("finish", "fail") and alive and n < 4:
        torchrun = alive[n % len(alive)]
        torchrun.state, torchrun.outcome = "leaving", {"finish": "finished", "fail": "failed"}[kind]
    elif kind == "crash" and inside:
        world.rejoin(inside[n % len(inside)])
    elif kind == "agent down":
        world.agent_down(node)
    elif kind == "agent up":
        world.agent_up(node)
    elif kind == "power" and n < 4:
        world.power_cut(node)
    elif kind in ("outage", "back"):
        world.outage(kind == "outage")
    elif kind in ("fails", "lost answer"):
        world.fault = kind
    elif kind == "cordon" and n < 5:
        world.cordon(node)
    elif kind == "uncordon":
        world.uncordon(node)
    elif kind == "gate" and launches:
        uid = launches[n % len(launches)].run_uid
        world.gate(uid, world.last_round(uid) + 1, go=n != 0, without=(node,) if n % 4 == 1 else ())
    elif kind == "order" and launches:
        uid = launches[n % len(launches)].run_uid
        if world.last_round(uid):
            world.order(uid, world.last_round(uid), before=n if n % 2 else -1)
    elif kind in ("lag", "catch up"):
        world.agents[node].lags = kind == "lag"
    elif kind == "stick" and inside:
        inside[n % len(inside)].stuck = True
    elif kind == "time":
        world.pass_time([0.1, 0.5, 1.0, 2.0, 5.0, 11.0, 31.0, 100.0, 0.1, 1.0, 3.0, 7.0][n])
    elif kind == "run":
        world.run(1.0 + n)
    elif kind == "turns":
        for _ in range(2 + n):
            agent = world.random.choice(list(world.agents.values()))
            world.turn(agent, world.random.choice([0, 1, 2, 3, 10, 1000]))
            world.pass_time(world.random.choice([0.0, 0.0, 0.1, 1.0]))


def play(moves: list[tuple[str, int]], seed: int, min_nodes: int, max_nodes: int) -> World:
    world = World(seed=seed, min_nodes=min_nodes, max_nodes=max_nodes)
    for node in "abcd"[: seed % 5]:
        world.start(node)
    for kind, n in moves:
        move(world, kind, n)
    return world


@settings(max_examples=150)
@given(_moves, st.integers(0, 1_000_000), st.sampled_from([(1, 1), (2, 2), (2, 3), (1, 4), (3, 3)]))
def test_no_two_rosters_in_any_weather_and_calm_heals_all(
    moves: list[tuple[str, int]], seed: int, sizes: tuple[int, int]
) -> None:
    world = play(moves, seed, *sizes)
    world.outage(False)
    world.fault = ""
    for agent in world.agents.values():
        agent.lags = False
    calm_at = world.t
    world.run(5.0)
    while world.unsettled():
        assert world.t < calm_at + SETTLES_S, (world.unsettled(), [(t.node, t.state, t.said) for t in world.torchruns])
        world.run(5.0)
