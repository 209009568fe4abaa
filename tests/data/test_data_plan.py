"""Batches of the whole job: nothing twice, nothing left out, whatever becomes of ranks and batch sizes."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankpulse.trainer.checkpoint.errors import StateMismatch
from rankpulse.trainer.data import GlobalBatches, Plan, Position
from rankpulse.trainer.data.batches import AHEAD_MAX
from rankpulse.trainer.data.plan import DROP, OVER, PAD, TAILS

START = Position()
SIZES = st.integers(1, 40)


def taken(n: int, batch: int, tail: str, steps: int, at: Position = START) -> tuple[Counter[tuple[int, int]], Any]:
    """(epoch, place) of all samples of so many steps, and what the plan said of the last."""
    plan, found, last = Plan(n, batch, tail), Counter[tuple[int, int]](), None
    for _ in range(steps):
        last = plan.next(at)
        found.update(last.part(0, 1))
        at = last.after
    return found, last


@given(SIZES, SIZES, st.integers(1, 60))
def test_over_the_end_of_epochs_every_sample_of_each_comes_once(n: int, batch: int, steps: int) -> None:
    found, last = taken(n, batch, OVER, steps)
    assert found == Counter((serial // n, serial % n) for serial in range(steps * batch))
    assert last.after == Position(*divmod(steps * batch, n))


@given(SIZES, SIZES)
def test_dropped_are_only_the_last_of_an_epoch_and_it_says_how_many(n: int, batch: int) -> None:
    n, batch = max(n, batch), min(n, batch)
    found, last = taken(n, batch, DROP, n // batch + 1)
    assert found == Counter([(0, place) for place in range(n - n % batch)] + [(1, place) for place in range(batch)])
    assert last.left_out == n % batch


@given(SIZES, SIZES)
def test_padded_are_whole_batches_and_what_comes_twice_is_counted(n: int, batch: int) -> None:
    plan, at, found, repeated = Plan(n, batch, PAD), Position(), Counter[tuple[int, int]](), 0
    while at.epoch == 0:
        one = plan.next(at)
        assert len(one) == batch
        found.update(one.part(0, 1))
        repeated, at = repeated + one.repeated, one.after
    assert {place for _, place in found} == set(range(n))
    assert found.total() - n == repeated == -n % batch
    assert at == Position(1, 0)


@given(st.integers(1, 50), st.integers(1, 12), st.sampled_from(TAILS))
def test_the_parts_of_ranks_are_the_batch_and_as_equal_as_can_be(batch: int, ranks: int, tail: str) -> None:
    whole = Plan(60, batch, tail).next(Position(3, 55))
    parts = [list(whole.part(rank, ranks)) for rank in range(ranks)]
    assert [one for part in parts for one in part] == list(whole.part(0, 1))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@given(SIZES, SIZES, st.sampled_from(TAILS), st.integers(0, 39))
def test_how_many_are_left_is_what_comes(n: int, batch: int, tail: str, offset: int) -> None:
    batch, at = min(n, batch), Position(4, offset % n)
    plan, count = Plan(n, batch, tail), 0
    one = plan.next(at)
    begun = one.epoch
    while one.epoch == begun:
        count, one = count + 1, plan.next(one.after)
    assert plan.batches_left(at) == count


LIVES = st.lists(st.tuples(st.integers(1, 5), st.integers(5, 12), st.integers(0, 6), st.integers(0, 6)), max_size=6)


@given(st.integers(12, 40), LIVES)
@settings(max_examples=60)
def test_a_job_of_many_lives_trains_on_every_sample_once(n: int, lives: list[tuple[int, int, int, int]]) -> None:
    """Each life: another number of ranks and size of batch, some steps that are saved, some more that are lost."""
    state: dict[str, Any] = {}
    counted, total = Counter[int](), 0
    for ranks, batch, saved, lost in lives:
        jobs = [
            GlobalBatches(n, batch, seed=1, tail=OVER, rank=rank, world_size=ranks, say=_mute) for rank in range(ranks)
        ]
        for job in jobs:
            if state:
                job.load_state_dict(state)
        drawn = [_drawn(job, saved + lost) for job in jobs]
        counted.update(index for batches in drawn for part in batches[:saved] for index in part)
        for job in jobs:
            job.consumed(saved)
        states = [job.state_dict() for job in jobs]
        assert states == [states[0]] * ranks, "the same on all ranks: it can be given to any number of them"
        state, total = states[0], total + saved * batch
    undisturbed = GlobalBatches(n, 1, seed=1, tail=OVER, rank=0, world_size=1)
    assert counted == Counter(index for part in _drawn(undisturbed, total) for index in part)


def _mute(text: str) -> None:
    return None


def _drawn(job: GlobalBatches, batches: int) -> list[list[int]]:
    """As a loader draws them: over epochs."""
    found: list[list[int]] = []
    stream = job.drawing()
    while len(found) < batches:
        found.append([index for _, index in job.serials(next(stream))])
    job._drawn = batches
    return found


def test_what_is_drawn_ahead_is_not_counted_before_it_is_trained_on() -> None:
    batches = GlobalBatches(20, 4, rank=0, world_size=1)
    ahead = list(batches)
    assert len(ahead) == 5
    assert batches.position == Position()
    batches.consumed(2)
    again = GlobalBatches(20, 4, rank=0, world_size=1)
    again.load_state_dict(batches.state_dict())
    assert len(again) == 3
    assert list(again) == ahead[2:]
    with pytest.raises(ValueError, match="9 batches consumed, 3 drawn"):
        batches.consumed(9)


def test_who_never_says_that_anything_is_consumed_is_told_so_and_repeats_nothing() -> None:
    batches = GlobalBatches(AHEAD_MAX + 1, 1, rank=0, world_size=1)
    list(batches)
    for act in (batches.state_dict, lambda: list(batches)):
        with pytest.raises(RuntimeError, match=r"call consumed\(\) after each update"):
            act()


def test_another_dataset_is_refused_and_another_seed_is_not_followed() -> None:
    said: list[str] = []
    state = GlobalBatches(20, 4, seed=3, rank=0, world_size=1).state_dict()
    with pytest.raises(StateMismatch, match="has 21 samples and had 20"):
        GlobalBatches(21, 4, seed=3, rank=0, world_size=1).load_state_dict(state)
    other = GlobalBatches(20, 4, seed=8, rank=0, world_size=1, say=said.append)
    other.load_state_dict(state)
    assert next(iter(other)) == next(iter(GlobalBatches(20, 4, seed=3, rank=0, world_size=1)))
    assert "seed 3" in said[0]
    with pytest.raises(StateMismatch, match="another version"):
        other.load_state_dict({**state, "order": "feistel-9"})


def test_unequal_parts_are_said_and_can_be_weighed() -> None:
    said: list[str] = []
    ranks = [GlobalBatches(40, 7, rank=rank, world_size=3, say=said.append) for rank in range(3)]
    batch = ranks[0].plan.next(Position())
    sizes = [len(one.serials(batch)) for one in ranks]
    assert sorted(sizes) == [2, 2, 3]
    assert len(said) == 1
    means = [2.0, 5.0, 11.0]
    weighed = sum(one.weight(batch) * mean for one, mean in zip(ranks, means, strict=True)) / 3
    assert weighed == pytest.approx(sum(size * mean for size, mean in zip(sizes, means, strict=True)) / 7)


def test_samples_that_come_twice_are_said_once_by_rank_0() -> None:
    said: list[str] = []
    for rank in range(2):
        GlobalBatches(10, 4, tail=PAD, rank=rank, world_size=2, say=said.append)
    assert said == ["tail='pad': 2 samples come twice in each epoch to fill its batches"]


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({"n": 0}, "number of samples"), ({"batch_size": 0}, "batch_size is 0"), ({"tail": "keep"}, "tail is 'keep'"),
        ({"batch_size": 11}, "more than all 10"), ({"seed": -1}, "seed is -1"),
        ({"rank": 2, "world_size": 2}, "rank 2 of 2"),
        ({"rank": 1}, "belong together"), ({"batch_size": 1, "rank": 0, "world_size": 2}, "cannot be divided"),
    ],
)  # fmt: skip
def test_what_makes_no_batch_is_refused(how: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        GlobalBatches(**{"n": 10, "batch_size": 5} | how)
