"""Two tiers with real ranks: two nodes of two ranks each, as processes with local directories of their own."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from ckpt_worlds import build, state_bits, train, world  # noqa: E402
from support import eventually_sync  # noqa: E402

from rankpulse.trainer.checkpoint import CheckpointManager, reader  # noqa: E402
from rankpulse.trainer.checkpoint.reader import scan  # noqa: E402

pytestmark = pytest.mark.live
WAIT_S = 30.0


def local_of(place: Path, rank: int) -> Path:
    return place / f"disk-{rank // 2}"


def manager_of(place: Path, rank: int, kind: str, seed: int, **more: Any) -> tuple[CheckpointManager, Any, Any]:
    model, optimizer = build(kind, seed)
    manager = CheckpointManager(
        place / "shared", model=model, optimizer=optimizer, local=local_of(place, rank), every_steps=1, **more
    )
    return manager, model, optimizer


def saved(place: Path, kind: str, steps: int = 2, until: Callable[[], bool] = lambda: True, **more: Any) -> list[Any]:
    """What each of four ranks held at the last of its saves. until: waited for before anything is closed."""

    def work(rank: int) -> Any:
        manager, model, optimizer = manager_of(place, rank, kind, 1, **more)
        for step in range(1, steps + 1):
            train(model, optimizer)
            manager.step(step)
        bits = state_bits(model, optimizer)
        manager.wait()
        eventually_sync(until, WAIT_S)
        manager.close()
        return bits

    return world(4, work, place)


def resumed(place: Path, kind: str, ranks: int = 4, load: dict[str, Any] | None = None, **more: Any) -> list[Any]:
    """(step, state) that each rank has loaded."""

    def work(rank: int) -> Any:
        manager, model, optimizer = manager_of(place, rank, kind, 2, **more)
        found = manager.load(**(load or {}))
        manager.close()
        return [found and found.step, state_bits(model, optimizer)]

    return world(ranks, work, place)


def shards(place: Path, disk: int) -> dict[int, list[str]]:
    """By step what lies on the disk of a node."""
    listing = scan(str(place / f"disk-{disk}"))
    return {
        one.step: sorted(name[6:11] for name in os.listdir(one.path) if name.endswith("tensors"))
        for one in listing.committed
    }


def test_each_node_has_its_part_and_the_shared_directory_gets_it_all(tmp_path: Path) -> None:
    at_save = saved(tmp_path, "ddp", mode="sharded", async_save=True)
    assert shards(tmp_path, 0) == {1: ["00000", "00001"], 2: ["00000", "00001"]}
    assert shards(tmp_path, 1) == {1: ["00002", "00003"], 2: ["00002", "00003"]}
    newest = scan(str(tmp_path / "shared")).committed[0]
    assert newest.step == 2
    reader.verify(newest.path)
    found = resumed(tmp_path, "ddp", mode="sharded")
    assert [step for step, _ in found] == [2] * 4
    assert [bits for _, bits in found] == at_save


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_a_lost_disk_comes_back_from_peers_alone(kind: str, tmp_path: Path) -> None:
    """The shared directory is a file: whoever touches it fails."""
    (tmp_path / "shared").write_text("not there")
    at_save = saved(tmp_path, kind, mode="sharded", peer_copies=1, durable_wait_s=WAIT_S)
    assert shards(tmp_path, 0)[2] == shards(tmp_path, 1)[2] == ["00000", "00001", "00002", "00003"]
    shutil.rmtree(tmp_path / "disk-0")
    found = resumed(tmp_path, kind, mode="sharded", peer_copies=1)
    assert [step for step, _ in found] == [2] * 4
    assert [bits for _, bits in found] == at_save
    assert shards(tmp_path, 0)[2] == ["00000", "00001", "00002", "00003"], "and has its copies again"


def test_what_one_node_saw_damaged_comes_from_elsewhere_before_anything_older(tmp_path: Path) -> None:
    """A bit flipped on one disk, a file lost on the other; peers have good copies, the shared directory is gone."""
    at_save = saved(tmp_path, "ddp", mode="sharded", peer_copies=1)
    newest = {disk: scan(str(tmp_path / f"disk-{disk}")).committed[0].path for disk in (0, 1)}
    flip(Path(newest[0], "shard-00001.safetensors"))
    os.unlink(Path(newest[1], "shard-00003.safetensors"))
    shutil.rmtree(tmp_path / "shared")
    found = resumed(tmp_path, "ddp", mode="sharded")
    assert [step for step, _ in found] == [2] * 4
    assert [bits for _, bits in found] == at_save
    reader.verify(newest[0])
    assert shards(tmp_path, 1)[2] == ["00000", "00001", "00002", "00003"]


def test_without_copies_a_lost_disk_comes_from_the_shared_directory_and_what_is_nowhere_is_passed_over(
    tmp_path: Path,
) -> None:
    at_save = saved(tmp_path, "ddp", mode="sharded")
    shutil.rmtree(tmp_path / "disk-1")
    found = resumed(tmp_path, "ddp", mode="sharded")
    assert [bits for _, bits in found] == at_save
    for place in ("disk-0", "disk-1", "shared"):
        newest = scan(str(tmp_path / place)).committed[0]
        assert newest.step == 2
        Path(newest.path, "shard-00002.safetensors").unlink()
    found = resumed(tmp_path, "ddp", mode="sharded")
    assert [step for step, _ in found] == [1] * 4, "on all ranks alike"


def test_another_number_of_ranks_and_one_file_for_all(tmp_path: Path) -> None:
    """Two ranks on one node load what four on two have saved; and where rank 0 has written it all, all read it."""
    at_save = saved(tmp_path, "ddp", mode="sharded", peer_copies=1)
    shutil.rmtree(tmp_path / "shared")
    found = resumed(tmp_path, "ddp", ranks=2, allow_reshard=True)
    assert [step for step, _ in found] == [2] * 2
    assert [bits for _, bits in found] == at_save[:2]
    other = tmp_path / "other"
    other.mkdir()
    at_save = saved(other, "ddp", mode="consolidated", peer_copies=1)
    shutil.rmtree(other / "shared")
    shutil.rmtree(other / "disk-0")
    found = resumed(other, "ddp")
    assert [step for step, _ in found] == [2] * 4
    assert [bits for _, bits in found] == at_save


def test_a_limit_sets_aside_on_every_tier(tmp_path: Path) -> None:
    """Also where a disk that was away comes back with what was set aside without it."""
    saved(tmp_path, "ddp", steps=3, mode="sharded", peer_copies=1, local_keep=3)
    shutil.copytree(tmp_path / "disk-1", tmp_path / "away")
    found = resumed(tmp_path, "ddp", load={"resume_before_step": 3})
    assert [step for step, _ in found] == [2] * 4
    for place in ("disk-0", "disk-1", "shared"):
        listing = scan(str(tmp_path / place))
        assert [one.step for one in listing.committed][:1] == [2]
        assert len(listing.aside) == 1
    shutil.rmtree(tmp_path / "disk-1")
    (tmp_path / "away").rename(tmp_path / "disk-1")
    found = resumed(tmp_path, "ddp")
    assert [step for step, _ in found] == [2] * 4
    assert len(scan(str(tmp_path / "disk-1")).aside) == 1


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
