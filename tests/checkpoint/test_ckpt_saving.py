"""Saves by several ranks: what each of them writes, what happens when one fails, what is kept for each alone."""

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from ckpt_worlds import bits, build, state_bits, train, world  # noqa: E402

from rankpulse.trainer.checkpoint import (  # noqa: E402
    CheckpointManager,
    SaveFailed,
    StateMismatch,
    StateRefused,
    load_sharded,
    save_sharded,
)
from rankpulse.trainer.checkpoint.files import Files  # noqa: E402
from rankpulse.trainer.checkpoint.reader import read_manifest, scan, verify  # noqa: E402
from rankpulse.trainer.checkpoint.saving import How  # noqa: E402

pytestmark = pytest.mark.live
KINDS = ("ddp", "zero", "fsdp")
MODES = ("sharded", "consolidated")


@pytest.mark.parametrize("mode", MODES)
def test_each_kind_goes_on_bit_for_bit(mode: str, tmp_path: Path) -> None:
    """Three kinds, fp16 and bf16 and fp32, with the random numbers and the running statistics of each rank.

    Two ranks: DDP sums a fresh process's first gradients in another order, which with three shows in the last bit.
    """

    def half(kind: str) -> Any:
        return {"ddp": torch.float16, "zero": torch.float32, "fsdp": torch.bfloat16}[kind]

    def live(rank: int, kind: str, seed: int, saves: bool) -> Any:
        model, optimizer = build(kind, seed, half(kind))
        torch.manual_seed(seed * 100 + rank)
        manager = CheckpointManager(tmp_path / kind, model=model, optimizer=optimizer, mode=mode)
        if saves:
            [train(model, optimizer) for _ in range(3)]
            manager.save(3)
        else:
            assert manager.load() is not None
        at_save = state_bits(model, optimizer)
        losses = [train(model, optimizer) for _ in range(3)]
        manager.close()
        return [at_save, losses, state_bits(model, optimizer), torch.rand(2).tolist()]

    def work(rank: int) -> Any:
        return [[live(rank, kind, seed, seed == 1) for seed in (1, 2)] for kind in KINDS]

    for rank, kinds in enumerate(world(2, work, tmp_path)):
        for kind, (saved, loaded) in zip(KINDS, kinds, strict=True):
            assert loaded == saved, f"rank {rank}, {kind}"


def test_under_ddp_each_rank_writes_its_part_of_one_copy(tmp_path: Path) -> None:
    def work(rank: int) -> Any:
        torch.manual_seed(0)
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(100, 100))
        optimizer = torch.optim.AdamW(model.parameters())
        model(torch.ones(2, 100)).sum().backward()
        optimizer.step()
        saved = CheckpointManager(tmp_path / "ck", model=model, optimizer=optimizer, mode="sharded").save(1)
        return [saved.path, saved.bytes, saved.shards]

    (path, size, shards), *others = world(4, work, tmp_path)
    assert all(other == [path, size, shards] for other in others)
    manifest = verify(path)
    state = 3 * (100 * 100 + 100) * 4 + 2 * 4
    assert (shards, manifest.nbytes) == (4, state)
    assert [shard.rank for shard in manifest.shards] == [0, 1, 2, 3]
    assert state < size < state + 4 * 20000, "headers and random numbers beside one copy"
    parts = [sum(numel for _, numel in shard.ranges) * 4 for shard in manifest.shards]
    assert max(parts) - min(parts) <= 8
    from safetensors import safe_open

    with safe_open(f"{path}/shard-00001.safetensors", framework="pt") as file:
        assert any(key.startswith("model.") or key.startswith("optim.") for key in file.keys())  # noqa: SIM118


def test_the_functions_know_the_world_by_themselves(tmp_path: Path) -> None:
    """One checkpoint of two ranks, not two of one rank each, though nobody names the ranks."""

    def work(rank: int) -> Any:
        state = {"weights": {"w": torch.arange(10.0)}}
        saved = save_sharded(str(tmp_path / "ck"), state, 1, how=How(mode="sharded"))
        empty = {"weights": {"w": torch.zeros(10)}}
        resumed = load_sharded(str(tmp_path / "ck"), empty)
        return [saved.path, saved.shards, resumed and resumed.path, empty["weights"]["w"].tolist()]

    first, second = world(2, work, tmp_path)
    assert first == second == [first[0], 2, first[0], list(map(float, range(10)))]


def test_ranks_that_have_drifted_apart_are_not_mixed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def work(rank: int) -> Any:
        torch.manual_seed(5)
        model = torch.nn.Sequential(torch.nn.Linear(40, 40), torch.nn.Linear(40, 40))
        with torch.no_grad():
            model[1].weight += rank
        manager = CheckpointManager(tmp_path / "ck", model=model, mode="sharded", keep_last=9)
        first = [manager.save(step).path for step in (1, 2)][-1]
        before = state_bits(model, torch.optim.SGD(model.parameters()))
        assert manager.load() is not None
        return [first, before, state_bits(model, torch.optim.SGD(model.parameters()))]

    (path, expected, first), (_, others, second), (_, _, third) = world(3, work, tmp_path)
    assert others["1.weight"] != expected["1.weight"]
    assert first == second == third == expected
    assert capfd.readouterr().err.count("ranks have drifted apart in model.1.weight") == 1
    writers = [shard.rank for shard in read_manifest(path).shards if shard.ranges]
    assert writers == [0, 1, 2], "what is the same is still written by all"


@pytest.mark.parametrize("mode", MODES)
def test_ranks_at_different_steps_save_nothing(mode: str, tmp_path: Path) -> None:
    def work(rank: int) -> list[str]:
        model, optimizer = build("ddp", 1)
        said = []
        for step, own in ((rank + 3, mode), (7, MODES[rank])):
            manager = CheckpointManager(tmp_path / "ck", model=model, optimizer=optimizer, mode=own, every_seconds=1e-9)
            with pytest.raises(StateRefused) as refused:
                manager.step(step)
            said.append(str(refused.value))
        return said

    first, second = world(2, work, tmp_path)
    assert first == second
    assert "rank 0 saves {'step': 3," in first[0]
    assert "rank 1 {'step': 4," in first[0]
    assert "'mode': 'consolidated'" in first[1]
    assert list(os.listdir(tmp_path / "ck")) == []


class FullDisk(Files):
    """Says that the disk is full from the third write on, on one rank."""

    def __init__(self, full: bool) -> None:
        self.left = 2 if full else 10**9

    def write(self, fd: int, data: memoryview) -> int:
        self.left -= 1
        if self.left < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(fd, data)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("bad", [0, 1])
def test_a_disk_that_is_full_on_one_rank_costs_that_save_alone(bad: int, mode: str, tmp_path: Path) -> None:
    def work(rank: int) -> Any:
        model, optimizer = build("zero", 1)
        good = CheckpointManager(tmp_path / "ck", model=model, optimizer=optimizer, mode=mode, every_steps=1)
        train(model, optimizer)
        assert good.step(1) is not None
        before = state_bits(model, optimizer)
        files = FullDisk(rank == bad)
        full = CheckpointManager(
            tmp_path / "ck", model=model, optimizer=optimizer, mode=mode, every_steps=1, files=files, keep_last=2
        )
        train(model, optimizer)
        said = ""
        if bad == 0 or mode == "sharded":
            with pytest.raises(SaveFailed) as failed:
                full.save(2)
            said = str(failed.value)
            assert full.step(2) is None  # said, and the training goes on
        train(model, optimizer)
        resumed = good.load()
        assert resumed is not None
        return [said, resumed.step, state_bits(model, optimizer) == before]

    for said, step, same in world(2, work, tmp_path):
        if bad == 0 or mode == "sharded":
            assert f"rank {bad}: [Errno 28] No space left on device: '{tmp_path}/ck/step-00000002-" in said
            assert "step 2 was not saved" in said
        assert (step, same) == (1, True)
    listing = scan(str(tmp_path / "ck"))
    assert [found.step for found in listing.committed] == [1]
    assert listing.partial == ()


def test_ranks_that_refuse_refuse_together(tmp_path: Path) -> None:
    def work(rank: int) -> str:
        model = torch.nn.Linear(2, 2)
        extra = {"odd": {"f": print if rank == 1 else 1}}
        manager = CheckpointManager(tmp_path / "ck", model=model, extra=extra, every_steps=1)
        with pytest.raises(StateRefused) as refused:
            manager.step(1)
        return str(refused.value)

    told = world(3, work, tmp_path)
    assert len(set(told)) == 1
    assert told[0].startswith("rank 1: extra.odd.f: a builtins.builtin_function_or_method")
    assert scan(str(tmp_path / "ck")).committed == ()


class Position:
    def __init__(self, at: int) -> None:
        self.at = at

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at, "order": torch.full((4,), self.at)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        assert state["order"].tolist() == [state["at"]] * 4
        self.at = state["at"]


@pytest.mark.parametrize("mode", MODES)
def test_what_differs_between_ranks_is_kept_for_each(mode: str, tmp_path: Path) -> None:
    def manager(rank: int, at: int, **more: Any) -> tuple[CheckpointManager, Position, Any]:
        model, optimizer = build("ddp", 1)
        position, waits = Position(at), torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
        waits.step(at)
        extra = {"data": position, "same": {"n": 1}}
        made = CheckpointManager(
            tmp_path / "ck", model=model, optimizer=optimizer, scheduler=waits, extra=extra, mode=mode, **more
        )
        return made, position, waits

    def work(rank: int) -> Any:
        manager(rank, 10 + rank)[0].save(1)
        loading, position, waits = manager(rank, 0)
        assert loading.load() is not None
        return [position.at, waits.best]

    assert world(3, work, tmp_path) == [[10, 10], [11, 11], [12, 12]]
    found = scan(str(tmp_path / "ck")).committed[0]
    assert found.manifest is not None
    assert found.manifest.values["own"] == ["scheduler.0", "extra.data"]

    def fewer(rank: int) -> str:
        with pytest.raises(StateMismatch) as mismatch:
            manager(rank, 0, allow_reshard=True)[0].load()
        return str(mismatch.value)

    assert "extra.data was another on each of 3 ranks, which 2 ranks cannot share out" in world(2, fewer, tmp_path)[0]


def test_nothing_is_pickled_on_any_way(tmp_path: Path) -> None:
    def work(rank: int) -> int:
        import pickle
        import sys

        events: list[str] = []

        def never(*_: Any, **__: Any) -> Any:
            raise AssertionError("pickled")

        pickle.loads = pickle.load = pickle.dumps = pickle.dump = torch.load = torch.save = never
        pickle.Unpickler = pickle.Pickler = never  # type: ignore[assignment, misc]
        torch.distributed.distributed_c10d._pickler = torch.distributed.distributed_c10d._unpickler = never
        built = {kind: build(kind, 1) for kind in KINDS}
        sys.addaudithook(lambda event, _: events.append(event) if event.startswith("pickle.") else None)
        for kind, (model, optimizer) in built.items():
            for mode in MODES:
                train(model, optimizer)
                manager = CheckpointManager(tmp_path / kind, model=model, optimizer=optimizer, mode=mode)
                manager.save(1)
                assert manager.load() is not None
                manager.close()
        return len(events)

    assert world(2, work, tmp_path) == [0, 0]


def test_a_rank_that_dies_in_a_save_is_noticed_by_the_others(tmp_path: Path) -> None:
    from ckpt_worlds import Ranks

    class Deadly(Files):
        def rename(self, old: str, new: str) -> None:
            os.kill(os.getpid(), 9)

    def work(rank: int) -> Any:
        from rankpulse.trainer.checkpoint import RanksLost

        model, optimizer = build("ddp", 1)
        CheckpointManager(tmp_path / "ck", model=model, optimizer=optimizer, mode="sharded").save(1)
        files = Deadly() if rank == 1 else Files()
        manager = CheckpointManager(tmp_path / "ck", model=model, optimizer=optimizer, mode="sharded", files=files)
        try:
            manager.save(2)
        except RanksLost as lost:
            (tmp_path / f"said-{rank}").write_text(str(lost))
        os._exit(0)

    Ranks(3, work, tmp_path).results()
    for rank in (0, 2):
        assert "the ranks could not be reached" in (tmp_path / f"said-{rank}").read_text()
    assert [found.step for found in scan(str(tmp_path / "ck")).committed] == [1]


def test_the_manifest_is_for_people_too(tmp_path: Path) -> None:
    def work(rank: int) -> str:
        model, optimizer = build("ddp", 1)
        manager = CheckpointManager(tmp_path / "ck", model=model, optimizer=optimizer, mode="sharded")
        return manager.save(5, metrics={"loss": torch.tensor(0.25), "odd": float("nan")}).path

    path = world(2, work, tmp_path, RANKPULSE_RUN_UID="uid-1", RANKPULSE_ROUND="4", TORCHELASTIC_RUN_ID="llama")[0]
    with open(f"{path}/manifest.json", encoding="utf-8") as file:
        said = json.load(file)
    assert (said["step"], said["world_size"], said["kind"], said["schema_version"]) == (5, 2, "sharded", 1)
    assert (said["run_uid"], said["run_id"], said["round"]) == ("uid-1", "llama", 4)
    assert said["metrics"] == {"loss": 0.25, "odd": "nan"}
    assert read_manifest(path).world_size == 2
    assert bits(torch.zeros(1)) == "00000000"
