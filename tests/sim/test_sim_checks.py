"""Every rule of the simulator can fail: a forged world breaks each of them, and an honest one none."""

from collections.abc import Callable

import msgspec
import pytest

from rankpulse.core import records as r
from rankpulse.core.settings import preset
from rankpulse.drills.sim import checks
from rankpulse.drills.sim import plan as p
from rankpulse.drills.sim.checks import RULES, Scene, Written, broken
from rankpulse.drills.sim.plan import Book
from rankpulse.drills.sim.watcher import Decision

SEEN = "/rankpulse/sim/nodes/n1/obs/00000001/0000000007"
GUILTY = r.Member(3, "n1", 3, 1003, 77)
INNOCENT = r.Member(4, "n1", 4, 1004, 77)


def incident(**change: object) -> r.Incident:
    base = r.Incident(
        id="i1", klass="worker_dead", state="open", opened_at=0.0, run_uid="run", round=2, nodes=("n1",),
        culprits=(GUILTY,), confidence=0.99, reasons=("rank 3 was killed",), evidence=(SEEN,), action="restart",
    )  # fmt: skip
    return msgspec.structs.replace(base, **change)  # type: ignore[arg-type]


def order(**change: object) -> r.Order:
    base = r.Order(
        order_id="i1", run_uid="run", run_id="job", round=2, kind="restart", epoch=1, incident="i1", reason="",
        author="m1", at=0.0,
    )  # fmt: skip
    return msgspec.structs.replace(base, **change)  # type: ignore[arg-type]


def written(record: r.Record, blind: str = "") -> Written:
    return Written(50.0, "key", record, Decision(50.0, "m1", blind, 1))


def honest() -> Scene:
    """A rank was killed, its incident stands, and a restart is ordered."""
    truth = Book()
    truth.add(p.CRASH, 40.0, nodes=("n1",), members=frozenset({(3, 1003)}), run="run", round=2)
    truth.add(p.NODE, 10.0, nodes=("n9",), run="run", round=1)
    given = order()
    return Scene(
        preset("default"), truth, now=50.0, new=[written(given)], orders={("run", 2, "restart"): [given]},
        incidents={"i1": incident()}, observed={SEEN}, armed=True, progress={"run": 1},
        leader=r.Leader(monitor="m1", epoch=1, at=0.0),
    )  # fmt: skip


def of(scene: Scene, record: r.Record, blind: str = "") -> None:
    scene.new = [written(record, blind)]


def two_orders(scene: Scene) -> None:
    scene.orders["run", 2, "restart"].append(order(order_id="i2"))


def unarmed(scene: Scene) -> None:
    scene.armed, scene.disarmed_at = False, 20.0


def no_evidence(scene: Scene) -> None:
    scene.incidents["i1"] = incident(reasons=(), evidence=())


def unknown_evidence(scene: Scene) -> None:
    scene.observed.clear()


def closed_before(scene: Scene) -> None:
    scene.incidents["i1"] = incident(state="closed", outcome="recovered")
    of(scene, incident())


def one_too_many(scene: Scene) -> None:
    """A node that is dead, and one that joins it without a cause."""
    scene.truth.add(p.NODE, 40.0, nodes=("n1",))
    scene.incidents["i2"] = incident(id="i2", klass="node_dead")
    of(scene, incident(id="i2", klass="node_dead", nodes=("n1", "n2")))


def frozen_long_ago(scene: Scene) -> None:
    scene.truth.add(p.FREEZE, 10.0, nodes=("n1",), until=40.0)
    of(scene, incident(id="i2", klass="node_dead"))


FORGED: list[tuple[str, Callable[[Scene], object]]] = [
    ("no_failure", lambda s: s.failures.append("m1: tick: KeyError")),
    ("one_restart_per_round", two_orders),
    ("never_while_blind", lambda s: of(s, order(), "its own key does not come back")),
    ("never_while_blind", lambda s: of(s, incident(id="i2", klass="node_dead"), "the store is away")),
    ("never_while_blind", lambda s: of(s, incident(id="i2", evidence=()), "the store is away")),
    ("only_when_armed", unarmed),
    ("within_budget", lambda s: s.progress.update(run=4)),
    ("fenced", lambda s: of(s, order(epoch=2))),
    ("fenced", lambda s: setattr(s, "leader", None)),
    ("cited", lambda s: s.incidents.clear()),
    ("cited", no_evidence),
    ("cited", unknown_evidence),
    ("only_what_is_broken", lambda s: of(s, order(round=3))),
    ("dead_are_silent", lambda s: of(s, incident(id="i2", klass="node_dead"))),
    ("dead_are_silent", frozen_long_ago),
    ("dead_are_silent", one_too_many),
    ("agents_are_out", lambda s: of(s, incident(id="i2", klass="agent_cut_off"))),
    ("right_culprits", lambda s: of(s, incident(id="i2", culprits=(GUILTY, INNOCENT)))),
    ("right_culprits", lambda s: of(s, incident(id="i2", klass="collective_hang"))),
    ("closed_stays_closed", closed_before),
    ("nothing_ended", lambda s: s.ended_runs.append("run is said to have ended")),
]


def test_an_honest_world_breaks_no_rule() -> None:
    assert broken(honest()) is None


@pytest.mark.parametrize(("rule", "forge"), FORGED, ids=[f"{rule}-{i}" for i, (rule, _) in enumerate(FORGED)])
def test_each_rule_sees_the_world_that_breaks_it(rule: str, forge: Callable[[Scene], object]) -> None:
    scene = honest()
    forge(scene)
    assert getattr(checks, rule)(scene)
    assert broken(scene) is not None


def test_an_exit_is_told_of_by_a_leader_that_does_not_see_yet() -> None:
    scene = honest()
    of(scene, incident(id="i2"), "its own key does not come back")
    assert broken(scene) is None


def test_no_rule_is_left_untested() -> None:
    assert {rule.__name__ for rule in RULES} == {name for name, _ in FORGED}


def test_what_a_person_asks_for_needs_neither_fault_nor_arms() -> None:
    scene = honest()
    unarmed(scene)
    scene.incidents["i1"] = incident(klass="operator_restart", asked_by="ann", round=3)
    of(scene, order(round=3))
    assert broken(scene) is None


def test_a_silence_that_passes_may_be_taken_for_a_death_and_is_counted() -> None:
    scene = honest()
    scene.truth.add(p.FREEZE, 30.0, nodes=("n1",), until=60.0)
    of(scene, incident(id="i2", klass="node_dead"))
    assert broken(scene) is None
    assert len(scene.mistaken) == 1


def test_a_dead_machine_is_no_mistake() -> None:
    scene = honest()
    of(scene, incident(id="i2", klass="node_dead", nodes=("n9",)))
    assert broken(scene) is None
    assert not scene.mistaken


@pytest.mark.parametrize(("klass", "kind"), [("node_dead", p.FREEZE), ("agent_cut_off", p.CUT_OFF)])
def test_a_record_that_waited_in_a_broken_connection_is_judged_by_when_it_was_decided(klass: str, kind: str) -> None:
    scene = honest()
    scene.truth.add(kind, 10.0, nodes=("n1",), until=40.0)
    late = incident(id="i2", klass=klass, run_uid="", round=-1, culprits=())
    scene.new = [Written(50.0, "key", late, Decision(39.0, "m1", "", 1))]
    assert broken(scene) is None
    scene.new = [Written(50.0, "key", late, Decision(49.0, "m1", "", 1))]
    assert broken(scene) is not None
