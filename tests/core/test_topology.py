"""Where machines stand: what a file may say, what it may not, and whose word counts."""

from typing import Any

import pytest
from core_world import World

from rankpulse.core.cuts import rack_of
from rankpulse.core.records import NodeState
from rankpulse.core.snapshot_nodes import Place
from rankpulse.core.topology import NODES_MAX, BadTopology, Topology, nodes, parse


@pytest.mark.parametrize(
    ("pattern", "named"),
    [
        ("n1", ("n1",)),
        ("n[08-11]", ("n08", "n09", "n10", "n11")),
        ("n[1,3-4]", ("n1", "n3", "n4")),
        ("r[1-2]n[0-1], login", ("r1n0", "r1n1", "r2n0", "r2n1", "login")),
        ("gpu[7].dc", ("gpu7.dc",)),
    ],
)
def test_patterns_name_nodes(pattern: str, named: tuple[str, ...]) -> None:
    assert nodes(pattern) == named


@pytest.mark.parametrize(
    "pattern",
    ["", "n[", "n]", "n[[1]]", "n[a]", "n[3-1]", "n[]", "n[1-]", "a b", "-n", "n[0-999999999]", "n[0-65000,0-65000]",
     "[0-9]" * 400, "[0-999]" * 4, "n" * 200, "é[1]", "x,,y"],
)  # fmt: skip
def test_what_is_no_pattern_is_refused_in_a_sentence(pattern: str) -> None:
    with pytest.raises(BadTopology) as caught:
        nodes(pattern)
    assert all(problem.isprintable() and len(problem) < 400 for problem in caught.value.problems)


def test_tables_fill_each_other() -> None:
    known = parse({"n[0-3]": {"rack": "r1", "switch": "s1"}, "n[2-5]": {"domain": "d1"}, "n2": {"rack": "r1"}})
    assert known.of("n2") == Place("r1", "s1", "d1")
    assert (known.of("n0"), known.of("n5")) == (Place("r1", "s1"), Place(domain="d1"))
    assert known.of("elsewhere") == Place()


@pytest.mark.parametrize(
    ("tree", "part"),
    [
        ({"n[0-3]": {"rack": "r1"}, "n2": {"rack": "r2"}}, "n2: rack is 'r1' in one table and 'r2' in another"),
        ({"n1": {"colour": "red"}}, "colour: unknown; known are rack, switch, domain"),
        ({"n1": {"rack": 7}}, "rack: must be a string"),
        ({"n1": {"rack": "a/b"}}, "letters, digits"),
        ({"n1": {}}, "says nothing"),
        ({"rack": "r1"}, 'must be a table, ["rack"]'),
        ({f"n{i}[0-9999]": {"rack": "r"} for i in range(7)}, f"more than {NODES_MAX} nodes"),
    ],
)
def test_every_problem_is_a_sentence(tree: dict[str, Any], part: str) -> None:
    with pytest.raises(BadTopology) as caught:
        parse(tree)
    assert part in str(caught.value)


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(BadTopology) as caught:
        parse({"n[": {"rack": "r"}, "n1": {"colour": "red", "shape": "round"}})
    assert len(caught.value.problems) == 3


def agent(node: str, rack: str) -> NodeState:
    return NodeState(node=node, inc=1, at=0.0, host=node, agent_version="1", interval_s=1.0, rack=rack)


@pytest.mark.parametrize(
    ("own", "place", "rack"),
    [
        ("own", Place(rack="file"), "file"),
        ("own", Place(switch="s1"), "own"),
        ("", Place(switch="s1"), "s1"),
        ("own", Place(), "own"),
        ("", Place(domain="d1"), ""),
    ],
)
def test_the_file_goes_before_the_agent_and_a_switch_serves_where_no_rack_is_named(
    own: str, place: Place, rack: str
) -> None:
    state = agent("n1", own)
    assert Topology({"n1": place}).told(state).rack == rack


def test_silent_nodes_are_grouped_by_the_file() -> None:
    world = World()
    world.engine.folder.topology = parse({"n[0-1]": {"rack": "r9"}})
    world.put(world.keys.node("n0") + "state", agent("n0", "own"))
    assert rack_of(world.engine.folder.fleet.nodes["n0"]) == "r9"
