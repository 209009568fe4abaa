"""How ranks speak with each other: JSON over a group of their own, and no rank left waiting."""

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from ckpt_worlds import Ranks, world  # noqa: E402

from rankpulse.trainer.checkpoint import errors  # noqa: E402
from rankpulse.trainer.checkpoint.groups import Group, together  # noqa: E402
from rankpulse.trainer.checkpoint.together import Alone, Fault, everywhere, on_first  # noqa: E402

pytestmark = pytest.mark.live


def test_ranks_gather_tell_compare_and_send(tmp_path: Path) -> None:
    def work(rank: int) -> Any:
        group = together()
        said = {"rank": rank, "text": "ü" * rank * 1000, "deep": [[rank, None, 1.5]]}
        gathered = group.gather(said)
        told = group.tell({"from": rank})
        same = [group.same("x"), group.same("x" if rank else "y"), group.same("")]
        data = torch.arange(10, dtype=torch.uint8)
        if rank == 2:
            group.send(data, 0)  # type: ignore[attr-defined]
        into = torch.zeros(10, dtype=torch.uint8)
        if rank == 0:
            group.receive(into, 2)  # type: ignore[attr-defined]
        group.close()  # type: ignore[attr-defined]
        return [gathered, told, same, into.tolist(), group.local_rank, group.local_world_size, group.rank]

    first, *others = world(3, work, tmp_path)
    assert first[0] == [{"rank": r, "text": "ü" * r * 1000, "deep": [[r, None, 1.5]]} for r in range(3)]
    assert first[3] == list(range(10))
    assert [other[0] for other in others] == [[], []]
    assert all(said[1:3] == [{"from": 0}, [True, False, True]] for said in (first, *others))
    assert [said[4:] for said in (first, *others)] == [[0, 3, 0], [1, 3, 1], [2, 3, 2]]


def test_one_process_is_a_world_too() -> None:
    alone = together()
    assert isinstance(alone, Alone)
    assert (alone.gather(1), alone.tell(2), alone.same("x")) == ([1], 2, True)


def test_a_fault_on_one_rank_is_an_error_on_all(tmp_path: Path) -> None:
    def judge(faults: Any) -> Exception:
        return faults[0].error() or errors.SaveFailed("; ".join(map(str, faults)))

    def work(rank: int) -> Any:
        group = Group()

        def odd() -> int:
            if rank == 1:
                raise ZeroDivisionError("no")
            if rank == 2:
                raise OSError(28, "full")
            return rank

        def truncated() -> None:
            if rank == 2:
                raise errors.Truncated("f", 10, 9, "do")

        said = []
        for tried in (odd, truncated, lambda: None):
            try:
                said.append(repr(everywhere(group, tried, judge)))
            except errors.CheckpointError as error:
                said.append(f"{type(error).__name__}: {error}")
        try:
            on_first(group, odd, judge)
            on_first(group, lambda: 1 / 0, judge)
        except errors.CheckpointError as error:
            said.append(str(error))
        return said

    first, *others = world(3, work, tmp_path)
    assert all(other == first for other in others)
    assert first == [
        "SaveFailed: rank 1: ZeroDivisionError: no; rank 2: [Errno 28] full",
        "Truncated: f: has the wrong size (a partial write?): expected 10, found 9. do",
        "None",
        "rank 0: ZeroDivisionError: division by zero",
    ]


def test_a_person_who_interrupts_is_not_held() -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        everywhere(Alone(), interrupt, lambda faults: errors.SaveFailed(""))


def test_a_dead_rank_is_an_error_and_no_wait(tmp_path: Path) -> None:
    def work(rank: int) -> None:
        import os

        group = Group()
        if rank == 1:
            os.kill(os.getpid(), 9)
        try:
            group.tell(group.gather(rank))
            group.same("x")
        except errors.RanksLost as lost:
            (tmp_path / f"lost-{rank}").write_text(str(lost))
        os._exit(0)

    Ranks(2, work, tmp_path).results(30)
    assert "the ranks could not be reached" in (tmp_path / "lost-0").read_text()


def test_a_group_that_was_destroyed_is_said_to_be_lost(tmp_path: Path) -> None:
    def work(rank: int) -> Any:
        dist = torch.distributed
        group, said = Group(), []
        dist.destroy_process_group()
        for anew in (False, True):
            if anew:
                dist.init_process_group("gloo", init_method=f"file://{tmp_path}/anew", rank=rank, world_size=2)
            try:
                group.gather(rank)
            except errors.RanksLost as lost:
                said.append("could not be reached" in str(lost))
        group.close()
        return said

    assert world(2, work, tmp_path) == [[True, True], [True, True]]


@pytest.mark.parametrize("kind", [kind for kind in vars(errors).values() if isinstance(kind, type)])
def test_every_error_can_be_told_and_is_the_same_again(kind: type[errors.CheckpointError]) -> None:
    made = kind("path", "more", "less", "do this") if issubclass(kind, errors.Refused) else kind("text")
    row = Fault.of(3, made).row
    again = Fault(*row).error()
    assert type(again) is kind
    assert str(again) == str(made)


def test_other_errors_are_told_by_name() -> None:
    assert Fault.of(1, ValueError("x")).error() is None
    assert str(Fault.of(1, ValueError("x"))) == "rank 1: ValueError: x"
