"""The dashboard of the fleet: is anything wrong, and can what stands here be believed? For whoever is on call."""

from typing import Any, Final

from rankpulse.dashboards import board as b
from rankpulse.dashboards import links as to
from rankpulse.dashboards import machines
from rankpulse.dashboards.board import GREEN, RED, YELLOW, Block, Query
from rankpulse.dashboards.machines import NODE, ask
from rankpulse.dashboards.promql import or_zero

GOOD_AT_ZERO: Final = ((None, GREEN), (1, RED))


def build() -> dict[str, Any]:
    """The dashboard as plain values."""
    return b.dashboard(
        to.FLEET,
        "Is anything wrong, and can what stands here be trusted? For whoever is on call.",
        ask,
        [
            b.variable("cluster", "Cluster", "label_values(rankpulse_monitor_info, cluster)", every=True),
            b.variable(
                "node",
                "Node",
                'label_values(rankpulse_node_silence_seconds{cluster=~"$cluster"}, node)',
                every=True,
            ),
        ],
        [_trust(), _wrong(), _history(), _runs(), machines.nodes()],
    )


def _trust() -> Block:
    leading = or_zero(f"sum({ask('rankpulse_monitor_leader')})")
    blind = f"max({ask.led('rankpulse_monitor_blind')}) or on () vector(2)"
    breaker = f"(max({ask.led('rankpulse_monitor_breaker_open')}) > 0) * 3"
    armed = f"{breaker} or max({ask.led('rankpulse_monitor_armed')}) or on () vector(2)"
    return Block(
        "Can I trust this page?",
        [
            b.stat(
                "Is a monitor leading?",
                "One monitor leads and decides. With none, nobody watches the jobs. With two, either two clusters are "
                "shown at once (choose one above), or a monitor has not noticed yet that it was replaced.",
                Query(leading),
                words=b.says({0: ("NOBODY LEADS", RED), 1: ("yes", GREEN)}),
                steps=((None, RED), (1, GREEN), (2, YELLOW)),
                runbook="RankpulseNoLeader",
            ),
            b.stat(
                "Can it see?",
                "Blind: the leader cannot rely on what the store tells it, so it concludes nothing from silence and "
                "gives no orders. Usually etcd, or the path to it. Nobody leading counts as blind.",
                Query(blind),
                words=b.says({0: ("sighted", GREEN), 1: ("BLIND", RED), 2: ("NO LEADER", RED)}),
                runbook="RankpulseBlind",
            ),
            b.stat(
                "May it act?",
                "Armed: it may order restarts. Otherwise it observes and tells what it would have done. With the "
                "breaker open nothing is ordered until a person closes it.",
                Query(armed),
                words=b.says(
                    {
                        0: ("observes only", YELLOW),
                        1: ("armed", GREEN),
                        2: ("NO LEADER", RED),
                        3: ("BREAKER OPEN", RED),
                    }
                ),
                runbook="RankpulseBreakerOpen",
            ),
            b.stat(
                "Monitors",
                "Monitors that answer Prometheus. With one there is nobody to take over.",
                Query(or_zero(f"count({ask('rankpulse_monitor_info')})")),
                steps=((None, RED), (1, YELLOW), (2, GREEN)),
                runbook="RankpulseMonitorDown",
            ),
            b.stat(
                "Agents",
                "Agents that answer Prometheus. Compare it with the nodes below: an agent that is not scraped may "
                "still do its work.",
                Query(or_zero(f"count({ask('rankpulse_agent_info')})")),
                steps=((None, RED), (1, GREEN)),
                runbook="RankpulseAgentNotScraped",
            ),
            b.stat(
                "Store alarms",
                "Alarms that etcd itself has raised: NOSPACE (it refuses all writes) or CORRUPT.",
                Query(or_zero(f"max({ask('rankpulse_store_alarms')})")),
                steps=GOOD_AT_ZERO,
                runbook="RankpulseStoreAlarm",
            ),
            b.stat(
                "Alerts firing",
                "Alerts of ours that fire now. 0 as well when the rules are not loaded into this Prometheus.",
                Query(or_zero('count(ALERTS{alertname=~"Rankpulse.*", alertstate="firing", cluster=~"$cluster"})')),
                steps=GOOD_AT_ZERO,
            ),
            b.stat(
                "Blind in this time",
                "For how long the monitor that was blind longest could not see, within the time shown.",
                Query(or_zero(f"max(increase({ask('rankpulse_monitor_blind_seconds')}[$__range]))")),
                unit="s",
                steps=((None, GREEN), (60, YELLOW), (600, RED)),
                runbook="RankpulseBlindAgain",
            ),
        ],
    )


def _wrong() -> Block:
    ratio = (
        f"{ask.leader('rankpulse_run_still_seconds', 'run_uid')}"
        f" / {ask.leader('rankpulse_run_step_deadline_seconds', 'run_uid')}"
    )
    return Block(
        "Is anything wrong now?",
        [
            b.stat(
                "Waiting for a person",
                "Open incidents that rankpulse cannot or may not solve by itself. `rankpulse explain last` says what "
                "to do.",
                Query(or_zero(f"sum({ask.led('rankpulse_incidents_paging')})")),
                steps=GOOD_AT_ZERO,
                size=(4, 4),
                runbook="RankpulseIncidentPages",
            ),
            b.stat(
                "Open incidents",
                "From the first suspicion until every rank has made a step again. Not all of them need you.",
                Query(or_zero(f"sum({ask.led('rankpulse_incidents_open')})")),
                steps=((None, GREEN), (1, YELLOW)),
                size=(4, 4),
                runbook="RankpulseIncidentOpenLong",
            ),
            b.stat(
                "Suspected nodes",
                "Nodes whose heartbeat is later than their own deadline. A suspicion, not yet a verdict.",
                Query(or_zero(f"sum({ask.led('rankpulse_node_suspect', NODE)})")),
                steps=((None, GREEN), (1, YELLOW)),
                size=(4, 4),
                runbook="RankpulseAgentSilent",
            ),
            b.stat(
                "Nearest to its deadline",
                "How much of its deadline the run that has stood still longest has used up. At 100 % it counts as "
                "hung. A run that is paused on purpose may exceed it.",
                Query(or_zero(f"max({ratio})")),
                unit="percentunit",
                steps=((None, GREEN), (0.5, YELLOW), (1, RED)),
                size=(4, 4),
            ),
            b.stat(
                "Incidents in this time",
                "Incidents opened within the time shown, of every class.",
                Query(or_zero(f"sum(max by (class) (increase({ask('rankpulse_incidents')}[$__range])))")),
                decimals=0,
                size=(4, 4),
            ),
            b.stat(
                "Restarts in this time",
                "Rounds begun after an incident within the time shown. Each costs the work since the last checkpoint.",
                Query(or_zero(f"sum(max by (by) (increase({ask('rankpulse_restarts')}[$__range])))")),
                decimals=0,
                size=(4, 4),
                runbook="RankpulseRestartsAgain",
            ),
        ],
    )


def _history() -> Block:
    return Block(
        "What happened?",
        [
            b.graph(
                "Which kinds of incident are open?",
                "Open incidents by class; the classes are explained in the operations page.",
                Query(ask.leader("rankpulse_incidents_open", "class"), "{{class}}"),
                stacked=True,
                stepped=True,
                size=(12, 8),
            ),
            b.graph(
                "Which of them wait for a person?",
                "Open incidents whose action is `page`, or `observe`: it would act, but orders are not armed.",
                Query(ask.leader("rankpulse_incidents_paging", "class"), "{{class}}"),
                stacked=True,
                stepped=True,
                size=(12, 8),
            ),
            b.graph(
                "When were incidents opened?",
                "Incidents opened per interval, by class. Every monitor counts them; the highest count is shown.",
                Query(f"max by (class) (increase({ask('rankpulse_incidents')}[$__interval]))", "{{class}}"),
                stacked=True,
                bars=True,
                size=(12, 7),
            ),
            b.graph(
                "When were jobs restarted, and by whom?",
                "Rounds begun after an incident: by torchelastic by itself, or by an order of rankpulse.",
                Query(f"max by (by) (increase({ask('rankpulse_restarts')}[$__interval]))", "by {{by}}"),
                stacked=True,
                bars=True,
                size=(12, 7),
            ),
            b.graph(
                "How did runs end?",
                "Runs that ended per interval, by outcome. `failed`: workers failed and nobody starts them again. "
                "`abandoned`: nobody is left to say how it ended.",
                Query(f"max by (outcome) (increase({ask('rankpulse_runs_ended')}[$__interval]))", "{{outcome}}"),
                stacked=True,
                bars=True,
                size=(12, 7),
            ),
            b.graph(
                "How many nodes are kept out?",
                "Cordoned nodes: no new round takes them. `rankpulse status` names them.",
                Query(or_zero(f"max({ask.led('rankpulse_cordons')})"), "cordoned"),
                stepped=True,
                runbook="RankpulseCordonForgotten",
                size=(12, 7),
            ),
        ],
    )


def _runs() -> Block:
    def column(metric: str, name: str) -> Query:
        return Query(ask.leader(metric, "run_uid"), name=name)

    return Block(
        "Which runs go on?",
        [
            b.table(
                "Runs",
                "The runs that go on. A click on a run opens its own dashboard.",
                Query(ask.leader("rankpulse_run_info", "run_uid, run_id")),
                column("rankpulse_run_round", "round"),
                column("rankpulse_run_ranks", "ranks"),
                column("rankpulse_run_world_size", "should be"),
                column("rankpulse_run_step", "step"),
                column("rankpulse_run_still_seconds", "still for"),
                column("rankpulse_run_restarts", "restarts"),
                column("rankpulse_run_incidents_open", "open incidents"),
                links={"run_uid": to.cell("run_uid")},
                none="no run is going on",
                size=(24, 8),
            )
        ],
    )
