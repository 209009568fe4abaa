"""What is told outside: once per decision, whoever leads, and visibly given up where nobody listens."""

import itertools

import msgspec
import pytest
from core_world import DRILL
from hypothesis import given
from hypothesis import strategies as st
from outbox_world import PAGER, Told, settings

from rankpulse.core import events as ev
from rankpulse.core import records as r
from rankpulse.core.fold_outbox import Letter
from rankpulse.core.outbox import after, wait_s
from rankpulse.core.settings import WebhookSettings
from rankpulse.core.targets import ALERTMANAGER, SLACK, WebhookTarget

CHAT = WebhookTarget(name="chat", url="https://chat.example/", kind=SLACK)
ALERTS = WebhookTarget(name="alerts", url="https://alerts.example/", kind=ALERTMANAGER)


def failing_until(when: float, world: Told) -> None:
    world.receiver.answer = lambda post: ev.TAKEN if world.now >= when else ev.FAILED


def hangs(world: Told) -> None:
    """A job of which one rank stands still; nobody has armed the cluster, so a person is asked."""
    procs = world.launch({"n1": 1, "n2": 1}, meeting="m1")
    world.run(20)
    procs[0].state, world.training = "T", False
    world.run(20)


def test_a_page_is_told_once_and_its_end_after_it() -> None:
    world = Told(settings=settings())
    hangs(world)
    (incident,) = world.incidents()
    assert (incident.action, world.receiver.types()) == ("observe", ["rankpulse.page"])
    (page,) = world.receiver.had
    assert page["data"]["incident"] == page["subject"] == incident.id
    assert page["data"]["decision"] == f"{incident.id}-page"
    assert page["id"].startswith(f"story/{incident.id}-page/")
    world.training = True
    for proc in world.procs:
        proc.state = "S"
    world.run(10)
    assert world.incidents()[0].outcome == "passed"
    assert world.receiver.types() == ["rankpulse.page", "rankpulse.closed"]
    assert len(world.receiver.attempts) == 2
    assert "pager was told of page, attempt 1" in [line.text for line in world.incidents()[0].trail]
    assert {outgoing.state for outgoing in world.outbox().values()} == {"delivered"}


def test_a_page_is_told_although_its_run_ends_in_the_same_moment() -> None:
    world = Told(settings=settings(PAGER, ALERTS))
    world.job_dies()
    (incident,) = world.incidents()
    assert (incident.action, incident.outcome) == ("page", "run_ended")
    assert world.receiver.types() == world.receiver.types("alerts") == ["rankpulse.page"]


def test_where_closing_takes_a_page_back_the_end_of_a_run_does_not() -> None:
    world = Told(settings=settings(PAGER, ALERTS))
    hangs(world)
    for proc in world.procs:
        world.ends(proc, signal=9)
        world.launcher_ends(proc)
    world.run(60)
    assert world.incidents()[0].outcome == "run_ended"
    assert world.receiver.types() == ["rankpulse.page", "rankpulse.closed"]
    assert world.receiver.types("alerts") == ["rankpulse.page"]


def test_what_needs_nobody_is_told_to_nobody() -> None:
    world = Told(settings=settings())
    first, *_ = world.launch({"n1": 1, "n2": 1}, meeting="m1")
    world.run(3)
    world.ends(first, signal=9)
    world.run(1)
    assert world.incidents()[0].action == "adopt"
    assert world.receiver.attempts == []


def in_vain() -> tuple[Told, r.Order]:
    """An order was carried out, and no round follows. A scheduler may be told to start the job again."""
    slurm = WebhookTarget(name="slurm", url="https://s.example/", secret_file="/key", events=("restart", "closed"))
    world = Told(settings=settings(PAGER, slurm))
    world.arm()
    procs = world.meets({"n1": 1, "n2": 1}, 1)
    world.run(10)
    world.ends(procs[1], signal=9, held=True)
    world.run(1)
    (order,) = world.of_kind("restart")
    for proc in [proc for proc in world.procs if proc.alive]:
        world.ends(proc, signal=15, order_id=order.order_id)
    for node in ("n1", "n2"):
        world.observe(r.ORDER_DONE, node, order_id=order.order_id, killed=0)
    assert world.receiver.attempts == []
    return world, order


def test_a_restart_that_would_come_late_is_withdrawn() -> None:
    """The scheduler was away, and meanwhile the job met again by itself: nobody may start it a second time."""
    world, _ = in_vain()
    world.receiver.answer = lambda post: ev.FAILED
    world.run(DRILL.policy.round_s + 5, step_s=0.5)
    assert world.incidents()[0].rung == "webhook"
    world.meets({"n1": 1, "n2": 1}, 2, first_step=31)
    world.run(5)
    assert world.incidents()[0].outcome == "recovered"
    world.receiver.answer = lambda post: ev.TAKEN
    world.run(120, step_s=0.5)
    assert world.receiver.types("slurm") == ["rankpulse.closed"]
    restart = next(one for name, one in world.outbox().items() if name.endswith("-restart/slurm"))
    assert restart.state == "withdrawn"
    assert any("not told of restart any more" in line.text for line in world.incidents()[0].trail)


def test_whoever_may_start_the_job_again_is_told_once_and_then_a_person() -> None:
    """Orders that bring no next round: each rung is told of under the decision's own id, whoever leads meanwhile."""
    world, order = in_vain()
    for epoch in range(2, 5):
        world.run((DRILL.policy.round_s + 10) / 2, step_s=0.5)
        world.successor(epoch)
    world.run(DRILL.policy.round_s + DRILL.policy.webhook_s + 30, step_s=0.5)
    assert world.receiver.types("slurm") == ["rankpulse.restart"]
    assert world.receiver.types() == ["rankpulse.page"]
    wish = next(event for event in world.receiver.had if event["target"] == "slurm")
    assert wish["data"]["decision"] == f"{world.incidents()[0].id}-restart"
    assert (wish["data"]["order_id"], wish["data"]["without"]) == (order.order_id, [])


def test_each_target_is_told_of_what_it_asks_for() -> None:
    deaf = WebhookTarget(name="deaf", url="https://x.example/", kind=SLACK, events=("closed",))
    world = Told(settings=settings(PAGER, CHAT, deaf))
    hangs(world)
    assert {target for _, target, _ in world.receiver.attempts} == {"pager", "chat"}


def test_nothing_is_sent_before_it_stands_in_the_store() -> None:
    world = Told(settings=settings(), refuse_writes=True)
    world.job_dies()
    assert world.receiver.attempts == []


def test_a_target_that_fails_for_ten_minutes_is_told_once_when_it_is_back() -> None:
    world = Told(settings=settings())
    began = world.now
    failing_until(began + 606, world)
    world.job_dies()
    world.run(600, step_s=0.5)
    assert world.receiver.had == []
    world.run(70, step_s=0.5)
    assert world.receiver.types() == ["rankpulse.page"]
    times = [now for now, _, _ in world.receiver.attempts]
    gaps = [after - before for before, after in itertools.pairwise(times)]
    assert max(gaps) <= 61
    assert 10 < len(times) < 40
    attempts = len(times)
    world.run(120, step_s=0.5)
    assert len(world.receiver.attempts) == attempts


def test_a_successor_goes_on_with_the_waiting_and_does_not_begin_anew() -> None:
    world = Told(settings=settings())
    failing_until(world.now + 300, world)
    world.job_dies()
    for epoch in range(2, 8):
        world.run(40, step_s=0.5)
        world.successor(epoch)
    world.run(80, step_s=0.5)
    assert world.receiver.types() == ["rankpulse.page"]
    assert len(world.receiver.attempts) < 35


def test_an_answer_that_was_lost_is_asked_for_again_and_the_target_knows_it() -> None:
    world = Told(settings=settings(), lost=True)
    world.job_dies()
    assert len(world.receiver.attempts) == 1
    world.successor(2)
    world.lost = False
    world.run(3)
    assert len(world.receiver.attempts) == 2
    assert world.receiver.types() == ["rankpulse.page"]


def test_a_leader_that_was_one_in_between_sends_nothing_twice() -> None:
    world = Told(settings=settings(), lost=True)
    world.job_dies()
    (_, target, event) = world.receiver.attempts[0]
    world.engine.step(ev.LeftOffice("paused", world.now))
    world.engine.step(ev.Posted(event, target, 1, ev.TAKEN, "", 0.0, world.now))
    world.engine.step(ev.TookOffice(2, world.now))
    world.lost = False
    world.run(5)
    assert len(world.receiver.attempts) == 1
    assert world.outbox()[f"{event}/{target}"].state == "delivered"


def test_what_a_monitor_did_not_send_counts_as_no_attempt() -> None:
    world = Told(settings=settings())
    answers = iter([ev.UNSENT, ev.UNSENT, ev.TAKEN])
    world.receiver.answer = lambda post: next(answers)
    world.job_dies()
    (outgoing,) = world.outbox().values()
    assert (outgoing.state, outgoing.attempts) == ("delivered", 1)


def test_given_up_visibly_and_tried_anew_at_a_persons_word() -> None:
    world = Told(settings=settings(give_up_after_s=5.0))
    world.receiver.answer = lambda post: ev.FAILED
    world.job_dies()
    world.run(20)
    ((name, outgoing),) = world.outbox().items()
    assert (outgoing.state, outgoing.last_error) == ("dead", "answered 500")
    assert world.incidents()[0].trail[-1].text.startswith("pager could not be told of page")
    tried = len(world.receiver.attempts)
    world.run(100, step_s=0.5)
    assert len(world.receiver.attempts) == tried
    world.receiver.answer = lambda post: ev.TAKEN
    world.ask("webhook_retry", name)
    world.run(2)
    assert world.receiver.types() == ["rankpulse.page"]
    assert world.outbox()[name].state == "delivered"
    world.ask("webhook_retry")
    world.run(1)
    assert any("refused: no dead letter" in line for line in world.said)


def test_a_target_that_wants_no_more_is_not_asked_again() -> None:
    world = Told(settings=settings())
    world.receiver.answer = lambda post: ev.GONE
    world.job_dies()
    world.run(60)
    assert len(world.receiver.attempts) == 1
    assert [outgoing.state for outgoing in world.outbox().values()] == ["dead"]


def test_the_end_does_not_overtake_the_page() -> None:
    world = Told(settings=settings())
    failing_until(world.now + 100, world)
    hangs(world)
    world.training = True
    for proc in world.procs:
        proc.state = "S"
    world.run(100, step_s=0.5)
    assert world.receiver.types() == ["rankpulse.page", "rankpulse.closed"]
    assert {event.rsplit("-", 1)[1] for now, _, event in world.receiver.attempts if now < 1100} == {"page"}


def test_one_target_that_hangs_delays_nobody_else() -> None:
    world = Told(settings=settings(PAGER, CHAT))
    world.receiver.answer = lambda post: ev.FAILED if post.outgoing.target == "pager" else ev.TAKEN
    for _ in range(8):
        world.job_dies()
    assert len(world.receiver.types("chat")) == 8


def test_a_target_that_asks_to_be_left_alone_is() -> None:
    world = Told(settings=settings())
    seen: list[float] = []

    def busy(post: ev.Post) -> str:
        seen.append(world.now)
        return ev.TAKEN

    world.lost = True
    world.receiver.answer = busy
    world.job_dies()
    (_, target, event) = world.receiver.attempts[0]
    world.engine.step(ev.Posted(event, target, 1, ev.FAILED, "answered 429", 120.0, world.now))
    world.lost = False
    world.run(200, step_s=0.5)
    assert len(seen) == 2
    assert seen[1] - seen[0] > 115


def test_a_target_that_asks_to_be_left_alone_again_and_again_is_given_up_in_time() -> None:
    limits, at = WebhookSettings(give_up_after_s=86_400.0), 0.0
    outgoing = r.Outgoing(event="i1-page", target="pager", incident="i1", body="{}", first_at=at)
    while outgoing.state == "pending":
        posted = ev.Posted("i1-page", "pager", outgoing.attempts + 1, ev.FAILED, "answered 429", 3600.0, at)
        outgoing = after(outgoing, posted, limits, at)
        at += outgoing.pause_s
    assert (outgoing.state, outgoing.attempts) == ("dead", 25)


def test_a_target_that_is_new_is_not_told_of_the_past() -> None:
    world = Told(settings=DRILL)
    world.job_dies()
    world.settings = settings()
    world.successor(2)
    world.run(5)
    assert world.receiver.attempts == []
    world.job_dies()
    assert world.receiver.types() == ["rankpulse.page"]


def test_events_to_a_target_that_is_configured_no_more_wait_and_disturb_nobody() -> None:
    world = Told(settings=settings())
    world.receiver.answer = lambda post: ev.FAILED
    world.job_dies()
    world.settings = settings(CHAT)
    world.successor(2)
    attempts = len(world.receiver.attempts)
    world.run(30)
    assert len(world.receiver.attempts) == attempts
    assert [outgoing.state for outgoing in world.outbox().values()] == ["pending"]


@pytest.mark.parametrize("outcome", ["delivered", "dead"])
def test_a_test_is_one_attempt_at_each_target_and_is_forgotten(outcome: str) -> None:
    world = Told(settings=settings(PAGER, CHAT))
    world.receiver.answer = lambda post: ev.TAKEN if outcome == "delivered" else ev.FAILED
    request = world.ask("webhook_test")
    world.run(2)
    assert {name: one.state for name, one in world.outbox().items()} == {
        f"test-{request.id}/{name}": outcome for name in ("pager", "chat")
    }
    assert world.keys.request(request.id) not in world.store
    world.run(70, step_s=0.5)
    assert world.outbox() == {}
    assert len(world.receiver.attempts) == 2


def test_a_test_of_a_target_that_is_configured_no_more_is_forgotten() -> None:
    world = Told(settings=settings())
    world.receiver.answer = lambda post: ev.UNSENT
    world.ask("webhook_test")
    world.run(2)
    assert [one.state for one in world.outbox().values()] == ["pending"]
    world.settings = settings(CHAT)
    world.successor(2)
    world.run(70, step_s=0.5)
    assert world.outbox() == {}


def test_a_test_of_nobody_is_refused() -> None:
    world = Told(settings=settings())
    world.ask("webhook_test", "pagr")
    world.run(1)
    assert any("no such webhook target is configured here: pagr" in line for line in world.said)


def test_history_is_forgotten_with_its_incident() -> None:
    world = Told(settings=settings())
    world.job_dies()
    (incident,) = world.incidents()
    world.erase(world.keys.incident(incident.id))
    world.run(1)
    assert world.outbox() == {}


def monitor_ends_after(action: int) -> Told:
    """The monitor ends right after its so-manieth action, counted from the failure; another takes over."""
    world = Told(settings=settings())
    first, *others = world.launch({"n1": 1, "n2": 1}, meeting="m1", elastic=False)
    world.run(3)
    world.ends(first, signal=9)
    for proc in others:
        world.ends(proc, signal=15, code=None)
    left = [action]
    for _ in range(30):
        world.now = round(world.now + 0.1, 6)
        world.engine.step(ev.CanarySeen(world.now))
        for one in world.engine.tick(world.now, world.now):
            if left[0] <= 0:
                break
            left[0] -= 1
            world.apply(one)
            if isinstance(one, ev.Post):
                answer = world.receiver.take(world.posts.pop(), world.now)
                if left[0] > 0:
                    world.engine.step(answer)
        if left[0] <= 0:
            world.successor(2)
            break
    world.run(10)
    return world


@pytest.mark.parametrize("action", range(0, 24))
def test_wherever_a_monitor_ends_the_page_has_one_effect(action: int) -> None:
    world = monitor_ends_after(action)
    assert world.receiver.types() == ["rankpulse.page"], world.receiver.attempts
    assert [one.state for one in world.outbox().values()] == ["delivered"]


@given(st.integers(1, 5000), st.floats(0.1, 100), st.floats(1, 3600))
def test_waiting_grows_to_its_limit_and_is_spread(attempts: int, first: float, most: float) -> None:
    given_ = WebhookSettings(retry_s=min(first, most), retry_max_s=most)
    letters = [Letter(f"i{n}-page", "pager") for n in range(20)]
    waits = [wait_s(attempts, letter, given_) for letter in letters]
    assert all(0.05 <= wait <= most + 0.001 for wait in waits)
    assert len(set(waits)) > 1


def test_an_event_is_small_whatever_jobs_say() -> None:
    world = Told(settings=settings())
    first, *_ = world.launch({"n1": 1, "n2": 1}, meeting="m1", elastic=False)
    world.run(3)
    world.ends(first, code=1, error="E" * 5000, message="\x1b[2J<!channel>" + "é" * 100_000)
    world.run(3)
    (event,) = world.receiver.had
    assert len(msgspec.json.encode(event)) < 20_000
    assert "\x1b" not in msgspec.json.encode(event).decode()
