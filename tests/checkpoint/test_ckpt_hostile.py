"""Whatever lies in a checkpoint's directory: it is refused with a reason, or it is what was saved. Nothing crashes."""

import hashlib
import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ckpt_store as store
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from rankpulse.trainer.checkpoint import layout, reader
from rankpulse.trainer.checkpoint.errors import (
    ChecksumDiffers,
    Damaged,
    ForeignShard,
    ManifestInvalid,
    NewerSchema,
    NotCovered,
    Refused,
    ShardCountDiffers,
    ShardMissing,
    Truncated,
)
from rankpulse.trainer.checkpoint.manifest import MANIFEST, decode, digest_of, encode
from rankpulse.trainer.checkpoint.strictjson import Unfit

SHARD = "shard-00000.safetensors"


@pytest.fixture
def saved(tmp_path: Path) -> str:
    return store.save(store.Quick(), str(tmp_path / "ckpt"), 5)


def read(path: str, name: str) -> bytes:
    return Path(path, name).read_bytes()


def write(path: str, name: str, data: bytes) -> None:
    Path(path, name).write_bytes(data)


def sealed(text: str) -> bytes:
    """The text of an object with its right digest: who may write the file can compute it, too."""
    data = (text.rstrip().removesuffix("}") + ',"digest":"' + "0" * 64 + '"}').encode("utf-8", "surrogatepass")
    return data.replace(b"0" * 64 + b'"}', digest_of(data).encode() + b'"}')


def members(path: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(read(path, MANIFEST))
    del found["digest"]
    return found


def put(path: str, found: dict[str, Any]) -> None:
    write(path, MANIFEST, sealed(json.dumps(found)))


def test_a_changed_byte_anywhere_is_refused(saved: str) -> None:
    draw = random.Random(7)
    for name in sorted(os.listdir(saved)):
        data = read(saved, name)
        manifest = reader.read_manifest(saved)
        for at in range(len(data)):
            flipped = bytearray(data)
            flipped[at] ^= 1 << draw.randrange(8)
            if name == MANIFEST:
                with pytest.raises((ChecksumDiffers, ManifestInvalid)):
                    decode(bytes(flipped), name)
                continue
            write(saved, name, bytes(flipped))
            shard = next(one for one in manifest.shards if one.path == name)
            for level in ("fast", "full"):
                with pytest.raises((ChecksumDiffers, ForeignShard)):
                    reader.verify_shard(saved, manifest, shard, level)
        write(saved, name, data)
    assert reader.verify(saved).step == 5


def test_a_file_that_is_shorter_or_longer_is_refused(saved: str) -> None:
    draw = random.Random(8)
    for name in sorted(os.listdir(saved)):
        data = read(saved, name)
        for size in {0, 1, 7, 8, 9, len(data) - 1, *draw.sample(range(len(data)), 40)}:
            write(saved, name, data[:size])
            for level in ("fast", "full"):
                with pytest.raises(Truncated if name != MANIFEST else Damaged):
                    reader.verify(saved, level)
        for more in (b"\0", b" ", b"\n", b"}", data):
            write(saved, name, data + more)
            with pytest.raises(Truncated if name != MANIFEST else Damaged):
                reader.verify(saved, "fast")
        write(saved, name, data)
    assert reader.verify(saved).step == 5


def test_a_shard_that_is_changed_with_its_manifest_is_read_as_what_its_header_says(saved: str) -> None:
    """Right size and checksum, any header: the loader refuses it by reading it, or finds every entry as promised."""
    draw = random.Random(9)
    data = read(saved, SHARD)
    header = int.from_bytes(data[:8], "little")
    manifest = reader.read_manifest(saved)
    for _ in range(1500):
        changed = bytearray(data)
        for _ in range(draw.randint(1, 3)):
            changed[draw.randrange(8 + header)] = draw.randrange(256)
        write(saved, SHARD, bytes(changed))
        try:
            with reader.ShardFile(saved, manifest, manifest.shards[0]) as file:
                for key in file.keys:
                    file.read(key)
        except Damaged:
            continue


@pytest.mark.parametrize("target", ["missing", "directory", "fifo", "link", "outside", "loop", "device", "unreadable"])
def test_what_stands_in_place_of_a_file_is_never_followed_nor_waited_for(saved: str, target: str) -> None:
    for name in (SHARD, MANIFEST):
        manifest = reader.read_manifest(saved)
        path, kept = os.path.join(saved, name), os.path.join(saved, "..", name)
        os.rename(path, kept)
        replaced(path, kept, target)
        if target == "unreadable" and os.access(path, os.R_OK):
            pytest.skip("root reads everything")
        with pytest.raises(Damaged) as refused:
            reader.verify(saved)
        assert name in str(refused.value)
        if target == "missing" and name == SHARD:
            assert isinstance(refused.value, ShardMissing)
        if name == SHARD:
            with pytest.raises(Damaged):
                reader.ShardFile(saved, manifest, manifest.shards[0])
        if target == "directory":
            os.rmdir(path)
        elif target != "missing":
            os.remove(path)
        os.rename(kept, path)
        os.chmod(path, 0o644)
    assert reader.verify(saved).step == 5


def replaced(path: str, kept: str, target: str) -> None:
    make: dict[str, Callable[[], object]] = {
        "missing": lambda: None,
        "directory": lambda: os.mkdir(path),
        "fifo": lambda: os.mkfifo(path),
        "link": lambda: os.symlink(kept, path),
        "outside": lambda: os.symlink("/etc/passwd", path),
        "loop": lambda: os.symlink(path, path),
        "device": lambda: os.symlink("/dev/zero", path),
        "unreadable": lambda: (shutil.copy(kept, path), os.chmod(path, 0)),
    }
    make[target]()


def test_a_newer_schema_is_recognised_before_anything_else_is_judged(saved: str) -> None:
    for rest in ({}, {"shards": 7, "step": -1}, members(saved)):
        put(saved, {**rest, "schema_version": 2})
        with pytest.raises(NewerSchema, match="newer") as refused:
            reader.read_manifest(saved)
        assert (refused.value.expected, refused.value.found) == ("at most 1", "2")


def test_a_flipped_schema_is_damage_and_not_a_newer_schema(saved: str) -> None:
    data = read(saved, MANIFEST).replace(b'"schema_version": 1', b'"schema_version": 3')
    with pytest.raises(ChecksumDiffers):
        decode(data, MANIFEST)


BIG = 2**63
WRONG: list[Any] = [None, True, -1, 1.5, BIG, 10**30, "1", "", [], {}, [[]], "\ud800", 1e300]


def spots(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The ways to every value below the top of a JSON value."""
    below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = [at] if at else []
    for key, part in below:
        found += spots(part, (*at, key))
    return found


def changed(value: Any, at: tuple[Any, ...], to: Any) -> Any:
    copy = json.loads(json.dumps(value))
    where = copy
    for key in at[:-1]:
        where = where[key]
    if to is Ellipsis:
        del where[at[-1]]
    else:
        where[at[-1]] = to
    return copy


def test_every_member_with_every_wrong_value_is_refused_or_reads_as_a_whole(saved: str) -> None:
    right = members(saved)
    loose = {"values", "metrics", "run_uid", "run_id", "round", "resumed_before_step", "step", "wall_clock_seconds"}
    for at in spots(right):
        for wrong in [*WRONG, Ellipsis]:
            put(saved, changed(right, at, wrong))
            try:
                reader.verify(saved, "fast")
            except Damaged:
                continue
            # a tensor without elements is in no shard: its name and shape are the manifest's word alone
            assert at[0] in loose or at[:2] == ("tensors", 2) or wrong == found_at(right, at), (at, wrong)


def found_at(value: Any, at: tuple[Any, ...]) -> Any:
    for key in at:
        value = value[key]
    return value


@pytest.mark.parametrize(
    ("at", "to", "kind"),
    [
        (("shards", 0, "path"), "../shard-00000.safetensors", ManifestInvalid),
        (("shards", 0, "path"), "/etc/shard-00000.safetensors", ManifestInvalid),
        (("shards", 0, "path"), "shard-00000.safetensors\n", ManifestInvalid),
        (("shards", 0, "path"), "shard-0000٣.safetensors", ManifestInvalid),
        (("shards", 0, "path"), "shard-00001.safetensors", ManifestInvalid),
        (("shards", 0, "path"), "manifest.json", ManifestInvalid),
        (("shards", 0, "path"), "shard-00007.safetensors", ShardMissing),
        (("shards", 0, "rank"), 1, ManifestInvalid),
        (("shards", 0, "bytes"), 0, ManifestInvalid),
        (("shards", 0, "bytes"), 2**62, Truncated),
        (("shards", 0, "sha256"), "0" * 64, ChecksumDiffers),
        (("shards", 0, "ranges"), [[0, 1]], ManifestInvalid),
        (("shards", 0, "param_shard_numel"), 1, ManifestInvalid),
        (("shards", 0, "boxes"), [], NotCovered),
        (("shards", 0, "own"), False, ForeignShard),
        (("shards", 1), ..., ShardCountDiffers),
        (("world_size",), 3, ShardCountDiffers),
        (("world_size",), 2**40, ManifestInvalid),
        (("kind",), "consolidated", ShardCountDiffers),
        (("step",), 6, ForeignShard),
        (("save_id",), "00000000", ForeignShard),
        (("save_id",), "../../etc", ManifestInvalid),
        (("tensors", 0, "shape"), [2**40, 2**40], ManifestInvalid),
        (("tensors", 0, "shape"), [2**50], NotCovered),
        (("tensors", 0, "dtype"), "F64", (NotCovered, ManifestInvalid)),
        (("tensors", 0, "dtype"), "I32", NotCovered),
        (("tensors", 0, "name"), "b[1]", ManifestInvalid),
        (("tensors", 0, "name"), "n" * 1025, ManifestInvalid),
        (("tensors", 0, "layout"), "boxes", Damaged),
    ],
)  # fmt: skip
def test_a_manifest_that_lies_is_found_out(saved: str, at: tuple[Any, ...], to: Any, kind: type[Refused]) -> None:
    put(saved, changed(members(saved), at, to))
    with pytest.raises(kind):
        reader.verify(saved)
    assert reader.scan(os.path.dirname(saved)).committed[0].path == saved


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"step": 5', '"step": 5, "step": 5'), ('"step": 5', '"step": NaN'), ('"step": 5', '"step": 5e0'),
        ('"step": 5', '"step": ' + "9" * 5000), ('"loss": 0.1', '"loss": 1e999'), ('"loss": 0.1', '"loss": Infinity'),
        ('"loss"', '"\\ud800"'), ('"job"', '"\\udfff"'), ('"job"', '"\ud800"'), ('"job"', '"\n"'),
        ('"job"', "[" * 100_000 + "]" * 100_000), ('"job"', "[" * 100_000), ('"job"', '{"":' * 90_000),
    ],
)  # fmt: skip
def test_json_that_python_would_take_or_choke_on_is_refused(saved: str, old: str, new: str) -> None:
    text = json.dumps(members(saved))
    assert old in text
    with pytest.raises(ManifestInvalid):
        decode(sealed(text.replace(old, new, 1)), MANIFEST)


def test_values_may_be_nested_to_a_limit(saved: str) -> None:
    found = members(saved)
    for levels, fits in ((64, True), (65, False), (500, False)):
        put(saved, {**found, "values": nested(levels)})
        if fits:
            assert reader.read_manifest(saved).values == nested(levels)
        else:
            with pytest.raises(ManifestInvalid, match="64 levels"):
                reader.read_manifest(saved)


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@given(st.binary(max_size=300) | st.text(max_size=100).map(str.encode))
def test_any_bytes_are_refused_as_a_manifest_and_as_a_header(data: bytes) -> None:
    with pytest.raises(ManifestInvalid):
        decode(data, MANIFEST)
    with pytest.raises((Unfit, ForeignShard)):
        layout.understood(data, 8 + len(data), SHARD)


JSONS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
NAMES = st.sampled_from(["schema_version", "kind", "step", "world_size", "tensors", "shards", "values", "metrics"])


@given(st.dictionaries(NAMES, JSONS))
def test_any_object_with_a_right_digest_is_refused(found: dict[str, Any]) -> None:
    with pytest.raises(Refused):
        decode(sealed(json.dumps({"schema_version": 1, **found, "x": 1})), MANIFEST)


@given(st.integers(0, 10**6), JSONS)
def test_any_damage_to_a_valid_manifest_reads_as_a_manifest_or_is_refused(pick: int, wrong: Any) -> None:
    spot = SPOTS[pick % len(SPOTS)]
    try:
        again = decode(sealed(json.dumps(changed(VALID, spot, wrong))), MANIFEST)
    except Refused:
        return
    data = encode(again)
    assert encode(decode(data, MANIFEST)) == data


def _valid() -> dict[str, Any]:
    tensors = [{"name": "a", "dtype": "F32", "shape": [4], "layout": "flat"},
               {"name": "b", "dtype": "U8", "shape": [2, 2], "layout": "boxes"}]  # fmt: skip
    row = {"rank": 0, "path": SHARD, "bytes": 999, "sha256": "0" * 64, "xxh3": "0" * 32, "param_shard_offset": 0,
           "param_shard_numel": 4, "ranges": [[0, 4]], "boxes": [[1, [0, 0], [2, 2]]], "own": True}  # fmt: skip
    return {"schema_version": 1, "kind": "sharded", "step": 1, "world_size": 1, "save_id": "0" * 8,
            "wall_clock_seconds": 1.5, "run_uid": "", "run_id": "", "round": -1, "metrics": {"loss": "nan"},
            "tensors": tensors, "shards": [row], "values": {"a": [1]}}  # fmt: skip


VALID = _valid()
SPOTS = spots(VALID)


def reheaded(data: bytes, change: Callable[[dict[str, Any]], object]) -> bytes:
    """A shard with another header, its length right."""
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    change(header)
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data[8 + size :]


@pytest.mark.parametrize(
    "change",
    [
        lambda h: h.update({"extra": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}}),
        lambda h: h.update({"rankpulse.own.1.values": h.pop("rankpulse.own.0.values")}),
        lambda h: h.update({"rankpulse.own.x": h.pop("rankpulse.own.0.values")}),
        lambda h: h.pop("rankpulse.own.0.values"),
        lambda h: h["w[0:5]"].update(shape=[5, 1]),
        lambda h: h["w[0:5]"].update(dtype="I32"),
        lambda h: h["w[0:5]"].update(dtype="Q4"),
        lambda h: h["w[0:5]"].update(data_offsets=[8, 2**60]),
        lambda h: h["w[0:5]"].update(data_offsets=[28, 8]),
        lambda h: h["w[0:5]"].update(data_offsets=[True, 28]),
        lambda h: h["w[0:5]"].update(shape=[2**62, 2**62]),
        lambda h: h["w[0:5]"].update(data_offsets=h["x@0,0"]["data_offsets"]),
        lambda h: h.pop("w[0:5]"),
        lambda h: h.pop("__metadata__"),
        lambda h: h.update(__metadata__={"rankpulse": 5}),
        lambda h: h.update(__metadata__={"rankpulse": "{}"}),
        lambda h: h.update(__metadata__={"rankpulse": "[" * 9999}),
        lambda h: relabel(h, step=4),
        lambda h: relabel(h, rank=1),
        lambda h: relabel(h, save_id="00000000"),
        lambda h: relabel(h, world_size=3),
        lambda h: relabel(h, schema_version=2),
        lambda h: relabel(h, step=True),
    ],
)
def test_a_shard_whose_header_lies_is_found_out_though_its_checksums_are_right(
    saved: str, change: Callable[[dict[str, Any]], object]
) -> None:
    data = reheaded(read(saved, SHARD), change)
    found = members(saved)
    found["shards"][0].update(
        bytes=len(data), sha256=hashlib.sha256(data).hexdigest(), xxh3=xxhash.xxh3_128_hexdigest(data)
    )
    write(saved, SHARD, data)
    put(saved, found)
    for level in ("fast", "full"):
        with pytest.raises(Damaged):
            reader.verify(saved, level)
    manifest = reader.read_manifest(saved)
    with pytest.raises(Damaged):
        reader.ShardFile(saved, manifest, manifest.shards[0])


def relabel(header: dict[str, Any], **said: Any) -> None:
    meta = json.loads(header["__metadata__"]["rankpulse"])
    header["__metadata__"]["rankpulse"] = json.dumps({**meta, **said})


@pytest.mark.parametrize("length", [0, 1, 2**63, 2**64 - 1, 100_000_001])
def test_an_absurd_length_of_a_header_takes_no_memory(saved: str, length: int) -> None:
    manifest = reader.read_manifest(saved)
    write(saved, SHARD, length.to_bytes(8, "little") + read(saved, SHARD)[8:])
    with pytest.raises(Damaged, match="header"):
        reader.ShardFile(saved, manifest, manifest.shards[0])


def test_a_shard_of_another_save_of_the_same_step_is_never_mixed_in(saved: str, tmp_path: Path) -> None:
    other = store.save(store.Quick(), str(tmp_path / "ckpt"), 5, "00000b05")
    shutil.copy(os.path.join(other, SHARD), os.path.join(saved, SHARD))
    with pytest.raises(ForeignShard, match="expected save_id 0badcafe, found '00000b05'"):
        reader.verify(saved)


def test_a_directory_that_was_renamed_is_not_another_step(saved: str) -> None:
    moved = os.path.join(os.path.dirname(saved), "step-00000099-0badcafe")
    os.rename(saved, moved)
    with pytest.raises(ForeignShard, match="expected step-00000099"):
        reader.verify(moved)
