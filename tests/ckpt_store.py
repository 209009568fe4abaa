"""Small checkpoints for tests of the storage: a state whose every byte tells which save wrote it. Loads no torch."""

import hashlib
import json
from collections.abc import Iterable, Sequence

from rankpulse.trainer.checkpoint import reader, writer
from rankpulse.trainer.checkpoint.division import Division, Item, divide, key_of, pieces
from rankpulse.trainer.checkpoint.files import Files
from rankpulse.trainer.checkpoint.manifest import DTYPE_BYTES, SHARDED, Box, Shard, ShardManifest

SAVE_ID = "0badcafe"
# one of each: shared by all, of one rank alone, without elements, without dimensions, cut into boxes
WHOLE = (Item("w", "F32", (3, 2)), Item("b[1]", "BF16", (5,)), Item("none", "F64", (0, 4)), Item("n", "I64", ()))


class Quick(Files):
    """The real file system without waiting for the disk: a process that is killed loses nothing by that."""

    def fsync(self, fd: int) -> None:
        pass

    def sync_dir(self, path: str) -> None:
        pass


def held(world: int) -> list[list[Item]]:
    """What each rank holds: tensors that all hold, one that only rank 0 holds, and a row each of one in boxes."""
    boxed = [Item("x", "U8", (world, 3), Box("x", (rank, 0), (1, 3))) for rank in range(world)]
    return [[*WHOLE, *([Item("z.0", "F16", (4,))] if rank == 0 else []), boxed[rank]] for rank in range(world)]


def content(name: str, nbytes: int, save_id: str) -> bytes:
    """The bytes of a tensor: of this save alone."""
    seed = hashlib.sha256(f"{save_id} {name}".encode()).digest()
    return (seed * (nbytes // len(seed) + 1))[:nbytes]


def entries_of(division: Division, rank: int, save_id: str) -> list[writer.Entry]:
    """What `rank` writes, and a thing of its own."""
    specs = {tensor.name: tensor for tensor in division.tensors}
    found = []
    for piece in pieces(division.tensors, division.ranges[rank]):
        spec = specs[piece.name]
        width = DTYPE_BYTES[spec.dtype]
        data = content(spec.name, spec.nbytes, save_id)[piece.start * width : (piece.start + piece.numel) * width]
        shape = spec.shape if piece.numel == spec.numel else (piece.numel,)
        found.append(_entry(key_of(piece, spec), spec.dtype, shape, data))
    for box in division.boxes[rank]:
        data = content(f"{box.name}{box.offsets}", box.numel, save_id)
        found.append(_entry(key_of(box, specs[box.name]), specs[box.name].dtype, box.sizes, data))
    mine = json.dumps({"save": save_id, "rank": rank}).encode()
    return [*found, _entry(f"{writer.OWN}{rank}.values", "U8", (len(mine),), mine)]


def _entry(key: str, dtype: str, shape: tuple[int, ...], data: bytes) -> writer.Entry:
    half = len(data) // 2
    return writer.Entry(key, dtype, shape, lambda: [memoryview(data)[:half], memoryview(data)[half:]])


def save(
    files: Files,
    directory: str,
    step: int,
    save_id: str = SAVE_ID,
    world: int = 2,
    kind: str = SHARDED,
    values: object = None,
) -> str:
    """The path of a new checkpoint, saved as the manager does, one rank after the other."""
    attempt = writer.begin(files, directory, step, save_id)
    fill(files, attempt, step, save_id, world, kind, values)
    return attempt


def fill(
    files: Files, attempt: str, step: int, save_id: str, world: int = 2, kind: str = SHARDED, values: object = None
) -> None:
    division = divide(held(world) if kind == SHARDED else [WHOLE])
    shards = [
        writer.write_shard(
            files, attempt, rank=rank, world_size=world, step=step, save_id=save_id,
            entries=entries_of(division, rank, save_id), ranges=division.ranges[rank], boxes=division.boxes[rank],
            own=True,
        )
        for rank in range(len(division.ranges))
    ]  # fmt: skip
    writer.commit(files, attempt, manifest_of(division, shards, step, save_id, world, kind, values))


def manifest_of(
    division: Division, shards: Sequence[Shard], step: int, save_id: str, world: int, kind: str = SHARDED,
    values: object = None,
) -> ShardManifest:  # fmt: skip
    said = {"save": save_id} if values is None else values
    return ShardManifest(
        kind, step, world, save_id, 1_800_000_000.0 + step, division.tensors, tuple(shards), said,
        {"loss": 1 / (step + 1)}, run_uid="u1", run_id="job", round=3,
    )  # fmt: skip


def assert_of_one_save(path: str, manifest: ShardManifest) -> None:
    """Every byte in the checkpoint is of the save that its manifest names."""
    specs = {tensor.name: tensor for tensor in manifest.tensors}
    assert manifest.values == {"save": manifest.save_id}
    for shard in manifest.shards:
        with reader.ShardFile(path, manifest, shard) as file:
            for piece in pieces(manifest.tensors, shard.ranges):
                spec = specs[piece.name]
                width, whole = DTYPE_BYTES[spec.dtype], content(spec.name, spec.nbytes, manifest.save_id)
                must = whole[piece.start * width : (piece.start + piece.numel) * width]
                assert file.read(key_of(piece, spec)) == must, (path, piece)
            for box in shard.boxes:
                must = content(f"{box.name}{box.offsets}", box.numel, manifest.save_id)
                assert file.read(key_of(box, specs[box.name])) == must, (path, box)
            own = json.loads(file.read(f"{writer.OWN}{shard.rank}.values"))
            assert own == {"save": manifest.save_id, "rank": shard.rank}


def newest_sound(directory: str, level: str = "full") -> tuple[str, ShardManifest] | None:
    """What a loader would take: the newest checkpoint that verifies."""
    for found in reader.scan(directory).committed:
        try:
            return found.path, reader.verify(found.path, level)
        except reader.Refused:
            continue
    return None


def names(directory: str) -> Iterable[str]:
    return [found.path.rsplit("/", 1)[1] for found in reader.scan(directory).committed]
