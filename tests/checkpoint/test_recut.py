"""A checkpoint cut anew for another number of ranks: the same bytes for every tensor, whatever it was cut like."""

import json
import math
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recut_world import Tensor, box_bytes, boxes_of, flip, own_entries, save, tensor

from rankpulse.trainer.checkpoint import reader
from rankpulse.trainer.checkpoint.errors import ChecksumDiffers, Damaged
from rankpulse.trainer.checkpoint.files import Files
from rankpulse.trainer.checkpoint.manifest import CONSOLIDATED, DTYPE_BYTES, Box
from rankpulse.trainer.checkpoint.recut import CHUNK, Whole, box_runs, recut

STATE = {
    "model.w": tensor("F32", (33, 7)),
    "model.b": tensor("BF16", (13,)),
    "scalar": tensor("F64", ()),
    "none": tensor("F32", (0, 4)),
    "half": tensor("F16", (5, 3, 2)),
    "count": tensor("I64", (1,)),
    "flags": tensor("BOOL", (11,)),
    "odd [name]@0,0 rankpulse.own.0.x": tensor("U8", (9,)),
    "rankpulse.own.0.rng.torch": tensor("U8", (4,)),
}
CUT = {
    "rows": tensor("F32", (10, 6), cuts=(4, 1)),
    "columns": tensor("BF16", (6, 10), cuts=(1, 4)),
    "both": tensor("F32", (5, 7), cuts=(2, 2)),
    "middle": tensor("I16", (3, 8, 5), cuts=(1, 4, 1)),
    "plain": tensor("F32", (17,)),
}


def whole(path: str) -> dict[str, bytes]:
    """Every tensor of a checkpoint."""
    manifest = reader.read_manifest(path)
    with Whole(path, manifest) as found:
        return {
            spec.name: b"".join(bytes(part) for part in found.read(spec.name, 0, spec.numel))
            for spec in manifest.tensors
        }


def data(state: dict[str, Tensor]) -> dict[str, bytes]:
    return {name: one.data for name, one in state.items()}


def own(path: str, rank: int) -> dict[str, bytes]:
    with Whole(path, reader.read_manifest(path)) as found:
        return {one.key: b"".join(bytes(part) for part in one.data()) for one in found.own(rank)}


def own_of(rank: int) -> dict[str, bytes]:
    return {one.key: b"".join(bytes(part) for part in one.data()) for one in own_entries(rank)}


@pytest.mark.parametrize(("old", "new"), [(4, 8), (8, 4), (4, 3), (1, 5), (5, 1), (2, 2), (3, 40)])
def test_the_state_is_the_same_byte_for_byte(tmp_path: Path, old: int, new: int) -> None:
    path = save(tmp_path, STATE, old, values={"x": [1, None]}, step=77)
    done = recut(path, new, str(tmp_path / "out"))
    before, after = reader.verify(path), reader.verify(done.path)
    assert whole(done.path) == data(STATE)
    assert (after.world_size, after.kind, len(after.shards), after.step) == (new, "sharded", new, 77)
    assert after.save_id != before.save_id
    assert (after.values, after.metrics, after.run_uid, after.round) == (
        before.values,
        before.metrics,
        before.run_uid,
        before.round,
    )
    assert done.own_kept == tuple(range(min(old, new)))
    assert done.own_lost == tuple(range(new, old))
    assert done.own_missing == tuple(range(old, new))
    for rank in range(new):
        assert own(done.path, rank) == (own_of(rank) if rank < old else {})
    sizes = [sum(n for _, n in shard.ranges) for shard in after.shards]
    assert sum(sizes) == sum(math.prod(one.shape) for one in STATE.values())


@pytest.mark.parametrize("new", [1, 3, 4, 7])
def test_boxes_become_flat(tmp_path: Path, new: int) -> None:
    done = recut(save(tmp_path, CUT, 4), new, str(tmp_path))
    assert whole(done.path) == data(CUT)
    after = reader.verify(done.path)
    assert {spec.layout for spec in after.tensors} == {"flat"}
    assert not any(shard.boxes for shard in after.shards)
    assert {spec.name: (spec.dtype, spec.shape) for spec in after.tensors} == {
        name: (one.dtype, one.shape) for name, one in CUT.items()
    }


def test_a_consolidated_one_is_cut_with_what_its_ranks_own(tmp_path: Path) -> None:
    done = recut(save(tmp_path, STATE, 4, kind=CONSOLIDATED), 3, str(tmp_path))
    assert whole(done.path) == data(STATE)
    assert [own(done.path, rank) for rank in range(3)] == [own_of(rank) for rank in range(3)]
    assert done.own_lost == (3,)


def test_nothing_owned_is_nothing_lost(tmp_path: Path) -> None:
    done = recut(save(tmp_path, STATE, 4, own=False), 2, str(tmp_path))
    assert (done.own_kept, done.own_lost) == ((), ())
    assert not any(shard.own for shard in reader.verify(done.path).shards)


def test_there_and_back_again(tmp_path: Path) -> None:
    path = save(tmp_path, {**STATE, **CUT}, 4)
    for number in (7, 3, 4):
        path = recut(path, number, str(tmp_path)).path
    assert whole(path) == data({**STATE, **CUT})


@pytest.mark.parametrize("shard", [0, 3])
def test_a_damaged_one_is_not_cut_and_nothing_is_left_behind(tmp_path: Path, shard: int) -> None:
    path = save(tmp_path, STATE, 4)
    flip(f"{path}/shard-0000{shard}.safetensors")
    with pytest.raises(ChecksumDiffers, match=f"shard-0000{shard}"):
        recut(path, 2, str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()
    flip(f"{path}/manifest.json", 40)
    with pytest.raises(Damaged):
        recut(path, 2, str(tmp_path / "out"))


class Full(Files):
    """A disk that is full after so many writes."""

    def __init__(self, left: int) -> None:
        self.left = left

    def write(self, fd: int, data: memoryview) -> int:
        self.left -= 1
        if self.left < 0:
            raise OSError(28, "No space left on device")
        return super().write(fd, data)


@pytest.mark.parametrize("writes", [0, 1, 5, 12])
def test_on_a_full_disk_nothing_is_left_behind_and_the_old_one_is_as_it_was(tmp_path: Path, writes: int) -> None:
    path = save(tmp_path, STATE, 2)
    with pytest.raises(OSError, match="No space left"):
        recut(path, 4, str(tmp_path), files=Full(writes))
    assert [found.path for found in reader.scan(str(tmp_path)).committed] == [path]
    assert reader.scan(str(tmp_path)).partial == ()
    assert whole(path) == data(STATE)


def test_progress_counts_the_bytes_of_every_part(tmp_path: Path) -> None:
    path, seen = save(tmp_path, STATE, 2), {"verify": 0, "write": 0, "read back": 0}

    def progress(what: str, size: int) -> None:
        seen[what] += size

    done = recut(path, 3, str(tmp_path), progress=progress)
    assert seen == {
        "verify": sum(shard.bytes for shard in reader.read_manifest(path).shards),
        "write": sum(len(one.data) for one in STATE.values()),
        "read back": sum(shard.bytes for shard in done.manifest.shards),
    }


@given(st.data())
def test_the_runs_of_a_box_are_its_bytes_in_order(draw: st.DataObject) -> None:
    shape = tuple(draw.draw(st.lists(st.integers(1, 4), max_size=4)))
    cuts = tuple(draw.draw(st.integers(1, size)) for size in shape)
    one = tensor(draw.draw(st.sampled_from(["U8", "F16", "F64"])), shape, cuts=cuts)
    for box in boxes_of("x", one):
        runs = box_runs(shape, box, DTYPE_BYTES[one.dtype])
        assert b"".join(one.data[at : at + size] for at, size in runs) == box_bytes(one, box)


def test_stretches_are_as_long_as_they_can_be() -> None:
    assert list(box_runs((4, 6), Box("x", (2, 0), (2, 6)), 4)) == [(48, 48)]
    assert list(box_runs((4, 6), Box("x", (0, 0), (4, 6)), 4)) == [(0, 96)]
    assert list(box_runs((4, 6), Box("x", (1, 3), (2, 3)), 1)) == [(9, 3), (15, 3)]
    assert list(box_runs((4, 0), Box("x", (0, 0), (4, 0)), 1)) == []


_PEAK = """
import sys
from rankpulse.trainer.checkpoint.recut import recut
def peak():  # not ru_maxrss, which a process inherits from the one that started it
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
base = peak()
recut(sys.argv[1], 3, sys.argv[2])
print(peak() - base, "torch" in sys.modules, "numpy" in sys.modules)
"""


def test_memory_stays_flat_and_torch_unneeded(tmp_path: Path) -> None:
    size = 12 * CHUNK
    state = {"big": Tensor("F32", (size // 4,), bytes(size)), "cut": tensor("U8", (CHUNK,), cuts=(2,))}
    path = save(tmp_path, state, 2)
    argv = [sys.executable, "-c", _PEAK, path, str(tmp_path / "out")]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True)
    grown, *imported = done.stdout.split()
    assert imported == ["False", "False"]
    assert 0 < int(grown) * 1024 < size / 2


def test_more_files_than_may_be_open_at_once(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    path = save(tmp_path, STATE, 200, own=False)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(128, hard), hard))
    try:
        assert whole(recut(path, 2, str(tmp_path)).path) == data(STATE)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_the_manifest_is_plain_json(tmp_path: Path) -> None:
    done = recut(save(tmp_path, STATE, 2), 3, str(tmp_path))
    assert json.loads((Path(done.path) / "manifest.json").read_text())["world_size"] == 3
