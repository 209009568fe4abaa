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
    _told: int = -1  # by the last leader; what was seen since, once it is enough, is newer

    def saw(self, lowest: int, highest: int) -> None:
        """All ranks were just seen, between these steps."""
        self._spreads.append(highest - lowest)
        self._advances.append(max(lowest - self._lowest, 0) if self._lowest is not None else 0)
        self._lowest = lowest

    def synchronous(self) -> bool:
        if not self._enough():
            return self._told >= 0
        half = len(self._spreads) // 2
        first, second = list(self._spreads)[:half], list(self._spreads)[half:]
        return max(second) <= max(first) + max(self._advances) + 2

    def limit(self) -> int:
        """A step more than this beyond a rank's last reported one needed that rank."""
        told = -1 if self._enough() else self._told
        return max(PRIOR, told, max(self._spreads, default=0)) + 1

    def apart(self) -> int:
        """How far they were seen apart at most, for monitors to come; -1 until they have shown that they keep step."""
        if not self._enough():
            return self._told
        return max(self._spreads) if self.synchronous() else -1

    def take(self, apart: int) -> None:
        """What the last leader knew. One that begins while a job waits for a node could never see it keep step."""
        self._told = apart

    def _enough(self) -> bool:
        return len(self._spreads) >= SPREADS // 2
