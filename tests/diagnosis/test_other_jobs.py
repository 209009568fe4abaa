"""Jobs that end or stand for other reasons: full disks, taken ports, early leavers, the program's own errors.

What they have in common is the harm that a wrong answer does: a start that fails again, a node left out for nothing.
"""

from typing import Any

import pytest
from diagnosis_stories import Stories, Story, told
from diagnosis_world import IN_ALL_REDUCE, IN_LOADER, LOST, Json, at, came_not, job, name, nodes, waiting

from rankpulse.core import policy
from rankpulse.core import verdict as v

story = Stories()


def standing(victim: int | None = None, still_s: float = 120.0, **of_victim: Any) -> Json:
    """Sixteen ranks on two nodes, all in one collective but the victim."""
    s = job(16)
    s["job"]["still_s"] = still_s
    for r in s["ranks"]:
        at_it = r["rank"] != victim
        r |= {"stack": IN_ALL_REDUCE, "positions": waiting(100)} if at_it else {"positions": came_not(100)} | of_victim
    nodes(s, silent_s=0.5, agent_alive=True)
    return s


def failed(rank: int, error: str, size: int = 16, **of_all: Any) -> Json:
    """One rank raised this, and the others lost it."""
    s = job(size, exit_code=1, error=LOST, error_at=9905.0, **of_all)
    s["ranks"][rank] |= {"error": error, "error_at": 9900.0}
    return s


def again(s: Json, **before: Any) -> Json:
    s["history"] = [{"class": "worker_dead", "age_s": 900.0} | before]
    return s


# --- nobody may say that all came while one is silent


@story(v.COLLECTIVE_HANG, (6,), ("node-00",), policy.RESTART)
def silent_in_a_group_without_members() -> Json:
    s = standing()
    s["ranks"][6] = {"rank": 6, "node": "node-00", "gpu": 6, "dump": "no answer", "beat_age_s": 0.4, "state": "R"}
    return s


@story(v.NETWORK_STALL, (), (), policy.RESTART)
def not_collected_is_no_silence() -> Json:
    s = standing()
    s["ranks"][6] = {"rank": 6, "node": "node-00", "gpu": 6, "dump": "not collected"}
    return s


@story(v.WORKER_DEAD, (5,), ("node-00",), policy.RESTART)
def one_had_less_data() -> Json:
    s = standing()
    s["ranks"][5] = {"rank": 5, "node": "node-00", "gpu": 5, "exit_code": 0}
    return s


@story(v.WORKER_DEAD, (9,), ("node-01",), policy.RESTART)
def one_alone_was_asked_to_end() -> Json:
    s = standing()
    s["ranks"][9] = {"rank": 9, "node": "node-01", "gpu": 1, "signal": 15, "exited_at": 9880.0}
    return s


@story(v.NETWORK_STALL, (1, 2), ("node-00",), policy.RESTART)
def both_ends_of_a_link_have_come() -> Json:
    s = job(4)
    s["job"]["still_s"] = 120.0
    s["groups"] = [{"name": "pp", "members": [0, 1, 2, 3], "kind": "pp"}]
    for rank, seq, op, peer in ((0, 7, "recv", 1), (1, 9, "send", 2), (2, 9, "recv", 1), (3, 7, "recv", 2)):
        entry = {"seq": seq, "op": op, "peer": peer, "state": "started"}
        s["ranks"][rank]["positions"] = [at("pp", 5, 4, open=[entry])]
    return s


@story(v.NETWORK_STALL, (0, 1), ("node-00",), policy.RESTART)
def the_two_of_a_job_of_two() -> Json:
    s = job(2, stack=IN_ALL_REDUCE, positions=waiting(100))
    s["job"]["still_s"] = 120.0
    return s


# --- a job that moves, and one that is done


@story(v.UNKNOWN, (), (), policy.NONE)
def old_errors_in_the_logs_of_a_job_that_moves() -> Json:
    lines = ["INFO connection closed by peer (tensorboard)", "Watchdog caught collective operation timeout: old"]
    s = job(8, step=9, step_age_s=0.5, log=lines)
    s["job"]["steps_moving"] = True
    return s


@story(v.UNKNOWN, (), (), policy.NONE)
def a_loss_scaler_at_its_daily_work() -> Json:
    s = job(8, step=9, step_age_s=0.5, loss=2.1, log=["Gradient overflow. Skipping step", "grad_norm: inf"])
    s["job"]["steps_moving"] = True
    return s


@story(v.NUMERICAL, (0,), (), policy.PAGE)
def a_loss_that_is_none_in_a_log() -> Json:
    s = job(8, step=9, step_age_s=0.5)
    s["ranks"][0]["log"] = ["step 9 loss nan"]
    return s


@story(v.FINISHED, (), (), policy.NONE)
def one_is_left_in_its_tear_down() -> Json:
    s = job(16, exit_code=0)
    s["ranks"][5] |= {"exit_code": None, "alive": True, "stack": ["main", "destroy_process_group"]}
    return s


@story(v.FINISHED, (), (), policy.NONE)
def one_fell_after_all_was_done() -> Json:
    s = job(8, exit_code=0, exited_at=9990.0)
    s["ranks"][2] |= {"exit_code": -6, "exited_at": 9992.0}
    s["job"]["state"] = "finished"
    return s


@story(v.WORKER_DEAD, (2,), ("node-00",), policy.RESTART)
def one_fell_before_the_others_ended() -> Json:
    s = one_fell_after_all_was_done()
    s["ranks"][2]["exited_at"] = 9900.0
    return s


# --- who was told to leave


@story(v.PREEMPTED, (), (), policy.RESTART)
def the_time_of_the_job_is_up() -> Json:
    s = job(16, signal=15, exited_at=9991.0)
    nodes(s, launcher_signal=15, launcher_at=9990.0)
    s["events"] = [{"at": 9989.0, "text": "slurmstepd: error: *** STEP 12.0 CANCELLED DUE TO TIME LIMIT ***"}]
    return s


@story(v.PREEMPTED, tuple(range(8, 24)), ("node-01", "node-02"), policy.RESTART)
def two_nodes_leave_together() -> Json:
    s = job(32, exit_code=1, error=LOST, error_at=9902.0)
    for report in nodes(s)[1:3]:
        report |= {"launcher_signal": 15, "launcher_at": 9900.0, "planned_stop": True}
    return s


# --- a start that would only fail again


@story(v.STARTUP_FAILURE, (), ("node-00",), policy.PAGE)
def a_launcher_finds_its_port_taken() -> Json:
    s = job(16)
    s["job"]["state"] = "starting"
    nodes(s)[0] |= {
        "launcher_exit": 1,
        "launcher_error": "DistNetworkError: The server socket has failed to listen on any local network address. "
        "port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use",
    }
    return s


@story(v.STARTUP_FAILURE, (0,), ("node-00",), policy.PAGE)
def rank_0_finds_its_port_taken() -> Json:
    s = job(16, phase="init", exit_code=1, error_at=9960.0)
    for r in s["ranks"]:
        r["error"] = "DistNetworkError: The client socket has timed out after 60s trying to connect to (node-00, 29500)"
    s["ranks"][0] |= {"error": "RuntimeError: [Errno 98] Address already in use", "error_at": 9900.0}
    return s


@story(v.STARTUP_FAILURE, tuple(range(8, 16)), ("node-01",), policy.PAGE)
def one_machine_is_not_set_up() -> Json:
    s = job(16, phase="init")
    for r in s["ranks"][8:]:
        r |= {
            "exit_code": 1,
            "error_at": 9900.0,
            "error": "FileNotFoundError: No such file or directory: '/data/a.bin'",
        }
    return s


@story(v.STORAGE_STALL, (0,), ("node-00",), policy.PAGE)
def nothing_is_free() -> Json:
    return failed(0, "OSError: [Errno 28] No space left on device: '/ckpt/step_500/rank0.pt'", phase="checkpoint")


@story(v.STORAGE_STALL, (2,), ("node-00",), policy.PAGE)
def a_write_fails_where_nothing_is_free() -> Json:
    s = failed(2, "RuntimeError: PytorchStreamWriter failed writing file data/7: file write failed", phase="checkpoint")
    nodes(s)[0]["disk_free_gib"] = 0.0
    return s


# --- the same again: the program, not the node


@story(v.WORKER_DEAD, (3,), ("node-00",), policy.STOP)
def the_programs_own_error_again_on_the_same_node() -> Json:
    return again(failed(3, "KeyError: 'input_ids'"), error="KeyError: 'input_ids'", node="node-00", rank=3)


@story(v.WORKER_DEAD, (3,), ("node-00",), policy.STOP)
def its_own_check_on_the_device_again() -> Json:
    error = "RuntimeError: CUDA error: device-side assert triggered"
    return again(failed(3, error, step=55), error=error, node="node-00", gpu=3, rank=3, step=55)


@story(v.GPU_FAULT, (3,), ("node-00",), policy.RESTART_WITHOUT)
def another_error_of_the_device_again() -> Json:
    error = "RuntimeError: CUDA error: an illegal memory access was encountered"
    return again(failed(3, error), error=error, node="node-00", gpu=3, rank=3)


@story(v.WORKER_DEAD, (3,), ("node-00",), policy.PAGE)
def again_and_no_other_node_to_compare_with() -> Json:
    return again(
        failed(3, "RuntimeError: shape mismatch", size=8), error="RuntimeError: shape mismatch", node="node-00"
    )


@story(v.PLANNED_SLOW_PHASE, (4,), ("node-00",), policy.WAIT)
def a_slow_phase_again() -> Json:
    s = standing(4, 100.0, phase="compile", phase_s=100.0, cpu_moving=True, stack=["torch/_dynamo/x.py compile"])
    return again(s, **{"class": v.PLANNED_SLOW_PHASE}, node="node-00", rank=4)


@story(v.PREEMPTED, tuple(range(8, 24)), ("node-01", "node-02"), policy.RESTART)
def preempted_again() -> Json:
    return again(two_nodes_leave_together(), **{"class": v.PREEMPTED}, nodes=["node-01", "node-02"])


@story(v.COLLECTIVE_MISMATCH, (3,), ("node-00",), policy.STOP)
def a_mismatch_again_on_the_same_node() -> Json:
    s = standing()
    s["ranks"][3]["positions"] = waiting(100, "all_gather")
    return again(s, **{"class": v.COLLECTIVE_MISMATCH}, node="node-00", rank=3)


@story(v.OOM, (2,), ("node-00",), policy.PAGE)
def out_of_memory_again_on_the_same_node() -> Json:
    error = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
    return again(failed(2, error), **{"class": v.OOM}, error=error, node="node-00", rank=2)


@story(v.NETWORK_STALL, (), (), policy.PAGE)
def a_stall_of_all_at_one_and_the_same_step() -> Json:
    s = standing()
    for r in s["ranks"]:
        r["step"] = 1200
    return again(s, **{"class": v.NETWORK_STALL}, step=1200)


@story(v.COLLECTIVE_HANG, (0,), ("node-00",), policy.STOP)
def the_same_lock_again() -> Json:
    s = standing(0, state="S", stack=["train.py:210 main", "metrics.py:9 update", "threading.py:300 acquire"])
    return again(s, **{"class": v.COLLECTIVE_HANG}, node="node-00", rank=0)


@story(v.STORAGE_STALL, (0,), ("node-00",), policy.PAGE)
def nothing_is_free_again() -> Json:
    return again(nothing_is_free(), **{"class": v.STORAGE_STALL}, node="node-00")


def on_a_lemon(s: Json) -> Json:
    """Its node had three failures of other kinds."""
    kinds = (v.GPU_FAULT, v.NODE_DEAD, v.NETWORK_STALL)
    s["history"] = [{"class": kind, "node": "node-00", "age_s": 9000.0} for kind in kinds]
    return s


@story(v.DATA_STALL, (3,), ("node-00",), policy.WAIT)
def a_busy_loader_on_a_lemon() -> Json:
    loaders = {"alive": 8, "dead": 0, "busy": True}
    return on_a_lemon(standing(3, 60.0, stack=IN_LOADER, loaders=loaders))


@story(v.WORKER_DEAD, (3,), ("node-00",), policy.RESTART)
def the_programs_own_error_on_a_lemon() -> Json:
    return on_a_lemon(failed(3, "KeyError: 'input_ids'"))


@story(v.WORKER_DEAD, (3,), ("node-00",), policy.RESTART_WITHOUT)
def a_death_that_nobody_explains_on_a_lemon() -> Json:
    s = on_a_lemon(standing())
    s["ranks"][3] |= {"signal": 9, "exited_at": 9880.0}
    return s


@story(v.DATA_STALL, (3,), ("node-00",), policy.WAIT)
def a_busy_loader_again_at_the_same_step() -> Json:
    s = a_busy_loader_on_a_lemon()
    for r in s["ranks"]:
        r["step"] = 5
    return again(s, **{"class": v.DATA_STALL}, node="node-01", step=5)


# --- slow, not stuck; and what the kernel says of who is stuck


@story(v.DATA_STALL, (), (), policy.WAIT)
def all_loaders_are_at_work() -> Json:
    s = job(16, phase="step", stack=IN_LOADER, loaders={"alive": 8, "dead": 0, "busy": True})
    s["job"]["still_s"] = 60.0
    return s


@story(v.PLANNED_SLOW_PHASE, (), (), policy.WAIT)
def all_compile_and_no_phase_says_so() -> Json:
    s = job(8, cpu_moving=True, stack=["main", "torch/_inductor/compile_fx.py:12 compile_fx"])
    s["job"]["still_s"] = 300.0
    return s


@story(v.COLLECTIVE_HANG, (0,), ("node-00",), policy.NONE)
def somebody_debugs() -> Json:
    return standing(0, stack=["main", "bdb.py:90 trace_dispatch", "pdb.py:200 interaction", "input"], state="S")


@story(v.PLANNED_SLOW_PHASE, (0,), ("node-00",), policy.WAIT)
def a_profile_is_written() -> Json:
    frames = ["train.py:210 main", "torch/profiler/profiler.py:200 export_chrome_trace"]
    return standing(0, 70.0, stack=frames, state="R", io_moving=True, cpu_moving=True)


@pytest.mark.parametrize("one", story.kept, ids=lambda one: one.name)
def test_a_story_is_understood(one: Story) -> None:
    one.is_understood()


def test_what_all_ranks_of_a_machine_meet_and_no_others_is_its_set_up() -> None:
    found = told(one_machine_is_not_set_up())
    assert found.kind == "host_fault"
    assert found.steps[0] == "fix_config(node-01)"


def test_the_kernel_blames_the_machine_on_which_a_rank_is_stuck() -> None:
    s = standing(9, stack=["train.py:210 main", "model.py:7 forward"], state="R")
    s["nodes"][1]["kernel"] = ["watchdog: BUG: soft lockup - CPU#12 stuck for 22s! [python:4412]"]
    assert (told(s).klass, told(s).kind, told(s).culprits.nodes) == (v.COLLECTIVE_HANG, "host_fault", (name(9),))


def test_a_rank_of_which_nothing_is_told_at_all_makes_it_inconclusive() -> None:
    s = standing()
    del s["ranks"][5]
    found = told(s)
    assert (found.culprits.ranks, found.confidence < 0.5) == ((5,), True)


@pytest.mark.parametrize(("uptime_s", "kind"), [(40.0, "host_fault"), (90_000.0, "unknown")])
def test_ranks_that_are_gone_from_a_machine_that_came_up_since_did_not_end_by_themselves(
    uptime_s: float, kind: str
) -> None:
    s = standing()
    s["nodes"][1]["uptime_s"] = uptime_s
    s["ranks"][8:] = [{"rank": r, "node": name(r), "gpu": r % 8, "alive": False} for r in range(8, 16)]
    found = told(s)
    assert (found.klass, found.kind, found.culprits.nodes) == (v.WORKER_DEAD, kind, ("node-01",))


def test_who_is_left_at_its_tear_down_is_ended_and_nothing_is_started() -> None:
    assert told(one_is_left_in_its_tear_down()).steps == ("kill_step(5)",)
