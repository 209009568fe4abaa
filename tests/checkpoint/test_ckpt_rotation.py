"""Making room: never the last one that is known to be sound, never half of one, never what is not ours."""

import errno
import os
from pathlib import Path

import ckpt_store as store
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankpulse.trainer.checkpoint import reader, rotation
from rankpulse.trainer.checkpoint.errors import Damaged, NewerSchema
from rankpulse.trainer.checkpoint.manifest import MANIFEST, Shard, ShardManifest
from rankpulse.trainer.checkpoint.reader import Found
from rankpulse.trainer.checkpoint.rotation import surplus


def found(step: int, size: int = 10) -> Found:
    shard = Shard(0, "shard-00000.safetensors", size, "0" * 64, "0" * 32)
    manifest = ShardManifest("sharded", step, 1, "0" * 8, 1.0, (), (shard,))
    return Found(str(step), step, "0" * 8, manifest)


def bad(step: int, newer: bool = False) -> Found:
    return Found(str(step), step, "0" * 8, refused=NewerSchema("p") if newer else Damaged("p"))


FIVE = [found(step) for step in (5, 4, 3, 2, 1)]


@pytest.mark.parametrize(
    ("committed", "keep", "verified", "free", "needed", "gone"),
    [
        (FIVE, 2, "5", 0, 0, ["1", "2", "3"]),
        (FIVE, 9, "5", 0, 0, []),
        (FIVE, 0, "5", 0, 0, ["1", "2", "3", "4"]),
        (FIVE, 1, "3", 0, 0, ["1", "2", "4"]),  # the newest stays, and the newest that is known to be sound
        (FIVE, 2, "1", 0, 0, ["2", "3"]),
        (FIVE, 2, "", 0, 999, []),  # nothing is known to be sound: nothing goes
        (FIVE, 2, "7", 0, 999, []),
        (FIVE, 3, "5", 0, 30, ["1", "2", "3"]),  # too little space: more of the oldest
        (FIVE, 3, "5", 0, 999, ["1", "2", "3", "4"]),
        (FIVE, 3, "3", 0, 999, ["1", "2", "4", "5"]),
        ([], 1, "", 0, 9, []),
        ([bad(5), found(4), bad(3), found(2), bad(1)], 2, "4", 0, 0, ["1"]),
        ([bad(5), found(4), bad(3), found(2), bad(1)], 1, "4", 0, 0, ["1", "2", "3"]),
        ([bad(5), found(4), bad(3)], 1, "4", 0, 9, ["3", "5"]),
        ([found(4), bad(3, newer=True), found(2)], 1, "4", 0, 999, ["2"]),
        ([bad(5), found(4), found(3), found(2)], 2, "4", 0, 999, ["2", "5", "3"]),  # the damaged before the sound ones
    ],
)
def test_what_goes(committed: list[Found], keep: int, verified: str, free: int, needed: int, gone: list[str]) -> None:
    assert list(surplus(committed, keep=keep, verified=verified, free=free, needed=needed)) == gone


@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 50)), max_size=8),
    st.integers(-1, 5), st.integers(0, 9), st.integers(0, 200), st.integers(0, 300),
)  # fmt: skip
def test_the_last_sound_one_always_stays(
    kinds: list[tuple[bool, int]], keep: int, pick: int, free: int, needed: int
) -> None:
    committed = [found(100 - n, size) if sound else bad(100 - n) for n, (sound, size) in enumerate(kinds)]
    known = [one.path for one in committed if not one.refused]
    verified = known[pick % len(known)] if known else ""
    gone = surplus(committed, keep=keep, verified=verified, free=free, needed=needed)
    assert verified not in gone
    assert len(set(gone)) == len(gone)
    left = [one for one in committed if one.path not in gone]
    if not verified:
        assert left == committed
    elif free >= needed:
        assert {one.path for one in committed if not one.refused} >= {one.path for one in left if one.manifest}
        assert [one.path for one in left if not one.refused][: max(1, keep)] == known[: max(1, keep)]


def saved(directory: Path, *steps: int) -> dict[int, str]:
    return {step: store.save(store.Quick(), str(directory), step, f"{step:08x}") for step in steps}


def spoil(path: str) -> None:
    shard = Path(path, "shard-00000.safetensors")
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)


def test_room_is_made_and_the_known_one_stays(tmp_path: Path) -> None:
    paths = saved(tmp_path, 1, 2, 3, 4)
    room = rotation.make_room(store.Quick(), str(tmp_path), keep=1, verified=[paths[2]], needed=0)
    assert room == rotation.Room((paths[1], paths[3]), paths[2])
    assert store.names(str(tmp_path)) == [os.path.basename(paths[4]), os.path.basename(paths[2])]


def test_when_none_is_known_the_newest_that_verifies_is_looked_for_first(tmp_path: Path) -> None:
    paths = saved(tmp_path, 1, 2, 3)
    spoil(paths[3])
    room = rotation.make_room(store.Quick(), str(tmp_path), keep=1, verified=[], needed=0)
    assert room.verified == paths[2]
    assert room.removed == (paths[1],)


def test_what_is_known_to_be_damaged_is_not_counted_among_the_kept(tmp_path: Path) -> None:
    paths = saved(tmp_path, 1, 2, 3, 4, 5)
    room = rotation.make_room(
        store.Quick(), str(tmp_path), keep=2, verified=[paths[3]], needed=0, damaged=[paths[4], paths[5]]
    )
    assert (room.removed, room.verified) == ((paths[1],), paths[3])
    assert len(reader.scan(str(tmp_path)).committed) == 4
    assert reader.count(str(tmp_path)) == 4


def test_the_newest_is_looked_at_before_it_goes_for_want_of_space(tmp_path: Path) -> None:
    """Saves that nobody reads back: work is not thrown away for one that is old, but verified."""
    paths = saved(tmp_path, 1, 2, 3)
    room = rotation.make_room(store.Quick(), str(tmp_path), keep=1, verified=[paths[1]], needed=2**62)
    assert (room.removed, room.verified) == ((paths[1], paths[2]), paths[3])


def test_when_none_verifies_none_goes(tmp_path: Path) -> None:
    paths = saved(tmp_path, 1, 2, 3)
    for path in paths.values():
        spoil(path)
    room = rotation.make_room(store.Quick(), str(tmp_path), keep=1, verified=[], needed=2**62)
    assert (room.removed, room.verified) == ((), "")
    assert room.short > 0
    assert len(reader.scan(str(tmp_path)).committed) == 3


def test_a_disk_too_small_for_anything_keeps_the_last_sound_one(tmp_path: Path) -> None:
    paths = saved(tmp_path, 1, 2, 3)
    room = rotation.make_room(store.Quick(), str(tmp_path), keep=3, verified=[paths[3]], needed=2**62)
    assert room.removed == (paths[1], paths[2])
    assert room.short > 0
    reader.verify(paths[3])


def test_a_checkpoint_that_cannot_be_removed_is_told_and_is_never_half_a_one(tmp_path: Path) -> None:
    paths = saved(tmp_path, 1, 2, 3)

    class Stuck(store.Quick):
        def unlink(self, path: str) -> None:
            if path.endswith("shard-00000.safetensors"):
                raise OSError(errno.EIO, "Input/output error")
            super().unlink(path)

    room = rotation.make_room(Stuck(), str(tmp_path), keep=1, verified=[paths[3]], needed=0)
    assert "cannot be removed: Input/output error" in room.failed
    listing = reader.scan(str(tmp_path))
    assert [one.path for one in listing.committed] == [paths[3]]
    assert listing.partial == (paths[1], paths[2])
    assert rotation.sweep(store.Quick(), str(tmp_path), 2**63 - 1) == listing.partial


def test_links_and_foreign_names_are_left_alone(tmp_path: Path) -> None:
    paths = saved(tmp_path / "c", 1, 2)
    outside = tmp_path / "outside"
    outside.write_text("mine")
    Path(paths[1], "notes.txt").write_text("mine")
    os.symlink(outside, Path(paths[1], "shard-00009.safetensors"))
    os.symlink(paths[2], tmp_path / "c" / "step-00000009-0000000a")
    rotation.remove(store.Quick(), paths[1])
    rotation.remove(store.Quick(), str(tmp_path / "c" / "step-00000009-0000000a"))
    assert outside.read_text() == "mine"
    assert os.listdir(paths[1]) == ["notes.txt"]
    reader.verify(paths[2])


def test_attempts_are_swept_by_the_age_that_the_file_system_tells(tmp_path: Path) -> None:
    paths = saved(tmp_path, 1, 2, 3)
    old, young = paths[1], paths[2]
    for path in (old, young):
        os.unlink(os.path.join(path, MANIFEST))
    (tmp_path / ".rankpulse-0000000a.probe").write_text("")
    (tmp_path / "notes").mkdir()
    now = rotation.probe(store.Quick(), str(tmp_path), "0000000b")
    for path in (old, tmp_path / ".rankpulse-0000000a.probe"):
        for name in [path, *(Path(path).iterdir() if os.path.isdir(path) else [])]:
            os.utime(name, ns=(now - 10**9, now - 10**9))
    os.utime(young, ns=(now - 10**9, now - 10**9))  # but its shards are as young as the probe
    for name in Path(young).iterdir():
        os.utime(name, ns=(now, now))
    assert rotation.sweep(store.Quick(), str(tmp_path), now) == (old,)
    assert sorted(os.listdir(tmp_path)) == sorted([os.path.basename(young), os.path.basename(paths[3]), "notes"])


def test_what_is_set_aside_is_kept_for_people_and_never_loaded(tmp_path: Path) -> None:
    paths = saved(tmp_path, 1, 2)
    aside = rotation.set_aside(store.Quick(), paths[2], "the loss is not a number")
    listing = reader.scan(str(tmp_path))
    assert [one.step for one in listing.committed] == [1]
    assert listing.aside == (aside,)
    assert Path(aside, "reason.txt").read_text() == "the loss is not a number\n"
    assert Path(aside, "manifest.aside.json").exists()
    assert not Path(aside, MANIFEST).exists()


def test_setting_aside_needs_no_space_but_for_the_reason(tmp_path: Path) -> None:
    class Full(store.Quick):
        def create(self, path: str) -> int:
            raise OSError(errno.ENOSPC, "no space")

    aside = rotation.set_aside(Full(), saved(tmp_path, 2)[2], "why")
    assert reader.scan(str(tmp_path)) == reader.Listing(aside=(aside,))


def test_what_somebody_else_removes_too_is_no_trouble(tmp_path: Path) -> None:
    paths = saved(tmp_path, 1, 2, 3)

    class Both(store.Quick):
        """Another remover is there first."""

        def unlink(self, path: str) -> None:
            super().unlink(path)
            super().unlink(path)

    room = rotation.make_room(Both(), str(tmp_path), keep=1, verified=[paths[3]], needed=0)
    assert (room.failed, room.verified) == ("", paths[3])
