"""`rankpulse up --with prometheus`: a Prometheus, and an Alertmanager where there is one, beside the other parts.

Their settings are the ones that rankpulse comes with, for addresses of this machine. What they keep lies in one folder.
"""

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from rankpulse.cli.failing import Failed
from rankpulse.core.addresses import parse_listen
from rankpulse.core.settings import Settings
from rankpulse.store.embedded import free_ports

KNOWN: Final = ("prometheus",)
SCRAPE_S: Final = 5
# Debian calls the second one so
PROGRAMS: Final[Mapping[str, Sequence[str]]] = {
    "prometheus": ("prometheus",),
    "alertmanager": ("alertmanager", "prometheus-alertmanager"),
}


class Part(NamedTuple):
    """A program of others' beside ours. `url`: where a person looks."""

    name: str
    argv: list[str]
    url: str


class Found(NamedTuple):
    """Paths of programs; `alertmanager` "" where there is none."""

    prometheus: str
    alertmanager: str


def find(wanted: Sequence[str]) -> Found | None:
    """The programs for `--with`; None where nothing is wanted. Raises `Failed` with the remedy."""
    if strange := [name for name in wanted if name not in KNOWN]:
        raise Failed(f"--with {strange[0]} is not known; there is: {', '.join(KNOWN)}")
    if not wanted:
        return None
    prometheus = _on_path("prometheus")
    if not prometheus:
        raise Failed("--with prometheus: no prometheus on PATH; install it (Debian: apt-get install prometheus)")
    return Found(prometheus, _on_path("alertmanager"))


def parts(found: Found, settings: Settings, folder: Path) -> list[Part]:
    """Their settings, written below `folder`, and how each is started. Raises `Failed` where nothing is served."""
    targets = _targets(settings)
    prometheus, alertmanager = (f"127.0.0.1:{port}" for port in free_ports(2))
    folder.mkdir(mode=0o700)
    rules = folder / "rules.yml"
    rules.write_bytes(_rules())
    beside = [alertmanager] if found.alertmanager else []
    config = _put(folder / "prometheus.yml", prometheus_config(settings.cluster, targets, rules, beside))
    made = [
        Part("prometheus", prometheus_argv(found.prometheus, config, folder, prometheus), f"http://{prometheus}/alerts")
    ]
    if found.alertmanager:
        config = _put(folder / "alertmanager.yml", alertmanager_config())
        argv = alertmanager_argv(found.alertmanager, config, folder, alertmanager)
        made.append(Part("alertmanager", argv, f"http://{alertmanager}/"))
    return made


def with_ports(settings: Settings) -> Settings:
    """Whoever is scraped must have a port that is known before it starts: 0 becomes a free one."""
    import msgspec

    made = {"monitor": settings.monitor.listen, "agent": settings.agent.listen}
    for (part, listen), port in zip(made.items(), free_ports(2), strict=True):
        if listen and parse_listen(listen)[1] == 0:
            made[part] = f"{listen.rpartition(':')[0]}:{port}"
    return msgspec.structs.replace(
        settings,
        monitor=msgspec.structs.replace(settings.monitor, listen=made["monitor"]),
        agent=msgspec.structs.replace(settings.agent, listen=made["agent"]),
    )


def prometheus_config(
    cluster: str, targets: Mapping[str, str], rules: Path, alertmanagers: Sequence[str]
) -> dict[str, Any]:
    """As deploy/prometheus/rankpulse.yml. `targets`: job -> host:port."""
    return {
        "global": {"scrape_interval": f"{SCRAPE_S}s", "evaluation_interval": f"{SCRAPE_S}s"},
        "rule_files": [str(rules)],
        "alerting": {
            "alertmanagers": [{"static_configs": [{"targets": list(alertmanagers)}]}] if alertmanagers else []
        },
        "scrape_configs": [
            {"job_name": job, "static_configs": [{"targets": [where], "labels": {"cluster": cluster}}]}
            for job, where in targets.items()
        ],
    }


def alertmanager_config() -> dict[str, Any]:
    """The example that rankpulse comes with, in which nobody is called: what fires is seen on its page."""
    from rankpulse.dashboards import alertmanager

    config = alertmanager.build()
    return {**config, "receivers": [{"name": one["name"]} for one in config["receivers"]]}


def prometheus_argv(program: str, config: Path, folder: Path, listen: str) -> list[str]:
    argv = [program, f"--config.file={config}", f"--storage.tsdb.path={folder / 'tsdb'}", "--log.level=error"]
    # what fires while it has not yet found the Alertmanager is said again soon, not after a minute
    argv += [f"--web.listen-address={listen}", "--rules.alert.resend-delay=10s"]
    return [*argv, "--enable-feature=exemplar-storage"]


def alertmanager_argv(program: str, config: Path, folder: Path, listen: str) -> list[str]:
    """Alone: it looks for no others of its kind."""
    argv = [program, f"--config.file={config}", f"--storage.path={folder / 'silences'}", "--log.level=error"]
    return [*argv, f"--web.listen-address={listen}", "--cluster.listen-address="]


def _targets(settings: Settings) -> dict[str, str]:
    if settings.http.cert_file or settings.http.tokens_file:
        raise Failed(
            "--with prometheus: leave [http] out of the settings; it scrapes this machine, without TLS or token"
        )
    if not settings.monitor.listen:
        raise Failed("--with prometheus: monitor.listen is empty, so there is nothing to scrape")
    listen = {"rankpulse-monitor": settings.monitor.listen, "rankpulse-agent": settings.agent.listen}
    return {job: _reached(where) for job, where in listen.items() if where}


def _reached(listen: str) -> str:
    """From this machine."""
    host, port = parse_listen(listen)
    inner = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(host or "", host or "")
    return f"[{inner}]:{port}" if ":" in inner else f"{inner}:{port}"


def _rules() -> bytes:
    from rankpulse.dashboards.shipped import shipped

    return shipped()["rules/rankpulse.yml"]


def _put(path: Path, value: Mapping[str, Any]) -> Path:
    path.write_text(json.dumps(value, indent=1), encoding="utf-8")  # JSON is YAML
    return path


def _on_path(name: str) -> str:
    return next((path for one in PROGRAMS[name] if (path := shutil.which(one))), "")
