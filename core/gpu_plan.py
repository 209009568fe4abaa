"""Whom to ask when: in turn, seldom those that answer slowly, and by themselves those that hung. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

_GOOD: Final = 10
_LEAST_S: Final = 1.0  # between two readings, whatever is heard meanwhile


class Ask(NamedTuple):
    bus: str
    slow: bool  # also what is asked for less often


@dataclass(slots=True)
class _Turn:
    """Of one GPU. `every_s`: 0 as all others; `apart`: how often it hung in a row, and it is asked by itself."""

    due: float
    slow_due: float
    asked: bool = False
    every_s: float = 0.0
    hung: int = 0
    good: int = 0  # answers since it hung last
    apart: bool = False
    answered_at: float = -1e9


@dataclass(slots=True)
class Plan:
    """`now` is monotonic."""

    poll_s: float
    slow_poll_s: float
    retry_s: float
    retry_max_s: float
    _turns: dict[str, _Turn] = field(default_factory=dict)

    def place(self, buses: Iterable[str], now: float) -> None:
        """These are there, too; each is asked at once, and in full."""
        for bus in buses:
            self._turns.setdefault(bus, _Turn(now, now))

    @property
    def known(self) -> list[str]:
        return list(self._turns)

    @property
    def together(self) -> list[str]:
        return [bus for bus, turn in self._turns.items() if not turn.apart]

    def asks(self, now: float) -> list[Ask]:
        """Those whose turn it is. They count as asked until they answer, or `nobody_answers`."""
        due = [(bus, turn) for bus, turn in self._turns.items() if not turn.apart and not turn.asked]
        found = [(bus, turn) for bus, turn in due if turn.due <= now]
        for _, turn in found:
            turn.asked = True
        return [Ask(bus, turn.slow_due <= now) for bus, turn in found]

    def open(self) -> bool:
        """Whether an answer is waited for."""
        return any(turn.asked for turn in self._turns.values())

    def next_at(self) -> float | None:
        return min((turn.due for turn in self._turns.values() if not turn.apart and not turn.asked), default=None)

    def answered(self, bus: str, now: float, *, slow: bool, slowly: bool) -> None:
        """`slow`: in full; `slowly`: it took too long. Such a GPU is asked half as often each time, to spare others."""
        turn = self._turns.get(bus)
        if turn is None:
            return
        longer = min(2 * max(turn.every_s, self.poll_s), self.retry_max_s)
        turn.every_s = longer if slowly else (turn.every_s / 2 if turn.every_s > self.poll_s else 0.0)
        turn.good += 1
        turn.hung = 0 if turn.good >= _GOOD else turn.hung
        turn.answered_at = now
        turn.asked, turn.due = False, now + max(self.poll_s, turn.every_s)
        if slow:
            turn.slow_due = now + max(self.slow_poll_s, turn.every_s)

    def every_s(self, bus: str) -> float:
        turn = self._turns.get(bus)
        return self.poll_s if turn is None else max(self.poll_s, turn.every_s)

    def nobody_answers(self) -> None:
        """The process that was asked is gone: what it did not answer is asked again."""
        for turn in self._turns.values():
            turn.asked = False

    def hung(self, bus: str, now: float) -> float:
        """It is asked by itself from now on; in how many seconds again."""
        turn = self._turns.setdefault(bus, _Turn(now, now))
        turn.apart, turn.asked = True, False
        turn.hung, turn.good = turn.hung + 1, 0
        return backoff_s(turn.hung, self.retry_s, self.retry_max_s)

    def back(self, bus: str, now: float) -> None:
        """It answers again. How often it hung is remembered until it has answered well for a while."""
        turn = self._turns[bus]
        turn.apart, turn.due, turn.slow_due = False, now, now

    def soon(self, bus: str, now: float) -> None:
        """Something was heard of it: it is read in full at once, or a second after the last time."""
        turn = self._turns.get(bus)
        if turn is not None and turn.every_s == 0.0:
            turn.due = min(turn.due, max(now, turn.answered_at + _LEAST_S))
            turn.slow_due = min(turn.slow_due, turn.due)


def backoff_s(failures: int, low: float, high: float) -> float:
    return min(high, low * 2.0 ** min(max(failures - 1, 0), 20))
