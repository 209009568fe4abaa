"""How the demo judges that a job left a node, or was not started again: that these judges can fail."""

from typing import Any

import pytest

from rankpulse.core import records as r
from rankpulse.drills.leaving import SAVE_EVERY, drained, moved
from rankpulse.drills.repeating import stopped
from rankpulse.drills.scenes import Result

WHY = "it fails at step 15 again (as in round 1), and no progress since: it would only fail once more"


def order(kind: str = "restart", without: tuple[str, ...] = ("node-1",)) -> r.Order:
    place: dict[str, Any] = {"run_uid": "u", "run_id": "job", "round": 1, "incident": "i1", "author": "rankpulse"}
    return r.Order(order_id=f"i1-{kind}", kind=kind, epoch=1, reason="", at=0.0, without=without, **place)


def incident(outcome: str = "recovered", action: str = "restart", reason: str = "") -> r.Incident:
    return r.Incident(
        id="i1",
        klass="worker_dead",
        state="closed",
        opened_at=0.0,
        outcome=outcome,
        action=action,
        action_reason=reason,
    )


def test_one_order_and_the_spare_in_the_place_of_the_node() -> None:
    assert moved("node-1", {"node-0", "node-2"}, [order()], [incident()]) == []


@pytest.mark.parametrize(
    ("nodes", "orders", "incidents", "said"),
    [
        (("node-0", "node-1"), [order()], [incident()], "the round is of ['node-0', 'node-1']"),
        (("node-0", "node-2"), [], [incident()], "orders: []"),
        (("node-0", "node-2"), [order(without=())], [incident()], "should be one restart without node-1"),
        (("node-0", "node-2"), [order(), order("kill")], [incident()], "'kill'"),
        (("node-0", "node-2"), [order()], [incident("superseded")], "['superseded']"),
        (("node-0", "node-2"), [order()], [incident(), incident()], "should be one that recovered"),
    ],
)
def test_another_round_or_another_order_or_another_end_is_wrong(
    nodes: tuple[str, ...], orders: list[r.Order], incidents: list[r.Incident], said: str
) -> None:
    [wrong] = moved("node-1", nodes, orders, incidents)
    assert said in wrong


@pytest.mark.parametrize(
    ("resumed", "lost", "spoken", "said"),
    [
        (2 * SAVE_EVERY, 1, False, []),
        (SAVE_EVERY, 1, False, ["not from a checkpoint of after step 70"]),
        (2 * SAVE_EVERY + 1, 1, False, ["not from a checkpoint"]),
        (2 * SAVE_EVERY, SAVE_EVERY // 2, False, ["it did not leave then"]),
        (2 * SAVE_EVERY + 3, 1, True, []),
        (SAVE_EVERY + 22, 0, True, ["not from a checkpoint of after step 70"]),
        (2 * SAVE_EVERY + SAVE_EVERY // 2, 0, True, ["it did not leave then"]),
        (None, None, None, ["not seen to resume"]),
    ],
)
def test_a_drain_waits_for_the_next_checkpoint_and_for_nothing_more(
    resumed: int | None, lost: int | None, spoken: bool | None, said: list[str]
) -> None:
    wrong = drained(Result("cordon", resumed_from_step=resumed, lost_steps=lost, last_words=spoken), 70)
    assert len(wrong) == len(said)
    assert all(one in text for one, text in zip(said, wrong, strict=True))


def test_a_restart_and_then_a_stop_that_pages_its_reason_once() -> None:
    assert stopped([incident(), incident("run_ended", "stop", WHY)], [f"*stop* {WHY}"]) == []


@pytest.mark.parametrize(
    ("first", "reason", "pages", "said"),
    [
        ("stop", WHY, [WHY], "the first failure: action stop"),
        ("restart", "the budget is used up", ["the budget is used up"], "does not tell that it failed before"),
        ("restart", WHY, [], "paged: []"),
        ("restart", WHY, [WHY, WHY], "should be once"),
        ("restart", WHY, ["it failed"], "with the reason"),
    ],
)
def test_a_stop_at_once_or_without_its_reason_or_its_page_is_wrong(
    first: str, reason: str, pages: list[str], said: str
) -> None:
    [wrong] = stopped([incident(action=first), incident("run_ended", "stop", reason)], pages)
    assert said in wrong
