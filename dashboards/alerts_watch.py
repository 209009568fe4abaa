"""Alerts on whoever watches: monitors, their sight, their lead."""

from typing import Final

from rankpulse.dashboards.alerting import CRITICAL, IN_CLUSTER, MONITORS, NONE, WARNING, Alert, ask

SEEN: Final = MONITORS + "[6h]"
WATCH: Final = (
    Alert(
        "RankpulseWatchdog",
        "vector(1)",
        "0m",
        NONE,
        "alerts are evaluated and delivered",
        "It fires always. When whoever receives it hears nothing for minutes, Prometheus, Alertmanager or the way "
        "between them is down, and no other alert would arrive.",
    ),
    Alert(
        "RankpulseNoMonitor",
        f"sum by (cluster) ({MONITORS}) == 0 or absent({MONITORS})",
        "2m",
        CRITICAL,
        f"no monitor can be scraped{IN_CLUSTER}",
        "Nobody answers as job rankpulse-monitor. Jobs go on, but nobody watches them: a hang or a crash would be "
        "noticed by nobody.",
    ),
    Alert(
        "RankpulseMonitorDown",
        f"{MONITORS} == 0",
        "5m",
        WARNING,
        "monitor {{ $labels.instance }} cannot be scraped",
        "The other monitors watch on, with fewer to take over.",
    ),
    Alert(
        "RankpulseMonitorGone",
        f"max by (cluster, instance) (max_over_time({SEEN})) == 1 unless on (cluster, instance) {MONITORS}",
        "5m",
        WARNING,
        f"monitor {{{{ $labels.instance }}}} is no target of Prometheus any more{IN_CLUSTER}",
        "It answered within the last hours and has vanished from the list of what is scraped: no other alert would "
        "tell of it.",
    ),
    Alert(
        "RankpulseNoLeader",
        f"sum by (cluster) ({ask('rankpulse_monitor_leader')}) == 0",
        "1m",
        CRITICAL,
        f"no monitor leads{IN_CLUSTER}",
        "Monitors run and none of them leads: nothing is diagnosed and nothing is ordered. Mostly because they do not "
        "reach etcd, or because the one that leads is not scraped.",
    ),
    Alert(
        "RankpulseTwoLeaders",
        f"sum by (cluster) ({ask('rankpulse_monitor_leader')}) > 1",
        "2m",
        WARNING,
        f"{{{{ $value }}}} monitors say that they lead{IN_CLUSTER}",
        "Orders stay fenced, so nothing is done twice. Either two clusters are scraped without the label `cluster`, or "
        "a monitor hangs and has not noticed that it was replaced.",
    ),
    Alert(
        "RankpulseBlind",
        f"min by (cluster) ({ask('rankpulse_monitor_blind')}) == 1",
        "1m",
        CRITICAL,
        f"every monitor is blind{IN_CLUSTER}",
        "No monitor can trust what it sees: no incident is opened, no order given. Look at etcd first.",
    ),
    Alert(
        "RankpulseBreakerOpen",
        f"max by (cluster) ({ask('rankpulse_monitor_breaker_open')}) == 1",
        "0m",
        CRITICAL,
        f"the breaker is open{IN_CLUSTER}: nothing is ordered",
        "Too much of the fleet was silent or left out at once. Find out why, then close it: rankpulse breaker close.",
    ),
    Alert(
        "RankpulseBlindAgain",
        f"max by (cluster, instance) (increase({ask('rankpulse_monitor_blind_seconds')}[1h])) > 300",
        "1m",
        WARNING,
        "monitor {{ $labels.instance }} was blind for {{ $value | humanizeDuration }} of the last hour",
        "Short spells of blindness that add up: a slow etcd, a poor path to it, or an overloaded machine.",
    ),
    Alert(
        "RankpulseLeadChanges",
        f"max by (cluster) (max_over_time({ask('rankpulse_monitor_epoch')}[1h])) - "
        f"min by (cluster) (min_over_time({ask('rankpulse_monitor_epoch')}[1h])) > 4",
        "1m",
        WARNING,
        f"the lead changed {{{{ $value }}}} times within an hour{IN_CLUSTER}",
        "Each change costs some seconds without decisions. The leader loses its lease: etcd slow, or its machine.",
    ),
    Alert(
        "RankpulseMonitorLate",
        f"min_over_time({ask('rankpulse_monitor_loop_lag_seconds')}[5m]) > 0.5",
        "1m",
        WARNING,
        "monitor {{ $labels.instance }} is too slow: its loop is {{ $value | humanizeDuration }} late",
        "The machine is overloaded. Beyond 2 s the monitor calls itself blind.",
    ),
)
