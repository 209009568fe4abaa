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
        assert manager.load() is None
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


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_each_node_has_its_part_and_the_shared_directory_gets_it_all(kind: str, tmp_path: Path) -> None:
    at_save = saved(tmp_path, kind, mode="sharded", async_save=True)
    assert shards(tmp_path, 0) == {1: ["00000", "00001"], 2: ["00000", "00001"]}
    assert shards(tmp_path, 1) == {1: ["00002", "00003"], 2: ["00002", "00003"]}
    newest = scan(str(tmp_path / "shared")).committed[0]
    assert newest.step == 2
    reader.verify(newest.path)
    found = resumed(tmp_path, kind, mode="sharded")
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
