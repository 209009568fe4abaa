"""The ledger where clocks are wrong and stores vanish: no day is written over, nothing is counted twice or left out."""

import core_world
import pytest
from core_world import World

from rankpulse.core import codec
from rankpulse.core import events as ev
from rankpulse.core import records as r
from rankpulse.core.ledger_keeping import FOLD_EVERY_S

NODES = {"node-a": 2, "node-b": 2}
DAY_S = 86400.0


def training() -> World:
    world = World()
    world.arm()
    world.meets(NODES, 1)
    world.run(130)
    return world


def told(world: World, kind: type[r.Record]) -> list:
    keys = (key for key in sorted(world.store) if (parsed := world.keys.parse(key)) and parsed.kind is kind)
    return [codec.decode(kind, world.store[key][0]) for key in keys]


def ran(world: World) -> dict[str, float]:
    return {day.day: day.run_s for day in told(world, r.LedgerDay)}


def remembers(world: World, *names: str) -> None:
    """Days that were counted long ago, as the store has them."""
    origin = told(world, r.LedgerOrigin)[0].origin
    for name in names:
        day = r.LedgerDay(day=name, origin=origin, at=core_world.UTC - 3 * DAY_S, run_s=50_000.0, node_s=100_000.0)
        world.put(world.keys.ledger_day(name, origin), day)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch):
    """Sets the wall clock of whoever leads, in days from the right one."""
    right = core_world.UTC

    def goes(days: float) -> None:
        monkeypatch.setattr(core_world, "UTC", right + days * DAY_S)

    return goes


def test_a_new_leader_whose_clock_is_days_behind_adds_to_the_day_that_it_takes_for_today(clock) -> None:
    world = training()
    remembers(world, "2027-01-12", "2027-01-13", "2027-01-14")
    world.successor(2)
    clock(-3)
    world.run(130)
    assert ran(world)["2027-01-12"] > 50_000, "what was counted on that day stands, with what came to it"
    assert ran(world)["2027-01-13"] == ran(world)["2027-01-14"] == 50_000


def test_a_clock_that_runs_ahead_and_is_set_right_leaves_the_day_as_it_was(clock) -> None:
    world = training()
    before_s = ran(world)["2027-01-15"]
    for days, seconds in ((3, 70), (10, 70), (0, 70)):
        clock(days)
        world.run(seconds)
    assert ran(world)["2027-01-15"] > before_s


def test_a_standby_that_takes_office_after_the_store_was_deleted_goes_on_with_the_ledger_that_it_followed() -> None:
    """Else what it counted would stand under another name beside what comes back from an export: twice."""
    world = training()
    [exported] = told(world, r.LedgerDay)
    world.successor(2)
    world.engine.step(ev.LeftOffice("it is a standby", world.now))
    world.run(30)
    world.store.clear()
    world.relist()
    world.engine.step(ev.TookOffice(3, world.now))
    world.run(130)
    [day] = told(world, r.LedgerDay)
    assert (day.day, day.origin) == (exported.day, exported.origin)
    assert exported.run_s < day.run_s + day.unseen_s <= 292, "each second once"


def test_of_a_ledger_that_another_has_begun_anew_nothing_of_the_old_one_is_told_again() -> None:
    world = training()
    world.engine.step(ev.LeftOffice("it is paused", world.now))
    world.store.clear()
    world.relist()
    world.put(world.keys.ledger_origin(), r.LedgerOrigin(origin="another", at=0.0))
    world.run(30)
    world.engine.step(ev.TookOffice(3, world.now))
    world.run(130)
    [day] = told(world, r.LedgerDay)
    assert day.origin == "another"
    assert day.run_s <= 165, "the 130 s before are in the other ledger"


def test_an_incident_that_ends_by_a_clock_from_before_all_that_is_kept_is_entered_all_the_same(clock) -> None:
    world = World()
    world.arm()
    procs = world.meets(NODES, 1)
    world.run(30)
    origin = told(world, r.LedgerOrigin)[0].origin
    mark = f"{round(core_world.UTC * 1000):013d}-i0000-0001"
    past = r.LedgerPast(origin=origin, at=0.0, entries_upto=mark, failures={"oom/program": 7})
    world.put(world.keys.ledger_past(origin), past)
    clock(-400)
    world.ends(procs[3], signal=9, held=True)
    world.run(3)
    for proc in procs[:3]:
        world.ends(proc, signal=15, order_id="x")
    world.run(2)
    world.meets(NODES, 2, first_step=80)
    world.run(20 + FOLD_EVERY_S)
    [entry] = told(world, r.LedgerEntry)
    assert entry.id == world.incidents()[0].id
    assert sum(world.engine.folder.ledger.totals().failures.values()) == 8
