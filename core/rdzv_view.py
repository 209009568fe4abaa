"""What one agent has seen of the rendezvous, indexed by run, so that a decision costs what its own run costs."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from rankpulse.core import records as r
from rankpulse.core.keys import Keys

T = TypeVar("T", bound=r.Record)
Torchrun = tuple[str, str]  # node, launcher


class Seen(NamedTuple, Generic[T]):
    """A record, when this agent first saw it as it is (own monotonic seconds), and its revision."""

    record: T
    at: float
    modified: int


@dataclass
class Run:
    """All of one launch. `waiting`, `left` and `broken` follow from the rest and are kept with every change, so that
    a run of thousands of nodes is not searched at each."""

    uid: str
    launch: Seen[r.Launch] | None = None
    joiners: dict[Torchrun, Seen[r.Joiner]] = field(default_factory=dict)
    waiting: dict[Torchrun, Seen[r.Joiner]] = field(default_factory=dict)
    left: dict[Torchrun, Seen[r.Joiner]] = field(default_factory=dict)
    meetings: dict[int, Seen[r.Meeting]] = field(default_factory=dict)
    gates: dict[int, Seen[r.Gate]] = field(default_factory=dict)
    orders: dict[int, Seen[r.Order]] = field(default_factory=dict)  # restart orders
    last: int = 0  # the newest round, 0: none yet
    met: dict[r.Place, int] = field(default_factory=dict)  # which round used up which join
    broken: dict[Torchrun, float] = field(default_factory=dict)  # members that are out of the newest round, since when
    _members: set[Torchrun] = field(default_factory=set)

    @property
    def unseen(self) -> int:
        """The newest round, when its meeting has not been seen; 0 when all is known. Keys may be read one by one."""
        newest = self.launch.record.round if self.launch else 0
        return newest if newest > self.last else 0

    @property
    def taking_part(self) -> dict[Torchrun, float]:
        """Who has not left, and since when that is known; also members whose joiner was not seen yet."""
        there = {who: seen.at for who, seen in self.joiners.items() if who not in self.left}
        unseen = [who for who in self._members if who not in self.joiners]
        return there | dict.fromkeys(unseen, self.meetings[self.last].at if unseen else 0.0)

    @property
    def lost(self) -> dict[str, float]:
        """Nodes that the next round forms without, and since when that is known: the policy's word on it, and until
        that comes the order that ended the newest round. They are not refused: the round after it is theirs again."""
        gate, order = self.gates.get(self.last + 1), self.orders.get(self.last)
        out = dict.fromkeys(order.record.without, order.at) if order is not None else {}
        return out if gate is None else {node: out.get(node, gate.at) for node in gate.record.lost}

    @property
    def members(self) -> tuple[r.Place, ...]:
        """Of the newest round, in order of group rank."""
        return self.meetings[self.last].record.places if self.last else ()

    def sort_in(self, who: Torchrun) -> None:
        """What follows from the records follows what is known of this torchrun."""
        self.waiting.pop(who, None)
        self.left.pop(who, None)
        self.broken.pop(who, None)
        seen = self.joiners.get(who)
        if seen is not None and seen.record.left:
            self.left[who] = seen
        elif seen is not None and r.Place(*who, seen.record.join) not in self.met:
            self.waiting[who] = seen
        elif seen is not None:
            return
        if who in self._members:
            self.broken[who] = seen.at if seen else self.meetings[self.last].at

    def recount(self) -> None:
        """After a change of meetings."""
        self.last = max(self.meetings, default=0)
        self.met = {place: n for n in sorted(self.meetings) for place in self.meetings[n].record.places}
        self._members = {(place.node, place.launcher) for place in self.members}
        self.broken.clear()
        for who in self.joiners.keys() | self._members:
            self.sort_in(who)

    def is_empty(self) -> bool:
        return not (self.launch or self.joiners or self.meetings or self.gates or self.orders)


class View:
    """What one agent has seen of `rdzv/`, `gates/`, `cordons/` and restart orders. Folding is idempotent.

    Absence needs evidence: a presence that was seen to end, or that a listing did not hold, and it counts from the
    last listing at the earliest, because after an outage of the store every agent needs a moment to come back.
    """

    def __init__(self, keys: Keys) -> None:
        self.keys = keys
        self.runs: dict[str, Run] = {}
        self.labels: dict[str, Seen[r.Label]] = {}  # by the label's key
        self.cordons: dict[str, Seen[r.Cordon]] = {}
        self.present: set[str] = set()  # nodes whose agent is there
        self.unreadable: dict[str, str] = {}  # key -> why
        self._modified: dict[str, int] = {}
        self._records: dict[str, r.Record] = {}
        self._by_torchrun: dict[Torchrun, set[str]] = {}
        self._gone_at: dict[str, float] = {}
        self._listed_at: float | None = None

    def put(self, key: str, record: r.Record, modified: int, now: float) -> None:
        """A record was seen under its key, last modified at this revision."""
        if self._records.get(key) == record and self._modified[key] == modified:
            return  # listed again; was the store made anew, another record may have the same revision
        self.unreadable.pop(key, None)
        self._modified[key], self._records[key] = modified, record
        self._fold(key, record, modified, now)

    def garbled(self, key: str, reason: str, modified: int) -> None:
        """What lies under this key cannot be read: refused, never executed, and not overwritten silently."""
        self._forget(key)
        self._modified[key] = modified
        self.unreadable[key] = reason
        parsed = self.keys.parse(key)
        if parsed is not None and parsed.kind is r.Cordon:  # somebody wants the node out: that much can be read
            cordon = r.Cordon(node=parsed.names["node"], author="?", reason=f"cannot be read ({reason})", at=0.0)
            self.cordons[cordon.node] = Seen(cordon, -math.inf, modified)
        elif parsed is not None and parsed.kind is r.Presence:  # and here, that an agent lives
            self.present.add(parsed.names["node"])

    def gone(self, key: str, now: float) -> None:
        if key in self._modified:
            self._forget(key)
        node = key.removeprefix(self.keys.rdzv() + "agents/")
        if node != key:
            self._gone_at[node] = now

    def relisted(self, keys: frozenset[str], now: float) -> None:
        """These keys, put again after this call, are all there are."""
        for key in [key for key in self._modified if key not in keys]:
            self.gone(key, now)
        self._listed_at = now

    def modified(self, key: str) -> int:
        """The revision to guard this key with."""
        return self._modified.get(key, 0)

    def guards(self, *keys: str) -> tuple[tuple[str, int], ...]:
        return tuple((key, self.modified(key)) for key in keys)

    def gone_since(self, node: str, known_at: float, here: str) -> float | None:
        """Since when the node's agent is away, as far as the one of `here` can tell; None: it is there. At the
        earliest since `known_at`."""
        if node == here or node in self.present or self._listed_at is None:
            return None
        return max(self._listed_at, self._gone_at.get(node, self._listed_at), known_at)

    def runs_of(self, who: Torchrun) -> Iterator[Run]:
        """The runs that a torchrun has a joiner in."""
        return (self.runs[uid] for uid in sorted(self._by_torchrun.get(who, ())))

    def _run(self, uid: str) -> Run:
        return self.runs.setdefault(uid, Run(uid))

    def _fold(self, key: str, record: r.Record, modified: int, now: float) -> None:
        match record:
            case r.Joiner():
                who = (record.node, record.launcher)
                self._run(record.run_uid).joiners[who] = Seen(record, now, modified)
                self._by_torchrun.setdefault(who, set()).add(record.run_uid)
                self._run(record.run_uid).sort_in(who)
            case r.Meeting():
                self._run(record.run_uid).meetings[record.round] = Seen(record, now, modified)
                self._run(record.run_uid).recount()
            case r.Launch():
                self._run(record.run_uid).launch = Seen(record, now, modified)
            case r.Label():
                self.labels[key] = Seen(record, now, modified)
            case r.Presence():
                self.present.add(record.node)
            case r.Cordon():
                self.cordons[record.node] = Seen(record, now, modified)
            case r.Gate():
                self._run(record.run_uid).gates[record.round] = Seen(record, now, modified)
            case r.Order(kind="restart"):
                self._run(record.run_uid).orders[record.round] = Seen(record, now, modified)

    def _forget(self, key: str) -> None:
        self._modified.pop(key, None)
        self._records.pop(key, None)
        self.unreadable.pop(key, None)
        self.labels.pop(key, None)
        parsed = self.keys.parse(key)
        if parsed is None:
            return
        names = parsed.names
        if parsed.kind is r.Presence:
            self.present.discard(names["node"])
        elif parsed.kind is r.Cordon:
            self.cordons.pop(names["node"], None)
        elif names.get("run_uid") in self.runs:
            self._forget_of_run(self.runs[names["run_uid"]], parsed.kind, names)

    def _forget_of_run(self, run: Run, kind: type[r.Record], names: dict[str, object]) -> None:
        number, who = names.get("round"), (str(names.get("node")), str(names.get("launcher")))
        if kind is r.Launch:
            run.launch = None
        elif kind is r.Joiner:
            run.joiners.pop(who, None)
            run.sort_in(who)
            self._by_torchrun.get(who, set()).discard(run.uid)
            if not self._by_torchrun.get(who):
                self._by_torchrun.pop(who, None)
        elif kind is r.Meeting and isinstance(number, int) and number in run.meetings:
            del run.meetings[number]
            run.recount()
        elif kind is r.Gate and isinstance(number, int):
            run.gates.pop(number, None)
        elif kind is r.Order and isinstance(number, int) and names.get("kind") == "restart":
            run.orders.pop(number, None)
        if run.is_empty():
            del self.runs[run.uid]
