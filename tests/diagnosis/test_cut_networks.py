"""Networks that are cut between ranks: told by data that nobody acknowledges, and told apart from ranks that are stuck.

One machine has the address 10.0.0.N, N its number from 1.
"""

from collections.abc import Callable
from typing import Any

import pytest
from diagnosis_stories import Stories, Story, told
from diagnosis_world import IN_ALL_REDUCE, IN_LOADER, Json, at, came_not, job, name, nodes, waiting
from hypothesis import given
from hypothesis import strategies as st

from rankpulse.core import policy
from rankpulse.core import verdict as v

story = Stories()


def standing(size: int = 4, per_node: int = 1, **each: Any) -> Json:
    """All are in one collective, and nothing moves."""
    s = job(size, per_node, stack=IN_ALL_REDUCE, positions=waiting(100), state="S", **each)
    s["job"]["still_s"] = 60.0
    for number, node in enumerate(nodes(s, silent_s=0.3, probe="answered"), start=1):
        node["addresses"] = [f"10.0.0.{number}", "172.17.0.1", "127.0.0.1"]
    return s


def hangs(s: Json, rank: int, *remote: str) -> None:
    s["ranks"][rank]["unacked"] = [*s["ranks"][rank].get("unacked", ()), *remote]


@story(v.NETWORK_STALL, (1, 2), ("node-01", "node-02"), policy.RESTART)
def two_ranks_do_not_reach_each_other() -> Json:
    s = standing()
    hangs(s, 1, "10.0.0.3:40112")
    hangs(s, 2, "10.0.0.2:51000")
    return s


@story(v.NETWORK_STALL, (1, 2), ("node-01", "node-02"), policy.RESTART)
def only_one_of_them_had_anything_to_send() -> Json:
    s = standing()
    hangs(s, 2, "10.0.0.2:51000")
    return s


@story(v.NETWORK_STALL, (), ("node-00", "node-01"), policy.RESTART)
def which_rank_at_the_other_end_is_not_known() -> Json:
    s = standing(16, 8)
    hangs(s, 3, "10.0.0.2:40112")
    return s


@story(v.NETWORK_STALL, (3, 9), ("node-00", "node-01"), policy.RESTART)
def the_port_tells_the_rank_at_the_other_end() -> Json:
    s = standing(16, 8)
    hangs(s, 3, "10.0.0.2:40112")
    s["ranks"][9]["ports"] = [29500, 40112]
    s["ranks"][10]["ports"] = [40113]
    return s


@story(v.NETWORK_STALL, (2, 5, 6), ("node-00", "node-01"), policy.RESTART)
def several_ranks_of_two_machines() -> Json:
    s = standing(8, 4)
    hangs(s, 2, "10.0.0.2:40112", "10.0.0.2:40116")
    hangs(s, 5, "10.0.0.1:40200")
    hangs(s, 6, "10.0.0.1:40201")
    return s


@story(v.NETWORK_STALL, (4, 5), ("node-01",), policy.RESTART)
def a_dead_card_is_what_all_have_in_common() -> Json:
    s = standing(16, 4)
    hangs(s, 4, "10.0.0.1:40112")
    hangs(s, 5, "10.0.0.3:40112")
    hangs(s, 0, "10.0.0.2:40112")
    hangs(s, 12, "10.0.0.2:40112")
    return s


@story(v.NETWORK_STALL, (4, 5), ("node-01",), policy.RESTART_WITHOUT)
def the_same_card_again() -> Json:
    return a_dead_card_is_what_all_have_in_common() | {
        "history": [{"class": "network_stall", "node": "node-01", "age_s": 7200.0, "action": "restart"}]
    }


@story(v.NETWORK_STALL, (), ("node-00", "node-01", "node-02", "node-03"), policy.RESTART)
def a_switch_is_cut_off() -> Json:
    s = standing()
    s["topology"] = {name(i, 1): {"switch": f"leaf-{i // 2}"} for i in range(4)}
    hangs(s, 0, "10.0.0.3:1", "10.0.0.4:1")
    hangs(s, 1, "10.0.0.3:1", "10.0.0.4:1")
    return s


@story(v.NETWORK_STALL, (0, 1), ("node-00",), policy.RESTART)
def two_ranks_of_one_machine() -> Json:
    s = standing(4, 4)
    hangs(s, 0, "127.0.0.1:40112")
    hangs(s, 1, "127.0.0.1:40200")
    return s


@story(v.NETWORK_STALL, (1, 2), ("node-01", "node-02"), policy.RESTART)
def addresses_are_spelled_in_many_ways() -> Json:
    s = standing()
    s["nodes"][2]["addresses"] = ["fd00:0:0::7"]
    hangs(s, 1, "[fd00::7]:40112")
    hangs(s, 2, "[::ffff:10.0.0.2]:51000")
    return s


@story(v.NETWORK_STALL, (0, 1), ("node-00", "node-01"), policy.RESTART)
def a_small_send_was_taken_by_the_kernel_and_never_arrived() -> Json:
    """Its sender has gone on to the next collective: a circle, which without the network would be the program's."""
    s = standing(2, 1)
    receive = {"seq": 9, "op": "recv", "peer": 0, "state": "started", "order": 20}
    s["ranks"][1]["positions"] = [*came_not(100), at("pp", None, None, open=[receive])]
    hangs(s, 0, "10.0.0.2:40112")
    hangs(s, 1, "10.0.0.1:40112")
    return s


# --- what a cut does not explain


@story(v.COLLECTIVE_HANG, (3,), ("node-03",), policy.RESTART)
def a_stopped_rank_wins() -> Json:
    s = two_ranks_do_not_reach_each_other()
    s["ranks"][3] |= {"state": "T", "positions": came_not(100)}
    return s


@story(v.COLLECTIVE_HANG, (2,), ("node-02",), policy.RESTART)
def a_stopped_rank_wins_also_at_the_end_of_the_cut() -> Json:
    s = two_ranks_do_not_reach_each_other()
    s["ranks"][2] |= {"state": "T", "positions": came_not(100)}
    return s


@story(v.DATA_STALL, (3,), ("node-03",), policy.RESTART)
def a_rank_in_its_loader_wins() -> Json:
    s = two_ranks_do_not_reach_each_other()
    s["ranks"][3] |= {"stack": IN_LOADER, "positions": came_not(100)}
    return s


@story(v.COLLECTIVE_MISMATCH, (2,), ("node-02",), policy.PAGE)
def another_call_wins() -> Json:
    s = two_ranks_do_not_reach_each_other()
    s["ranks"][2]["positions"] = waiting(100, "broadcast")
    return s


@story(v.NETWORK_STALL, (), (), policy.RESTART)
def connections_to_other_machines_are_no_business_of_the_job() -> Json:
    s = standing()
    hangs(s, 1, "192.0.2.7:443", "172.17.0.1:40112")
    return s


@pytest.mark.parametrize("one", story.kept, ids=lambda one: one.name)
def test_a_cut_network_is_told_from_a_stuck_rank(one: Story) -> None:
    one.is_understood()


@pytest.mark.parametrize(
    ("make", "least", "most"),
    [
        (two_ranks_do_not_reach_each_other, 0.9, 1.0),
        (several_ranks_of_two_machines, 0.9, 1.0),
        (a_dead_card_is_what_all_have_in_common, 0.9, 1.0),
        (only_one_of_them_had_anything_to_send, 0.6, 0.8),
    ],
)
def test_both_ends_are_believed_more_than_one(make: Callable[[], Json], least: float, most: float) -> None:
    assert least <= told(make()).confidence <= most


def test_where_no_positions_are_told_both_ends_are_enough_and_one_is_not() -> None:
    both, one = two_ranks_do_not_reach_each_other(), only_one_of_them_had_anything_to_send()
    for s in (both, one):
        for rank in s["ranks"]:
            del rank["positions"], rank["stack"]
    assert (told(both).klass, told(both).culprits.ranks) == (v.NETWORK_STALL, (1, 2))
    assert told(one).klass == v.UNKNOWN


def test_a_job_that_moves_is_not_cut() -> None:
    s = two_ranks_do_not_reach_each_other()
    s["job"] |= {"still_s": 0.5, "steps_moving": True}
    assert told(s).klass == v.UNKNOWN
    assert told(s).action == policy.NONE


def test_a_port_that_is_down_says_more_than_what_hangs_on_it() -> None:
    s = two_ranks_do_not_reach_each_other()
    s["nodes"][2]["links"] = [{"name": "eth0", "state": "down"}]
    assert told(s).culprits.links == ("node-02/eth0",)


def test_whom_the_others_do_not_reach_either_is_cut_off() -> None:
    s = two_ranks_do_not_reach_each_other()
    s["nodes"][2]["peers_reach"] = False
    assert (told(s).klass, told(s).culprits.nodes) == (v.PARTITION, ("node-02",))


@given(st.lists(st.text(max_size=12) | st.sampled_from(["::", ":", "[::]:9", "10.0.0.1", "10.0.0.3:٣", "a%b:1"])))
def test_what_is_no_address_is_nobodys(remote: list[str]) -> None:
    s = standing()
    s["nodes"][0]["addresses"] = ["", "::1", "nonsense"]
    hangs(s, 1, *remote, "10.0.0.3:40112")
    assert told(s).culprits.nodes == ("node-01", "node-02")
