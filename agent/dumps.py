"""Full dumps of the ranks on this node's disk: written beside the answer, the oldest going first, fetched by name."""

import gzip
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from rankpulse.agent.folder import Folder
from rankpulse.core.codec import Refused
from rankpulse.core.dossier import Dump
from rankpulse.core.look_evidence import CHUNK_MAX, DUMP_MAX, Chunk, Fetch
from rankpulse.core.words import printable

NODE: Final = -1  # in place of a rank: of the machine
_SUFFIX: Final = ".json.gz"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,150}")
_OURS: Final = re.compile(r"[A-Za-z0-9-]+\.[A-Za-z0-9-]*\.(node|rank\d+)\.json\.gz(\.tmp)?")
_UNFIT: Final = re.compile(r"[^A-Za-z0-9-]+")


@dataclass(slots=True)
class Dumps:
    """At most `keep` of them, of `keep_bytes` together. `folder` None: there is no place for any."""

    folder: Folder | None
    keep: int
    keep_bytes: int

    def write(self, stamp: str, order_id: str, contents: dict[int, dict[str, Any]]) -> list[Dump]:
        """One for each rank. Raises OSError."""
        if self.folder is None or not self.keep:
            return []
        told = []
        try:
            for rank, content in contents.items():
                data = packed(content)
                name = name_of(stamp, order_id, rank)
                self.folder.write(name, data)
                told.append(Dump(rank, name, len(data)))
        finally:  # also on a disk that is full: what is old makes room for the next
            self._rotate()
        left = set(self.folder.names())
        return [dump for dump in told if dump.name in left]

    def named(self, stamp: str, order_id: str, ranks: Iterable[int]) -> list[Dump]:
        """What `write` would leave, its size not known yet."""
        wanted = self.folder is not None and self.keep > 0
        return [Dump(rank, name_of(stamp, order_id, rank), 0) for rank in ranks] if wanted else []

    def piece(self, about: Fetch) -> Chunk:
        """Raises `Refused` where there is no such dump (any more)."""
        if self.folder is None or not about.name.endswith(_SUFFIX) or not _NAME.fullmatch(about.name):
            raise Refused(f"no dump {printable(about.name, 160)}")
        try:
            data = self.folder.read(about.name, DUMP_MAX)
        except OSError as error:
            raise Refused(f"dump {printable(about.name, 160)}: {error.strerror}") from None
        part = data[about.offset : about.offset + CHUNK_MAX]
        return Chunk(name=about.name, size=len(data), offset=min(about.offset, len(data)), data=part)

    def _rotate(self) -> None:
        """The newest stay. A draft that was never finished goes, too. What others keep in that directory is theirs."""
        assert self.folder is not None
        total = 0
        ours = filter(_OURS.fullmatch, self.folder.names())
        ages = sorted(((self._written(name), name) for name in ours), reverse=True)
        for count, ((_, size), name) in enumerate(ages):
            total += size
            if count >= self.keep or total > self.keep_bytes or not name.endswith(_SUFFIX):
                self.folder.remove(name)

    def _written(self, name: str) -> tuple[int, int]:
        assert self.folder is not None
        try:
            info = os.stat(name, dir_fd=self.folder.fd, follow_symlinks=False)
        except OSError:
            return 0, 0
        return info.st_mtime_ns, info.st_size


def name_of(stamp: str, order_id: str, rank: int) -> str:
    """Of what order, of which rank; unlike any before it by its time."""
    whose = "node" if rank == NODE else f"rank{rank}"
    return f"{_UNFIT.sub('-', stamp)}.{_UNFIT.sub('-', order_id)[:80]}.{whose}{_SUFFIX}"


def packed(content: dict[str, Any]) -> bytes:
    """As it lies on disk, without its trace where that makes it too large to be fetched."""
    data = gzip.compress(msgspec.json.encode(content), compresslevel=1)
    if len(data) > DUMP_MAX:
        content = {**content, "flight_recorder": "left out: too large"}
        data = gzip.compress(msgspec.json.encode(content), compresslevel=1)
    return data if len(data) <= DUMP_MAX else gzip.compress(b'"left out: too large"')
