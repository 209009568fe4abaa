"""Folding what nodes tell of checksums: the last few steps of each round, and the last at which all agreed.

An observation stays in the store as long as its step is one of these, so that a new leader believes the same.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from rankpulse.core import checksums
from rankpulse.core.checksums import Row, Verdict
from rankpulse.core.records import Observation
from rankpulse.core.slot_checks import GROUPS_MAX, Check

STEPS_KEPT: Final = 6  # beside the last at which all agreed and the first at which they did not
SETTLE_S: Final = 10.0  # from the first word of a step until nobody else is waited for
KEYS_MAX: Final = 32  # observations of one node about one step: whoever goes back and forth fills no store


class _Group:
    """Who holds the same, as far as was told."""

    def __init__(self) -> None:
        self.ranks: dict[int, Check] = {}
        self.digests: Counter[int] = Counter()
        self.replicas = 0

    def put(self, rank: int, check: Check) -> None:
        before = self.ranks.get(rank)
        if before is not None:
            self.digests[before.digest] -= 1
            if not self.digests[before.digest]:
                del self.digests[before.digest]
        self.ranks[rank] = check
        self.digests[check.digest] += 1
        self.replicas = max(self.replicas, check.replicas)

    @property
    def whole(self) -> bool:
        return 0 < self.replicas <= len(self.ranks)

    @property
    def differs(self) -> bool:
        return len(self.digests) > 1


class _Step:
    """What was told of one step. What it comes to is kept up row by row: of thousands of nodes each tells."""

    def __init__(self, now: float) -> None:
        self.since = now  # observer's seconds when it was first told of
        self.groups: dict[int, _Group] = {}
        self.keys: dict[str, str] = {}  # of observations, with the node
        self._told: dict[str, list[str]] = {}  # the same by node
        self._of_rank: Counter[int] = Counter()  # in how many groups a rank is
        self._whole = self._differing = 0  # groups

    @property
    def differs(self) -> bool:
        return self._differing > 0

    @property
    def whole(self) -> bool:
        """Whether every replica of every group was told of."""
        return 0 < self._whole == len(self.groups)

    @property
    def agrees(self) -> bool:
        return self.whole and not self.differs

    @property
    def ranks(self) -> int:
        """How many have told."""
        return len(self._of_rank)

    @property
    def checks(self) -> dict[int, dict[int, Check]]:
        return {number: group.ranks for number, group in self.groups.items()}

    def put(self, row: Row) -> None:
        """A newer word of a rank replaces the older. One that is in more groups than a slot has room for is not
        believed."""
        group = self.groups.get(row.check.group)
        if group is None or row.rank not in group.ranks:
            if self._of_rank[row.rank] >= GROUPS_MAX:
                return
            self._of_rank[row.rank] += 1
        if group is None:
            group = self.groups[row.check.group] = _Group()
        whole, differs = group.whole, group.differs
        group.put(row.rank, row.check)
        self._whole += group.whole - whole
        self._differing += group.differs - differs

    def told(self, key: str, node: str) -> str:
        """An observation tells of it. The key of one that need not stay for that, or ""."""
        self.keys[key] = node
        mine = self._told.setdefault(node, [])
        mine.append(key)
        gone = mine[0] if len(mine) > KEYS_MAX else ""
        self.forget(gone)
        return gone

    def forget(self, key: str) -> None:
        node = self.keys.pop(key, None)
        if node is not None:
            self._told[node].remove(key)


class _Round:
    """What was told of one round."""

    def __init__(self) -> None:
        self.steps: dict[int, _Step] = {}

    def whole(self) -> list[int]:
        """The steps of which all have told, as far as is known: groups that lie on other nodes are told of later."""
        most = max((step.ranks for step in self.steps.values()), default=0)
        return [number for number, step in self.steps.items() if step.whole and step.ranks == most]

    def trimmed(self) -> list[str]:
        """Forget what decides nothing any more; the keys of the observations that told it."""
        bad = min((number for number, step in self.steps.items() if step.differs), default=None)
        agreed = [n for n in self.whole() if self.steps[n].agrees and (bad is None or n < bad)]
        kept = {*sorted(self.steps)[-STEPS_KEPT:], max(agreed, default=-1), -1 if bad is None else bad}
        if bad is None and agreed:
            kept = {number for number in kept if number >= max(agreed)}
        gone = [number for number in self.steps if number not in kept]
        return [key for number in gone for key in self.steps.pop(number).keys]


class ChecksumsFolder:
    """By run and round. `take_done` hands out the observations that may be erased."""

    def __init__(self) -> None:
        self._of: dict[tuple[str, int], _Round] = {}
        self._done: list[str] = []
        self.changes = 0  # so far: whoever looks seldom sees by it whether anything is new

    def heard(self, run_uid: str, round_: int, key: str, obs: Observation, now: float) -> str:
        """An observation of a process of this run and round; why it is refused, or ""."""
        told = checksums.understood(obs.detail)
        if told is None:
            self._done.append(key)
            return "it makes no sense"
        held = self._of.setdefault((run_uid, round_), _Round())
        step = held.steps.setdefault(told.step, _Step(now))
        if key in step.keys:
            return ""
        self.changes += 1
        for row in told.rows:
            step.put(row)
        spare = step.told(key, obs.node)
        self._done += [spare] if spare else []
        self._done += held.trimmed()
        return ""

    def verdict(self, run_uid: str, round_: int, now: float) -> Verdict | None:
        held = self._of.get((run_uid, round_))
        if held is None or not any(step.differs for step in held.steps.values()):
            return None
        settled = [number for number, step in held.steps.items() if now - step.since >= SETTLE_S]
        return checksums.judged({number: step.checks for number, step in held.steps.items()}, settled=settled)

    def well_again(self, run_uid: str, round_: int) -> bool:
        """Whether the newest step that all have told of is one at which all agree."""
        held = self._of.get((run_uid, round_))
        whole = held.whole() if held is not None else []
        return held is not None and bool(whole) and held.steps[max(whole)].agrees

    def since(self, run_uid: str, round_: int, step: int) -> float:
        """When a step was first told of."""
        return self._of[run_uid, round_].steps[step].since

    def evidence(self, run_uid: str, round_: int, step: int) -> tuple[str, ...]:
        """Keys of the observations of a step."""
        held = self._of.get((run_uid, round_))
        return tuple(held.steps[step].keys) if held is not None and step in held.steps else ()

    def rounds(self) -> Iterator[tuple[str, int]]:
        """Those of which anything is told."""
        return iter(list(self._of))

    def moved(self, old: str, new: str) -> None:
        """The run called `old` turned out to be part of another."""
        for uid, number in self.rounds():
            if uid == old:
                self._joined(self._of.pop((uid, number)), self._of.setdefault((new, number), _Round()))

    def _joined(self, one: _Round, other: _Round) -> None:
        for number, step in one.steps.items():
            into = other.steps.setdefault(number, _Step(step.since))
            for group, has in step.groups.items():
                for rank, check in has.ranks.items():
                    into.put(Row(rank, Check(group, check.replicas, check.digest)))
            for key, node in step.keys.items():
                into.told(key, node)

    def gone(self, key: str) -> None:
        """An observation was erased. What it told is believed on: it was true of that step."""
        for held in self._of.values():
            for step in held.steps.values():
                step.forget(key)

    def drop(self, run_uid: str, round_: int) -> None:
        """The round is over."""
        held = self._of.pop((run_uid, round_), None)
        self._done += [key for step in held.steps.values() for key in step.keys] if held is not None else []

    def relisted(self) -> None:
        """The listing tells it again."""
        self._of.clear()
        self._done.clear()

    def take_done(self) -> list[str]:
        done, self._done = self._done, []
        return done
