"""The dashboard of incidents: what is open and who is to act, how fast it was noticed and over, what was done."""

from typing import Any, Final

from rankpulse.dashboards import board as b
from rankpulse.dashboards import links as to
from rankpulse.dashboards.alerting import RUNBOOKS
from rankpulse.dashboards.board import GREEN, RED, YELLOW, Block, Query
from rankpulse.dashboards.promql import Ask, or_zero

ask: Final = Ask('cluster=~"$cluster"')
OPENED: Final = "rankpulse_incident_opened_timestamp_seconds"
PER: Final = "[$__interval]"
DETECT, RECOVER = "rankpulse_time_to_detect_seconds", "rankpulse_time_to_recover_seconds"


def build() -> dict[str, Any]:
    """The dashboard as plain values."""
    return b.dashboard(
        to.INCIDENTS,
        "What broke, how far is what is done about it, how fast was it noticed and over, and who was told?",
        ask,
        [b.variable("cluster", "Cluster", "label_values(rankpulse_monitor_info, cluster)", every=True)],
        [_now(), _which(), _fast(), _done()],
    )


def _now() -> Block:
    by = "incident, class, run_uid, node, action, rung"
    command = f'label_replace({ask.leader(OPENED, by)}, "explain", "rankpulse explain $1", "incident", "(.*)")'
    return Block(
        "What is open now?",
        [
            b.stat(
                "Open",
                "From the first suspicion until every rank has made a step again.",
                Query(or_zero(f"sum({ask.led('rankpulse_incidents_open')})")),
                steps=((None, GREEN), (1, YELLOW)),
                runbook="RankpulseIncidentOpenLong",
                size=(4, 4),
            ),
            b.stat(
                "Wait for a person",
                "Those that rankpulse cannot or may not solve by itself.",
                Query(or_zero(f"sum({ask.led('rankpulse_incidents_paging')})")),
                steps=((None, GREEN), (1, RED)),
                runbook="RankpulseIncidentPages",
                size=(4, 4),
            ),
            b.stat(
                "The oldest is open for",
                "Time since the oldest open incident was opened; 0: none is open.",
                Query(or_zero(f"max(time() - {ask.led(OPENED)})")),
                unit="s",
                steps=((None, GREEN), (300, YELLOW), (1800, RED)),
                runbook="RankpulseIncidentOpenLong",
                size=(4, 4),
            ),
            b.graph(
                "How far is what is done?",
                "Open incidents by the rung of the ladder that their action has reached: none, an order to stop and "
                "meet again, a kill, a webhook to whoever starts jobs, a person.",
                Query(f"max by (rung) {ask.led('rankpulse_incidents_on_rung')}", "{{rung}}"),
                stepped=True,
                stacked=True,
                runbook="RankpulseIncidentUnanswered",
                size=(12, 4),
            ),
            b.table(
                "Open incidents",
                "Each with the command that tells its story and what to do; a click on it opens the runbook, on a run "
                "or node its dashboard. Empty: none is open.",
                Query(f"(time() - {command})", name="open for"),
                links={
                    "explain": f"{RUNBOOKS}/RankpulseIncidentPages.md",
                    "node": to.cell("node"),
                    "run_uid": to.cell("run_uid"),
                },
                none="none is open",
                runbook="RankpulseIncidentPages",
                size=(24, 8),
            ),
        ],
    )


def _which() -> Block:
    closed = f"max by (class, outcome) (increase({ask('rankpulse_incidents_closed')}{PER}))"
    return Block(
        "What came and went?",
        [
            b.graph(
                "Which were opened?",
                "Incidents opened per interval, by class. Its dots lead to `rankpulse explain`: Prometheus must keep "
                "exemplars for that.",
                Query(f"max by (class) (increase({ask('rankpulse_incidents')}{PER}))", "{{class}}"),
                stacked=True,
                bars=True,
                size=(8, 8),
            ),
            b.graph(
                "Which were over?",
                "Incidents that were over per interval, by class.",
                Query(f"sum by (class) ({closed})", "{{class}}"),
                stacked=True,
                bars=True,
                size=(8, 8),
            ),
            b.graph(
                "How did they end?",
                "By outcome: training went on after a restart (`recovered`), it passed by itself, the run ended of "
                "it, or another incident took its place (`superseded`).",
                Query(f"sum by (outcome) ({closed})", "{{outcome}}"),
                stacked=True,
                bars=True,
                size=(8, 8),
            ),
        ],
    )


def _quantile(name: str, share: float) -> str:
    """By class, within the time shown. Every monitor counts the same: the highest counts are taken."""
    buckets = f"max by (class, le) (increase({ask(name, suffix='_bucket')}[$__range]))"
    some = f"max by (class) (increase({ask(name, suffix='_count')}[$__range])) > 0"
    return f"histogram_quantile({share}, {buckets}) and on (class) ({some})"


def _mean(name: str) -> str:
    total = f"sum(max by (class) (increase({ask(name, suffix='_sum')}[$__range])))"
    return or_zero(f"{total} / (sum(max by (class) (increase({ask(name, suffix='_count')}[$__range]))) > 0)")


def _spread(name: str) -> Query:
    buckets = ask(name, suffix="_bucket")
    return Query(f"sum by (le) (max by (class, le) (increase({buckets}{PER})))", "{{le}}")


def _fast() -> Block:
    return Block(
        "How fast was it noticed, and over?",
        [
            b.stat(
                "Mean time to detect",
                "From the first evidence of the fault to the incident, over all classes, within the time shown. 0: "
                "there was none.",
                Query(_mean(DETECT)),
                unit="s",
                steps=((None, GREEN), (60, YELLOW), (300, RED)),
                size=(4, 8),
            ),
            b.graph(
                "How fast was it noticed?",
                "Time to detect by class, within the time shown before each point: half of them took less than the "
                "one, 90 % than the other.",
                Query(_quantile(DETECT, 0.5), "{{class}} half"),
                Query(_quantile(DETECT, 0.9), "{{class}} 90 %"),
                unit="s",
                stepped=True,
                size=(10, 8),
            ),
            b.heatmap(
                "How do times to detect spread?",
                "Incidents per interval by time to detect, of all classes.",
                _spread(DETECT),
                size=(10, 8),
            ),
            b.stat(
                "Mean time to recover",
                "From the incident to the first step of every rank, of runs that recovered, within the time shown. "
                "Most of it is the start of the job itself. 0: there was none.",
                Query(_mean(RECOVER)),
                unit="s",
                steps=((None, GREEN), (600, YELLOW), (1800, RED)),
                size=(4, 8),
            ),
            b.graph(
                "How fast did training go on?",
                "Time to recover by class, within the time shown before each point: half of them took less than the "
                "one, 90 % than the other.",
                Query(_quantile(RECOVER, 0.5), "{{class}} half"),
                Query(_quantile(RECOVER, 0.9), "{{class}} 90 %"),
                unit="s",
                stepped=True,
                size=(10, 8),
            ),
            b.heatmap(
                "How do times to recover spread?",
                "Recoveries per interval by how long they took, of all classes.",
                _spread(RECOVER),
                size=(10, 8),
            ),
        ],
    )


def _done() -> Block:
    attempts = f"max by (target, outcome) (increase({ask('rankpulse_webhook_attempts')}{PER}))"
    return Block(
        "What was done, and who was told?",
        [
            b.graph(
                "What was ordered?",
                "Orders per interval: `restart` (stop and meet again), `kill`, `release` (holders give the job back), "
                "`collect` (agents tell what ranks do).",
                Query(f"max by (kind) (increase({ask('rankpulse_orders')}{PER}))", "{{kind}}"),
                stacked=True,
                bars=True,
            ),
            b.graph(
                "Who restarted?",
                "Rounds begun after an incident: by torchelastic by itself, or by an order of rankpulse.",
                Query(f"max by (by) (increase({ask('rankpulse_restarts')}{PER}))", "by {{by}}"),
                stacked=True,
                bars=True,
                runbook="RankpulseRestartsAgain",
            ),
            b.graph(
                "Were webhooks told?",
                "Attempts per interval, by target and outcome, and what still waits or was given up.",
                Query(attempts, "{{target}} {{outcome}}"),
                Query(ask.leader("rankpulse_webhook_waiting", "target"), "{{target}} waiting"),
                Query(ask.leader("rankpulse_webhook_dead", "target"), "{{target}} given up"),
                bars=True,
                runbook="RankpulseWebhookFails",
            ),
            b.graph(
                "What were new rounds told?",
                "The word of the policy to rounds about to form: go, go without some nodes, or stop because it would "
                "fail again.",
                Query(f"max by (answer) (increase({ask('rankpulse_gates')}[$__interval]))", "{{answer}}"),
                stacked=True,
                bars=True,
                size=(8, 7),
            ),
            b.graph(
                "Were agents asked what ranks do?",
                "Answers of agents to the question what their ranks were doing, asked before a hang is named: through "
                "the store, and directly (told, or nothing came of it).",
                Query(f"max(increase({ask('rankpulse_evidence')}[$__interval]))", "store"),
                Query(
                    f"max by (answer) (increase({ask('rankpulse_evidence_questions')}[$__interval]))",
                    "directly: {{answer}}",
                ),
                bars=True,
                size=(8, 7),
            ),
            b.graph(
                "What came of last words?",
                "Incidents that are over whose order asked survivors to save first: `saved`, `refused` (they do not "
                "hold the whole state), `unanswered`, or `asked` (no agent said).",
                Query(f"max by (outcome) (increase({ask('rankpulse_last_words')}[$__interval]))", "{{outcome}}"),
                stacked=True,
                bars=True,
                size=(8, 7),
            ),
        ],
    )
