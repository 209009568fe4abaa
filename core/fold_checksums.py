"""Folding what nodes tell of checksums: the last few steps of each round, and the last at which all agreed.

An observation stays in the store as long as its step is one of these, so that a new leader believes the same.
"""

from collections.abc import Iterator
from typing import Final

from rankpulse.core import checksums
from rankpulse.core.checksums import Step, Verdict
from rankpulse.core.records import Observation
from rankpulse.core.slot_checks import Check

STEPS_KEPT: Final = 6  # beside the last at which all agreed and the first at which they did not
SETTLE_S: Final = 10.0  # from the first word of a step until nobody else is waited for


class _Round:
    """What was told of one round."""

    def __init__(self) -> None:
        self.steps: dict[int, dict[int, dict[int, Check]]] = {}
        self.since: dict[int, float] = {}  # observer's seconds when a step was first told of
        self.keys: dict[str, int] = {}

    def trimmed(self) -> list[str]:
        """Forget what decides nothing any more; the keys of the observations that told it."""
        bad = min((number for number, step in self.steps.items() if checksums.differs(step)), default=None)
        agreed = [n for n, step in self.steps.items() if checksums.agrees(step) and (bad is None or n < bad)]
        kept = {*sorted(self.steps)[-STEPS_KEPT:], max(agreed, default=-1), -1 if bad is None else bad}
        if bad is None and agreed:
            kept = {number for number in kept if number >= max(agreed)}
        for number in self.steps.keys() - kept:
            del self.steps[number], self.since[number]
        gone = [key for key, number in self.keys.items() if number not in self.steps]
        for key in gone:
            del self.keys[key]
        return gone


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
        if key in held.keys:
            return ""
        self.changes += 1
        held.keys[key] = told.step
        held.since.setdefault(told.step, now)
        step = held.steps.setdefault(told.step, {})
        for row in told.rows:
            step.setdefault(row.check.group, {})[row.rank] = row.check
        self._done += held.trimmed()
        return ""

    def verdict(self, run_uid: str, round_: int, now: float) -> Verdict | None:
        held = self._of.get((run_uid, round_))
        if held is None:
            return None
        return checksums.judged(held.steps, settled=[n for n, since in held.since.items() if now - since >= SETTLE_S])

    def well_again(self, run_uid: str, round_: int) -> bool:
        """Whether the newest step that all have told of is one at which all agree."""
        held = self._of.get((run_uid, round_))
        whole = [n for n, step in held.steps.items() if _whole(step)] if held is not None else []
        return held is not None and bool(whole) and checksums.agrees(held.steps[max(whole)])

    def since(self, run_uid: str, round_: int, step: int) -> float:
        """When a step was first told of."""
        return self._of[run_uid, round_].since[step]

    def evidence(self, run_uid: str, round_: int, step: int) -> tuple[str, ...]:
        """Keys of the observations of a step."""
        held = self._of.get((run_uid, round_))
        return tuple(key for key, number in held.keys.items() if number == step) if held is not None else ()

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
            for group, ranks in step.items():
                other.steps.setdefault(number, {}).setdefault(group, {}).update(ranks)
        other.since = {**one.since, **other.since}
        other.keys |= one.keys

    def gone(self, key: str) -> None:
        """An observation was erased. What it told is believed on: it was true of that step."""
        for held in self._of.values():
            held.keys.pop(key, None)

    def drop(self, run_uid: str, round_: int) -> None:
        """The round is over."""
        held = self._of.pop((run_uid, round_), None)
        self._done += list(held.keys) if held is not None else []

    def relisted(self) -> None:
        """The listing tells it again."""
        self._of.clear()
        self._done.clear()

    def take_done(self) -> list[str]:
        done, self._done = self._done, []
        return done


def _whole(step: Step) -> bool:
    """Whether every replica of every group was told of."""
    return bool(step) and all(len(group) >= max(c.replicas for c in group.values()) for group in step.values())
