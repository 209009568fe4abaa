"""Whether the ranks that are left can write a checkpoint of all the state, without those that are gone. Values only."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from rankpulse.trainer.checkpoint.division import Item

NAMED_MAX: Final = 3
NUMBERS_MAX: Final = 8
_Place: TypeAlias = tuple[str, tuple[int, ...], tuple[int, ...]]  # name, offsets and sizes; () and (): all of it


@dataclass(frozen=True, slots=True)
class LastWords:
    """May they? `reason`: why not, "" when they may. `absent`: the ranks that are gone."""

    may: bool
    reason: str
    absent: tuple[int, ...]


def decided(held: Sequence[Sequence[Item]], alive: Collection[int], updating: Collection[int] = ()) -> LastWords:
    """held: what each rank of the world held when it was last told, in the order of ranks. alive: the ranks that can
    write. updating: those of them that were in the middle of an update, or may have been.

    Every piece that anybody held must be held by one who is alive: boxes of one tensor tile it, so none makes up for
    another. One replica of each piece is enough, wherever it is.
    """
    absent = tuple(rank for rank in range(len(held)) if rank not in alive)
    if torn := sorted(set(updating) & set(alive)):
        return LastWords(False, f"{ranks_were(torn)} in the middle of an update: what they hold is of no step", absent)
    safe = {_place(item) for items in {id(held[rank]): held[rank] for rank in alive}.values() for item in items}
    lost: dict[str, int] = {}
    for rank in sorted({id(held[rank]): rank for rank in reversed(absent)}.values()):  # replicas may be one list
        for item in held[rank]:
            if _place(item) not in safe:
                lost.setdefault(item.name, rank)
    if not lost:
        return LastWords(True, "", absent)
    few = ", ".join(f"{name} (rank {rank})" for name, rank in list(lost.items())[:NAMED_MAX])
    more = f" and {len(lost) - NAMED_MAX} more" if len(lost) > NAMED_MAX else ""
    return LastWords(False, f"nobody who is left holds all of {few}{more}", absent)


def _place(item: Item) -> _Place:
    return (item.name, (), ()) if item.box is None else (item.name, item.box.offsets, item.box.sizes)


def ranks_were(ranks: Collection[int]) -> str:
    """A few ranks, with "was" or "were"."""
    few = ", ".join(map(str, sorted(ranks)[:NUMBERS_MAX]))
    more = f" and {len(ranks) - NUMBERS_MAX} more" if len(ranks) > NUMBERS_MAX else ""
    return f"rank {few} was" if len(ranks) == 1 else f"ranks {few}{more} were"
