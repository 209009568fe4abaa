"""A shard is a file of the safetensors format: their library reads ours, and ours is laid out as theirs."""

from pathlib import Path

import ckpt_store as store
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open

from rankpulse.trainer.checkpoint import layout, reader
from rankpulse.trainer.checkpoint.errors import StateRefused
from rankpulse.trainer.checkpoint.manifest import DTYPE_BYTES
from rankpulse.trainer.checkpoint.strictjson import Unfit

LABEL = layout.Label(5, "0badcafe", 1, 4)
ENTRIES = st.dictionaries(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=9).filter(lambda key: key != "__metadata__"),
    st.tuples(st.sampled_from(sorted(DTYPE_BYTES)), st.lists(st.integers(0, 3), max_size=3).map(tuple)),
    max_size=8,
)


@given(ENTRIES)
def test_a_header_is_read_as_it_was_packed(entries: dict[str, tuple[str, tuple[int, ...]]]) -> None:
    rows = [(key, dtype, shape) for key, (dtype, shape) in entries.items()]
    data = layout.packed(LABEL, rows)
    size = len(data) + sum(layout.size_of(dtype, shape) for _, dtype, shape in rows)
    assert len(data) % 8 == 0
    assert layout.header_bytes(data[:8], size) == len(data) - 8
    header = layout.understood(data[8:], size, "s")
    assert header.label == LABEL
    assert {key: (slot.dtype, slot.shape) for key, slot in header.slots.items()} == entries
    for wrong in (size - 1, size + 1):
        with pytest.raises(Unfit):
            layout.understood(data[8:], wrong, "s")


def test_the_library_of_the_format_reads_a_shard(tmp_path: Path) -> None:
    path = store.save(store.Quick(), str(tmp_path), 5, world=1)
    shard = f"{path}/shard-00000.safetensors"
    with safe_open(shard, "np") as file:
        assert '"step":5' in file.metadata()["rankpulse"]
        assert sorted(file.keys()) == sorted(["w", "b%5B1]", "n", "z.0", "x", "rankpulse.own.0.values"])
        assert file.get_tensor("w").tobytes() == store.content("w", 24, store.SAVE_ID)
        assert file.get_tensor("n").shape == ()
        assert file.get_tensor("w").shape == (3, 2)
        assert file.get_tensor("w").dtype == np.float32


def test_every_entry_lies_aligned_to_its_dtype(tmp_path: Path) -> None:
    path = store.save(store.Quick(), str(tmp_path), 5)
    manifest = reader.read_manifest(path)
    for shard in manifest.shards:
        with reader.ShardFile(path, manifest, shard) as file:
            assert all(slot.start % DTYPE_BYTES[slot.dtype] == 0 for slot in file.keys.values())


def test_a_key_twice_or_too_long_is_refused_before_anything_is_written() -> None:
    for rows in ([("a", "U8", (1,)), ("a", "U8", (1,))], [("__metadata__", "U8", (1,))], [("k" * 9000, "U8", (1,))]):
        with pytest.raises(StateRefused):
            layout.packed(LABEL, rows)
