"""Two things are wrong at the same time: the one that holds up the job is the cause, the other is told beside it."""

from diagnosis_stories import told
from diagnosis_world import Json

from rankpulse.core import policy
from rankpulse.core import verdict as v

LOCK = ["train.py:10 main", "train.py:55 step", "threading.py:300 acquire"]


def locked(rank: int = 1, nodes: int = 2) -> Json:
    """A job that stands, since one of its ranks waits for a lock."""
    waits = [{"seq": 100, "op": "all_reduce", "sizes": [1024], "state": "started"}]
    ranks: list[Json] = [
        {
            "rank": r, "node": f"n{r // 4}", "gpu": r % 4, "phase": "step", "step": 500, "step_age_s": 120,
            "stack": ["train.py:10 main", "c10d.py:2806 all_reduce"],
            "positions": [{"group": "w", "enqueued": 100, "started": 100, "completed": 99, "open": waits}],
        }
        for r in range(4 * nodes)
    ]  # fmt: skip
    there = [{"group": "w", "enqueued": 99, "started": 99, "completed": 99}]
    ranks[rank] |= {"stack": LOCK, "state": "S", "cpu_moving": False, "positions": there}
    return {
        "taken_at": 10_000,
        "job": {"still_s": 120, "step_s": 1.0, "world_size": 4 * nodes},
        "ranks": ranks,
        "groups": [{"name": "w", "members": list(range(4 * nodes))}],
        "nodes": [{"node": f"n{n}", "silent_s": 0.3, "probe": "answered"} for n in range(nodes)],
    }


def test_an_agent_that_is_gone_does_not_hide_who_holds_up_the_job() -> None:
    s = locked()
    s["nodes"][1] |= {"silent_s": 60, "probe": "refused", "agent_alive": False}
    verdict = told(s)
    assert (verdict.klass, verdict.culprits.ranks, verdict.action) == (v.COLLECTIVE_HANG, (1,), policy.RESTART)
    assert [one.klass for one in verdict.also] == [v.SIDECAR_DEAD]


def test_nor_does_a_way_to_the_store_that_is_late_or_one_to_us_that_is_cut() -> None:
    for more in ({"probe": "answered"}, {"probe": "timeout", "peers_reach": True}):
        s = locked()
        s["nodes"][1] |= {"silent_s": 60, **more}
        assert (told(s).klass, told(s).culprits.ranks) == (v.COLLECTIVE_HANG, (1,))


def test_a_device_that_is_broken_elsewhere_is_told_beside_the_cause() -> None:
    s = locked()
    s["devices"] = [{"node": "n1", "gpu": 2, "xids": [{"code": 79, "at": 9_875}]}]
    verdict = told(s)
    assert (verdict.klass, verdict.culprits.ranks) == (v.COLLECTIVE_HANG, (1,))
    [beside] = verdict.also
    assert (beside.klass, [(gpu.node, gpu.gpu) for gpu in beside.culprits.gpus]) == (v.GPU_FAULT, [("n1", 2)])


def test_a_port_that_flapped_makes_no_rank_wait_for_a_lock() -> None:
    s = locked()
    s["nodes"][1]["links"] = [{"name": "eth0", "state": "active", "flaps": 1}]
    verdict = told(s)
    assert (verdict.klass, verdict.culprits.ranks) == (v.COLLECTIVE_HANG, (1,))
    assert [one.klass for one in verdict.also] == [v.NETWORK_STALL]


def test_the_bus_says_which_device_a_kernel_line_means_not_the_count_of_the_driver() -> None:
    s = locked()
    s["ranks"][1] |= {"state": "D", "stack": ["train.py:10 main", "torch/cuda/__init__.py:9 synchronize"]}
    s["devices"] = [{"node": "n0", "gpu": 1, "pci": "0000:db:00.0"}]
    line = "Timeout after 45s of waiting for RPC response from GPU0 GSP! Expected function 76"
    s["nodes"][0]["kernel"] = [f"NVRM: Xid (PCI:0000:db:00): 119, pid=999, name=nvidia-smi, {line}"]
    verdict = told(s)
    assert [(gpu.node, gpu.gpu) for gpu in verdict.culprits.gpus] == [("n0", 1)]
    assert verdict.culprits.ranks == (1,)
    assert any("it is the device of the ranks" in reason for reason in verdict.reasons)


def test_a_device_of_another_rank_of_that_node_is_not_called_the_one_that_is_waited_for() -> None:
    s = locked()
    s["devices"] = [{"node": "n0", "gpu": 3, "ecc_uncorrected": 1}]
    assert any("it is on the node of the ranks" in reason for reason in told(s).reasons)


def scheduler_ends_the_rest(stopped_at: float) -> Json:
    """Machine n1 was last heard at 9940."""
    s = locked()
    s["ranks"] = [rank | {"alive": False, "exit_code": -15, "exited_at": stopped_at} for rank in s["ranks"][:4]]
    s["nodes"][0] |= {"launcher_signal": 15, "launcher_at": stopped_at}
    s["nodes"][1] |= {"silent_s": 60, "probe": "unreachable", "peers_reach": False}
    return s


def test_a_machine_that_died_before_the_scheduler_ended_the_rest_is_the_cause() -> None:
    verdict = told(scheduler_ends_the_rest(9_970))
    assert (verdict.klass, verdict.culprits.nodes) == (v.NODE_DEAD, ("n1",))
    assert verdict.action == policy.RESTART_WITHOUT


def test_one_that_fell_silent_with_the_stop_or_after_it_is_not() -> None:
    for at in (9_930, 9_942):
        assert told(scheduler_ends_the_rest(at)).klass in (v.PREEMPTED, v.STOPPED_BY_USER)


def test_an_evaluation_that_was_not_announced_and_is_at_work_is_waited_for() -> None:
    s = locked()
    at_work = ["train.py:10 main", "lm_eval/evaluator.py:300 evaluate", "model.py:9 generate"]
    s["ranks"][1] |= {"stack": at_work, "state": "R", "cpu_moving": True}
    assert (told(s).klass, told(s).action) == (v.PLANNED_SLOW_PHASE, policy.WAIT)
    s["ranks"][1]["cpu_moving"] = False
    assert told(s).klass == v.COLLECTIVE_HANG


def port_down(**failure: object) -> Json:
    """All have entered, a port of n1 that leads to n0 is down; `failure`: an earlier one."""
    s = locked(nodes=3)
    s["ranks"][1] = s["ranks"][2] | {"rank": 1, "gpu": 1}
    s["nodes"][1]["links"] = [{"name": "mlx5_3", "state": "down", "peer": "n0"}]
    s["events"] = [
        {"at": 9_881, "node": "n1", "rank": 5, "text": "NET/IB : Got completion from peer n0 with status=12 opcode=0"}
    ]
    s["history"] = [failure] if failure else []
    return s


def test_a_port_that_failed_before_costs_its_own_node_and_not_the_one_at_the_other_end() -> None:
    s = port_down(**{"class": v.NETWORK_STALL, "node": "n1", "age_s": 900, "signature": "network_stall:link"})
    verdict = told(s)
    assert (verdict.klass, verdict.action) == (v.NETWORK_STALL, policy.RESTART_WITHOUT)
    assert verdict.culprits.nodes == ("n1",)


def test_other_failures_and_those_of_the_other_end_make_no_bad_port() -> None:
    for node, klass in (("n1", v.OOM), ("n0", v.NETWORK_STALL), ("n0", v.DATA_STALL)):
        verdict = told(port_down(**{"class": klass, "node": node, "age_s": 900, "signature": f"{klass}:x"}))
        assert (verdict.action, verdict.culprits.nodes) == (policy.RESTART, ("n1", "n0")), (node, klass)


def test_a_fault_that_the_job_outlived_is_not_the_cause_of_a_lock_on_that_machine() -> None:
    s = locked()
    s["devices"] = [{"node": "n0", "gpu": 3, "xids": [{"code": 79, "at": 9_880 - 1_200}]}]
    assert (told(s).klass, told(s).action) == (v.COLLECTIVE_HANG, policy.RESTART)
    s["devices"] = [{"node": "n0", "gpu": 3, "xids": [{"code": 79, "at": 9_880 - 20}]}]
    assert told(s).klass == v.GPU_FAULT


def test_all_ranks_that_sleep_in_the_kernel_over_their_data_wait_for_storage() -> None:
    s = locked()
    reads = ["train.py:10 main", "torch/utils/data/dataloader.py:1448 _next_data", "numpy/memmap.py:9 read"]
    s["ranks"] = [
        {"rank": r, "node": f"n{r // 4}", "stack": reads, "state": "D", "wchan": "cl_sync_io_wait", "io_moving": False}
        for r in range(8)
    ]
    verdict = told(s)
    assert (verdict.klass, verdict.action, verdict.culprits.ranks) == (v.STORAGE_STALL, policy.PAGE, ())
    s["ranks"] = [rank | {"state": "S"} for rank in s["ranks"]]
    assert told(s).klass == v.DATA_STALL
    assert "waiting for their data loader" in told(s).summary
