"""Last words among ranks that meet through files: every order of arrival, late ones, those that write too slowly."""

import itertools
import os
from collections.abc import Callable
from pathlib import Path

import ckpt_store
import pytest
from lastwords_world import LIFE, WITHIN_S, Kept, World, assert_of_step, halves, replicas

from rankpulse.trainer.checkpoint import reader
from rankpulse.trainer.checkpoint.lastwords import meeting
from rankpulse.trainer.checkpoint.lastwords.words import Answer
from rankpulse.trainer.checkpoint.manifest import LAST_WORDS


def saved(world: World, step: int, absent: tuple[int, ...]) -> str:
    """The one checkpoint there is, whole and of this step."""
    found = world.newest()
    assert found is not None
    path, manifest = found
    assert (manifest.kind, manifest.step, manifest.absent, manifest.schema_version) == (LAST_WORDS, step, absent, 2)
    assert (manifest.run_uid, manifest.run_id, manifest.round) == ("u1", "job", 3)
    assert_of_step(path, manifest)
    assert reader.attempts(world.directory) == ()
    return path


def nothing(world: World, answers: dict[int, Answer], reason: str) -> None:
    assert world.newest() is None
    for answer in answers.values():
        assert not answer.saved
        assert reason in answer.reason
    assert reader.attempts(world.directory) == ()


@pytest.mark.parametrize("held", [replicas, halves])
def test_survivors_write_what_the_dead_one_had_too_in_any_order(tmp_path: Path, held: Callable[[int], list]) -> None:  # type: ignore[type-arg]
    for number, order in enumerate(itertools.permutations((0, 1, 3))):
        world = World(tmp_path / str(number), held(4)) if os.makedirs(tmp_path / str(number)) is None else None
        assert world is not None
        answers = world.settled(order, absent=(2,))
        path = saved(world, 5, (2,))
        assert {(one.outcome, one.step, one.path, one.absent) for one in answers.values()} == {("saved", 5, path, (2,))}
        assert max(one.took_s for one in answers.values()) < 1.0, "nobody waits for one that is known to be gone"


def test_who_comes_late_hears_what_was_decided_and_is_not_among_the_writers(tmp_path: Path) -> None:
    world = World(tmp_path, replicas(3))
    early = world.settled((1,), absent=())
    assert early[1].absent == (0, 2), "nobody else came before half of the time was over"
    assert world.settled((2, 0)) == {
        rank: early[1].__class__("saved", 5, "", early[1].path, 0.0, (0, 2)) for rank in (0, 2)
    }
    saved(world, 5, (0, 2))


def test_asked_again_it_answers_the_same_and_writes_nothing(tmp_path: Path) -> None:
    world = World(tmp_path, replicas(2))
    first = world.settled((0, 1))
    before = sorted(os.listdir(tmp_path))
    again = world.settled((1, 0), absent=(1,))
    assert {one.path for one in (*first.values(), *again.values())} == {first[0].path}
    assert sorted(os.listdir(tmp_path)) == before


def test_one_that_is_behind_comes_up_to_the_others_and_no_further(tmp_path: Path) -> None:
    world = World(tmp_path, halves(2))
    world.ranks[0].done(6)
    going = {rank: world.asked(rank) for rank in (0, 1)}
    for one in going.values():
        assert one.advance(world.now) is None
    behind = world.ranks[1].gate
    going[1].advance(world.now)
    behind.update_begins()  # does not wait: it may come to step 6
    assert going[1].advance(world.now) is None
    behind.update_ends()
    world.ranks[1].done(6)
    answers = world.talk(going, {})
    assert {one.step for one in answers.values()} == {6}
    saved(world, 6, ())


def test_half_of_a_state_at_one_step_and_half_at_another_is_none(tmp_path: Path) -> None:
    world = World(tmp_path, halves(2))
    world.ranks[0].done(6)
    nothing(world, world.settled((0, 1)), "nobody who is left holds all of x (rank 1)")


def test_the_highest_step_that_is_there_as_a_whole(tmp_path: Path) -> None:
    """Ranks 0 and 1 have come to 6 and hold both halves; 2 and 3 stand at 5 in a collective that never ends."""
    world = World(tmp_path, halves(4))
    for rank in (0, 1):
        world.ranks[rank].done(6)
    answers = world.settled((3, 2, 1, 0))
    saved(world, 6, (2, 3))
    assert {one.step for one in answers.values()} == {6}


def test_refused_with_the_reason_at_once(tmp_path: Path) -> None:
    for name, held, absent, torn, reason in (
        ("lost", halves(2), (1,), (), "nobody who is left holds all of x (rank 1)"),
        ("torn", replicas(3), (1,), (1,), "rank 1 was in the middle of an update when it ended"),
    ):
        os.mkdir(tmp_path / name)
        world = World(tmp_path / name, held)
        answers = world.settled(set(range(len(held))) - {1}, absent, torn)
        nothing(world, answers, reason)
        assert max(one.took_s for one in answers.values()) < 1.0


def test_a_rank_in_the_middle_of_an_update_is_waited_for_and_then_it_is_refused(tmp_path: Path) -> None:
    world = World(tmp_path, replicas(3))
    world.ranks[1].gate.update_begins()
    answers = world.settled((0, 1), absent=(2,))
    nothing(world, answers, "rank 1 was in the middle of an update")
    assert max(one.took_s for one in answers.values()) < WITHIN_S


def test_what_each_rank_has_alone_is_no_survivors_to_give(tmp_path: Path) -> None:
    os.mkdir(tmp_path / "all")
    everybody = World(tmp_path / "all", replicas(2), own=("a", "b"))
    everybody.settled((0, 1))
    saved(everybody, 5, ())
    world = World(tmp_path, replicas(2), own=("a", "b"))
    nothing(
        world, world.settled((0,), absent=(1,)), "extra.own was another on each rank, and rank 1 was gone with its own"
    )


def test_a_rank_that_cannot_say_what_it_holds_is_done_without(tmp_path: Path) -> None:
    world = World(tmp_path, replicas(2))
    world.ranks[0].who.keeper.captured = _unable  # type: ignore[method-assign]
    answers = world.settled((0, 1))
    saved(world, 5, (0,))
    assert answers[0].saved


def _unable(moment: object) -> None:
    from rankpulse.trainer.checkpoint.errors import StateRefused

    raise StateRefused("weight was replaced")


def test_ranks_that_have_drifted_apart_give_no_mixture(tmp_path: Path) -> None:
    world = World(tmp_path, replicas(3))

    class Drifted(Kept):
        def captured(self, moment):  # type: ignore[no-untyped-def]
            state = super().captured(moment)
            for has in state.held["model"].values():
                has.local.add_(0.5)
            state.samples["w"] = "other"
            return state

    world.ranks[2].who.__dict__["keeper"] = Drifted(world.held[2])
    world.settled((2, 1), absent=(0,))
    saved(world, 5, (0,))


def test_two_that_decide_at_once_and_one_plan_stands(tmp_path: Path) -> None:
    """Rank 1 has waited for its turn and decides while rank 0, about to publish its own, is held up."""

    class Slow(ckpt_store.Quick):
        then: Callable[[], object] = staticmethod(lambda: None)

        def link(self, old: str, new: str) -> None:
            self.then()
            super().link(old, new)

    slow = Slow()
    world = World(tmp_path, replicas(2), files={0: slow})
    going = {rank: world.asked(rank) for rank in (0, 1)}
    going[1].advance(world.now)

    def meanwhile() -> None:
        slow.then = lambda: None
        for _ in range(2):
            going[1].advance(world.now)
            world.now += 1.0

    slow.then = meanwhile
    answers = world.talk(going, {})
    assert {one.path for one in answers.values()} == {saved(world, 5, ())}
    assert sum(name.startswith("plan-") for name in os.listdir(world.ranks[0].who.meeting.path)) == 1


class Full(ckpt_store.Quick):
    """No room for shards."""

    def write(self, fd: int, data: memoryview) -> int:
        if len(data) > 400:
            raise OSError(28, "No space left on device")
        return super().write(fd, data)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_disk_that_is_full_on_one_node_ends_it_for_all_at_once(tmp_path: Path, rank: int) -> None:
    world = World(tmp_path, replicas(2), files={rank: Full()})
    answers = world.settled((0, 1))
    nothing(world, answers, "No space left on device")
    assert max(one.took_s for one in answers.values()) < 1.0


@pytest.mark.parametrize("rank", [0, 1])
def test_who_stops_after_the_plan_is_waited_for_until_the_time_is_up(tmp_path: Path, rank: int) -> None:
    world = World(tmp_path, replicas(2))
    going = {one: world.asked(one) for one in (0, 1)}
    turns = itertools.cycle(going.values())
    while not any(name.startswith("plan-") for name in os.listdir(world.ranks[0].who.meeting.path)):
        next(turns).advance(world.now)
        world.now += 0.1
    answers = world.talk({1 - rank: going[1 - rank]}, {})
    late = "rank 0 has not committed in time" if rank == 0 else "rank 1 has not written its part in time"
    assert late in answers[1 - rank].reason
    assert world.newest() is None


def test_an_update_that_waited_too_long_goes_on_and_nothing_torn_is_committed(tmp_path: Path) -> None:
    world = World(tmp_path, replicas(2))
    going = {rank: world.asked(rank) for rank in (0, 1)}
    for one in (1, 0):
        going[one].advance(world.now)
    world.now += WITHIN_S + 1
    world.ranks[1].gate.update_begins()  # does not wait any more
    world.now -= WITHIN_S + 1
    answers = world.talk(going, {})
    assert world.newest() is None
    assert not any(one.saved for one in answers.values())


def test_a_life_that_is_over_says_nothing_any_more(tmp_path: Path) -> None:
    """A rank was stopped; the next life has begun, and it goes on."""
    world = World(tmp_path, replicas(2))
    going = {rank: world.asked(rank) for rank in (0, 1)}
    going[1].advance(world.now)
    meeting.sweep(ckpt_store.Quick(), world.directory)
    answers = world.talk(going, {})
    nothing(world, answers, "this life of the job is over")
    assert os.listdir(tmp_path) == []
    nothing(world, world.settled((0, 1)), "this life of the job is over")


def test_a_job_that_went_on_after_a_refusal_may_speak_again(tmp_path: Path) -> None:
    world = World(tmp_path, replicas(3))
    nothing(world, world.settled((0, 2), absent=(1,), torn=(1,)), "rank 1 was in the middle of an update")
    nothing(world, world.settled((0,), absent=(1,)), "rank 1 was in the middle of an update")
    for rank in world.ranks:
        rank.done(7)
    world.settled((0, 2), absent=(1,))
    saved(world, 7, (1,))


def test_what_is_committed_already_is_not_written_again(tmp_path: Path) -> None:
    world = World(tmp_path, replicas(2))
    world.ranks[0].who.__dict__["newest"] = lambda: (5, "/there")
    answer = world.asked(0).advance(0.0)
    assert answer is not None
    assert (answer.saved, answer.step, answer.path) == (True, 5, "/there")
    assert os.listdir(tmp_path / f".last-words-{LIFE}") == []
