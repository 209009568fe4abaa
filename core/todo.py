"""What a person should do about an incident now, in a sentence."""

from collections.abc import Iterator
from typing import Final

from rankpulse.core import gpu_words, ladder
from rankpulse.core.gpu_choice import proposal
from rankpulse.core.naming import names_in_words
from rankpulse.core.records import Finding, Incident

_RESTART: Final = "rankpulse restart {run_uid} --reason '…'"
ADVICE: Final = {  # by class, for actions that leave it to a person
    "worker_dead": "read the worker's log on {nodes} from the time of the fault, fix the cause, then start the job "
    "again (it goes on from its last checkpoint)",
    "node_dead": "look at the machine itself (power, network, kernel log). If it is gone, start torchrun on another "
    "node by the same command: once it waits, an armed monitor restarts the job without the dead; or " + _RESTART,
    "collective_hang": "look at the culprit's process on {nodes} (`py-spy dump --pid {pid}`, `nvidia-smi`). To end the "
    "round and let the next one start: " + _RESTART,
    "collective_mismatch": "show the owner of the program who calls what, below: nothing is wrong with the "
    "machines, and it comes again after a restart",
    "network_stall": "look at counters and ports of the network and NVLink between the nodes named before they are "
    "lost (`rdma link`, `ethtool -S`, `nvidia-smi nvlink -e`), then: " + _RESTART + ". The second time on the same "
    "nodes leave them out: rankpulse cordon NODE --reason '…'",
    "partition": "find what cuts {nodes} off: switch, route, firewall, a wrong network name. No rank is to blame, and "
    "a restart would meet the same network",
    "data_stall": "look at the data loader on {nodes}: are its workers there (`pgrep -P {pid}`), does its storage "
    "answer? Then: " + _RESTART,
    "storage_stall": "look at the file system that {nodes} writes to (`df`, `dmesg`, the storage's own status) before "
    "anything else: a restart would stand at the same write. Resume from a whole checkpoint: `rankpulse ckpt verify`",
    "oom": "give it less to hold (batch, activations, prefetching) or more memory; `nvidia-smi` shows what else holds "
    "the GPU's. The same node proves nothing: a rank keeps its share of the work",
    "gpu_fault": "take {nodes} out of service (rankpulse cordon NODE --reason '…'), reset or replace the GPU, and run "
    "the vendor's diagnostics before it comes back",
    "nvlink_domain": "take the whole NVLink domain of {nodes} out of service, and have its switch and links looked at: "
    "one node alone does not help",
    "numerical": "show it to the owner of the program: the loss is no number. Go back to a checkpoint before it: "
    "rankpulse restart {run_uid} --resume-before-step STEP --reason '…'",
    "non_finite": "show it to the owner of the program: it trains on with numbers that are not finite. To go back to "
    "before it: rankpulse restart {run_uid} --resume-before-step {step} --reason '…'",
    "silent_corruption": "have memory and GPUs of {nodes} tested before they come back. To go back to where all "
    "replicas agreed last (the incident says it): rankpulse restart {run_uid} --resume-before-step STEP --reason '…'",
    "preempted": "start torchrun on another node, by the same command, or wait until the scheduler gives it back",
    "startup_failure": "look at the nodes that have not arrived, or at what their launchers say (names that resolve, "
    "ports that are free, one and the same environment), then start again",
    "straggler": "nothing now: the job goes on. Have {nodes} looked at after the job (clocks, temperature, neighbours)",
    "planned_slow_phase": "nothing: it takes its time. If a timeout of the process groups ends it, raise that",
    "monitor_blind": "restore the monitor's own sight (its network, the store): silence means nothing until then",
    "agent_cut_off": "restore the way from {nodes} to the store (network, certificates, credentials): the agent there "
    "answers direct looks, its beats do not come through; the job is not touched",
    "sidecar_dead": "start the agent again on {nodes} (`systemctl status rankpulse-agent`); the job itself goes on",
    "control_plane_delay": "nothing to do for the job. If it stays, look at the network to etcd and at etcd's disk",
    "operator_restart": "read the logs of torchrun: the order was carried out, and no next round made a step",
    "breaker_open": "find out why so many nodes are silent or were cordoned at once: a switch, a power supply, network "
    "between them and the monitors. Nothing is ordered meanwhile. Then: rankpulse breaker close --reason '…'",
    "drain": "see why it waits; `rankpulse uncordon` or `rankpulse maintenance NODE --over` takes it back",
    "finished": "nothing: every rank ended without an error",
    "stopped_by_user": "nothing: it was stopped on purpose",
    "unknown": "compare the logs of all ranks at the time of the fault; the evidence below is all that was seen",
}
CLOSER: Final[dict[str, str]] = {  # by signature, where what the culprit does says more than its class
    "collective_hang:stopped": "find out who stopped it on {nodes} (SIGSTOP). `kill -CONT {pid}` lets it go on; or "
    + _RESTART,
    "collective_hang:traced": "let the debugger on {nodes} (pid {pid}) go on, or tell rankpulse of it: "
    "rankpulse pause {run_uid} --reason 'debugger'",
    "collective_hang:paused": "nothing, unless the program did not mean to pause its pulse",
    "collective_hang:lock": "see which lock it is: the stack is below, and `py-spy dump --pid {pid}` on {nodes} shows "
    "all of its threads. To go on: " + _RESTART + "; it may come again",
    "collective_hang:gil": "see which native code holds Python's lock: on {nodes} `py-spy dump --native --pid {pid}`, "
    "or `gdb -p {pid} -batch -ex 'thread apply all bt'`. To go on: " + _RESTART,
    "collective_hang:uninterruptible": "read the kernel's lines on {nodes} (`dmesg -T`): it waits for a file system or "
    "driver, and no signal ends it. To go on without the node: rankpulse cordon NODE --reason '…', then " + _RESTART,
    "collective_hang:gpu stuck": "look at its GPU on {nodes} (`nvidia-smi`, `dmesg -T`): it does not begin what the "
    "host called. Then: " + _RESTART + "; the second time leave the node out",
    "storage_stall:pipe": "find out who should read the pipe: on {nodes} `ls -l /proc/{pid}/fd` names it, `lsof` who "
    "has its other end. Then: " + _RESTART,
    "data_stall:loader dead": "see why the loader's worker died: the log of the job, the kernel's lines of {nodes} "
    "(out of memory?). Then: " + _RESTART,
    "data_stall:loader storage": "look at the storage that {nodes} reads from: the data loader waits for it, and would "
    "again after a restart",
}
CLOSER["collective_hang:lock or thread"] = CLOSER["collective_hang:lock"]
NOTHING_YET: Final = {
    "adopt": "torchelastic restarts it by itself",
    "restart": "the order is out",
    "restart_without": "the order is out; the next round forms without the nodes named",
    "drain": "its job leaves the node after its next checkpoint",
    "wait": "it may pass by itself, and is watched",
    "release": "torchelastic restarts it if it has restarts left, or ends it",
}


def next_step(i: Incident) -> str:
    """What a person should do now."""
    if i.state == "closed" and (i.outcome != "run_ended" or i.action == "none"):
        return f"nothing: it is over ({i.outcome or 'closed'})"
    if i.state == "open" and i.action in NOTHING_YET and i.rung != ladder.PAGE:
        return _start_another(i) or f"nothing yet: {NOTHING_YET[i.action]}"
    advice = _advice(i)
    if i.state == "closed":
        return f"the run has ended; {advice}"
    if i.rung == ladder.PAGE and i.action in NOTHING_YET:
        return f"all that rankpulse may do was done, and no round has followed. By hand: {advice}"
    if i.action == "observe" and i.faults and not i.run_uid:
        return f"orders are not armed: `rankpulse arm --reason '…'` lets the monitor keep it out now. By hand: {advice}"
    if i.action == "observe":
        return f"orders are not armed: `rankpulse arm --reason '…'` lets the monitor restart it now. By hand: {advice}"
    return advice


def todo(i: Incident, finding: Finding | None) -> Iterator[str]:
    """The next step, and hints of the diagnosis while anything is to be done."""
    yield next_step(i)
    over = i.state == "closed" and i.outcome != "run_ended"
    if finding is not None and finding.klass == i.klass and not over:
        yield from finding.hints[:4]


def _advice(i: Incident) -> str:
    nodes = names_in_words(i.nodes, 4) or "the culprit's node"
    pid = str(i.culprits[0].pid) if i.culprits else "PID"
    if i.faults and i.klass in ("gpu_fault", "nvlink_domain"):
        rows = [row for row in i.faults if not row.cleared] or list(i.faults)
        out = proposal(i.nodes, gpu_words.title(rows), busy="--drain" in i.action_reason)
        again = f", then {_RESTART.format(run_uid=i.run_uid)}" if i.run_uid else ""
        return f"keep {nodes} out of all rounds: {out}{again}. Then: {gpu_words.advice(rows)}"
    text = CLOSER.get(i.signature) or ADVICE.get(i.klass, ADVICE["unknown"])
    step = str(i.bad_step) if i.bad_step >= 0 else "STEP"
    return text.format(run_uid=i.run_uid, nodes=nodes, pid=pid, step=step)


def _start_another(i: Incident) -> str:
    """A drain that only another node can end; "" else."""
    if i.action != "drain" or not i.action_reason.startswith("waits for another node"):
        return ""
    return f"start torchrun on another node, by the same command: the job leaves {', '.join(i.nodes)} then"
