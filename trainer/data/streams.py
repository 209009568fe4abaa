"""Datasets that can only be read from the front: torchdata's StatefulDataLoader, counted by what was trained on.

It keeps a state of its own for each rank, which means something for the same number of ranks and workers alone. That
is said where a checkpoint is loaded by another number, and not found out by reading the wrong data.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from rankpulse.trainer.checkpoint.errors import StateMismatch
from rankpulse.trainer.data.batches import AHEAD_MAX, FORGOTTEN, _world

VERSION: Final = 1


class StreamLoader:
    """Wraps a StatefulDataLoader (or whatever iterates, with state_dict() and load_state_dict()).

        data = StreamLoader(StatefulDataLoader(stream, batch_size=8, num_workers=2))
        manager = CheckpointManager(..., extra={"data": data})

    `consumed()` asks the loader for its state: what it costs is what that costs.
    """

    def __init__(self, loader: Any, *, rank: int | None = None, world_size: int | None = None) -> None:
        self._loader = loader
        self._rank, self._world_size = _world(rank, world_size)
        self._state: Any = None  # of the last update
        self._begun = 0  # the epoch of that
        self._taken, self._ever, self._epoch = 0, False, 0

    @property
    def epoch(self) -> int:
        """Of the next batch, as counted from the start of the job."""
        return self._epoch

    def __iter__(self) -> Iterator[Any]:
        """The rest of the epoch: nothing where its last batch is in the update that was saved."""
        for batch in self._loader:
            self._taken += 1
            yield batch
        self._epoch += 1

    def consumed(self) -> None:
        """The training has made its update with all batches that were taken so far."""
        if self._taken:
            self._state, self._begun = self._loader.state_dict(), self._epoch
            self._taken, self._ever = 0, True

    def state_dict(self) -> dict[str, Any]:
        """Of this rank. Raises RuntimeError when nothing was ever said to be consumed, though much was taken."""
        if self._taken > AHEAD_MAX and not self._ever:
            raise RuntimeError(FORGOTTEN)
        return {
            "version": VERSION, "rank": self._rank, "world_size": self._world_size, "epoch": self._begun,
            "loader": self._state,
        }  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Before iterating. Raises StateMismatch for a state of another rank or number of ranks."""
        if state.get("version") != VERSION:
            raise StateMismatch(f"the state of the stream is of another version ({state.get('version')!r})")
        saved, here = (state["rank"], state["world_size"]), (self._rank, self._world_size)
        if saved != here:
            raise StateMismatch(
                f"the stream was read as rank {saved[0]} of {saved[1]}, and this is rank {here[0]} of {here[1]}: a "
                "stream cannot be shared out anew. Start as many ranks, or give a map-style dataset to ReplayLoader"
            )
        self._state, self._begun, self._epoch = state["loader"], state["epoch"], state["epoch"]
        self._taken, self._ever = 0, self._state is not None
        if self._state is not None:
            self._loader.load_state_dict(self._state)
