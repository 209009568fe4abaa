"""Files of a checkpoint on their way to nodes that need them: from other nodes over the ranks' group, or from places
that every node can read. What arrives is what the manifest says, or it gets no name.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import Any

import torch

from rankpulse.trainer.checkpoint import writer
from rankpulse.trainer.checkpoint.durable import Place as Target
from rankpulse.trainer.checkpoint.errors import CheckpointError, ChecksumDiffers, Damaged, RanksLost
from rankpulse.trainer.checkpoint.files import Files
from rankpulse.trainer.checkpoint.manifest import MANIFEST, ShardManifest, digest_of
from rankpulse.trainer.checkpoint.target import Copy, step_of
from rankpulse.trainer.checkpoint.tensors import memory
from rankpulse.trainer.checkpoint.tiers.holdings import Move
from rankpulse.trainer.checkpoint.tiers.placed import Placed
from rankpulse.trainer.checkpoint.writer import Written

BLOCK = 4 << 20
Check = Callable[[str, Written], None]


class Moving:
    """Every method is called by all ranks with the same moves; the first ranks of nodes do the work.

    targets: by their (negative) number what every node can read.
    """

    def __init__(self, together: Placed, files: Files, local: str, targets: Mapping[int, Target]) -> None:
        self._together, self._files, self._local, self._targets = together, files, local, targets

    def run(self, name: str, moves: Sequence[Move], check: Callable[[str], Check]) -> list[str]:
        """Of each move what went wrong on this rank, "" where nothing did, or it was another's. One after the other,
        in one order for all: so two nodes never wait for each other. Raises RanksLost."""
        return [self._one(name, move, check(move.file)) for move in moves]

    def _one(self, name: str, move: Move, check: Check) -> str:
        together = self._together
        here = together.node if together.first_here else None
        path = os.path.join(self._local, name)
        if move.source >= 0 and here == move.source:
            self._send(os.path.join(path, move.file), move)
        if here != move.to:
            return ""
        parts = self._receive(move) if move.source >= 0 else self._fetch(name, move)
        try:
            self._kept(path, move.file, parts, check)
        except RanksLost:
            raise
        except Exception as error:  # its file system's own; another copy may do
            if isinstance(parts, _Received):  # what was sent is taken, or all after it is read from the wrong place
                parts.drain()
            return f"{type(error).__name__}: {error}" if not isinstance(error, CheckpointError) else str(error)
        return ""

    def _kept(self, path: str, file: str, parts: Iterator[Any], check: Check) -> None:
        writer.ensure(self._files, self._local)
        with suppress(FileExistsError):
            self._files.mkdir(path)
            self._files.sync_dir(self._local)
        writer.write_file(self._files, os.path.join(path, file), parts, check)

    def _send(self, path: str, move: Move) -> None:
        """So many bytes, whatever becomes of the file: the checksum tells."""
        to = self._together.firsts[move.to]
        with ExitStack() as stack:
            source = None
            with suppress(OSError):
                source = stack.enter_context(open(path, "rb"))
            for at in range(0, move.bytes, BLOCK):
                block = bytearray(min(BLOCK, move.bytes - at))
                with suppress(OSError):
                    if source is not None:
                        source.readinto(block)
                self._together.send(torch.frombuffer(block, dtype=torch.uint8), to)

    def _receive(self, move: Move) -> Iterator[memoryview]:
        return _Received(self._together, self._together.firsts[move.source], move.bytes)

    def _fetch(self, name: str, move: Move) -> Iterator[bytes]:
        copy = Copy(name, step_of(name), {move.file: move.bytes})
        try:
            yield from self._targets[move.source].pieces(copy, move.file)
        except (OSError, CheckpointError):
            raise
        except Exception as error:
            raise OSError(f"{type(error).__name__}: {error}") from None


class _Received:
    """The blocks of one file; they go on where a reader of them has stopped."""

    def __init__(self, together: Placed, of: int, nbytes: int) -> None:
        self._together, self._of, self._left = together, of, nbytes
        self._block = torch.empty(min(BLOCK, nbytes), dtype=torch.uint8)

    def __iter__(self) -> "_Received":
        return self

    def drain(self) -> None:
        for _ in self:
            pass

    def __next__(self) -> memoryview:
        if not self._left:
            raise StopIteration
        room = self._block[: min(BLOCK, self._left)]
        self._together.receive(room, self._of)
        self._left -= room.numel()
        return memory(room)


def is_shard_of(manifest: ShardManifest, path: str) -> Callable[[str], Check]:
    """By file the check that it is what the manifest says."""
    shards = {shard.path: shard for shard in manifest.shards}

    def of(file: str) -> Check:
        def check(temporary: str, written: Written) -> None:
            if written.sha256 != shards[file].sha256 or written.bytes != shards[file].bytes:
                raise ChecksumDiffers(os.path.join(path, file), shards[file].sha256, written.sha256)

        return check

    return of


def is_manifest(path: str, digest: str) -> Callable[[str], Check]:
    def check(temporary: str, written: Written) -> None:
        with open(temporary, "rb") as file:
            found = digest_of(file.read())
        if found != digest:
            raise Damaged(os.path.join(path, MANIFEST), digest, found)

    return lambda file: check
