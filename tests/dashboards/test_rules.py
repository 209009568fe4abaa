"""Every alert fires when it should, stays silent when it should, and says where its reader finds what to do."""

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from alert_cases import CASES, GONE, HEALTHY, M1, ON, G

from rankpulse.dashboards import rules
from rankpulse.dashboards.alerting import AGENTS, CRITICAL, INFO, MONITORS, NONE, WARNING, Alert
from rankpulse.dashboards.promql import names_of

REPO = Path(__file__).resolve().parents[2]
ALWAYS = "RankpulseWatchdog"


def seconds(at: str) -> int:
    return int(at[:-1]) * {"s": 1, "m": 60, "h": 3600}[at[-1]]


def steps(at: str) -> tuple[str, str]:
    """Between samples, and between evaluations. Each evaluation costs the time of all rules: the longer, the fewer."""
    if seconds(at) >= 20 * 3600:
        return "4m", "15m"
    return "15s", "15s" if seconds(at) < 4 * 60 else "30s" if seconds(at) < 20 * 60 else "1m"


def unit_test(changed: dict[str, str], at: str, firing: set[str]) -> dict[str, Any]:
    """In `promtool`'s form: the healthy cluster with `changed`, and which alerts, and no others, fire `at`."""
    series = {name: values for name, values in {**HEALTHY, **changed}.items() if values != GONE}
    return {
        "interval": steps(at)[0],
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {
                "expr": f'group by (alertname) (ALERTS{{alertstate="firing", alertname!="{ALWAYS}"}})',
                "eval_time": at,
                "exp_samples": [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in sorted(firing)],
            }
        ],
    }


def promtool(tool: str, rule_file: Path, test: dict[str, Any], tmp_path: Path, every: str = "15s") -> str:
    """Run the unit test, with all rules evaluated so often; returns what went wrong, "" when nothing did."""
    file = tmp_path / "tests.yml"  # JSON is YAML
    file.write_text(json.dumps({"rule_files": [str(rule_file)], "evaluation_interval": every, "tests": [test]}))
    done = subprocess.run([tool, "test", "rules", str(file)], capture_output=True, text=True, timeout=120, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def test_promtool_finds_the_rules_good(binary: Callable[[str], str], rule_file: Path) -> None:
    argv = [binary("promtool"), "check", "rules", "--lint=all", "--lint-fatal", str(rule_file)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("name", "changed", "at", "firing"), CASES, ids=[case[0] for case in CASES])
def test_what_fires_when(
    binary: Callable[[str], str],
    rule_file: Path,
    tmp_path: Path,
    name: str,
    changed: dict[str, str],
    at: str,
    firing: set[str],
) -> None:
    assert changed.keys() <= HEALTHY.keys() or "follower" in name
    assert promtool(binary("promtool"), rule_file, unit_test(changed, at, firing), tmp_path, steps(at)[1]) == ""


def test_every_alert_is_made_to_fire() -> None:
    fired = set().union(*(firing for *_, firing in CASES))
    assert fired == {alert.name for alert in rules.ALERTS} - {ALWAYS}


@pytest.mark.parametrize(
    "alert", [alert for alert in rules.ALERTS if alert.name != ALWAYS], ids=lambda alert: alert.name
)
def test_every_alert_is_left_silent_by_a_change_of_what_it_asks_for(alert: Alert) -> None:
    recorded = {record.name: names_of(record.expr) for record in rules.RECORDS}
    asked = set().union(*(recorded.get(name, {name}) for name in names_of(alert.expr)))
    changed = [
        {series.partition("{")[0] for series in case} for _, case, _, firing in CASES if alert.name not in firing
    ]
    assert any(asked & names for names in changed)


def test_one_alert_fires_always(binary: Callable[[str], str], rule_file: Path, tmp_path: Path) -> None:
    case = unit_test({}, "5m", set())
    case["input_series"] = []  # nothing is scraped at all
    case["promql_expr_test"] = []
    case["alert_rule_test"] = [
        {
            "eval_time": at,
            "alertname": ALWAYS,
            "exp_alerts": [{"exp_labels": {"severity": NONE}, "exp_annotations": annotations(ALWAYS)}],
        }
        for at in ("0s", "5m", "20m")
    ]
    assert promtool(binary("promtool"), rule_file, case, tmp_path) == ""


def test_a_wrong_expectation_is_noticed(binary: Callable[[str], str], rule_file: Path, tmp_path: Path) -> None:
    assert "RankpulseBlind" in promtool(
        binary("promtool"), rule_file, unit_test({}, "5m", {"RankpulseBlind"}), tmp_path
    )


def annotations(name: str) -> dict[str, str]:
    alert = next(alert for alert in rules.ALERTS if alert.name == name)
    return {"summary": alert.summary, "description": alert.description, "runbook_url": alert.runbook}


@pytest.mark.parametrize(
    ("name", "changed", "labels", "summary"),
    [
        (
            "RankpulseAgentSilent",
            {f'rankpulse_node_suspect{{{M1}, node="n1"}}': ON},
            {"severity": "warning", "cluster": "c", "node": "n1"},
            "node n1 is silent in cluster c",
        ),
        (
            "RankpulseGpuBroken",
            {f"rankpulse_gpu_health{{{G}}}": "4+0x480"},
            {"severity": "warning", "cluster": "c", "Hostname": "n1", "gpu": "3", "UUID": "GPU-1"},
            "GPU 3 of n1 is broken in cluster c",
        ),
    ],
)
def test_the_texts_name_what_they_are_about(
    binary: Callable[[str], str],
    rule_file: Path,
    tmp_path: Path,
    name: str,
    changed: dict[str, str],
    labels: dict[str, str],
    summary: str,
) -> None:
    case = unit_test(changed, "2m", {name})
    told = {"exp_labels": labels, "exp_annotations": {**annotations(name), "summary": summary}}
    case["alert_rule_test"] = [{"eval_time": "2m", "alertname": name, "exp_alerts": [told]}]
    assert promtool(binary("promtool"), rule_file, case, tmp_path) == ""


@pytest.mark.parametrize("alert", rules.ALERTS, ids=lambda alert: alert.name)
def test_every_alert_says_what_it_means(alert: Alert) -> None:
    assert re.fullmatch(r"Rankpulse[A-Z][A-Za-z]+", alert.name)
    assert alert.severity in (CRITICAL, WARNING, INFO, NONE)
    assert (alert.severity == NONE) == (alert.name == ALWAYS)
    assert re.fullmatch(r"\d+[smhd]", alert.wait)
    assert alert.summary.splitlines() == [alert.summary]
    assert alert.description.endswith(".")


def test_the_example_for_prometheus_is_good(binary: Callable[[str], str]) -> None:
    example = REPO / "deploy" / "prometheus" / "rankpulse.yml"
    argv = [binary("promtool"), "check", "config", "--syntax-only", str(example)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    jobs = set(re.findall(r"job_name: ([\w-]+)", example.read_text(encoding="utf-8")))
    assert jobs == set(re.findall(r'job="([\w-]+)"', MONITORS + AGENTS))


def test_names_of_alerts_are_unique() -> None:
    names = [alert.name for alert in rules.ALERTS]
    assert len(names) == len(set(names))
