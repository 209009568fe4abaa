"""Alerts on jobs, their incidents and their checkpoints."""

from typing import Final

from rankpulse.dashboards.alerting import (
    ADVICE,
    AGE,
    CRITICAL,
    IN_CLUSTER,
    INFO,
    LOST,
    LOST_SHARE,
    OPEN,
    PAGING,
    RESTARTS,
    STEP,
    VERIFIED_AGE,
    WARNING,
    Alert,
    ask,
)

NUMBERS: Final = 'class=~"non_finite|numerical"'
JOBS: Final = (
    Alert(
        "RankpulseIncidentPages",
        f"sum by (cluster, class) ({PAGING}) > 0",
        "1m",
        CRITICAL,
        f"an incident of class {{{{ $labels.class }}}} waits for a person{IN_CLUSTER}",
        "rankpulse cannot or may not solve it. `rankpulse explain last` says what happened and what to do.",
    ),
    Alert(
        "RankpulseIncidentUnanswered",
        f"sum by (cluster, class) ({PAGING}) > 0",
        "30m",
        CRITICAL,
        f"an incident of class {{{{ $labels.class }}}} has waited for half an hour{IN_CLUSTER}",
        "The machines of the job stand idle since. Send this one further up.",
    ),
    Alert(
        "RankpulseIncidentOpenLong",
        f"sum by (cluster, class) ({OPEN}) > 0",
        "1h",
        WARNING,
        f"an incident of class {{{{ $labels.class }}}} has been open for an hour{IN_CLUSTER}",
        "Neither recovered nor passed. A restart that does not succeed, or a path that stays late.",
    ),
    Alert(
        "RankpulseRunFailed",
        f"max by (cluster, outcome) (increase({ask('rankpulse_runs_ended', LOST)}[15m])) > 0",
        "0m",
        WARNING,
        f"a run {{{{ $labels.outcome }}}}{IN_CLUSTER}",
        "It has ended and nobody starts it again. Its incident is closed with it: `rankpulse explain last`.",
    ),
    Alert(
        "RankpulseNotFinite",
        f"max by (cluster, class) (increase({ask('rankpulse_incidents', NUMBERS)}[30m])) > 0",
        "0m",
        WARNING,
        f"a run has computed numbers that are none{IN_CLUSTER}",
        "NaN or infinite, in its loss or its gradients. From a checkpoint that is spoilt already it comes again.",
    ),
    Alert(
        "RankpulseNotFiniteSteps",
        f"max by (cluster, node) (min_over_time({ask('rankpulse_agent_non_finite_row')}[2m])) >= 3",
        "1m",
        WARNING,
        f"ranks of {{{{ $labels.node }}}} have been computing NaN or Inf for minutes{IN_CLUSTER}",
        "The agent says so, whatever the monitor makes of it. What is trained since is worth nothing.",
    ),
    Alert(
        "RankpulseRestartsAgain",
        f"max_over_time({RESTARTS}[30m]) - min_over_time({RESTARTS}[30m]) >= 3",
        "0m",
        WARNING,
        f"run {{{{ $labels.run_uid }}}} restarted {{{{ $value }}}} times within half an hour{IN_CLUSTER}",
        "It fails again and again. Three orders without progress are the budget (`policy.orders_per_run`), and "
        "torchelastic has its own (`--max-restarts`): soon nobody starts it again.",
    ),
)
MOVES: Final = f"max_over_time({STEP}[30m]) - min_over_time({STEP}[30m]) > 0"
CHECKPOINTS: Final = (
    Alert(
        "RankpulseCheckpointSavesFail",
        f"max by (cluster, run_uid) (increase({ask('rankpulse_run_checkpoint_failures')}[30m])) > 0",
        "0m",
        WARNING,
        f"run {{{{ $labels.run_uid }}}} cannot save checkpoints{IN_CLUSTER}",
        "It trains on, and the work since its last checkpoint grows that a restart would lose. `rankpulse status` says "
        "why the last save failed: mostly a full disk.",
    ),
    Alert(
        "RankpulseCheckpointUploadsFail",
        f"max by (cluster, run_uid) (increase({ask('rankpulse_checkpoint_upload_failures')}[30m])) > 0",
        "0m",
        WARNING,
        f"checkpoints of run {{{{ $labels.run_uid }}}} do not get beyond its nodes{IN_CLUSTER}",
        "They are saved, and what was to be brought to the shared directory, to a durable target or to peers was not. "
        "While that lasts, the nodes that fail take work with them. `rankpulse status` says where, and why.",
    ),
    Alert(
        "RankpulseCheckpointOld",
        f"{VERIFIED_AGE} > 7200 and {MOVES}",
        "5m",
        WARNING,
        f"run {{{{ $labels.run_uid }}}} trains, and its last verified checkpoint is old{IN_CLUSTER}",
        "For {{ $value | humanizeDuration }} no checkpoint of it was verified. A restart would lose all work since.",
    ),
    Alert(
        "RankpulseSavesTooSeldom",
        f"{AGE} > 3 * {ADVICE} and {LOST_SHARE} > 0.005 and {MOVES}",
        "10m",
        INFO,
        f"run {{{{ $labels.run_uid }}}} saves far more seldom than would lose the least time{IN_CLUSTER}",
        "For {{ $value | humanizeDuration }} it has saved no checkpoint: three times what its failures and the cost of "
        "a save advise. Or it knows of no advice.",
    ),
    Alert(
        "RankpulseCheckpointsRefused",
        f"max by (cluster, run_uid) (increase({ask('rankpulse_run_checkpoint_refused')}[30m])) > 0",
        "0m",
        WARNING,
        f"run {{{{ $labels.run_uid }}}} did not load some of its checkpoints{IN_CLUSTER}",
        "They are damaged, or were set aside because somebody asked for it. The run went on from an older one. Damage "
        "comes from a disk, a file system or a machine that will do it again.",
    ),
)
