"""An untrusted identity becomes rows, or is refused with a reason."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankpulse.core.identity import Identity, IdentityRefused, meeting, text, understand

GOOD: dict[str, Any] = {"run_id": "r", "rank": 1, "local_rank": 0, "world_size": 2, "master": "a:1"}


def known(**changes: Any) -> Identity:
    return understand({**GOOD, **changes}, node="n", pid=7, start=9, launcher="1.2", owner=1000)


def test_a_good_identity() -> None:
    who = known(elastic=True, run_uid="u-1", round=3)
    assert (who.rank, who.local_rank, who.run.world_size, who.run.elastic) == (1, 0, 2, True)
    assert (who.run.run_uid, who.run.round, who.run.launcher) == ("u-1", 3, "1.2")


def test_what_may_be_unknown() -> None:
    who = known(local_rank=-1, round=-1, run_uid="", run_id=None)
    assert (who.local_rank, who.run.round, who.run.run_uid, who.run.run_id) == (-1, -1, "", "")


@pytest.mark.parametrize(
    "changes",
    [
        {"rank": -1},
        {"rank": 2},
        {"rank": True},
        {"rank": 1.0},
        {"rank": "1"},
        {"rank": None},
        {"rank": json.loads("[" * 900 + "]" * 900)},
        {"world_size": 0},
        {"world_size": 2**20 + 1},
        {"local_rank": 5},
        {"local_rank": None},
        {"round": -2},
        {"round": "x"},
        {"run_uid": "a/b"},
        {"run_uid": 5},
    ],
    ids=range(15),
)
def test_refused_with_the_name_of_the_field(changes: dict[str, Any]) -> None:
    with pytest.raises(IdentityRefused, match=next(iter(changes))):
        known(**changes)


def test_a_meeting_is_the_same_on_all_nodes_and_another_in_another_place() -> None:
    here = meeting(GOOD, "n1", 1, 1, 1000)
    assert here == meeting({**GOOD, "rank": 0}, "n2", 5, 5, 1000)
    assert here != meeting(GOOD, "n1", 1, 1, 1001), "another user cannot join by claiming the same address"
    assert len(here) == 16
    others = [{"master": "a:2"}, {"run_id": "q"}, {"world_size": 3}, {"slurm": "7.0.0"}]
    assert len({here, *(meeting({**GOOD, **other}, "n1", 1, 1, 1000) for other in others)}) == 5


def test_a_loopback_address_is_another_place_on_each_machine() -> None:
    for master in ("127.0.0.1:29500", "localhost:1", "[::1]:29500"):
        here, there = (meeting({**GOOD, "master": master}, "n1", 1, 1, 0, machine) for machine in ("boot-1", "boot-2"))
        assert here != there
    assert meeting(GOOD, "n1", 1, 1, 0, "boot-1") == meeting(GOOD, "n2", 1, 1, 0, "boot-2")


def test_without_a_place_a_process_meets_only_itself() -> None:
    alone = {**GOOD, "master": ""}
    assert meeting(alone, "n1", 1, 1, 1000) != meeting(alone, "n1", 2, 1, 1000)


def test_text_can_always_be_written() -> None:
    assert msgspec.json.encode(text("\ud800a\0" + "x" * 999))
    assert len(text("x" * 999)) == 256
    assert text(5) == ""


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
_fields = st.sampled_from(["run_id", "rank", "local_rank", "world_size", "master", "slurm", "run_uid", "round"])


@given(st.dictionaries(_fields, _json))
def test_total_over_anything_a_slot_can_hold(changes: dict[str, Any]) -> None:
    try:
        who = known(**changes)
    except IdentityRefused:
        return
    assert 0 <= who.rank < who.run.world_size
    assert msgspec.json.encode(who.run)
