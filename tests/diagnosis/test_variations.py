"""The same incidents with other numbers, other ranks, missing fields and traps; and what is like none of them."""

import diagnosis_incidents as incidents
import pytest
from diagnosis_stories import Stories, Story
from diagnosis_world import (
    IN_ALL_REDUCE,
    IN_LOADER,
    LOOP,
    LOST,
    TIMED_OUT,
    Json,
    at,
    came_not,
    job,
    name,
    nodes,
    waiting,
)

from rankpulse.core import policy
from rankpulse.core import verdict as v

story = Stories()


@story(v.NVLINK_DOMAIN, tuple(range(16, 32)), ("node-04", "node-05", "node-06", "node-07"), policy.RESTART_WITHOUT)
def domain_by_rank_errors() -> Json:
    s = job(32, 4)
    s["taken_at"] = 1000
    s["devices"] = [{"node": name(r, 4), "gpu": r % 4, "domain": f"d{r // 16}"} for r in range(32)]
    for r in s["ranks"]:
        i = r["rank"]
        if i == 22:
            r |= {"error": "CUDA error: contained error", "error_at": 900.0}
        elif 16 <= i < 32:
            r |= {"error": "CUDA error: unspecified launch failure", "error_at": 900.3}
        else:
            r |= {"error": LOST, "error_at": 905.0 + i * 0.1}
    return s


@story(v.GPU_FAULT, (12,), ("node-03",), policy.RESTART_WITHOUT)
def memory_fault_in_domain_is_the_gpu() -> Json:
    s = incidents.fallen_domain()
    s["devices"] = [{"node": "node-03", "gpu": 0, "xids": [{"code": 95, "at": 9989.9}]}]
    return s


@story(v.NVLINK_DOMAIN, tuple(range(64, 80)), ("node-16", "node-17", "node-18", "node-19"), policy.RESTART_WITHOUT)
def fallen_other() -> Json:
    return incidents.fallen_domain("node-17", skew_s=30.0)


@story(v.DATA_STALL, (11,), ("node-01",), policy.RESTART)
def eval_hang_some_stacks_missing() -> Json:
    s = incidents.evaluation_hang(11)
    for r in s["ranks"][1:6]:
        r.pop("stack")
    return s


@story(v.DATA_STALL, (19,), ("node-02",), policy.RESTART)
def loader_positions_only_stack_of_victim() -> Json:
    s = incidents.loader_stuck(19)
    for r in s["ranks"]:
        if r["rank"] != 19:
            r.pop("stack")
    return s


@story(v.DATA_STALL, (3,), ("node-00",), policy.RESTART)
def loader_counters_only() -> Json:
    s = incidents.loader_stuck(3)
    for r in s["ranks"]:
        for p in r["positions"]:
            p.pop("open", None)
            p.pop("started", None)
    return s


@story(v.DATA_STALL, (3,), ("node-00",), policy.RESTART)
def loader_with_old_xid_elsewhere() -> Json:
    s = incidents.loader_stuck(3)
    s["job"]["still_s"] = 100.0
    s["devices"] = [{"node": "node-02", "gpu": 1, "xids": [{"code": 79, "at": 100.0}]}]
    return s


@story(v.DATA_STALL, (3,), ("node-00",), policy.RESTART)
def loader_with_xid63_elsewhere() -> Json:
    s = incidents.loader_stuck(3)
    s["devices"] = [{"node": "node-02", "gpu": 1, "xids": [63, 45, 43]}]
    return s


@story(v.GPU_FAULT, (3,), ("node-00",), policy.RESTART_WITHOUT)
def loader_but_gpu_fault_on_it() -> Json:
    s = incidents.loader_stuck(3)
    s["devices"] = [{"node": "node-00", "gpu": 3, "xids": [79]}]
    return s


@story(v.COLLECTIVE_MISMATCH, (6,), ("node-00",), policy.PAGE)
def mismatch_struct() -> Json:
    s = job(8)
    for r in s["ranks"]:
        r["positions"] = [
            at("w", 100, 99, open=[{"seq": 100, "op": "all_reduce", "sizes": [1024], "state": "started"}])
        ]
    s["ranks"][6]["positions"][0]["open"][0]["sizes"] = [2048]
    return s


@story(v.COLLECTIVE_MISMATCH, (2,), ("node-00",), policy.PAGE)
def mismatch_other_op() -> Json:
    s = job(8)
    for r in s["ranks"]:
        r["positions"] = [at("w", 100, 99, open=[{"seq": 100, "op": "all_reduce", "sizes": [1024]}])]
    s["ranks"][2]["positions"][0]["open"][0]["op"] = "broadcast"
    return s


@story(v.STORAGE_STALL, (5,), ("node-00",), policy.RESTART)
def save_no_progress() -> Json:
    return incidents.long_save(5, False)


@story(v.PLANNED_SLOW_PHASE, (5,), ("node-00",), policy.WAIT)
def save_unknown_progress() -> Json:
    return incidents.long_save(5, None)


@story(v.PLANNED_SLOW_PHASE, (5,), ("node-00",), policy.RESTART)
def save_killed() -> Json:
    return incidents.long_save(5, True, True)


@story(v.STORAGE_STALL, (5,), ("node-00",), policy.RESTART)
def save_D() -> Json:
    s = incidents.long_save(5, None)
    s["ranks"][5] |= {"state": "D", "wchan": "nfs_wait_bit_killable"}
    return s


@story(v.PLANNED_SLOW_PHASE, (), (), policy.WAIT)
def save_all_ranks() -> Json:
    s = job(16, phase="checkpoint", phase_s=20.0, step=300, io_moving=True)
    s["job"]["still_s"] = 20.0
    return s


@story(v.PLANNED_SLOW_PHASE, (), (), policy.WAIT)
def save_all_ranks_noinfo() -> Json:
    s = job(4, phase="checkpoint", phase_s=20.0, step=300, step_age_s=20.0)
    return s


@story(v.NETWORK_STALL, (), (), policy.RESTART)
def nobody_counters() -> Json:
    s = incidents.nobody_behind()
    for r in s["ranks"]:
        r["positions"][0].pop("open")
    s.pop("groups")
    return s


@story(v.PLANNED_SLOW_PHASE, (4,), ("node-00",), policy.WAIT)
def alarm_step_cpu() -> Json:
    s = incidents.false_alarm(4, "step", True)
    for r in s["ranks"]:
        if r["rank"] != 4:
            r["stack"] = IN_ALL_REDUCE
    s["ranks"][4]["stack"] = [*LOOP, "tokenize.py:3 build_vocab"]
    return s


@story(v.COLLECTIVE_HANG, (4,), ("node-00",), policy.RESTART)
def alarm_gil_real() -> Json:
    s = incidents.false_alarm(4, "step", False)
    s["ranks"][4]["gil_held"] = True
    for r in s["ranks"]:
        if r["rank"] != 4:
            r["stack"] = IN_ALL_REDUCE
    return s


@story(v.PLANNED_SLOW_PHASE, (4,), ("node-00",), policy.WAIT)
def alarm_resumed() -> Json:
    s = incidents.false_alarm(4, "step", True)
    s["job"]["steps_moving"] = True
    return s


@story(v.CONTROL_PLANE_DELAY, (), ("node-06",), policy.WAIT)
def start_growing() -> Json:
    s = job(64, phase="init")
    nodes(s, registered=True)
    for n in s["nodes"][5:]:
        n["registered"] = False
    s["events"] = [
        {
            "node": "node-06",
            "text": "The client socket has timed out after 60s while trying to connect to store (head, 29500)",
        }
    ]
    s["job"] |= {"expected_nodes": 8, "arrived_nodes": 5, "arrivals_growing": True}
    return s


@story(v.STARTUP_FAILURE, tuple(range(8, 16)), ("node-01",), policy.PAGE)
def start_by_events() -> Json:
    s = job(16, phase="init")
    nodes(s)
    s["job"]["state"] = "starting"
    s["events"] = [{"node": "node-01", "text": "socket.gaierror: [Errno -3] Temporary failure in name resolution"}]
    return s


@story(v.NODE_DEAD, tuple(range(24, 32)), ("node-03",), policy.RESTART_WITHOUT)
def node_dead_plain() -> Json:
    s = incidents.dead_node("node-03")
    for n in s["nodes"]:
        n.pop("exporter_alive")
        n.pop("agent_alive")
        n.pop("probe", None)
    return s


@story(v.NODE_DEAD, tuple(range(24, 32)), ("node-03",), policy.RESTART_WITHOUT)
def node_dead_peers_crashed() -> Json:
    s = incidents.dead_node("node-03")
    for r in s["ranks"]:
        if r["node"] != "node-03":
            r |= {"exit_code": 1, "error": LOST, "exited_at": 9995.0}
    return s


@story(v.CONTROL_PLANE_DELAY, tuple(range(8, 16)), ("node-01",), policy.NONE)
def node_alibi() -> Json:
    s = job(32, step=50, step_age_s=1.0, step_s=2.0)
    nodes(s, silent_s=0.3)
    s["nodes"][1] |= {"silent_s": 40.0, "probe": "timeout"}
    return s


@story(v.SIDECAR_DEAD, tuple(range(8, 16)), ("node-01",), policy.NONE)
def sidecar() -> Json:
    s = job(32, step=50, step_age_s=1.0, step_s=2.0)
    nodes(s, silent_s=0.3)
    s["nodes"][1] |= {"silent_s": 40.0, "probe": "refused"}
    return s


@story(v.CONTROL_PLANE_DELAY, tuple(range(16, 24)), ("node-02",), policy.NONE)
def probe_ok() -> Json:
    s = job(32)
    nodes(s, silent_s=0.3)
    s["nodes"][2] |= {"silent_s": 20.0, "probe": "answered"}
    return s


@story(v.PARTITION, tuple(range(16, 24)), ("node-02",), policy.PAGE)
def partition() -> Json:
    s = job(32)
    nodes(s, silent_s=0.3)
    s["nodes"][2] |= {"silent_s": 20.0, "probe": "timeout", "peers_reach": True}
    return s


@story(v.NODE_DEAD, tuple(range(16, 40)), ("node-02", "node-03", "node-04"), policy.RESTART_WITHOUT)
def rack_dead() -> Json:
    s = job(64)
    nodes(s, silent_s=0.3)
    for i in (2, 3, 4):
        s["nodes"][i] |= {"silent_s": 20.0 + i * 0.1, "probe": "unreachable", "rack": "r7"}
    return s


@story(v.MONITOR_BLIND, (), (), policy.NONE)
def blind() -> Json:
    s = job(64)
    nodes(s, silent_s=30.0)
    s["monitor"] = {"blind": True, "why": "the watch is silent"}
    return s


@story(v.PREEMPTED, tuple(range(40, 48)), ("node-05",), policy.RESTART)
def rdzv_events() -> Json:
    s = job(64)
    nodes(s)
    s["events"] = [
        {"at": 100 + i, "node": f"node-0{i}", "text": "torch.distributed.elastic.rendezvous.api.RendezvousClosedError"}
        for i in range(8)
        if i != 5
    ]
    s["events"].append({"at": 90, "node": "node-05", "text": "torchrun received SIGTERM, shutting down"})
    return s


@story(v.STARTUP_FAILURE, (), ("node-02",), policy.RESTART)
def rdzv_clean() -> Json:
    return incidents.closed_rendezvous(2, None)


@story(v.WORKER_DEAD, (9,), ("node-01",), policy.RESTART)
def crash_text() -> Json:
    s = job(16)
    s["ranks"][9] |= {"exit_code": 1, "error": "ValueError: bad sample"}
    s["job"]["state"] = "running"
    return s


@story(v.WORKER_DEAD, (9,), ("node-01",), policy.RESTART)
def crash_events_only() -> Json:
    s = job(16)
    s["events"] = [
        {"at": 5, "rank": 9, "node": "node-01", "text": "ValueError: bad sample"},
        {"at": 6, "rank": 2, "text": LOST},
    ]
    s["taken_at"] = 20.0
    return s


@story(v.WORKER_DEAD, (9,), ("node-01",), policy.RESTART)
def launcher_killed_rest() -> Json:
    s = job(16, signal=9)
    s["ranks"][9] |= {"signal": None, "exit_code": 1, "error": "ValueError: x"}
    return s


@story(v.GPU_FAULT, (11,), ("node-01",), policy.RESTART_WITHOUT)
def bad_node_generic() -> Json:
    return incidents.same_bad_node(1, 2, "CUDA error: unknown error")


@story(v.STARTUP_FAILURE, tuple(range(0, 32)), ("node-00", "node-01", "node-02", "node-03"), policy.STOP)
def python_error_everywhere() -> Json:
    s = job(32, phase="init")
    for r in s["ranks"]:
        r |= {"exit_code": 1, "error": "ModuleNotFoundError: No module named 'foo'"}
    s["history"] = [
        {"class": "startup_failure", "error": "ModuleNotFoundError: No module named 'foo'", "node": "node-07"}
    ]
    return s


@story(v.WORKER_DEAD, (3,), ("node-00",), policy.STOP)
def same_step_twice() -> Json:
    s = job(32, step=700)
    s["ranks"][3] |= {"exit_code": 1, "error": "IndexError: 5 out of range"}
    s["history"] = [{"class": "worker_dead", "error": "IndexError: 9 out of range", "node": "node-03", "step": 700}]
    return s


@story(v.GPU_FAULT, (12,), ("node-01",), policy.RESTART_WITHOUT)
def illegal_twice() -> Json:
    return incidents.illegal_instruction(12, True)


@story(v.WORKER_DEAD, tuple(range(0, 128, 2)), tuple(f"node-{i:02d}" for i in range(16)), policy.RESTART)
def illegal_many() -> Json:
    s = incidents.illegal_instruction(12)
    for r in s["ranks"][::2]:
        r["error"] = "CUDA error: an illegal memory access was encountered"
        r["exited_at"] = 9990.0
    return s


@story(v.NVLINK_DOMAIN, tuple(range(32, 40)), ("node-04",), policy.RESTART_WITHOUT)
def nvlink_two() -> Json:
    s = incidents.nvlink_before_save()
    s["devices"].append({"node": "node-04", "gpu": 5, "domain": "nvl-4", "xids": [{"code": 74, "at": 9980.1}]})
    return s


@story(v.NODE_DEAD, tuple(range(24, 32)), ("node-03",), policy.RESTART_WITHOUT)
def lemon_with_dead() -> Json:
    s = incidents.dead_node("node-03")
    s["history"] = [{"class": "node_dead", "node": "node-03", "age_s": 3000, "action": "reboot"}]
    return s


@story(v.GPU_FAULT, (17,), ("node-02",), policy.DRAIN)
def storm_only() -> Json:
    s = incidents.corrected_storm(1, 17000)
    s.pop("monitor")
    return s


@story(v.GPU_FAULT, (2,), ("node-00",), policy.RESTART_WITHOUT)
def gsp_dev() -> Json:
    s = job(16)
    s["devices"] = [{"node": "node-00", "gpu": 2, "xids": [{"code": 119, "process": "dcgm"}]}]
    s["job"]["still_s"] = 300
    return s


@story(v.NETWORK_STALL, (3,), ("node-00", "node-01"), policy.RESTART)
def port_in_logs() -> Json:
    s = job(16)
    s["ranks"][3]["log"] = [
        "NCCL WARN NET/IB : Got completion from peer 10.1.2.3<4242> with status=12 opcode=0 len=0 vendor err 129 (Recv)"
    ]
    for r in (1, 2, 9):
        s["ranks"][r]["log"] = ["NCCL WARN NET/IB : Got completion with status=5 opcode=0 (flush)"]
    nodes(s)
    s["nodes"][0]["links"] = [{"name": "mlx5_7", "state": "DOWN", "peer": "node-01"}]
    return s


@story(v.OOM, (), ("node-00",), policy.PAGE)
def orphan_unknown_parent() -> Json:
    s = incidents.left_over()
    for p in s["nodes"][0]["processes"]:
        p.pop("job_alive")
    return s


@story(v.OOM, tuple(range(0, 4)), ("node-00",), policy.PAGE)
def other_live_job_not_killed() -> Json:
    s = incidents.left_over(alive=True, parent=1)
    return s


@story(v.WORKER_DEAD, (2,), ("node-00",), policy.RESTART)
def buserr() -> Json:
    return incidents.bus_error(retried=False)


@story(v.OOM, (6,), ("node-00",), policy.RESTART)
def nine_oom() -> Json:
    return incidents.killed_by_nine(6, True, True)


@story(v.WORKER_DEAD, (6,), ("node-00",), policy.RESTART)
def nine_oom_other() -> Json:
    s = incidents.killed_by_nine(6, True, True)
    s["nodes"][0]["kernel"] = ["Out of memory: Killed process 99 (chrome) total-vm"]
    return s


@story(v.NUMERICAL, tuple(range(0, 8)), (), policy.PAGE)
def nan() -> Json:
    s = job(8, step=100)
    for r in s["ranks"]:
        r["loss"] = "nan"
    return s


@story(v.NUMERICAL, (3,), ("node-00",), policy.PAGE)
def nan_moving() -> Json:
    s = job(8, step=100, step_age_s=0.5, step_s=1.0, loss=2.3)
    s["ranks"][3]["loss"] = "inf"
    return s


@story(v.STRAGGLER, (3,), ("node-00",), policy.NONE)
def strag() -> Json:
    s = job(16, step=100, step_age_s=0.5, step_s=1.0, compute_s=0.6)
    s["ranks"][3]["compute_s"] = 1.4
    s["devices"] = [{"node": "node-00", "gpu": 3, "throttled": "thermal"}]
    return s


@story(v.FINISHED, (), (), policy.NONE)
def finished() -> Json:
    return job(8, exit_code=0)


@story(v.STOPPED_BY_USER, (), (), policy.NONE)
def stopped() -> Json:
    s = job(8, signal=15)
    s["job"]["stop_signal"] = 15
    return s


@story(v.STOPPED_BY_USER, (), (), policy.NONE)
def ctrlc() -> Json:
    s = job(8, exit_code=1, error="KeyboardInterrupt")
    s["job"]["stop_signal"] = 2
    return s


@story(v.STOPPED_BY_USER, (1,), (), policy.NONE)
def pulse_closed() -> Json:
    s = job(8, pulse="open")
    s["ranks"][1]["pulse"] = "closed"
    s["ranks"][1]["exit_code"] = 0
    return s


@story(v.WORKER_DEAD, (2,), ("node-00",), policy.RESTART)
def stop_after_crash() -> Json:
    s = job(8, signal=15, exited_at=9950.0)
    s["job"]["stop_signal"] = None
    s["ranks"][2] |= {"signal": 11, "exited_at": 9940.0}
    return s


@story(v.UNKNOWN, (), (), policy.NONE)
def healthy() -> Json:
    s = job(8, step=10, step_age_s=0.5, step_s=1.0)
    return s


@story(v.COLLECTIVE_HANG, (5,), ("node-00",), policy.RESTART)
def sigstop() -> Json:
    s = job(8)
    for r in s["ranks"]:
        r["positions"] = waiting(5)
        r["state"] = "S"
    s["ranks"][5] |= {"state": "T", "positions": [], "dump": "no answer"}
    return s


@story(v.COLLECTIVE_HANG, (5,), ("node-00",), policy.RESTART)
def lock() -> Json:
    s = job(8)
    for r in s["ranks"]:
        r["positions"] = waiting(5)
        r["state"] = "S"
    s["ranks"][5] |= {"positions": came_not(5), "stack": [*LOOP, "mylib.py:5 update", "threading.py:100 acquire"]}
    return s


@story(v.STORAGE_STALL, (5,), ("node-00",), policy.RESTART)
def pipe() -> Json:
    s = job(8)
    for r in s["ranks"]:
        r["positions"] = waiting(5)
        r["state"] = "S"
    s["ranks"][5] |= {"positions": came_not(5), "stack": [*LOOP, "mylib.py:5 log", "os.write"], "wchan": "pipe_write"}
    return s


@story(v.WORKER_DEAD, (5,), ("node-00",), policy.RESTART)
def dead_silent() -> Json:
    s = job(8)
    for r in s["ranks"]:
        r["positions"] = waiting(5)
        r["state"] = "S"
    s["ranks"][5] |= {"positions": [], "alive": False, "state": "", "stack": []}
    return s


@story(v.DATA_STALL, (5,), ("node-00",), policy.RESTART)
def loader_worker_dead() -> Json:
    s = job(8)
    for r in s["ranks"]:
        r["positions"] = waiting(5)
        r["state"] = "S"
    s["ranks"][5] |= {"positions": came_not(5), "stack": IN_LOADER, "loaders": {"alive": 1, "dead": 1}}
    return s


@story(v.COLLECTIVE_HANG, (2,), ("node-00",), policy.RESTART_WITHOUT)
def hang_with_D() -> Json:
    s = job(8, stack=IN_ALL_REDUCE)
    s["ranks"][2] |= {"state": "D", "wchan": "nv_wait", "stack": []}
    return s


@story(v.PREEMPTED, tuple(range(8, 16)), ("node-01",), policy.RESTART)
def drain_preempt() -> Json:
    s = job(16)
    nodes(s)
    s["nodes"][1] |= {"planned_stop": True, "launcher_signal": 15}
    return s


@story(v.PREEMPTED, (), (), policy.RESTART)
def slurm_timelimit() -> Json:
    s = job(16, signal=15)
    s["events"] = [{"text": "slurmstepd: error: *** STEP 12.0 CANCELLED AT 2026 DUE TO TIME LIMIT ***"}]
    return s


@story(v.STOPPED_BY_USER, (), (), policy.NONE)
def scancel() -> Json:
    s = job(16, signal=15)
    s["events"] = [{"text": "slurmstepd: error: *** STEP 12.0 ON n1 CANCELLED AT 2026 BY USER 1001 ***"}]
    return s


@story(v.STARTUP_FAILURE, (4,), ("node-00",), policy.RESTART)
def import_err_one() -> Json:
    s = job(16, phase="init")
    s["ranks"][4] |= {"exit_code": 1, "error": "FileNotFoundError: /data/x"}
    return s


@story(v.NODE_DEAD, tuple(range(8, 16)), ("node-01",), policy.RESTART_WITHOUT)
def kernel_panic() -> Json:
    s = job(16)
    nodes(s, silent_s=0.1)
    s["nodes"][1] |= {"silent_s": 9.0, "kernel": ["Kernel panic - not syncing: Fatal exception"]}
    return s


@story(v.COLLECTIVE_HANG, (7,), ("node-00",), policy.RESTART)
def gpu_stuck_host_ahead() -> Json:
    s = job(16)
    s["groups"] = [{"name": "world", "members": list(range(16)), "kind": "dp"}]
    for r in s["ranks"]:
        r["positions"] = waiting(50)
    s["ranks"][7]["positions"] = [
        at("world", 58, 49, started=49, open=[{"seq": x, "op": "all_reduce"} for x in range(50, 59)])
    ]
    s["ranks"][7]["stack"] = [*LOOP, "torch/cuda/__init__.py synchronize"]
    return s


@story(v.GPU_FAULT, (), ("n7",), policy.RESTART_WITHOUT)
def ecc_told_by_an_event_alone() -> Json:
    s = {
        "history": [
            {
                "node": "n7",
                "error": "CUDA error: uncorrectable ECC error encountered",
                "class": "worker_dead",
                "age_s": 60,
            }
        ],
        "events": [{"at": 5, "node": "n7", "text": "cuCtxCreate failed: CUDA_ERROR_ECC_UNCORRECTABLE (214)"}],
        "taken_at": 9,
        "job": {"state": "starting"},
    }
    return s


@story(v.GPU_FAULT, (0,), ("n7",), policy.RESTART_WITHOUT)
def a_device_error_twice_on_one_node() -> Json:
    s = {
        "ranks": [
            {"rank": 0, "node": "n7", "exit_code": 1, "error": "CUDA error: initialization error"},
            {"rank": 1, "node": "n8"},
        ],
        "history": [{"node": "n7", "error": "CUDA error: initialization error"}],
    }
    return s


@story(v.WORKER_DEAD, (0,), ("n7",), policy.STOP)
def the_same_exception_on_another_node() -> Json:
    s = {
        "ranks": [
            {
                "rank": 0,
                "node": "n7",
                "exit_code": 1,
                "error": "RuntimeError: shapes cannot be multiplied (3x4 and 5x6)",
            },
            {"rank": 1, "node": "n8"},
        ],
        "history": [{"node": "n3", "error": "RuntimeError: shapes cannot be multiplied (3x4 and 5x6)"}],
    }
    return s


@story(v.GPU_FAULT, (), ("h3",), policy.DRAIN)
def only_a_past() -> Json:
    return {
        "history": [
            {"node": "h3", "class": "gpu_fault", "age_s": 3000},
            {"node": "h3", "class": "gpu_fault", "age_s": 50000},
            {"node": "h9", "class": "gpu_fault", "age_s": 9000},
        ],
        "job": {"spares": 1, "failures_per_day": 2, "repair_days": 2},
    }


@story(v.COLLECTIVE_MISMATCH, (2, 3), (), policy.PAGE)
def mismatch_in_events() -> Json:
    s = job(4)
    s["events"] = [
        {"rank": 3, "text": "Watchdog: BROADCAST numel 64 seq 7219"},
        {"rank": 2, "text": "Watchdog: BROADCAST numel 24084544 seq 7219"},
        {"rank": 0, "text": "ALLREDUCE seq 7221"},
    ]
    return s


@story(v.COLLECTIVE_MISMATCH, (3,), ("node-00",), policy.PAGE)
def mismatch_in_positions() -> Json:
    s = job(4)
    s["ranks"][3]["positions"] = [at("w", 7219, 7218, open=[{"seq": 7219, "op": "BROADCAST", "sizes": [64]}])]
    s["ranks"][2]["positions"] = [at("w", 7219, 7218, open=[{"seq": 7219, "op": "BROADCAST", "sizes": [24084544]}])]
    s["ranks"][1]["positions"] = [at("w", 7219, 7218, open=[{"seq": 7219, "op": "BROADCAST", "sizes": [24084544]}])]
    s["ranks"][0]["positions"] = [at("w", 7221, 7220, open=[{"seq": 7221, "op": "ALLREDUCE", "sizes": [1]}])]
    return s


@story(v.COLLECTIVE_MISMATCH, (2, 3), (), policy.PAGE)
def mismatch_and_dead() -> Json:
    s = incidents.mismatch()
    for r in (0, 2, 3):
        s["ranks"][r] |= {"error": s["ranks"][r].pop("log")[0], "exit_code": -6}
    return s


@story(v.WORKER_DEAD, (0,), ("a",), policy.RESTART)
def signal_nine_in_words() -> Json:
    return {"ranks": [{"rank": 0, "node": "a", "error": "exitcode: -9"}, {"rank": 1, "node": "a"}]}


@story(v.WORKER_DEAD, (3,), ("node-00",), policy.RESTART)
def signal_nine_log_unreadable() -> Json:
    s = incidents.killed_by_nine(3, False)
    return s


@story(v.WORKER_DEAD, (3,), ("node-00",), policy.RESTART)
def crash_in_the_words_of_the_scheduler() -> Json:
    s = job(8, stack=IN_ALL_REDUCE)
    s["ranks"][3]["stack"] = []
    s["events"] = [
        {"at": 9999, "rank": 3, "node": "node-00", "text": "srun: error: node-00: task 3: Exited with exit code 7"}
    ]
    return s


@story(v.GPU_FAULT, (12,), ("node-01",), policy.RESTART_WITHOUT)
def gsp_in_events() -> Json:
    s = job(16, stack=IN_ALL_REDUCE)
    s["events"] = [
        {
            "at": 9990,
            "node": "node-01",
            "gpu": 4,
            "text": "NVRM: Xid (PCI:0000:ab:00): 119, pid=2210, name=nvidia-smi, Timeout after 45s",
        }
    ]
    return s


@story(v.STARTUP_FAILURE, (), ("node-01",), policy.NONE)
def driver_flag() -> Json:
    s = job(16)
    nodes(s)[1]["driver_mismatch"] = True
    s["job"]["steps_moving"] = True
    return s


@story(v.STORAGE_STALL, (), (), policy.PAGE)
def regression_without_interval() -> Json:
    return {"ranks": [{"rank": 0, "step": 100}], "saving": {"resumed_step": 90, "announced_step": 8100}}


@story(v.UNKNOWN, (), (), policy.NONE)
def regression_within_interval() -> Json:
    return {
        "ranks": [{"rank": 0, "step": 100}],
        "job": {"step_s": 1, "steps_moving": True},
        "saving": {"resumed_step": 8000, "announced_step": 8100, "interval_s": 500},
    }


@story(v.STORAGE_STALL, (), (), policy.RESTART)
def empty_shard_alone() -> Json:
    return {"saving": {"broken": ["shard_3: 0 bytes"]}, "job": {"state": "starting"}}


@story(v.OOM, (), ("a",), policy.PAGE)
def orphan_alone() -> Json:
    return {
        "nodes": [{"node": "a", "processes": [{"pid": 4, "parent": 1, "gpu_memory_gib": 80, "job_alive": False}]}],
        "job": {"state": "starting"},
    }


@story(v.COLLECTIVE_HANG, (1,), ("node-00",), policy.RESTART_WITHOUT)
def uninterruptible_alone() -> Json:
    s = job(8, state="S", stack=IN_ALL_REDUCE)
    s["ranks"][1] |= {"state": "D", "stack": []}
    return s


@story(v.NETWORK_STALL, (), ("node-01",), policy.RESTART)
def port_by_its_state_alone() -> Json:
    s = job(16, stack=IN_ALL_REDUCE)
    nodes(s)[1]["links"] = [{"name": "mlx5_7", "state": "POLLING", "flaps": 4, "peer": "node-00"}]
    return s


@story(v.GPU_FAULT, (10,), ("node-01",), policy.RESTART_WITHOUT)
def nvlink_in_an_event() -> Json:
    s = job(16, step=100)
    s["events"] = [{"at": 9999, "node": "node-01", "gpu": 2, "text": "NVLINK uncorrectable error detected"}]
    s["saving"] = {"last_complete_age_s": 3240, "interval_s": 3600}
    return s


@story(v.PLANNED_SLOW_PHASE, (), (), policy.WAIT)
def alarm_in_evaluation() -> Json:
    s = incidents.false_alarm(4, "eval", True)
    for r in s["ranks"]:
        if r["rank"] != 4:
            r["stack"] = IN_ALL_REDUCE
    return s


@story(v.WORKER_DEAD, (9,), ("node-01",), policy.RESTART)
def xid_13_of_one_device() -> Json:
    s = job(64)
    for r in s["ranks"]:
        r |= {"exit_code": 1, "error": "barrier abort"}
    s["ranks"][9]["error"] = ""
    s["devices"] = [{"node": "node-01", "gpu": 1, "xids": [13]}]
    return s


@story(v.GPU_FAULT, (9,), ("node-01",), policy.RESTART_WITHOUT)
def xid_13_again() -> Json:
    s = xid_13_of_one_device()
    s["history"] = [{"node": "node-01", "gpu": 1, "error": "Xid 13", "class": "worker_dead"}]
    return s


@story(v.GPU_FAULT, (12,), ("node-03",), policy.RESTART_WITHOUT)
def no_topology() -> Json:
    s = incidents.fallen_domain()
    s.pop("topology")
    return s


@story(v.NODE_DEAD, tuple(range(8, 16)), ("node-01",), policy.RESTART_WITHOUT)
def dead_by_the_probe_alone() -> Json:
    s = job(16)
    nodes(s)
    s["nodes"][1]["probe"] = "timeout"
    s["job"]["still_s"] = 8
    return s


@story(v.NODE_DEAD, tuple(range(16, 24)), ("node-02",), policy.RESTART_WITHOUT)
def dead_node_and_watchdogs() -> Json:
    s = incidents.dead_node("node-02", 4)
    for r in s["ranks"]:
        if r["node"] != "node-02":
            r |= {"log": [TIMED_OUT.format(seq=90)]}
    return s


@story(v.NETWORK_STALL, (), (), policy.RESTART)
def nobody_behind_and_counters() -> Json:
    s = incidents.nobody_behind()
    nodes(s)[0]["links"] = [{"name": "mlx5_1", "errors": 900}]
    return s


@story(v.STARTUP_FAILURE, tuple(range(40, 48)), ("node-05",), policy.PAGE)
def nobody_arrives_any_more() -> Json:
    s = incidents.unresolved(growing=False)
    return s


@story(v.DATA_STALL, (2,), ("node-00",), policy.RESTART)
def loader_against_positions() -> Json:
    s = incidents.evaluation_hang(2)
    for r in s["ranks"]:
        r["gpu_util"] = 100
        if r["rank"] != 2:
            r.pop("stack")
            r["positions"] = waiting(9)
    return s


@story(v.DATA_STALL, (3, 4), ("node-00",), policy.RESTART)
def two_loaders() -> Json:
    s = incidents.loader_stuck(3)
    s["ranks"][4] |= {"stack": IN_LOADER, "positions": came_not(812)}
    return s


@story(v.PLANNED_SLOW_PHASE, (3,), ("node-00",), policy.WAIT)
def save_whose_bytes_move() -> Json:
    s = incidents.long_save(3, None)
    s["saving"] = {"bytes_moving": True}
    return s


@story(v.STORAGE_STALL, (3,), ("node-00",), policy.RESTART)
def save_whose_bytes_stand() -> Json:
    s = incidents.long_save(3, None)
    s["saving"] = {"bytes_moving": False}
    return s


@story(v.PLANNED_SLOW_PHASE, (3,), ("node-00",), policy.WAIT)
def save_without_stack() -> Json:
    s = incidents.long_save(3, True)
    s["ranks"][3].pop("stack")
    return s


@story(v.PLANNED_SLOW_PHASE, (3,), ("node-00",), policy.WAIT)
def writer_alone_in_its_phase() -> Json:
    s = incidents.long_save(3, True)
    for r in s["ranks"]:
        r["phase"] = "step"
    s["ranks"][3]["phase"] = "checkpoint"
    return s


@story(v.PREEMPTED, (), ("a",), policy.RESTART)
def closed_rendezvous_in_words() -> Json:
    return {
        "events": [
            {"at": 1, "node": "a", "text": "agent got SIGTERM"},
            {"at": 2, "node": "b", "text": "RendezvousClosedError"},
            {"at": 2.1, "node": "c", "text": "RendezvousClosedError"},
        ],
        "taken_at": 10,
    }


@story(v.STARTUP_FAILURE, (), ("a",), policy.RESTART)
def closed_after_success_in_words() -> Json:
    return {
        "events": [
            {"at": 1, "node": "a", "text": "agent finished, worker group SUCCEEDED"},
            {"at": 2, "node": "b", "text": "RendezvousClosedError"},
            {"at": 2.1, "node": "c", "text": "RendezvousClosedError"},
        ],
        "taken_at": 10,
    }


@story(v.GPU_FAULT, (2,), ("node-00",), policy.RESTART_WITHOUT)
def two_xids_one_old_same_node() -> Json:
    s = job(16, stack=IN_ALL_REDUCE)
    s["job"]["still_s"] = 60
    s["devices"] = [
        {"node": "node-00", "gpu": 2, "xids": [{"code": 79, "at": 9930}]},
        {"node": "node-01", "gpu": 2, "xids": [{"code": 79, "at": 1000}]},
    ]
    return s


@story(v.NETWORK_STALL, (), (), policy.RESTART)
def xid45_only() -> Json:
    s = job(16, stack=IN_ALL_REDUCE)
    s["devices"] = [{"node": "node-00", "gpu": 2, "xids": [45, 43]}]
    return s


@story(v.NETWORK_STALL, (), (), policy.RESTART)
def xid_unlisted() -> Json:
    s = job(16, stack=IN_ALL_REDUCE)
    s["devices"] = [{"node": "node-00", "gpu": 2, "xids": [999]}]
    return s


@story(v.GPU_FAULT, (4,), ("node-00",), policy.RESTART_WITHOUT)
def straggler_hw_and_hang() -> Json:
    s = job(16, stack=IN_ALL_REDUCE)
    s["ranks"][4] |= {"stack": [*LOOP, "model.py:5 forward"]}
    s["devices"] = [{"node": "node-00", "gpu": 4, "ecc_uncorrected": 2}]
    return s


@story(v.OOM, (3,), ("node-00",), policy.RESTART)
def oom_one_rank() -> Json:
    s = job(16, step=5)
    s["ranks"][3] |= {"exit_code": 1, "error": "torch.OutOfMemoryError: CUDA out of memory."}
    return s


@story(v.OOM, (3,), ("node-00",), policy.RESTART)
def oom_loader() -> Json:
    s = job(8)
    s["ranks"][3] |= {"exit_code": 1, "error": "RuntimeError: DataLoader worker (pid 123) is killed by signal: Killed."}
    nodes(s)[0]["kernel"] = ["Out of memory: Killed process 123 (python)"]
    return s


@story(v.WORKER_DEAD, (3,), ("node-00",), policy.RESTART)
def segv() -> Json:
    s = job(8, exit_code=1, error=LOST)
    s["ranks"][3] |= {"exit_code": 139, "error": ""}
    return s


@story(v.UNKNOWN, (), (), policy.PAGE)
def all_victims() -> Json:
    s = job(8, exit_code=1, error=LOST)
    return s


@story(v.PARTITION, tuple(range(16, 24)), ("node-02",), policy.PAGE)
def cut_from_peers() -> Json:
    s = job(32, stack=IN_ALL_REDUCE)
    nodes(s, silent_s=0.3)
    s["nodes"][2]["peers_reach"] = False
    return s


@story(v.SIDECAR_DEAD, tuple(range(16, 24)), ("node-02",), policy.NONE)
def agent_gone_ranks_seen() -> Json:
    s = job(32, stack=IN_ALL_REDUCE)
    nodes(s, silent_s=0.3, agent_alive=True)
    s["nodes"][2] |= {"agent_alive": False, "silent_s": 30.0}
    return s


@story(v.CONTROL_PLANE_DELAY, (), (), policy.NONE)
def all_late_moving() -> Json:
    s = job(32, step=5, step_age_s=1.0, step_s=2.0)
    nodes(s, silent_s=9.0)
    return s


@story(v.MONITOR_BLIND, (), (), policy.NONE)
def all_late_unknown() -> Json:
    s = job(32)
    nodes(s, silent_s=9.0)
    return s


@story(v.GPU_FAULT, (22,), ("node-02",), policy.DRAIN)
def storm_and_blind() -> Json:
    s = incidents.corrected_storm()
    s["monitor"]["blind"] = True
    return s


@story(v.WORKER_DEAD, (2,), ("node-00",), policy.RESTART)
def deaf_with_sigterm() -> Json:
    s = incidents.deaf_survivors()
    s["ranks"][2].pop("exited_at")
    for n in s["nodes"]:
        n["launcher_signal"] = 15
    return s


@story(v.PREEMPTED, tuple(range(40, 48)), ("node-05",), policy.RESTART)
def rdzv_143() -> Json:
    s = incidents.closed_rendezvous(5)
    s["nodes"][5].pop("launcher_signal")
    return s


@story(v.NODE_DEAD, tuple(range(0, 8)), ("node-00",), policy.RESTART_WITHOUT)
def two_node_dead() -> Json:
    s = job(16, stack=IN_ALL_REDUCE)
    nodes(s, silent_s=0.2)
    s["nodes"][0] |= {"silent_s": 12.0, "probe": "timeout"}
    for r in s["ranks"][:8]:
        r.pop("stack")
    return s


@story(v.STOPPED_BY_USER, (), (), policy.NONE)
def sigkill_all_after_sigterm() -> Json:
    s = job(16, signal=9, exited_at=9990.0)
    nodes(s, launcher_signal=15, launcher_at=9960.0)
    return s


@story(v.OOM, (2,), ("node-00",), policy.RESTART)
def k8s_oom() -> Json:
    s = job(8)
    s["ranks"][2]["exit_code"] = 137
    s["events"] = [{"node": "node-00", "rank": 2, "text": "container trainer OOMKilled"}]
    return s


@story(v.STARTUP_FAILURE, (), (), policy.PAGE)
def nccl_init_timeout_start() -> Json:
    s = job(
        8,
        phase="init",
        exit_code=1,
        error="torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 7/8 clients joined.",
    )
    s["job"]["state"] = "starting"
    return s


@story(v.OOM, (2,), ("node-00",), policy.STOP)
def cuda_oom_second_time() -> Json:
    s = job(8, step=5)
    s["ranks"][2] |= {"exit_code": 1, "error": "torch.OutOfMemoryError: CUDA out of memory. Tried 3 GiB"}
    s["history"] = [{"class": "oom", "error": "CUDA out of memory. Tried 2 GiB", "node": "node-00", "step": 5}]
    return s


@story(v.COLLECTIVE_MISMATCH, (2, 3), (), policy.STOP)
def mismatch_twice() -> Json:
    s = incidents.mismatch()
    s["history"] = [{"class": "collective_mismatch"}]
    return s


@story(v.PARTITION, (), ("node-00", "node-01", "node-02", "node-03"), policy.PAGE)
def nodes_all_dead_rack() -> Json:
    s = job(32)
    nodes(s, silent_s=20.0, probe="unreachable")
    return s


@story(v.COLLECTIVE_HANG, (6,), ("node-01",), policy.RESTART)
def tp_pp_dp_stuck() -> Json:
    s = job(8, 4)
    groups: list[Json] = []

    def g(kind: str, ms: list[int]) -> None:
        groups.append({"name": f"{kind}{ms[0]}", "members": ms, "kind": kind})

    for i in range(0, 8, 2):
        g("tp", [i, i + 1])
    for i in (0, 1, 4, 5):
        g("dp", [i, i + 2])
    s["groups"] = groups
    for r in s["ranks"]:
        i = r["rank"]
        tp = f"tp{i // 2 * 2}"
        dp = f"dp{i if i % 4 < 2 else i - 2}"
        if i == 6:
            r["positions"] = [at(tp, 10, 10, started=10), at(dp, 4, 4, started=4)]
            r["stack"] = [*LOOP, "model.py:7 forward"]
        elif i == 7:
            r["positions"] = [
                at(tp, 11, 10, started=11, open=[{"seq": 11, "op": "all_reduce", "state": "started"}]),
                at(dp, 4, 4, started=4),
            ]
        elif i in (4,) or i == 5:
            r["positions"] = [
                at(tp, 20, 20, started=20),
                at(dp, 5, 4, started=5, open=[{"seq": 5, "op": "all_reduce", "state": "started"}]),
            ]
        else:
            r["positions"] = [at(tp, 20, 20, started=20), at(dp, 5, 5, started=5)]
    return s


@story(v.UNKNOWN, (), (), policy.PAGE)
def hang_unknown_everything() -> Json:
    return {"ranks": [{"rank": i, "step": 10, "step_age_s": 900} for i in range(8)]}


@story(v.COLLECTIVE_HANG, (3,), (), policy.RESTART)
def behind_in_step() -> Json:
    return {"ranks": [{"rank": i, "step": 10 if i != 3 else 9, "step_age_s": 900} for i in range(8)]}


@story(v.GPU_FAULT, (9,), ("node-01",), policy.RESTART_WITHOUT)
def xid_then_python_error() -> Json:
    s = job(16, exit_code=1, error=LOST, exited_at=9995.0)
    s["devices"] = [{"node": "node-01", "gpu": 1, "xids": [{"code": 48, "at": 9990}]}]
    s["ranks"][9] |= {"error": "RuntimeError: CUDA error: unspecified launch failure", "exited_at": 9990.4}
    return s


@story(v.WORKER_DEAD, (9,), ("node-01",), policy.RESTART)
def assert_then_unrelated_xid() -> Json:
    s = job(16, exit_code=1, error=LOST, exited_at=9995.0)
    s["devices"] = [{"node": "node-00", "gpu": 1, "xids": [{"code": 48, "at": 8500}]}]
    s["ranks"][9] |= {"error": "AssertionError: bad shape", "exited_at": 9990.4}
    return s


@story(v.GPU_FAULT, (1,), ("node-00",), policy.DRAIN)
def nvlink_suspects_moving() -> Json:
    s = job(16, step=5, step_age_s=0.5, step_s=1.0)
    s["devices"] = [{"node": "node-00", "gpu": 1, "xids": [63], "remap_pending": True}]
    return s


@story(v.PLANNED_SLOW_PHASE, (), (), policy.WAIT)
def pulse_paused_all() -> Json:
    s = job(8, pulse="paused", step=5, step_age_s=500.0)
    return s


@story(v.COLLECTIVE_HANG, (3,), ("node-00",), policy.NONE)
def debugger() -> Json:
    s = job(8, stack=IN_ALL_REDUCE)
    s["ranks"][3] |= {"state": "t", "stack": ["pdb.py:5 interaction"]}
    return s


@story(v.STOPPED_BY_USER, tuple(range(0, 7)), (), policy.NONE)
def finished_some_left() -> Json:
    s = job(8)
    for r in s["ranks"][:7]:
        r |= {"exit_code": 0, "pulse": "closed"}
    s["ranks"][7] |= {"step": 100, "stack": ["train.py final_eval"]}
    return s


@pytest.mark.parametrize("one", story.kept, ids=lambda one: one.name)
def test_a_story_is_understood(one: Story) -> None:
    one.is_understood()
