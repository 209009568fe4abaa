"""The ledger of a cluster, told record by record: what an incident cost, and that it is counted once."""

import pytest
from core_world import UTC, World

from rankpulse.core import codec
from rankpulse.core import events as ev
from rankpulse.core import records as r
from rankpulse.core.ledger_keeping import FOLD_EVERY_S

NODES = {"node-a": 2, "node-b": 2}


def joined(world: World | None = None) -> tuple[World, list]:
    """An armed world in which a job of our rendezvous trains."""
    world = world or World()
    world.arm()
    world.asks(NODES, 1)
    world.run(0.2)
    procs = world.meets(NODES, 1, asks=False)
    world.run(30)
    return world, procs


def told(world: World, kind: type[r.Record]) -> list:
    keys = (key for key in sorted(world.store) if (parsed := world.keys.parse(key)) and parsed.kind is kind)
    return [codec.decode(kind, world.store[key][0]) for key in keys]


def dies(world: World, proc, **how) -> None:
    world.ends(proc, **{"signal": 9, "held": True, **how})


def restarted(world: World, procs: list, *, after_s: float = 4.0, round_: int = 2) -> None:
    """All workers end, the torchruns ask again one after the other, meet and train."""
    for proc in [p for p in procs if p.alive]:
        world.ends(proc, signal=15, order_id="x")
    world.run(after_s)
    world.asks(NODES, round_)
    world.run(after_s)
    world.meets(NODES, round_, asks=False, first_step=80)
    world.run(20)


def test_an_incident_that_is_over_is_entered_with_what_it_cost() -> None:
    world, procs = joined()
    began = world.now
    dies(world, procs[3], error="ValueError", code=1, signal=None)
    world.run(3)
    [order] = world.of_kind("restart")
    restarted(world, procs)
    [incident] = world.incidents()
    assert incident.outcome == "recovered"
    [entry] = told(world, r.LedgerEntry)
    assert (entry.id, entry.klass, entry.component, entry.blame) == (incident.id, "worker_dead", "program", "program")
    assert (entry.node, entry.rank, entry.ranks, entry.round, entry.run_uid) == ("node-b", 3, 4, 1, "job-1")
    lost_s = dict(entry.lost_s)
    assert lost_s["waiting"] == pytest.approx(4.0, abs=0.7)
    assert lost_s["rendezvous"] == pytest.approx(4.0, abs=0.7)
    assert lost_s["recomputation"] > 0, "steps from 80 on are made again"
    on_the_clock = sum(s for name, s in lost_s.items() if name != "recomputation")
    assert on_the_clock == pytest.approx(incident.closed_at - UTC - began, abs=0.3), "no second is lost or doubled"
    assert order.incident == incident.id


def test_what_a_job_read_at_its_start_is_told_apart() -> None:
    world, procs = joined()
    dies(world, procs[3])
    world.run(3)
    for proc in [p for p in procs if p.alive]:
        world.ends(proc, signal=15, order_id="x")
    world.asks(NODES, 2)
    world.run(1)
    world.training = False
    made = world.meets(NODES, 2, asks=False, first_step=80)
    for proc in made:
        proc.first_step = -1
    loaded = {"event": "loaded", "step": 79, "bytes": 1, "load_s": 2.5, "verify_s": 0.5, "level": "full"}
    world.observe(r.CHECKPOINT, "node-a", made[0], **loaded)
    world.run(10)
    world.training = True
    world.run(5)
    [entry] = told(world, r.LedgerEntry)
    assert entry.lost_s["load"] == 3.0
    assert entry.lost_s["start"] == pytest.approx(7.5, abs=1.0)


class Killed(World):
    """A world whose first monitor writes nothing any more after so many actions, and has a successor soon after."""

    stop = 10**9
    puts: list[str]

    def put(self, key: str, record: r.Record) -> None:
        self.__dict__.setdefault("puts", []).append(key)
        super().put(key, record)

    def apply(self, action: ev.Action) -> None:
        if self.engine.epoch != 1 or len(self.actions) < self.stop:
            super().apply(action)

    def goes_on(self, seconds: float) -> None:
        for _ in range(round(seconds / 0.5)):
            self.run(0.5)
            if len(self.actions) >= self.stop and self.engine.epoch == 1:
                self.run(1.5)
                self.successor(2)


def played(stop: int) -> Killed:
    """A crash and its restart, with a monitor that dies after `stop` actions since the fault."""
    world, procs = joined(Killed())
    assert isinstance(world, Killed)
    world.stop = len(world.actions) + stop
    dies(world, procs[3], error="ValueError", code=1, signal=None)
    world.goes_on(6)
    for proc in [p for p in procs if p.alive]:
        world.ends(proc, signal=15, order_id="x")
    world.goes_on(2)
    world.asks(NODES, 2)
    world.goes_on(2)
    world.meets(NODES, 2, asks=False, first_step=80)
    world.goes_on(30)
    return world


def test_killed_at_any_action_from_the_fault_on_there_is_one_entry_that_says_the_same() -> None:
    whole = played(10**6)
    actions = len(whole.actions) - len(joined()[0].actions)
    assert actions > 15
    for stop in range(actions):
        world = played(stop)
        assert world.engine.epoch == 2, "it was hit"
        [incident] = world.incidents()
        [entry] = told(world, r.LedgerEntry)
        assert [key for key in world.puts if "/ledger/entries/" in key] == [world.keys.ledger_entry(
            incident.closed_at or 0.0, incident.id
        )]  # fmt: skip
        assert (entry.lost_s, entry.klass, entry.node) == (incident.lost_s, "worker_dead", "node-b")
        lasted_s = sum(s for name, s in entry.lost_s.items() if name not in ("recomputation", "detection"))
        assert lasted_s == pytest.approx(incident.closed_at - incident.opened_at, abs=1.0), (stop, entry.lost_s)


def test_a_round_that_fails_before_it_recovered_is_a_second_failure_and_no_second_is_counted_twice() -> None:
    world, procs = joined()
    began = world.now
    dies(world, procs[3])
    world.run(3)
    for proc in [p for p in procs if p.alive]:
        world.ends(proc, signal=15, order_id="x")
    world.run(2)
    world.asks(NODES, 2)
    world.run(1)
    world.training = False
    again = world.meets(NODES, 2, asks=False)
    world.run(8)
    dies(world, again[2])
    world.run(12)
    world.training = True
    restarted(world, again, round_=3)
    first, second = told(world, r.LedgerEntry)
    assert (first.outcome, first.restarts, second.outcome) == ("superseded", 1, "recovered")
    assert sum(world.engine.folder.ledger.totals().failures.values()) == 2
    assert first.lost_s["start"] == pytest.approx(8, abs=1)
    both = [s for one in (first, second) for name, s in one.lost_s.items() if name != "recomputation"]
    assert sum(both) == pytest.approx(second.closed_at - UTC - began, abs=1.0)


def test_a_run_that_stands_tells_what_it_has_lost_so_far() -> None:
    world, procs = joined()
    dies(world, procs[3])
    world.run(3)
    for proc in [p for p in procs if p.alive]:
        world.ends(proc, signal=15, order_id="x")
    world.run(30)
    world.asks(NODES, 2)
    world.run(1)
    [incident] = world.incidents()
    assert incident.state == "open"
    shown = world.engine.snapshot(world.now)["ledger"]["runs"]["job-1"]
    assert shown["lost_s"]["waiting"] == pytest.approx(30, abs=1)
    assert shown["failures"] == 0, "it is none before it is over"
    assert shown["ettr"] is not None
    assert shown["ettr"] < 0.7


def test_exposure_counts_what_ran_and_no_more() -> None:
    world, procs = joined()
    world.run(170)
    [day] = told(world, r.LedgerDay)
    assert day.day == "2027-01-15"
    assert day.node_s == pytest.approx(2 * day.run_s, rel=0.1)
    assert day.gpu_s == pytest.approx(4 * day.run_s, rel=0.05)
    assert 100 < day.run_s <= 200
    assert day.unseen_s < 10
    assert {name: share.gpu_s for name, share in day.nodes.items()} == {
        "node-a": day.gpu_s / 2, "node-b": day.gpu_s / 2
    }  # fmt: skip
    assert list(day.runs) == ["job-1"]
    assert len(procs) == 4


def test_a_node_that_is_silent_is_not_counted_as_running() -> None:
    world, _ = joined()
    world.engine.step(ev.LeftOffice("test", world.now))  # nobody convicts it: only the counting is looked at
    world.silent.add("node-b")
    world.run(120)
    world.engine.step(ev.TookOffice(2, world.now))
    world.run(70)
    [day] = told(world, r.LedgerDay)
    assert day.nodes["node-b"].node_s < day.nodes["node-a"].node_s / 3


def total(world: World) -> tuple[float, float]:
    """Seconds of the run that the store's ledger tells of: seen, and seen by nobody."""
    days = told(world, r.LedgerDay)
    return sum(day.run_s for day in days), sum(day.unseen_s for day in days)


def test_a_leader_that_dies_takes_nothing_with_it_where_a_standby_watched() -> None:
    world, _ = joined()
    world.run(65)
    world.engine.step(ev.LeftOffice("its lease ended", world.now))  # a standby is an engine that does not lead
    world.run(100)
    world.engine.step(ev.TookOffice(2, world.now))
    world.run(70)
    seen_s, unseen_s = total(world)
    assert seen_s > 200
    assert unseen_s < 10
    assert seen_s + unseen_s <= 270


def test_time_in_which_no_monitor_saw_is_called_so() -> None:
    world, _ = joined()
    world.run(65)
    before_s, _ = total(world)
    [day] = told(world, r.LedgerDay)
    engine = world.engine
    world.engine = type(engine)(world.settings, world.keys)  # dead: nobody folds, nobody counts
    world.refuse_writes = True
    world.run(500)
    world.refuse_writes = False
    world.successor(2)
    began = world.now
    world.run(130)
    seen_s, unseen_s = total(world)
    assert unseen_s == pytest.approx(began + UTC - day.at, abs=10)
    assert seen_s - before_s <= 130, "not a second of the gap counts as running"
    world.successor(3)
    world.run(70)
    again_s, still_s = total(world)
    assert still_s - unseen_s < 80, "told once; what the last leader had not written yet is unseen, too"
    assert again_s >= seen_s


def test_days_begin_at_midnight_utc() -> None:
    world, _ = joined()
    midnight = (UTC + world.now) // 86400 * 86400 + 86400
    world.now = midnight - UTC - 60
    world.run(200)
    assert [day.day for day in told(world, r.LedgerDay)] == ["2027-01-15", "2027-01-16"]


def test_what_is_kept_longest_becomes_sums_and_no_sum_changes_by_it() -> None:
    world, _ = joined()
    settings = world.settings.ledger
    for number in range(settings.days_kept + 3):
        day = f"2020-{1 + number // 28:02d}-{1 + number % 28:02d}" if number < 336 else f"2021-01-{number - 335:02d}"
        day = day if number < 336 + 28 else f"2021-02-{number - 363:02d}"
        day = day if number < 336 + 56 else f"2021-03-{number - 391:02d}"
        world.put(world.keys.ledger_day(day, "o1"), r.LedgerDay(day=day, origin="o1", at=0.0, node_s=10.0, gpu_s=80.0))
    for number in range(5):
        entry = r.LedgerEntry(
            id=f"i0001-{number:04d}", klass="gpu_fault", component="gpu", blame="machine", outcome="recovered",
            action="restart", opened_at=1577836800.0, closed_at=1577836900.0, run_uid="old", ranks=8,
            lost_s={"stop": 5.0},
        )  # fmt: skip
        world.put(world.keys.ledger_entry(entry.closed_at, entry.id), entry)
    before = world.engine.folder.ledger.totals()
    world.run(3 * FOLD_EVERY_S)
    after = world.engine.folder.ledger.totals()
    assert len(told(world, r.LedgerDay)) == settings.days_kept
    assert told(world, r.LedgerEntry) == []
    [past] = told(world, r.LedgerPast)
    assert past.failures == {"gpu_fault/gpu": 5}
    assert past.lost_gpu_s == {"stop": 200.0}
    assert after.failures == before.failures
    assert after.gpu_s >= before.gpu_s > 80 * settings.days_kept
    world.successor(2)
    world.run(1)
    assert world.engine.folder.ledger.totals().failures == before.failures


def test_a_store_that_was_wiped_under_a_living_leader_gets_back_what_that_one_knows() -> None:
    world, procs = joined()
    dies(world, procs[3])
    world.run(3)
    restarted(world, procs)
    world.run(60)
    [entry] = told(world, r.LedgerEntry)
    [day] = told(world, r.LedgerDay)
    world.store = {key: value for key, value in world.store.items() if "/ledger/" not in key}
    world.relist()
    world.run(70)
    assert told(world, r.LedgerEntry) == [entry]
    [again] = told(world, r.LedgerDay)
    assert (again.day, again.origin) == (day.day, day.origin)
    assert again.run_s >= day.run_s
