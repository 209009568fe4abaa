"""Each node's shards also on the disk of the next node, so that one node may be lost with all it has.

The first ranks of nodes form a ring. Every save is one turn of it, in the order of saves, by a thread that is there
only while there is one: each sends its own shards to the next and takes those of the one before, a block both ways at
a time, so that memory stays flat. Where another save waits already, a node sends nothing and says so. Over a group of
ranks that nobody else speaks over.
"""

import json
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

import torch

from rankpulse.trainer.checkpoint import reader, writer
from rankpulse.trainer.checkpoint.durable import parts_of
from rankpulse.trainer.checkpoint.errors import CheckpointError, ChecksumDiffers, RanksLost
from rankpulse.trainer.checkpoint.files import Files
from rankpulse.trainer.checkpoint.manifest import ShardManifest
from rankpulse.trainer.checkpoint.target import step_of
from rankpulse.trainer.checkpoint.tensors import memory
from rankpulse.trainer.checkpoint.tiers.placed import Placed
from rankpulse.trainer.checkpoint.writer import Written

BLOCK: Final = 4 << 20  # bytes each way at once
HEADER_MAX: Final = 4 << 20


class PeerCopies:
    """`offer` and `close` are called by all ranks, in the same order; only the first of a node has anything to do.

    group: of all ranks, and used by nothing else. copies: on how many of the next nodes. say: to people. tell: the
    monitor.
    """

    def __init__(
        self,
        group: Placed,
        copies: int,
        files: Files,
        say: Callable[[str], None],
        tell: Callable[..., object],
    ) -> None:
        self._group, self._files, self._say, self._tell = group, files, say, tell
        nodes = len(group.firsts)
        self._distances = range(1, min(copies, nodes - 1) + 1) if group.first_here else range(0)
        self._queue: deque[str] = deque()
        self._now, self._over = "", False
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def offer(self, path: str) -> None:
        """A checkpoint stands at this path, on every node."""
        with self._lock:
            if self._over or not self._distances:
                return
            self._queue.append(path)
            if not self._now:
                self._start(path)

    def _start(self, path: str) -> None:
        self._now = path
        self._thread = threading.Thread(target=self._run, name="rankpulse-peers", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:  # the others of the ring wait for this node: it cannot be left out for once
            self._ended(path, error)

    @property
    def busy(self) -> set[str]:
        """The paths that are still to be read or written."""
        with self._lock:
            return {path for path in (self._now, *self._queue) if path}

    def close(self, wait_s: float) -> None:
        """Waits so long for what is under way."""
        if self._thread is not None:
            with suppress(RuntimeError):
                self._thread.join(wait_s)
        if late := self.busy:
            self._say(f"{os.path.basename(min(late))} has not all its copies at peers, and is given up")
        elif hasattr(self._group, "close"):
            self._group.close()

    def _run(self) -> None:
        while path := self._taken():
            try:
                for distance in self._distances:
                    self._turn(path, distance)
            except Exception as error:
                self._ended(path, error)

    def _taken(self) -> str:
        with self._lock:
            self._now = self._queue.popleft() if self._queue else ""
            return self._now

    def _ended(self, path: str, error: Exception) -> None:
        """The ring is broken: a node is gone, and with it soon the job."""
        self._over, self._now = True, ""
        self._queue.clear()
        self._trouble(path, f"no more copies go to peers: {error}")

    def _trouble(self, path: str, text: str) -> None:
        name = os.path.basename(path)
        self._say(f"{name}: {text}")
        self._tell("upload_failed", step=step_of(name), reason=f"peers: {text}")

    def _turn(self, path: str, distance: int) -> None:
        """One checkpoint, so many nodes on. What goes wrong with files is said; RanksLost passes."""
        group, nodes = self._group, len(self._group.firsts)
        to, of = (group.firsts[(group.node + way) % nodes] for way in (distance, -distance))
        manifest, mine = self._mine(path)
        theirs: Mapping[str, int] = self._told(mine, to, of)
        blocks = self._blocks(path, mine, sum(theirs.values()), to, of)
        stream = _Stream(blocks)
        for file, size in theirs.items():
            try:
                self._kept(path, file, stream.take(size), manifest)
            except RanksLost:
                raise
            except (OSError, CheckpointError) as error:
                self._trouble(path, f"the copy of {file} was not kept: {error}")
            stream.skip()
        stream.drain()

    def _mine(self, path: str) -> tuple[ShardManifest | None, dict[str, int]]:
        """What this node sends: nothing, where a newer one waits or this one is not there any more."""
        try:
            manifest = reader.read_manifest(path)
        except CheckpointError as error:
            self._trouble(path, f"it has no copies at peers: {error}")
            return None, {}
        with self._lock:
            waits = bool(self._queue)
        return manifest, {} if waits else parts_of(manifest, self._group.nodes)[self._group.node]

    def _told(self, mine: Mapping[str, int], to: int, of: int) -> dict[str, int]:
        """Bytes by name of what comes."""
        data = json.dumps(mine).encode()
        length, theirs = torch.tensor([len(data)]), torch.zeros(1, dtype=torch.int64)
        self._group.swap(length, to, theirs, of)
        into = torch.empty(min(int(theirs.item()), HEADER_MAX), dtype=torch.uint8)
        self._group.swap(_tensor(data), to, into, of)
        return {str(file): int(size) for file, size in json.loads(bytes(memory(into))).items()}

    def _blocks(self, path: str, mine: Mapping[str, int], coming: int, to: int, of: int) -> Iterator[memoryview]:
        """What comes, block by block; with each, a block of what is sent goes out."""
        going = sum(mine.values())
        out = _read(path, mine)
        into = torch.empty(min(BLOCK, coming), dtype=torch.uint8)
        for at in range(0, max(going, coming), BLOCK):
            block = _tensor(next(out)) if at < going else None
            room = into[: min(BLOCK, coming - at)] if at < coming else None
            self._group.swap(block, to, room, of)
            if room is not None:
                yield memory(room)

    def _kept(self, path: str, file: str, parts: Iterator[memoryview], manifest: ShardManifest | None) -> None:
        """One file of a peer. Raises OSError, CheckpointError."""
        shard = next((shard for shard in manifest.shards if shard.path == file), None) if manifest else None
        if shard is None:
            raise CheckpointError(f"the checkpoint is not here, or has no {file}")

        def check(temporary: str, written: Written) -> None:
            if written.xxh3 != shard.xxh3:
                raise ChecksumDiffers(os.path.join(path, file), shard.xxh3, written.xxh3)

        writer.write_file(self._files, os.path.join(path, file), parts, check)


def _read(path: str, files: Mapping[str, int]) -> Iterator[bytes]:
    """The files one after the other, in blocks over their ends. What cannot be read is zeros: so many bytes were
    promised, and the checksum tells."""
    block = bytearray()
    for file, size in files.items():
        done = 0
        with suppress(OSError), open(os.path.join(path, file), "rb") as source:
            while done < size and (data := source.read(min(BLOCK - len(block), size - done))):
                block += data
                done += len(data)
                if len(block) == BLOCK:
                    yield bytes(block)
                    block.clear()
        while done < size:
            more = min(BLOCK - len(block), size - done)
            block += bytes(more)
            done += more
            if len(block) == BLOCK:
                yield bytes(block)
                block.clear()
    if block:
        yield bytes(block)


def _tensor(data: bytes) -> Any:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


class _Stream:
    """Files that come one after the other in blocks over their ends."""

    def __init__(self, blocks: Iterator[memoryview]) -> None:
        self._blocks, self._rest, self._left = blocks, memoryview(b""), 0

    def take(self, size: int) -> Iterator[memoryview]:
        """The next `size` bytes; `skip` passes over what was not taken of them."""
        self._left = size
        return self._pieces()

    def _pieces(self) -> Iterator[memoryview]:
        while self._left:
            yield self._piece()

    def _piece(self) -> memoryview:
        if not self._rest:
            self._rest = next(self._blocks)
        piece, self._rest = self._rest[: self._left], self._rest[self._left :]
        self._left -= len(piece)
        return piece

    def skip(self) -> None:
        while self._left:
            self._piece()

    def drain(self) -> None:
        for _ in self._blocks:
            pass
