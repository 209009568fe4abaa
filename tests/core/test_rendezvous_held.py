"""A node that is looked at before it joins, or may not join: the others hear of it, and no round includes it."""

import pytest
from rdzv_world import KEYS, Torchrun, World

from rankpulse.core import records as r
from rankpulse.core import rendezvous as rv

WHY = "refused, because GPU 3 asks for a reset"


def met(world: World, uid: str) -> dict[int, list[str]]:
    return {number: [p.node for p in m.places] for (of, number), m in world.store.meetings.items() if of == uid}


def pair(world: World, nodes: str = "ab") -> list[Torchrun]:
    torchruns = [world.start(node) for node in nodes]
    world.run(10)
    assert {one.state for one in torchruns} == {"in"}
    return torchruns


def joiner(world: World, one: Torchrun) -> r.Joiner:
    record = world.store.get(KEYS.joiner(one.run_uid or world.launches()[0].run_uid, one.node, one.launcher))
    assert isinstance(record, r.Joiner)
    return record


def test_a_node_that_is_looked_at_is_in_no_round_until_it_is_found_well() -> None:
    world = World("ab")
    a, b = world.start("a"), world.start("b", checking=True)
    world.run(10)
    assert a.said[-1] == "1 of 2 nodes here (a)"
    assert joiner(world, b).checking
    b.checking = False
    world.run(10)
    assert (a.after, b.after) == (1, 1)
    assert not joiner(world, b).checking


def test_a_node_that_is_refused_is_named_to_the_others_with_the_reason() -> None:
    world = World("ab")
    a, b = world.start("a"), world.start("b", refused=WHY)
    world.run(10)
    assert a.said[-1] == f"1 of 2 nodes here (a); missing: b ({WHY})"
    assert b.said[-1] == WHY
    assert met(world, world.launches()[0].run_uid) == {}


def test_the_others_hear_at_once_that_a_member_asks_again_though_it_is_still_looked_at() -> None:
    """Its workers are gone: theirs must not stand in a collective until the look is over."""
    world = World("ab")
    a, b = pair(world)
    world.rejoin(b)
    b.checking = True
    world.run(2)
    again = rv.again(world.agents["a"].view, a.run_uid, 1)
    assert again
    assert again.reason == "b asks for the next round"


def test_others_wait_for_a_member_that_is_looked_at_but_not_for_one_that_is_refused() -> None:
    world = World("abc", min_nodes=2, max_nodes=3)
    a, b, c = pair(world, "abc")
    for one in (a, b, c):
        world.rejoin(one)
    c.checking = True
    world.run(20)
    assert met(world, a.run_uid).keys() == {1}
    c.checking, c.refused = False, WHY
    world.run(5)
    assert met(world, a.run_uid)[2] == ["a", "b"]
    c.refused = ""
    world.run(5)
    assert c.said[-1].startswith("round 2 goes on without this node")


def test_a_refused_node_gives_up_when_its_torchrun_does_and_says_why() -> None:
    world = World("a", min_nodes=1, max_nodes=1)
    a = world.start("a", refused=WHY, timeout_s=30.0)
    world.run(40)
    assert isinstance(a.answer, rv.Refused)
    assert (a.answer.kind, a.answer.reason) == ("timeout", f"no round in 30 s: {WHY}")


def test_a_refused_spare_waits_as_long_as_the_round_stands() -> None:
    world = World("abc")
    pair(world)
    spare = world.start("c", refused=WHY, timeout_s=30.0)
    world.run(100)
    assert (spare.state, spare.said[-1]) == ("asking", WHY)


@pytest.mark.parametrize("held", [{"checking": True}, {"refused": WHY}], ids=["looked at", "refused"])
def test_a_spare_that_is_held_takes_no_place(held: dict[str, object]) -> None:
    world = World("abc")
    a, b = pair(world)
    for name, value in held.items():
        setattr(world.start("c"), name, value)
    world.rejoin(a)
    world.rejoin(b)
    world.run(10)
    assert met(world, a.run_uid)[2] == ["a", "b"]
