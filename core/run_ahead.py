"""How far are ranks of a run apart? What makes the progress alibi sound."""

from collections import deque
from dataclasses import dataclass, field

SPREADS = 40
PRIOR = 3  # steps that hosts run ahead of their devices although they are never seen so far apart


@dataclass
class RunAhead:
    """How far ranks of a run are seen apart when all of them can be seen: the soundness of the progress alibi.

    Steps are sampled once per beat, so ranks that move in lockstep are still *seen* some steps apart. A run counts as
    synchronous once that distance has been watched for a while and has stopped growing; ranks that run on their own
    drift apart without bound. Ranks that only meet every so many steps (local SGD) count as synchronous too: when one
    of them is gone the others go on for a while and then wait, so an alibi is good for one renewal and no more.
    """

    _spreads: deque[int] = field(default_factory=lambda: deque(maxlen=SPREADS))
    _advances: deque[int] = field(default_factory=lambda: deque(maxlen=SPREADS))
    _lowest: int | None = None

    def saw(self, lowest: int, highest: int) -> None:
        """All ranks were just seen, between these steps."""
        self._spreads.append(highest - lowest)
        self._advances.append(max(lowest - self._lowest, 0) if self._lowest is not None else 0)
        self._lowest = lowest

    def synchronous(self) -> bool:
        if len(self._spreads) < SPREADS // 2:
            return False
        half = len(self._spreads) // 2
        first, second = list(self._spreads)[:half], list(self._spreads)[half:]
        return max(second) <= max(first) + max(self._advances) + 2

    def limit(self) -> int:
        """A step more than this beyond a rank's last reported one needed that rank."""
        return max(PRIOR, max(self._spreads, default=0)) + 1
