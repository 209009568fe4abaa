"""Folding what nodes tell of checksums: the last few steps of each round, and the last at which all agreed.

An observation stays in the store as long as its step is one of these, so that a new leader believes the same.
"""

from collections.abc import Iterator
from typing import Final

from rankpulse.core import checksums
from rankpulse.core.checksum_steps import CheckedStep
from rankpulse.core.checksums import Row, Verdict
from rankpulse.core.records import Observation
from rankpulse.core.slot_checks import Check

STEPS_KEPT: Final = 6  # beside the last at which all agreed and the first at which they did not
SETTLE_S: Final = 10.0  # from the first word of a step until nobody else is waited for


class _Round:
    """What was told of one round."""

    def __init__(self) -> None:
        self.steps: dict[int, CheckedStep] = {}

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
        step = held.steps.setdefault(told.step, CheckedStep(now))
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
            into = other.steps.setdefault(number, CheckedStep(step.since))
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
