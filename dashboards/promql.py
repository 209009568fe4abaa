"""Queries in terms of the metrics catalogue: what does not stand there cannot be asked for.

A query is text. `Ask` writes it, with the names that metrics have on the wire; `problems` reads any query back and says
what it names that nobody exports. Both know the catalogue alone.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from rankpulse.core.catalogue import AGENT, GPU, HOST, MONITOR, SHARED, Metric

TARGET_LABELS: Final = frozenset({"cluster", "instance", "job"})  # given by the scrape configuration
OWN: Final[Mapping[str, frozenset[str]]] = {  # what Prometheus itself knows
    "up": frozenset(),
    "ALERTS": frozenset({"alertname", "alertstate", "severity"}),
}
CATALOGUE: Final = {metric.name: metric for metric in (*SHARED, *AGENT, *GPU, *HOST, *MONITOR)}
_SUFFIXES: Final = {"gauge": ("",), "counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}
_GROUPING: Final = ("by", "without", "on", "ignoring", "group_left", "group_right")
_KEYWORDS: Final = frozenset({*_GROUPING, "and", "or", "unless", "bool", "offset", "inf", "nan"})
_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*"')
_RANGE: Final = re.compile(r"\[[^\]]*\]")
_GROUP: Final = re.compile(rf"\b({'|'.join(_GROUPING)})\s*\(([^)]*)\)")
_SELECTOR: Final = re.compile(r"([A-Za-z_:][\w:]*)\s*\{([^}]*)\}")
_NAME: Final = re.compile(r"(?<![\w:.$])([A-Za-z_:][\w:]*)(\s*\()?")


class Unknown(ValueError):
    """A query asks for something that is not in the catalogue."""


def wire_names(metric: Metric) -> tuple[str, ...]:
    """The names under which prometheus-client exposes the metric."""
    return tuple(metric.name + suffix for suffix in _SUFFIXES[metric.type])


WIRE: Final = {name: metric for metric in CATALOGUE.values() for name in wire_names(metric)}


class Ask:
    """Writes queries within a scope: matchers that every selector gets, such as the dashboard's variables."""

    def __init__(self, *scope: str, fleet: "Ask | None" = None) -> None:
        self._scope, self._fleet = scope, fleet or self

    def within(self, *scope: str) -> "Ask":
        """A narrower scope, such as one run; who leads is still asked in this one."""
        return Ask(*self._scope, *scope, fleet=self)

    def __call__(self, name: str, *matchers: str, suffix: str = "") -> str:
        """The selector of a metric by its catalogue name; `suffix` chooses a histogram's part. Raises `Unknown`."""
        metric = CATALOGUE.get(name)
        if metric is None:
            raise Unknown(f"{name} is not in the catalogue of metrics")
        wire = metric.name + (suffix or _SUFFIXES[metric.type][0])
        every = ", ".join((*self._scope, *matchers))
        return f"{wire}{{{every}}}" if every else wire

    def led(self, name: str, *matchers: str) -> str:
        """What the leading monitor says: every monitor exports its own view, and only the leader's is acted upon."""
        return f"({self(name, *matchers)} and on (cluster, instance) {self._fleet('rankpulse_monitor_leader')} == 1)"

    def leader(self, name: str, by: str, *matchers: str) -> str:
        """`led`, and the monitor's own labels gone: one series for each value of the labels `by`."""
        return f"max by ({by}) {self.led(name, *matchers)}"


def or_zero(query: str) -> str:
    """`query`, or 0 where it finds nothing: only where nothing found does mean none."""
    return f"{query} or on () vector(0)"


def names_of(query: str) -> set[str]:
    """The metrics that a query asks for, as named on the wire."""
    bare = _GROUP.sub("", _bare(query))
    bare = _SELECTOR.sub(lambda found: found[1], bare)
    return {name for name, call in _NAME.findall(bare) if not call and name not in _KEYWORDS}


def problems(query: str, recorded: Mapping[str, Iterable[str]] | None = None) -> list[str]:
    """What the query names that nobody exports. `recorded`: labels of the series that recording rules make."""
    known = {name: frozenset(metric.labels) | _le(name, metric) for name, metric in WIRE.items()}
    known |= {**OWN, **{name: frozenset(labels) for name, labels in (recorded or {}).items()}}
    asked = names_of(query)
    found = [f"{name}: nobody exports it" for name in sorted(asked - known.keys())]
    bare = _bare(query)
    for name, inside in _SELECTOR.findall(bare):
        labels = set(re.findall(r"([A-Za-z_]\w*)\s*(?:=~|!~|!=|=)", inside))
        found += [f"{name} has no label {one}" for one in sorted(labels - known.get(name, frozenset()) - TARGET_LABELS)]
    available = TARGET_LABELS.union(*(known.get(name, frozenset()) for name in asked))
    for keyword, inside in _GROUP.findall(bare):
        labels = {label.strip() for label in inside.split(",")} - {""}
        found += [f"{keyword} ({one}): no metric here has it" for one in sorted(labels - available)]
    return found


def _le(name: str, metric: Metric) -> frozenset[str]:
    return frozenset({"le"}) if metric.type == "histogram" and name.endswith("_bucket") else frozenset()


def _bare(query: str) -> str:
    """Without the texts in quotes and the ranges in brackets."""
    return _RANGE.sub("", _STRING.sub('""', query))
