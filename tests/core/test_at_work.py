"""Standing still and at work: looked at again and again, told when it is over or has lasted too long, never before."""

import msgspec
from core_world import DRILL, World

from rankpulse.core import records as r
from rankpulse.core.evidence import Position, Row
from rankpulse.core.phases import AT_WORK, AT_WORK_PRIOR_S
from rankpulse.core.settings import Settings

NODES = {"node-a": 2, "node-b": 2}


class Compiling(World):
    """A job whose agents answer every order of evidence at once. `at_work`: ranks outside of the collective, busy."""

    def __init__(self, settings: Settings = DRILL) -> None:
        super().__init__(settings)
        self.arm()
        self.at_work: set[int] = set()
        self.idle: set[int] = set()  # outside of it as well, and doing nothing
        self.looked: list[str] = []
        self.mute = False
        self.meets(NODES, 1)
        self.run(30)

    def put(self, key: str, record: r.Record) -> None:
        super().put(key, record)
        if isinstance(record, r.Order) and record.kind.startswith("collect") and not self.mute:
            self.looked.append(record.kind)
            for node in record.nodes:
                rows = [self._row(p.rank, p.pid, p.start) for p in self.procs if p.node == node and p.alive]
                self.observe(r.EVIDENCE, node, order_id=record.order_id, rows=msgspec.json.encode(rows).decode())

    def _row(self, rank: int, pid: int, start: int) -> Row:
        absent = rank in self.at_work or rank in self.idle
        place = Position("w", 7 if absent else 8, 7, "all_reduce")
        return Row(rank, pid, start, "S", "", rank in self.at_work, "ok", (place,))

    def stands(self, seconds: float) -> None:
        self.training = False
        self.run(seconds)

    def goes_on(self) -> None:
        self.at_work, self.idle, self.training = set(), set(), True
        self.run(5)


def test_one_that_recompiles_for_a_minute_is_no_incident() -> None:
    world = Compiling()
    world.at_work = {1}
    world.stands(60)
    world.goes_on()
    assert world.incidents() == []
    assert 3 <= len(world.looked) <= 8, "again and again, at growing distances"
    assert world.orders() == []
    assert not [key for key in world.store if "/obs/" in key]
    [run] = world.engine.folder.fleet.runs.values()
    assert run.clocks.seen(AT_WORK) == 1


def test_all_of_them_at_work_in_no_collective_is_none_either() -> None:
    world = Compiling()
    world.at_work = {0, 1, 2, 3}
    world.stands(60)
    world.goes_on()
    assert world.incidents() == []


def test_one_whose_work_is_over_and_that_does_not_come_hangs() -> None:
    world = Compiling()
    world.at_work = {1}
    world.stands(30)
    assert world.incidents() == []
    world.at_work, world.idle = set(), {1}
    world.stands(35)
    [incident] = world.incidents()
    assert (incident.klass, [m.rank for m in incident.culprits]) == ("collective_hang", [1])
    assert len(world.of_kind("restart")) == 1


def test_a_loop_that_never_ends_is_told_when_no_work_takes_so_long() -> None:
    world = Compiling()
    world.at_work = {1}
    world.stands(AT_WORK_PRIOR_S - 10)
    assert world.incidents() == []
    world.stands(15)
    [incident] = world.incidents()
    assert (incident.klass, incident.action, [m.rank for m in incident.culprits]) == ("collective_hang", "page", [1])
    assert "it uses the CPU while the others wait" in " ".join(incident.reasons)
    assert world.of_kind("restart") == [], "it may be slow, and is not ended for that"
    world.goes_on()
    assert [i.outcome for i in world.incidents()] == ["passed"]


def test_one_at_work_does_not_hide_one_that_hangs_beside_it() -> None:
    world = Compiling()
    world.at_work, world.idle = {1}, {2}
    world.stands(15)
    [incident] = world.incidents()
    assert {m.rank for m in incident.culprits} >= {2} or incident.klass == "unknown"


def test_agents_that_fall_silent_leave_it_at_what_was_seen() -> None:
    world = Compiling()
    world.at_work = {1}
    world.stands(8)
    world.mute = True
    world.stands(100)
    assert world.incidents() == []
    world.stands(100)
    assert [i.klass for i in world.incidents()] == ["collective_hang"]


def test_a_new_leader_looks_for_itself() -> None:
    world = Compiling()
    world.at_work = {1}
    world.stands(20)
    world.successor(2)
    world.stands(30)
    assert world.incidents() == []
    world.goes_on()
    assert world.incidents() == []
    assert world.orders() == []
