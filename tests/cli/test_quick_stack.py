"""`rankpulse up --with prometheus`: what it starts, and with a real Prometheus what that sees."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from support import eventually_sync

from rankpulse.cli import quick_stack
from rankpulse.cli.failing import Failed
from rankpulse.core.settings import parse
from rankpulse.dashboards import rules
from rankpulse.dashboards.alerting import AGENTS, MONITORS

REPO = Path(__file__).resolve().parents[2]
UP = [sys.executable, "-m", "rankpulse.cli.main", "up", "--with", "prometheus"]


def needed(name: str) -> str:
    path = next((path for one in quick_stack.PROGRAMS[name] if (path := shutil.which(one))), "")
    if not path and os.environ.get("CI"):
        pytest.fail(f"CI must install {name}")
    if not path:
        pytest.skip(f"no {name} here")
    return path


def test_what_is_not_there_is_said_before_anything_starts(tmp_path: Path) -> None:
    done = subprocess.run(UP, env={**os.environ, "PATH": str(tmp_path)}, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert "no prometheus on PATH; install it" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""
    with pytest.raises(Failed, match="--with grafana is not known; there is: prometheus"):
        quick_stack.find(["prometheus", "grafana"])
    assert quick_stack.find([]) is None


def test_ports_are_known_before_anybody_listens() -> None:
    given = parse({"monitor": {"listen": "127.0.0.1:0"}, "agent": {"listen": "[::1]:0"}})
    made = quick_stack.with_ports(given)
    assert re.fullmatch(r"127\.0\.0\.1:[1-9]\d+", made.monitor.listen)
    assert re.fullmatch(r"\[::1\]:[1-9]\d+", made.agent.listen)
    kept = parse({"monitor": {"listen": "127.0.0.1:9460"}, "agent": {"listen": ""}})
    assert quick_stack.with_ports(kept) == kept


def test_what_is_scraped_and_what_is_not(tmp_path: Path) -> None:
    found = quick_stack.Found("/bin/prometheus", "")
    given = parse({"cluster": "here", "monitor": {"listen": "127.0.0.1:9460"}, "agent": {"listen": "[::1]:9465"}})
    [part] = quick_stack.parts(found, given, tmp_path / "a")
    config = json.loads((tmp_path / "a" / "prometheus.yml").read_text())
    scraped = {one["job_name"]: one["static_configs"][0] for one in config["scrape_configs"]}
    assert scraped == {
        "rankpulse-monitor": {"targets": ["127.0.0.1:9460"], "labels": {"cluster": "here"}},
        "rankpulse-agent": {"targets": ["[::1]:9465"], "labels": {"cluster": "here"}},
    }
    assert set(scraped) == set(re.findall(r'job="([\w-]+)"', MONITORS + AGENTS))
    assert config["alerting"]["alertmanagers"] == []
    assert all("127.0.0.1:" in word for word in part.argv if word.startswith("--web.listen-address"))
    quick_stack.parts(found, parse({"agent": {"listen": ""}}), tmp_path / "b")
    config = json.loads((tmp_path / "b" / "prometheus.yml").read_text())
    assert [one["job_name"] for one in config["scrape_configs"]] == ["rankpulse-monitor"]
    with pytest.raises(Failed, match=r"leave \[http\] out"):
        quick_stack.parts(found, parse({"http": {"tokens_file": "/a/file"}}), tmp_path / "d")
    with pytest.raises(Failed, match="nothing to scrape"):
        quick_stack.parts(found, parse({"monitor": {"listen": ""}}), tmp_path / "c")


def test_both_programs_find_their_settings_good_and_nobody_is_called(tmp_path: Path) -> None:
    needed("prometheus")
    quick_stack.parts(quick_stack.Found("/bin/p", "/bin/a"), parse({}), tmp_path / "a")
    for argv in (
        ["promtool", "check", "config", str(tmp_path / "a" / "prometheus.yml")],
        ["amtool", "check-config", str(tmp_path / "a" / "alertmanager.yml")],
    ):
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    config = json.loads((tmp_path / "a" / "alertmanager.yml").read_text())
    assert config["route"]["routes"] != []
    assert all(set(one) == {"name"} for one in config["receivers"])


def test_the_examples_for_grafana_fit_together() -> None:
    """Dashboards come from a folder that `rankpulse dashboards --out` can write, and find a source of data."""
    folder = REPO / "deploy" / "grafana"
    source = yaml.safe_load((folder / "datasource.yml").read_text())
    provider = yaml.safe_load((folder / "rankpulse.yml").read_text())
    assert (source["apiVersion"], provider["apiVersion"]) == (1, 1)
    [data] = source["datasources"]
    assert (data["type"], data["access"]) == ("prometheus", "proxy")
    assert data["url"].startswith("http")
    [one] = provider["providers"]
    assert (one["type"], one["options"]["path"]) == ("file", "/var/lib/grafana/dashboards/rankpulse")
    for board in (REPO / "dashboards" / "out").glob("*.json"):
        variables = json.loads(board.read_text())["templating"]["list"]
        assert [v["query"] for v in variables if v["type"] == "datasource"] == [data["type"]], board.name


def asked(url: str) -> Any:
    """The answer's `data`; None while it is not up."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return json.load(answer)["data"]
    except (urllib.error.URLError, OSError, ValueError):
        return None


def children(pid: int) -> set[int]:
    listed = Path(f"/proc/{pid}/task").glob("*/children")
    return {int(word) for file in listed for word in file.read_text().split()}


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] in "ZX"
    except FileNotFoundError:
        return True


@pytest.fixture
def stack(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], dict[str, str]]]:
    """A running one, and the addresses that it says."""
    needed("prometheus"), needed("alertmanager")
    config = tmp_path / "up.toml"
    config.write_text('[agent]\nlisten = "127.0.0.1:0"\nnode = "box"\n[monitor]\nlisten = "127.0.0.1:0"\n')
    argv = [*UP, "--config", str(config), "--run-dir", str(tmp_path / "run")]
    environ = {**os.environ, "TMPDIR": str(tmp_path)}
    process = subprocess.Popen(argv, env=environ, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        said: dict[str, str] = {}
        for line in process.stdout:
            if found := re.match(r"(prometheus|alertmanager): (http://[\d.:]+)/", line):
                said[found[1]] = found[2]
            if line.startswith("Ctrl-C stops"):
                break
        yield process, said
    finally:
        process.kill()
        process.communicate()


@pytest.mark.live
def test_prometheus_sees_all_and_nothing_is_left(
    stack: tuple[subprocess.Popen[str], dict[str, str]], tmp_path: Path
) -> None:
    process, said = stack
    assert set(said) == {"prometheus", "alertmanager"}
    prometheus = said["prometheus"]

    def up() -> set[tuple[str, str]]:
        found = (asked(f"{prometheus}/api/v1/query?query=up==1") or {"result": []})["result"]
        return {(one["metric"]["job"], one["metric"]["cluster"]) for one in found}

    both = {("rankpulse-monitor", "default"), ("rankpulse-agent", "default")}
    eventually_sync(lambda: up() == both, 60, "both targets up")
    groups = asked(f"{prometheus}/api/v1/rules")["groups"]
    assert {rule["name"] for group in groups for rule in group["rules"] if rule["type"] == "alerting"} == {
        alert.name for alert in rules.ALERTS
    }
    dead_man = f"{said['alertmanager']}/api/v2/alerts"
    eventually_sync(lambda: b"Rankpulse" in fetched(dead_man), 60, "an alert at the Alertmanager")
    parts = children(process.pid)
    assert len(parts) >= 5, "etcd, monitor, agent, prometheus, alertmanager"
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) == 0
    eventually_sync(lambda: all(gone(pid) for pid in parts), 20, "all parts to be gone")
    assert list(tmp_path.glob("rankpulse-etcd-*")) == []


def fetched(url: str) -> bytes:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bytes(answer.read())
    except OSError:
        return b""


@pytest.mark.live
def test_a_prometheus_that_ends_ends_all(stack: tuple[subprocess.Popen[str], dict[str, str]]) -> None:
    process, said = stack
    eventually_sync(lambda: asked(f"{said['prometheus']}/api/v1/rules"), 60, "prometheus")
    port = said["prometheus"].rpartition(":")[2]
    [pid] = [
        pid
        for pid in children(process.pid)
        if f"listen-address=127.0.0.1:{port}".encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    os.kill(pid, signal.SIGKILL)
    assert process.wait(timeout=30) == 2
