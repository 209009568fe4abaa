"""The ranks of a torch.distributed job, speaking with each other about a checkpoint over a gloo group of their own.

JSON as bytes in tensors, never torch's object collectives (they pickle), never the group that the training uses: a
save would otherwise meet its collectives, and NCCL carries no CPU tensors.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from typing import Any, Final, TypeVar

import torch
import torch.distributed as dist

from rankpulse.trainer.checkpoint.errors import RanksLost
from rankpulse.trainer.checkpoint.tensors import memory
from rankpulse.trainer.checkpoint.together import Alone, Together

TIMEOUT: Final = timedelta(hours=2)  # a rank may write its shard for long; a hang is for the monitor to find
PART: Final = 64 << 20  # bytes sent at once
_BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"
T = TypeVar("T")


def together() -> Together:
    """The world of this process: a `Group` when torch.distributed is initialised with more ranks than one."""
    if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
        return Group()
    return Alone()


@contextmanager
def speaking(given: Together | None) -> Iterator[Together]:
    """`given`, or this process's world for as long as the block runs."""
    if given is not None:
        yield given
        return
    own = together()
    try:
        yield own
    finally:
        if isinstance(own, Group):
            own.close()


class Group:
    """All ranks of the default process group. Made and used by all of them, in the same order."""

    def __init__(self, timeout: timedelta = TIMEOUT) -> None:
        self.rank: int = dist.get_rank()
        self.world_size: int = dist.get_world_size()
        self._group: Any = _met(lambda: dist.new_group(backend="gloo", timeout=timeout))
        self.nodes = self._nodes()
        mates = [rank for rank, node in enumerate(self.nodes) if node == self.nodes[self.rank]]
        self.local_rank, self.local_world_size = mates.index(self.rank), len(mates)

    def gather(self, value: Any) -> list[Any]:
        """The JSON values of all ranks, on rank 0; an empty list elsewhere."""
        data = _bytes(value)
        sizes = self._sizes(data.numel())
        width = max(sizes)
        mine = torch.zeros(width, dtype=torch.uint8)
        mine[: data.numel()] = data
        parts = [torch.empty(width, dtype=torch.uint8) for _ in sizes] if self.rank == 0 else None
        _met(lambda: dist.gather(mine, parts, dst=0, group=self._group))
        return [_value(part[:size]) for part, size in zip(parts or [], sizes, strict=False)]

    def tell(self, value: Any) -> Any:
        """The JSON value of rank 0, on all ranks."""
        data = _bytes(value) if self.rank == 0 else torch.empty(0, dtype=torch.uint8)
        size = torch.tensor([data.numel()], dtype=torch.int64)
        _met(lambda: dist.broadcast(size, src=0, group=self._group))
        if self.rank != 0:
            data = torch.empty(int(size.item()), dtype=torch.uint8)
        _met(lambda: dist.broadcast(data, src=0, group=self._group))
        return _value(data)

    def same(self, digest: str) -> bool:
        """Whether all ranks gave the same text."""
        return self.same_each([digest])[0]

    def same_each(self, texts: Sequence[str]) -> list[bool]:
        """Of each of as many texts whether all ranks gave the same.

        One exchange: the highest byte of all is mine, and so is the lowest, which is the highest of the complements.
        """
        digests = b"".join(hashlib.sha256(text.encode()).digest() for text in texts)
        mine = torch.frombuffer(bytearray(digests), dtype=torch.uint8)
        both = torch.stack((mine, 255 - mine))
        _met(lambda: dist.all_reduce(both, dist.ReduceOp.MAX, group=self._group))
        return (both[0] == 255 - both[1]).view(len(texts), -1).all(dim=1).tolist()  # type: ignore[no-any-return]

    def send(self, data: Any, to: int) -> None:
        """The bytes of a one-dimensional CPU tensor of uint8, to rank `to`, which calls `receive` with as many."""
        for part in data.split(PART):
            _met(partial(dist.send, part, to, group=self._group))

    def receive(self, data: Any, of: int) -> None:
        """Fill `data` with what rank `of` sends."""
        for part in data.split(PART):
            _met(partial(dist.recv, part, of, group=self._group))

    def swap(self, out: Any, to: int, into: Any, of: int) -> None:
        """Send one block and receive another at once, so that a ring of ranks that all do so waits for nobody twice.
        None: nothing is sent, or received."""

        def talk() -> None:
            works = [] if into is None else [dist.irecv(into, of, group=self._group)]
            works += [] if out is None else [dist.isend(out, to, group=self._group)]
            for work in works:
                work.wait()

        _met(talk)

    def close(self) -> None:
        """Let the group go. Called by all ranks; nothing happens when the default group is gone already."""
        group, self._group = self._group, None
        if group is not None and dist.is_initialized():
            with suppress(ValueError):  # it went with a default group that has been made anew since
                dist.destroy_process_group(group)

    def _sizes(self, size: int) -> list[int]:
        sizes = torch.zeros(self.world_size, dtype=torch.int64)
        sizes[self.rank] = size
        _met(lambda: dist.all_reduce(sizes, group=self._group))
        return [int(found) for found in sizes]

    def _nodes(self) -> list[int]:
        """The number of the node of each rank, in the order of their first ranks: as the kernels tell, not the
        launcher."""
        names = self.tell(self.gather(_node()))
        order = {name: number for number, name in enumerate(dict.fromkeys(names))}
        return [order[name] for name in names]


def _node() -> str:
    try:
        with open(_BOOT_ID, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return os.uname().nodename


def _met(talk: Callable[[], T]) -> T:
    """One exchange with the other ranks. gloo tells a rank that has died by a RuntimeError, torch a group that was
    destroyed by a ValueError."""
    try:
        return talk()
    except (RuntimeError, ValueError) as error:
        raise RanksLost(f"the ranks could not be reached while they spoke about a checkpoint: {_line(error)}") from None


def _line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:200]


def _bytes(value: Any) -> Any:
    data = bytearray(json.dumps(value, separators=(",", ":")).encode())
    return torch.frombuffer(data, dtype=torch.uint8)


def _value(data: Any) -> Any:
    return json.loads(bytes(memory(data)))
