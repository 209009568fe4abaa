"""Settings: one frozen value per concern, presets, and a check that reports every problem at once.

Pure: the shell reads the file (TOML) and the environment and hands both in.
"""

from collections.abc import Callable, Mapping, Set
from typing import Any, Final

import msgspec

from rankpulse.core.addresses import BadAddress, check_page, is_loopback, parse_endpoint, parse_listen, parse_peer
from rankpulse.core.keys import BadName, check_name
from rankpulse.core.targets import WebhookTarget
from rankpulse.core.targets import problems as bad_targets


class BadSettings(ValueError):
    """Everything that is wrong with the settings, one line each, in `problems`."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems

    def __reduce__(self) -> tuple[type["BadSettings"], tuple[list[str]]]:
        """From one process to another it stays a list, line by line."""
        return BadSettings, (self.problems,)


class StoreSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where etcd is and how we prove who we are."""

    endpoints: tuple[str, ...] = ("127.0.0.1:2379",)  # host:port, [v6]:port or http(s)://host:port
    user: str = ""
    password_file: str = ""  # never the password itself: files have modes, process lists have not
    ca_file: str = ""  # given: TLS, verified against it
    cert_file: str = ""
    key_file: str = ""
    timeout_s: float = 3.0  # of one call


class DetectSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When silence becomes a suspicion and a suspicion a diagnosis. All times in seconds."""

    heartbeat_interval_s: float = 1.0
    margin_floor_s: float = 1.0  # never suspect earlier than interval + this
    margin_cap_s: float = 5.0  # nor, by learning alone, later than interval + this
    quantile: float = 0.999  # of the learned lateness
    prior_beats: int = 20  # the first beats of a node are judged by margin_cap_s
    node_dead_after_s: float = 0.0  # silent on every path for so long, its run stalled: dead. 0: by the cost rule
    unwitnessed_after_s: float = 0.0  # the same where no peer can tell whether its run stalls. 0: by the cost rule
    rack_dead_after_s: float = 0.0  # several nodes at once (a rack, a switch). 0: by the cost rule
    silence_ceiling_s: float = 600.0  # silent on every path for so long: an incident, whatever else speaks for it
    restart_cost_s: float = 600.0  # what a restart costs the job, until restarts of this fleet have been measured
    sidecar_dead_after_s: float = 20.0  # silence while its job demonstrably goes on: the agent or its path is out
    shared_late_fraction: float = 0.5  # this share of the nodes late together: the path is late, not the nodes
    quiet_s: float = 30.0  # a control-plane incident closes after this much punctuality
    settle_s: float = 0.7  # exits that look like consequences wait this long for their cause
    stop_settle_s: float = 60.0  # workers ended by SIGTERM/SIGINT: wait this long for the launcher to go or go on
    observer_gap_s: float = 2.0  # the monitor's own loop this late: it was asleep, deadlines start anew
    canary_late_s: float = 2.5  # its own key not seen for this long: it is blind
    hang_floor_s: float = 4.0  # never call a train phase hung earlier
    hang_factor: float = 3.0  # times the learned p99 of step time
    hang_prior_s: float = 900.0  # deadline of a phase of which nothing is known yet
    phase_ceiling_s: float = 7200.0  # no phase is silent for longer without a page, whatever was learned
    straggler_factor: float = 1.3  # a rank this much slower than its peers outside of collectives is told of


class AgentSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    node: str = ""  # "" = host name
    run_dir: str = ""  # "" = $RANKPULSE_DIR or /dev/shm/rankpulse
    spool_dir: str = ""  # "" = <run_dir>/spool; give a disk path to survive a reboot
    spool_max: int = 10_000  # observations kept while the store is away
    listen: str = "127.0.0.1:9465"  # /metrics and /healthz; "" = none
    scan_interval_s: float = 0.5  # looking for new slots
    rack: str = ""  # this machine's rack or switch: nodes of one rack that fall silent together are judged together


class ProbeSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Direct looks of the monitor at agents, past the store."""

    listen: str = "127.0.0.1:0"  # where an agent answers; port 0: any; "" = nowhere
    advertise: str = ""  # host:port under which monitors reach it, "" = from `listen`
    token_file: str = ""  # a shared secret of agents and monitors; needed to listen beyond this machine
    interval_s: float = 0.5  # between looks at one suspect
    timeout_s: float = 1.0  # of one look


class EvidenceSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an agent keeps and tells of its ranks when it is asked what they are doing."""

    dir: str = ""  # of full dumps; "" = dumps/ in the spool directory
    keep: int = 256  # dumps; 0: none is written
    keep_mb: int = 64  # of all of them together
    redact: bool = False  # of stacks only file names and functions, of environments nothing


class PreflightSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a node is looked at for before one of its torchruns is in a round."""

    enabled: bool = True
    gpus: int = 0  # so many must be there; 0: as many as there are
    look_timeout_s: float = 20.0  # GPUs, directories and processes that take longer hang
    run_dir_free_mb: int = 16
    checkpoint_dir: str = ""  # where the jobs of this node save; "" = not looked at
    checkpoint_free_mb: int = 1024
    clock_warn_s: float = 5.0  # a record so far from the future is told of
    end_leftovers: bool = True  # what a finished round of the same run has left behind; false: it is only told of
    retry_s: float = 5.0  # until a node that was refused is looked at again, doubled each time
    retry_max_s: float = 60.0
    again_s: float = 600.0  # until one that waits for a round is looked at again
    collective: bool = False  # a sum over two GPUs: takes seconds, and memory of the GPUs
    collective_timeout_s: float = 60.0


class GpuSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How GPUs and the machine around them are watched. How many GPUs there must be: `preflight.gpus`."""

    enabled: bool = True
    poll_s: float = 15.0  # counters of each GPU
    slow_poll_s: float = 60.0  # memory rows, SRAM, links, fabric
    call_timeout_s: float = 10.0  # one GPU that takes longer to be read hangs
    start_timeout_s: float = 20.0  # the same of NVML as a whole
    slow_call_s: float = 1.0  # a GPU that takes longer for one call is told of, and asked less and less often
    events: bool = True  # hear of Xids from the driver, beside the kernel's log
    kernel_log: str = "/dev/kmsg"  # where the kernel's log is read, else from the journal; "": not at all
    believe_injected: bool = False  # also what programs wrote into it: for drills
    retry_s: float = 30.0  # until what hung or failed is tried again, doubled each time
    retry_max_s: float = 900.0
    corrected_per_s: float = 100.0  # memory errors corrected per second, over minutes: a storm
    publish_s: float = 30.0  # the record of figures that moved, at most so often
    host_poll_s: float = 15.0  # memory pressure, network ports, clock, stuck processes; 0: not looked at


class MonitorSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str = ""  # "" = host name and pid
    listen: str = "127.0.0.1:9460"
    lease_ttl_s: float = 10.0  # of leadership
    tick_interval_s: float = 0.25
    compact_every_s: float = 300.0
    store_quota_mb: int = 2048  # etcd's --quota-backend-bytes, for etcd before 3.6, which does not tell it
    topology_file: str = ""  # where machines stand: rack, switch and NVLink domain by node; goes before agent.rack
    grafana_url: str = ""  # where Grafana is, for a link on the page
    runbooks_url: str = ""  # where docs/runbooks/ is served, for links on the page


class HttpSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who may come in at the HTTP ports of agent and monitor, and how our commands come in there."""

    cert_file: str = ""  # given: TLS. Read again when it changes
    key_file: str = ""
    tokens_file: str = ""  # who may read and who may act: `read NAME TOKEN` or `act NAME TOKEN` a line
    hosts: tuple[str, ...] = ()  # further names of this machine under which the ports are asked for
    per_minute: int = 6000  # requests of one address
    refused_per_minute: int = 30  # of one address, until it is told 429 and no more is logged of it
    token_file: str = ""  # of commands: the token they send to monitors
    ca_file: str = ""  # of commands: who signed the monitors' certificates; "" = the CAs of the system


class PolicySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What may be done about a diagnosis, once armed."""

    orders_per_run: int = 3  # without a step of progress in between; then only a person restarts it
    hang_act_s: float = 30.0  # a standstill that is shorter is watched, and nobody is disturbed: it may pass by itself
    grace_s: float = 5.0  # for the workers of a round that is ended to end by themselves; the culprit gets none
    answer_s: float = 10.0  # beyond the grace, for nodes to say that an order is carried out; then all are killed
    round_s: float = 180.0  # from an order to the next round; then a webhook is told, or a person
    last_words_max_s: float = 15.0  # before an order ends a round its survivors may save within so long. 0: never
    webhook_s: float = 900.0  # from the webhook to a job that is there again; then a person is told
    backoff_s: float = 10.0  # between two orders for a run without progress in between, twice as long each time
    orders_per_node: int = 5  # because of one node; an order counts less and less
    orders_per_fleet: int = 20
    budget_window_s: float = 3600.0  # after which an order counts no more; a quarter only where its run went on
    strikes: int = 3  # incidents of which one node alone is the culprit: it is cordoned. 0: never
    strikes_window_s: float = 86400.0
    shrink: bool = True  # a job may go on with fewer nodes than it had, down to what it was launched with (--nnodes)
    restart_on_non_finite: bool = False  # three steps in a row with numbers that are not finite: resume from before
    restart_on_corruption: bool = False  # a replica's parameters differ from all others': resume from before
    breaker_share: float = 0.4  # more of the nodes than this, and two, silent or cordoned by rankpulse: all acting ends


class LedgerSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long failures and running time are kept, and where they are exported to."""

    days_kept: int = 400  # days with a record; older ones are kept as sums
    entries_kept: int = 5000  # incidents that are over; the oldest beyond them likewise
    export_dir: str = ""  # where the leading monitor exports to, beside the store; "": nowhere
    export_every_s: float = 300.0  # at most so old is the export; an incident that is over is exported sooner


class WebhookSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who is told of events outside, and how long that is tried."""

    targets: tuple[WebhookTarget, ...] = ()
    timeout_s: float = 10.0  # of one attempt
    retry_s: float = 1.0  # after the first attempt that failed; twice as long after each further one
    retry_max_s: float = 60.0  # never longer
    give_up_after_s: float = 86400.0  # of waiting between attempts, all together


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything, by section. `preset` chooses the defaults that the other sections then change."""

    cluster: str = "default"
    preset: str = "default"
    store: StoreSettings = StoreSettings()
    detect: DetectSettings = DetectSettings()
    agent: AgentSettings = AgentSettings()
    probe: ProbeSettings = ProbeSettings()
    evidence: EvidenceSettings = EvidenceSettings()
    preflight: PreflightSettings = PreflightSettings()
    gpu: GpuSettings = GpuSettings()
    monitor: MonitorSettings = MonitorSettings()
    http: HttpSettings = HttpSettings()
    policy: PolicySettings = PolicySettings()
    webhook: WebhookSettings = WebhookSettings()
    ledger: LedgerSettings = LedgerSettings()


PRESETS: Final[Mapping[str, Mapping[str, Mapping[str, Any]]]] = {
    "default": {},
    # published operating point of `rankpulse bench detect`: a dead node within 8 s, for more false restarts
    "fast": {
        "detect": {"node_dead_after_s": 7.0, "unwitnessed_after_s": 7.0, "rack_dead_after_s": 16.5},
        "probe": {"interval_s": 0.25},  # where seconds decide, a burst of loss must not look like silence
    },
    # one machine room, a quiet network: suspect sooner; who is given up when is a matter of costs there as elsewhere
    "lan": {"detect": {"margin_floor_s": 0.5, "margin_cap_s": 3.0}, "policy": {"hang_act_s": 20.0}},
    # the store is far away: allow for it
    "wan": {
        "store": {"timeout_s": 10.0},
        "detect": {
            "heartbeat_interval_s": 2.0,
            "margin_floor_s": 3.0,
            "margin_cap_s": 15.0,
            "node_dead_after_s": 90.0,
            "unwitnessed_after_s": 90.0,
            "rack_dead_after_s": 90.0,
            "canary_late_s": 8.0,
        },
        "monitor": {"lease_ttl_s": 30.0},
    },
    # fault drills on one box: everything short
    "drill": {
        "detect": {
            "heartbeat_interval_s": 0.5,
            "margin_floor_s": 0.5,
            "margin_cap_s": 1.5,
            "node_dead_after_s": 15.0,
            "unwitnessed_after_s": 15.0,
            "rack_dead_after_s": 18.0,
            "sidecar_dead_after_s": 12.0,
            "quiet_s": 8.0,
            "stop_settle_s": 40.0,
            "hang_floor_s": 2.0,
        },
        "policy": {"hang_act_s": 0.0, "grace_s": 1.0, "backoff_s": 1.0},
        "monitor": {"lease_ttl_s": 5.0, "tick_interval_s": 0.1},
    },
}


def parse(tree: Mapping[str, Any]) -> Settings:
    """Settings from a parsed TOML file. Raises `BadSettings` with every problem, each naming its key."""
    problems: list[str] = []
    unsure: set[str] = set()  # what has no value of the right type: nothing is said about its range
    preset = tree.get("preset", "default")
    base = PRESETS.get(preset) if isinstance(preset, str) else None
    if base is None:
        problems.append(f"preset {preset!r}: choose one of {', '.join(PRESETS)}")
    sections: dict[str, Any] = {}
    for name, kind in _SECTIONS.items():
        given = tree.get(name, {})
        if not isinstance(given, Mapping):
            problems.append(f"{name}: must be a table, [{name}]")
        if base is None or not isinstance(given, Mapping):
            unsure |= {f"{name}.{field}" for field in kind.__struct_fields__}
        given = given if isinstance(given, Mapping) else {}
        sections[name] = _section(name, kind, {**(base or {}).get(name, {}), **given}, problems, unsure)
    for key in tree.keys() - _SECTIONS.keys() - {"cluster", "preset"}:
        problems.append(f"{key}: unknown; known are cluster, preset and the tables {', '.join(_SECTIONS)}")
    cluster = tree.get("cluster", "default")
    _check_cluster(cluster, problems)
    problems += _problems(sections, unsure)
    if problems:
        raise BadSettings(sorted(problems))
    return Settings(cluster=cluster, preset=preset, **sections)


def run_dir(settings: AgentSettings, environ: Mapping[str, str]) -> str:
    """Where jobs put their slots. The job's own side finds it likewise, without settings (`trainer/place.py`)."""
    return settings.run_dir or environ.get("RANKPULSE_DIR") or "/dev/shm/rankpulse"  # noqa: S108 (checked like /tmp)


def preset(name: str) -> Settings:
    """The settings of a preset, unchanged."""
    return parse({"preset": name})


_SECTIONS: Final[Mapping[str, type[msgspec.Struct]]] = {
    "store": StoreSettings,
    "detect": DetectSettings,
    "agent": AgentSettings,
    "probe": ProbeSettings,
    "evidence": EvidenceSettings,
    "preflight": PreflightSettings,
    "gpu": GpuSettings,
    "monitor": MonitorSettings,
    "http": HttpSettings,
    "policy": PolicySettings,
    "webhook": WebhookSettings,
    "ledger": LedgerSettings,
}
CANARY_EVERY_S: Final = 1.0  # how often a monitor writes its own key
_DAY_S: Final = 86400.0
_RANGES: Final[Mapping[str, tuple[float, float]]] = {
    "store.timeout_s": (0.01, 3600),
    **{f"detect.{name}": (0.001, _DAY_S) for name in DetectSettings.__struct_fields__ if name.endswith("_s")},
    "detect.heartbeat_interval_s": (0.1, 60),
    **{f"detect.{name}": (0, _DAY_S) for name in ("node_dead_after_s", "unwitnessed_after_s", "rack_dead_after_s")},
    "detect.straggler_factor": (1, 1000),
    "detect.quantile": (0.001, 0.999999),
    "detect.prior_beats": (1, 1_000_000),
    "detect.shared_late_fraction": (0.001, 1),
    "detect.hang_factor": (1, 1000),
    "agent.spool_max": (1, 10_000_000),
    "agent.scan_interval_s": (0.05, 60),
    "probe.interval_s": (0.05, 60),
    "probe.timeout_s": (0.05, 60),
    "evidence.keep": (0, 100_000),
    "evidence.keep_mb": (1, 1 << 20),
    "preflight.gpus": (0, 1024),
    "preflight.look_timeout_s": (0.1, 600),
    **{f"preflight.{name}": (0, 1 << 40) for name in ("run_dir_free_mb", "checkpoint_free_mb")},
    "preflight.clock_warn_s": (0.1, _DAY_S),
    **{f"preflight.{name}": (0.05, _DAY_S) for name in ("retry_s", "retry_max_s", "again_s")},
    "preflight.collective_timeout_s": (0.1, 600),
    **{f"gpu.{name}": (1, 3600) for name in ("poll_s", "slow_poll_s", "publish_s")},  # faster disturbs the training
    **{f"gpu.{name}": (0.1, 600) for name in ("call_timeout_s", "start_timeout_s", "slow_call_s")},
    **{f"gpu.{name}": (0.05, _DAY_S) for name in ("retry_s", "retry_max_s")},
    "gpu.corrected_per_s": (0.001, 1_000_000_000),
    "gpu.host_poll_s": (0, 3600),
    "monitor.lease_ttl_s": (2, 3600),  # etcd raises smaller ones silently
    "monitor.tick_interval_s": (0.01, 60),
    "monitor.compact_every_s": (1, _DAY_S),
    "monitor.store_quota_mb": (1, 1 << 20),
    "http.per_minute": (60, 10_000_000),
    "http.refused_per_minute": (1, 1_000_000),
    "policy.orders_per_run": (0, 1_000_000),
    "policy.hang_act_s": (0, _DAY_S),
    "policy.grace_s": (0, 3600),
    "policy.answer_s": (1, 3600),
    "policy.last_words_max_s": (0, 300),
    "policy.round_s": (1, _DAY_S),
    "policy.webhook_s": (1, _DAY_S),
    "webhook.timeout_s": (0.05, 60),
    "webhook.retry_s": (0.1, 3600),
    "webhook.retry_max_s": (0.1, 3600),
    "webhook.give_up_after_s": (1, 30 * _DAY_S),
    "ledger.days_kept": (1, 10_000),
    "ledger.entries_kept": (100, 1_000_000),
    "ledger.export_every_s": (1, _DAY_S),
    "policy.backoff_s": (0, 3600),
    "policy.orders_per_node": (0, 1_000_000),
    "policy.orders_per_fleet": (0, 1_000_000),
    "policy.budget_window_s": (1, 7 * _DAY_S),
    "policy.strikes": (0, 1000),
    "policy.strikes_window_s": (1, 7 * _DAY_S),
    "policy.breaker_share": (0, 1),
}
_FORMS: Final[Mapping[str, Callable[[str, str], object]]] = {  # of texts that may be empty
    "agent.node": check_name,
    "agent.rack": check_name,
    "probe.listen": lambda text, _key: parse_listen(text),
    "probe.advertise": lambda text, _key: parse_peer(text),
    "monitor.name": check_name,
    "agent.listen": lambda text, _key: parse_listen(text),
    "monitor.listen": lambda text, _key: parse_listen(text),
    "monitor.grafana_url": lambda text, _key: check_page(text),
    "monitor.runbooks_url": lambda text, _key: check_page(text),
}
_COMBINATIONS: Final[tuple[tuple[tuple[str, ...], Callable[..., bool], str], ...]] = (
    (
        ("detect.margin_floor_s", "detect.margin_cap_s"),
        lambda floor, cap: floor <= cap,
        "detect.margin_floor_s must not exceed detect.margin_cap_s",
    ),
    (
        ("detect.canary_late_s",),
        lambda late: late > CANARY_EVERY_S,
        f"detect.canary_late_s must be more than {CANARY_EVERY_S:g}: the monitor writes its own key once in that time",
    ),
    (
        ("detect.observer_gap_s", "monitor.tick_interval_s"),
        lambda gap, tick: gap > 2 * tick,
        "detect.observer_gap_s must be more than twice monitor.tick_interval_s: the monitor would always seem asleep",
    ),
    (
        ("preflight.retry_s", "preflight.retry_max_s"),
        lambda low, high: low <= high,
        "preflight.retry_s must not exceed preflight.retry_max_s",
    ),
    (
        ("gpu.retry_s", "gpu.retry_max_s"),
        lambda low, high: low <= high,
        "gpu.retry_s must not exceed gpu.retry_max_s",
    ),
    (
        ("gpu.poll_s", "gpu.slow_poll_s"),
        lambda often, seldom: often <= seldom,
        "gpu.poll_s must not exceed gpu.slow_poll_s",
    ),
    (
        ("webhook.retry_s", "webhook.retry_max_s"),
        lambda first, longest: first <= longest,
        "webhook.retry_s must not exceed webhook.retry_max_s",
    ),
    (("store.endpoints",), bool, "store.endpoints must name at least one host:port"),
    (
        ("store.cert_file", "store.key_file"),
        lambda cert, key: bool(cert) == bool(key),
        "store.cert_file and store.key_file go together",
    ),
    (
        ("store.user", "store.password_file"),
        lambda user, file: bool(user) == bool(file),
        "store.user and store.password_file go together",
    ),
    (
        ("http.cert_file", "http.key_file"),
        lambda cert, key: bool(cert) == bool(key),
        "http.cert_file and http.key_file go together",
    ),
    *(
        (
            (f"{part}.listen", "http.cert_file", "http.tokens_file"),
            lambda listen, cert, tokens: bool(cert or tokens or not listen) or is_loopback(parse_listen(listen)[0]),
            f"{part}.listen beyond this machine needs http.tokens_file (who may read and act) or http.cert_file (TLS)",
        )
        for part in ("agent", "monitor")
    ),
    (
        ("probe.listen", "probe.token_file"),
        lambda listen, file: bool(file) or not listen or is_loopback(parse_listen(listen)[0]),
        "probe.listen beyond this machine needs probe.token_file: a secret that agents and monitors share",
    ),
)


def _check_cluster(cluster: Any, problems: list[str]) -> None:
    try:
        check_name(cluster, "cluster") if isinstance(cluster, str) else problems.append("cluster: must be a string")
    except BadName as error:
        problems.append(str(error))


def _section(
    name: str, kind: type[msgspec.Struct], given: Mapping[str, Any], problems: list[str], unsure: set[str]
) -> Any:
    """One section, field by field, so that one bad field does not hide the others."""
    fields = {field.name: field for field in msgspec.structs.fields(kind)}
    good: dict[str, Any] = {}
    for key, value in given.items():
        field = fields.get(key)
        if field is None:
            problems.append(f"{name}.{key}: unknown; known are {', '.join(sorted(fields))}")
            continue
        try:
            good[key] = msgspec.convert(value, field.type)
            unsure.discard(f"{name}.{key}")
        except msgspec.ValidationError as error:
            problems.append(f"{name}.{key}: {error}")
            unsure.add(f"{name}.{key}")
    return kind(**good)


def _problems(sections: Mapping[str, Any], unsure: Set[str]) -> list[str]:
    """What is wrong with values that have the right types: ranges, forms and combinations.

    Sections by name; nothing is said about fields that are `unsure`.
    """

    def said(key: str) -> Any:
        section, _, field = key.partition(".")
        return getattr(sections[section], field)

    bad = set(unsure)
    problems: list[str] = []
    for key, (low, high) in _RANGES.items():
        if key not in unsure and not low <= said(key) <= high:  # nan lies nowhere
            problems.append(f"{key}: {str(said(key))[:20]} must lie between {low:.12g} and {high:.12g}")
            bad.add(key)
    for key, check in _FORMS.items():
        if key not in unsure and said(key) and (refused := _refusal(key, check, said(key))):
            problems += refused
            bad.add(key)
    problems += [
        text for keys, holds, text in _COMBINATIONS if not bad.intersection(keys) and not holds(*map(said, keys))
    ]
    targets = [] if "webhook.targets" in bad else bad_targets(sections["webhook"].targets)
    return problems + _bad_endpoints(sections["store"]) + targets


def _refusal(key: str, check: Callable[[str, str], object], text: str) -> list[str]:
    try:
        check(text, key)
    except BadName as error:
        return [str(error)]
    except BadAddress as error:
        return [f"{key} {error}"]
    return []


def _bad_endpoints(store: StoreSettings) -> list[str]:
    problems = []
    for text in store.endpoints:
        try:
            parse_endpoint(text, tls=bool(store.ca_file or store.cert_file))
        except BadAddress as error:
            problems.append(f"store.endpoints: {error}")
    return problems
