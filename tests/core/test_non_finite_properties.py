"""Numbers that are not finite, in any order of events: one order per round at most, and none without consent."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numbers_world import CONSENT, NODES, all_tell, next_round, tells, trained

from rankpulse.core import codec
from rankpulse.core import records as r
from rankpulse.core.settings import Settings, preset

_moves = st.lists(
    st.one_of(
        st.tuples(st.just("all"), st.integers(0, 2)),
        st.tuples(st.just("node"), st.integers(0, 3)),
        st.tuples(st.just("over"), st.integers(0, 1)),
        st.tuples(st.just("crash"), st.integers(0, 3)),
        st.tuples(st.just("round"), st.just(0)),
        st.tuples(st.just("successor"), st.just(0)),
        st.tuples(st.just("lost writes"), st.integers(1, 3)),
        st.tuples(st.just("blind"), st.integers(1, 6)),
        st.tuples(st.just("silence"), st.integers(0, 1)),
        st.tuples(st.just("time"), st.integers(1, 6)),
    ),
    max_size=12,
)


class Story:
    """Plays moves, and looks at every order that is given."""

    def __init__(self, chosen: Settings) -> None:
        self.world, self.epoch, self.round = trained(chosen), 1, 1
        self.given: dict[str, r.Order] = {}

    def play(self, move: str, n: int) -> None:
        world, node = self.world, sorted(NODES)[n % 2]
        alive = [p for p in world.procs if p.alive]
        mine = [p.rank for p in alive if p.node == node]
        if move == "all" and len(alive) == 4:
            all_tell(world, 118 + n)
        elif move == "node" and mine:
            tells(world, node, dict.fromkeys(mine, 118 + n))
        elif move == "over" and mine:
            tells(world, node, dict.fromkeys(mine, 0))
        elif move == "crash" and alive:
            world.ends(alive[n % len(alive)], signal=9, held=True)
        elif move == "round" and any(order.round == self.round for order in world.of_kind("restart")):
            self.round += 1
            next_round(world, self.round, first_step=101)
        elif move == "successor":
            self.epoch += 1
            world.successor(self.epoch)
        elif move == "lost writes":
            world.refuse_writes = True
            world.run(float(n))
            world.refuse_writes = False
            world.relist()
        elif move == "blind":
            world.canary = False
            world.run(float(n))
            world.canary = True
        elif move == "silence":
            world.silent = {node} if n else set()
        world.run(float(n) if move == "time" else 0.3)
        for order in world.orders():
            before = self.given.setdefault(f"{order.run_uid}/{order.round}/{order.kind}", order)
            assert before == order, "an order never changes, and no other is given for its round"


def checked(story: Story, *, consent: bool) -> None:
    incidents = [i for i in story.world.incidents() if i.klass == "non_finite"]
    assert len([i for i in incidents if i.state == "open"]) <= 1
    for order in story.given.values():
        incident = next((i for i in incidents if i.id == order.incident), None)
        if incident is None:
            assert order.resume_before_step == -1
        else:
            assert consent
            assert order.kind != "restart" or order.resume_before_step in (-1, incident.bad_step)
    assert not [line for line in story.world.said if "could not be folded" in line or "a bug" in line]


@pytest.mark.parametrize("consent", [True, False])
@settings(max_examples=40, deadline=None)
@given(_moves)
def test_one_order_per_round_and_none_without_consent(consent: bool, moves: list[tuple[str, int]]) -> None:
    story = Story(CONSENT if consent else preset("drill"))
    for move, n in moves:
        story.play(move, n)
    story.world.silent = set()
    story.world.run(5)
    checked(story, consent=consent)
    left = [codec.decode(r.Observation, data) for key, (data, _) in story.world.store.items() if "/obs/" in key]
    told = [obs for obs in left if obs.kind == r.NON_FINITE]
    assert len({obs.node for obs in told}) == len(told) <= len(NODES), "only the newest word of each stays"
