"""Checkpoints brought to durable targets beside the training, and fetched from there when that is nearer to the end.

On every node its first rank brings what the ranks of that node have written, a thread per target, which is there only
while there is something to bring. Node 0 says which checkpoint; who writes when follows from what has arrived
(`turns`). Rank 0 commits a copy when all is there. Nothing here is waited for by a step, and no trouble of a target is
more than a sentence and a count.
"""

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from rankpulse.trainer.checkpoint import reader, turns
from rankpulse.trainer.checkpoint.errors import CheckpointError
from rankpulse.trainer.checkpoint.manifest import MANIFEST, ShardManifest
from rankpulse.trainer.checkpoint.target import Copy, step_of

QUIET_S: Final = 1800.0  # nothing has arrived for so long: whoever was to bring it is gone
POLL_S: Final = 1.0
KNOWN_MAX: Final = 16  # checkpoints that node 0 may be at while this node was offered newer ones
LOOKS_S: Final = 100.0  # looks at one target per second, of all nodes, about: with more nodes each looks less often


class Place(Protocol):
    """Where checkpoints are brought: a `Target`, or a shared directory (`tiers.shared`)."""

    url: str

    def copies(self) -> list[Copy]: ...
    def names(self) -> list[str]: ...
    def arrived(self, name: str) -> dict[str, int]: ...
    def moving(self, name: str) -> dict[str, int]: ...
    def lead(self, name: str, nbytes: int) -> None: ...
    def led(self) -> str: ...
    def put(self, name: str, local: str, may_go_on: Callable[[], bool] = ...) -> None: ...
    def commit(self, name: str, files: Mapping[str, int]) -> None: ...
    def thin_out(self, name: str, keep: int) -> None: ...
    def remove(self, name: str) -> None: ...
    def withdraw(self, name: str) -> bool: ...
    def withdrawn(self, name: str) -> bool: ...
    def pieces(self, copy: Copy, file: str) -> Iterator[bytes]: ...


def _nobody(event: str, **said: Any) -> object:
    return None


@dataclass(frozen=True)
class Bringing:
    """How a node brings checkpoints. nodes: the number of the node of each rank. writers: nodes that write to one
    target at once. keep: complete copies that stay there. say: a sentence for people; tell: an event for the monitor.
    quiet_s: an object appears when it is whole, so this is more than the largest file takes."""

    node: int
    nodes: Sequence[int]
    writers: int
    keep: int
    say: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    quiet_s: float = QUIET_S
    poll_s: float = POLL_S
    tell: Callable[..., object] = _nobody


@dataclass
class Lane:
    """One target. `offer` and `close` are for the ranks' own threads; one checkpoint is under way, the newest waits.

    Node 0 decides which one: the others bring what it brings, also where they were offered a newer one meanwhile.
    """

    target: Place
    how: Bringing
    _next: str = ""
    _now: str = ""
    _known: dict[str, str] = field(default_factory=dict)  # paths by name, of what was offered lately
    _brought: deque[str] = field(default_factory=lambda: deque(maxlen=KNOWN_MAX))  # names: this node's part is there
    _ended: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _thread: threading.Thread | None = None

    def offer(self, path: str) -> None:
        """A checkpoint stands at this path. Those that waited before it are not brought."""
        with self._lock:
            self._next = path
            self._known = dict([*self._known.items(), (os.path.basename(path), path)][-KNOWN_MAX:])
            if self._thread is None or not self._now:
                self._start(path)

    @property
    def busy(self) -> set[str]:
        """The paths that are still to be read."""
        with self._lock:
            return {path for path in (self._now, self._next) if path}

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
            except _Passed as passed:
                self._turn_to(passed.path)
            except Exception as error:  # whatever it was: the local copy stands
                self._failed(path, error)

    def _taken(self) -> str:
        with self._lock:
            self._now, self._next = ("" if self._ended.is_set() else self._next), ""
            return self._now

    def _turn_to(self, path: str) -> None:
        """Node 0 is at another one than this node has begun with: that one first, and then the newest."""
        with self._lock:
            newest, self._now = self._next or self._now, path
        try:
            self._bring(path)
        except _Passed:  # it has moved on again
            pass
        except Exception as error:
            self._failed(path, error)
        with self._lock:
            self._next = self._next or newest

    def _failed(self, path: str, error: Exception) -> None:
        name, ended = os.path.basename(path), isinstance(error, InterruptedError) and self._ended.is_set()
        self.how.say(f"{name} was not brought to {self.target.url}: {_line(error)}")
        if not ended:
            reason = f"{self.target.url}: {_line(error)}"
            self.how.tell("upload_failed", step=step_of(name), reason=reason)

    def _bring(self, path: str) -> None:
        began, name, manifest = self.how.clock(), os.path.basename(path), reader.read_manifest(path)
        parts = parts_of(manifest, self.how.nodes)
        mine = parts[self.how.node]
        if self.how.node == 0:  # what was given up takes no room from what may arrive
            self._clear(name, {copy.name for copy in self.target.copies()})
            self.target.lead(name, sum(size for part in parts for size in part.values()))
        seen: Any = None
        since = self.how.clock()
        while True:
            arrived = self.target.arrived(name)
            left = turns.missing(mine, arrived)
            if not left and (self.how.node or turns.complete(parts, arrived)):
                break
            moving = self.target.moving(name)
            if moving != seen:
                seen, since = moving, self.how.clock()
            if left and self._may_write(name) and self.how.node in turns.writing(parts, arrived, self.how.writers):
                self.target.put(name, os.path.join(path, left[0]), self._goes_on)
            elif self.how.clock() - since > self.how.quiet_s:
                raise TimeoutError(
                    f"nothing has arrived for {self.how.quiet_s:g} s; missing are {_few(parts, arrived)}"
                )
            elif self._ended.wait(self.how.poll_s):
                raise InterruptedError("the program has ended")
        self._brought.append(name)
        if self.how.node == 0:
            self._commit(path, name, parts)
            self.how.tell("uploaded", step=manifest.step, upload_s=self.how.clock() - began, place=self.target.url)

    def _may_write(self, name: str) -> bool:
        """Whether node 0 is at this one. Raises _Passed when it is at another that this node has not brought."""
        led = name if self.how.node == 0 else self.target.led()
        with self._lock:
            path = self._known.get(led, "")
        if led != name and path and led not in self._brought:
            raise _Passed(path)
        return led == name

    def _goes_on(self) -> bool:
        return not self._ended.is_set()

    def _commit(self, path: str, name: str, parts: Sequence[turns.Files]) -> None:
        manifest = os.path.join(path, MANIFEST)
        files = {file: size for part in parts for file, size in part.items()} | {MANIFEST: os.path.getsize(manifest)}
        self.target.put(name, manifest, self._goes_on)
        self.target.commit(name, files)
        self.target.thin_out(name, self.how.keep)
        self._clear(name, {copy.name for copy in self.target.copies()})

    def _clear(self, name: str, copies: Container[str]) -> None:
        """Remove what was begun before `name` and never became a copy: nobody but this node would make it one."""
        for other in self.target.names():
            if other not in copies and step_of(other) < step_of(name) and not self.target.withdrawn(other):
                self.target.remove(other)


class _Passed(Exception):
    """Node 0 is at another checkpoint, which lies here at this path."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


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

    def __init__(self, targets: Sequence[Place], how: Bringing, first_here: bool) -> None:
        self.lanes = [Lane(target, how) for target in targets] if first_here else []

    def offer(self, path: str) -> None:
        for lane in self.lanes:
            lane.offer(path)

    @property
    def busy(self) -> set[str]:
        """The paths of checkpoints that are still to be read here."""
        return {path for lane in self.lanes for path in lane.busy}

    def close(self, wait_s: float) -> None:
        """Waits so long, in all, for what is under way."""
        until = time.monotonic() + wait_s
        for lane in self.lanes:
            late = lane.wait(max(0.0, until - time.monotonic()))
            if late:
                lane.how.say(f"{os.path.basename(late)} has not arrived at {lane.target.url}, and is given up")
            with suppress(Exception):
                lane.close()
