"""An example of an Alertmanager's settings: who is told of what, and which alert makes which others superfluous."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from rankpulse.dashboards.alerting import CRITICAL, INFO, NONE, WARNING

EXAMPLE: Final = "deploy/alertmanager/rankpulse.yml"
HEAD: Final = """\
# Made by `make dashboards` from dashboards/alertmanager.py: change it there.
# An example, to be merged into alertmanager.yml: the addresses of the receivers are yours to fill in.
# `amtool check-config FILE` says whether it is well-formed.
"""
PAGER, CHAT, WATCHDOG, NOBODY = "pager", "chat", "dead-man", "nobody"


class Muting(NamedTuple):
    """While `culprit` fires, those of `cascade` are not told of where the labels `same` are equal."""

    culprit: str
    cascade: tuple[str, ...]
    same: tuple[str, ...] = ("cluster",)


_SIGHT: Final = ("RankpulseBlindAgain", "RankpulseLeadChanges", "RankpulseDecisionsFail")
_CUT_OFF: Final = ("RankpulseAgentCutOff", "RankpulseAgentSilent", "RankpulseSpoolWaits")
_GPU: Final = ("cluster", "Hostname", "gpu", "UUID")
_LESS: Final = ("RankpulseGpuXids", "RankpulseGpuUncorrectedErrors", "RankpulseGpuRemapPending")
MUTINGS: Final = (
    # the store before all that needs it: monitors are blind and agents cut off because etcd does not answer
    Muting("RankpulseStoreAlarm", ("RankpulseStoreSilent", "RankpulseStoreGrows")),
    Muting("RankpulseStoreAlarm", ("RankpulseBlind", "RankpulseNoLeader", *_SIGHT, *_CUT_OFF)),
    Muting("RankpulseStoreSilent", ("RankpulseBlind", "RankpulseNoLeader", *_SIGHT, *_CUT_OFF)),
    # who does not see speaks of the past
    Muting("RankpulseNoMonitor", ("RankpulseMonitorDown", "RankpulseMonitorGone", "RankpulseNoLeader")),
    Muting("RankpulseNoLeader", _SIGHT),
    Muting("RankpulseBlind", ("RankpulseAgentSilent", *_SIGHT)),
    Muting("RankpulseMonitorLate", ("RankpulseBlindAgain",), ("cluster", "instance")),
    # the agent's own word says more than its silence
    Muting("RankpulseAgentCutOff", ("RankpulseAgentSilent", "RankpulseSpoolWaits"), ("cluster", "node")),
    # one device, told of once: by what is worst
    Muting("RankpulseGpuBroken", ("RankpulseNvlinkDown", "RankpulseNvlinkErrors", *_LESS), _GPU),
    Muting("RankpulseGpuReplace", ("RankpulseGpuBroken", "RankpulseGpuSick", *_LESS), _GPU),
    Muting("RankpulseGpuProbeStuck", ("RankpulseGpuUnknown",), ("cluster", "Hostname")),
    # one incident, told of once
    Muting("RankpulseIncidentUnanswered", ("RankpulseIncidentPages",), ("cluster", "class")),
    Muting(
        "RankpulseIncidentPages",
        ("RankpulseIncidentOpenLong", "RankpulseGpuFault", "RankpulseNotFinite"),
        ("cluster", "class"),
    ),
    Muting("RankpulseNotFinite", ("RankpulseNotFiniteSteps",)),
    Muting(
        "RankpulseCheckpointSavesFail", ("RankpulseCheckpointOld", "RankpulseSavesTooSeldom"), ("cluster", "run_uid")
    ),
    Muting("RankpulseWebhookDead", ("RankpulseWebhookFails",), ("cluster", "target")),
)
RECEIVER: Final[Mapping[str, str]] = {NONE: WATCHDOG, CRITICAL: PAGER, WARNING: CHAT, INFO: NOBODY}


def build() -> dict[str, Any]:
    """The example as plain values."""
    return {
        "route": {
            "receiver": CHAT,
            "group_by": ["alertname", "cluster"],
            "group_wait": "15s",
            "group_interval": "2m",
            "repeat_interval": "12h",
            "routes": [_route(severity, receiver) for severity, receiver in RECEIVER.items()],
        },
        "inhibit_rules": [_inhibit(one) for one in MUTINGS],
        "receivers": [
            _hook(PAGER, "https://pager.example/rankpulse"),
            _hook(CHAT, "https://chat.example/rankpulse"),
            _hook(WATCHDOG, "https://dead-man.example/rankpulse"),  # calls somebody when it hears nothing
            {"name": NOBODY},  # seen on the pages of Alertmanager and in Grafana
        ],
    }


def _route(severity: str, receiver: str) -> dict[str, Any]:
    route: dict[str, Any] = {"matchers": ['alertname=~"Rankpulse.*"', f'severity="{severity}"'], "receiver": receiver}
    if severity == NONE:  # a sign of life: often, and never held back
        return {**route, "group_wait": "0s", "group_interval": "1m", "repeat_interval": "1m"}
    return {**route, "repeat_interval": "1h"} if severity == CRITICAL else route


def _inhibit(muting: Muting) -> dict[str, Any]:
    return {
        "source_matchers": [f'alertname="{muting.culprit}"'],
        "target_matchers": [f'alertname=~"{"|".join(muting.cascade)}"'],
        "equal": list(muting.same),
    }


def _hook(name: str, url: str) -> dict[str, Any]:
    return {"name": name, "webhook_configs": [{"url": url, "send_resolved": name != WATCHDOG}]}
