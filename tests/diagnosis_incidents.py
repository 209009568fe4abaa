"""Public incidents of large trainings, rebuilt as snapshots. Each takes what may differ in another one like it."""

from collections.abc import Callable

from diagnosis_world import (
    IN_ALL_REDUCE,
    IN_LOADER,
    IN_SAVE,
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


def fallen_domain(first: str = "node-03", skew_s: float = 0.0, count: int = 22, domain: int = 4) -> Json:
    """A device error on one node, its NVLink domain half a second later, everybody else with lost connections."""
    snap = job(4 * count, 4)
    names = [r["node"] for r in nodes(snap)]
    lead = names.index(first)
    home = lead // domain
    snap["topology"] = {n: {"domain": f"nvl-{i // domain}"} for i, n in enumerate(names)}
    snap["job"]["still_s"] = 900.0
    snap["events"] = []
    for i, n in enumerate(names):
        late = 0.0 if n == first else 0.3 + 0.01 * i if i // domain == home else 2.0 + 0.2 * i
        text = (
            "CUDA error: contained memory error"
            if n == first
            else "CUDA error: unknown error"
            if i // domain == home
            else LOST
        )
        snap["nodes"][i]["clock_offset_s"] = skew_s * (i % 3 - 1)
        snap["events"].append({"at": 9_990.0 + late + skew_s * (i % 3 - 1), "node": n, "rank": 4 * i, "text": text})
    snap["events"].reverse()
    return snap


def evaluation_hang(victim: int = 5, size: int = 16) -> Json:
    """One rank waits for its loader in the evaluation; its tensor-parallel peers broadcast keys, the rest waits."""
    snap = job(size, phase="eval", gpu_util=100.0, stack=IN_ALL_REDUCE, state="S")
    peers = [r for r in range(4 * (victim // 4), 4 * (victim // 4) + 4) if r != victim]
    for rank in snap["ranks"]:
        if rank["rank"] in peers:
            rank["stack"] = ["eval.py:40 evaluate", "data.py:80 broadcast_data", "distributed_c10d.py:2200 broadcast"]
        elif rank["node"] == name(victim):
            rank["stack"] = ["eval.py:40 evaluate", "p2p_communication.py:120 recv_forward"]
    snap["ranks"][victim]["stack"] = ["eval.py:40 evaluate", *IN_LOADER[1:]]
    snap["job"] |= {"phase": "eval", "still_s": 10_800.0}
    return snap


def loader_stuck(victim: int = 0, size: int = 32, seq: int = 812) -> Json:
    """One rank in its loader, whose workers are alive and idle; all others in the collective of one sequence number."""
    snap = job(size, stack=IN_ALL_REDUCE)
    for rank in snap["ranks"]:
        rank["positions"] = waiting(seq)
    mine = snap["ranks"][victim]
    mine |= {"stack": IN_LOADER, "positions": came_not(seq), "loaders": {"alive": 8, "dead": 0, "busy": False}}
    return snap


def mismatch(a: int = 3, b: int = 2, ahead: int = 0, seq: int = 7219) -> Json:
    """Watchdogs print one sequence number with two sizes, and another rank is two ahead with another operation."""
    snap = job(8)
    snap["ranks"][a]["log"] = [f"[Rank {a}] Watchdog caught collective operation timeout: BROADCAST numel 64 seq {seq}"]
    snap["ranks"][b]["log"] = [
        f"[Rank {b}] Watchdog caught collective operation timeout: BROADCAST numel 24084544 seq {seq}"
    ]
    snap["ranks"][ahead]["log"] = [
        f"[Rank {ahead}] Watchdog caught collective operation timeout: ALLREDUCE seq {seq + 2}"
    ]
    return snap


def long_save(writer: int = 0, moving: bool | None = True, killed: bool = False, size: int = 16) -> Json:
    """One rank writes a checkpoint for longer than the collectives may wait."""
    snap = job(size, phase="checkpoint", stack=IN_ALL_REDUCE)
    for rank in snap["ranks"]:
        rank["positions"] = [at("world", 460_631, 460_630, open=[{"seq": 460_631, "op": "all_reduce", "sizes": [1]}])]
        rank["log"] = [TIMED_OUT.format(seq=460_631)]
        if killed:
            rank |= {"exit_code": -6, "error": TIMED_OUT.format(seq=460_631)}
    snap["ranks"][writer] = {"rank": writer, "node": name(writer), "phase": "checkpoint", "phase_s": 700.0,
                             "stack": IN_SAVE,
                             "positions": [at("world", 460_630, 460_630)]}  # fmt: skip
    if moving is not None:
        snap["ranks"][writer]["io_moving"] = moving
    snap["job"]["still_s"] = 700.0
    return snap


def nobody_behind(size: int = 16, completed: int = 4486, enqueued: int = 4489) -> Json:
    """All ranks have ended the same and called the same; nobody is behind."""
    snap = job(size)
    for rank in snap["ranks"]:
        entries = [{"seq": s, "op": "all_to_all"} for s in range(completed + 1, enqueued + 1)]
        rank["positions"] = [at("world", enqueued, completed, open=entries)]
    snap["groups"] = [{"name": "world", "members": list(range(size)), "kind": "dp"}]
    return snap


def false_alarm(rank: int = 4, phase: str = "compile", moving: bool = True) -> Json:
    """A heartbeat monitor barks at a rank that compiles, or computes for long on the CPU."""
    snap = job(8, phase=phase, step=0)
    text = "ProcessGroupNCCL's watchdog got stuck for 600 seconds without making progress: possible GIL or CUDA hold"
    snap["ranks"][rank] |= {"cpu_moving": moving, "state": "R", "log": [text]}
    snap["job"]["still_s"] = 620.0
    return snap


def unresolved(missing: str = "node-05", growing: bool = True, size: int = 8) -> Json:
    """A start: one node cannot resolve the name of the store, the others have registered."""
    snap = job(8 * size, phase="init")
    for report in nodes(snap, registered=True):
        if report["node"] == missing:
            report |= {"registered": False, "resolves": False, "connects": False}
            report["launcher_error"] = "socket.gaierror: [Errno -2] Name or service not known"
    snap["job"] |= {"state": "starting", "expected_nodes": size, "arrived_nodes": size - 1, "arrivals_growing": growing}
    return snap


def dead_node(dead: str = "node-01", size: int = 4) -> Json:
    """A node loses its power: no reset, no goodbye; the ranks of the others sit in NCCL."""
    snap = job(8 * size)
    for report in nodes(snap, silent_s=0.4, agent_alive=True, exporter_alive=True):
        if report["node"] == dead:
            report |= {"silent_s": 14.0, "agent_alive": False, "exporter_alive": False, "probe": "unreachable"}
    for rank in snap["ranks"]:
        if rank["node"] != dead:
            rank |= {"stack": IN_ALL_REDUCE, "positions": waiting(90)}
    snap["job"]["still_s"] = 13.0
    return snap


def deaf_survivors(dead: int = 2, stuck: int | None = 11) -> Json:
    """A peer was killed; what is left of the job does not obey SIGTERM, one is in uninterruptible sleep."""
    snap = job(16, stack=IN_ALL_REDUCE, state="S")
    snap["ranks"][dead] |= {"signal": 9, "alive": False, "stack": [], "state": "", "exited_at": 9_900.0}
    if stuck is not None:
        snap["ranks"][stuck] |= {"state": "D", "wchan": "uvm_va_space_destroy"}
    nodes(snap)[0]["kernel_readable"] = True
    return snap


def closed_rendezvous(first: int = 4, signal: int | None = 15, size: int = 8) -> Json:
    """One agent leaves, the others print that the rendezvous is closed."""
    snap = job(8 * size)
    for i, report in enumerate(nodes(snap, launcher_exit=1, launcher_error="RendezvousClosedError")):
        report["launcher_at"] = 9_960.0 + i
        if i == first:
            report |= {"launcher_at": 9_950.0, "launcher_error": "", "launcher_exit": 0 if signal is None else 143}
            report |= {"launcher_signal": signal} if signal is not None else {}
    return snap


def stale_round(behind: int = 3, size: int = 6, number: int = 7) -> Json:
    """After a quick restart some nodes use the rendezvous round of before."""
    snap = job(8 * size, phase="init")
    for i, report in enumerate(nodes(snap)):
        report["round"] = number - 1 if i < behind else number
    snap["job"]["state"] = "starting"
    return snap


def crash_and_wait(rank: int = 17, code: int = 3, size: int = 48) -> Json:
    """One task ends with an error, the others sit in collectives, the scheduler ends nothing."""
    snap = job(size, stack=IN_ALL_REDUCE)
    snap["ranks"][rank] |= {"exit_code": code, "alive": False, "stack": []}
    snap["job"] |= {"still_s": 1_200.0, "state": "running"}
    return snap


def same_bad_node(
    bad: int = 2, times: int = 5, error: str = "CUDA error: uncorrectable ECC error encountered (code 214)"
) -> Json:
    """A job that fails in seconds, always on the same node, whatever is rescheduled."""
    snap = job(32)
    nodes(snap)
    snap["ranks"][8 * bad + 3] |= {"exit_code": 1, "error": f"RuntimeError: {error}", "phase": "init"}
    snap["job"] |= {"state": "starting", "attempt": times + 1}
    earlier = {"class": "worker_dead", "error": f"RuntimeError: {error}", "node": f"node-{bad:02d}", "run_s": 8.0}
    snap["history"] = [earlier | {"age_s": 120.0 * (times - i)} for i in range(times)]
    return snap


def illegal_instruction(rank: int = 77, again: bool = False, size: int = 128) -> Json:
    """One of hundreds of ranks: illegal instruction, Xid 13; the others die by the abort of a barrier."""
    snap = job(size)
    for one in snap["ranks"]:
        one |= {
            "exit_code": 1,
            "error": "RuntimeError: barrier aborted: a peer died",
            "exited_at": 9_995.0,
            "step": 400,
        }
    snap["ranks"][rank] |= {
        "error": "RuntimeError: CUDA error: an illegal instruction was encountered",
        "exited_at": 9_990.0,
    }
    report = next(one for one in nodes(snap) if one["node"] == name(rank))
    report["kernel"] = [
        "NVRM: Xid (PCI:0000:5d:00): 13, pid=4711, name=python, Graphics SM Warp Exception: Illegal Instruction"
    ]
    if again:
        snap["history"] = [{"class": "worker_dead", "error": snap["ranks"][rank]["error"], "node": name(rank),
                            "gpu": rank % 8, "age_s": 7_200.0, "step": 90, "action": "restart"}]  # fmt: skip
    return snap


def nvlink_before_save(gpu: int = 3, lost_min: float = 54.0) -> Json:
    """An NVLink error shortly before the hourly checkpoint."""
    snap = job(64, step=3_000)
    text = "NVLINK uncorrectable error"
    snap["devices"] = [
        {"node": "node-04", "gpu": gpu, "domain": "nvl-4", "xids": [{"code": 74, "text": text, "at": 9_980.0}]}
    ]
    snap["saving"] = {"last_complete_age_s": lost_min * 60, "interval_s": 3_600.0}
    snap["job"]["still_s"] = 20.0
    return snap


def lemons(bad: str = "node-06", spares: int = 4) -> Json:
    """Dozens of restarts; a host that came back from repair fails again within the day."""
    snap = job(64, step=100)
    nodes(snap)
    others = [{"class": "gpu_fault", "node": f"node-{i:02d}", "age_s": 40_000.0 + 9_000 * i} for i in (1, 4)]
    mine = [
        {"class": "gpu_fault", "node": bad, "age_s": age, "action": "reset_gpu"} for age in (80_000.0, 30_000.0, 900.0)
    ]
    snap["history"] = others + mine
    snap["job"] |= {"spares": spares, "failures_per_day": 5.0, "repair_days": 2.0, "still_s": 60.0}
    return snap


def corrected_storm(gpu: int = 6, rate: float = 4_600.0) -> Json:
    """Thousands of corrected errors per second on one GPU; its health query takes longer than the exporter may live."""
    snap = job(32, step=5_000, step_age_s=2.0, step_s=3.0)
    reports = nodes(snap)
    line = "NVRM: Xid (PCI:0000:18:00): 45, pid=991, name=python, Ch 00000008"
    for report in reports:
        report["kernel"] = [line] * 3
    snap["devices"] = [{"node": f"node-{r // 8:02d}", "gpu": r % 8, "xids": [45], "query_s": 0.1} for r in range(32)]
    snap["devices"][16 + gpu] |= {"ecc_corrected_per_s": rate, "query_s": 46.0}
    snap["monitor"] = {"blocked": ["the exporter on node-02 was restarted 49 times by its liveness probe"]}
    return snap


def gsp_timeout(gpu: int = 4, where: str = "node-01") -> Json:
    """A GPU's firmware answers no more; the line names whoever asked, the monitor itself."""
    snap = job(16)
    for report in nodes(snap):
        if report["node"] == where:
            line = "NVRM: Xid (PCI:0000:ab:00): 119, pid=2210, name=nvidia-smi, Timeout after 6s of waiting for RPC "
            line += f"response from GPU{gpu} GSP!"
            report["kernel"] = [line, line, "NVRM: Rate limiting GSP RPC error prints (GPU at PCI:0000:ab:00)"]
    for rank in snap["ranks"]:
        rank["stack"] = IN_ALL_REDUCE
    snap["monitor"] = {"blocked": [f"nvidia-smi on {where} does not come back"]}
    return snap


def flapping_port(here: str = "node-02", there: str = "node-05", port: str = "mlx5_7") -> Json:
    """A port flaps; its first request runs out of retries, all others of the same pair are flushed."""
    snap = job(64)
    reports = nodes(snap)
    me = int(here[-2:])
    reports[me]["links"] = [{"name": port, "state": "polling", "flaps": 3}, {"name": "mlx5_0", "state": "active"}]
    first = f"NET/IB: Got completion from peer {there} with status=12 opcode=0 vendor err 129 on port {port}"
    late = "NET/IB: Got completion with status=5 vendor err 249"
    snap["events"] = [{"at": 9_991.0 + 0.1 * i, "node": f"node-{i:02d}", "rank": 8 * i, "text": late}
                      for i in range(8)]  # fmt: skip
    snap["events"].append({"at": 9_990.5, "node": here, "rank": 8 * me, "text": first})
    for rank in snap["ranks"]:
        rank["positions"] = waiting(55)
    return snap


def left_over(gib: float = 28.75, alive: bool = False, parent: int = 1) -> Json:
    """The driver process was killed; its child still holds the memory of four GPUs."""
    snap = job(4, phase="init")
    for rank in snap["ranks"]:
        rank |= {"exit_code": 1, "error": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"}
    held = [{"pid": 5150 + g, "parent": parent, "name": "EngineCore", "gpu": g, "gpu_memory_gib": gib,
             "job_alive": alive}
            for g in range(4)]  # fmt: skip
    nodes(snap)[0]["processes"] = held
    snap["job"] |= {"state": "starting", "attempt": 6}
    snap["history"] = [{"class": "oom", "error": "CUDA out of memory", "node": "node-00", "age_s": 100.0}] * 5
    return snap


def bus_error(gib: float = 71.0, retried: bool = True) -> Json:
    """A rank dies with a bus error; the next attempt finds its memory still held by the old process."""
    snap = job(8)
    nodes(snap)
    if not retried:
        snap["ranks"][2] |= {"signal": 7, "error": "Bus error (core dumped)"}
        return snap
    snap["ranks"][2] |= {"exit_code": 1, "error": "RuntimeError: CUDA error: out of memory", "phase": "init"}
    snap["nodes"][0]["processes"] = [{"pid": 88, "parent": 1, "state": "Z", "gpu": 2, "gpu_memory_gib": gib}]
    snap["history"] = [{"class": "worker_dead", "error": "Bus error", "node": "node-00", "age_s": 90.0}]
    return snap


def killed_by_nine(rank: int = 6, readable: bool | None = True, oom: bool = False) -> Json:
    """A rank is gone by signal 9, with or without a line of the kernel about memory."""
    snap = job(16, pid=None)
    for one in snap["ranks"]:
        one["pid"] = 3_000 + one["rank"]
    snap["ranks"][rank] |= {"exit_code": -9}
    report = next(one for one in nodes(snap) if one["node"] == name(rank))
    report["kernel_readable"] = readable
    if oom:
        report["kernel"] = [f"Out of memory: Killed process {3_000 + rank} (python3) total-vm:5331kB, anon-rss:314kB"]
    return snap


def driver_changed(where: str = "node-02") -> Json:
    """The package manager changed the driver under a running job."""
    snap = job(32, step=900, step_age_s=1.0, step_s=2.0)
    line = "NVRM: API mismatch: the client has the version 535.54.03, but this kernel module has the version 535.129.03"
    for report in nodes(snap):
        if report["node"] == where:
            report["kernel"] = [line]
    return snap


def half_a_checkpoint(rank: int = 9) -> Json:
    """The job was killed while it uploaded; the next start crashes where it loads an empty shard."""
    snap = job(32, phase="load")
    snap["ranks"][rank] |= {
        "exit_code": 1,
        "error": "RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory",
    }
    broken = [f"step-4000/shard-{rank:03d}.pt: 0 bytes", f"step-4000/shard-{rank + 1:03d}.pt.tmp"]
    snap["saving"] = {"broken": broken, "last_complete_step": 3_000}
    snap["job"]["state"] = "starting"
    return snap


def lost_progress(resumed: int = 4_000, announced: int = 12_000) -> Json:
    """After the restart the step counter is far below what was announced as saved."""
    snap = job(16, step=resumed + 5, step_age_s=1.0, step_s=2.0)
    snap["job"]["step_s"] = 2.0
    snap["saving"] = {"resumed_step": resumed, "announced_step": announced, "interval_s": 1_000.0}
    return snap


def fleet_rates(gpu: int = 5, spares: int = 4, days: float = 54.0, failures: int = 419) -> Json:
    """The usual end of a run on 16,384 GPUs, a GPU's memory, in a fleet that loses as many as was published of one."""
    snap = job(64, step=9_000)
    nodes(snap)
    ecc = {"code": 95, "text": "Uncontained ECC error", "at": 9_950.0}
    snap["devices"] = [{"node": "node-03", "gpu": gpu, "xids": [ecc], "ecc_uncorrected": 1}]
    snap["ranks"][24 + gpu] |= {
        "exit_code": 1,
        "error": "RuntimeError: CUDA error: uncorrectable ECC error encountered",
    }
    snap["job"] |= {
        "spares": spares,
        "failures_per_day": round(failures / days, 2),
        "repair_days": 1.0,
        "still_s": 50.0,
    }
    return snap


ALL: dict[str, Callable[[], Json]] = {
    make.__name__: make
    for make in (
        fallen_domain, evaluation_hang, loader_stuck, mismatch, long_save, nobody_behind, false_alarm, unresolved,
        dead_node, deaf_survivors, closed_rendezvous, stale_round, crash_and_wait, same_bad_node, illegal_instruction,
        nvlink_before_save, lemons, corrected_storm, gsp_timeout, flapping_port, left_over, bus_error, killed_by_nine,
        driver_changed, half_a_checkpoint, lost_progress, fleet_rates,
    )
}  # fmt: skip
