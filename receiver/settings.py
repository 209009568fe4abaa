"""Settings of the receiver: a TOML file of its own, and a check that reports every problem at once. Pure."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec

from rankpulse.core.addresses import BadAddress, is_loopback, parse_listen
from rankpulse.core.keys import BadName, check_name
from rankpulse.core.settings import BadSettings
from rankpulse.receiver import jobs
from rankpulse.receiver.jobs import Job

JOBS_MAX: Final = 256
_DAY_S: Final = 86_400.0


class TlsSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What proves to monitors who we are. Read again at each connection's handshake when the files change."""

    cert_file: str = ""
    key_file: str = ""


class LimitSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one caller may cost."""

    body_max: int = 1_048_576  # bytes of an event
    age_s: float = 300.0  # a signature this much older or newer than our clock is refused
    stale_s: float = 3600.0  # a decision this old is left to a person: much may have been done since
    exchange_s: float = 10.0  # of one connection, from its beginning to our answer
    connections: int = 64  # at a time; the eldest goes for a new one
    bad_per_minute: int = 30  # refused signatures that are answered and logged; the rest is told 429
    waiting: int = 64  # actions accepted and not finished; then 503
    at_once: int = 4  # actions under way
    keep_days: float = 30.0  # ids that were had, and the audit


class ActingSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long an action is tried that cannot be carried out at once."""

    retry_s: float = 5.0  # twice as long after each further attempt
    retry_max_s: float = 60.0
    give_up_after_s: float = 900.0  # as policy.webhook_s of the monitor, which then calls a person


class SlurmSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    scontrol: str = "scontrol"
    squeue: str = "squeue"
    timeout_s: float = 30.0  # of one command
    mark: str = "AdminComment"  # where the decision is written; Comment where we are no operator of Slurm
    same_nodes: bool = True  # the job must run, or have run, on a node that the event names


class KubernetesSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    url: str = ""  # "": the cluster that we run in
    token_file: str = "/var/run/secrets/kubernetes.io/serviceaccount/token"  # noqa: S105 (a path)
    ca_file: str = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"
    timeout_s: float = 10.0  # of one request
    cordon: bool = True  # nodes that the restart is to leave out are cordoned and tainted
    cordon_max: int = 2  # of one decision; more, and nothing is done


class CommandSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    timeout_s: float = 300.0
    output_max: int = 4096  # bytes of what it says that go into the audit


class TorchrunSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    systemctl: str = "systemctl"
    timeout_s: float = 120.0  # of one command; stopping a job may take its TimeoutStopSec


class ReceiverSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything. `clusters` and `jobs` are the allow-list: what stands in neither is refused."""

    clusters: tuple[str, ...] = ("default",)  # whose events are heard
    listen: str = "127.0.0.1:9470"
    metrics_listen: str = "127.0.0.1:9471"  # /metrics and /healthz; "" = none
    secret_file: str = ""  # the keys of the monitor's secret_file, one a line
    state_file: str = "/var/lib/rankpulse-receiver/journal.db"
    dry_run: bool = False  # say what would be done, do nothing
    jobs: tuple[Job, ...] = ()
    tls: TlsSettings = TlsSettings()
    limits: LimitSettings = LimitSettings()
    acting: ActingSettings = ActingSettings()
    slurm: SlurmSettings = SlurmSettings()
    kubernetes: KubernetesSettings = KubernetesSettings()
    command: CommandSettings = CommandSettings()
    torchrun: TorchrunSettings = TorchrunSettings()


SECTIONS: Final[Mapping[str, type[msgspec.Struct]]] = {
    "tls": TlsSettings,
    "limits": LimitSettings,
    "acting": ActingSettings,
    "slurm": SlurmSettings,
    "kubernetes": KubernetesSettings,
    "command": CommandSettings,
    "torchrun": TorchrunSettings,
}
_RANGES: Final[Mapping[str, tuple[float, float]]] = {
    "limits.body_max": (1024, 16_777_216),
    "limits.age_s": (1, 3600),
    "limits.stale_s": (1, 7 * _DAY_S),
    "limits.exchange_s": (0.05, 300),
    "limits.connections": (1, 10_000),
    "limits.bad_per_minute": (1, 1_000_000),
    "limits.waiting": (1, 10_000),
    "limits.at_once": (1, 64),
    "limits.keep_days": (2, 3650),  # longer than a monitor goes on trying (webhook.give_up_after_s)
    "acting.retry_s": (0.01, 3600),
    "acting.retry_max_s": (0.01, 3600),
    "acting.give_up_after_s": (1, _DAY_S),
    "slurm.timeout_s": (0.1, 600),
    "kubernetes.timeout_s": (0.1, 600),
    "kubernetes.cordon_max": (0, 1000),
    "command.timeout_s": (0.1, _DAY_S),
    "command.output_max": (0, 65_536),
    "torchrun.timeout_s": (0.1, 3600),
}


def parse(tree: Mapping[str, Any]) -> ReceiverSettings:
    """Settings from a parsed TOML file. Raises `BadSettings` with every problem, each naming its key."""
    problems: list[str] = []
    top = {key: value for key, value in tree.items() if key not in SECTIONS and key != "jobs"}
    good = _fields("", ReceiverSettings, top, problems)
    for name, kind in SECTIONS.items():
        given = tree.get(name, {})
        if isinstance(given, Mapping):
            good[name] = kind(**_fields(f"{name}.", kind, given, problems))
        else:
            problems.append(f"{name}: must be a table, [{name}]")
    good["jobs"] = tuple(_jobs(tree.get("jobs", []), problems))
    made = ReceiverSettings(**good)
    problems += _problems(made)
    if problems:
        raise BadSettings(sorted(set(problems)))
    return made


def _fields(prefix: str, kind: type[msgspec.Struct], given: Mapping[str, Any], problems: list[str]) -> dict[str, Any]:
    """Field by field, so that one bad field does not hide the others."""
    fields = {field.name: field for field in msgspec.structs.fields(kind)}
    good: dict[str, Any] = {}
    for key, value in given.items():
        if key not in fields:
            problems.append(f"{prefix}{key}: unknown; known are {', '.join(sorted(fields))}")
            continue
        try:
            good[key] = msgspec.convert(value, fields[key].type)
        except msgspec.ValidationError as error:
            problems.append(f"{prefix}{key}: {error}")
    return good


def _jobs(given: Any, problems: list[str]) -> Iterator[Job]:
    if not isinstance(given, list) or len(given) > JOBS_MAX:
        problems.append(f"jobs: write [[jobs]] for each, at most {JOBS_MAX}")
        return
    for number, one in enumerate(given):
        try:
            yield msgspec.convert(one, Job)
        except msgspec.ValidationError as error:
            problems.append(f"jobs[{number}]: {error}")


def _problems(made: ReceiverSettings) -> list[str]:
    found = []
    for key, (low, high) in _RANGES.items():
        section, _, field = key.partition(".")
        value = getattr(getattr(made, section), field)
        if not low <= value <= high:  # nan lies nowhere
            found.append(f"{key}: {str(value)[:20]} must lie between {low:.12g} and {high:.12g}")
    found += [text for holds, text in _RULES if not holds(made)]
    found += _bad_places(made)
    for number, job in enumerate(made.jobs):
        found += [f"jobs[{number}]{text}" for text in jobs.problems(job)]
    return found


_RULES: Final[tuple[tuple[Callable[[ReceiverSettings], bool], str], ...]] = (
    (lambda made: bool(made.secret_file), "secret_file: needed; the same key as the monitor's target has"),
    (lambda made: bool(made.state_file), "state_file: needed; ids that were had must outlive us"),
    (lambda made: bool(made.clusters), "clusters: name at least one"),
    (lambda made: bool(made.jobs), "jobs: name at least one, [[jobs]]; without any, everything would be refused"),
    (
        lambda made: bool(made.tls.cert_file) == bool(made.tls.key_file),
        "tls.cert_file and tls.key_file go together",
    ),
    (
        lambda made: made.acting.retry_s <= made.acting.retry_max_s,
        "acting.retry_s must not exceed acting.retry_max_s",
    ),
    (
        lambda made: made.slurm.mark in ("AdminComment", "Comment"),
        "slurm.mark: choose AdminComment or Comment",
    ),
    (
        lambda made: not made.kubernetes.url or made.kubernetes.url.startswith("https://"),
        "kubernetes.url: must be https://host[:port]",
    ),
)


def _bad_places(made: ReceiverSettings) -> Iterator[str]:
    for cluster in made.clusters:
        try:
            check_name(cluster, "clusters")
        except BadName as error:
            yield str(error)
    for name, text in (("listen", made.listen), ("metrics_listen", made.metrics_listen)):
        try:
            host = parse_listen(text)[0] if text or name == "listen" else ""
        except BadAddress as error:
            yield f"{name} {error}"
            continue
        if name == "listen" and not made.tls.cert_file and not is_loopback(host):
            yield "listen beyond this machine needs tls.cert_file and tls.key_file"
