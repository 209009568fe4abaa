"""What a sample draws at random depends on the sample alone: not on the worker, the rank, or what was read before.

Torch seeds each worker process once. What an augmentation draws then depends on how many samples that worker has had,
and no restart gets there again. Here Python's generator, torch's of the CPU and NumPy's global one are seeded anew for
each sample, from the seed and the sample's serial number (so its second epoch draws something else).
"""

import random
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils.data import get_worker_info

from rankpulse.trainer.data.order import keyed


class Seeded:
    """A dataset that is asked by (serial, index). In the training process its generators are put back afterwards."""

    def __init__(self, dataset: Any, seed: int) -> None:
        self.dataset, self.seed = dataset, seed

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitems__(self, asked: Sequence[tuple[int, int]]) -> list[Any]:
        """A whole batch, as torch's fetcher asks where this is there."""
        with _kept():
            return [self._one(serial, index) for serial, index in asked]

    def __getitem__(self, asked: tuple[int, int]) -> Any:
        return self.__getitems__([asked])[0]

    def _one(self, serial: int, index: int) -> Any:
        seed = keyed(self.seed, serial)
        random.seed(seed)
        torch.random.default_generator.manual_seed(seed)
        numpy = sys.modules.get("numpy")
        if numpy is not None:
            numpy.random.seed(seed & 0xFFFFFFFF)
        return self.dataset[index]


@contextmanager
def _kept() -> Iterator[None]:
    """The generators of the training process are the training's; those of a worker process are ours to seed."""
    if get_worker_info() is not None:
        yield
        return
    numpy = sys.modules.get("numpy")
    before = random.getstate(), torch.get_rng_state(), numpy.random.get_state() if numpy is not None else None
    try:
        yield
    finally:
        random.setstate(before[0])
        torch.set_rng_state(before[1])
        if numpy is not None and before[2] is not None:
            numpy.random.set_state(before[2])
