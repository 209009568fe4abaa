"""The dashboard of the ledger: how often something fails, where the time goes, and whether that is kept."""

from typing import Any, Final

from rankpulse.core.trend import VERDICTS
from rankpulse.dashboards import board as b
from rankpulse.dashboards import links as to
from rankpulse.dashboards.board import GREEN, GREY, RED, YELLOW, Block, Query
from rankpulse.dashboards.promql import Ask

ask: Final = Ask('cluster=~"$cluster"')
ALL, BEST, LOW = 'component="all"', 'bound="best"', 'bound="low"'


def build() -> dict[str, Any]:
    """The dashboard as plain values."""
    return b.dashboard(
        to.RELIABILITY,
        "How often does something fail, where does the time of runs go, and can these figures be trusted?",
        ask,
        [b.variable("cluster", "Cluster", "label_values(rankpulse_monitor_info, cluster)", every=True)],
        [_failures(), _suspects(), _time(), _kept()],
    )


def _grown(name: str, by: str, span: str) -> str:
    """Every monitor exports the same sums: the highest growth is taken."""
    return f"max by ({by}) (increase({ask(name)}[{span}]))"


def _failures() -> Block:
    between = "rankpulse_mtbf_gpu_seconds"
    return Block(
        "How often does something fail?",
        [
            b.stat(
                "GPU time between failures",
                "Of all components, by all that the ledger holds: GPU time over failures. A job's mean time between "
                "failures is that by its number of GPUs, as long as failures are independent.",
                Query(f"max({ask.led(between, ALL, BEST)})"),
                unit="s",
                none="none failed yet",
                size=(6, 4),
            ),
            b.stat(
                "At least",
                "The low bound of the exact 90 % interval of GPU time between failures: with few failures it lies far "
                "below the figure beside it.",
                Query(f"max({ask.led(between, ALL, LOW)})"),
                unit="s",
                size=(6, 4),
            ),
            b.stat(
                "Failures in this time",
                "Runs that had to start again, or ended, without having been asked to; within the time shown.",
                Query(f"sum({_grown('rankpulse_ledger_failures', 'class, component', '$__range')})"),
                decimals=0,
                size=(6, 4),
            ),
            b.stat(
                "Unseen in this time",
                "Time in which no monitor saw the cluster, within the time shown: it counts neither as running nor as "
                "down. Much of it makes every figure here uncertain.",
                Query(f"max(increase({ask('rankpulse_ledger_unseen_seconds')}[$__range]))"),
                unit="s",
                steps=((None, GREEN), (600, YELLOW), (3600, RED)),
                size=(6, 4),
            ),
            b.graph(
                "What failed?",
                "Failures per interval, by component: as far as it is known what it was.",
                Query(
                    f"sum by (component) ({_grown('rankpulse_ledger_failures', 'class, component', '$__interval')})",
                    "{{component}}",
                ),
                bars=True,
                stacked=True,
                size=(12, 8),
            ),
            b.graph(
                "How long between failures, by component?",
                "GPU time between failures, the low bound of the exact 90 % interval: of components that have failed.",
                Query(ask.leader(between, "component", LOW), "{{component}}"),
                unit="s",
                size=(12, 8),
            ),
        ],
    )


def _suspects() -> Block:
    ratio = ask.leader("rankpulse_lemon_failure_ratio", "kind, name")
    lemons = f"max by (kind) {ask.led('rankpulse_lemons')}"
    verdict = " or ".join(
        f"(max({ask.led('rankpulse_failure_trend', matcher)}) == 1) * {number}"
        for number, matcher in enumerate((f'verdict="{verdict}"' for verdict in VERDICTS), start=1)
    )
    return Block(
        "Which machines fail too often, and does it become more?",
        [
            b.stat(
                "Lemons",
                "Nodes and GPUs that fail more often than the rest of the fleet: at least three failures of their own, "
                "and of those named so at most one in twenty is expected to have had bad luck only.",
                Query(f"sum({lemons})"),
                steps=((None, GREEN), (1, YELLOW)),
                runbook="RankpulseLemon",
                size=(4, 4),
            ),
            b.stat(
                "The failure rate is",
                "By GPU time, over all that the ledger holds one by one. Bursts: not constant, and so uneven that no "
                "trend follows.",
                Query(verdict),
                words=b.says(
                    {
                        1: ("constant", GREEN),
                        2: ("falling", GREEN),
                        3: ("RISING", RED),
                        4: ("in bursts", YELLOW),
                        5: ("too few to tell", GREY),
                    }
                ),
                none="nothing ran",
                runbook="RankpulseFailuresMoreOften",
                size=(4, 4),
            ),
            b.graph(
                "Is there a trend?",
                "The chance of so much of a trend or more at a constant rate, by three tests; under 5 % it is hardly "
                "constant. Lewis and Robinson's is not misled by failures that come in bursts.",
                Query(f"max by (test) {ask.led('rankpulse_failure_trend_p_ratio')}", "{{test}}"),
                unit="percentunit",
                steps=((None, RED), (0.05, GREEN)),
                top=1,
                size=(8, 8),
            ),
            b.graph(
                "How steep is it?",
                "The shape of the power law of failures with its 90 % interval: 1 is a constant rate, above it they "
                "become more, below fewer.",
                Query(f"max by (bound) {ask.led('rankpulse_failure_trend_beta')}", "{{bound}}"),
                unit="none",
                stepped=True,
                size=(8, 8),
            ),
            b.table(
                "Who stands out?",
                "The ten nodes and ten GPUs that failed most against their share: how many times as often as all "
                "others, and at which false discovery rate each would be called a lemon. Empty: no machine has failed.",
                Query(ratio, name="times as often"),
                Query(ask.leader("rankpulse_lemon_false_discovery_ratio", "kind, name"), name="false discovery rate"),
                links={},
                none="no machine has failed",
                size=(16, 8),
            ),
            b.graph(
                "How many lemons were there?",
                "Nodes and GPUs that are called so, over time; `rankpulse report` says why of each.",
                Query(lemons, "{{kind}}"),
                stepped=True,
                size=(8, 8),
            ),
        ],
    )


def _time() -> Block:
    return Block(
        "Where does the time of runs go?",
        [
            b.graph(
                "What do GPUs lose time to?",
                "GPU time that was lost per interval, by what it went to. An incident counts when it is over.",
                Query(_grown("rankpulse_ledger_lost_gpu_seconds", "cause", "$__interval"), "{{cause}}"),
                unit="s",
                bars=True,
                stacked=True,
                size=(12, 8),
            ),
            b.graph(
                "What do runs lose time to?",
                "The same in time of runs, whatever their size.",
                Query(_grown("rankpulse_ledger_lost_seconds", "cause", "$__interval"), "{{cause}}"),
                unit="s",
                bars=True,
                stacked=True,
                size=(12, 8),
            ),
            b.graph(
                "How much of its time does a run train?",
                "The effective training time ratio of runs that go on: the share that interruptions left, and what is "
                "left when saving and slow ranks are taken off as well.",
                Query(ask.leader("rankpulse_run_effective_ratio", "run_uid"), "{{run_uid}}"),
                Query(ask.leader("rankpulse_run_goodput_ratio", "run_uid"), "{{run_uid}} goodput"),
                unit="percentunit",
                top=1,
                size=(12, 8),
            ),
            b.graph(
                "What has each run lost?",
                "Time that runs which go on have lost so far, by what it went to: the ten largest.",
                Query(
                    f"topk(10, {ask.leader('rankpulse_run_lost_seconds', 'run_uid, cause')})", "{{run_uid}} {{cause}}"
                ),
                unit="s",
                size=(12, 8),
            ),
        ],
    )


def _kept() -> Block:
    rate = "[$__rate_interval]))"
    return Block(
        "Is the ledger kept?",
        [
            b.graph(
                "What runs?",
                "GPUs, nodes and runs that were counted as running, on average over some minutes.",
                Query(f"max(rate({ask('rankpulse_ledger_gpu_seconds')}{rate}", "GPUs"),
                Query(f"max(rate({ask('rankpulse_ledger_node_seconds')}{rate}", "nodes"),
                Query(f"max(rate({ask('rankpulse_ledger_run_seconds')}{rate}", "runs"),
            ),
            b.graph(
                "How much does it hold?",
                "Incidents that the ledger holds one by one; older ones are kept as sums.",
                Query(f"max({ask.led('rankpulse_ledger_entries')})", "entries"),
                stepped=True,
            ),
            b.graph(
                "Is it exported?",
                "Exports to the directory of the settings, by result, and records that were exported and that the "
                "store has lost. Nothing where no directory is set.",
                Query(f"sum by (result) (increase({ask('rankpulse_ledger_exports')}[$__interval]))", "{{result}}"),
                Query(f"max({ask.led('rankpulse_ledger_missing')})", "lost by the store"),
                bars=True,
            ),
        ],
    )
