"""Numbers that are not finite: what nodes tell, what is made of it, and what is done about it by whose consent."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankpulse.core import numbers, policy
from rankpulse.core.non_finite import Case, choose
from rankpulse.core.numbers import FINITE, Told, joined, summed, understood
from rankpulse.core.slot_numbers import LOSS_INF, LOSS_NAN, NORM_INF, Numbers

WELL = Numbers()
ABLE = policy.Facts(elastic=True, launcher_alive=True, armed=True, orders_left=3, joint=True)
FREE = Case(ABLE, consent=True, limit=100)
AGAIN = "step 100 is not finite again"


def bad(first: int, row: int = 3, what: int = LOSS_NAN, finite: int = -2) -> Numbers:
    return Numbers(row, first, first - 1 if finite == -2 else finite, first + row - 1, what, row, 0)


def facts(**changed: Any) -> Case:
    return FREE._replace(facts=ABLE._replace(**changed))


@pytest.mark.parametrize(
    ("case", "action", "why"),
    [
        (FREE, "restart", "from a checkpoint before step 100"),
        (FREE._replace(consent=False), "none", "policy.restart_on_non_finite is off"),
        (FREE._replace(consent=False, again=AGAIN), "none", "again; policy.restart_on_non_finite is off"),
        (facts(paused=True, unarmed="the run is paused by ann"), "none", "paused by ann"),
        (facts(armed=False), "observe", "would go on from before step 100 now, but orders are not armed"),
        (facts(elastic=False), "page", "no torchelastic"),
        (facts(launcher_alive=False), "page", "no torchelastic"),
        (facts(parted=True), "page", "meets nobody any more"),
        (facts(orders_left=0), "page", "budget of restart orders"),
        (facts(spent="the budget of the fleet"), "page", "the budget of the fleet"),
        (facts(rests_s=8.0), "wait", "no other within 8 s"),
        (FREE._replace(settled=False), "wait", "may have been sooner"),
        (FREE._replace(refusal="it has told of no checkpoint"), "page", "no restart: it has told of no checkpoint"),
        (FREE._replace(again=AGAIN), "stop", AGAIN),
        (FREE._replace(again=AGAIN, refusal="no checkpoint"), "stop", AGAIN),
        (facts(orders_left=0)._replace(again=AGAIN), "stop", AGAIN),
        (facts(armed=False)._replace(again=AGAIN), "page", AGAIN),
        (facts(joint=False)._replace(again=AGAIN), "page", AGAIN),
        (facts(armed=False, orders_left=0), "page", "budget"),
        (facts(paused=True, unarmed="paused")._replace(again=AGAIN), "none", "paused"),
    ],
)
def test_what_is_done(case: Case, action: str, why: str) -> None:
    choice = choose(case)
    assert choice.action == action
    assert why in choice.reason


@given(
    st.builds(
        Case,
        st.builds(
            policy.Facts, st.booleans(), st.booleans(), st.booleans(), st.integers(-1, 3), joint=st.booleans(),
            paused=st.booleans(), parted=st.booleans(), spent=st.sampled_from(["", "spent"]),
            rests_s=st.sampled_from([0.0, 5.0]), unarmed=st.just("not armed"),
        ),
        st.booleans(), st.integers(-1, 10), st.sampled_from(["", "no"]), st.sampled_from(["", AGAIN]), st.booleans(),
    )
)  # fmt: skip
def test_no_job_is_touched_without_consent_arms_and_a_checkpoint_of_before(case: Case) -> None:
    choice = choose(case)
    assert choice.reason
    if choice.action in (policy.RESTART, policy.STOP):
        assert case.consent
        assert case.facts.armed
        assert not case.facts.paused
        assert case.facts.elastic
    if choice.action == policy.RESTART:
        assert not case.refusal
        assert not case.again
        assert case.facts.orders_left > 0


@pytest.mark.parametrize(
    ("ranks", "told"),
    [
        ([], FINITE),
        ([(0, None), (1, None)], FINITE),
        ([(0, WELL), (1, bad(9, row=2, what=NORM_INF))], FINITE),  # a loss scaler at work
        ([(0, WELL), (1, bad(9))], Told(9, 8, LOSS_NAN, (1,), 1, 1, 2)),
        ([(0, bad(9)), (1, bad(9)), (2, None)], Told(9, 8, LOSS_NAN, (0, 1), 2, 2, 2)),
        ([(0, bad(9)), (1, bad(10, row=2))], Told(9, 8, LOSS_NAN, (0,), 1, 2, 2)),  # it will be one in a moment
        ([(4, bad(9, what=LOSS_INF)), (5, bad(8, row=4))], Told(8, 7, LOSS_NAN, (5,), 1, 2, 2)),
    ],
)
def test_what_a_node_tells(ranks: list[tuple[int, Numbers | None]], told: Told) -> None:
    assert summed(ranks) == told


def test_what_nodes_tell_together_names_those_of_the_oldest_row() -> None:
    one, other = summed([(0, bad(9)), (1, bad(8, row=4))]), summed([(2, bad(8, row=4)), (3, bad(9)), (4, WELL)])
    assert joined([one, other, FINITE]) == Told(8, 7, LOSS_NAN, (1, 2), 2, 4, 5)
    assert joined([FINITE]) == joined([]) == FINITE


def test_of_a_large_job_the_first_are_named_and_all_are_counted() -> None:
    node = summed((rank, bad(5)) for rank in range(256))
    assert (len(node.movers), node.moved, node.bad) == (numbers.NAMED_MAX, 256, 256)
    assert understood(numbers.detail(node)) == node


@given(st.lists(st.tuples(st.integers(0, 99), st.builds(bad, st.integers(0, 2**53), st.integers(0, 9)))))
def test_what_is_told_is_understood(ranks: list[tuple[int, Numbers]]) -> None:
    told = summed(dict(ranks).items())
    assert understood(numbers.detail(told)) == told


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)


@given(
    st.dictionaries(st.sampled_from([*numbers.detail(summed([(0, bad(1))])), "x"]), scalars),
    st.sampled_from(["row", "over", "x", None]),
)
def test_whatever_is_told_makes_sense_or_none(said: dict[str, Any], how: str | None) -> None:
    told = understood({"movers": "0", "bad": 1, "moved": 1, "what": 1, "first": 1} | said | {"how": how})
    if told is not None and told.bad:
        assert 0 <= told.first <= numbers.COUNT_MAX
        assert 1 <= len(told.movers) <= told.moved <= told.bad <= told.telling
        assert told.words
