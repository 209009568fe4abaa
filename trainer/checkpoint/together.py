"""How the ranks of a job speak with each other about a checkpoint: small JSON values, never pickled objects."""

from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from typing import Any, Protocol, TypeAlias, TypeVar

from rankpulse.trainer.checkpoint import errors

T = TypeVar("T")


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

    @property
    def nodes(self) -> list[int]:
        """The number of the node of each rank, that of rank 0 is 0."""
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

    def same_each(self, texts: Sequence[str]) -> list[bool]:
        """Of each of as many texts whether all ranks gave the same, in one exchange."""
        ...


class Alone:
    """A world of one process."""

    rank = 0
    world_size = 1
    local_rank = 0
    local_world_size = 1

    @property
    def nodes(self) -> list[int]:
        return [0]

    def gather(self, value: Any) -> list[Any]:
        return [value]

    def tell(self, value: Any) -> Any:
        return value

    def same(self, digest: str) -> bool:
        return True

    def same_each(self, texts: Sequence[str]) -> list[bool]:
        return [True] * len(texts)


@dataclass(frozen=True, slots=True)
class Fault:
    """An error that one rank met, as it is told to the others. `about`: path, expected, found, advice of a Refused."""

    rank: int
    kind: str
    text: str
    about: Sequence[str] = ()

    @classmethod
    def of(cls, rank: int, error: Exception) -> "Fault":
        known = isinstance(error, errors.CheckpointError)
        text = str(error) if known or isinstance(error, OSError) else f"{type(error).__name__}: {error}"
        about = (error.path, error.expected, error.found, error.advice) if isinstance(error, errors.Refused) else ()
        return cls(rank, type(error).__name__, text, about)

    @property
    def row(self) -> list[Any]:
        return list(astuple(self))

    def error(self) -> errors.CheckpointError | None:
        """The same error again, if it is one of ours."""
        kind = getattr(errors, self.kind, None)
        if not (isinstance(kind, type) and issubclass(kind, errors.CheckpointError)):
            return None
        return kind(*self.about) if issubclass(kind, errors.Refused) else kind(self.text)

    def __str__(self) -> str:
        return f"rank {self.rank}: {self.text}"


Faults: TypeAlias = Sequence[Fault]


def everywhere(together: Together, work: Callable[[], T], judge: Callable[[Faults], Exception]) -> T:
    """`work` on every rank: its result, or, when it failed on any, what `judge` makes of the faults on all of them.

    So nobody waits for a rank that has met trouble before the next thing that all do together. KeyboardInterrupt and
    SystemExit pass: a rank that ends is noticed by the others.
    """
    result: list[T] = []
    fault: Fault | None = None
    try:
        result.append(work())
    except Exception as error:
        fault = Fault.of(together.rank, error)
    every = together.gather(fault and fault.row)
    found = [Fault(*row) for row in together.tell([row for row in every if row])]
    if found:
        raise judge(found)
    return result[0]


def on_first(together: Together, work: Callable[[], Any], judge: Callable[[Faults], Exception]) -> Any:
    """`work` on rank 0: what it returns (JSON) on all ranks, or what `judge` makes of its fault on all of them."""
    said: list[Any] = []
    if together.rank == 0:
        try:
            said = [work(), None]
        except Exception as error:
            said = [None, Fault.of(0, error).row]
    value, row = together.tell(said)
    if row:
        raise judge([Fault(*row)])
    return value
