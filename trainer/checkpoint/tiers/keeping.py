"""The fast tier, as the manager has it: room there, who brings it on, who has copies, how it is loaded."""

import os
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from rankpulse.trainer.checkpoint import reader
from rankpulse.trainer.checkpoint.durable import Bringing, Durable, Place, parts_of
from rankpulse.trainer.checkpoint.errors import CheckpointError
from rankpulse.trainer.checkpoint.files import Files
from rankpulse.trainer.checkpoint.loading import Resumed, Where, as_it_was
from rankpulse.trainer.checkpoint.reader import Memo
from rankpulse.trainer.checkpoint.saving import Save, Saved
from rankpulse.trainer.checkpoint.state import Part
from rankpulse.trainer.checkpoint.target import Target
from rankpulse.trainer.checkpoint.tiers.holdings import SHARED_PLACE
from rankpulse.trainer.checkpoint.tiers.peers import PeerCopies
from rankpulse.trainer.checkpoint.tiers.placed import Placed
from rankpulse.trainer.checkpoint.tiers.reach import within
from rankpulse.trainer.checkpoint.tiers.resuming import LOOK_S, Places, TieredLoad
from rankpulse.trainer.checkpoint.tiers.rooms import Wanted, make_room
from rankpulse.trainer.checkpoint.tiers.saving import LocalSave
from rankpulse.trainer.checkpoint.tiers.shared import QUIET_S, SharedPlace
from rankpulse.trainer.checkpoint.together import everywhere

LOCAL_KEEP: Final = 2  # the newest, and the one before while the newest is written


@dataclass(frozen=True)
class Asked:
    """What was asked for. local: on each node's own disk. keep: checkpoints that stay in the shared directory.
    local_keep: on the nodes. copies: on how many other nodes each node's shards are, too."""

    local: str
    shared: str
    keep: int
    local_keep: int = LOCAL_KEEP
    copies: int = 0
    look_s: float = LOOK_S


class Tiers:
    """Methods are called by all ranks, unless they say otherwise. peers: makes the group over which copies go."""

    onto: type[Save] = LocalSave

    def __init__(
        self,
        asked: Asked,
        targets: Sequence[Target],
        together: Placed,
        files: Files,
        bringing: Bringing,
        peers: Callable[[], Any],
    ) -> None:
        self._asked, self._together, self._files = asked, together, files
        self.local, self.first_here = asked.local, together.first_here
        self._shared = SharedPlace(asked.shared, files, asked.keep)
        everyone: list[Place] = [self._shared, *targets]
        self._places = Places(
            asked.local,
            {SHARED_PLACE - at: target for at, target in enumerate(everyone)},
            asked.look_s,
        )
        self.durable = Durable(targets, bringing, together.first_here)
        to_shared = Bringing(
            bringing.node, bringing.nodes, bringing.writers, asked.keep, bringing.say, bringing.clock,
            min(QUIET_S, bringing.quiet_s), bringing.poll_s, bringing.tell,
        )  # fmt: skip
        self.durable.lanes[:0] = Durable([self._shared], to_shared, together.first_here).lanes
        self._peers: PeerCopies | None = None
        if asked.copies and len(together.firsts) > 1:
            ring = Placed(peers(), together.nodes)
            self._peers = PeerCopies(ring, asked.copies, files, bringing.say, bringing.tell)
        elif asked.copies and together.rank == 0:
            bringing.say("there is one node only: its shards have no copies at peers")

    @property
    def busy(self) -> set[str]:
        """Local checkpoints that are still to be read."""
        return self.durable.busy | (self._peers.busy if self._peers else set())

    def removed(self, keep: int, needed: int, verified: Collection[str], damaged: Collection[str], memo: Memo) -> Any:
        """On the first rank of a node: (bytes that are missing nevertheless, why one could not be removed)."""
        return make_room(self._files, self.local, Wanted(keep, verified, self.busy, needed, damaged), memo)

    def saved(self, saved: Saved) -> None:
        """A checkpoint stands on all nodes: it goes on from there. Returns at once."""
        self._offer(saved.path)

    def _offer(self, path: str) -> None:
        self.durable.offer(path)
        if self._peers is not None:
            self._peers.offer(path)

    def load(self, parts: Sequence[Part], where: Where) -> Resumed | None:
        """As `CheckpointManager.load`."""
        resumed = TieredLoad(self._places, parts, self._together, where).run()
        if resumed is not None and self._parts_here(resumed.path):
            self._offer(resumed.path)  # the last life may have ended before it was there
        return resumed

    def _parts_here(self, path: str) -> bool:
        """Whether each node has what its ranks would have saved: else nobody could bring it."""
        mine = everywhere(self._together, lambda: self._part_here(path), as_it_was)
        return bool(self._together.tell(all(self._together.gather(mine))))

    def _part_here(self, path: str) -> bool:
        if not self.first_here:
            return True
        manifest = reader.read_manifest(path)
        if manifest.world_size != self._together.world_size:
            return False
        part = parts_of(manifest, self._together.nodes)[self._together.node]
        with suppress(OSError):
            return all(os.path.getsize(os.path.join(path, file)) == size for file, size in part.items())
        return False

    def oldest(self, local: int) -> int:
        """On rank 0: the earliest step anywhere, as far as is known here; -1 where nothing is. It asks nobody."""
        return min((step for step in (local, self._shared.oldest) if step >= 0), default=-1)

    def latest(self) -> int | None:
        """The newest step that this node knows of, or that the shared directory has."""
        steps = [found.step for found in reader.scan(self.local).committed if not found.refused]
        with suppress(OSError, CheckpointError):
            there = within(self._asked.look_s, lambda: reader.scan(self._asked.shared))
            steps += [found.step for found in there.committed if not found.refused]
        return max(steps, default=None)

    def close(self, wait_s: float) -> None:
        if self._peers is not None:
            self._peers.close(wait_s)


def asked(local: Any, shared: str, keep: int, local_keep: int, copies: int, targets: Sequence[Target]) -> Asked:
    """Raises ValueError for what contradicts itself."""
    for name, value, least in (("local_keep", local_keep, 1), ("peer_copies", copies, 0)):
        if type(value) is not int or value < least:
            raise ValueError(f"{name} is {value!r}: give a whole number from {least} on")
    if local is None:
        raise ValueError(f"peer_copies is {copies}, and there is no local directory for them: give local=")
    path = os.path.abspath(os.fspath(local))
    places = [os.path.realpath(shared), *(target.place for target in targets)]
    if os.path.realpath(path) in places:
        raise ValueError(f"local is {path}, which is the directory itself or one of the durable targets")
    return Asked(path, shared, keep, local_keep, copies)
