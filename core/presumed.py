"""Who belongs to a process group whose members nobody named: those that tell of it, perhaps some that are silent."""

from collections import Counter
from typing import Final

from rankpulse.core import stacks as st
from rankpulse.core.ends import Weight, ends
from rankpulse.core.scene import Scene
from rankpulse.core.snapshot import RANKS_MAX, Group, Rank
from rankpulse.core.stacks import doing

MOST: Final = 0.5  # of the ranks: where more are silent than that, their silence is how the snapshot was taken
WAITING: Final = (st.COLLECTIVE, st.DEVICE)


def presumed(scene: Scene, rows: tuple[Rank, ...]) -> tuple[Group, ...]:
    """The groups; one whose members nobody names, and of which all tell that tell anything, may hold the silent too.

    Without that a rank that told nothing is in no group, and of the others it would be said that everybody came.
    """
    tellers = {row.rank for row in rows if row.positions}
    silent = _missed(scene) - tellers
    named = {group.name for group in scene.snap.groups if group.members}
    told = Counter(name for row in rows for name in {position.group for position in row.positions})
    if not silent or len(silent) >= MOST * len(tellers | silent) or len(tellers) < 2:
        return scene.snap.groups
    members = tuple(sorted(tellers | silent))
    wide = [Group(name, members) for name, count in told.items() if count == len(tellers) and name not in named]
    return (*scene.snap.groups, *wide)


def _missed(scene: Scene) -> set[int]:
    """Whose silence says something: nobody chose not to ask, and they are neither seen inside nor victims."""
    size = min(scene.snap.job.world_size or 0, RANKS_MAX)
    victims = {end.rank for end in ends(scene) if end.weight == Weight.VICTIM}
    asked = (rank for rank in scene.snap.ranks if rank.dump != "not collected" and doing(rank).what not in WAITING)
    return (set(range(size)) - scene.ranks.keys()) | {rank.rank for rank in asked if rank.rank not in victims}
