"""The dashboard of rankpulse itself: does it see, is it fast enough, is what it says fresh, is it told and heard?"""

from typing import Any, Final

from rankpulse.dashboards import board as b
from rankpulse.dashboards import links as to
from rankpulse.dashboards import machines
from rankpulse.dashboards.board import GREEN, RED, Block, Query
from rankpulse.dashboards.machines import NODE, ask

JOB: Final = 'job=~"rankpulse-.+"'  # names of `process_…` are everybody's: those of our own targets


def build() -> dict[str, Any]:
    """The dashboard as plain values."""
    return b.dashboard(
        to.ITSELF,
        "Does rankpulse itself work: does it see, is it fast enough, is what it says fresh, does it reach whom it "
        "tells?",
        ask,
        [
            b.variable("cluster", "Cluster", "label_values(rankpulse_monitor_info, cluster)", every=True),
            b.variable("node", "Node", 'label_values(rankpulse_agent_info{cluster=~"$cluster"}, node)', every=True),
        ],
        [_monitors(), _fresh(), _fast(), _store(), machines.agents(), _looks(), _told(), _processes()],
    )


def _slowest(name: str, quantile: float, by: str = "instance") -> str:
    """A quantile of a histogram, by monitor."""
    buckets = f"sum by ({by}, le) (rate({ask(name, suffix='_bucket')}[$__rate_interval]))"
    return f"histogram_quantile({quantile}, {buckets})"


def _monitors() -> Block:
    return Block(
        "Who leads, and since when?",
        [
            b.graph(
                "When were they blind?",
                "1 while a monitor cannot trust its own sight.",
                Query(f"max by (instance) ({ask('rankpulse_monitor_blind')})", "{{instance}}"),
                stepped=True,
                top=1,
            ),
            b.graph(
                "Who led when?",
                "1 while this monitor leads.",
                Query(f"max by (instance) ({ask('rankpulse_monitor_leader')})", "{{instance}}"),
                stepped=True,
                top=1,
            ),
            b.graph(
                "How often did the lead change?",
                "The term of office. Each step is a change of the lead; now and then is fine, often is not.",
                Query(f"max({ask('rankpulse_monitor_epoch')})", "term"),
                stepped=True,
            ),
        ],
    )


def _fresh() -> Block:
    return Block(
        "Is what it says fresh?",
        [
            b.graph(
                "How old is what monitors see?",
                "Seconds since a monitor's own key last came back through the watch; it is written every second. Late, "
                "and the monitor calls itself blind.",
                Query(f"max by (instance) ({ask('rankpulse_monitor_echo_age_seconds')})", "{{instance}}"),
                unit="s",
                steps=((None, GREEN), (5, RED)),
                runbook="RankpulseBlind",
            ),
            b.graph(
                "How old are heartbeats when they are folded?",
                "From the making of a heartbeat to its folding, by the clocks of both machines: half are younger than "
                "the one, 99 % than the other. A wrong clock of a node shows here, too.",
                Query(_slowest("rankpulse_monitor_beat_delay_seconds", 0.5), "{{instance}} half"),
                Query(_slowest("rankpulse_monitor_beat_delay_seconds", 0.99), "{{instance}} 99 %"),
                unit="s",
            ),
            b.graph(
                "How old is the store's status?",
                "Seconds since the store told its size and alarms; it is asked every fifteen.",
                Query(f"max by (instance) ({ask('rankpulse_store_status_age_seconds')})", "{{instance}}"),
                unit="s",
                steps=((None, GREEN), (60, RED)),
                runbook="RankpulseStoreSilent",
            ),
            b.graph(
                "How old is the ledger?",
                "Seconds since running time was last written into the ledger: a minute, more in a large fleet.",
                Query(f"time() - max({ask.led('rankpulse_ledger_counted_timestamp_seconds')})", "ledger"),
                unit="s",
                runbook="RankpulseLedgerNotExported",
            ),
            b.graph(
                "How old is what agents see?",
                "Seconds since a source last answered, the oldest of all agents by source: slots of ranks, the host, "
                "GPUs. A GPU that hangs ages.",
                Query(f"max by (source) ({ask('rankpulse_agent_source_age_seconds', NODE)})", "{{source}}"),
                unit="s",
            ),
            b.graph(
                "Which agent sees old things?",
                "The ten oldest sources, by agent.",
                Query(
                    f"topk(10, max by (node, source) ({ask('rankpulse_agent_source_age_seconds', NODE)}))",
                    "{{node}} {{source}}",
                ),
                unit="s",
            ),
        ],
    )


def _fast() -> Block:
    return Block(
        "Is it fast enough?",
        [
            b.graph(
                "How long does a turn take?",
                "Folding what came and deciding, by monitor: half of the turns are faster than the one, 99 % than the "
                "other.",
                Query(_slowest("rankpulse_monitor_tick_seconds", 0.5), "{{instance}} half"),
                Query(_slowest("rankpulse_monitor_tick_seconds", 0.99), "{{instance}} 99 %"),
                unit="s",
                steps=((None, GREEN), (1, RED)),
                size=(12, 7),
            ),
            b.graph(
                "Are they fast enough?",
                "How late the monitor's loop woke up. Beyond 2 s it calls itself blind: the machine is overloaded.",
                Query(f"max by (instance) ({ask('rankpulse_monitor_loop_lag_seconds')})", "{{instance}}"),
                unit="s",
                steps=((None, GREEN), (2, RED)),
                runbook="RankpulseMonitorLate",
                size=(12, 7),
            ),
            b.graph(
                "What do they read?",
                "Records per second by kind, of the monitor that read most.",
                Query(f"max by (kind) (rate({ask('rankpulse_monitor_events')}[$__rate_interval]))", "{{kind}}"),
                stacked=True,
                size=(12, 7),
            ),
            b.graph(
                "What could they not read?",
                "Records refused: of another version, damaged, or forged. The log of the monitor names the keys. "
                "Metrics missing: those that it cannot make, a bug.",
                Query(f"max(increase({ask('rankpulse_monitor_refused')}[$__interval]))", "refused"),
                Query(f"max({ask('rankpulse_monitor_metrics_missing')})", "metrics missing"),
                bars=True,
                runbook="RankpulseRecordsRefused",
                size=(12, 7),
            ),
            b.graph(
                "Who is refused at the doors?",
                "Requests to monitors and agents: under another name (host), without a token or with a wrong one "
                "(token), to act with a token that only reads (role) or without TLS (plain), too many (rate); and to "
                "agents' sockets, by jobs. Their logs say by whom.",
                Query(
                    f"sum by (why) (increase({ask('rankpulse_monitor_http_refused')}[$__interval]))", "monitor {{why}}"
                ),
                Query(f"sum by (why) (increase({ask('rankpulse_agent_http_refused')}[$__interval]))", "agent {{why}}"),
                Query(f"sum (increase({ask('rankpulse_agent_socket_refused')}[$__interval]))", "socket"),
                bars=True,
                stacked=True,
                size=(12, 7),
            ),
            b.graph(
                "Who acts over HTTP?",
                "What people asked monitors for with a token of the role act. The trail names them.",
                Query(
                    f"sum by (act, result) (increase({ask('rankpulse_monitor_http_acts')}[$__interval])) > 0",
                    "{{act}} {{result}}",
                ),
                bars=True,
                stacked=True,
                size=(12, 7),
            ),
        ],
    )


def _store() -> Block:
    return Block(
        "Does the store hold?",
        [
            b.graph(
                "How long does a write take?",
                "Until the store acknowledges a monitor's own key, written every second: 99 % are faster. etcd wants a "
                "disk that syncs within 10 ms.",
                Query(_slowest("rankpulse_store_write_seconds", 0.99), "{{instance}}"),
                unit="s",
                steps=((None, GREEN), (1, RED)),
                size=(12, 7),
            ),
            b.heatmap(
                "How do writes spread?",
                "Writes of that key per interval, by how long they took, of all monitors.",
                Query(
                    f"sum by (le) (increase({ask('rankpulse_store_write_seconds', suffix='_bucket')}[$__interval]))",
                    "{{le}}",
                ),
                size=(12, 7),
            ),
            b.graph(
                "How large is the store?",
                "Size of etcd's database. Its quota is 2 GiB unless you raised it; at the quota it refuses all writes.",
                Query(f"max({ask('rankpulse_store_db_bytes')})", "database"),
                Query(f"max({ask('rankpulse_store_in_use_bytes')})", "in use"),
                Query(f"max({ask('rankpulse_store_quota_bytes')})", "quota"),
                unit="bytes",
                steps=((None, GREEN), (1.6e9, RED)),
                runbook="RankpulseStoreGrows",
            ),
            b.graph(
                "How much is written?",
                "Revisions per second: about one per node and second.",
                Query(f"max(clamp_min(deriv({ask('rankpulse_store_revision')}[$__rate_interval]), 0))", "revisions"),
                unit="hertz",
            ),
            b.graph(
                "Are decisions written?",
                "What the leader wrote, by kind and result. `failed`: the store refused or was slow, it is decided "
                "anew. `deposed`: another monitor had taken over. `exists`: it was there already.",
                Query(
                    f"sum by (kind, result) (increase({ask('rankpulse_monitor_actions')}[$__interval]))",
                    "{{kind}} {{result}}",
                ),
                bars=True,
                stacked=True,
            ),
        ],
    )


def _looks() -> Block:
    return Block("Do direct looks come through?", machines.looks())


def _told() -> Block:
    return Block(
        "Do webhooks hear of it?",
        [
            b.graph(
                "Are webhooks told?",
                "Attempts to tell a webhook of an event, by target and outcome. `failed` is tried again; `gone`: the "
                "target wants no more.",
                Query(
                    f"max by (target, outcome) (increase({ask('rankpulse_webhook_attempts')}[$__interval]))",
                    "{{target}} {{outcome}}",
                ),
                stacked=True,
                bars=True,
                size=(12, 6),
            ),
            b.graph(
                "What were they not told?",
                "Events that wait for a target, and those that were given up: `rankpulse webhook ls` says why.",
                Query(ask.leader("rankpulse_webhook_waiting", "target"), "{{target}} waiting"),
                Query(ask.leader("rankpulse_webhook_dead", "target"), "{{target}} given up"),
                stepped=True,
                size=(12, 6),
            ),
        ],
    )


def _processes() -> Block:
    memory = f"max by (job, instance) ({ask('process_resident_memory_bytes', JOB)})"
    cpu = f"max by (job, instance) (rate({ask('process_cpu_seconds', JOB)}[$__rate_interval]))"
    files = f"{ask('process_open_fds', JOB)} / {ask('process_max_fds', JOB)}"
    return Block(
        "What does it take?",
        [
            b.graph(
                "How much memory?",
                "Resident memory of monitors and agents, the ten largest. It grows with the fleet, not with time.",
                Query(f"topk(10, {memory})", "{{job}} {{instance}}"),
                unit="bytes",
            ),
            b.graph(
                "How much of a core?",
                "Time on a CPU per second, the ten busiest; children that ask GPUs or diagnose are not counted.",
                Query(f"topk(10, {cpu})", "{{job}} {{instance}}"),
                unit="percentunit",
            ),
            b.graph(
                "How many files are open?",
                "Open file descriptors as a share of the limit, the ten nearest to it. At the limit pages and metrics "
                "are not served.",
                Query(f"topk(10, max by (job, instance) ({files}))", "{{job}} {{instance}}"),
                unit="percentunit",
                steps=((None, GREEN), (0.8, RED)),
            ),
            b.graph(
                "Since when do they run?",
                "Time since their start, the ten youngest: who starts again and again shows as teeth.",
                Query(
                    f"bottomk(10, max by (job, instance) (time() - {ask('process_start_time_seconds', JOB)}))",
                    "{{job}} {{instance}}",
                ),
                unit="s",
                size=(12, 7),
            ),
            b.graph(
                "Which versions run?",
                "Monitors and agents by version, and with which Python. More than one of a kind: an upgrade is under "
                "way, or was forgotten.",
                Query(
                    f"count by (component, version, python_version) ({ask('rankpulse_build_info')})",
                    "{{component}} {{version}}, Python {{python_version}}",
                ),
                Query(f"count by (version) ({ask('rankpulse_monitor_info')})", "leading or standing by: {{version}}"),
                stepped=True,
                size=(12, 7),
            ),
        ],
    )
