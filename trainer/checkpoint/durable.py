"""Checkpoints brought to durable targets beside the training, and fetched from there when that is nearer to the end.

On every node its first rank brings what the ranks of that node have written, a thread per target, which is there only
while there is something to bring. Who writes when follows from what has arrived (`turns`). Rank 0 commits a copy when
all is there. Nothing here is waited for by a step, and no trouble of a target is more than a sentence.
"""

import os
import threading
import time
from collections.abc import Callable, Container, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from rankpulse.trainer.checkpoint import reader, turns
from rankpulse.trainer.checkpoint.errors import CheckpointError
from rankpulse.trainer.checkpoint.manifest import MANIFEST, ShardManifest
from rankpulse.trainer.checkpoint.target import Target, step_of

QUIET_S: Final = 1800.0  # nothing has arrived for so long: whoever was to bring it is gone
POLL_S: Final = 1.0
LOOKS_S: Final = 100.0  # looks at one target per second, of all nodes, about: with more nodes each looks less often


@dataclass(frozen=True)
class Bringing:
    """How a node brings checkpoints. nodes: the number of the node of each rank. writers: nodes that write to one
    target at once. keep: complete copies that stay there. say: a sentence for people. quiet_s: an object appears when
    it is whole, so this is more than the largest file takes."""

    node: int
    nodes: Sequence[int]
    writers: int
    keep: int
    say: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    quiet_s: float = QUIET_S
    poll_s: float = POLL_S


@dataclass
class Lane:
    """One target. `offer` and `close` are for the ranks' own threads; one checkpoint is under way, the newest waits."""

    target: Target
    how: Bringing
    _next: str = ""
    _now: str = ""
    _ended: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _thread: threading.Thread | None = None

    def offer(self, path: str) -> None:
        """A checkpoint stands at this path. Those that waited before it are not brought."""
        with self._lock:
            self._next = path
            if self._thread is None or not self._now:
                self._start(path)

    def _start(self, path: str) -> None:
        thread = threading.Thread(target=self._run, name="rankpulse-durable", daemon=True)
        self._now = path  # nobody takes it for idle before the thread has begun
        try:
            thread.start()
            self._thread = thread
        except RuntimeError as error:  # none is to be had: the next checkpoint may find one
            self._now = self._next = ""
            self.how.say(f"{os.path.basename(path)} is not brought to {self.target.url}: {_line(error)}")

    def wait(self, timeout_s: float) -> str:
        """Until nothing is under way, or so long. The path of what has not arrived, "" when all has."""
        thread = self._thread
        if thread is not None:
            thread.join(timeout_s)
        with self._lock:
            return self._next or self._now

    def close(self) -> None:
        """What is under way is given up, as soon as the target lets go of it."""
        self._ended.set()

    def _run(self) -> None:
        while path := self._taken():
            try:
                self._bring(path)
            except Exception as error:  # whatever it was: the local copy stands
                self.how.say(f"{os.path.basename(path)} was not brought to {self.target.url}: {_line(error)}")

    def _taken(self) -> str:
        with self._lock:
            self._now, self._next = ("" if self._ended.is_set() else self._next), ""
            return self._now

    def _bring(self, path: str) -> None:
        name, manifest = os.path.basename(path), reader.read_manifest(path)
        parts = parts_of(manifest, self.how.nodes)
        mine = parts[self.how.node]
        if self.how.node == 0:  # what was given up takes no room from what may arrive
            self._clear(name, {copy.name for copy in self.target.copies()})
        seen: Any = None
        since = self.how.clock()
        while True:
            arrived = self.target.arrived(name)
            left = turns.missing(mine, arrived)
            if not left and (self.how.node or turns.complete(parts, arrived)):
                break
            if arrived != seen:
                seen, since = arrived, self.how.clock()
            if left and self.how.node in turns.writing(parts, arrived, self.how.writers):
                self.target.put(name, os.path.join(path, left[0]), self._goes_on)
            elif self.how.clock() - since > self.how.quiet_s:
                raise TimeoutError(
                    f"nothing has arrived for {self.how.quiet_s:g} s; missing are {_few(parts, arrived)}"
                )
            elif self._ended.wait(self.how.poll_s):
                raise InterruptedError("the program has ended")
        if self.how.node == 0:
            self._commit(path, name, parts)

    def _goes_on(self) -> bool:
        return not self._ended.is_set()

    def _commit(self, path: str, name: str, parts: Sequence[turns.Files]) -> None:
        manifest = os.path.join(path, MANIFEST)
        files = {file: size for part in parts for file, size in part.items()} | {MANIFEST: os.path.getsize(manifest)}
        self.target.put(name, manifest, self._goes_on)
        self.target.commit(name, files)
        copies = [copy.name for copy in self.target.copies()]
        stay = {*copies[: max(1, self.how.keep)], name}
        for other in copies:
            if other not in stay:
                self.target.remove(other)
        self._clear(name, stay)

    def _clear(self, name: str, copies: Container[str]) -> None:
        """Remove what was begun before `name` and never became a copy: nobody but this node would make it one."""
        for other in self.target.names():
            if other not in copies and step_of(other) < step_of(name) and not self.target.withdrawn(other):
                self.target.remove(other)


def parts_of(manifest: ShardManifest, nodes: Sequence[int]) -> list[dict[str, int]]:
    """By node the shards that its ranks have written: bytes by name."""
    parts: list[dict[str, int]] = [{} for _ in range(max(nodes) + 1)]
    for shard in manifest.shards:
        parts[nodes[shard.rank]][shard.path] = shard.bytes
    return parts


def whole(path: str) -> bool:
    """Whether a local checkpoint has all its files in their sizes: whether the bytes are right is for the load."""
    try:
        manifest = reader.read_manifest(path)
        return all(os.path.getsize(os.path.join(path, shard.path)) == shard.bytes for shard in manifest.shards)
    except (CheckpointError, OSError):
        return False


def _few(parts: Sequence[turns.Files], arrived: turns.Files) -> str:
    names = [name for part in parts for name in turns.missing(part, arrived)]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _line(error: Exception) -> str:
    text = str(error).strip().partition("\n")[0][:300]
    return text if isinstance(error, CheckpointError) else f"{type(error).__name__}: {text}"


class Durable:
    """All targets of one rank, which brings what its node has written if it is the first there."""

    def __init__(self, targets: Sequence[Target], how: Bringing, first_here: bool) -> None:
        self.lanes = [Lane(target, how) for target in targets] if first_here else []

    def offer(self, path: str) -> None:
        for lane in self.lanes:
            lane.offer(path)

    def close(self, wait_s: float) -> None:
        """Waits so long, in all, for what is under way."""
        until = time.monotonic() + wait_s
        for lane in self.lanes:
            late = lane.wait(max(0.0, until - time.monotonic()))
            if late:
                lane.how.say(f"{os.path.basename(late)} has not arrived at {lane.target.url}, and is given up")
            with suppress(Exception):
                lane.close()
