"""The simulated hangs are what they claim to be, and the figures of the page hold on a small sample."""

import dataclasses
from pathlib import Path
from random import Random

import pytest

from rankpulse.bench.hang import baselines, bounds, dumps, faults, page, run, speed, tables
from rankpulse.bench.hang.kept import BadPlace, Kept
from rankpulse.bench.hang.layout import Layout
from rankpulse.bench.hang.machine import Fault, Machine
from rankpulse.bench.hang.plan import ALL, BIG, SHARED, Work, is_full, plan
from rankpulse.bench.hang.program import Style, draw_style, stage_program
from rankpulse.bench.hang.run import work
from rankpulse.bench.hang.shared import Base
from rankpulse.bench.hang.trials import OWN, Answer, candidates, hang, ours, rows_of, score
from rankpulse.core import culprit
from rankpulse.core import snapshot as s
from rankpulse.core.culprit import find

SMALL = Layout(2, 2, 2)
USUAL = Layout(4, 4, 4)
STYLE = Style(microbatches=4, layers=1, buckets=2, steps=2)


def machine(layout: Layout, fault: Fault | None = None, style: Style = STYLE, blocking: bool = False) -> Machine:
    programs = [stage_program(stage, layout.pp, style) for stage in range(layout.pp)]
    made = Machine(layout, programs, fault, style.run_ahead, blocking)
    made.run()
    return made


@pytest.mark.parametrize("blocking", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_without_a_fault_every_rank_comes_to_its_end(seed: int, blocking: bool) -> None:
    style = draw_style(Random(seed), experts=bool(seed % 2))
    ran = machine(Layout(2, 4, 2, ep=2 if seed % 2 else 1), None, style, blocking)
    assert all(rank.ended and rank.host == len(rank.program) for rank in ran.ranks)


def test_every_rank_is_in_one_group_of_each_kind() -> None:
    for rank, groups in enumerate(USUAL.of):
        assert {"tp", "pp", "dp", "mp", "world"} <= groups.keys()
        assert all(rank in USUAL.groups[name] for name in groups.values())
    assert len(USUAL.groups) == 16 * 4 + 4 + 1


def test_a_stuck_host_calls_nothing_more_and_a_stuck_device_lets_it_run_ahead() -> None:
    style = dataclasses.replace(STYLE, p2p_sync=False)
    host = machine(USUAL, Fault(faults.HOST, 21, 30), style)
    device = machine(USUAL, Fault(faults.GPU, 21, 30), style)
    assert host.ranks[21].host == 30
    assert device.ranks[21].device == 30
    assert device.ranks[21].host > 30
    assert not any(rank.ended for rank in (*host.ranks, *device.ranks))


def test_a_dead_link_stops_what_passes_it_with_all_members_inside() -> None:
    ran = machine(USUAL, Fault(faults.LINK, 20, 10, other=21))
    found = find(dumps.ranks(ran, dumps.TIMED), dumps.groups(USUAL))
    assert found.kind == culprit.LINK
    assert set(found.waits.everyone(found.meetings[0])) >= {20, 21}


def test_the_order_in_which_ranks_are_looked_at_changes_nothing() -> None:
    fault = Fault(faults.SKIP, 5, 20)
    programs = [stage_program(stage, SMALL.pp, STYLE) for stage in range(SMALL.pp)]
    one, other = (Machine(SMALL, programs, fault, STYLE.run_ahead) for _ in range(2))
    other._ready.reverse()
    one.run()
    other.run()
    assert dumps.ranks(one, dumps.TIMED) == dumps.ranks(other, dumps.TIMED)


def test_dumps_show_no_more_than_their_recorder_knows() -> None:
    ran = machine(USUAL, Fault(faults.HOST, 21, 30))

    def states(recorder: str) -> set[str]:
        rows = dumps.ranks(ran, recorder)
        return {op.state for row in rows for p in row.positions for op in p.open}

    assert states(dumps.TIMED) == {s.STARTED, s.ENQUEUED, s.COMPLETED}
    assert states(dumps.UNTIMED) == states(dumps.GLOO) == {s.ENQUEUED, s.COMPLETED}
    gloo = [p for row in dumps.ranks(ran, dumps.GLOO) for p in row.positions]
    assert all(p.started is None and p.completed is None for p in gloo)
    assert all(p.started == -1 for row in dumps.ranks(ran, dumps.UNTIMED) for p in row.positions)


def test_the_share_of_dumps_asked_for_is_missing() -> None:
    rows = [s.Rank(rank, positions=(s.Position("world"),)) for rank in range(64)]
    left = dumps.without(rows, 0.2, Random(1))
    assert sum(not row.positions for row in left) == 13
    assert [row.rank for row in left] == list(range(64))


@pytest.mark.parametrize("kind", faults.KINDS)
def test_with_all_dumps_the_culprit_is_named(kind: str) -> None:
    for seed in range(4):
        stopped = hang(kind, USUAL, Random(f"{kind}/{seed}"))
        found = find(dumps.ranks(stopped.machine, dumps.TIMED), dumps.groups(USUAL))
        assert score(ours(found), stopped.fault).exact, (stopped.fault, found.reasons)


@pytest.mark.parametrize("kind", faults.KINDS)
@pytest.mark.parametrize("recorder", [dumps.TIMED, dumps.UNTIMED, dumps.GLOO])
def test_whatever_is_missing_nobody_is_named_wrongly_and_the_set_has_the_culprit(kind: str, recorder: str) -> None:
    for seed in range(2):
        random = Random(f"missing/{kind}/{seed}")
        stopped = hang(kind, USUAL, random, blocking=recorder == dumps.GLOO)
        for share, rows in rows_of(stopped, recorder, (0.0, 0.05, 0.2), random):
            result = score(ours(find(rows, dumps.groups(USUAL))), stopped.fault)
            assert (result.contains, result.wrong) == (True, False), (stopped.fault, share)


def test_the_culprits_own_dump_missing_makes_it_a_candidate() -> None:
    stopped = hang(faults.HOST, USUAL, Random(7))
    *_, (share, rows) = rows_of(stopped, dumps.TIMED, (0.0,), Random(1))
    assert share == OWN
    assert stopped.fault.rank in candidates(find(rows, dumps.groups(USUAL)))


def test_who_names_more_than_the_culprit_is_wrong() -> None:
    fault = Fault(faults.HOST, 3, 0)
    assert score(Answer(True, frozenset({3})), fault) == (True, False, True, 1, True)
    assert score(Answer(True, frozenset({3, 4})), fault) == (False, True, True, 2, False)
    assert score(Answer(False, frozenset({3, 4}), first=3), fault) == (False, False, True, 2, True)


def test_a_link_is_right_with_its_communicator_and_wrong_as_a_rank() -> None:
    fault = Fault(faults.LINK, 3, 0, other=4)
    assert score(Answer(True, frozenset({1, 2, 3, 4}), is_link=True), fault).exact
    assert score(Answer(True, frozenset({3})), fault).wrong


def test_the_usual_rules_do_as_they_are_described() -> None:
    rows = [
        s.Rank(0, positions=(s.Position("a", 8, 8, 7), s.Position("b", 3, 3, 3))),
        s.Rank(1, positions=(s.Position("a", 9, 7, 7), s.Position("b", 2, 2, 2))),
    ]
    told = {name: set(ranks) for name, ranks in baselines.all_rules(rows, (s.Group("a", (0, 1)), s.Group("b", (0, 1))))}
    assert told == {
        "lowest count, called": {0, 1},
        "lowest count, ended": {1},
        "missing ranks, called": {0, 1},
        "missing ranks, begun": {1},
    }


def test_the_same_work_gives_the_same_scores_and_a_report() -> None:
    task = Work(3, faults.SKIP, 0, 1, 1)  # of the smallest job
    assert work(task) == work(task)
    rows = [
        {"topology": "t", "recorder": dumps.TIMED, "fault": "host", "missing": share, "trials": 4, "size": 1.5}
        | {"rule": rule, "exact": 3, "wrong": 0, "first": 3, "contains": 4}
        for share in (0.0, OWN)
        for rule in (tables.OURS, "other")
    ]
    assert "| t | nccl, started recorded | host stuck | the culprit's | 4 | 75 % | 0 % | 75 % | 100 % | 1.5 |" in [
        *tables.ours(rows)
    ]
    assert list(tables.beside(rows))[-1] == "| t | host stuck | 75 % (1.5) | 75 % (1.5) |"


def report(exact: int, wrong: int, judged_s: float, trials: int = 1000, load: float = 0.5) -> dict[str, object]:
    rows = [
        {"topology": topology, "ranks": 64, "recorder": dumps.TIMED, "fault": fault, "missing": share}
        | {"rule": tables.OURS, "trials": trials, "exact": exact, "wrong": wrong, "first": exact}
        | {"contains": trials, "size": 1.0}
        for topology in page.USUAL
        for fault in faults.KINDS
        for share in (0.0, 0.05, 0.2)
    ]
    speed = {"fault": "host", "missing": 0.0, "ranks": 16_384, "megabytes": 37.0, "read_s": 0.5, "judged_s": judged_s}
    return {
        "rows": rows,
        "speed": [speed | {"peak_mib": 300, "cpu_s": judged_s, "kind": "collective_hang", "load": load}],
        "seed": 1,
        "large": 300,
        "small": True,
        "date": "2026-01-02",
        "python": "3",
        "cpus": 2,
    }


def test_the_page_says_which_promises_are_kept() -> None:
    kept, broken = page.page([report(998, 2, 2.0)]), page.page([report(980, 20, 6.0)])
    assert "not met" not in kept
    assert "too few" not in kept
    assert broken.count("**not met**") == 2 * 2 + 3
    assert "| 16,384 ranks read and judged, s of one core | under 5 | 2 | | met |" in kept
    assert "| the same, s on the clock | under 5 | 2.5 | | met |" in kept
    assert "`rankpulse bench hang --seed 1 --large 300`, 2026-01-02" in kept


def test_a_promise_that_so_few_trials_cannot_show_is_not_said_to_be_shown() -> None:
    told = page.page([report(20, 0, 2.0, trials=20)])
    assert (
        "rank exactly named, no dump missing | at least 99 % | 100 %, 80 of 80 | at least 96.3 % | met, in too" in told
    )


def test_a_clock_says_nothing_where_no_core_is_free() -> None:
    told = page.page([report(998, 2, 6.0, load=9.0)])
    assert "| the same, s on the clock | under 5 | 6.5 at a load of 9 | | no core was free for it" in told


def test_trials_of_several_reports_count_together() -> None:
    one, other = report(20, 0, 2.0, trials=20), report(9, 1, 3.0, trials=10)
    row = page.merged([one, other])["rows"][0]
    assert (row["trials"], row["exact"], row["wrong"], row["contains"]) == (30, 29, 1, 30)
    assert len(page.merged([one, other])["rows"]) == len(page.merged([one])["rows"])


def test_bounds_are_those_of_the_books() -> None:
    assert bounds.at_least(300, 300) == pytest.approx(0.05 ** (1 / 300))
    assert bounds.at_most(0, 300) == pytest.approx(1 - 0.05 ** (1 / 300))
    assert bounds.at_least(0, 10) == 0.0
    assert bounds.at_least(8, 10) == pytest.approx(0.4931, abs=1e-4)


# --- trials of a large job, which share a run


@pytest.mark.parametrize("seed", range(4))
def test_out_of_a_shared_run_come_the_dumps_of_a_run_of_its_own(seed: int) -> None:
    layout, style = Layout(2, 4, 4), draw_style(Random(seed), experts=False)
    base = Base(layout, style, seed)
    lots = base.drawn([(i, kind, Random(f"{seed}/{i}/{kind}")) for i in range(2) for kind in faults.KINDS])
    assert {lot.fault.rank // layout.tp % layout.dp for lot in lots} == {seed}
    for lot, rows in zip(lots, base.each(lots, lambda _lot, _hang, rows: rows, list[s.Rank]), strict=True):
        alone = machine(layout, lot.fault, style)
        assert rows == (None if any(rank.ended for rank in alone.ranks) else dumps.ranks(alone, dumps.TIMED)), lot.fault


def test_dumps_go_missing_in_one_batch_of_some_and_every_kind_is_in_each() -> None:
    batches = [task for task in plan(is_quick=False, seed=1, large=100) if task.field == BIG]
    assert sum(task.trials for task in batches) == 100
    assert {task.kind for task in batches} == {ALL}
    assert [is_full(task) for task in batches] == [True, True, *[False] * (100 // SHARED - 2)]
    assert {task.field for task in plan(is_quick=False, seed=1, large=10, small=False)} == {BIG}
    assert not [task for task in plan(is_quick=True, seed=1, large=100) if task.field == BIG]


def test_what_was_done_is_not_done_again_and_not_believed_of_other_code(tmp_path: Path) -> None:
    task = Work(3, faults.SKIP, 0, 1, 1)
    done = list(run._all([task], Kept(tmp_path), 1))
    assert Kept(tmp_path).found(task) == done
    assert Kept(tmp_path).found(task._replace(seed=2)) is None
    assert Kept(None).found(task) is None
    (tmp_path / "code").write_text("of yesterday")
    with pytest.raises(BadPlace, match="other code"):
        Kept(tmp_path)


def test_time_and_memory_are_measured_in_a_process_of_its_own() -> None:
    rows = speed.measured(SMALL, STYLE)
    assert [(row["fault"], row["missing"], row["ranks"]) for row in rows] == [
        (kind, share, 8) for kind in (faults.SKIP, faults.HOST) for share in speed.SHARES
    ]
    assert all(row["peak_mib"] > 0 and row["kind"] for row in rows)
