"""A loader that goes on exactly where the training stopped, with worker processes and on any number of ranks."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.utils.data import DataLoader

from rankpulse.trainer.data import plan
from rankpulse.trainer.data.batches import AHEAD_MAX, FORGOTTEN, GlobalBatches
from rankpulse.trainer.data.plan import Batch, Position
from rankpulse.trainer.data.seeded import Seeded


class ReplayLoader:
    """Batches of a map-style dataset for this rank; its position belongs into the checkpoint.

        data = ReplayLoader(dataset, batch_size=256, seed=0, num_workers=4)    # 256 for the whole job
        manager = CheckpointManager(..., extra={"data": data})
        manager.load()
        for batch in data:               # the rest of the epoch; `data.next()` goes on over epochs
            ...
            optimizer.step()
            data.consumed()              # all that was taken so far is in the update (or once: data.follow(optimizer))
            manager.step(step)

    The settings are those of `GlobalBatches`. seed_samples: what a sample draws at random depends on the sample alone
    (`seeded`); False: the dataset's own `__getitems__` is used if it has one. Everything else goes to torch's
    DataLoader, which is made at the first batch and kept over epochs.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int,
        *,
        seed: int = 0,
        shuffle: bool = True,
        tail: str = plan.DROP,
        rank: int | None = None,
        world_size: int | None = None,
        seed_samples: bool = True,
        **options: Any,
    ) -> None:
        ours = {"sampler", "batch_sampler", "generator", "drop_last"} & options.keys()
        if ours:
            raise ValueError(f"{', '.join(sorted(ours))}: the order of samples is for this loader to say")
        self._batches = GlobalBatches(
            len(dataset), batch_size, seed=seed, shuffle=shuffle, tail=tail, rank=rank, world_size=world_size
        )
        self._dataset, self._seeded, self._options = dataset, seed_samples, options
        self._stream: Iterator[Any] | None = None
        self._forget()

    def _forget(self) -> None:
        """What was read ahead is not for this job any more."""
        self._stream = None
        self._coming = self._batches.drawing()
        self._upcoming = next(self._coming)
        self._last: Batch | None = None
        self._taken: list[Position] = []  # and not consumed: the position behind each

    @property
    def position(self) -> Position:
        """Up to where the job has trained."""
        return self._batches.position

    @property
    def epoch(self) -> int:
        """Of the next batch."""
        return self._upcoming.epoch

    @property
    def weight(self) -> float:
        """Of the last batch: by what to multiply this rank's mean loss; 1.0 where all ranks have equal parts."""
        return 1.0 if self._last is None else self._batches.weight(self._last)

    @property
    def repeated(self) -> int:
        """How many samples of the last batch (of all ranks, its last ones) come a second time in their epoch."""
        return 0 if self._last is None else self._last.repeated

    def serials(self) -> list[tuple[int, int]]:
        """(serial, index) of this rank's samples of the last batch; serial: epoch * samples + place in its order."""
        return [] if self._last is None else self._batches.serials(self._last)

    def __iter__(self) -> Iterator[Any]:
        """The rest of the epoch in which the next batch is."""
        epoch = self._upcoming.epoch
        while self._upcoming.epoch == epoch:
            yield self.next()

    def __len__(self) -> int:
        """Batches until the end of the epoch."""
        return self._batches.plan.batches_left(self._last.after if self._last is not None else self.position)

    def next(self) -> Any:
        """The next batch, over the ends of epochs."""
        if self._stream is None:
            self._stream = iter(self._loader())
        found = next(self._stream)
        self._last, self._upcoming = self._upcoming, next(self._coming)
        self._taken.append(self._last.after)
        return found

    def consumed(self, batches: int | None = None) -> None:
        """The training has made its update with all batches that were taken so far; or with so many, the oldest.

        Raises ValueError for more than were taken.
        """
        count = len(self._taken) if batches is None else batches
        if not 0 <= count <= len(self._taken):
            raise ValueError(f"{batches!r} batches consumed, {len(self._taken)} taken: count each batch once")
        if count:
            self._batches.move(self._taken[count - 1], count)
            del self._taken[:count]

    def follow(self, optimizer: Any) -> None:
        """Say `consumed()` after each step of this optimizer. Not with a GradScaler: it leaves steps out."""
        optimizer.register_step_post_hook(lambda *_: self.consumed())

    def state_dict(self) -> dict[str, Any]:
        """The same on all ranks. Raises RuntimeError when much was taken and nothing ever said to be consumed."""
        if len(self._taken) > AHEAD_MAX and not self._batches.begun:
            raise RuntimeError(FORGOTTEN)
        return self._batches.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Raises StateMismatch for another dataset."""
        self._batches.load_state_dict(state)
        self._forget()

    def _loader(self) -> Any:
        # A generator of its own: torch draws the seed of workers from it, else from the one that dropout draws from.
        generator = torch.Generator().manual_seed(self._batches.seed)
        dataset = Seeded(self._dataset, self._batches.seed) if self._seeded else self._dataset
        return DataLoader(
            dataset, batch_sampler=_Parts(self._batches, self._seeded), generator=generator, **self._options
        )


class _Parts:
    """What the loader asks the dataset for: this rank's part of each batch, without end."""

    def __init__(self, batches: GlobalBatches, with_serials: bool) -> None:
        self._batches, self._with_serials = batches, with_serials

    def __iter__(self) -> Iterator[list[Any]]:
        for batch in self._batches.drawing():
            mine = self._batches.serials(batch)
            yield mine if self._with_serials else [index for _, index in mine]
