"""A job of tensor, pipeline and data parallel ranks: which process groups there are, and who is in them."""

from dataclasses import dataclass
from functools import cached_property
from typing import Final

KINDS: Final = ("tp", "pp", "dp", "mp", "embedding", "ep", "world")


@dataclass(frozen=True)
class Layout:
    """Ranks are numbered as Megatron does: tensor parallel innermost, then data, then pipeline parallel."""

    tp: int
    pp: int
    dp: int
    ep: int = 1  # experts over so many data parallel neighbours; 1: none

    @property
    def size(self) -> int:
        return self.tp * self.pp * self.dp

    def rank(self, t: int, p: int, d: int) -> int:
        return (p * self.dp + d) * self.tp + t

    def stage(self, rank: int) -> int:
        return rank // (self.tp * self.dp)

    def replica(self, d: int) -> tuple[int, ...]:
        """The ranks of one copy of the model."""
        return tuple(self.rank(t, p, d) for p in range(self.pp) for t in range(self.tp))

    @cached_property
    def groups(self) -> dict[str, tuple[int, ...]]:
        """Members by name. Names begin with the kind."""
        return {name: members for name, members in self._all() if len(members) > 1}

    @cached_property
    def of(self) -> list[dict[str, str]]:
        """Per rank: the name of its group of each kind."""
        found: list[dict[str, str]] = [{} for _ in range(self.size)]
        for name, members in self.groups.items():
            for rank in members:
                found[rank][name.partition(".")[0]] = name
        return found

    def _all(self) -> list[tuple[str, tuple[int, ...]]]:
        ts, ps, ds = range(self.tp), range(self.pp), range(self.dp)
        rows = [(f"tp.{p}.{d}", tuple(self.rank(t, p, d) for t in ts)) for p in ps for d in ds]
        rows += [(f"pp.{t}.{d}", tuple(self.rank(t, p, d) for p in ps)) for t in ts for d in ds]
        rows += [(f"dp.{t}.{p}", tuple(self.rank(t, p, d) for d in ds)) for t in ts for p in ps]
        rows += [(f"mp.{d}", tuple(self.rank(t, p, d) for p in ps for t in ts)) for d in ds]
        rows += [
            (f"embedding.{t}.{d}", tuple(self.rank(t, p, d) for p in (0, self.pp - 1)))
            for t in ts
            for d in ds
            if self.pp > 1
        ]
        rows += [
            (f"ep.{t}.{p}.{e}", tuple(self.rank(t, p, d) for d in range(e, e + self.ep)))
            for t in ts
            for p in ps
            for e in range(0, self.dp, self.ep)
        ]
        return [*rows, ("world", tuple(range(self.size)))]
