"""Metrics of incidents: how many, of what class, how far their action has come, how long they took."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec

from rankpulse.core import incidents, ladder, last_words
from rankpulse.core.announcing import PAGING
from rankpulse.core.records import Member
from rankpulse.monitor.samples import CLASSES, Sample, Source, Traced, View, counted
from rankpulse.monitor.tallies import SLOW_S, Histogram, of_incident
from rankpulse.monitor.vitals import Vitals

NAMED_MAX: Final = 50  # open incidents with a series of their own, the newest
OUTCOMES: Final = (incidents.RECOVERED, incidents.PASSED, incidents.RUN_ENDED, incidents.SUPERSEDED)
ORDERS: Final = ("restart", "kill", "release", "collect")
NO_RUNG: Final = "none"


def is_open(incident: Mapping[str, Any]) -> bool:
    return bool(incident["state"] == incidents.OPEN)


def _by_class(wanted: Callable[[Mapping[str, Any]], bool]) -> Source:
    def samples(view: View, vitals: Vitals) -> Iterator[Sample]:
        count = Counter(dict.fromkeys(CLASSES, 0))
        count.update(incident["klass"] for incident in view["incidents"] if wanted(incident))
        yield from (((klass,), float(n)) for klass, n in count.items())

    return samples


def _pages(incident: Mapping[str, Any]) -> bool:
    """Nobody but a person will end it: see `announcing.calls`, of which this is the same for a row of the snapshot."""
    return is_open(incident) and (incident["action"] in PAGING or incident["rung"] == ladder.PAGE)


def _opened(view: View, vitals: Vitals) -> Iterator[Sample]:
    for klass, count in {**dict.fromkeys(CLASSES, 0), **vitals.incidents}.items():
        last = vitals.last.get(klass)
        yield (klass,), Traced(float(count), of_incident(last, 1.0) if last else None)


def _closed(view: View, vitals: Vitals) -> Iterator[Sample]:
    zeros = dict.fromkeys(((klass, outcome) for klass in CLASSES for outcome in OUTCOMES), 0)
    yield from ((labels, float(n)) for labels, n in {**zeros, **vitals.closed}.items())


def _on_rung(view: View, vitals: Vitals) -> Iterator[Sample]:
    count = Counter(dict.fromkeys((rung or NO_RUNG for rung in ladder.RUNGS), 0))
    count.update(incident["rung"] or NO_RUNG for incident in view["incidents"] if is_open(incident))
    yield from (((rung,), float(n)) for rung, n in count.items())


def _named(view: View, vitals: Vitals) -> Iterator[Sample]:
    """The snapshot lists them in order of opening."""
    for one in [incident for incident in view["incidents"] if is_open(incident)][-NAMED_MAX:]:
        node = msgspec.convert(one["culprits"][0], Member).node if one["culprits"] else next(iter(one["nodes"]), "")
        labels = (one["id"], one["klass"], one["run_uid"], node, one["action"], one["rung"] or NO_RUNG)
        yield labels, float(one["opened_at"])


def _took(read: Callable[[Vitals], Mapping[str, Histogram]]) -> Source:
    """Of every class from zero: what is born with its first incident has not grown, for Prometheus."""

    def samples(view: View, vitals: Vitals) -> Iterator[Sample]:
        yield from (((klass,), one) for klass, one in {**_NONE_YET, **read(vitals)}.items())

    return samples


_NONE_YET: Final = dict.fromkeys(CLASSES, Histogram(SLOW_S))

SOURCES: Final[Mapping[str, Source]] = {
    "rankpulse_incidents_open": _by_class(is_open),
    "rankpulse_incidents_paging": _by_class(_pages),
    "rankpulse_incidents": _opened,
    "rankpulse_incidents_closed": _closed,
    "rankpulse_incidents_on_rung": _on_rung,
    "rankpulse_incident_opened_timestamp_seconds": _named,
    "rankpulse_orders": counted(lambda vitals: vitals.orders, ORDERS),
    "rankpulse_last_words": counted(lambda vitals: vitals.last_words, (last_words.ASKED, *last_words.OUTCOMES)),
    "rankpulse_time_to_detect_seconds": _took(lambda vitals: vitals.detect_s),
    "rankpulse_time_to_recover_seconds": _took(lambda vitals: vitals.recover_s),
}
