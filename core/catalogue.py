"""Every metric that rankpulse exports, once: exporters, docs and dashboards are made from this table."""

from typing import Final, NamedTuple


class Metric(NamedTuple):
    """`name` without the `_total` that counters get on the wire; `unit` is the name's suffix or empty."""

    name: str
    type: str  # gauge | counter
    labels: tuple[str, ...]
    unit: str
    help: str


AGENT: Final = (
    Metric("rankpulse_agent_info", "gauge", ("node", "version"), "", "Always 1; which agent this is."),
    Metric("rankpulse_agent_incarnation", "gauge", ("node",), "", "How often the agent of this node has started."),
    Metric("rankpulse_agent_beats", "counter", ("node",), "", "Heartbeats that the store acknowledged."),
    Metric("rankpulse_agent_beat_failures", "counter", ("node",), "", "Heartbeats that did not reach the store."),
    Metric(
        "rankpulse_agent_store_silence_seconds",
        "gauge",
        ("node",),
        "seconds",
        "Seconds since the store last acknowledged a heartbeat.",
    ),
    Metric("rankpulse_agent_spooled", "gauge", ("node",), "", "Observations waiting on disk for the store."),
    Metric("rankpulse_agent_dropped", "counter", ("node",), "", "Observations dropped because the spool was full."),
    Metric("rankpulse_agent_observations", "counter", ("node", "kind"), "", "Observations made."),
    Metric("rankpulse_agent_workers", "gauge", ("node",), "", "Worker processes that this agent watches."),
    Metric("rankpulse_agent_slots_refused", "counter", ("node",), "", "Slot files that were refused."),
    Metric(
        "rankpulse_agent_capability",
        "gauge",
        ("node", "source"),
        "",
        "1 when the source works, 0 when it is missing; `state` in the store says why.",
    ),
    Metric("rankpulse_agent_orders_done", "counter", ("node",), "", "Orders carried out on this node."),
    Metric(
        "rankpulse_agent_probes", "counter", ("node", "result"), "", "Direct looks at this agent: answered or refused."
    ),
    Metric(
        "rankpulse_agent_non_finite_steps",
        "counter",
        ("node", "what"),
        "",
        "Steps of ranks of this node whose loss or grad_norm was not finite.",
    ),
    Metric(
        "rankpulse_agent_non_finite_row",
        "gauge",
        ("node",),
        "",
        "Steps in a row that are not finite at present, the most of any rank of this node; 0: the last was finite.",
    ),
)

_GPU: Final = ("gpu", "UUID", "pci_bus_id", "Hostname")  # as the field's exporters call them


def _gpu(name: str, type_: str, help_: str, more: tuple[str, ...] = (), unit: str = "") -> Metric:
    return Metric(f"rankpulse_gpu_{name}", type_, (*_GPU, *more), unit, help_)


GPU: Final = (
    _gpu("info", "gauge", "Always 1; which GPU this is.", ("modelName",)),
    _gpu("health", "gauge", "0 ok, 1 watch, 2 unknown, 3 sick, 4 broken: the worst of what is open."),
    _gpu("finding", "gauge", "1 while this is the matter, 0 after it was cleared.", ("what", "action")),
    _gpu("xids", "counter", "Xids since the agent started, each fault once.", ("xid",)),
    _gpu("xid_first_seen_timestamp_seconds", "gauge", "When this Xid was first seen, in UTC.", ("xid",), "seconds"),
    _gpu("xid_last_seen_timestamp_seconds", "gauge", "When this Xid was last seen, in UTC.", ("xid",), "seconds"),
    _gpu("resets", "counter", "Resets seen: volatile counters that went down, drivers loaded anew."),
    _gpu("ecc_corrected_volatile", "gauge", "Corrected memory errors since the last reset or driver load."),
    _gpu("ecc_uncorrected_volatile", "gauge", "Uncorrected memory errors since the last reset or driver load."),
    _gpu("ecc_corrected_aggregate", "counter", "Corrected memory errors over the life of the board."),
    _gpu("ecc_uncorrected_aggregate", "counter", "Uncorrected memory errors over the life of the board."),
    _gpu("rows_remapped_corrected", "gauge", "Memory rows remapped after corrected errors."),
    _gpu("rows_remapped_uncorrected", "gauge", "Memory rows remapped after uncorrected errors."),
    _gpu("row_remap_pending", "gauge", "1 while a remapped row waits for a reset."),
    _gpu("row_remap_failed", "gauge", "1 when a row could not be remapped: the board is to be replaced."),
    _gpu("retired_pages_pending", "gauge", "1 while a page waits for its retirement; of GPUs before Ampere."),
    _gpu("sram_threshold_exceeded", "gauge", "1 when uncorrected errors of the SRAM are too many."),
    _gpu("recovery_action", "gauge", "What the driver asks for: 0 nothing, 1 reset, 2 reboot, 4 drain and reset."),
    _gpu("pcie_replays", "counter", "Replays on the PCIe link."),
    _gpu("clock_event_reasons", "gauge", "Why clocks are held down at present, as bits."),
    _gpu("held_down_seconds", "counter", "Time in which clocks were held down.", ("reason",), "seconds"),
    _gpu("temperature_celsius", "gauge", "Temperature of the GPU.", (), "celsius"),
    _gpu("memory_temperature_celsius", "gauge", "Temperature of its memory.", (), "celsius"),
    _gpu("power_watts", "gauge", "Power that it draws.", (), "watts"),
    _gpu("sm_clock_hertz", "gauge", "Clock of its multiprocessors.", (), "hertz"),
    _gpu("busy_ratio", "gauge", "Share of the time in which a kernel ran; says nothing of progress.", (), "ratio"),
    _gpu("memory_used_bytes", "gauge", "Memory in use.", (), "bytes"),
    _gpu("fabric_state", "gauge", "Of its NVLink fabric: 1 not started, 2 in progress, 3 completed."),
    _gpu("nvlink_up", "gauge", "1 while the link is up.", ("link",)),
    _gpu("nvlink_errors", "counter", "Events on the link, by kind.", ("link", "kind")),
    Metric("rankpulse_gpu_probes_stuck", "gauge", ("Hostname",), "", "Processes that hang in a call to the driver."),
    Metric("rankpulse_gpu_probes", "counter", ("Hostname",), "", "Processes started to ask GPUs."),
)

HOST: Final = (
    Metric(
        "rankpulse_host_clock_error_seconds",
        "gauge",
        ("Hostname",),
        "seconds",
        "The largest error that the kernel expects of its clock, while something keeps it in time.",
    ),
    Metric(
        "rankpulse_host_memory_pressure_ratio",
        "gauge",
        ("Hostname",),
        "ratio",
        "Share of the last minute in which everything waited for memory.",
    ),
    Metric(
        "rankpulse_host_port_errors",
        "counter",
        ("Hostname", "port", "kind"),
        "",
        "Events on a network port, by the card's counters.",
    ),
    Metric("rankpulse_host_port_up", "gauge", ("Hostname", "port"), "", "1 while the network port is up."),
)

MONITOR: Final = (
    Metric("rankpulse_monitor_info", "gauge", ("monitor", "version"), "", "Always 1; which monitor this is."),
    Metric("rankpulse_monitor_leader", "gauge", (), "", "1 when this monitor leads."),
    Metric("rankpulse_monitor_epoch", "gauge", (), "", "The term of office this monitor last knew."),
    Metric("rankpulse_monitor_armed", "gauge", (), "", "1 when orders may be given, 0 when observing only."),
    Metric("rankpulse_monitor_breaker_open", "gauge", (), "", "1 while the breaker is open: nothing is ordered."),
    Metric("rankpulse_monitor_blind", "gauge", (), "", "1 while the monitor cannot trust its own sight."),
    Metric("rankpulse_monitor_blind_seconds", "counter", (), "seconds", "Seconds in which the monitor was blind."),
    Metric("rankpulse_monitor_events", "counter", ("kind",), "", "Events folded, by kind of record."),
    Metric("rankpulse_monitor_refused", "counter", (), "", "Records refused because they could not be read."),
    Metric("rankpulse_monitor_actions", "counter", ("kind", "result"), "", "Store actions, by result."),
    Metric("rankpulse_monitor_loop_lag_seconds", "gauge", (), "seconds", "How late the monitor's loop last woke up."),
    Metric(
        "rankpulse_monitor_probes",
        "counter",
        ("answer",),
        "",
        "Direct looks at agents: answered, accepted, refused, silent, or unable to look.",
    ),
    Metric("rankpulse_monitor_probe_seconds", "gauge", (), "seconds", "How long the last direct look took."),
    Metric("rankpulse_store_db_bytes", "gauge", (), "bytes", "Size of the store's database."),
    Metric("rankpulse_store_revision", "gauge", (), "", "Revision of the store when it was last asked."),
    Metric("rankpulse_store_alarms", "gauge", (), "", "Alarms raised in the store (NOSPACE, CORRUPT)."),
    Metric("rankpulse_node_silence_seconds", "gauge", ("node",), "seconds", "Seconds since the node's last heartbeat."),
    Metric(
        "rankpulse_node_deadline_seconds",
        "gauge",
        ("node",),
        "seconds",
        "Adaptive deadline: silence longer than this is a suspicion.",
    ),
    Metric("rankpulse_node_suspect", "gauge", ("node",), "", "1 while the node is suspected."),
    Metric(
        "rankpulse_node_reached",
        "gauge",
        ("node",),
        "",
        "1 when a direct look at the node's agent has come through, 0 when none has yet.",
    ),
    Metric("rankpulse_node_leaving", "gauge", ("node",), "", "1 after the node's agent said goodbye."),
    Metric("rankpulse_run_info", "gauge", ("run_uid", "run_id"), "", "Always 1 for a run that is going on."),
    Metric("rankpulse_run_round", "gauge", ("run_uid",), "", "Round of the run."),
    Metric("rankpulse_run_ranks", "gauge", ("run_uid",), "", "Ranks seen in the current round."),
    Metric("rankpulse_run_world_size", "gauge", ("run_uid",), "", "Ranks the current round should have."),
    Metric("rankpulse_run_step", "gauge", ("run_uid",), "", "Lowest step over the ranks of the current round."),
    Metric("rankpulse_run_step_spread", "gauge", ("run_uid",), "", "Highest minus lowest step."),
    Metric(
        "rankpulse_run_step_deadline_seconds",
        "gauge",
        ("run_uid",),
        "seconds",
        "Learned deadline of the phase the run is in.",
    ),
    Metric(
        "rankpulse_run_still_seconds",
        "gauge",
        ("run_uid",),
        "seconds",
        "Seconds in which no rank of the round has moved, by the heartbeats received.",
    ),
    Metric(
        "rankpulse_run_ranks_in_state",
        "gauge",
        ("run_uid", "state"),
        "",
        "Ranks by process state, the letter of /proc: R runs, S sleeps, D waits in the kernel, T is stopped.",
    ),
    Metric("rankpulse_run_ranks_in_phase", "gauge", ("run_uid", "phase"), "", "Ranks by phase."),
    Metric(
        "rankpulse_run_node_steps_behind",
        "gauge",
        ("run_uid", "node"),
        "",
        "Steps by which the node's slowest rank is behind the run's fastest.",
    ),
    Metric(
        "rankpulse_run_straggler_ratio",
        "gauge",
        ("run_uid", "node", "rank"),
        "ratio",
        "How many times slower this rank is than its peers; only of those that are told of as stragglers.",
    ),
    Metric("rankpulse_run_stragglers", "gauge", ("run_uid",), "", "Ranks that are slower than their peers."),
    Metric(
        "rankpulse_run_slowdown_ratio",
        "gauge",
        ("run_uid",),
        "ratio",
        "Time per step against what has been usual for this run: 1 is as usual, 2 is half as fast.",
    ),
    Metric(
        "rankpulse_run_phase_deadline_seconds",
        "gauge",
        ("run_uid", "phase"),
        "seconds",
        "How long a phase may last, by what the run has shown of it: of phases seen so far.",
    ),
    Metric("rankpulse_run_incidents_open", "gauge", ("run_uid",), "", "Open incidents of the run."),
    Metric("rankpulse_run_restarts", "gauge", ("run_uid",), "", "Rounds of the run begun after an incident."),
    Metric("rankpulse_run_checkpoint_step", "gauge", ("run_uid",), "", "Step of the newest checkpoint of the run."),
    Metric(
        "rankpulse_run_checkpoint_verified_step",
        "gauge",
        ("run_uid",),
        "",
        "Step of the newest checkpoint that was read back after its save, or loaded.",
    ),
    Metric(
        "rankpulse_run_checkpoint_age_seconds",
        "gauge",
        ("run_uid",),
        "seconds",
        "Seconds since the run saved or loaded a checkpoint, as this monitor has seen it: at least so long.",
    ),
    Metric(
        "rankpulse_run_checkpoint_verified_age_seconds",
        "gauge",
        ("run_uid",),
        "seconds",
        "The same, of checkpoints that were verified.",
    ),
    Metric("rankpulse_run_checkpoint_bytes", "gauge", ("run_uid",), "bytes", "Size of the newest checkpoint."),
    Metric("rankpulse_run_checkpoint_save_seconds", "gauge", ("run_uid",), "seconds", "How long the last save took."),
    Metric(
        "rankpulse_run_checkpoint_verify_seconds",
        "gauge",
        ("run_uid",),
        "seconds",
        "How long the last verification took: reading back after a save, or checking before a load.",
    ),
    Metric("rankpulse_run_checkpoint_load_seconds", "gauge", ("run_uid",), "seconds", "How long the last load took."),
    Metric("rankpulse_run_checkpoint_saves", "counter", ("run_uid",), "", "Checkpoints saved."),
    Metric("rankpulse_run_checkpoint_failures", "counter", ("run_uid",), "", "Saves that did not become a checkpoint."),
    Metric(
        "rankpulse_run_checkpoint_refused",
        "counter",
        ("run_uid",),
        "",
        "Checkpoints that were not loaded: damaged, or set aside at a person's word.",
    ),
    Metric("rankpulse_runs_ended", "counter", ("outcome",), "", "Runs that ended since this monitor started."),
    Metric("rankpulse_incidents_open", "gauge", ("class",), "", "Open incidents."),
    Metric("rankpulse_incidents_paging", "gauge", ("class",), "", "Open incidents that wait for a person."),
    Metric("rankpulse_incidents", "counter", ("class",), "", "Incidents opened since this monitor started."),
    Metric(
        "rankpulse_restarts", "counter", ("by",), "", "Rounds begun after an incident: by torchelastic or by order."
    ),
    Metric("rankpulse_cordons", "gauge", (), "", "Nodes that no round is to include."),
    Metric("rankpulse_nodes_with_broken_gpu", "gauge", (), "", "Nodes with a GPU fault that is open and no program's."),
    Metric(
        "rankpulse_gates",
        "counter",
        ("answer",),
        "",
        "Words to rounds about to form: go, without (some nodes) or stop.",
    ),
    Metric(
        "rankpulse_evidence", "counter", (), "", "Answers of agents to what their ranks were doing in a standstill."
    ),
    Metric(
        "rankpulse_evidence_questions",
        "counter",
        ("answer",),
        "",
        "Agents asked directly for evidence: told, or nothing came of it.",
    ),
    Metric("rankpulse_webhook_waiting", "gauge", ("target",), "", "Events that this target is still to be told of."),
    Metric(
        "rankpulse_webhook_dead",
        "gauge",
        ("target",),
        "",
        "Events of which this target was not told, and that were given up: `rankpulse webhook ls`.",
    ),
    Metric(
        "rankpulse_webhook_attempts",
        "counter",
        ("target", "outcome"),
        "",
        "Attempts to tell this target: taken, failed, gone (it wants no more) or unsent.",
    ),
    Metric(
        "rankpulse_time_to_detect_seconds",
        "gauge",
        ("class",),
        "seconds",
        "Fault to incident, of the last incident of the class.",
    ),
    Metric(
        "rankpulse_time_to_recover_seconds",
        "gauge",
        ("class",),
        "seconds",
        "Incident to first step of all ranks, of the last incident of the class.",
    ),
)
