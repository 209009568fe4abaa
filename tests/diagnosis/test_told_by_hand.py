"""The same incidents as people write them down: small, with their own names, each from scratch."""

import pytest
from diagnosis_stories import Stories, Story
from diagnosis_world import Json

from rankpulse.core import policy
from rankpulse.core import verdict as v

story = Stories()


@story(v.DATA_STALL, (4,), ("n0",), policy.RESTART)
def evaluation() -> Json:
    r = [
        {
            "rank": i,
            "node": "n0" if i < 8 else "n1",
            "phase": "evaluation",
            "step": 1200,
            "gpu_util": 100,
            "stack": ["main", "evaluate", "forward_step", "broadcast"],
            "state": "R",
        }
        for i in range(16)
    ]
    r[4]["stack"] = ["main", "evaluate", "next(data_iterator)", "queue.get"]
    r[4]["state"] = "S"
    return {"ranks": r, "job": {"phase": "evaluation", "still_s": 9000}}


@story(v.DATA_STALL, (0,), ("n0",), policy.RESTART)
def loader() -> Json:
    r = [
        {"rank": i, "node": f"n{i // 8}", "positions": [{"group": "default", "enqueued": 50, "completed": 49}]}
        for i in range(32)
    ]
    r[0] = {
        "rank": 0,
        "node": "n0",
        "stack": ["train.py main", "dataloader.py __next__", "queue.py get"],
        "positions": [{"group": "default", "enqueued": 49, "completed": 49}],
        "loaders": {"alive": 4, "dead": 0},
    }
    return {"ranks": r}


@story(v.COLLECTIVE_MISMATCH, (2, 3), (), policy.PAGE)
def watchdogs_that_disagree() -> Json:
    return {
        "ranks": [
            {
                "rank": 3,
                "error": "Watchdog caught collective operation timeout: (SeqNum=7219, OpType=BROADCAST, NumelIn=64)",
                "signal": 6,
            },
            {
                "rank": 2,
                "error": "Watchdog caught (SeqNum=7219, OpType=BROADCAST, NumelIn=24084544)",
                "signal": 6,
            },
            {
                "rank": 0,
                "error": "Watchdog caught collective operation timeout: (SeqNum=7221, OpType=ALLREDUCE, NumelIn=1)",
                "signal": 6,
            },
        ]
    }


@story(v.PLANNED_SLOW_PHASE, (0,), (), policy.WAIT)
def long_save() -> Json:
    r = [
        {
            "rank": i,
            "phase": "checkpoint",
            "step": 500,
            "positions": [{"group": "g", "enqueued": 460631, "completed": 460630}],
            "log": ["Watchdog caught: ALLREDUCE seq 460631 last enqueued 460631 last completed 460630"],
        }
        for i in range(8)
    ]
    r[0] = {
        "rank": 0,
        "phase": "checkpoint",
        "step": 500,
        "state": "D",
        "wchan": "folio_wait_bit",
        "io_moving": True,
        "stack": ["save_checkpoint", "torch.save", "write"],
        "positions": [{"group": "g", "enqueued": 460630, "completed": 460630}],
    }
    return {"ranks": r, "job": {"still_s": 1200, "timeout_s": 600}}


@story(v.STORAGE_STALL, (0,), (), policy.RESTART)
def stuck_save() -> Json:
    s = long_save()
    s["ranks"][0]["io_moving"] = False
    return s


@story(v.NETWORK_STALL, (), (), policy.RESTART)
def nobody_behind() -> Json:
    return {
        "ranks": [
            {
                "rank": i,
                "positions": [
                    {
                        "group": "ep",
                        "enqueued": 4489,
                        "completed": 4486,
                        "open": [
                            {"seq": 4487, "op": "ALLTOALL"},
                            {"seq": 4488, "op": "ALLTOALL"},
                            {"seq": 4489, "op": "ALLTOALL"},
                        ],
                    }
                ],
            }
            for i in range(16)
        ],
        "groups": [{"name": "ep", "members": list(range(16)), "kind": "ep"}],
    }


@story(v.PLANNED_SLOW_PHASE, (0,), (), policy.WAIT)
def compile_and_alarm() -> Json:
    return {
        "ranks": [
            {
                "rank": 0,
                "phase": "compile",
                "phase_s": 600,
                "cpu_moving": True,
                "gil_held": True,
                "log": ["ProcessGroupNCCL's watchdog got stuck for 600 seconds without making progress"],
            },
            {"rank": 1, "phase": "compile", "cpu_moving": True},
        ]
    }


@story(v.PLANNED_SLOW_PHASE, (2,), (), policy.WAIT)
def cpu_work_and_alarm() -> Json:
    return {
        "ranks": [
            {
                "rank": i,
                "phase": "step",
                "state": "R",
                "cpu_moving": i == 2,
                "stack": ["main", "all_reduce"] if i != 2 else ["main", "build_index"],
                "log": ["[Rank 2] heartbeat monitor: watchdog thread stuck"] if i == 2 else [],
            }
            for i in range(4)
        ],
        "job": {"still_s": 620},
    }


@story(v.STARTUP_FAILURE, (), ("n42",), policy.PAGE)
def name_not_found() -> Json:
    return {
        "job": {"state": "starting", "expected_nodes": 100, "arrived_nodes": 99, "arrivals_growing": False},
        "nodes": [{"node": f"n{i}", "registered": i != 42, "resolves": i != 42} for i in range(100)],
    }


@story(v.NODE_DEAD, tuple(range(8, 16)), ("B",), policy.RESTART_WITHOUT)
def power_lost() -> Json:
    return {
        "taken_at": 100,
        "nodes": [
            {"node": "A", "silent_s": 0.5, "agent_alive": True, "probe": "answered"},
            {"node": "B", "silent_s": 20, "probe": "timeout", "exporter_alive": False},
        ],
        "ranks": [{"rank": i, "node": "A", "stack": ["all_reduce"], "state": "S"} for i in range(8)]
        + [{"rank": i, "node": "B"} for i in range(8, 16)],
    }


@story(v.WORKER_DEAD, (0,), ("A",), policy.RESTART)
def deaf_workers() -> Json:
    return {
        "ranks": [
            {"rank": 0, "node": "A", "signal": 9, "alive": False},
            {"rank": 1, "node": "A", "alive": True, "state": "S", "stack": ["all_reduce"], "log": ["received SIGTERM"]},
            {"rank": 2, "node": "B", "alive": True, "state": "D"},
        ]
    }


@story(v.PREEMPTED, (), ("n0",), policy.RESTART)
def closed_rendezvous() -> Json:
    return {
        "nodes": [{"node": "n0", "launcher_signal": 15, "launcher_at": 10}]
        + [
            {
                "node": f"n{i}",
                "launcher_exit": 1,
                "launcher_at": 20,
                "launcher_error": "torch.distributed.elastic.rendezvous.api.RendezvousClosedError",
            }
            for i in range(1, 8)
        ]
    }


@story(v.STARTUP_FAILURE, (), ("n0", "n2"), policy.RESTART)
def rounds() -> Json:
    return {"job": {"state": "starting"}, "nodes": [{"node": f"n{i}", "round": 1 + (i % 2)} for i in range(4)]}


@story(v.WORKER_DEAD, (7,), (), policy.RESTART)
def one_of_48_failed() -> Json:
    return {
        "job": {"world_size": 48},
        "ranks": [
            {
                "rank": i,
                "exit_code": 1 if i == 7 else None,
                "alive": i != 7,
                "stack": [] if i == 7 else ["x", "barrier"],
            }
            for i in range(48)
        ],
    }


@story(v.GPU_FAULT, (0,), ("N",), policy.RESTART_WITHOUT)
def ecc_again_and_again() -> Json:
    return {
        "ranks": [
            {
                "rank": 0,
                "node": "N",
                "exit_code": 1,
                "error": "CUDA error: uncorrectable ECC error encountered (214)",
                "phase": "init",
            }
        ],
        "history": [
            {"node": "N", "error": "CUDA error: uncorrectable ECC error encountered (214)", "age_s": 60 * i, "run_s": 5}
            for i in range(5, 0, -1)
        ],
    }


@story(v.WORKER_DEAD, (100,), ("n12",), policy.RESTART)
def illegal_instruction() -> Json:
    return {
        "ranks": [
            {
                "rank": i,
                "node": f"n{i // 8}",
                "gpu": i % 8,
                "exit_code": 1,
                "error": "CUDA error: an illegal instruction was encountered" if i == 100 else "barrier aborted",
            }
            for i in range(512)
        ],
        "devices": [{"node": "n12", "gpu": 4, "xids": [13]}],
    }


@story(v.GPU_FAULT, (100,), ("n12",), policy.RESTART_WITHOUT)
def illegal_instruction_again() -> Json:
    s = illegal_instruction()
    s["history"] = [
        {"node": "n12", "gpu": 4, "class": "worker_dead", "error": "CUDA error: an illegal instruction was encountered"}
    ]
    return s


@story(v.GPU_FAULT, (2,), ("n0",), policy.RESTART_WITHOUT)
def nvlink() -> Json:
    return {
        "taken_at": 3240,
        "ranks": [
            {"rank": i, "node": "n0", "gpu": i, "exit_code": 1, "error": "NCCL error: unhandled cuda error"}
            for i in range(8)
        ],
        "devices": [{"node": "n0", "gpu": 2, "nvlink_errors": 5, "xids": [{"code": 74, "at": 3239}]}],
        "saving": {"interval_s": 3600, "last_complete_age_s": 3240},
    }


@story(v.GPU_FAULT, (), ("n0",), policy.DRAIN)
def storm() -> Json:
    return {
        "job": {"steps_moving": True},
        "devices": [
            {
                "node": "n0",
                "gpu": i,
                "xids": [45],
                "ecc_corrected_per_s": 9000 if i == 5 else 0,
                "query_s": 47 if i == 5 else 0.1,
            }
            for i in range(8)
        ],
        "monitor": {"blocked": ["health query of GPU 5"]},
    }


@story(v.GPU_FAULT, (4,), ("n0",), policy.RESTART_WITHOUT)
def gsp() -> Json:
    return {
        "nodes": [
            {
                "node": "n0",
                "kernel": [
                    "NVRM: Xid (PCI:0000:84:00): 119, name=nvidia-smi, Timeout after 6s: RPC response from GPU4 GSP!",
                    "NVRM: Rate limiting GSP RPC error prints",
                ],
            }
        ],
        "ranks": [{"rank": i, "node": "n0", "gpu": i, "stack": ["all_reduce"]} for i in range(8)],
        "monitor": {"blocked": ["nvml"]},
    }


@story(v.NETWORK_STALL, (0,), ("a", "B"), policy.RESTART)
def flapping() -> Json:
    return {
        "ranks": [
            {"rank": 0, "node": "a", "log": ["NCCL WARN NET/IB : Got completion from peer B with status=12"]},
            {"rank": 1, "node": "c", "log": ["NCCL WARN NET/IB : Got completion with status=5"]},
        ],
        "nodes": [
            {"node": "a", "links": [{"name": "mlx5_7", "state": "flapping", "flaps": 2, "peer": "B"}]},
            {"node": "B"},
            {"node": "c"},
        ],
        "events": [],
    }


@story(v.OOM, (), ("n0",), policy.PAGE)
def engine_left_over() -> Json:
    return {
        "job": {"state": "starting", "attempt": 5},
        "ranks": [
            {"rank": i, "node": "n0", "gpu": i, "exit_code": 1, "error": "torch.OutOfMemoryError: CUDA out of memory"}
            for i in range(4)
        ],
        "nodes": [
            {
                "node": "n0",
                "processes": [
                    {"pid": 777, "parent": 1, "name": "EngineCore", "gpu_memory_gib": 115, "job_alive": False}
                ],
            }
        ],
    }


@story(v.WORKER_DEAD, (3,), ("n",), policy.RESTART)
def signal_nine() -> Json:
    return {
        "ranks": [{"rank": 3, "node": "n", "exit_code": -9}],
        "nodes": [{"node": "n", "kernel": [], "kernel_readable": True}],
    }


@story(v.STARTUP_FAILURE, (), ("n",), policy.NONE)
def driver() -> Json:
    return {
        "job": {"steps_moving": True},
        "ranks": [{"rank": 0, "node": "n", "step": 5}],
        "nodes": [
            {
                "node": "n",
                "kernel": [
                    "NVRM: API mismatch: the client has the version 550, but this kernel module has the version 535"
                ],
            }
        ],
    }


@story(v.STORAGE_STALL, (), (), policy.RESTART)
def empty_shards() -> Json:
    return {
        "job": {"state": "starting"},
        "ranks": [{"rank": 12, "exit_code": 1, "error": "EOFError: Ran out of input", "phase": "load"}],
        "saving": {
            "broken": ["checkpoint_last-shard12.pt (0 bytes)", "checkpoint_last-shard13.pt.tmp"],
            "last_complete_step": 11000,
        },
    }


@story(v.STORAGE_STALL, (), (), policy.PAGE)
def step_went_back() -> Json:
    return {
        "ranks": [{"rank": 0, "step": 2000, "step_age_s": 1}],
        "job": {"step_s": 1, "steps_moving": True},
        "saving": {"announced_step": 10000, "resumed_step": 2000, "interval_s": 500},
    }


@story(v.NODE_DEAD, (0,), ("h1",), policy.RESTART_WITHOUT)
def lemon() -> Json:
    return {
        "job": {"spares": 4, "failures_per_day": 5, "repair_days": 2},
        "history": [
            {"node": "h1", "class": "node_dead", "age_s": 80000},
            {"node": "h1", "class": "gpu_fault", "age_s": 7000},
            {"node": "h2", "class": "node_dead", "age_s": 6000},
        ],
        "nodes": [{"node": "h1"}, {"node": "h2"}],
        "ranks": [{"rank": 0, "node": "h1", "exit_code": 1, "error": "NCCL error: unhandled system error (IB)"}],
    }


@story(v.OOM, (), ("n",), policy.PAGE)
def zombie() -> Json:
    return {
        "ranks": [{"rank": 1, "node": "n", "gpu": 1, "exit_code": 1, "error": "CUDA out of memory"}],
        "nodes": [{"node": "n", "processes": [{"pid": 5, "state": "Z", "gpu": 1, "gpu_memory_gib": 71}]}],
        "history": [{"error": "Bus error", "node": "n"}],
    }


@story(v.NVLINK_DOMAIN, (), ("A", "A2", "A3", "A4"), policy.RESTART_WITHOUT)
def domain() -> Json:
    ev = [{"at": 900.0, "node": "A", "text": "CUDA error: contained ECC/NVLink exception (cudaErrorContained)"}]
    ev += [{"at": 900.4, "node": n, "text": "CUDA error: device-side fault"} for n in ("A2", "A3", "A4")]
    ev += [{"at": 905 + i, "node": f"B{i}", "text": "Connection reset by peer"} for i in range(10)]
    return {
        "taken_at": 1000,
        "job": {"still_s": 1000},
        "events": ev[::-1],
        "topology": {
            **{n: {"domain": "d0"} for n in ("A", "A2", "A3", "A4")},
            **{f"B{i}": {"domain": "d1"} for i in range(10)},
        },
    }


@pytest.mark.parametrize("one", story.kept, ids=lambda one: one.name)
def test_a_story_is_understood(one: Story) -> None:
    one.is_understood()
