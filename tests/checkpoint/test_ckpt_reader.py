"""Reading what is there: in which order, what is left out, and each file for what it is."""

import os
import resource
import shutil
from pathlib import Path

import ckpt_store as store
import pytest

from rankpulse.trainer.checkpoint import reader
from rankpulse.trainer.checkpoint.errors import (
    Damaged,
    ManifestInvalid,
    NothingVerified,
    Refused,
    ShardMissing,
    Truncated,
)
from rankpulse.trainer.checkpoint.manifest import CONSOLIDATED, MANIFEST


def test_the_newest_step_comes_first_and_of_two_at_one_step_the_later(tmp_path: Path) -> None:
    for step, save_id in ((2, "0000000b"), (10, "0000000a"), (10, "0000000c"), (100_000_000, "0000000d")):
        store.save(store.Quick(), str(tmp_path), step, save_id)
    found = reader.scan(str(tmp_path)).committed
    assert [one.step for one in found] == [100_000_000, 10, 10, 2]
    assert [one.save_id for one in found][1:3] == ["0000000a", "0000000c"]
    assert all(one.manifest and one.nbytes for one in found)


def test_a_directory_that_is_not_there_is_empty_and_one_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    assert reader.scan(str(tmp_path / "none")) == reader.Listing()
    (tmp_path / "file").write_text("")
    with pytest.raises(NothingVerified, match="cannot be listed"):
        reader.scan(str(tmp_path / "file"))


def test_what_is_not_ours_or_no_checkpoint_is_told_apart(tmp_path: Path) -> None:
    whole = store.save(store.Quick(), str(tmp_path), 3)
    shutil.copytree(whole, tmp_path / "step-00000004-0000000a")
    shutil.copytree(whole, tmp_path / "aside-step-00000005-0000000a")
    os.unlink(tmp_path / "step-00000004-0000000a" / MANIFEST)
    os.symlink(whole, tmp_path / "step-00000006-0000000a")
    for name in ("step-7-0000000a", "step-00000007", "step-00000007-XYZ", "step-00000007-0000000a.tar", "latest"):
        os.mkdir(tmp_path / name)
    (tmp_path / "step-00000008-0000000a").write_text("a file")
    listing = reader.scan(str(tmp_path))
    assert [found.path for found in listing.committed] == [whole]
    assert listing.partial == (str(tmp_path / "step-00000004-0000000a"),)
    assert listing.aside == (str(tmp_path / "aside-step-00000005-0000000a"),)


@pytest.mark.parametrize("mode", [0o000, 0o444])
@pytest.mark.parametrize("which", ["checkpoint", "all"])
def test_what_cannot_be_looked_at_is_damaged_and_not_taken_for_an_attempt(
    tmp_path: Path, which: str, mode: int
) -> None:
    whole = store.save(store.Quick(), str(tmp_path / "all"), 3)
    closed = Path(whole) if which == "checkpoint" else tmp_path / "all"
    os.chmod(closed, mode)
    try:
        if os.access(closed, os.X_OK):
            pytest.skip("root looks at everything")
        if which == "all" and not mode:
            with pytest.raises(NothingVerified, match="cannot be listed"):
                reader.scan(str(tmp_path / "all"))
            return
        listing = reader.scan(str(tmp_path / "all"))
        assert reader.count(str(tmp_path / "all")) == 1
    finally:
        os.chmod(closed, 0o755)
    assert not listing.partial
    assert [(found.path, type(found.refused)) for found in listing.committed] == [(whole, Damaged)]


def test_one_bad_manifest_does_not_hide_the_others(tmp_path: Path) -> None:
    good, bad = store.save(store.Quick(), str(tmp_path), 3), store.save(store.Quick(), str(tmp_path), 4)
    (Path(bad) / MANIFEST).write_text("{}")
    first, second = reader.scan(str(tmp_path)).committed
    assert (first.path, first.step, first.manifest, first.nbytes) == (bad, 4, None, 0)
    assert isinstance(first.refused, ManifestInvalid)
    assert second.path == good
    found = store.newest_sound(str(tmp_path))
    assert found
    assert found[0] == good


@pytest.mark.parametrize("level", ["fast", "full"])
def test_progress_counts_every_byte_of_every_shard(tmp_path: Path, level: str) -> None:
    path = store.save(store.Quick(), str(tmp_path), 3)
    read: list[int] = []
    manifest = reader.verify(path, level, read.append)
    assert sum(read) == sum(shard.bytes for shard in manifest.shards)
    reader.verify_bytes(path, manifest.shards[0], level)


def test_an_unknown_level_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="fast"):
        reader.verify(store.save(store.Quick(), str(tmp_path), 3), "quick")


def test_a_consolidated_checkpoint_is_one_file_of_a_larger_world(tmp_path: Path) -> None:
    path = store.save(store.Quick(), str(tmp_path), 3, world=4, kind=CONSOLIDATED)
    manifest = reader.verify(path)
    assert (manifest.world_size, len(manifest.shards)) == (4, 1)
    store.assert_of_one_save(path, manifest)


def test_parts_of_an_entry_are_read_and_nothing_beyond_it(tmp_path: Path) -> None:
    path = store.save(store.Quick(), str(tmp_path), 3, world=1)
    manifest = reader.read_manifest(path)
    with reader.ShardFile(path, manifest, manifest.shards[0]) as file:
        out = bytearray(4)
        file.read_into("w", 20, memoryview(out))
        assert bytes(out) == store.content("w", 24, store.SAVE_ID)[20:]
        for start in (21, -1):
            with pytest.raises(ValueError, match="which has 24"):
                file.read_into("w", start, memoryview(out))
        file.read_into("w", 24, memoryview(bytearray()))
        with pytest.raises(KeyError):
            file.read("no")
        os.truncate(f"{path}/{manifest.shards[0].path}", 100)
        with pytest.raises(Truncated):
            file.read("w")


def test_no_checkpoint_at_all_says_so(tmp_path: Path) -> None:
    with pytest.raises(ManifestInvalid, match="this is no checkpoint"):
        reader.verify(str(tmp_path))
    path = store.save(store.Quick(), str(tmp_path), 3)
    os.unlink(f"{path}/shard-00001.safetensors")
    with pytest.raises(ShardMissing, match="shard-00001"):
        reader.verify(path)


def test_files_are_closed_whatever_happens(tmp_path: Path) -> None:
    path = store.save(store.Quick(), str(tmp_path), 3)
    manifest = reader.read_manifest(path)
    os.truncate(f"{path}/{manifest.shards[1].path}", 20)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with pytest.raises(Truncated):
            reader.verify(path)
        with pytest.raises(Truncated):
            reader.ShardFile(path, manifest, manifest.shards[1])
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_process_short_of_files_calls_no_checkpoint_damaged(tmp_path: Path) -> None:
    path = store.save(store.Quick(), str(tmp_path), 1)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        with pytest.raises(Refused, match="Too many open files") as refused:
            reader.read_manifest(path)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert not isinstance(refused.value, Damaged), "an older one is not to be tried"


def test_a_manifest_that_has_not_changed_is_read_once(tmp_path: Path) -> None:
    old, new = (store.save(store.Quick(), str(tmp_path), step) for step in (1, 2))
    memo: reader.Memo = {}
    first = reader.scan(str(tmp_path), memo).committed
    assert [(found.path, found.nbytes, found.refused) for found in first] == [
        (found.path, found.nbytes, found.refused) for found in reader.scan(str(tmp_path)).committed
    ]
    again = reader.scan(str(tmp_path), memo).committed
    assert all(one is other for one, other in zip(first, again, strict=True))
    Path(old, MANIFEST).write_bytes(b"{}")
    assert [bool(found.refused) for found in reader.scan(str(tmp_path), memo).committed] == [False, True]
    shutil.rmtree(new)
    reader.scan(str(tmp_path), memo)
    assert list(memo) == [old]
