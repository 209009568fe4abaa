"""The index of the runbooks: one page for each alert, written by hand; this list of them is made from the rules."""

import re
from collections.abc import Iterable
from typing import Final

from rankpulse.dashboards.alerting import RUNBOOKS, Alert

INDEX: Final = f"{RUNBOOKS}/README.md"
HEADINGS: Final = ("What it means", "What to look at", "What to do", "How to undo")
_HEAD: Final = """# Runbooks

One page for each alert, for somebody who was just woken: what it means, what to look at, what to do, how to undo it.
`critical`: wake somebody. `warning`: on this working day. `info`: when you come across it. `none`: it fires always.

Made by `make dashboards` from the rules: change it there.
"""
_TITLES: Final = {
    "rankpulse-watch": "Who watches",
    "rankpulse-nodes": "Nodes and agents",
    "rankpulse-gpus": "GPUs",
    "rankpulse-webhooks": "Webhooks",
    "rankpulse-jobs": "Jobs",
    "rankpulse-checkpoints": "Checkpoints",
    "rankpulse-store": "The store",
    "rankpulse-ledger": "The ledger",
    "rankpulse-reliability": "Reliability",
}


def when(alert: Alert) -> str:
    """How urgent it is, and how long the matter must last: as index and page say it."""
    return f"{alert.severity}, {'at once' if alert.wait == '0m' else f'after {alert.wait}'}"


def index(groups: Iterable[tuple[str, Iterable[Alert]]]) -> str:
    """The page that lists all others, by group."""
    return _HEAD + "".join(_section(_TITLES[name], alerts) for name, alerts in groups)


def _section(title: str, alerts: Iterable[Alert]) -> str:
    rows = "".join(f"| [{one.name}]({one.name}.md) | {when(one)} | {_meaning(one)} |\n" for one in alerts)
    return f"\n## {title}\n\n| alert | when | it says |\n|---|---|---|\n{rows}"


def _meaning(alert: Alert) -> str:
    """The description, with a gap where the alert itself puts something in."""
    return re.sub(r"{{.*?}}", "…", alert.description)
