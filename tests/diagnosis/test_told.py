"""What is said of who waits for whom, and of the machines that are blamed: short, whole, nothing else."""

import json

import pytest
from diagnosis_world import IN_ALL_REDUCE, Json, at, came_not, job, nodes, waiting

from rankpulse.core.diagnosing import diagnose
from rankpulse.core.naming import names_in_words
from rankpulse.core.snapshot_codec import decode
from rankpulse.core.verdict import Verdict


def verdict(snap: Json) -> Verdict:
    return diagnose(decode(json.dumps(snap).encode()))


def standing(size: int = 32) -> Json:
    snap = job(size, positions=waiting(42, sizes=(1024,)), stack=IN_ALL_REDUCE)
    snap["groups"] = [{"name": "world", "members": list(range(size)), "kind": "dp"}]
    return snap


def test_who_waits_is_told_with_group_operation_and_who_has_not_come() -> None:
    snap = standing()
    snap["ranks"][7]["positions"] = came_not(42)
    (line,) = verdict(snap).waits
    assert line == (
        "group world (data parallel), collective 42: ranks 0-6, 8-31 wait in all_reduce 1024; rank 7 has not come"
    )


def test_those_who_wait_by_way_of_others_are_counted() -> None:
    snap = standing(8)
    snap["groups"] = [{"name": "left", "members": [0, 1, 2, 3]}, {"name": "right", "members": [3, 4, 5, 6, 7]}]
    for rank in snap["ranks"]:
        rank["positions"] = waiting(5, group="left" if rank["rank"] < 4 else "right")
    snap["ranks"][7]["positions"] = came_not(5, group="right")
    snap["ranks"][3]["positions"] = [*waiting(5, group="right"), at("left", 4, 4, started=4)]
    assert verdict(snap).culprits.ranks == (7,)
    assert verdict(snap).waits == (
        "group right, collective 5: ranks 3-6 wait in all_reduce; rank 7 has not come",
        "3 more wait for those in turn: ranks 0-2",
    )


def test_a_mismatch_shows_both_calls() -> None:
    snap = standing()
    snap["ranks"][7]["positions"] = waiting(42, op="broadcast", sizes=(3,))
    (line,) = verdict(snap).waits
    assert "ranks 0-6, 8-31 wait in all_reduce 1024; rank 7 waits in broadcast 3; all have come" in line


def test_where_nobody_lags_the_collective_is_told_that_does_not_end() -> None:
    assert verdict(standing()).waits == (
        "group world (data parallel), collective 42: ranks 0-31 wait in all_reduce 1024; all have come",
    )


def test_whoever_waits_below_python_is_said_to_be_in_a_collective() -> None:
    snap = standing()
    for rank in snap["ranks"]:
        rank["stack"] = ["train.py:90 train", "torch/autograd/graph.py:979 _engine_run_backward"]
    snap["ranks"][7] |= {"positions": came_not(42), "stack": ["train.py:90 train", "metrics.py:7 publish"]}
    assert verdict(snap).stacks == (
        "rank 7: in the program's own code (metrics.py:7 publish)",
        "ranks 0-6, 8-31: in a collective (torch/autograd/graph.py:979 _engine_run_backward)",
    )


def test_a_job_that_moves_waits_for_nobody() -> None:
    snap = standing()
    snap["job"]["steps_moving"] = True
    assert verdict(snap).waits == ()


def test_only_the_machines_that_are_blamed_are_told_of() -> None:
    snap = standing()
    snap["ranks"][7]["positions"] = came_not(42)
    reports = nodes(snap, kernel=["nothing of note"])
    reports[0]["kernel"] = ["[12.5] NVRM: Xid (PCI:0000:18:00): 79, pid=1, GPU has fallen off the bus.\x1b[2J"]
    reports[1]["kernel"] = ["[12.5] NVRM: Xid (PCI:0000:18:00): 31, pid=2, MMU fault"]
    lines = verdict(snap).machines
    assert any(line.startswith("node-00, kernel: ") and "Xid" in line for line in lines)
    assert not any("node-01" in line for line in lines)
    assert all(line.isprintable() for line in lines)


def test_a_kernel_that_cannot_be_read_is_told() -> None:
    snap = standing()
    snap["ranks"][7]["positions"] = came_not(42)
    nodes(snap, kernel_readable=False)
    assert verdict(snap).machines == ("node-00: its kernel's lines cannot be read",)


def test_names_are_drawn_together() -> None:
    assert names_in_words(["gpu07"]) == "gpu07"
    assert names_in_words(f"gpu{i:03d}.dc1" for i in reversed(range(128))) == "gpu[000-127].dc1"
    assert names_in_words(["n9", "n10", "n11", "login", "n9"]) == "login, n[9-11]"
    assert names_in_words(f"r{i}n0" for i in range(0, 100, 2)).endswith(" and others (50 in all)")
    assert names_in_words([]) == ""
    assert names_in_words(["\x1b[2J"]).isprintable()


@pytest.mark.parametrize("state", ["T", "S"])
def test_ranks_that_wait_in_their_backward_pass_are_not_elsewhere(state: str) -> None:
    """What data parallelism adds up is waited for in C++, below a frame of the backward pass."""
    snap = standing()
    for rank in snap["ranks"]:
        rank |= {
            "stack": ["train.py:90 train", "torch/autograd/graph.py:979 _engine_run_backward"],
            "cpu_moving": False,
        }
    stopped = {"state": state, "stack": [], "positions": [], "dump": "not asked: the process is stopped"}
    snap["ranks"][7] |= stopped | ({} if state == "T" else {"stack": ["train.py:90 train", "train.py:7 parse"]})
    found = verdict(snap)
    assert (found.klass, found.culprits.ranks) == ("collective_hang", (7,))
    assert found.confidence >= 0.85


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({}, "waiting for a lock or another thread (metrics.py:7 publish)"),
        ({"cpu_moving": True}, "outside of the collective, in the program (metrics.py:7 publish), at work on the CPU"),
        ({"wchan": "do_wait"}, "outside of the collective, in the program (metrics.py:7 publish)"),
        ({"stack": ["train.py:9 train", "torch/autograd/graph.py:9 run"]}, "outside of the collective, in the program"),
    ],
)
def test_a_lock_has_no_frame_but_the_kernel_knows_it(more: Json, why: str) -> None:
    snap = standing()
    stack = ["train.py:90 train", "metrics.py:7 publish"]
    lock = {"positions": came_not(42), "stack": stack, "state": "S", "wchan": "futex_do_wait", "cpu_moving": False}
    snap["ranks"][7] |= lock | more
    assert why in verdict(snap).summary


def test_a_lock_that_comes_again_on_one_node_convicts_no_node() -> None:
    """A rank keeps its part of the program and mostly its node: which of them it is cannot be told."""
    snap = standing()
    stack = ["train.py:90 train", "metrics.py:7 publish"]
    snap["ranks"][7] |= {
        "positions": came_not(42), "stack": stack, "state": "S", "wchan": "futex_do_wait", "cpu_moving": False
    }  # fmt: skip
    snap["history"] = [{"signature": verdict(snap).signature, "nodes": ["node-00"], "age_s": 600, "action": "restart"}]
    assert verdict(snap).action == "page"
    assert verdict(snap).seen.times == 1


def test_ranks_that_were_stopped_on_several_machines_were_not_stopped_by_their_program() -> None:
    snap = standing()
    snap["ranks"][7] |= {"state": "T", "stack": [], "positions": [], "dump": "not asked: the process is stopped"}
    snap["history"] = [{"signature": verdict(snap).signature, "nodes": ["node-09"], "age_s": 600, "action": "restart"}]
    found = verdict(snap)
    assert (found.action, found.seen.times) == ("restart", 1)
    assert not any("program" in reason for reason in found.reasons)
