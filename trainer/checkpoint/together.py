"""How the ranks of a job speak with each other about a checkpoint: small JSON values, never pickled objects."""

from collections.abc import Sequence
from typing import Any, Protocol


class Together(Protocol):
    """The ranks of one world. Every method is called by all of them, in the same order."""

    @property
    def rank(self) -> int: ...

    @property
    def world_size(self) -> int: ...

    @property
    def local_rank(self) -> int:
        """Which of the processes on this node, from 0."""
        ...

    @property
    def local_world_size(self) -> int:
        """How many processes of the world are on this node."""
        ...

    def gather(self, value: Any) -> list[Any]:
        """The JSON values of all ranks by rank, on rank 0; an empty list elsewhere."""
        ...

    def tell(self, value: Any) -> Any:
        """The JSON value of rank 0, on all ranks."""
        ...

    def same(self, digest: str) -> bool:
        """Whether all ranks gave the same text."""
        ...


class Alone:
    """A world of one process."""

    rank = 0
    world_size = 1
    local_rank = 0
    local_world_size = 1

    def gather(self, value: Any) -> list[Any]:
        return [value]

    def tell(self, value: Any) -> Any:
        return value

    def same(self, digest: str) -> bool:
        return True


def agreed(together: Together, trouble: str) -> Sequence[str]:
    """What went wrong on any rank, "rank N: ..." each, on all ranks; empty when all is well everywhere."""
    told = together.gather(trouble)
    found = [f"rank {rank}: {text}" for rank, text in enumerate(told) if text]
    return [str(text) for text in together.tell(found)]
