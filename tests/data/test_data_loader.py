"""The loader with real worker processes: it goes on where the training stopped, with the same random numbers."""

import random
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from ckpt_worlds import Ranks  # noqa: E402

from rankpulse.trainer.checkpoint import CheckpointManager, StateMismatch  # noqa: E402
from rankpulse.trainer.data import ReplayLoader, StreamLoader  # noqa: E402
from rankpulse.trainer.data.batches import AHEAD_MAX  # noqa: E402


class Drawing(torch.utils.data.Dataset):
    """A sample, and what it draws of every generator."""

    def __init__(self, n: int = 20) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> tuple[int, float, float]:
        return index, float(torch.rand(())), random.random()


def loader(workers: int = 0, batch: int = 4, **how: Any) -> ReplayLoader:
    return ReplayLoader(Drawing(), batch, num_workers=workers, rank=0, world_size=1, **how)


def plain(batch: Any) -> list[list[float]]:
    return [column.tolist() for column in batch]


@pytest.mark.parametrize("workers", [0, 2])
def test_it_goes_on_in_mid_epoch_after_what_was_trained_on_with_the_same_random_numbers(workers: int) -> None:
    whole = loader()
    undisturbed = [plain(whole.next()) for _ in range(12)]
    state: Any = None
    at = 0
    for trained, lost in ((3, 1), (0, 2), (4, 0), (5, 0)):  # several lives, over the end of an epoch
        data = loader(workers)
        if state is not None:
            data.load_state_dict(state)
        for _ in range(trained):
            assert plain(data.next()) == undisturbed[at]
            data.consumed()
            at += 1
        for _ in range(lost):
            data.next()
        state = data.state_dict()
    assert at == 12
    assert data.position == (2, 8)


def test_the_training_draws_what_it_would_have_drawn_without_a_loader() -> None:
    """Else dropout would differ after a restart, where the loader is made anew."""
    torch.manual_seed(1)
    random.seed(1)
    expected = torch.rand(3).tolist(), random.random()
    for workers in (0, 1):
        torch.manual_seed(1)
        random.seed(1)
        loader(workers).next()
        assert (torch.rand(3).tolist(), random.random()) == expected


def test_an_epoch_is_what_is_left_of_it_and_the_next_is_another() -> None:
    data = loader()
    first = []
    for batch in data:
        first += batch[0].tolist()
        data.consumed()
        if len(first) == 8:
            break
    assert (len(data), data.epoch) == (3, 0)
    for batch in data:
        first += batch[0].tolist()
        data.consumed()
    second = [index for batch in data for index in batch[0].tolist()]
    assert sorted(first) == sorted(second) == list(range(20))
    assert first != second
    assert data.epoch == 2


def test_batches_count_with_the_update_that_they_are_in() -> None:
    data = loader()
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    data.follow(optimizer)
    for step in range(1, 7):
        data.next()
        assert data.position.offset == (step - 1) // 3 * 12
        if step % 3 == 0:  # gradients of three batches are one update
            optimizer.step()
            assert data.state_dict()["batches"] == step


def test_it_cannot_be_forgotten() -> None:
    data = loader()
    data.next()
    assert data.state_dict()["offset"] == 0
    for _ in range(AHEAD_MAX):
        data.next()
    with pytest.raises(RuntimeError, match=r"call consumed\(\)"):
        data.state_dict()


def test_a_dataset_that_gives_whole_batches_is_asked_for_them() -> None:
    class Whole(Drawing):
        def __getitems__(self, indices: list[int]) -> list[Any]:
            return [(index, 0.5, 0.5) for index in indices]

    data = ReplayLoader(Whole(), 4, rank=0, world_size=1, seed_samples=False)
    assert plain(data.next())[1] == [0.5] * 4


def test_settings_of_torch_that_would_change_the_order_are_refused() -> None:
    with pytest.raises(ValueError, match="drop_last"):
        loader(drop_last=True)


@pytest.mark.live
def test_ranks_become_fewer_and_more_and_every_sample_comes_once(tmp_path: Path) -> None:
    """4, 2, 4 ranks over one directory of checkpoints; each world loses the steps after its last save."""
    seen: list[int] = []
    for world, steps in ((4, range(1, 5)), (2, range(4, 8)), (4, range(7, 11))):

        def work(rank: int, world: int = world, steps: range = steps) -> Any:
            model = torch.nn.Linear(2, 1)
            data = ReplayLoader(Drawing(30), 8, seed=2, tail="over", num_workers=1)
            manager = CheckpointManager(
                tmp_path / "saved", model=model, extra={"data": data}, every_steps=3, allow_reshard=True
            )
            resumed = manager.load()
            assert (resumed.step if resumed else 0) == steps[0] - 1
            kept, since = [], []
            for step in steps:
                since += data.next()[0].tolist()
                data.consumed()
                if manager.step(step) is not None:
                    kept, since = kept + since, []
            manager.close()
            return kept

        seen += [index for part in Ranks(world, work, tmp_path).results(90) for index in part]
    undisturbed = ReplayLoader(Drawing(30), 8, seed=2, tail="over", rank=0, world_size=1)
    assert sorted(seen) == sorted(index for _ in range(9) for index in undisturbed.next()[0].tolist())


# --- streams


class Stream(torch.utils.data.IterableDataset):
    def __init__(self) -> None:
        self.at = 0

    def __iter__(self) -> Any:
        while self.at < 20:
            self.at += 1
            yield self.at
        self.at = 0

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


def stream(workers: int, rank: int = 0, world: int = 1) -> StreamLoader:
    stateful = pytest.importorskip("torchdata.stateful_dataloader")
    inner = stateful.StatefulDataLoader(Stream(), batch_size=2, num_workers=workers)
    return StreamLoader(inner, rank=rank, world_size=world)


@pytest.mark.filterwarnings("ignore:'set_vital'")
@pytest.mark.parametrize("workers", [0, 2])
def test_a_stream_goes_on_after_what_was_trained_on(workers: int, tmp_path: Path) -> None:
    whole = stream(workers)
    undisturbed = [batch.tolist() for _ in range(2) for batch in whole]
    data, found = stream(workers), []
    manager = CheckpointManager(tmp_path, model=torch.nn.Linear(2, 1), extra={"data": data})
    for batch in data:
        found.append(batch.tolist())
        data.consumed()
        if len(found) == 3:
            break
    manager.save(3)
    again = stream(workers)
    assert CheckpointManager(tmp_path, model=torch.nn.Linear(2, 1), extra={"data": again}).load() is not None
    for epoch in range(2):
        assert again.epoch == epoch
        for batch in again:
            found.append(batch.tolist())
            again.consumed()
    assert found == undisturbed
    at_the_end = stream(workers)
    at_the_end.load_state_dict(again.state_dict())
    assert [batch.tolist() for batch in at_the_end] == [], "the epoch had ended"
    assert [batch.tolist() for batch in at_the_end] == undisturbed[: len(undisturbed) // 2]


def test_a_stream_cannot_be_shared_out_anew_and_says_so() -> None:
    data = stream(0, 0, 2)
    with pytest.raises(StateMismatch, match="rank 0 of 2, and this is rank 0 of 1"):
        stream(0).load_state_dict(data.state_dict())
