"""What a person needs at one glance: the snapshot without a row per rank, nodes as one word each. Reads only.

It costs as much as there are nodes, and no more for their ranks: the page is made from it while the monitor works.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from rankpulse.core import node_standing as ns
from rankpulse.core.incidents import OPEN
from rankpulse.core.node_standing import Held, Standing, Standings
from rankpulse.core.records import Arm, Breaker, Cordon, DeviceFault, Finding, Incident, Leader, Maintenance
from rankpulse.core.show import run_figures
from rankpulse.core.show_ledger import ledger
from rankpulse.core.show_outbox import outbox
from rankpulse.core.show_silence import actions_stopped

if TYPE_CHECKING:
    from rankpulse.core.engine import Engine

CLOSED_MAX: Final = 12  # incidents that are over, the newest
NO_RACK: Final = ""


class Rack(NamedTuple):
    name: str  # "": not known
    nodes: tuple[Standing, ...]


class Source(NamedTuple):
    """Something that agents watch with, and how many of them lack it."""

    name: str
    missing: int
    example: str  # a node, and why


@dataclass(frozen=True, slots=True)
class Glance:
    """Times are seconds; `now` is the observer's clock, `at` UTC, for people."""

    now: float
    at: float
    cluster: str
    leading: bool
    epoch: int | None
    leader: Leader | None
    arm: Arm | None
    blind: str  # why, "" while it sees
    stopped: str  # why this leader does not act, "" while nothing is in the way
    breaker: Breaker | None  # that is open
    echo_s: float | None  # since its own key came back from the store
    racks: tuple[Rack, ...]
    sources: tuple[Source, ...]
    runs: dict[str, dict[str, Any]]
    unheard: dict[str, int]  # runs that go on -> how many of their nodes are late or silent, where any is
    shares: dict[str, dict[str, Any]]  # of runs that go on: what the ledger says
    open: tuple[Incident, ...]  # the newest first
    closed: tuple[Incident, ...]
    findings: dict[str, Finding]
    cordons: dict[str, Cordon]
    maintenance: dict[str, Maintenance]
    targets: dict[str, dict[str, Any]]
    refused: int  # records that could not be read

    @property
    def armed(self) -> bool:
        return self.arm is not None and self.arm.armed

    def nodes(self) -> Iterator[Standing]:
        return (node for rack in self.racks for node in rack.nodes)


def glance(engine: "Engine", now: float, at: float, standings: Standings) -> Glance:
    """What is believed now. `standings`: of earlier glances, so that what did not change is not worked out again."""
    found = racks(engine, standings)
    folder, sight = engine.folder, engine.sight
    breaker = folder.modes.breaker
    incidents = sorted(engine.book, key=lambda i: (i.opened_at, i.id), reverse=True)
    return Glance(
        now=now,
        at=at,
        cluster=engine.keys.cluster,
        leading=engine.epoch is not None,
        epoch=engine.epoch if engine.epoch is not None else (folder.leader.epoch if folder.leader else None),
        leader=folder.leader,
        arm=folder.modes.arm,
        blind=sight.why_blind(now),
        stopped=actions_stopped(engine, now),
        breaker=breaker if breaker is not None and breaker.open else None,
        echo_s=max(now - sight.canary_at, 0.0) if sight.canary_at > float("-inf") else None,
        racks=found,
        sources=tuple(_sources(found)),
        runs={uid: run_figures(engine, run, now) for uid, run in sorted(folder.fleet.runs.items()) if run.rounds},
        unheard=_unheard(engine, found),
        shares=ledger(engine)["runs"],
        open=tuple(i for i in incidents if i.state == OPEN),
        closed=tuple(i for i in incidents if i.state != OPEN)[:CLOSED_MAX],
        findings=folder.findings,
        cordons=dict(folder.joint.cordons),
        maintenance=dict(folder.modes.maintenance),
        targets=outbox(engine, now)["targets"],
        refused=folder.refused,
    )


def racks(engine: "Engine", standings: Standings) -> tuple[Rack, ...]:
    """Every node in its rack, both by name; nodes that nobody heard of are there if something was decided on them."""
    by_rack: defaultdict[str, list[Standing]] = defaultdict(list)
    nodes, held, broken = engine.folder.fleet.nodes, _held(engine), _broken(engine)
    health = engine.folder.health.records
    for name, node in sorted(nodes.items()):
        one = standings.of(node, health.get(name), broken.get(name, ()), held.get(name, ns.NOT_HELD))
        by_rack[node.state.rack if node.state is not None else NO_RACK].append(one)
    standings.keep(nodes.keys())
    for name in sorted(held.keys() - nodes.keys()):
        by_rack[NO_RACK].append(ns.absent(name, held[name]))
    return tuple(Rack(name, tuple(found)) for name, found in sorted(by_rack.items()))


def _held(engine: "Engine") -> dict[str, Held]:
    """By node; most are in nobody's hands and not here."""
    folder = engine.folder
    cordons, maintenance = folder.joint.cordons, folder.modes.maintenance
    waiting = {one.node for run in folder.fleet.runs.values() if run.joint is not None for one in run.joint.waiting()}
    names = {*cordons, *maintenance, *waiting}
    return {name: Held(cordons.get(name), maintenance.get(name), name in waiting) for name in names}


def _broken(engine: "Engine") -> dict[str, list[DeviceFault]]:
    found: defaultdict[str, list[DeviceFault]] = defaultdict(list)
    for where, fault in engine.folder.health.causes.items():
        found[where.node].append(fault)
    return found


def _unheard(engine: "Engine", found: tuple[Rack, ...]) -> dict[str, int]:
    silent = {node.node for rack in found for node in rack.nodes if node.state in ns.UNHEARD}
    if not silent:
        return {}
    going = {uid: run for uid, run in engine.folder.fleet.runs.items() if run.rounds and run.open()}
    counts = {uid: len(silent.intersection(run.current.nodes())) for uid, run in going.items()}
    return {uid: count for uid, count in counts.items() if count}


def _sources(found: tuple[Rack, ...]) -> Iterator[Source]:
    """What some agents cannot watch with, what is missing most often first."""
    missing: Counter[str] = Counter()
    examples: dict[str, str] = {}
    for node in [node for rack in found for node in rack.nodes if node.lacks]:
        for source, why in node.lacks:
            missing[source] += 1
            examples.setdefault(source, f"{node.node}: {why}")
    return (Source(source, count, examples[source]) for source, count in missing.most_common())
