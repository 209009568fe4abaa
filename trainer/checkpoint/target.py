"""A second place for checkpoints, by fsspec: another directory, object storage. What is there, brought there, fetched.

A copy has the name and the files of the checkpoint, and `upload.json`, written last: without it, or where a file has
not the size that it says, there is no copy. Whether the bytes are those that were saved is for the load to verify.
fsspec is imported when a target is made (rankpulse[durable]).
"""

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from rankpulse.trainer.checkpoint import strictjson as strict
from rankpulse.trainer.checkpoint.errors import CheckpointError
from rankpulse.trainer.checkpoint.manifest import MANIFEST

UPLOAD: Final = "upload.json"
LEAD: Final = "bringing.json"
ASIDE_UPLOAD: Final = "upload.aside.json"  # what is called so was a copy, and is kept for people alone
UPLOAD_SCHEMA: Final = 1
PIECE: Final = 8 << 20  # bytes at once
_MAX_BYTES: Final = 64 << 20  # of upload.json
_NAME: Final = re.compile(r"step-([0-9]{8,19})-[0-9a-f]{8,32}")
_FILE: Final = re.compile(r"manifest\.json|shard-[0-9]{5,7}\.safetensors")


class TargetMissing(CheckpointError):
    """A durable target cannot be used at all: its address is none that fsspec knows, or fsspec is not installed."""


@dataclass(frozen=True, slots=True)
class Copy:
    """A complete copy: bytes by name of its files."""

    name: str
    step: int
    files: Mapping[str, int]


class Target:
    """One target. Methods raise what its file system raises (OSError, mostly), and may take as long as that takes."""

    def __init__(self, url: str) -> None:
        self.url = url
        try:
            import fsspec

            self._fs, self._root = fsspec.core.url_to_fs(url)
        except ImportError as error:
            raise TargetMissing(
                f"{url}: {error}: pip install 'rankpulse[durable]' and what this address needs"
            ) from None
        except (ValueError, TypeError) as error:
            raise TargetMissing(f"{url} is no address that fsspec knows: {error}") from None

    @property
    def place(self) -> str:
        """The same for two addresses of one place."""
        kinds = [self._fs.protocol] if isinstance(self._fs.protocol, str) else [*self._fs.protocol]
        return os.path.realpath(self._root) if "file" in kinds else f"{kinds[0]}://{self._root.rstrip('/')}"

    def copies(self) -> list[Copy]:
        """The complete ones, newest step first."""
        names = [name for name in self._listed(self._root) if _NAME.fullmatch(name)]
        found = [copy for name in names if (copy := self._copy(name)) is not None]
        return sorted(found, key=lambda copy: (copy.step, copy.name), reverse=True)

    def arrived(self, name: str) -> dict[str, int]:
        """What is there of a checkpoint: bytes by name."""
        return self._listed(self._path(name))

    def moving(self, name: str) -> dict[str, int]:
        """What of it tells that somebody still brings it: an object appears when it is whole."""
        return self.arrived(name)

    def lead(self, name: str, nbytes: int) -> None:
        """Node 0 begins to bring this one, of so many bytes. All other nodes follow it: else some might bring a newer
        one, and neither would ever be whole."""
        self._fs.makedirs(self._root, exist_ok=True)
        with self._fs.open(self._path(LEAD), "wb") as into:
            into.write(json.dumps({"name": name}).encode())

    def led(self) -> str:
        """The name at which node 0 is, "" when that cannot be told."""
        with suppress(OSError, strict.Unfit):
            said = strict.members(strict.parsed(self._fs.cat_file(self._path(LEAD))), LEAD).get("name")
            return said if isinstance(said, str) else ""
        return ""

    def put(self, name: str, local: str, may_go_on: Callable[[], bool] = lambda: True) -> None:
        """Bring one file there. `may_go_on`: asked before each piece; InterruptedError when it says no."""
        self._fs.makedirs(self._path(name), exist_ok=True)
        to = self._path(name, os.path.basename(local))
        with open(local, "rb") as source, self._fs.open(to, "wb") as into:
            while piece := source.read(PIECE):
                if not may_go_on():
                    raise InterruptedError(f"{to} was given up")
                into.write(piece)

    def commit(self, name: str, files: Mapping[str, int]) -> None:
        """Makes what is there a copy. All of `files` have arrived."""
        said = {"schema_version": UPLOAD_SCHEMA, "name": name, "files": dict(files)}
        with self._fs.open(self._path(name, UPLOAD), "wb") as into:
            into.write(json.dumps(said, separators=(",", ":")).encode())

    def thin_out(self, name: str, keep: int) -> None:
        """After a commit: so many copies stay, and the one that was brought."""
        copies = [copy.name for copy in self.copies()]
        for other in copies[max(1, keep) :]:
            if other != name:
                self.remove(other)

    def withdraw(self, name: str) -> bool:
        """It is no copy any more, and stays for people to look at. Whether it was one."""
        if UPLOAD not in self.arrived(name):
            return False
        said = self._fs.cat_file(self._path(name, UPLOAD))
        with self._fs.open(self._path(name, ASIDE_UPLOAD), "wb") as into:
            into.write(said)
        self._fs.rm_file(self._path(name, UPLOAD))
        return True

    def withdrawn(self, name: str) -> bool:
        return ASIDE_UPLOAD in self.arrived(name)

    def pieces(self, copy: Copy, file: str) -> Iterator[bytes]:
        """The bytes of one file of a copy."""
        with self._fs.open(self._path(copy.name, file), "rb") as source:
            while piece := source.read(PIECE):
                yield piece

    def remove(self, name: str) -> None:
        """First what makes it a copy, then the rest: never is half of one taken for a whole one."""
        with suppress(FileNotFoundError):
            self._fs.rm_file(self._path(name, UPLOAD))
        for file in self._listed(self._path(name)):
            if _FILE.fullmatch(file):
                self._fs.rm_file(self._path(name, file))
        with suppress(OSError):  # object storage has no directories; what is not ours keeps one
            self._fs.rmdir(self._path(name))

    def names(self) -> list[str]:
        """All that may be copies, or were to become ones."""
        return [name for name in self._listed(self._root) if _NAME.fullmatch(name)]

    def _path(self, *parts: str) -> str:
        return "/".join((self._root.rstrip("/"), *parts))

    def _listed(self, path: str) -> dict[str, int]:
        """Bytes by name; nothing where there is no such directory."""
        self._fs.invalidate_cache()  # others write there
        try:
            rows = self._fs.ls(path, detail=True)
        except FileNotFoundError:
            return {}
        return {str(row["name"]).rstrip("/").rsplit("/", 1)[-1]: int(row.get("size") or 0) for row in rows}

    def _copy(self, name: str) -> Copy | None:
        arrived = self.arrived(name)
        if not 0 < arrived.get(UPLOAD, 0) <= _MAX_BYTES:
            return None
        try:
            files = _files(self._fs.cat_file(self._path(name, UPLOAD)), name)
        except (OSError, strict.Unfit):
            return None
        if any(arrived.get(file) != size for file, size in files.items()):
            return None
        return Copy(name, step_of(name), files)


def step_of(name: str) -> int:
    said = _NAME.fullmatch(name)
    return int(said[1]) if said else -1


def _files(data: bytes, name: str) -> dict[str, int]:
    """What `upload.json` says of a copy by this name. Raises Unfit."""
    said: Any = strict.members(strict.parsed(data), UPLOAD)
    if said.get("schema_version") != UPLOAD_SCHEMA or said.get("name") != name:
        raise strict.Unfit(f"an upload of {name}", said.get("name"))
    files = strict.members(said.get("files"), "files")
    found = {file: strict.integer(size, "bytes") for file, size in files.items() if _FILE.fullmatch(file)}
    if len(found) != len(files) or MANIFEST not in found:
        raise strict.Unfit(f"files of a checkpoint with {MANIFEST}", sorted(files)[:3])
    return found
