"""Saves beside the training of several ranks: their collectives and those of the training never meet."""

import os
import shutil
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from ckpt_worlds import Ranks, build, state_bits, train, world  # noqa: E402
from support import eventually_sync, fork  # noqa: E402

from rankpulse.trainer.checkpoint import CheckpointManager, StateRefused  # noqa: E402
from rankpulse.trainer.checkpoint.files import Files  # noqa: E402
from rankpulse.trainer.checkpoint.groups import Group  # noqa: E402
from rankpulse.trainer.checkpoint.reader import scan, verify  # noqa: E402

pytestmark = pytest.mark.live
KINDS = ("ddp", "zero", "fsdp")
WAIT_S = 30.0


@pytest.mark.parametrize("mode", ["sharded", "consolidated"])
def test_each_kind_saves_the_state_of_then_while_it_trains_on(mode: str, tmp_path: Path) -> None:
    def work(rank: int) -> Any:
        said = []
        for kind in KINDS:
            model, optimizer = build(kind, 1)
            torch.manual_seed(100 + rank)
            manager = CheckpointManager(
                tmp_path / kind, model=model, optimizer=optimizer, mode=mode, every_steps=2, async_save=True
            )
            at_save = {}
            for step in range(1, 10):
                train(model, optimizer)
                manager.step(step)
                at_save[step] = state_bits(model, optimizer)
            saved = manager.wait()
            manager.close()
            again, other = build(kind, 2)
            loading = CheckpointManager(tmp_path / kind, model=again, optimizer=other)
            resumed = loading.load()
            loading.close()
            assert saved is not None
            assert resumed is not None
            said.append([saved.step, resumed.step, state_bits(again, other) == at_save[8]])
        return said

    for said in world(3, work, tmp_path):
        assert said == [[8, 8, True]] * 3


class Counted(Group):
    """Counts what the training's own thread says to the other ranks."""

    spoken = 0

    def _count(self) -> None:
        self.spoken += threading.current_thread() is threading.main_thread()

    def gather(self, value: Any) -> list[Any]:
        self._count()
        return super().gather(value)

    def tell(self, value: Any) -> Any:
        self._count()
        return super().tell(value)

    def same_each(self, texts: Any) -> list[bool]:
        self._count()
        return super().same_each(texts)


def test_training_speaks_once_where_nothing_has_changed(tmp_path: Path) -> None:
    """Also where every rank holds something else, and with the running statistics of each."""

    def work(rank: int) -> Any:
        found = []
        for kind in KINDS:
            model, optimizer = build(kind, 1)
            group = Counted()
            manager = CheckpointManager(
                tmp_path / kind, model=model, optimizer=optimizer, mode="sharded", together=group
            )
            for step in range(3):
                train(model, optimizer)
                manager.wait()
                before = group.spoken
                manager.save_async(step)
            found.append(group.spoken - before)
            manager.close()
        return found

    assert world(2, work, tmp_path) == [[1, 1, 1]] * 2


def test_what_one_rank_cannot_save_is_an_error_on_all(tmp_path: Path) -> None:
    def work(rank: int) -> Any:
        model, optimizer = build("ddp", 1)
        odd = {"odd": {"thing": object() if rank == 1 else 1}}
        manager = CheckpointManager(tmp_path / "ck", model=model, optimizer=optimizer, extra=odd)
        try:
            manager.save_async(1)
        except StateRefused as refused:
            return str(refused)
        finally:
            manager.close()

    said = world(2, work, tmp_path)
    assert said[0] == said[1]
    assert "rank 1: extra.odd" in said[0]


def test_all_skip_or_none(tmp_path: Path) -> None:
    """Rank 0 is done with a save before or after the others: it speaks for all."""

    def work(rank: int) -> Any:
        model, optimizer = build("ddp", 1)
        manager = CheckpointManager(
            tmp_path / "ck", model=model, optimizer=optimizer, every_steps=1, async_save=True, when_busy="skip",
            keep_last=99,
        )  # fmt: skip
        begun = []
        for step in range(30):
            train(model, optimizer)
            if manager.save_async(step):
                begun.append(step)
        manager.close()
        return begun

    first, *others = world(3, work, tmp_path)
    assert all(other == first for other in others)
    assert sorted(found.step for found in scan(str(tmp_path / "ck")).committed) == first


class Nodes(Group):
    """As if every rank ran on a node of its own."""

    def _nodes(self) -> list[int]:
        return list(range(self.world_size))


def test_every_node_brings_its_part_to_two_targets(tmp_path: Path) -> None:
    targets = [str(tmp_path / "far"), str(tmp_path / "farther")]

    def work(rank: int) -> Any:
        model, optimizer = build("fsdp", 1)
        group = Nodes()
        manager = CheckpointManager(
            tmp_path / "near", model=model, optimizer=optimizer, mode="sharded", durable=targets, durable_writers=1,
            together=group,
        )  # fmt: skip
        train(model, optimizer)
        manager.save(1)
        at_save = state_bits(model, optimizer)
        manager.close()
        torch.distributed.barrier()
        if rank == 0:
            shutil.rmtree(tmp_path / "near")
            shutil.rmtree(targets[0])
        torch.distributed.barrier()
        again, other = build("fsdp", 2)
        fresh = CheckpointManager(tmp_path / "near", model=again, optimizer=other, durable=targets[1:], together=group)
        resumed = fresh.load()
        fresh.close()
        return [resumed is not None, state_bits(again, other) == at_save]

    assert world(3, work, tmp_path) == [[True, True]] * 3


class Gate(Files):
    """Tells that a file is about to be forced to the disk, and waits there for ever."""

    def __init__(self, reached: Path) -> None:
        self.reached = reached

    def fsync(self, fd: int) -> None:
        self.reached.touch()
        threading.Event().wait()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_in_the_middle_leaves_the_one_before(number: int, tmp_path: Path) -> None:
    def work(rank: int) -> Any:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        model, optimizer = build("ddp", 1)
        CheckpointManager(tmp_path / "ck", model=model, optimizer=optimizer).save(1)
        manager = CheckpointManager(
            tmp_path / "ck", model=model, optimizer=optimizer, files=Gate(tmp_path / f"reached-{rank}"), mode="sharded"
        )
        train(model, optimizer)
        manager.save_async(2)
        manager.wait()

    ranks = Ranks(2, work, tmp_path)
    eventually_sync(lambda: all((tmp_path / f"reached-{rank}").exists() for rank in range(2)), WAIT_S, "the writers")
    ranks.kill((0, 1), number)
    ranks.results(whatever_came=True)
    left = scan(str(tmp_path / "ck"))
    assert [found.step for found in left.committed] == [1]
    assert len(left.partial) == 1
    verify(left.committed[0].path)


def test_a_rank_that_dies_meanwhile_leaves_the_one_before_and_no_rank_waiting(tmp_path: Path) -> None:
    def work(rank: int) -> Any:
        model, optimizer = build("ddp", 1)
        CheckpointManager(tmp_path / "ck", model=model, optimizer=optimizer).save(1)
        files = Gate(tmp_path / "reached") if rank == 1 else Files()
        manager = CheckpointManager(tmp_path / "ck", model=model, optimizer=optimizer, files=files, mode="sharded")
        manager.save_async(2)
        try:
            manager.wait()
        except Exception as error:
            (tmp_path / f"raised-{rank}").write_text(type(error).__name__)

    ranks = Ranks(3, work, tmp_path)
    eventually_sync((tmp_path / "reached").exists, WAIT_S, "the writer of rank 1")
    ranks.kill((1,))
    eventually_sync(lambda: all((tmp_path / f"raised-{rank}").exists() for rank in (0, 2)), WAIT_S, "the others")
    ranks.results(whatever_came=True)
    assert [(tmp_path / f"raised-{rank}").read_text() for rank in (0, 2)] == ["RanksLost"] * 2
    assert [found.step for found in scan(str(tmp_path / "ck")).committed] == [1]


def test_a_program_that_ends_without_a_word_waits_for_its_save(tmp_path: Path) -> None:
    class Slow(Files):
        def fsync(self, fd: int) -> None:
            threading.Event().wait(0.1)
            super().fsync(fd)

    child = fork()
    if not child:
        import atexit

        model, optimizer = build("one", 1)
        manager = CheckpointManager(tmp_path, model=model, optimizer=optimizer, files=Slow())
        manager.save_async(1)
        atexit._run_exitfuncs()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert [found.step for found in scan(str(tmp_path)).committed] == [1]
