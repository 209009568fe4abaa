"""Writing: atomic files, shards of what was asked for, and a commit that believes nobody."""

import errno
import hashlib
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import ckpt_store as store
import pytest
import xxhash

from rankpulse.trainer.checkpoint import reader, writer
from rankpulse.trainer.checkpoint.division import divide
from rankpulse.trainer.checkpoint.errors import ForeignShard, NotCovered, ShardMissing, StateRefused, Truncated
from rankpulse.trainer.checkpoint.files import Files
from rankpulse.trainer.checkpoint.manifest import MANIFEST, Shard, ShardManifest

ID = store.SAVE_ID


class Telling(Files):
    """The names of the calls, in order."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def __getattribute__(self, name: str) -> object:
        if name in ("mkdir", "create", "write", "fsync", "close", "rename", "unlink", "rmdir", "sync_dir"):
            self.calls.append(name)
        return super().__getattribute__(name)


class Crumbs(store.Quick):
    """A disk that takes three bytes at a time."""

    def write(self, fd: int, data: memoryview) -> int:
        return super().write(fd, data[:3])


def test_a_file_is_forced_then_named_then_its_name_is_forced(tmp_path: Path) -> None:
    files = Telling()
    written = writer.write_file(files, str(tmp_path / "f"), [b"ab", b"", memoryview(b"cd")])
    assert files.calls == ["create", "write", "write", "fsync", "close", "rename", "sync_dir"]
    assert (tmp_path / "f").read_bytes() == b"abcd"
    assert written == writer.Written(4, hashlib.sha256(b"abcd").hexdigest(), xxhash.xxh3_128_hexdigest(b"abcd"))


def test_the_atomic_writer_replaces_a_file_and_clears_what_a_killed_one_left(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"old")
    (tmp_path / ".f.tmp").write_bytes(b"half")
    writer.write_file(store.Quick(), str(tmp_path / "f"), [b"new"])
    assert (tmp_path / "f").read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["f"]


def test_a_file_whose_bytes_cannot_be_made_leaves_the_old_one(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"old")

    def parts() -> Iterator[bytes]:
        yield b"new"
        raise RuntimeError("the device is gone")

    with pytest.raises(RuntimeError):
        writer.write_file(store.Quick(), str(tmp_path / "f"), parts())
    assert (tmp_path / "f").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["f"]


def test_a_disk_that_takes_little_at_a_time_gets_all(tmp_path: Path) -> None:
    path = store.save(Crumbs(), str(tmp_path), 5)
    store.assert_of_one_save(path, reader.verify(path))


def test_large_parts_are_written_in_pieces_and_never_held_twice(tmp_path: Path) -> None:
    sizes: list[int] = []

    class Measuring(store.Quick):
        def write(self, fd: int, data: memoryview) -> int:
            sizes.append(len(data))
            return super().write(fd, data)

    part = bytes(2 * writer.PIECE + 5)
    written = writer.write_file(Measuring(), str(tmp_path / "f"), [part])
    assert sizes == [writer.PIECE, writer.PIECE, 5]
    assert written.sha256 == hashlib.sha256(part).hexdigest()


def test_entries_are_asked_for_one_after_the_other_while_they_are_written(tmp_path: Path) -> None:
    order: list[str] = []

    class Noting(store.Quick):
        def write(self, fd: int, data: memoryview) -> int:
            order.append(f"write {len(data)}")
            return super().write(fd, data)

    def entry(name: str, dtype: str) -> writer.Entry:
        def data() -> Iterator[memoryview]:
            order.append(name)
            yield memoryview(bytes(8))

        return writer.Entry(name, dtype, (8,) if dtype == "U8" else (2,), data)

    attempt = writer.begin(store.Quick(), str(tmp_path), 5, ID)
    writer.write_shard(
        Noting(), attempt, rank=0, world_size=1, step=5, save_id=ID, entries=[entry("a", "U8"), entry("b", "F32")]
    )
    assert order[1:] == ["b", "write 8", "a", "write 8"]  # the wider dtype first: all lie aligned


def test_an_entry_that_gives_another_number_of_bytes_is_a_mistake_that_is_named(tmp_path: Path) -> None:
    attempt = writer.begin(store.Quick(), str(tmp_path), 5, ID)
    entry = writer.Entry("a", "F32", (2,), lambda: [memoryview(b"1234")])
    with pytest.raises(StateRefused, match="'a' gave 4 bytes, its dtype and shape say 8"):
        writer.write_shard(store.Quick(), attempt, rank=0, world_size=1, step=5, save_id=ID, entries=[entry])
    assert os.listdir(attempt) == []


def test_no_name_of_an_attempt_is_used_twice(tmp_path: Path) -> None:
    path = store.save(store.Quick(), str(tmp_path), 5)
    with pytest.raises(FileExistsError):
        writer.begin(store.Quick(), str(tmp_path), 5, ID)
    with pytest.raises(FileExistsError, match="never changes a checkpoint"):
        writer.commit(store.Quick(), path, reader.read_manifest(path))


def test_an_attempt_that_is_not_seen_here_asks_for_a_shared_directory(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="shared by all nodes"):
        writer.write_shard(
            store.Quick(), str(tmp_path / "nowhere"), rank=0, world_size=1, step=5, save_id=ID, entries=[]
        )


def an_attempt(directory: Path) -> tuple[str, ShardManifest]:
    """All shards of a save of two ranks, not committed."""
    attempt = writer.begin(store.Quick(), str(directory), 5, ID)
    division = divide(store.held(2))
    shards: list[Shard] = []
    for rank in range(2):
        entries = store.entries_of(division, rank, ID)
        shards.append(
            writer.write_shard(
                store.Quick(), attempt, rank=rank, world_size=2, step=5, save_id=ID, entries=entries,
                ranges=division.ranges[rank], boxes=division.boxes[rank], own=True,
            )
        )  # fmt: skip
    return attempt, store.manifest_of(division, shards, 5, ID, 2)


def refused(attempt: str, manifest: ShardManifest, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        writer.commit(store.Quick(), attempt, manifest)
    assert not os.path.exists(os.path.join(attempt, MANIFEST))
    assert reader.scan(os.path.dirname(attempt)).partial == (attempt,)


def test_a_commit_looks_at_every_shard(tmp_path: Path) -> None:
    attempt, manifest = an_attempt(tmp_path)
    path = os.path.join(attempt, manifest.shards[1].path)
    data = Path(path).read_bytes()
    without = replace(manifest, shards=(manifest.shards[0], replace(manifest.shards[1], ranges=())))
    refused(attempt, without, NotCovered, "is in no shard")
    twice = replace(manifest, shards=(manifest.shards[0], replace(manifest.shards[0], rank=1)))
    refused(attempt, twice, NotCovered, "in more than one shard")
    refused(attempt, replace(manifest, step=6), ForeignShard, "expected step 6, found 5")
    refused(attempt, replace(manifest, save_id="0" * 8), ForeignShard, "expected save_id 00000000")
    Path(path).write_bytes(data[:-1])
    refused(attempt, manifest, Truncated, "shard-00001")
    os.unlink(path)
    refused(attempt, manifest, ShardMissing, "shared by all nodes")
    Path(path).write_bytes(data)
    writer.commit(store.Quick(), attempt, manifest)
    store.assert_of_one_save(attempt, reader.verify(attempt))


def test_a_state_that_a_manifest_cannot_tell_is_refused_and_not_committed(tmp_path: Path) -> None:
    attempt, manifest = an_attempt(tmp_path)
    refused(attempt, replace(manifest, run_id="x" * 2000), StateRefused, "run_id, a text of at most 1024")
    refused(attempt, replace(manifest, values={"a": float("nan")}), StateRefused, "JSON")


def test_abandon_leaves_nothing_of_ours_and_never_raises(tmp_path: Path) -> None:
    attempt, _ = an_attempt(tmp_path)
    writer.abandon(store.Quick(), attempt)
    assert os.listdir(tmp_path) == []
    writer.abandon(store.Quick(), attempt)

    class Stuck(store.Quick):
        def unlink(self, path: str) -> None:
            raise OSError(errno.EIO, "stuck")

    attempt, _ = an_attempt(tmp_path)
    writer.abandon(Stuck(), attempt)
    assert reader.scan(str(tmp_path)).partial == (attempt,)


def test_directories_above_are_made_and_their_names_forced(tmp_path: Path) -> None:
    files = Telling()
    writer.begin(files, str(tmp_path / "a" / "b"), 5, ID)
    assert files.calls == ["mkdir", "sync_dir"] * 3
