"""The manifest's bytes: plain JSON, the same again, sealed."""

import hashlib
import json
import math
from dataclasses import replace

import ckpt_store as store
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankpulse.trainer.checkpoint.division import divide
from rankpulse.trainer.checkpoint.errors import ManifestInvalid, StateRefused
from rankpulse.trainer.checkpoint.manifest import (
    MANIFEST,
    Box,
    Shard,
    ShardManifest,
    TensorSpec,
    decode,
    digest_of,
    encode,
    refuse_too_many,
)


def a_manifest() -> ShardManifest:
    division = divide(store.held(3))
    shards = [
        Shard(rank, f"shard-{rank:05d}.safetensors", 999, "0" * 64, "f" * 32, ranges, boxes, own=True)
        for rank, (ranges, boxes) in enumerate(zip(division.ranges, division.boxes, strict=True))
    ]
    return store.manifest_of(division, shards, 7, store.SAVE_ID, 3)


def test_a_manifest_is_read_as_it_was_written() -> None:
    manifest = a_manifest()
    assert decode(encode(manifest), MANIFEST) == manifest
    assert encode(decode(encode(manifest), MANIFEST)) == encode(manifest)


def test_it_is_one_json_object_that_says_what_each_shard_holds_of_the_flat_state() -> None:
    said = json.loads(encode(a_manifest()))
    assert next(iter(said)) == "schema_version"
    assert list(said)[-1] == "digest"
    first, second = said["shards"][0], said["shards"][1]
    assert first["param_shard_offset"] == 0
    assert first["param_shard_numel"] == sum(numel for _, numel in first["ranges"])
    assert second["param_shard_offset"] == second["ranges"][0][0] == first["ranges"][0][1]
    assert (said["world_size"], said["step"], said["run_uid"], said["round"]) == (3, 7, "u1", 3)


def test_the_digest_is_that_of_the_bytes_with_zeros_in_its_place() -> None:
    data = encode(a_manifest())
    digest = json.loads(data)["digest"]
    assert digest == digest_of(data) == hashlib.sha256(data.replace(digest.encode(), b"0" * 64)).hexdigest()


def test_a_state_that_holds_zeros_or_a_digest_of_its_own_is_sealed_where_it_should() -> None:
    manifest = replace(a_manifest(), values={"digest": "0" * 64}, metrics={}, run_id='"digest": "' + "0" * 64 + '"}')
    assert decode(encode(manifest), MANIFEST) == manifest


def test_other_json_of_the_same_content_is_read_too() -> None:
    said = json.loads(encode(a_manifest()))
    del said["digest"]
    data = json.dumps({**said, "added": "later", "digest": "0" * 64}, indent=2)
    sealed = data.replace("0" * 64 + '"\n}', digest_of(data.encode()) + '"\n}').encode()
    assert decode(sealed, MANIFEST) == a_manifest()


def test_metrics_that_are_no_numbers_are_kept() -> None:
    data = encode(replace(a_manifest(), metrics={"loss": math.nan, "up": math.inf, "down": -math.inf, "n": 3}))
    metrics = decode(data, MANIFEST).metrics
    assert math.isnan(metrics.pop("loss"))
    assert metrics == {"up": math.inf, "down": -math.inf, "n": 3.0}


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=3),
)  # fmt: skip


@given(VALUES)
def test_any_json_values_come_back(values: object) -> None:
    assert decode(encode(replace(a_manifest(), values=values)), MANIFEST).values == values


@pytest.mark.parametrize(
    "values", [math.nan, {"a": [math.inf]}, {"a": {1, 2}}, "\ud800", {"\udfff": 1}, b"bytes", 2 + 1j]
)
def test_values_that_are_no_json_are_refused_before_anything_is_written(values: object) -> None:
    with pytest.raises(StateRefused, match="step 7"):
        encode(replace(a_manifest(), values=values))


def test_values_without_end_are_refused() -> None:
    values: list[object] = []
    values.append(values)
    with pytest.raises(StateRefused):
        encode(replace(a_manifest(), values=values))


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "both"}, {"step": -1}, {"world_size": 0}, {"save_id": "x"}, {"round": -2}, {"save_id": "A" * 8},
        {"tensors": (TensorSpec("w", "F32", (2,)), TensorSpec("w", "F32", (2,)))},
    ],
)  # fmt: skip
def test_what_no_manifest_may_say_is_not_read(change: dict[str, object]) -> None:
    manifest = replace(a_manifest(), **change)  # type: ignore[arg-type]
    with pytest.raises((ManifestInvalid, StateRefused)):
        decode(encode(manifest), MANIFEST)


def test_a_manifest_of_no_state_at_all() -> None:
    shard = Shard(0, "shard-00000.safetensors", 99, "0" * 64, "0" * 32)
    manifest = ShardManifest("sharded", 0, 1, "0" * 8, 1.0, (), (shard,))
    assert decode(encode(manifest), MANIFEST) == manifest


def test_more_pieces_than_a_manifest_can_list_are_refused_before_a_byte_is_written() -> None:
    box = Box("x", (1234, 0), (1, 8192))
    refuse_too_many([[box] * 1000] * 64)
    refuse_too_many([(), ()])
    with pytest.raises(StateRefused, match=r"cut into 16384000 pieces.*fewer ranks"):
        refuse_too_many([[box] * 1000] * 16384)
