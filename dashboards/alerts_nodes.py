"""Alerts on nodes and their agents."""

from typing import Final

from rankpulse.dashboards.alerting import AGENTS, CRITICAL, IN_CLUSTER, INFO, SUSPECT, WARNING, Alert, ask

REACHED: Final = ask.leader("rankpulse_node_reached", "cluster, node")
NODES: Final = (
    Alert(
        "RankpulseAgentSilent",
        f"{SUSPECT} == 1",
        "1m",
        WARNING,
        f"node {{{{ $labels.node }}}} is silent{IN_CLUSTER}",
        "Its heartbeats have stopped without a goodbye. Either the agent, the path to etcd, or the whole node.",
    ),
    Alert(
        "RankpulseAgentNotScraped",
        f"{AGENTS} == 0",
        "5m",
        WARNING,
        "the agent at {{ $labels.instance }} cannot be scraped",
        "Only its metrics are missing if its heartbeats still arrive (RankpulseAgentSilent tells).",
    ),
    Alert(
        "RankpulseAgentCutOff",
        f"max by (cluster, node) ({ask('rankpulse_agent_store_silence_seconds')}) > 60 or "
        f"max by (cluster, node) ({ask('rankpulse_agent_info')} unless on (cluster, node) "
        f"{ask('rankpulse_agent_store_silence_seconds')})",
        "1m",
        WARNING,
        f"the agent of {{{{ $labels.node }}}} does not reach the store{IN_CLUSTER}",
        "It runs and watches, but no heartbeat of it has been acknowledged for more than a minute, or never.",
    ),
    Alert(
        "RankpulseStoreSilent",
        f"count by (cluster) ({ask('rankpulse_agent_store_silence_seconds')} > 30) / "
        f"count by (cluster) ({ask('rankpulse_agent_info')}) > 0.5",
        "30s",
        CRITICAL,
        f"{{{{ $value | humanizePercentage }}}} of the agents do not reach the store{IN_CLUSTER}",
        "That many at once is not the agents: etcd is down, full, or cut off.",
    ),
    Alert(
        "RankpulseSpoolWaits",
        f"min by (cluster, node) (min_over_time({ask('rankpulse_agent_spooled')}[10m])) > 0",
        "1m",
        WARNING,
        f"observations of {{{{ $labels.node }}}} have waited for ten minutes{IN_CLUSTER}",
        "{{ $value }} observations lie on its disk and do not get into the store.",
    ),
    Alert(
        "RankpulseSpoolDrops",
        f"max by (cluster, node) (increase({ask('rankpulse_agent_dropped')}[15m])) > 0",
        "0m",
        WARNING,
        f"observations of {{{{ $labels.node }}}} are lost: its spool is full{IN_CLUSTER}",
        "What is lost may have been the exit of a worker: incidents of this time may stay unexplained.",
    ),
    Alert(
        "RankpulseSlotsRefused",
        f"max by (cluster, node) (increase({ask('rankpulse_agent_slots_refused')}[15m])) > 0",
        "0m",
        INFO,
        f"slot files of jobs were refused on {{{{ $labels.node }}}}{IN_CLUSTER}",
        "Forged or stale files, another version of rankpulse in the job, or a container whose processes the agent "
        "cannot see. Those workers are not watched.",
    ),
    Alert(
        "RankpulseNodesNotReached",
        f"count by (cluster) ({REACHED} == 0) > 0",
        "1h",
        INFO,
        f"{{{{ $value }}}} nodes could never be looked at directly{IN_CLUSTER}",
        "When one of them falls silent nobody can look past the store, and its incident stays `unknown`.",
    ),
    Alert(
        "RankpulseCordonForgotten",
        f"max by (cluster) ({ask('rankpulse_cordons')}) > 0",
        "1d",
        INFO,
        f"{{{{ $value }}}} nodes have been kept out for a day{IN_CLUSTER}",
        "No new round takes a cordoned node. Perhaps it has long been mended.",
    ),
)
