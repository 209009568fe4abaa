"""Every alert fires when it should, stays silent when it should, and says where its reader finds what to do."""

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rankpulse.dashboards import rules

REPO = Path(__file__).resolve().parents[2]
M1, M2 = 'cluster="c", instance="m1", job="rankpulse-monitor"', 'cluster="c", instance="m2", job="rankpulse-monitor"'
A1, A2 = (f'cluster="c", instance="a{n}", job="rankpulse-agent", node="n{n}"' for n in (1, 2))
U1, U2 = (f'cluster="c", instance="a{n}", job="rankpulse-agent"' for n in (1, 2))
ON, OFF = "1+0x480", "0+0x480"  # two hours of samples, one every 15 s

HEALTHY = {
    f"up{{{M1}}}": ON,
    f"up{{{M2}}}": ON,
    f"up{{{U1}}}": ON,
    f"up{{{U2}}}": ON,
    f"rankpulse_monitor_leader{{{M1}}}": ON,
    f"rankpulse_monitor_leader{{{M2}}}": OFF,
    f"rankpulse_monitor_epoch{{{M1}}}": "7+0x480",
    f"rankpulse_monitor_epoch{{{M2}}}": "7+0x480",
    f"rankpulse_monitor_breaker_open{{{M1}}}": OFF,
    f"rankpulse_monitor_blind{{{M1}}}": OFF,
    f"rankpulse_monitor_blind{{{M2}}}": OFF,
    f"rankpulse_monitor_blind_seconds_total{{{M1}}}": "3+0x480",
    f"rankpulse_monitor_refused_total{{{M1}}}": "2+0x480",
    f"rankpulse_monitor_loop_lag_seconds{{{M1}}}": "0.01+0x480",
    f'rankpulse_monitor_actions_total{{{M1}, kind="write", result="failed"}}': OFF,
    f'rankpulse_monitor_actions_total{{{M1}, kind="write", result="done"}}': "0+5x480",
    f'rankpulse_runs_ended_total{{{M1}, outcome="failed"}}': OFF,
    f'rankpulse_runs_ended_total{{{M1}, outcome="finished"}}': "0+1x480",
    f"rankpulse_cordons{{{M1}}}": OFF,
    f'rankpulse_webhook_waiting{{{M1}, target="pager"}}': OFF,
    f'rankpulse_webhook_dead{{{M1}, target="pager"}}': OFF,
    f"rankpulse_ledger_missing{{{M1}}}": OFF,
    f'rankpulse_ledger_exports_total{{{M1}, result="failed"}}': OFF,
    f"rankpulse_store_alarms{{{M1}}}": OFF,
    f"rankpulse_store_db_bytes{{{M1}}}": "20000000+0x480",
    f'rankpulse_node_suspect{{{M1}, node="n1"}}': OFF,
    f'rankpulse_incidents_open{{{M1}, class="worker_dead"}}': OFF,
    f'rankpulse_incidents_paging{{{M1}, class="worker_dead"}}': OFF,
    f'rankpulse_run_restarts{{{M1}, run_uid="r1"}}': "2+0x480",
    f'rankpulse_run_step{{{M1}, run_uid="r1"}}': "0+1x480",
    f'rankpulse_run_checkpoint_verified_age_seconds{{{M1}, run_uid="r1"}}': "60+0x480",
    f'rankpulse_run_checkpoint_failures_total{{{M1}, run_uid="r1"}}': "1+0x480",
    f'rankpulse_run_checkpoint_refused_total{{{M1}, run_uid="r1"}}': "1+0x480",
    f'rankpulse_agent_info{{{A1}, version="1"}}': ON,
    f'rankpulse_agent_info{{{A2}, version="1"}}': ON,
    f"rankpulse_agent_store_silence_seconds{{{A1}}}": ON,
    f"rankpulse_agent_store_silence_seconds{{{A2}}}": ON,
    f"rankpulse_agent_spooled{{{A1}}}": OFF,
    f"rankpulse_agent_dropped_total{{{A1}}}": "9+0x480",
    f"rankpulse_agent_slots_refused_total{{{A1}}}": OFF,
}
INCIDENT = 'class="worker_dead"'
GONE = "_x480"
SINCE_1H = "0x240 1x240"  # from one hour on
Case = tuple[str, dict[str, str], str, set[str]]

CASES: list[Case] = [
    ("all is well", {}, "70m", set()),
    # --- who watches
    ("no monitor answers", {f"up{{{M1}}}": OFF, f"up{{{M2}}}": OFF}, "3m", {"RankpulseNoMonitor"}),
    (
        "no monitor is known to Prometheus",
        {name: GONE for name in HEALTHY if "rankpulse-monitor" in name},
        "3m",
        {"RankpulseNoMonitor"},
    ),
    ("for a minute no monitor answers", {f"up{{{M1}}}": "0x4 1x480", f"up{{{M2}}}": "0x4 1x480"}, "1m", set()),
    ("one monitor of two is gone", {f"up{{{M2}}}": OFF}, "6m", {"RankpulseMonitorDown"}),
    ("nobody leads", {f"rankpulse_monitor_leader{{{M1}}}": OFF}, "2m", {"RankpulseNoLeader"}),
    ("the lead is handed over", {f"rankpulse_monitor_leader{{{M1}}}": "1x4 0x2 1x480"}, "2m", set()),
    ("two lead", {f"rankpulse_monitor_leader{{{M2}}}": ON}, "3m", {"RankpulseTwoLeaders"}),
    (
        "all are blind",
        {f"rankpulse_monitor_blind{{{M1}}}": ON, f"rankpulse_monitor_blind{{{M2}}}": ON},
        "2m",
        {"RankpulseBlind"},
    ),
    ("the breaker is open", {f"rankpulse_monitor_breaker_open{{{M1}}}": ON}, "1m", {"RankpulseBreakerOpen"}),
    ("the standby alone is blind", {f"rankpulse_monitor_blind{{{M2}}}": ON}, "5m", set()),
    (
        "blind now and then, eight minutes in an hour",
        {f"rankpulse_monitor_blind_seconds_total{{{M1}}}": "0+2x480"},
        "70m",
        {"RankpulseBlindAgain"},
    ),
    (
        "blind for four minutes in an hour",
        {f"rankpulse_monitor_blind_seconds_total{{{M1}}}": "0+1x480"},
        "70m",
        set(),
    ),
    (
        "the lead changes every five minutes",
        {f"rankpulse_monitor_epoch{{{M1}}}": "7+0.05x480"},
        "70m",
        {"RankpulseLeadChanges"},
    ),
    ("the lead changed once", {f"rankpulse_monitor_epoch{{{M1}}}": "7x100 8x380"}, "70m", set()),
    ("the loop is late", {f"rankpulse_monitor_loop_lag_seconds{{{M1}}}": "0.9+0x480"}, "8m", {"RankpulseMonitorLate"}),
    ("the loop was late once", {f"rankpulse_monitor_loop_lag_seconds{{{M1}}}": "0x10 3x2 0x480"}, "5m", set()),
    # --- nodes and agents
    ("a node is suspected", {f'rankpulse_node_suspect{{{M1}, node="n1"}}': ON}, "2m", {"RankpulseAgentSilent"}),
    ("a node was suspected briefly", {f'rankpulse_node_suspect{{{M1}, node="n1"}}': "1x2 0x480"}, "2m", set()),
    ("only a follower suspects it", {f'rankpulse_node_suspect{{{M2}, node="n1"}}': ON}, "5m", set()),
    ("an agent does not answer", {f"up{{{U1}}}": OFF}, "6m", {"RankpulseAgentNotScraped"}),
    (
        "an agent does not reach the store",
        {f"rankpulse_agent_store_silence_seconds{{{A1}}}": "0+15x480"},
        "7m",
        {"RankpulseAgentCutOff"},
    ),
    (
        "an agent has never reached the store",
        {f"rankpulse_agent_store_silence_seconds{{{A1}}}": GONE},
        "2m",
        {"RankpulseAgentCutOff"},
    ),
    (
        "no agent reaches the store",
        {f"rankpulse_agent_store_silence_seconds{{{a}}}": "0+15x480" for a in (A1, A2)},
        "90s",
        {"RankpulseStoreSilent"},
    ),
    (
        "no agent reaches the store, for longer",
        {f"rankpulse_agent_store_silence_seconds{{{a}}}": "0+15x480" for a in (A1, A2)},
        "8m",
        {"RankpulseStoreSilent", "RankpulseAgentCutOff"},
    ),
    ("observations wait", {f"rankpulse_agent_spooled{{{A1}}}": "3+0x480"}, "12m", {"RankpulseSpoolWaits"}),
    ("observations come and go", {f"rankpulse_agent_spooled{{{A1}}}": "3x20 0x1 3x480"}, "12m", set()),
    ("observations are lost", {f"rankpulse_agent_dropped_total{{{A1}}}": "0x8 5x480"}, "5m", {"RankpulseSpoolDrops"}),
    ("they were lost an hour ago", {f"rankpulse_agent_dropped_total{{{A1}}}": "0x8 5x480"}, "60m", set()),
    (
        "a slot is refused",
        {f"rankpulse_agent_slots_refused_total{{{A1}}}": "0x8 1x480"},
        "5m",
        {"RankpulseSlotsRefused"},
    ),
    ("a node is cordoned", {f"rankpulse_cordons{{{M1}}}": ON}, "70m", set()),
    ("a node is cordoned and forgotten", {f"rankpulse_cordons{{{M1}}}": ON}, "25h", {"RankpulseCordonForgotten"}),
    # --- jobs
    (
        "an incident waits for a person",
        {f"rankpulse_incidents_{kind}{{{M1}, {INCIDENT}}}": ON for kind in ("open", "paging")},
        "5m",
        {"RankpulseIncidentPages"},
    ),
    (
        "nobody came",
        {f"rankpulse_incidents_{kind}{{{M1}, {INCIDENT}}}": ON for kind in ("open", "paging")},
        "40m",
        {"RankpulseIncidentPages", "RankpulseIncidentUnanswered"},
    ),
    ("an incident that is adopted", {f"rankpulse_incidents_open{{{M1}, {INCIDENT}}}": ON}, "30m", set()),
    (
        "it does not end",
        {f"rankpulse_incidents_open{{{M1}, {INCIDENT}}}": ON},
        "65m",
        {"RankpulseIncidentOpenLong"},
    ),
    (
        "restarts again and again",
        {f'rankpulse_run_restarts{{{M1}, run_uid="r1"}}': "0x20 1x20 2x20 3x480"},
        "20m",
        {"RankpulseRestartsAgain"},
    ),
    (
        "as many restarts, over two hours",
        {f'rankpulse_run_restarts{{{M1}, run_uid="r1"}}': "0x150 1x150 2x150 3x480"},
        "2h",
        set(),
    ),
    (
        "a run fails",
        {f'rankpulse_runs_ended_total{{{M1}, outcome="failed"}}': "0x8 1x480"},
        "5m",
        {"RankpulseRunFailed"},
    ),
    # --- checkpoints
    (
        "a save fails",
        {f'rankpulse_run_checkpoint_failures_total{{{M1}, run_uid="r1"}}': "1x8 2x480"},
        "5m",
        {"RankpulseCheckpointSavesFail"},
    ),
    (
        "a save failed two hours ago",
        {f'rankpulse_run_checkpoint_failures_total{{{M1}, run_uid="r1"}}': "1x8 2x480"},
        "2h",
        set(),
    ),
    (
        "it trains and no checkpoint is verified",
        {f'rankpulse_run_checkpoint_verified_age_seconds{{{M1}, run_uid="r1"}}': "6000+15x480"},
        "50m",
        {"RankpulseCheckpointOld"},
    ),
    (
        "it never saved at all",
        {f'rankpulse_run_checkpoint_verified_age_seconds{{{M1}, run_uid="r1"}}': GONE},
        "2h",
        set(),
    ),
    (
        "it stands still since its last checkpoint, and that is another matter",
        {
            f'rankpulse_run_checkpoint_verified_age_seconds{{{M1}, run_uid="r1"}}': "6000+15x480",
            f'rankpulse_run_step{{{M1}, run_uid="r1"}}': "7+0x480",
        },
        "50m",
        set(),
    ),
    (
        "a damaged checkpoint is passed over",
        {f'rankpulse_run_checkpoint_refused_total{{{M1}, run_uid="r1"}}': "1x8 2x480"},
        "5m",
        {"RankpulseCheckpointsRefused"},
    ),
    # --- webhooks
    ("an event was given up", {f'rankpulse_webhook_dead{{{M1}, target="pager"}}': ON}, "1m", {"RankpulseWebhookDead"}),
    (
        "a target does not answer",
        {f'rankpulse_webhook_waiting{{{M1}, target="pager"}}': "0x4 2x480"},
        "12m",
        {"RankpulseWebhookFails"},
    ),
    ("a target is told late", {f'rankpulse_webhook_waiting{{{M1}, target="pager"}}': "0x4 2x20 0x480"}, "12m", set()),
    # --- the ledger
    (
        "the store has lost its history",
        {f"rankpulse_ledger_missing{{{M1}}}": "0x4 31x480"},
        "8m",
        {"RankpulseLedgerLost"},
    ),
    (
        "the history was brought back at once",
        {f"rankpulse_ledger_missing{{{M1}}}": "0x4 31x8 0x480"},
        "8m",
        set(),
    ),
    (
        "the export fails and fails",
        {f'rankpulse_ledger_exports_total{{{M1}, result="failed"}}': "0x4 1x20 2x20 3x20 4x480"},
        "25m",
        {"RankpulseLedgerNotExported"},
    ),
    (
        "one export failed",
        {f'rankpulse_ledger_exports_total{{{M1}, result="failed"}}': "0x4 1x480"},
        "25m",
        set(),
    ),
    # --- the store
    ("etcd is full", {f"rankpulse_store_alarms{{{M1}}}": ON}, "1m", {"RankpulseStoreAlarm"}),
    ("etcd's file grows", {f"rankpulse_store_db_bytes{{{M1}}}": "1700000000+0x480"}, "12m", {"RankpulseStoreGrows"}),
    (
        "records are refused",
        {f"rankpulse_monitor_refused_total{{{M1}}}": "2x10 3x480"},
        "6m",
        {"RankpulseRecordsRefused"},
    ),
    (
        "writes fail and fail",
        {f'rankpulse_monitor_actions_total{{{M1}, kind="write", result="failed"}}': "0+1x480"},
        "12m",
        {"RankpulseDecisionsFail"},
    ),
    (
        "a write failed",
        {f'rankpulse_monitor_actions_total{{{M1}, kind="write", result="failed"}}': "0x10 1x480"},
        "12m",
        set(),
    ),
]


def step(at: str) -> str:
    """Between samples and evaluations: a day in steps of 15 s would take half a minute."""
    return "4m" if at == "25h" else "15s"


def unit_test(changed: dict[str, str], at: str, firing: set[str]) -> dict[str, Any]:
    """In `promtool`'s form: the healthy cluster with `changed`, and which alerts, and no others, fire `at`."""
    series = {name: values for name, values in {**HEALTHY, **changed}.items() if values != GONE}
    return {
        "interval": step(at),
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {
                "expr": 'group by (alertname) (ALERTS{alertstate="firing"})',
                "eval_time": at,
                "exp_samples": [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in sorted(firing)],
            }
        ],
    }


def promtool(tool: str, rule_file: Path, tests: list[dict[str, Any]], tmp_path: Path) -> str:
    """Run the unit tests; returns what went wrong, "" when nothing did."""
    file = tmp_path / "tests.yml"  # JSON is YAML
    file.write_text(
        json.dumps({"rule_files": [str(rule_file)], "evaluation_interval": tests[0]["interval"], "tests": tests})
    )
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
    assert promtool(binary("promtool"), rule_file, [unit_test(changed, at, firing)], tmp_path) == ""


def test_every_alert_is_made_to_fire() -> None:
    assert set().union(*(firing for *_, firing in CASES)) == {alert.name for alert in rules.ALERTS}


def test_a_wrong_expectation_is_noticed(binary: Callable[[str], str], rule_file: Path, tmp_path: Path) -> None:
    assert "RankpulseBlind" in promtool(
        binary("promtool"), rule_file, [unit_test({}, "5m", {"RankpulseBlind"})], tmp_path
    )


def test_the_texts_name_what_they_are_about(binary: Callable[[str], str], rule_file: Path, tmp_path: Path) -> None:
    silent = next(alert for alert in rules.ALERTS if alert.name == "RankpulseAgentSilent")
    case = unit_test({f'rankpulse_node_suspect{{{M1}, node="n1"}}': ON}, "2m", {silent.name})
    case["alert_rule_test"] = [
        {
            "eval_time": "2m",
            "alertname": silent.name,
            "exp_alerts": [
                {
                    "exp_labels": {"severity": "warning", "cluster": "c", "node": "n1"},
                    "exp_annotations": {
                        "summary": "node n1 is silent in cluster c",
                        "description": silent.description,
                        "runbook": "docs/dashboards.md#rankpulseagentsilent",
                    },
                }
            ],
        }
    ]
    assert promtool(binary("promtool"), rule_file, [case], tmp_path) == ""


@pytest.mark.parametrize("alert", rules.ALERTS, ids=[alert.name for alert in rules.ALERTS])
def test_every_alert_says_what_it_means_and_where_to_read_on(alert: rules.Alert) -> None:
    assert re.fullmatch(r"Rankpulse[A-Z][A-Za-z]+", alert.name)
    assert alert.severity in (rules.CRITICAL, rules.WARNING, rules.INFO)
    assert alert.summary.splitlines() == [alert.summary]
    assert alert.description.endswith(".")
    page, _, anchor = alert.runbook.partition("#")
    text = (REPO / page).read_text(encoding="utf-8")
    assert anchor in {head.lower().replace(" ", "-") for head in re.findall(r"^#+ +(.+?) *$", text, flags=re.MULTILINE)}
    wait = "at once" if alert.wait == "0m" else f"after {alert.wait}"
    assert f"### {alert.name}\n\n*{alert.severity}, {wait}*\n\n" in text


def test_no_alert_is_documented_that_does_not_exist() -> None:
    text = (REPO / rules.PAGE).read_text(encoding="utf-8")
    assert re.findall(r"^### (Rankpulse\w+)$", text, flags=re.MULTILINE) == [alert.name for alert in rules.ALERTS]


def test_the_example_for_prometheus_is_good(binary: Callable[[str], str]) -> None:
    example = REPO / "deploy" / "prometheus" / "rankpulse.yml"
    argv = [binary("promtool"), "check", "config", "--syntax-only", str(example)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    jobs = set(re.findall(r"job_name: ([\w-]+)", example.read_text(encoding="utf-8")))
    assert jobs == set(re.findall(r'job="([\w-]+)"', rules.MONITORS + rules.AGENTS))


def test_names_of_alerts_are_unique() -> None:
    names = [alert.name for alert in rules.ALERTS]
    assert len(names) == len(set(names))
