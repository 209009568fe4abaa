"""The batches of a rank, by the numbers of the samples: a batch sampler for torch's DataLoader that can be resumed.

What counts is what was *trained on*, not what was read: a loader with worker processes reads ahead, so the position
moves when the program says `consumed()`, and a checkpoint of that moment has it. The position is the same on all ranks.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from rankpulse.core.words import printable
from rankpulse.trainer.checkpoint.errors import StateMismatch
from rankpulse.trainer.data import order, plan
from rankpulse.trainer.data.order import Order
from rankpulse.trainer.data.plan import Batch, Plan, Position

VERSION: Final = 1
AHEAD_MAX: Final = 128  # batches that loaders read ahead, or whose gradients are accumulated, before the first update
_SEEDS: Final = 1 << 63


class GlobalBatches:
    """Which samples this rank takes, batch by batch, from where the job stands.

        batches = GlobalBatches(len(dataset), batch_size=256, seed=0)   # 256 for the whole job
        loader = DataLoader(dataset, batch_sampler=batches, num_workers=4)
        manager = CheckpointManager(..., extra={"data": batches})

    n: samples in the dataset. batch_size: of all ranks together; each takes its part, which may be one smaller than
    another's (`weight`). rank, world_size: among those that take different data (data parallel; not tensor or pipeline
    parallel ones, which take the same); left out, those of torch.distributed. tail: what becomes of the end of an epoch
    ("drop", "over", "pad"; see `plan`).
    Iterating gives the rest of the epoch, as lists of indices. Raises ValueError for settings that make no batch.
    """

    def __init__(
        self,
        n: int,
        batch_size: int,
        *,
        seed: int = 0,
        shuffle: bool = True,
        tail: str = plan.DROP,
        rank: int | None = None,
        world_size: int | None = None,
        say: Callable[[str], None] | None = None,
    ) -> None:
        self.plan = Plan(n, batch_size, tail)
        self.rank, self.world_size = _world(rank, world_size)
        if type(seed) is not int or not 0 <= seed < _SEEDS:
            raise ValueError(f"seed is {seed!r}: give a whole number from 0 to 2**63 - 1")
        if batch_size < self.world_size:
            raise ValueError(f"a batch of {batch_size} cannot be divided among {self.world_size} ranks")
        self._seed, self._shuffle = seed, shuffle
        self._position = Position()
        self._batches = self._drawn = 0  # consumed since the start of the job; drawn and not consumed since a beginning
        self._ever = False
        self._order: tuple[int, Order] | None = None
        self._say = say or _say
        if batch_size % self.world_size and self.rank == 0:
            self._say(
                f"a batch of {batch_size} among {self.world_size} ranks: their parts differ by one, and a plain mean "
                "over ranks weighs samples unequally (multiply the loss by `weight`)"
            )
        if tail == plan.PAD and n % batch_size and self.rank == 0:
            self._say(f"tail='pad': {batch_size - n % batch_size} samples come twice in each epoch to fill its batches")

    @property
    def position(self) -> Position:
        """Up to where the job has trained."""
        return self._position

    @property
    def begun(self) -> bool:
        """Whether anything was ever said to be consumed, in this life of the job or in one before."""
        return self._ever

    @property
    def seed(self) -> int:
        return self._seed

    def drawing(self) -> Iterator[Batch]:
        """The batches of the whole job from the position on, without end."""
        at = self._position
        while True:
            batch = self.plan.next(at)
            yield batch
            at = batch.after

    def serials(self, batch: Batch) -> list[tuple[int, int]]:
        """(serial, index) of this rank's part. A serial is the number of a sample of an epoch: epoch * n + place."""
        found = []
        for epoch, place in batch.part(self.rank, self.world_size):
            if self._order is None or self._order[0] != epoch:
                self._order = epoch, Order(self.plan.n, self._seed, epoch, shuffle=self._shuffle)
            found.append((epoch * self.plan.n + place, self._order[1][place]))
        return found

    def weight(self, batch: Batch) -> float:
        """By what to multiply this rank's mean loss, so that the mean over ranks is that over all samples of it."""
        whole = len(batch)
        mine = whole * (self.rank + 1) // self.world_size - whole * self.rank // self.world_size
        return mine * self.world_size / whole

    def __iter__(self) -> Iterator[list[int]]:
        """The rest of the epoch. What was drawn before and not consumed is drawn again."""
        if self._drawn and not self._ever:  # an epoch is over, or was broken off, and nothing of it counts
            raise RuntimeError(FORGOTTEN)
        self._drawn = 0
        epoch: int | None = None
        for batch in self.drawing():
            if epoch is not None and batch.epoch != epoch:
                return
            epoch = batch.epoch
            self._drawn += 1
            yield [index for _, index in self.serials(batch)]

    def __len__(self) -> int:
        """Batches from the position to the end of its epoch."""
        return self.plan.batches_left(self._position)

    def consumed(self, batches: int = 1) -> None:
        """The training has made its update with so many more batches (several: with accumulated gradients)."""
        if type(batches) is not int or not 0 <= batches <= self._drawn:
            raise ValueError(f"{batches!r} batches consumed, {self._drawn} drawn: count each batch once")
        for _ in range(batches):
            self.move(self.plan.next(self._position).after)
        self._drawn -= batches

    def move(self, position: Position, batches: int = 1) -> None:
        """For loaders that count by themselves: the job has trained up to here."""
        self._position, self._ever = position, True
        self._batches += batches

    def state_dict(self) -> dict[str, Any]:
        """The same on all ranks. Raises RuntimeError when much was drawn and nothing ever said to be consumed."""
        if self._drawn > AHEAD_MAX and not self._ever:
            raise RuntimeError(FORGOTTEN)
        return {
            "version": VERSION, "order": order.NAME, "n": self.plan.n, "seed": self._seed, "shuffle": self._shuffle,
            "epoch": self._position.epoch, "offset": self._position.offset, "batches": self._batches,
        }  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where another job, of any number of ranks, has stopped. Raises StateMismatch for another dataset."""
        version, kind = state.get("version"), state.get("order")
        if version != VERSION or kind != order.NAME:
            raise StateMismatch(f"the position in the data is of another version ({version!r}, order {kind!r})")
        if state["n"] != self.plan.n:
            raise StateMismatch(
                f"the dataset has {self.plan.n} samples and had {state['n']}: no order of the one goes on in the "
                "other. Give the same dataset, or leave the data out of `extra` for this one load"
            )
        given = (self._seed, self._shuffle)
        self._seed, self._shuffle = state["seed"], state["shuffle"]
        if given != (self._seed, self._shuffle) and self.rank == 0:
            self._say(f"the data goes on in the order of its checkpoint: seed {self._seed}, shuffle {self._shuffle}")
        self._position, self._order = Position(state["epoch"], state["offset"]), None
        self._batches, self._drawn, self._ever = state["batches"], 0, state["batches"] > 0


FORGOTTEN: Final = (
    "batches were drawn and none was ever said to be consumed, so a restart would read all of them again: call "
    "consumed() after each update"
)


def _world(rank: int | None, world_size: int | None) -> tuple[int, int]:
    if (rank is None) != (world_size is None):
        raise ValueError("rank and world_size belong together: give both or none")
    if rank is None or world_size is None:
        torch = sys.modules.get("torch")
        dist = torch.distributed if torch is not None and torch.distributed.is_available() else None
        if dist is None or not dist.is_initialized():
            return 0, 1
        rank, world_size = dist.get_rank(), dist.get_world_size()
    if not 0 <= rank < world_size:
        raise ValueError(f"rank {rank} of {world_size}: give a rank below world_size")
    return rank, world_size


def _say(text: str) -> None:
    try:
        sys.stderr.write(f"rankpulse: {printable(text, 1000)}\n")
    except Exception:  # it may be closed or absent
        return
