"""Folding what nodes tell of numbers that are not finite: the newest word of each, kept while its row lasts.

Such an observation stays in the store as long as it holds, so that a new leader believes the same. It is erased when
the node says something newer, and when its round is over.
"""

from collections.abc import Container, Iterator
from typing import NamedTuple

from rankpulse.core import numbers
from rankpulse.core.numbers import Told
from rankpulse.core.records import Observation


class News(NamedTuple):
    key: str
    order: tuple[int, int]  # of the observations of a node
    node: str
    told: Told
    since: float  # observer's seconds when the row was first heard of


class NumbersFolder:
    """By run and round. `take_done` hands out the observations that may be erased."""

    def __init__(self) -> None:
        self._of: dict[tuple[str, int], dict[tuple[str, str], News]] = {}  # by node and launcher
        self._done: list[str] = []
        self.changes = 0  # so far: whoever looks seldom sees by it whether anything is new

    def of(self, run_uid: str, round_: int, late: Container[str] = ()) -> Told | None:
        """What the nodes of a round tell together; None where none does but such as are `late` themselves."""
        heard = [one.told for one in self._at(run_uid, round_) if one.node not in late]
        return numbers.joined(heard) if heard else None

    def since(self, run_uid: str, round_: int) -> float:
        """When the first of its nodes was heard."""
        return min(one.since for one in self._at(run_uid, round_))

    def evidence(self, run_uid: str, round_: int) -> tuple[str, ...]:
        """Keys of the observations that stand, those of the oldest row first."""
        return tuple(one.key for one in sorted(self._at(run_uid, round_), key=lambda one: (one.told.first, one.node)))

    def rounds(self) -> Iterator[tuple[str, int]]:
        """Those of which anything is told."""
        return iter(list(self._of))

    def heard(self, run_uid: str, round_: int, key: str, obs: Observation, now: float) -> str:
        """An observation of a process of this run and round; why it is refused, or ""."""
        self.changes += 1
        told = numbers.understood(obs.detail)
        where = (obs.node, obs.run.launcher if obs.run is not None else "")
        heard = self._of.setdefault((run_uid, round_), {})
        before, order = heard.get(where), (obs.inc, obs.seq)
        if told is None or (before is not None and order < before.order):
            self._done.append(key)
        elif before is None or key != before.key:
            self._done += [before.key] if before is not None else []
            if told.bad:
                heard[where] = News(key, order, obs.node, told, before.since if before is not None else now)
            else:
                heard.pop(where, None)
                self._done.append(key)
        if not heard:
            del self._of[run_uid, round_]
        return "" if told is not None else "it makes no sense"

    def moved(self, old: str, new: str) -> None:
        """The run called `old` turned out to be part of another."""
        for uid, number in self.rounds():
            if uid == old:
                self._of.setdefault((new, number), {}).update(self._of.pop((uid, number)))

    def gone(self, key: str) -> None:
        """An observation was erased."""
        for place in self.rounds():
            for where, one in list(self._of[place].items()):
                if one.key == key:
                    del self._of[place][where]
            if not self._of[place]:
                del self._of[place]

    def drop(self, run_uid: str, round_: int) -> None:
        """The round is over."""
        self._done += [one.key for one in self._of.pop((run_uid, round_), {}).values()]

    def relisted(self) -> None:
        """The listing tells it again."""
        self._of.clear()
        self._done.clear()

    def take_done(self) -> list[str]:
        done, self._done = self._done, []
        return done

    def _at(self, run_uid: str, round_: int) -> list[News]:
        return list(self._of.get((run_uid, round_), {}).values())
