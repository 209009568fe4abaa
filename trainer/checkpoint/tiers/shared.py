"""The shared directory as a place that is brought to: what lies there is what a save without a fast tier would leave.

A file gets its name when it was written, forced to the disk and read back, and what is read back must be what the
manifest says. So when all have their names, the checkpoint is as verified as one that was saved there.
"""

import errno
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Final

from rankpulse.trainer.checkpoint import reader, rotation, writer
from rankpulse.trainer.checkpoint.errors import CheckpointError, ChecksumDiffers, Refused, ShardMissing
from rankpulse.trainer.checkpoint.files import Files
from rankpulse.trainer.checkpoint.manifest import MANIFEST, Shard, ShardManifest
from rankpulse.trainer.checkpoint.opened import Opened
from rankpulse.trainer.checkpoint.target import PIECE, Copy
from rankpulse.trainer.checkpoint.writer import Written

QUIET_S: Final = 300.0  # one grows to be seen while it is written: this is for a node that is gone
LEAD: Final = ".rankpulse-bringing"


class SharedPlace:
    """Methods raise OSError and CheckpointError, and may take as long as the file system takes."""

    def __init__(self, directory: str, files: Files, keep: int) -> None:
        self.url = self.place = directory
        self._files, self._keep = files, keep
        self._manifests: dict[str, ShardManifest] = {}
        self._verified: set[str] = set()
        self.oldest = -1  # the earliest step that is there, as of the last one that was brought

    def copies(self) -> list[Copy]:
        """The complete ones, newest step first."""
        found = []
        for one in reader.scan(self.url).committed:
            if one.manifest and self._whole(one.path, one.manifest):
                files = {shard.path: shard.bytes for shard in one.manifest.shards}
                files[MANIFEST] = os.path.getsize(os.path.join(one.path, MANIFEST))
                found.append(Copy(os.path.basename(one.path), one.step, files))
        return found

    def _whole(self, path: str, manifest: ShardManifest) -> bool:
        arrived = self.arrived(os.path.basename(path))
        return all(arrived.get(shard.path) == shard.bytes for shard in manifest.shards)

    def arrived(self, name: str) -> dict[str, int]:
        return {file: size for file, size in self.moving(name).items() if not file.startswith(".")}

    def moving(self, name: str) -> dict[str, int]:
        """What has arrived, and how far others have come: bytes by name."""
        sizes: dict[str, int] = {}
        with suppress(FileNotFoundError):
            for entry in os.scandir(os.path.join(self.url, name)):
                with suppress(FileNotFoundError):  # it got its name, or was given up
                    sizes[entry.name] = entry.stat(follow_symlinks=False).st_size
        return sizes

    def lead(self, name: str, nbytes: int) -> None:
        """Node 0 begins to bring this one, where there is room for so many bytes. All other nodes follow."""
        writer.ensure(self._files, self.url)
        if name not in {os.path.basename(found.path) for found in reader.scan(self.url).committed}:
            self._make_room(nbytes)
        self._made(name)
        writer.write_file(self._files, os.path.join(self.url, LEAD), [name.encode()])

    def led(self) -> str:
        """The name at which node 0 is, "" when that cannot be told."""
        with suppress(OSError), open(os.path.join(self.url, LEAD), encoding="ascii", errors="replace") as file:
            return file.read(256)
        return ""

    def _make_room(self, nbytes: int) -> None:
        room = rotation.make_room(
            self._files, self.url, keep=max(1, self._keep - 1), verified=self._verified, needed=nbytes
        )
        if room.short:
            raise OSError(errno.ENOSPC, f"{room.short} bytes more are needed than there are", self.url)

    def _made(self, name: str) -> None:
        with suppress(FileExistsError):
            self._files.mkdir(os.path.join(self.url, name))
            self._files.sync_dir(self.url)

    def put(self, name: str, local: str, may_go_on: Callable[[], bool] = lambda: True) -> None:
        """Bring one file there. `may_go_on`: asked before each piece; InterruptedError when it says no."""
        file = os.path.basename(local)
        self._made(name)
        to = os.path.join(self.url, name, file)

        def pieces() -> Iterator[bytes]:
            with open(local, "rb") as source:
                while piece := source.read(PIECE):
                    if not may_go_on():
                        raise InterruptedError(f"{to} was given up")
                    yield piece

        check = self._check(os.path.dirname(local), file)
        writer.write_file(self._files, to, pieces(), check)

    def _check(self, here: str, file: str) -> Callable[[str, Written], None]:
        if file == MANIFEST:
            return lambda temporary, written: None  # it is its own check
        shard = self._shard(here, file)

        def check(temporary: str, written: Written) -> None:
            if written.xxh3 != shard.xxh3:
                raise ChecksumDiffers(os.path.join(here, file), shard.xxh3, written.xxh3)
            directory, name = os.path.split(temporary)
            reader.verify_bytes(directory, Shard(shard.rank, name, shard.bytes, shard.sha256, shard.xxh3))

        return check

    def _shard(self, here: str, file: str) -> Shard:
        if here not in self._manifests:
            self._manifests = {here: reader.read_manifest(here)}
        found = next((shard for shard in self._manifests[here].shards if shard.path == file), None)
        if found is None:
            raise ShardMissing(os.path.join(here, file))
        return found

    def commit(self, name: str, files: Mapping[str, int]) -> None:
        """The manifest has made it a checkpoint."""
        self._verified = {os.path.join(self.url, name)}

    def names(self) -> list[str]:
        """What was begun here and never became a checkpoint."""
        return [os.path.basename(path) for path in reader.attempts(self.url)]

    def remove(self, name: str) -> None:
        rotation.remove(self._files, os.path.join(self.url, name))

    def thin_out(self, name: str, keep: int) -> None:
        """After a commit: so many stay, and the one that was brought."""
        rotation.make_room(self._files, self.url, keep=keep, verified=self._verified, needed=0)
        sound = [found.step for found in reader.scan(self.url).committed if not found.refused]
        self.oldest = min(sound, default=-1)

    def withdraw(self, name: str) -> bool:
        """Set it aside: it is kept for people and never loaded. Whether it was a checkpoint."""
        path = os.path.join(self.url, name)
        if not os.path.lexists(os.path.join(path, MANIFEST)):
            return False
        rotation.set_aside(self._files, path, "to resume before its step, as was asked")
        return True

    def withdrawn(self, name: str) -> bool:
        return os.path.isdir(os.path.join(self.url, reader.ASIDE + name))

    def pieces(self, copy: Copy, file: str) -> Iterator[bytes]:
        try:
            with Opened(os.path.join(self.url, copy.name, file)) as source:
                for offset in range(0, source.nbytes, PIECE):
                    yield source.read(offset, min(PIECE, source.nbytes - offset))
        except Refused as refused:
            raise CheckpointError(str(refused)) from None
