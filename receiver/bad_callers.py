"""How many refused signatures an address may send before it is told 429 and no more is logged of it.

Good signatures are never counted, nor kept waiting: who shares the monitor's address cannot lock it out.
"""

from typing import Final

ADDRESSES_MAX: Final = 1000
MINUTE_S: Final = 60.0


class BadCallers:
    """A bucket for each address that runs full again within a minute; the eldest addresses are forgotten first."""

    def __init__(self, per_minute: int) -> None:
        self._size = float(per_minute)
        self._left: dict[str, tuple[float, float]] = {}  # what was left, and when

    def one_more(self, address: str, now: float) -> bool:
        """Whether it is still to be answered and logged as usual. `now`: monotonic seconds."""
        left, at = self._left.pop(address, (self._size, now))
        left = min(self._size, left + (now - at) * self._size / MINUTE_S)
        if len(self._left) >= ADDRESSES_MAX:
            del self._left[next(iter(self._left))]
        self._left[address] = (max(0.0, left - 1.0), now)
        return left >= 1.0
