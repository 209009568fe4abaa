"""A replica whose parameters differ: from the first check that disagrees to a job that goes on without its machine."""

from typing import Any

import msgspec
import pytest
from core_world import DRILL, World
from numbers_world import saves

from rankpulse.core import checksums, codec
from rankpulse.core import records as r
from rankpulse.core.checksums import Row, Told
from rankpulse.core.settings import Settings
from rankpulse.core.slot_checks import Check

NODES = {"node-a": 1, "node-b": 1, "node-c": 1, "node-d": 1}
CONSENT = msgspec.structs.replace(DRILL, policy=msgspec.structs.replace(DRILL.policy, restart_on_corruption=True))
GROUP = 0xFEED


def trained(settings: Settings = CONSENT, nodes: dict[str, int] = NODES) -> World:
    """A run of our rendezvous at about step 120, with checkpoints of every tenth step up to 100."""
    world = World(settings)
    world.arm()
    world.meets(nodes, 1, first_step=91)
    world.run(10)
    saves(world, 100)
    world.run(0.3)
    assert world.incidents() == []
    return world


def tells(world: World, step: int, odd: dict[str, int] | None = None, nodes: tuple[str, ...] = ()) -> None:
    """Each node tells the check of its ranks: the digest follows from the step, but where `odd` has another."""
    alive = [proc for proc in world.procs if proc.alive]
    for node in nodes or sorted({proc.node for proc in alive}):
        mine = [proc for proc in alive if proc.node == node]
        digest = (odd or {}).get(node, step * 7)
        rows = tuple(Row(proc.rank, Check(GROUP, len(alive), digest)) for proc in mine)
        world.observe(r.CHECKSUMS, node, mine[0], **checksums.detail(Told(step, rows)))


def news(world: World) -> list[str]:
    found = ((key, codec.decode(r.Observation, data)) for key, (data, _) in world.store.items() if "/obs/" in key)
    return [key for key, obs in found if obs.kind == r.CHECKSUMS]


def test_checks_that_agree_raise_nothing_and_leave_little_in_the_store() -> None:
    world = trained()
    for step in range(120, 1120):
        tells(world, step)
        if step % 20 == 0:
            world.run(0.4)
    world.run(2)
    assert (world.incidents(), world.orders()) == ([], [])
    assert len(news(world)) <= 8 * len(NODES)


def test_the_odd_one_out_is_named_and_the_job_goes_on_from_before_it_without_its_machine() -> None:
    world = trained()
    tells(world, 110)
    world.run(1)
    tells(world, 120, {"node-c": 5})
    world.run(2)
    [incident] = world.incidents()
    assert (incident.klass, incident.action, incident.bad_step) == ("silent_corruption", "restart_without", 120)
    assert [member.node for member in incident.culprits] == ["node-c"]
    assert "since step 120" in incident.summary
    [order] = world.of_kind("restart")
    assert (order.resume_before_step, order.without) == (111, ("node-c",))
    assert incident.confidence == 1.0


def test_the_machine_lives_and_asks_again_and_is_kept_out_until_a_person_has_looked_at_it() -> None:
    world = trained()
    tells(world, 110)
    tells(world, 120, {"node-c": 5})
    world.run(3)
    [order] = world.of_kind("restart")
    for proc in [p for p in world.procs if p.alive]:
        world.ends(proc, signal=15, order_id=order.order_id)
    world.asks(NODES, 2)
    world.run(3)
    gate = codec.decode(r.Gate, world.store[world.keys.gate("job-1", 2)][0])
    assert (gate.go, gate.without) == (True, ("node-c",))
    [cordon] = [codec.decode(r.Cordon, data) for key, (data, _) in world.store.items() if "/cordons/" in key]
    assert (cordon.node, "from a checkpoint before step" in cordon.reason) == ("node-c", True)


def test_it_ends_when_the_others_train_again() -> None:
    world = trained()
    tells(world, 110)
    tells(world, 120, {"node-c": 5})
    world.run(3)
    [order] = world.of_kind("restart")
    for proc in [p for p in world.procs if p.alive]:
        world.ends(proc, signal=15, order_id=order.order_id)
    rest = {node: 1 for node in NODES if node != "node-c"}
    world.asks(rest, 2)
    world.run(0.3)
    world.meets(rest, 2, first_step=101, asks=False, before=(111, 1))
    world.run(10)
    [incident] = world.incidents()
    assert (incident.state, incident.outcome) == ("closed", "recovered")
    tells(world, 111)
    world.run(30)
    assert len(world.incidents()) == 1
    assert len(world.of_kind("restart")) == 1


def test_without_consent_a_person_is_told_which_machine_it_is() -> None:
    world = trained(DRILL)
    tells(world, 110)
    tells(world, 120, {"node-b": 5})
    world.run(5)
    [incident] = world.incidents()
    assert (incident.action, world.orders()) == ("page", [])
    assert "policy.restart_on_corruption is off" in incident.action_reason
    assert incident.nodes == ("node-b",)


@pytest.mark.parametrize("settings", [DRILL, CONSENT])
def test_a_runs_own_word_goes_before_the_clusters(settings: Settings) -> None:
    world, wanted = trained(settings), settings is DRILL
    mode = r.RunMode(run_uid="job-1", mode="armed", author="ann", reason="mine", at=0.0, restart_on_corruption=wanted)
    world.put(world.keys.run_mode("job-1"), mode)
    tells(world, 110)
    tells(world, 120, {"node-b": 5})
    world.run(5)
    assert bool(world.of_kind("restart")) is wanted


def test_of_two_replicas_nobody_is_picked_both_are_named_and_nobody_is_left_out() -> None:
    two = {"node-a": 1, "node-b": 1}
    world = trained(nodes=two)
    tells(world, 110)
    tells(world, 120, {"node-b": 5})
    world.run(3)
    [incident] = world.incidents()
    assert (incident.culprits, incident.nodes) == ((), ("node-a", "node-b"))
    assert "which of ranks 0-1 is not known" in incident.summary
    assert incident.action == "restart"
    [order] = world.of_kind("restart")
    assert (order.without, order.resume_before_step) == ((), 111)


def test_where_nobody_else_can_take_its_place_a_person_decides() -> None:
    policy = msgspec.structs.replace(CONSENT.policy, shrink=False)
    world = trained(msgspec.structs.replace(CONSENT, policy=policy))
    tells(world, 110)
    tells(world, 120, {"node-c": 5})
    world.run(5)
    [incident] = world.incidents()
    assert (incident.action, world.of_kind("restart")) == ("page", [])
    assert "cannot go on without node-c" in incident.action_reason


def test_who_has_not_told_yet_is_waited_for_where_that_may_decide() -> None:
    world = trained()
    tells(world, 110)
    tells(world, 120, {"node-c": 5}, nodes=("node-a", "node-c"))
    world.run(2)
    assert world.incidents() == [], "one against one of four"
    tells(world, 120, {"node-c": 5}, nodes=("node-b", "node-d"))
    world.run(2)
    assert [member.node for member in world.incidents()[0].culprits] == ["node-c"]


def test_it_is_told_without_those_that_never_tell() -> None:
    world = trained()
    tells(world, 110)
    tells(world, 120, {"node-c": 5}, nodes=("node-a", "node-c"))
    world.run(12)
    [incident] = world.incidents()
    assert (incident.culprits, incident.nodes) == ((), ("node-a", "node-c"))


def test_a_checkpoint_that_nobody_has_seen_to_be_clean_is_not_trusted() -> None:
    """No check of this round agreed: only what all have loaded alike is well, and here that is step 90."""
    world = trained()
    tells(world, 120, {"node-c": 5})
    world.run(3)
    [order] = world.of_kind("restart")
    assert order.resume_before_step == 91


def test_it_passes_when_the_replicas_agree_again() -> None:
    world = trained(DRILL)
    tells(world, 110)
    tells(world, 120, {"node-c": 5})
    world.run(2)
    tells(world, 130)
    world.run(3)
    [incident] = world.incidents()
    assert (incident.state, incident.outcome) == ("closed", "passed")
    assert news(world) == []


def test_a_new_leader_believes_the_same_and_orders_once() -> None:
    world = trained()
    tells(world, 110)
    tells(world, 120, {"node-c": 5})
    world.run(0.3)
    world.successor(2)
    world.run(5)
    [order] = world.of_kind("restart")
    assert (order.resume_before_step, order.without) == (111, ("node-c",))
    world.successor(3)
    world.run(5)
    assert len(world.of_kind("restart")) == len(world.incidents()) == 1


def test_it_comes_again_and_nobody_knows_who_then_a_person_looks() -> None:
    two = {"node-a": 1, "node-b": 1}
    world = trained(nodes=two)
    tells(world, 110)
    tells(world, 120, {"node-b": 5})
    world.run(3)
    [order] = world.of_kind("restart")
    for proc in [p for p in world.procs if p.alive]:
        world.ends(proc, signal=15, order_id=order.order_id)
    world.asks(two, 2)
    world.run(0.3)
    world.meets(two, 2, first_step=101, asks=False, before=(111, 1))
    world.run(20)
    tells(world, 130)
    tells(world, 140, {"node-b": 5})
    world.run(40)
    last = world.incidents()[-1]
    assert (last.round, last.action) == (2, "page")
    assert "again, and no majority says who" in last.action_reason


@pytest.mark.parametrize("said", [{"how": "sums"}, {"how": "x"}, {}, {"how": "sums", "step": 3, "rows": "0:z:2:1"}])
def test_nonsense_is_erased_and_believed_of_nobody(said: dict[str, Any]) -> None:
    world = trained(DRILL)
    world.observe(r.CHECKSUMS, "node-a", world.procs[0], **said)
    world.run(2)
    assert (world.incidents(), news(world)) == ([], [])
