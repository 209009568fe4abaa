"""What was told of one check of replicas, kept up row by row: of thousands of nodes each tells its own. Pure."""

from collections import Counter
from typing import Final

from rankpulse.core.checksums import Row
from rankpulse.core.slot_checks import GROUPS_MAX, Check

KEYS_MAX: Final = 32  # observations of one node about one step: whoever goes back and forth fills no store


class Group:
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


class CheckedStep:
    """What was told of one step, and what it comes to."""

    def __init__(self, now: float) -> None:
        self.since = now  # observer's seconds when it was first told of
        self.groups: dict[int, Group] = {}
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
            group = self.groups[row.check.group] = Group()
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
