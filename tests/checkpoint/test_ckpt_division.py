"""The division of a state: every element once, about equal bytes, the same everywhere, for any holders."""

from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import work

from rankpulse.trainer.checkpoint import division
from rankpulse.trainer.checkpoint.coverage import expected, key_of, oversized, uncovered
from rankpulse.trainer.checkpoint.division import Division, Item, divide, pieces, replicated
from rankpulse.trainer.checkpoint.errors import StateRefused
from rankpulse.trainer.checkpoint.manifest import BOXES, DTYPE_BYTES, SHARDED, Box, Shard, ShardManifest, TensorSpec

DTYPES = st.sampled_from(sorted(DTYPE_BYTES))
SHAPES = st.lists(st.integers(0, 5), max_size=3).map(tuple)


def manifest_of(found: Division) -> ShardManifest:
    shards = tuple(
        Shard(rank, f"shard-{rank:05d}.safetensors", 2**40, "0" * 64, "0" * 32, found.ranges[rank], found.boxes[rank])
        for rank in range(len(found.ranges))
    )
    return ShardManifest(SHARDED, 1, len(shards), "0" * 8, 1.0, found.tensors, shards)


def bytes_by_rank(found: Division) -> list[int]:
    width = {tensor.name: DTYPE_BYTES[tensor.dtype] for tensor in found.tensors}
    return [
        sum(piece.numel * width[piece.name] for piece in pieces(found.tensors, ranges))
        + sum(box.numel * width[box.name] for box in boxes)
        for ranges, boxes in zip(found.ranges, found.boxes, strict=True)
    ]


@st.composite
def states(draw: st.DrawFn) -> list[list[Item]]:
    """Whole tensors with any holders, and tensors cut into a grid whose boxes have any holders."""
    world = draw(st.integers(1, 9))
    held: list[list[Item]] = [[] for _ in range(world)]
    some_ranks = st.sets(st.integers(0, world - 1), min_size=1)
    for number, (dtype, shape) in enumerate(draw(st.lists(st.tuples(DTYPES, SHAPES), max_size=8))):
        if not draw(st.booleans()):
            for rank in draw(st.just(range(world)) | some_ranks):
                held[rank].append(Item(f"t{number}", dtype, shape))
            continue
        cuts = [sorted({0, size, *draw(st.lists(st.integers(0, size), max_size=2))}) for size in shape]
        for sides in product(*(list(pairwise(at)) or [(0, 0)] for at in cuts)):
            box = Box(f"t{number}", tuple(a for a, _ in sides), tuple(b - a for a, b in sides))
            for rank in draw(some_ranks):
                held[rank].append(Item(f"t{number}", dtype, shape, box))
    return held


@given(states())
def test_every_element_is_written_once_by_one_who_holds_it(held: list[list[Item]]) -> None:
    found = divide(held)
    assert uncovered(manifest_of(found)) == ""
    assert oversized(manifest_of(found)) == ""
    assert divide(held) == found
    for rank, items in enumerate(held):
        names = {item.name for item in items if item.box is None}
        assert {piece.name for piece in pieces(found.tensors, found.ranges[rank])} <= names
        assert set(found.boxes[rank]) <= {item.box for item in items}
        keys = [key_of(box, spec) for box in found.boxes[rank] for spec in found.tensors if spec.name == box.name]
        assert len(set(keys)) == len(keys)


@given(st.lists(st.tuples(DTYPES, SHAPES), max_size=12), st.integers(1, 9))
def test_a_state_that_all_hold_is_cut_into_equal_bytes(parts: list[tuple[str, tuple[int, ...]]], world: int) -> None:
    items = [Item(f"t{number}", dtype, shape) for number, (dtype, shape) in enumerate(parts)]
    found = replicated(items, world)
    assert found == divide([items] * world)
    assert [tensor.name for tensor in found.tensors] == [item.name for item in items]
    share = bytes_by_rank(found)
    assert max(share) - min(share) <= 2 * 8  # each cut is within one element of where it should be
    assert all(len(ranges) <= 1 for ranges in found.ranges)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=30), st.integers(1, 9))
def test_boxes_that_all_hold_are_given_out_to_within_the_largest(sizes: list[int], world: int) -> None:
    held = [[Item(f"t{n}", "U8", (size,), Box(f"t{n}", (0,), (size,))) for n, size in enumerate(sizes)]] * world
    share = bytes_by_rank(divide(held))
    assert max(share) - min(share) <= max(sizes)


@given(states())
def test_descriptions_are_understood(held: list[list[Item]]) -> None:
    for items in held:
        assert division.understood(division.describe(items)) == tuple(items)


@pytest.mark.parametrize(
    "said", [None, {}, [1], [["a"]], [["a", "F32", [1], None, 1]], [["a", "P1", [1], None]], [["a", "F32", [-1], None]],
             [["a", "F32", [True], None]], [["a", "F32", [1], [[0]]]], [["a", "F32", [1], [[0], [0.5]]]],
             [["a", [], [1], None]]],
)  # fmt: skip
def test_what_is_no_description_is_refused(said: object) -> None:
    with pytest.raises(StateRefused):
        division.understood(said)


@pytest.mark.parametrize(
    ("held", "said"),
    [
        ([[Item("a", "F32", (2,))], [Item("a", "F16", (2,))]], "F16"),
        ([[Item("a", "F32", (2,))], [Item("a", "F32", (3,))]], "[3]"),
        ([[Item("a", "F32", (2,))], [Item("a", "F32", (2,), Box("a", (0,), (2,)))]], "boxes"),
        ([[Item("a", "F32", (2,)), Item("a", "F32", (2,))]], "twice"),
    ],
)
def test_ranks_that_disagree_are_told_so(held: list[list[Item]], said: str) -> None:
    with pytest.raises(StateRefused, match="'a'") as refused:
        divide(held)
    assert said in str(refused.value)


def boxed(*boxes: tuple[tuple[int, ...], tuple[int, ...]], shape: tuple[int, ...] = (4, 4)) -> str:
    parts = tuple(Box("t", offsets, sizes) for offsets, sizes in boxes)
    return uncovered(manifest_of(Division((TensorSpec("t", "U8", shape, BOXES),), ((),), (parts,))))


def test_boxes_that_overlap_or_leave_holes_are_seen_also_when_the_count_is_right() -> None:
    assert boxed(((0, 0), (4, 4))) == ""
    assert boxed(((0, 0), (2, 2)), ((0, 2), (2, 2)), ((2, 0), (2, 4))) == ""
    assert "12 of the 16" in boxed(((0, 0), (3, 4)))
    assert "20 of the 16" in boxed(((0, 0), (4, 4)), ((0, 0), (1, 4)))
    assert "in two shards" in boxed(((0, 0), (2, 4)), ((1, 0), (2, 4)))
    assert "in two shards" in boxed(((0, 0), (2, 2)), ((0, 0), (2, 2)), ((2, 2), (2, 2)), ((2, 2), (2, 2)))
    assert "in two shards" in boxed(((0, 0), (2, 2)), ((1, 1), (2, 2)), ((0, 2), (2, 2)), ((2, 0), (2, 2)))
    # a pinwheel around a hole, with one arm too long: no line parts it
    assert boxed(
        ((0, 0), (1, 2)), ((0, 2), (2, 1)), ((2, 1), (1, 2)), ((1, 0), (2, 1)), ((1, 1), (1, 1)), shape=(3, 3)
    ) == ""  # fmt: skip
    assert boxed(((), ()), shape=()) == ""
    assert boxed(shape=(0, 4)) == ""
    assert "0 of the 1" in boxed(shape=())
    assert "cut along 12" in boxed(((0,) * 12, (1,) * 12), shape=(2,) * 12)


@pytest.mark.parametrize(
    ("ranges", "said"),
    [
        ([(0, 4)], "'b'[1:3] is in no shard"), ([(1, 5)], "'a'[0:1] is in no shard"), ([], "'a'[0:3] is in no shard"),
        ([(0, 4), (3, 3)], "'b'[0:1] is in more than one shard"), ([(0, 7)], "up to 7 of a state of 6"),
        ([(0, 6), (6, 1)], "up to 7 of a state of 6"), ([(0, 6)], ""), ([(0, 6), (9, 1)], "behind the end"),
    ],
)  # fmt: skip
def test_what_is_missing_or_double_is_named(ranges: list[tuple[int, int]], said: str) -> None:
    tensors = (TensorSpec("a", "F32", (3,)), TensorSpec("none", "F32", (0,)), TensorSpec("b", "U8", (3, 1)))
    found = Division(tensors, tuple((one,) for one in ranges) or ((),), ((),) * max(1, len(ranges)))
    told = uncovered(manifest_of(found))
    assert said in told
    assert bool(said) == bool(told)


NASTY = st.text(st.sampled_from("ab[]@%:0,_.-rankpulse"), max_size=12) | st.sampled_from(
    ["__metadata__", "rankpulse.own.0.values", "w[0:2]", "w", "w@0", "%72ankpulse.own.0.x", "w%5B0:2]"]
)


@given(st.lists(NASTY, unique=True, max_size=20))
def test_no_two_parts_have_the_same_key_whatever_tensors_are_called(names: list[str]) -> None:
    keys = []
    for name in names:
        spec = TensorSpec(name, "U8", (4,), BOXES)
        keys.append(key_of(division.Piece(name, 0, 4), spec))
        keys += [key_of(division.Piece(name, start, 2), spec) for start in range(3)]
        keys += [key_of(Box(name, (at,), (1,)), spec) for at in range(4)]
    assert len(set(keys)) == len(keys)
    assert not [key for key in keys if key.startswith(("rankpulse.", "__metadata__"))]


def test_the_shape_of_an_entry_is_that_of_its_part() -> None:
    found = divide([[Item("a", "F32", (2, 3))], [Item("a", "F32", (2, 3))]])
    manifest = manifest_of(found)
    assert expected(manifest, manifest.shards[0]) == {"a[0:3]": ("F32", (3,))}
    assert expected(manifest_of(replicated([Item("a", "F32", (2, 3))], 1)), manifest_of(
        replicated([Item("a", "F32", (2, 3))], 1)).shards[0]) == {"a": ("F32", (2, 3))}  # fmt: skip


def boxes(items: int, world: int) -> list[list[Item]]:
    return [
        [Item(f"t{n}", "F32", (world, 8), Box(f"t{n}", (rank, 0), (1, 8))) for n in range(items)]
        for rank in range(world)
    ]


def tensors(count: int) -> list[Item]:
    return [Item(f"t{n}", "BF16", (n % 9, 64)) for n in range(count)]


def test_the_work_grows_with_the_state_and_not_with_its_square() -> None:
    few, many = (
        work(lambda held=held: uncovered(manifest_of(divide(held)))) for held in (boxes(10, 16), boxes(10, 128))
    )
    assert many < 16 * few, "8 times the boxes of each tensor: a check of pairs takes 64 times as long"
    few = work(lambda: uncovered(manifest_of(replicated(tensors(250), 16))))
    many = work(lambda: uncovered(manifest_of(replicated(tensors(1000), 64))))
    assert many < 8 * few, "4 times the tensors, and the shards: each with each takes 16 times as long"


def test_a_thousand_shards_of_one_manifest_are_looked_at_in_one_pass() -> None:
    """What each shard must hold costs as much as it holds, not as much as the whole state has tensors."""

    def looked_at(count: int, world: int) -> int:
        manifest = manifest_of(replicated(tensors(count), world))
        return work(lambda: [expected(manifest, shard) for shard in manifest.shards])

    assert looked_at(1000, 200) < 8 * looked_at(250, 50)
