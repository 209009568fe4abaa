"""What a job says of its checkpoints, and what is believed, told and asked of it because of that."""

from typing import Any

import pytest
from core_world import Proc, World

from rankpulse.core import checkpoints, codec
from rankpulse.core import records as r
from rankpulse.core.checkpoints import LOADED, REFUSED, SAVE_FAILED, SAVED, UPLOAD_FAILED, UPLOADED

NODES = {"node-a": 2, "node-b": 2}


def joined(*, first_step: int = 1) -> tuple[World, list[Proc]]:
    """A run of our rendezvous that trains, watched by an armed monitor."""
    world = World()
    world.arm()
    procs = world.meets(NODES, 1, first_step=first_step)
    world.run(20)
    assert world.incidents() == []
    return world, procs


def says(world: World, proc: Proc, event: str, step: int, **detail: Any) -> str:
    return world.observe(r.CHECKPOINT, proc.node, proc, event=event, times=detail.pop("times", 1), step=step, **detail)


def saves(world: World, proc: Proc, step: int, **detail: Any) -> str:
    full = {"bytes": 1000, "shards": 4, "kind": "sharded", "save_s": 0.3, "verified": True, "verify_s": 0.1}
    return says(world, proc, SAVED, step, **{**full, **detail})


def loads(world: World, proc: Proc, step: int, **detail: Any) -> str:
    full = {"bytes": 1000, "load_s": 0.4, "verify_s": 0.2, "level": "full", "skipped": 0, "resharded_from": 0}
    return says(world, proc, LOADED, step, **{**full, **detail})


def state(world: World, uid: str = "job-1") -> r.CheckpointState:
    return codec.decode(r.CheckpointState, world.store[world.keys.checkpoint(uid)][0])


def shown(world: World, uid: str = "job-1") -> dict[str, Any] | None:
    return world.engine.snapshot(world.now)["runs"][uid]["checkpoint"]


def news_in_store(world: World) -> list[str]:
    found = [(key, codec.decode(r.Observation, data)) for key, (data, _) in world.store.items() if "/obs/" in key]
    return [key for key, obs in found if obs.kind == r.CHECKPOINT]


def crashes(world: World, procs: list[Proc]) -> None:
    """Rank 3 dies and is held; the others end at the order."""
    world.ends(procs[3], signal=9, held=True)
    world.run(0.3)
    [order] = world.orders()
    for proc in procs[:3]:
        world.ends(proc, signal=15, order_id=order.order_id)
    world.asks(NODES, 2)
    world.run(0.3)


def texts(incident: r.Incident) -> str:
    return "\n".join(line.text for line in incident.trail)


# --- what is believed


def test_a_save_is_believed_written_and_then_erased() -> None:
    world, procs = joined()
    assert shown(world) is None
    key = saves(world, procs[0], 120)
    world.run(1)
    assert key not in world.store
    found = state(world)
    assert (found.step, found.verified_step, found.saves, found.bytes, found.save_s) == (120, 120, 1, 1000, 0.3)
    assert (found.kind, found.shards, found.verify_s) == ("sharded", 4, 0.1)
    saves(world, procs[0], 140, verified=False, times=3)
    world.run(1)
    found = state(world)
    assert (found.step, found.verified_step, found.saves, found.verifications) == (140, 120, 4, 1)


def test_the_age_is_this_monitors_own_and_a_new_one_counts_from_what_it_found() -> None:
    world, procs = joined()
    saves(world, procs[0], 120)
    world.run(10)
    saves(world, procs[0], 130, verified=False)
    world.run(5)
    now = shown(world)
    assert now is not None
    assert (round(now["age_s"]), round(now["verified_age_s"])) == (5, 15)
    world.relist()
    assert round((shown(world) or {})["age_s"]) == 5, "to list the store anew makes nothing younger"
    world.successor(2)
    world.run(3)
    now = shown(world)
    assert now is not None
    assert (now["step"], round(now["age_s"]), round(now["verified_age_s"])) == (130, 3, 3)


def test_saves_that_fail_are_counted_until_one_succeeds() -> None:
    world, procs = joined()
    saves(world, procs[0], 100)
    says(world, procs[0], SAVE_FAILED, 110, reason="disk full", times=2)
    says(world, procs[0], SAVE_FAILED, 120, reason="disk \x1b[2J full")
    world.run(1)
    found = state(world)
    assert (found.step, found.failures, found.failed_since, found.failed_step) == (100, 3, 3, 120)
    assert found.failure == "disk \\x1b[2J full"
    saves(world, procs[0], 130)
    world.run(1)
    found = state(world)
    assert (found.failures, found.failed_since, found.failure) == (3, 0, "")


def test_what_is_beyond_the_nodes_is_the_newest_that_is_complete_at_any_place() -> None:
    world, procs = joined()
    saves(world, procs[0], 100, local=True)
    says(world, procs[2], UPLOAD_FAILED, 100, reason="disk \x1b[2J full", times=2)
    world.run(1)
    found, now = state(world), shown(world)
    assert (found.durable_step, found.upload_failures, found.upload_failed_since) == (-1, 2, 2)
    assert (found.upload_failure, found.failures) == ("disk \\x1b[2J full", 0), "the save itself is sound"
    assert now is not None
    assert now["durable_age_s"] is None
    saves(world, procs[0], 120, local=True)
    says(world, procs[0], UPLOADED, 120, upload_s=2.0, place="/shared")
    says(world, procs[0], UPLOADED, 100, upload_s=9.0, place="s3://far")
    world.run(1)
    found = state(world)
    assert (found.step, found.durable_step, found.uploads, found.durable_saves) == (120, 120, 2, 2)
    assert (found.upload_failures, found.upload_failed_since, found.upload_failure) == (2, 0, "")
    world.run(5)
    assert round((shown(world) or {})["durable_age_s"]) == 6
    loads(world, procs[0], 100)
    world.run(1)
    assert state(world).durable_step == 100, "what came later was not trusted"


def test_after_a_load_the_newest_is_what_was_loaded() -> None:
    world, procs = joined()
    saves(world, procs[0], 140)
    world.run(1)
    says(world, procs[0], REFUSED, 140, reason="shard-00001 is damaged")
    loads(world, procs[0], 120, skipped=1)
    world.run(1)
    found = state(world)
    assert (found.step, found.verified_step, found.loaded_step, found.loaded_round) == (120, 120, 120, 1)
    assert (found.refused, found.refusals) == (1, (r.Refusal(1, 140, "shard-00001 is damaged"),))


def test_a_word_of_an_older_round_that_comes_late_counts_and_changes_no_step() -> None:
    world, procs = joined()
    later = world.meets(NODES, 2, first_step=100)
    loads(world, later[0], 99)
    world.run(1)
    saves(world, procs[1], 130)
    loads(world, procs[2], 50)
    world.run(1)
    assert (state(world).step, state(world).saves) == (99, 1)
    assert (state(world).loaded_step, state(world).loaded_round, state(world).loads) == (99, 2, 2)


def test_refusals_are_bounded_and_all_are_counted() -> None:
    world, procs = joined()
    for step in range(50):
        says(world, procs[0], REFUSED, step, reason="x" * 5000)
    world.run(1)
    assert state(world).refused == 50
    assert [refusal.step for refusal in state(world).refusals] == list(range(42, 50))
    assert len(world.store[world.keys.checkpoint("job-1")][0]) < 4000


@pytest.mark.parametrize("bad", [{}, {"event": "sung"}, {"event": 3, "step": "x"}, {"event": SAVED, "step": -5}])
def test_garbage_is_erased_and_believed_of_nobody(bad: dict[str, Any]) -> None:
    world, procs = joined()
    key = world.observe(r.CHECKPOINT, "node-a", procs[0], **bad)
    world.run(1)
    assert key not in world.store
    assert state(world).step == -1
    world.observe(r.CHECKPOINT, "node-a", procs[0], event=SAVED, step=7, save_s=1e300, bytes=-1, times=True)
    world.run(1)
    assert (state(world).step, state(world).save_s, state(world).bytes, state(world).saves) == (7, 0.0, 0, 1)


def test_of_whom_nothing_is_known_nothing_is_believed() -> None:
    world, _ = joined()
    key = world.observe(r.CHECKPOINT, "node-a", event=SAVED, step=7, times=1)
    world.run(1)
    assert key not in world.store
    assert shown(world) is None


# --- a new leader


def test_nothing_is_counted_twice_whenever_the_leader_dies() -> None:
    """Between the news, the state that counts it, and its erasure."""
    for moment in ("before", "after the state", "after the erasure"):
        world, procs = joined()
        saves(world, procs[0], 100)
        world.run(1)
        key = saves(world, procs[0], 120)
        if moment == "before":
            world.refuse_writes = True
            world.tick()
            world.refuse_writes = False
        elif moment == "after the state":
            data = world.store[key]
            world.run(1)
            assert key not in world.store
            world.store[key] = data  # it had no time to erase it
        else:
            world.run(1)
        world.successor(2)
        world.run(3)
        assert (state(world).saves, state(world).step) == (2, 120), moment
        assert news_in_store(world) == [], moment


def test_a_standby_believes_the_same_and_erases_nothing() -> None:
    world, procs = joined()
    saves(world, procs[0], 100)
    world.run(1)
    leader = shown(world)
    world.relist()
    assert shown(world) == leader


def test_it_goes_with_the_run() -> None:
    world, procs = joined()
    saves(world, procs[0], 100)
    world.run(1)
    run = world.engine.folder.fleet.runs["job-1"]
    saves(world, procs[0], 110)
    world.engine.folder.drop_run(run)
    for proc in procs:
        proc.alive = False
    world.launchers.clear()
    world.run(0.5)
    assert world.keys.checkpoint("job-1") not in world.store
    assert news_in_store(world) == []


def test_a_plain_launch_tells_as_well_and_so_does_one_that_is_merged() -> None:
    world = World()
    procs = world.launch({"node-a": 1, "node-b": 1}, meeting="m1")
    loads(world, procs[0], 5)
    world.run(5)
    [run] = world.run_states()
    assert state(world, run.run_uid).loaded_step == 5
    for proc in procs:
        world.ends(proc, signal=9)
    world.run(1)
    again = world.launch({"node-a": 1, "node-b": 1}, meeting="m2", first_step=6)
    loads(world, again[1], 5)
    world.run(5)
    [run] = world.run_states()
    assert run.round == 2
    assert (state(world, run.run_uid).loads, state(world, run.run_uid).loaded_round) == (2, 2)
    assert [key for key in world.store if key.endswith("/checkpoint")] == [world.keys.checkpoint(run.run_uid)]
    assert news_in_store(world) == []


# --- what an incident tells of it


def test_the_story_tells_what_was_resumed_from_and_what_was_not_and_why() -> None:
    world, procs = joined()
    highest = max(proc.step for proc in procs)
    crashes(world, procs)
    fresh = world.meets(NODES, 2, asks=False, first_step=81)
    says(world, fresh[0], REFUSED, 100, reason="shard-00002.safetensors does not have the checksum it was saved with")
    loads(world, fresh[0], 80, skipped=1, resharded_from=8)
    world.run(4)
    [incident] = world.incidents()
    assert (incident.outcome, incident.resumed_from_step) == ("recovered", 80)
    assert incident.lost_steps == highest - 80
    told = texts(incident)
    assert "round 2 did not take the checkpoint of step 100: shard-00002.safetensors does not have" in told
    assert "round 2 resumed from the checkpoint of step 80, verified (full), read in 0.4 s, saved by 8 ranks" in told
    assert f"go on from step 80: {highest - 80} steps of work lost" in told


def test_the_jobs_word_is_worth_more_than_its_first_step() -> None:
    """Its ranks may count from elsewhere, or report their first step late."""
    world, procs = joined()
    crashes(world, procs)
    fresh = world.meets(NODES, 2, asks=False, first_step=84)
    loads(world, fresh[0], 80)
    world.run(4)
    assert [i.resumed_from_step for i in world.incidents()] == [80]


def test_where_the_job_says_nothing_the_first_step_tells_and_an_earlier_load_does_not() -> None:
    world, procs = joined()
    loads(world, procs[0], 10)
    crashes(world, procs)
    world.meets(NODES, 2, asks=False, first_step=84)
    world.run(4)
    [incident] = world.incidents()
    assert incident.resumed_from_step == 83
    assert "resumed from the checkpoint" not in texts(incident)


# --- a limit for what is resumed from


def asks_before(world: World, step: int, *, uid: str = "job-1") -> None:
    request = r.Request(
        id=f"q{world.revision}",
        kind="restart",
        run_uid=uid,
        author="ann",
        reason="loss",
        at=0.0,
        resume_before_step=step,
    )
    world.put(world.keys.request(request.id), request)
    world.run(0.5)


def test_a_limit_goes_from_the_request_to_the_order_and_to_every_gate_until_it_is_obeyed() -> None:
    world, procs = joined()
    asks_before(world, 50)
    [order] = world.orders()
    assert (order.kind, order.round, order.resume_before_step) == ("restart", 1, 50)
    for proc in procs:
        world.ends(proc, signal=15, order_id=order.order_id)
    world.asks(NODES, 2)
    world.run(0.5)
    assert [(g.round, g.resume_before_step, g.resume_before_round) for g in world.gates()] == [(2, 50, 1)]
    second = world.meets(NODES, 2, asks=False)  # it dies before it has loaded anything
    world.run(1)
    world.successor(2)
    for proc in second:
        world.ends(proc, signal=9)
    world.asks(NODES, 3)
    world.run(1)
    third = [gate for gate in world.gates() if gate.round == 3]
    assert [(g.resume_before_step, g.resume_before_round) for g in third] == [(50, 1)]
    fresh = world.meets(NODES, 3, asks=False, first_step=41)
    loads(world, fresh[0], 40)
    world.run(4)
    assert (state(world).resume_before_step, state(world).resume_before_round) == (-1, 1)
    for proc in fresh:
        world.ends(proc, signal=9)
    world.asks(NODES, 4)
    world.run(1)
    assert [g.resume_before_step for g in world.gates() if g.round == 4] == [-1]


def test_the_story_of_a_limit() -> None:
    world, procs = joined()
    asks_before(world, 50)
    for proc in procs:
        world.ends(proc, signal=15)
    fresh = world.meets(NODES, 2, first_step=41, before=(50, 1))
    says(world, fresh[0], REFUSED, 60, reason="set aside: to resume before step 50")
    loads(world, fresh[0], 40)
    world.run(4)
    [incident] = world.incidents()
    assert (incident.outcome, incident.resumed_from_step, incident.resume_before_step) == ("recovered", 40, 50)
    told = texts(incident)
    assert "ann: loss (to go on from a checkpoint before step 50)" in told
    assert "end the workers of round 1, and go on from a checkpoint before step 50" in told
    assert "round 2 did not take the checkpoint of step 60: set aside" in told
    assert "had met already" not in told


def test_a_round_that_had_met_before_the_order_is_told_of() -> None:
    world, _ = joined()
    world.meets(NODES, 2, first_step=61)
    asks_before(world, 50)
    [incident] = world.incidents()
    assert incident.round == 2
    assert [order.round for order in world.orders()] == [2]
    world.meets(NODES, 3, first_step=61)  # its agents had not seen the order
    world.run(4)
    assert "round 3 had met already when the restart was ordered: the limit" in texts(world.incidents()[0])
    assert state(world).resume_before_step == 50


def test_a_job_that_does_not_obey_is_told_of_and_the_limit_stands() -> None:
    world, procs = joined()
    asks_before(world, 50)
    for proc in procs:
        world.ends(proc, signal=15)
    fresh = world.meets(NODES, 2, first_step=61)
    loads(world, fresh[0], 60)
    world.run(4)
    assert "round 2 did not obey the limit to resume before step 50" in texts(world.incidents()[0])
    assert state(world).resume_before_step == 50


@pytest.mark.parametrize(
    ("step", "why"), [(0, "no checkpoint lies before step 0"), (-7, "before step -7"), (2**60, "name one")]
)
def test_what_cannot_be_a_limit_is_refused(step: int, why: str) -> None:
    world, _ = joined()
    asks_before(world, step)
    assert world.orders() == []
    assert [line for line in world.said if "refused" in line and why in line]


@pytest.mark.parametrize(("limit", "orders"), [(39, 0), (40, 0), (41, 1)])
def test_a_limit_below_which_nothing_is_kept_does_not_end_a_job_that_trains(limit: int, orders: int) -> None:
    world, procs = joined()
    saves(world, procs[0], 60, oldest=40)
    world.run(1)
    asks_before(world, limit)
    assert len(world.orders()) == orders
    said = [line for line in world.said if "kept none older than that of step 40; name a later step" in line]
    assert len(said) == 1 - orders


def test_a_run_that_meets_elsewhere_is_not_restarted_as_if_it_would_obey() -> None:
    world = World()
    world.arm()
    world.launch(NODES, meeting="m1")
    world.run(20)
    [run] = world.run_states()
    asks_before(world, 50, uid=run.run_uid)
    assert world.orders() == []
    assert [line for line in world.said if "set RANKPULSE_RESUME_BEFORE_STEP where torchrun is started" in line]


def test_the_newest_limit_counts() -> None:
    first = r.CheckpointState(run_uid="r", resume_before_step=50, resume_before_round=1)
    order = r.Order(
        order_id="o", run_uid="r", run_id="", round=3, kind="restart", epoch=1, incident="i", reason="", author="",
        at=0.0, resume_before_step=90,
    )  # fmt: skip
    second = checkpoints.limited(first, order)
    assert (second.resume_before_step, second.resume_before_round) == (90, 3)
    assert checkpoints.limited(second, order) is second
