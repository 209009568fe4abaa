"""What incidents count as, the stages of their time, and lines of the exported ledger."""

from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankpulse.core import codec, ledger, ledger_lines, stages
from rankpulse.core import diagnosis as d
from rankpulse.core import records as r
from rankpulse.core.keys import Keys
from rankpulse.core.ledger_book import LedgerBook
from rankpulse.core.ledger_lines import Bad

KEYS = Keys("c")
HERE = r.Member(3, "node-b", 1, 10, 20)


def incident(**change: object) -> r.Incident:
    base = r.Incident(
        id="i0001-0001", klass=d.WORKER_DEAD, state="closed", opened_at=100.0, closed_at=160.0, run_uid="job-1",
        round=1, culprits=(HERE,), nodes=("node-b",), outcome="recovered", ranks=8, restarts=1,
    )  # fmt: skip
    return msgspec.structs.replace(base, **change)


def entry(**change: object) -> r.LedgerEntry:
    return msgspec.structs.replace(ledger.entry(incident()), **change)


@pytest.mark.parametrize(
    ("change", "component", "blame"),
    [
        ({}, "unknown", "unknown"),
        ({"fault": "ValueError"}, "program", "program"),
        ({"foreign": True, "fault": "ValueError"}, "unknown", "unknown"),
        ({"klass": d.NODE_DEAD}, "node", "machine"),
        ({"klass": d.GPU_FAULT}, "gpu", "machine"),
        ({"klass": d.NVLINK_DOMAIN}, "nvlink", "machine"),
        ({"klass": d.STORAGE_STALL}, "storage", "storage"),
        ({"klass": d.NETWORK_STALL}, "network", "network"),
        ({"klass": d.CONTROL_PLANE_DELAY}, "control_plane", "observer"),
        ({"klass": d.DRAIN}, "person", "person"),
        ({"klass": "a_class_of_a_later_version"}, "unknown", "unknown"),
    ],
)
def test_what_failed_and_whose_fault_it_was(change: dict[str, object], component: str, blame: str) -> None:
    found = ledger.entry(incident(**change))
    assert (found.component, found.blame) == (component, blame)


def test_every_class_has_a_component() -> None:
    from rankpulse.monitor.samples import CLASSES

    assert [klass for klass in CLASSES if klass not in ledger._BY_CLASS] == []
    assert set(ledger._BY_CLASS.values()) == set(ledger.COMPONENTS)


def test_evidence_says_more_than_a_class_that_says_nothing() -> None:
    rank = r.Rank(rank=3, gpu=5)
    finding = r.Finding(id="i0001-0001", at=0.0, klass=d.COLLECTIVE_HANG, kind="network", culprits=(rank,))
    found = ledger.entry(incident(klass=d.COLLECTIVE_HANG), finding)
    assert (found.component, found.gpu, found.node, found.rank) == ("network", 5, "node-b", 3)
    other = ledger.entry(incident(klass=d.GPU_FAULT), finding)
    assert other.component == "gpu", "it was about something else by then"


@pytest.mark.parametrize(
    ("change", "counts"),
    [
        ({}, True),
        ({"outcome": "run_ended"}, True),
        ({"outcome": "passed"}, False),
        ({"outcome": "superseded", "restarts": 0}, False),  # another incident tells of the same
        ({"outcome": "superseded"}, True),  # its next round had a failure of its own
        ({"klass": d.OPERATOR_RESTART}, False),
        ({"klass": d.DRAIN}, False),
        ({"run_uid": ""}, False),
    ],
)
def test_what_counts_as_a_failure(change: dict[str, object], counts: bool) -> None:
    assert ledger.interrupts(ledger.entry(incident(**change))) is counts


@given(st.floats(0, 253_402_300_799))
def test_days_are_those_of_the_calendar(at: float) -> None:
    assert ledger.day_of(at) == datetime.fromtimestamp(int(at), UTC).strftime("%Y-%m-%d")


@pytest.mark.parametrize("at", [-1e30, float("inf"), 1e300])
def test_times_that_no_calendar_has_have_a_day_all_the_same(at: float) -> None:
    assert ledger.day_of(at) in ("1970-01-01", "9999-12-31")


def test_a_load_is_part_of_the_start_and_never_more() -> None:
    state = r.CheckpointState(run_uid="job-1", load_s=90.0, verify_s=10.0, loaded_round=2)
    found = stages.lost(incident(), {"start": 30.0, "stop": 2.0}, state, None, 0.0)
    assert found == {"load": 30.0, "stop": 2.0}
    old = msgspec.structs.replace(state, loaded_round=1)
    assert stages.lost(incident(), {"start": 30.0}, old, None, 0.0) == {"start": 30.0}


def test_what_is_missing_to_the_time_that_passed_was_seen_by_nobody() -> None:
    found = stages.lost(incident(), {"stop": 2.0, "going_on": 3.0}, None, None, 60.0)
    assert found == {"stop": 2.0, "unseen": 55.0}
    assert stages.lost(incident(outcome="passed"), {"going_on": 60.0}, None, None, 60.0) == {}, "a suspicion"


def test_a_successor_counts_on_and_gives_what_it_saw_itself_to_the_stage_it_finds() -> None:
    told = incident(state="open", lost_s={"stop": 5.0})
    watched = stages.Stages.of(told, began=100.0, now=112.0)
    watched.passed("rendezvous", 113.0)
    assert watched.told() == {"rendezvous": 8.0, "stop": 5.0}, "100 + 5 was told"
    fresh = stages.Stages.of(told, began=112.0, now=112.0)
    fresh.passed("rendezvous", 113.0)
    assert fresh.told() == {"rendezvous": 1.0, "stop": 5.0}


# --- lines


def day(**change: object) -> r.LedgerDay:
    base = r.LedgerDay(
        day="2026-11-30", origin="o1", at=5.0, node_s=10.0, nodes={"node-a": r.NodeShare(10.0, 80.0)},
        runs={"job-1": r.RunShare("job", 10.0, 80.0, 1.0, 0.5)},
    )  # fmt: skip
    return msgspec.structs.replace(base, **change)


RECORDS = (entry(), day(), r.LedgerPast(origin="o1", at=1.0, failures={"oom/program": 3}))


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_a_line_is_read_back_as_it_was(record: r.Record) -> None:
    line = ledger_lines.read(KEYS, ledger_lines.written(record))
    assert line.record == record
    parsed = KEYS.parse(line.key)
    assert parsed is not None
    assert codec.decode_at(parsed, codec.encode(record)) == record


@given(st.binary(max_size=300))
def test_foreign_bytes_are_refused_and_nothing_else(data: bytes) -> None:
    with pytest.raises(Bad):
        ledger_lines.read(KEYS, data)


@pytest.mark.parametrize(
    "change",
    [
        {"id": "../up"}, {"id": "a/b"}, {"id": ""}, {"id": "x" * 200}, {"closed_at": 0.0},
        {"v": 99},
        {"lost_s": {"stop": "x"}}, {"lost_s": {"stop": -5.0}}, {"lost_s": {"stop": 1e300}},
        {"ranks": 1.5}, {"ledger": "order"}, {"ledger": None},
    ],
)  # fmt: skip
def test_a_line_that_fits_nowhere_is_refused(change: dict[str, object]) -> None:
    fields = {"ledger": "entry", **msgspec.to_builtins(entry()), **change}
    with pytest.raises(Bad):
        ledger_lines.read(KEYS, msgspec.json.encode(fields))


def test_a_day_of_another_kind_of_calendar_is_refused() -> None:
    for name in ("2026-11-3", "yesterday-", "2026/11/30"):
        with pytest.raises(Bad):
            ledger_lines.read(KEYS, ledger_lines.written(day(day=name)))


def book(*records: r.Record) -> LedgerBook:
    made = LedgerBook(KEYS)
    made.seen(KEYS.ledger_origin(), r.LedgerOrigin(origin="o2", at=0.0))
    for record in records:
        made.seen(ledger_lines.key_of(KEYS, record), record)
    return made


def test_of_two_words_on_one_day_the_later_one_is_kept() -> None:
    key = ledger_lines.key_of(KEYS, day())
    late, early = day(at=9.0, node_s=20.0), day()
    assert ledger_lines.joined({key: late}, {key: early}) == {key: late}
    assert ledger_lines.joined({key: early}, {key: late}) == {key: late}


def test_what_the_store_has_lost_is_what_neither_it_nor_its_sums_hold() -> None:
    exported = {ledger_lines.key_of(KEYS, one): one for one in (entry(), day())}
    assert len(ledger_lines.missing(exported, book())) == 2
    assert ledger_lines.missing(exported, book(entry(), day())) == {}
    past = r.LedgerPast(origin="o2", at=1.0, entries_upto="0000000160000-i0001-0001", days_upto="2026-11-30")
    assert ledger_lines.missing(exported, book(past)) == {}


def test_of_sums_that_comes_back_which_does_not_come_one_by_one() -> None:
    """An export that was begun late: what it knows of the time before stands in the sums alone."""
    one, ran = entry(lost_s={"stop": 10.0}), day(run_s=100.0)
    past = r.LedgerPast(
        origin="o1", at=1.0, entries_upto="0000000160000-i0001-0001", days_upto=ran.day, run_s=500.0,
        failures={f"{one.klass}/{one.component}": 3}, lost_s={"stop": 35.0},
    )  # fmt: skip
    key, entry_key, day_key = (ledger_lines.key_of(KEYS, record) for record in (past, one, ran))
    assert ledger_lines.to_import({key: past}, book()) == {key: past}
    given_back = ledger_lines.to_import({key: past, entry_key: one, day_key: ran}, book())
    assert given_back.keys() == {key, entry_key, day_key}
    totals = book(*given_back.values()).totals()
    assert (sum(totals.failures.values()), totals.lost_s["stop"], totals.run_s) == (3, 35.0, 500.0)
    assert ledger_lines.to_import({key: past}, book(one, ran))[key] == given_back[key], "the others came back before"
    assert ledger_lines.to_import({key: past}, book(past)) == {}
    whole = msgspec.structs.replace(
        past, failures={f"{one.klass}/{one.component}": 1}, lost_s={"stop": 10.0}, run_s=100
    )
    assert ledger_lines.to_import({key: whole, entry_key: one, day_key: ran}, book()).keys() == {entry_key, day_key}


def test_of_two_sums_that_may_count_the_same_those_alone_come_back_that_count_none_of_the_others() -> None:
    one = entry()
    upto = "0000000160000-i0001-0001"
    pasts = [r.LedgerPast(origin=name, at=1.0, entries_upto=upto, failures={"oom/program": 9}) for name in ("o1", "o2")]
    records = {ledger_lines.key_of(KEYS, record): record for record in (*pasts, one)}
    assert ledger_lines.to_import(records, book()).keys() == {ledger_lines.key_of(KEYS, one)}


def test_sums_are_of_what_ran_and_what_was_lost() -> None:
    totals = book(entry(lost_s={"stop": 5.0, "a_later_cause": 9.0}), day()).totals()
    assert dict(totals.failures) == {"worker_dead/unknown": 1}
    assert totals.lost_s["stop"] == 5.0
    assert totals.lost_gpu_s == {"stop": 40.0, "checkpoint": 8.0, "straggling": 4.0}
    run = totals.runs["job-1"]
    assert run.ettr() == pytest.approx(0.5)
    assert run.goodput() == pytest.approx(0.35)
    assert book().totals().runs == {}


def test_sums_follow_every_change_of_the_newest_day_and_of_any_other() -> None:
    old, new = day(day="2026-11-29", gpu_s=80.0), day(gpu_s=10.0)
    made = book(entry(), old, new)
    assert (made.totals().gpu_s, made.totals().runs["job-1"].run_s) == (90.0, 20.0)
    for record, gpu_s in (
        (day(gpu_s=30.0), 110.0),
        (day(day="2026-11-29", gpu_s=81.0), 111.0),
        (day(gpu_s=31.0), 112.0),
    ):
        made.seen(ledger_lines.key_of(KEYS, record), record)
        assert (made.totals().gpu_s, made.totals().runs["job-1"].run_s) == (gpu_s, 20.0)
    later = day(day="2026-12-01", gpu_s=5.0)
    made.seen(ledger_lines.key_of(KEYS, later), later)
    assert (made.totals().gpu_s, made.totals().runs["job-1"].run_s) == (117.0, 30.0)
    assert made.totals().runs["job-1"].failures == 1
    made.gone(ledger_lines.key_of(KEYS, old))
    assert made.totals().gpu_s == 36.0
    made.relisted()
    assert made.totals().gpu_s == 0.0


def test_time_between_failures_has_its_bounds_also_where_nothing_failed() -> None:
    quiet = book(day(gpu_s=300.0)).totals().between_failures()["all"]
    assert (quiet.best, quiet.high) == (float("inf"), float("inf"))
    assert quiet.low == pytest.approx(300.0 / 2.9957, rel=1e-3), "the rule of three, at 90 % two-sided"
    failed = book(entry(), day(gpu_s=300.0)).totals().between_failures()
    assert failed["all"] == failed["unknown"]
    assert failed["all"].low < failed["all"].best == 300.0 < failed["all"].high
    assert book(entry()).totals().between_failures()["all"].low == 0.0, "no time to fail in is told of yet"


def test_tables_have_the_same_columns_for_every_row() -> None:
    rows = list(ledger_lines.flat([entry(), entry(lost_s={"load": 2.0}, nodes=("a", "b"))]))
    assert rows[0].keys() == rows[1].keys()
    assert (rows[1]["lost_load_s"], rows[1]["nodes"]) == (2.0, "a b")
    exposed = list(ledger_lines.exposed([day()]))
    assert [(row["of"], row["name"], row["gpu_s"]) for row in exposed] == [
        ("fleet", "", 0.0), ("node", "node-a", 80.0), ("run", "job-1", 80.0)
    ]  # fmt: skip
    assert len({tuple(row) for row in exposed}) == 1


def test_the_one_gpu_that_an_incident_is_about_is_counted_by_its_number_and_identity() -> None:
    lost = r.DeviceFault("n1", "0000:0f:00", "xid_79", "broken", "drain_reboot", "lost", index=3, uuid="GPU-3")
    other = msgspec.structs.replace(lost, bus="0000:10:00", index=4)
    of_node = msgspec.structs.replace(lost, bus="", index=-1, uuid="")
    one, none = (3, "0000:0f:00", "GPU-3"), (-1, "", "")
    for rows, device in (((lost,), one), ((lost, of_node), one), ((lost, other), none), ((of_node,), none), ((), none)):
        found = ledger.entry(incident(klass=d.GPU_FAULT, faults=rows))
        assert (found.gpu, found.pci, found.uuid) == device
