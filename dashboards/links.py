"""Where a click leads: from board to board, from a series to its node or run, from a panel to its runbook."""

from collections.abc import Iterable
from typing import Any, Final

from rankpulse.dashboards.alerting import RUNBOOKS

FLEET, RUN, NODE = "rankpulse-fleet", "rankpulse-run", "rankpulse-node"
INCIDENTS, RELIABILITY, ITSELF = "rankpulse-incidents", "rankpulse-reliability", "rankpulse-itself"
BOARDS: Final = {  # uid -> what it is about, in the order of their links
    FLEET: "fleet",
    RUN: "run",
    NODE: "node and GPUs",
    INCIDENTS: "incidents",
    RELIABILITY: "reliability",
    ITSELF: "rankpulse itself",
}
_SAME: Final = "${__url_time_range}&${datasource:queryparam}&${cluster:queryparam}"  # time, Prometheus, cluster
_BY_LABEL: Final = {"node": ("Open this node", NODE, "node"), "run_uid": ("Open this run", RUN, "run")}


def between(own: str) -> list[dict[str, Any]]:
    """From a board to all others, with time range and variables, and to the list of runbooks."""
    boards = [
        _link(title.capitalize(), f"/d/{uid}", "dashboard", keep=True) for uid, title in BOARDS.items() if uid != own
    ]
    return [*boards, _link("Runbooks", f"{RUNBOOKS}/README.md", "doc", keep=False)]


def runbook(alert: str) -> list[dict[str, Any]]:
    """On a panel: the page of the alert that watches the same."""
    return [_link(alert, f"{RUNBOOKS}/{alert}.md", "doc", keep=False)] if alert else []


def cell(label: str) -> str:
    """From a cell of a table that holds a node or run."""
    _, uid, variable = _BY_LABEL[label]
    return f"/d/{uid}?{_SAME}&var-{variable}=${{__value.raw}}"


def of_series(legends: Iterable[str]) -> list[dict[str, Any]]:
    """From a series that is named by its node or run."""
    told = " ".join(legends)
    return [
        {"title": title, "url": f"/d/{uid}?{_SAME}&var-{variable}=${{__field.labels.{label}}}", "targetBlank": False}
        for label, (title, uid, variable) in _BY_LABEL.items()
        if f"{{{{{label}}}}}" in told
    ]


def _link(title: str, url: str, icon: str, *, keep: bool) -> dict[str, Any]:
    return {
        "asDropdown": False,
        "icon": icon,
        "includeVars": keep,
        "keepTime": keep,
        "tags": [],
        "targetBlank": not keep,
        "title": title,
        "tooltip": "",
        "type": "link",
        "url": url,
    }
