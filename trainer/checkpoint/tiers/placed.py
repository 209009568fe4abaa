"""Which ranks share a local disk: a node, as the fast tier means it, is the ranks that see one local directory.

Not the machine: two containers on one machine have disks, or parts of one, of their own, and what one has saved the
other cannot read. Not the path either: it is the same everywhere, and the disks are not.
"""

import os
from typing import Any

from rankpulse.trainer.checkpoint import writer
from rankpulse.trainer.checkpoint.errors import CheckpointError
from rankpulse.trainer.checkpoint.files import Files
from rankpulse.trainer.checkpoint.together import Together, everywhere

_BOOT_ID = "/proc/sys/kernel/random/boot_id"


class Placed:
    """The ranks of `inner`, grouped by `nodes`: the number of the node of each rank, that of rank 0 is 0."""

    def __init__(self, inner: Together, nodes: list[int]) -> None:
        self._inner, self.nodes = inner, nodes
        self.rank, self.world_size = inner.rank, inner.world_size
        mates = [rank for rank, node in enumerate(nodes) if node == nodes[inner.rank]]
        self.node = nodes[inner.rank]
        self.local_rank, self.local_world_size = mates.index(inner.rank), len(mates)
        self.firsts = [nodes.index(node) for node in range(max(nodes) + 1)]

    @property
    def first_here(self) -> bool:
        """Whether this rank acts for its node."""
        return self.local_rank == 0

    def gather(self, value: Any) -> list[Any]:
        return self._inner.gather(value)

    def tell(self, value: Any) -> Any:
        return self._inner.tell(value)

    def same(self, digest: str) -> bool:
        return self._inner.same(digest)

    def same_each(self, texts: Any) -> list[bool]:
        return self._inner.same_each(texts)

    def __getattr__(self, name: str) -> Any:
        """What only a group of several ranks has: `send`, `receive`, `swap`, `close`."""
        return getattr(self._inner, name)


def placed(inner: Together, local: str, files: Files) -> Placed:
    """Called by all ranks. The directory `local` is made where it is not there. Raises CheckpointError, on all ranks,
    where that is not possible on one."""

    def mark() -> str:
        writer.ensure(files, local)
        seen = os.stat(local)
        return f"{_machine()} {seen.st_dev} {seen.st_ino}"

    found = everywhere(inner, mark, lambda faults: CheckpointError(f"the local directory cannot be used: {faults[0]}"))
    marks = inner.tell(inner.gather(found))
    order = {one: number for number, one in enumerate(dict.fromkeys(marks))}
    return Placed(inner, [order[one] for one in marks])


def _machine() -> str:
    """Two machines that mount one file system may see the same numbers: two nodes, and found out at the first save."""
    try:
        with open(_BOOT_ID, encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return os.uname().nodename
