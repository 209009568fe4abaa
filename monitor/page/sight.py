"""The head of the page: how things stand in one line, and whether this monitor can be believed. Pure."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from rankpulse.core import node_standing as ns
from rankpulse.core import todo
from rankpulse.core.glance import Glance
from rankpulse.monitor.page.about import About
from rankpulse.monitor.page.html import Child, Html, el
from rankpulse.monitor.page.incidents import LEVELS, NEEDS, ordered, urgent
from rankpulse.monitor.page.words import many, mark, sign, when

LATE_S: Final = 1.0  # a loop that turns so late is told of
_NOT_WELL: Final = (ns.LOST, ns.BROKEN, ns.REFUSED, ns.SUSPECTED, ns.LATE, ns.SICK)


class Line(NamedTuple):
    """`level`: bad | doubt | fine."""

    level: str
    name: str
    says: Child


def blind(told: Glance, about: About) -> str:
    """Why this monitor cannot be believed; "" while it can."""
    return about.trouble or told.blind


def verdict(told: Glance, about: About, *, title: bool = True) -> Html:
    """What a person reads from across the room, the worst first. `title`: nothing else is the title of the page."""
    level, words, more = _verdict(told, about)
    shape = {"bad": ("✕", "trouble"), "doubt": ("?", "in doubt"), "fine": ("■", "all well")}[level]
    return el(
        "div",
        el("h1" if title else "p", sign(shape[0], level, shape[1]), " ", words, class_="headline"),
        el("p", more, class_="under"),
        [el("p", sign("?", "doubt", "mind"), " ", note, class_="note") for note in notes(told, about)],
        id="verdict", class_=f"verdict {level}", data_title=_title(level, told),
    )  # fmt: skip


def cannot() -> Html:
    """In place of the verdict where nothing can be said."""
    words = " This page cannot be made: a bug in rankpulse. What is below is old"
    head = el("p", sign("✕", "bad", "trouble"), words, class_="headline")
    under = el("p", "The monitor's log tells it. Look at ", el("code", "rankpulse status"), " or at another monitor")
    return el("div", head, under, id="verdict", class_="verdict bad")


def notes(told: Glance, about: About) -> Iterator[Child]:
    """What a reader must not overlook, whatever else is so."""
    if not about.leads:
        yield ["STANDBY: this monitor decides nothing", _leader(told)]
    if not told.armed:
        yield "OBSERVES ONLY: rankpulse orders no restart in this cluster until it is armed"
    if told.breaker is not None and blind(told, about):
        yield "THE BREAKER IS OPEN: nothing is ordered"


def _leader(told: Glance) -> Child:
    if told.leader is None:
        return "; nobody is known to lead"
    there = told.leader.monitor
    page: Child = el("a", there, href=told.leader.url) if _is_url(told.leader.url) else there
    return ["; ", page, " leads"]


def _title(level: str, told: Glance) -> str:
    count = f"({len(told.open)}) " if told.open else ""
    return f"{ {'bad': '✕ ', 'doubt': '? ', 'fine': ''}[level] }{count}{told.cluster}: rankpulse"


def _verdict(told: Glance, about: About) -> tuple[str, str, Child]:
    why = blind(told, about)
    if why:
        return "bad", "BLIND: this monitor concludes nothing", f"{why}. What is below may be old"
    nodes = list(told.nodes())
    if told.breaker is not None:
        return "bad", "The breaker is open: nothing is ordered", told.breaker.reason
    if told.open:
        return _worst(told)
    unwell = sum(node.state in _NOT_WELL for node in nodes)
    if unwell:
        return "doubt", f"{many(unwell, 'node')} not well, no incident open", _fleet(told, nodes)
    if not nodes:
        return "doubt", "No node is known", "no agent has written a beat into this cluster's store yet"
    return "fine", "Nothing is wrong that this monitor can see", _fleet(told, nodes)


def _worst(told: Glance) -> tuple[str, str, Child]:
    """The incident that needs somebody most, what is being done about it, and how many others there are."""
    first, *rest = ordered(told)
    level = LEVELS[urgent(first)] if urgent(first) < 2 else "doubt"
    words = NEEDS[urgent(first)][1]
    step = next(iter(todo.todo(first, told.findings.get(first.id)))).removeprefix("nothing yet: ")
    others = f" And {many(len(rest), 'more incident')}." if rest else ""
    return (
        level,
        first.summary or first.klass,
        [el("b", f"{words}: "), f"{step}.", others],
    )


def _fleet(told: Glance, nodes: list[ns.Standing]) -> str:
    going = [run for run in told.runs.values() if run["outcome"] == "running"]
    ranks = sum(int(run["world_size"] or 0) for run in going)
    return f"{many(len(nodes), 'node')}, {many(len(going), 'run')}, {many(ranks, 'rank')}"


def sight(told: Glance, about: About) -> Html:
    """Its own sight, line by line. What is wrong stands out; what is well stays quiet."""
    rows = [
        el("div", el("dt", line.name), el("dd", _mark(line.level), " ", line.says), class_=line.level)
        for line in lines(told, about)
    ]
    return el("section", el("h2", "This monitor's own sight"), el("dl", rows, class_="facts"), id="sight")


def _mark(level: str) -> Html | None:
    return None if level == "fine" else sign("✕" if level == "bad" else "?", level, "not well")


def lines(told: Glance, about: About) -> Iterator[Line]:
    yield _role(told, about)
    yield _acts(told)
    why = blind(told, about)
    yield Line("bad", "sees", f"NO: {why}") if why else Line("fine", "sees", "yes")
    yield _store(told, about)
    yield (
        Line("bad", "breaker", ["open since ", when(told.breaker.at), f": {told.breaker.reason}"])
        if (told.breaker is not None)
        else Line("fine", "breaker", "closed")
    )
    yield _heard(told)
    yield from _sources(told)
    yield from _held(told)
    yield from _webhooks(told)
    if about.lag_s > LATE_S:
        yield Line("doubt", "its loop", "turns late: this machine is overloaded")
    if told.refused:
        yield Line("doubt", "records", f"{many(told.refused, 'record')} of the store could not be read")


def _role(told: Glance, about: About) -> Line:
    if about.leads:
        return Line("fine", "role", f"{about.monitor} leads, epoch {told.epoch}")
    if told.leader is None:
        return Line("bad", "role", f"{about.monitor} does not lead, and nobody is known to lead")
    return Line("doubt", "role", [f"{about.monitor} is a standby and decides nothing", _leader(told)])


def _is_url(url: str) -> bool:
    """A record names it: only what leads to another page is made a link."""
    return url.startswith(("http://", "https://"))


def _acts(told: Glance) -> Line:
    if told.arm is not None and told.arm.armed:
        return Line("fine", "acts", ["armed by ", f"{told.arm.author}, ", when(told.arm.at), f": {told.arm.reason}"])
    by = f" (by {told.arm.author}: {told.arm.reason})" if told.arm is not None else ""
    arm = el("code", "rankpulse arm --reason '…'")
    return Line("doubt", "acts", ["observes only, no restart is ordered", by, "; ", arm])


def _store(told: Glance, about: About) -> Line:
    version = f"etcd {about.store_version}" if about.store_version else "the store"
    if about.alarms:
        return Line("bad", "store", f"{version}, ALARM {', '.join(about.alarms)}")
    if about.store_error:
        return Line("bad", "store", f"{version} does not answer: {about.store_error}")
    if told.echo_s is None:
        return Line("doubt", "store", f"{version}; its own key has not come back yet")
    lag = "at once" if told.echo_s < 2.0 else f"{told.echo_s:.0f} s ago"
    return Line("fine" if told.echo_s < 2.5 else "doubt", "store", f"{version}; its own key came back {lag}")


def _heard(told: Glance) -> Line:
    nodes = list(told.nodes())
    silent = [node for node in nodes if node.state in ns.UNHEARD]
    if not silent:
        return Line("fine", "beats", f"all of {many(len(nodes), 'node')} on time")
    return Line("doubt", "beats", f"{len(silent)} of {many(len(nodes), 'node')} late or silent")


def _sources(told: Glance) -> Iterator[Line]:
    if told.sources:
        shown = [f"{s.name} missing on {many(s.missing, 'node')} ({s.example})" for s in told.sources[:6]]
        yield Line("doubt", "sources", [[el("br") if at else None, text] for at, text in enumerate(shown)])
    elif any(True for _ in told.nodes()):
        yield Line("fine", "sources", "every agent has all that it watches with")


def _held(told: Glance) -> Iterator[Line]:
    for name, word, found in (
        ("cordons", ns.CORDONED, told.cordons),
        ("maintenance", ns.MAINTENANCE, told.maintenance),
    ):
        if found:
            first = ", ".join(sorted(found)[:6]) + (" …" if len(found) > 6 else "")
            yield Line("fine", name, [mark(word), " ", f"{many(len(found), 'node')}: {first}"])


def _webhooks(told: Glance) -> Iterator[Line]:
    for name, target in told.targets.items():
        if target["dead"]:
            yield Line("bad", "webhook", f"{name}: {many(target['dead'], 'event')} given up, nobody was told")
        elif target["waiting"]:
            yield Line("doubt", "webhook", f"{name}: {many(target['waiting'], 'event')} waiting")
