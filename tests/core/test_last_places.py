"""Ranks that called different collectives and were ended by the library: their last words say who."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from silence_world import LOST, trained

from rankpulse.core.last_places import odd_ones


def place(*, operation: str = "gloo:all_gather", size: int = 16, number: int = 32) -> str:
    return json.dumps(["0", number, operation, [[size]], ["Float"]])


@pytest.mark.parametrize("odd", [place(size=32), place(operation="gloo:all_reduce")])
def test_the_minority_is_named(odd: str) -> None:
    found = odd_ones({0: place(), 1: odd, 3: place()}, 2)
    assert found is not None
    assert found.ranks == (1,)
    assert "rank 1 called" in found.text
    assert "ranks called gloo:all_gather [[16]]" in found.text


def test_who_was_sent_more_than_it_expected_gave_no_more_than_the_others() -> None:
    found = odd_ones({1: place(), 3: place(size=32)}, 0)
    assert found is not None
    assert found.ranks == (3,)


@pytest.mark.parametrize(
    "places",
    [
        {},
        {0: place(), 1: place(), 2: place()},
        {0: place(), 1: place(operation="gloo:all_reduce")},  # one against one
        {0: place(), 1: place(), 2: place(number=33, size=9)},  # another place: not the same collective
    ],
)
def test_nobody_is_named_where_all_agree_or_nobody_is_in_the_minority(places: dict[int, str]) -> None:
    assert odd_ones(places, 7) is None


@given(st.dictionaries(st.integers(0, 9), st.text() | st.just("[1,2,3,4,5]") | st.just("[" * 5000), max_size=5))
def test_any_text_is_read(places: dict[int, str]) -> None:
    assert odd_ones(places, 7) is None


@pytest.mark.parametrize("aborted", [0, 3])
def test_an_abort_is_the_mismatch_that_the_others_tell_of(aborted: int) -> None:
    """gloo has ended a rank that did nothing wrong: it was sent more than it expected."""
    world = trained(4)
    world.ends(world.procs[aborted], signal=6, held=True)
    for rank in {0, 1, 2, 3} - {aborted}:
        mine = place(size=32) if rank == 2 else place()
        world.ends(world.procs[rank], code=1, error="RuntimeError", message=LOST, place=mine, held=True)
    world.run(2)
    [incident] = world.incidents()
    assert (incident.klass, [m.rank for m in incident.culprits], incident.nodes) == (
        "collective_mismatch",
        [2],
        ("n2",),
    )
    assert any("rank 2 called gloo:all_gather [[32]]" in reason for reason in incident.reasons)


def test_an_abort_of_which_nobody_tells_more_is_a_death() -> None:
    world = trained(4)
    world.ends(world.procs[1], signal=6, held=True)
    for rank in (0, 2, 3):
        world.ends(world.procs[rank], code=1, error="RuntimeError", message=LOST, place=place(), held=True)
    world.run(2)
    [incident] = world.incidents()
    assert (incident.klass, [m.rank for m in incident.culprits]) == ("worker_dead", [1])


def test_who_left_with_code_0_and_without_a_word_is_whom_its_peers_have_lost() -> None:
    world = trained(4)
    world.ends(world.procs[2], code=0, closed=False)
    for proc in [proc for proc in world.procs if proc is not world.procs[2]]:
        world.ends(proc, code=1, error="RuntimeError", message=LOST, held=True)
    world.run(2)
    [incident] = world.incidents()
    assert (incident.klass, [m.rank for m in incident.culprits], incident.nodes) == ("worker_dead", [2], ("n2",))
    assert "without a word" in incident.summary


def test_who_left_with_a_word_is_not_blamed_for_what_its_peers_say() -> None:
    world = trained(4)
    world.ends(world.procs[2], code=0, closed=True)
    for proc in [proc for proc in world.procs if proc is not world.procs[2]]:
        world.ends(proc, code=1, error="RuntimeError", message=LOST, held=True)
    world.run(2)
    [incident] = world.incidents()
    assert (incident.klass, incident.culprits) == ("unknown", ())
