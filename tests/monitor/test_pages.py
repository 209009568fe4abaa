"""What the monitor shows over HTTP."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import msgspec
import pytest
from doors import open_door
from prometheus_client import exposition
from prometheus_client.openmetrics import exposition as openmetrics_exposition
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families
from support import eventually

from rankpulse.core import diagnosis
from rankpulse.core.catalogue import BUILD, MONITOR, SHARED
from rankpulse.core.records import Incident, Member
from rankpulse.monitor.http import Pages, PortTaken, SeldomSaid
from rankpulse.monitor.metrics import SOURCES, registry
from rankpulse.monitor.samples import CLASSES
from rankpulse.monitor.vitals import Vitals
from rankpulse.store.api import StoreStatus

STATE: dict[str, Any] = {
    "monitor": "m1",
    "version": "1",
    "leads": True,
    "epoch": 3,
    "armed": False,
    "blind": False,
    "blind_seconds_total": 1.5,
    "echo_age_s": 0.25,
    "store": {"version": "3.5.9", "alarms": ["NOSPACE"], "error": "", "age_s": 4.0},
    "outbox": {"targets": {"pager": {"kind": "slack", "waiting": 2, "dead": 1, "delivered": 5}}, "letters": []},
    "cordons": {"n9": {"author": "ann", "reason": "bad link", "at": 0.0}},
    "nodes": {
        "n1": {
            "silence_s": 0.5,
            "deadline_s": None,
            "suspect": False,
            "look": {"answer": "silent", "detail": "", "age_s": 1.0, "reached": True},
        },
    },
    "runs": {
        "r1": {
            "run_id": "a b",
            "outcome": "running",
            "round": 2,
            "ranks": [
                {"rank": 0, "node": "n1", "step": 9, "phase": "train", "state": "S", "stale_s": 0.5},
                {"rank": 1, "node": "n1", "step": 12, "phase": "train", "state": "T", "stale_s": 2.0},
            ],
            "world_size": 4,
            "step": 9,
            "step_spread": None,
            "phase_deadline_s": 30.0,
            "clocks": {"train": {"seen": 40, "high_s": 2.0, "deadline_s": 8.0}},
            "pace": {"step_s": 2.0, "usual_step_s": 1.0, "slowdown": 2.0},
            "stragglers": [{"rank": 1, "node": "n1", "ratio": 1.5, "for_s": 60.0, "why": "in phase data"}],
            "checkpoint": {
                "step": 8,
                "verified_step": 6,
                "age_s": 2.5,
                "verified_age_s": None,
                "bytes": 1000,
                "save_s": 0.5,
                "verify_s": 0.0,
                "load_s": 0.25,
                "saves": 4,
                "failures": 2,
                "refused": 1,
                "durable_step": 4,
                "durable_age_s": 90.0,
                "upload_failures": 3,
            },
            "advice": {
                "interval_s": 600.0,
                "low_s": 400.0,
                "high_s": 900.0,
                "mtbf_s": 7200.0,
                "mtbf_low_s": 3600.0,
                "mtbf_high_s": 9000.0,
                "lost_share": 0.07,
            },
        },
        "r2": {
            "run_id": "c",
            "outcome": "running",
            "round": 1,
            "ranks": [],
            "world_size": 1,
            "step": None,
            "step_spread": None,
            "phase_deadline_s": None,
            "clocks": {},
            "pace": {"step_s": None, "usual_step_s": None, "slowdown": None},
            "stragglers": [],
            "checkpoint": None,
            "advice": None,
        },
        "r0": {"outcome": "finished"},
    },
    "ledger": {
        "entries": 3,
        "failures": {"gpu_fault/gpu": 2, "worker_dead/program": 1},
        "between_failures_gpu_s": {"all": {"best": 9600.0, "low": 4000.0, "high": None}},
        "lost_s": {"stop": 4.0},
        "lost_gpu_s": {"stop": 32.0},
        "node_s": 7200.0,
        "gpu_s": 28800.0,
        "run_s": 3600.0,
        "unseen_s": 12.0,
        "counted_at": 1.8e9,
        "lemons": {"node": 1, "gpu": 0},
        "suspects": [
            {"kind": "node", "name": "n1", "failures": 9, "lemon": True, "ratio": 12.0, "q": 0.001},
            {"kind": "gpu", "name": "n1/3", "failures": 1, "lemon": False, "ratio": None, "q": 0.7},
        ],
        "trend": {
            "verdict": "rising",
            "failures": 12,
            "p": {"laplace": 0.01, "lewis_robinson": 0.02, "mil_hdbk_189c": 0.03},
            "beta": {"best": 2.0, "low": 1.5, "high": None},
        },
        "runs": {"r1": {"lost_s": {"stop": 4.0}, "ettr": 0.75, "goodput": None}},
    },
    "incidents": [
        {
            "klass": "worker_dead",
            "state": "closed",
            "run_uid": "r1",
            "action": "adopt",
            "restarts": 2,
            "time_to_detect_s": 1.0,
            "time_to_recover_s": 4.0,
        },
        {
            "klass": "worker_dead",
            "state": "open",
            "run_uid": "r1",
            "action": "page",
            "restarts": 0,
            "time_to_detect_s": 2.0,
            "time_to_recover_s": None,
            "id": "i2",
            "opened_at": 1.7e9,
            "rung": "page",
            "culprits": [],
            "nodes": ["n1"],
        },
        {
            "klass": "collective_hang",
            "state": "open",
            "run_uid": "r1",
            "action": "observe",
            "restarts": 0,
            "time_to_detect_s": None,
            "time_to_recover_s": None,
            "id": "i3",
            "opened_at": 1.71e9,
            "rung": "",
            "culprits": [msgspec.to_builtins(Member(1, "n2", 0, 4711, 99))],
            "nodes": ["n1", "n2"],
        },
    ],
}


class Site:
    """Pages with answers the test chooses."""

    def __init__(self) -> None:
        self.vitals, self.alive, self.ready, self.url, self.kind = Vitals(), "", "", "", ""
        self.state = dict(STATE)
        self.vitals.store = StoreStatus("3.5.9", 1000, 7, True, ("NOSPACE",))
        self.vitals.actions["create", "done"] += 2
        self.vitals.posts["pager", "failed"] += 3
        self.pages = Pages(
            state=lambda: self.state,
            alive=lambda: self.alive,
            ready=lambda: self.ready,
            registry=registry(lambda: self.state, self.vitals),
            door=open_door(),
        )

    async def get(self, path: str, accept: str = "*/*") -> tuple[int, str]:
        asked = {"Accept": accept}
        async with aiohttp.ClientSession() as session, session.get(self.url + path, headers=asked) as answer:
            self.kind = answer.headers["Content-Type"]
            return answer.status, await answer.text()


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    made = Site()
    made.url = await made.pages.start("127.0.0.1:0")
    yield made
    await made.pages.stop()


async def test_metrics_are_those_of_the_catalogue_with_the_present_values(site: Site) -> None:
    status, text = await site.get("/metrics")
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert status == 200
    assert set(families) == {metric.name for metric in (*SHARED, *MONITOR)}
    assert families["rankpulse_node_silence_seconds"].samples[0].labels == {"node": "n1"}
    assert families["rankpulse_monitor_epoch"].samples[0].value == 3
    assert families["rankpulse_store_alarms"].samples[0].value == 1
    actions = {tuple(sample.labels.values()): sample.value for sample in families["rankpulse_monitor_actions"].samples}
    assert (actions["create", "done"], actions["write", "failed"]) == (2, 0)
    assert families["rankpulse_run_step_spread"].samples == []  # unknown is not zero
    assert families["rankpulse_node_deadline_seconds"].samples == []
    assert [sample.labels["run_uid"] for sample in families["rankpulse_run_info"].samples] == ["r1", "r2"]
    assert by_label(families["rankpulse_incidents_open"])["worker_dead"] == 1
    assert by_label(families["rankpulse_node_reached"]) == {"n1": 1}
    assert by_label(families["rankpulse_monitor_probes"]) == {
        "answered": 0, "accepted": 0, "refused": 0, "silent": 0, "unable": 0
    }  # fmt: skip
    assert families["rankpulse_monitor_probe_seconds"].samples == []
    told = {sample.labels["outcome"]: sample.value for sample in families["rankpulse_webhook_attempts"].samples}
    assert told == {"taken": 0, "failed": 3, "gone": 0, "unsent": 0}
    assert by_label(families["rankpulse_webhook_waiting"]) == {"pager": 2}
    assert by_label(families["rankpulse_webhook_dead"]) == {"pager": 1}


async def test_figures_of_a_run_are_made_from_its_ranks_and_incidents(site: Site) -> None:
    _, text = await site.get("/metrics")
    families = {family.name: family for family in text_string_to_metric_families(text)}
    figures = {
        "rankpulse_run_still_seconds": {"r1": 0.5},
        "rankpulse_run_ranks_in_state": {"S": 1, "T": 1},
        "rankpulse_run_ranks_in_phase": {"train": 2},
        "rankpulse_run_node_steps_behind": {"n1": 3},
        "rankpulse_run_phase_deadline_seconds": {"train": 8.0},
    }
    assert {name: by_label(families[name]) for name in figures} == figures
    assert of_runs(families["rankpulse_run_incidents_open"]) == {"r1": 2, "r2": 0}
    assert of_runs(families["rankpulse_run_restarts"]) == {"r1": 2, "r2": 0}
    assert of_runs(families["rankpulse_run_slowdown_ratio"]) == {"r1": 2.0}
    assert of_runs(families["rankpulse_run_stragglers"]) == {"r1": 1, "r2": 0}
    [straggler] = families["rankpulse_run_straggler_ratio"].samples
    assert (straggler.labels, straggler.value) == ({"run_uid": "r1", "node": "n1", "rank": "1"}, 1.5)


async def test_figures_of_the_ledger_are_its_sums(site: Site) -> None:
    _, text = await site.get("/metrics")
    families = {family.name: family for family in text_string_to_metric_families(text)}
    rows = families["rankpulse_ledger_failures"].samples
    failures = {(row.labels["class"], row.labels["component"]): row.value for row in rows}
    assert failures["gpu_fault", "gpu"] == 2
    assert failures["worker_dead", "program"] == 1
    assert failures["node_dead", "node"] == 0, "it is there before it happens"
    assert ("drain", "person") not in failures, "planned"
    assert by_label(families["rankpulse_ledger_lost_gpu_seconds"]) == {"stop": 32.0}
    assert by_label(families["rankpulse_ledger_exports"]) == {"ok": 0, "failed": 0}
    assert by_label(families["rankpulse_mtbf_gpu_seconds"]) == {"best": 9600.0, "low": 4000.0}
    assert families["rankpulse_ledger_gpu_seconds"].samples[0].value == 28800.0
    assert of_runs(families["rankpulse_run_effective_ratio"]) == {"r1": 0.75}
    assert of_runs(families["rankpulse_run_goodput_ratio"]) == {}, "unknown is not zero"


async def test_figures_of_checkpoints_are_those_that_are_known(site: Site) -> None:
    _, text = await site.get("/metrics")
    families = {family.name: family for family in text_string_to_metric_families(text)}
    figures = {
        "step": {"r1": 8}, "verified_step": {"r1": 6}, "age_seconds": {"r1": 2.5}, "verified_age_seconds": {},
        "bytes": {"r1": 1000}, "save_seconds": {"r1": 0.5}, "verify_seconds": {}, "load_seconds": {"r1": 0.25},
        "saves": {"r1": 4, "r2": 0}, "failures": {"r1": 2, "r2": 0}, "refused": {"r1": 1, "r2": 0},
    }  # fmt: skip
    assert {name: of_runs(families[f"rankpulse_run_checkpoint_{name}"]) for name in figures} == figures
    beyond = {"durable_step": {"r1": 4}, "durable_age_seconds": {"r1": 90.0}, "upload_failures": {"r1": 3, "r2": 0}}
    assert {name: of_runs(families[f"rankpulse_checkpoint_{name}"]) for name in beyond} == beyond


async def test_the_advised_interval_is_there_with_its_bounds(site: Site) -> None:
    _, text = await site.get("/metrics")
    families = {family.name: family for family in text_string_to_metric_families(text)}
    advised = by_label(families["rankpulse_checkpoint_interval_advice_seconds"])
    assert advised == {"best": 600.0, "low": 400.0, "high": 900.0}
    assert by_label(families["rankpulse_run_mtbf_seconds"]) == {"best": 7200.0, "low": 3600.0, "high": 9000.0}
    assert of_runs(families["rankpulse_checkpoint_lost_ratio"]) == {"r1": 0.07}, "without an advice there is no sample"


async def test_what_may_be_counted_has_its_zero_before_it_happens(site: Site) -> None:
    """A counter that is born at 1 has not grown, for Prometheus: the first incident would be missed."""
    _, text = await site.get("/metrics")
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert by_label(families["rankpulse_incidents"]).items() >= {"collective_hang": 0, "node_dead": 0}.items()
    assert by_label(families["rankpulse_restarts"]) == {"torchelastic": 0, "order": 0}
    paging = by_label(families["rankpulse_incidents_paging"])
    assert (paging["worker_dead"], paging["collective_hang"], paging["unknown"]) == (1, 1, 0)
    assert by_label(families["rankpulse_runs_ended"])["failed"] == 0


async def test_who_stands_out_and_whether_it_becomes_more_is_told(site: Site) -> None:
    _, text = await site.get("/metrics")
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert by_label(families["rankpulse_lemons"]) == {"node": 1, "gpu": 0}
    [worst] = families["rankpulse_lemon_failure_ratio"].samples
    assert (worst.labels, worst.value) == ({"kind": "node", "name": "n1"}, 12.0), "infinite is no sample"
    assert [row.value for row in families["rankpulse_lemon_false_discovery_ratio"].samples] == [0.001, 0.7]
    assert by_label(families["rankpulse_failure_trend"]) == {
        "constant": 0, "falling": 0, "rising": 1, "bursts": 0, "too_few": 0
    }  # fmt: skip
    assert by_label(families["rankpulse_failure_trend_beta"]) == {"best": 2.0, "low": 1.5}
    assert by_label(families["rankpulse_failure_trend_p_ratio"])["lewis_robinson"] == 0.02


async def test_open_incidents_are_named_and_stand_on_their_rung(site: Site) -> None:
    _, text = await site.get("/metrics")
    families = {family.name: family for family in text_string_to_metric_families(text)}
    named = families["rankpulse_incident_opened_timestamp_seconds"].samples
    wanted = ("incident", "class", "run_uid", "node", "action", "rung")
    assert [tuple(row.labels[name] for name in wanted) for row in named] == [
        ("i2", "worker_dead", "r1", "n1", "page", "page"), ("i3", "collective_hang", "r1", "n2", "observe", "none")
    ]  # fmt: skip
    assert by_label(families["rankpulse_incidents_on_rung"]) == {
        "none": 1, "order": 0, "kill": 0, "webhook": 0, "page": 1
    }  # fmt: skip


@pytest.mark.parametrize(
    ("action", "rung", "waits"), [("stop", "", 1), ("restart", "page", 1), ("restart", "webhook", 0), ("wait", "", 0)]
)
def test_whatever_calls_for_a_person_is_counted_as_paging(action: str, rung: str, waits: int) -> None:
    one = {**STATE["incidents"][1], "action": action, "rung": rung}
    counted = dict(SOURCES["rankpulse_incidents_paging"]({"incidents": [one]}, Vitals()))
    assert counted[("worker_dead",)] == waits


def test_at_most_fifty_incidents_are_named_the_newest() -> None:
    one = STATE["incidents"][1]
    many = {"incidents": [{**one, "id": f"i{n}", "opened_at": float(n)} for n in range(80)]}
    named = list(SOURCES["rankpulse_incident_opened_timestamp_seconds"](many, Vitals()))
    assert [value for _, value in named] == [float(n) for n in range(30, 80)]


def incident(id_: str, **more: Any) -> Incident:
    fields = {"id": id_, "klass": "node_dead", "state": "open", "opened_at": 0.0, "time_to_detect_s": 4.0, **more}
    return Incident(**fields)


def test_last_words_are_counted_once_an_incident_is_over() -> None:
    vitals, over = Vitals(), {"state": "closed", "outcome": "recovered"}
    vitals.note_incident(incident("i0", last_words="saved", **over))  # before the listing: the past
    vitals.listed = True
    vitals.note_incident(incident("i1", last_words="asked"))
    vitals.note_incident(incident("i1", last_words="unanswered"))
    vitals.note_incident(incident("i1", last_words="saved", **over))
    vitals.note_incident(incident("i1", last_words="saved", **over))  # seen again
    vitals.note_incident(incident("i2", **over))
    counted = dict(SOURCES["rankpulse_last_words"]({"incidents": []}, vitals))
    assert counted == {("saved",): 1.0, ("refused",): 0.0, ("unanswered",): 0.0, ("asked",): 0.0}


async def test_times_are_histograms_whose_buckets_lead_to_an_incident(site: Site) -> None:
    vitals, over = site.vitals, {"state": "closed", "outcome": "recovered", "time_to_recover_s": 75.0}
    vitals.note_incident(incident("i0", **over))  # before the listing: the past
    vitals.listed = True
    for id_ in ("i1", "i2"):
        vitals.note_incident(incident(id_))
        vitals.note_incident(incident(id_, restarts=1, order_id="o"))
    vitals.note_incident(incident("i2", restarts=1, **over))
    vitals.note_incident(incident("i2", restarts=1, **over))  # seen again
    vitals.note_incident(incident("i3", state="closed", outcome="passed", time_to_recover_s=9.0))
    _, text = await site.get("/metrics", "application/openmetrics-text;version=1.0.0")
    assert site.kind.startswith("application/openmetrics-text")
    families = {family.name: family for family in openmetrics_families(text)}

    def of(name: str, suffix: str) -> dict[str, tuple[float, str]]:
        rows = families[name].samples
        return {
            row.labels.get("le", row.labels.get("outcome", row.labels.get("by", ""))): (
                row.value, row.exemplar.labels["incident"] if row.exemplar else ""
            )
            for row in rows
            if row.name == name + suffix and row.labels.get("class", "node_dead") == "node_dead"
        }  # fmt: skip

    detected = of("rankpulse_time_to_detect_seconds", "_bucket")
    assert (detected["2.0"], detected["5.0"], detected["+Inf"]) == ((0, ""), (3, "i3"), (3, ""))
    assert of("rankpulse_time_to_detect_seconds", "_sum") == {"": (12.0, "")}
    recovered = of("rankpulse_time_to_recover_seconds", "_bucket")
    assert (recovered["60.0"], recovered["120.0"]) == ((0, ""), (1, "i2")), "what passed by itself was no recovery"
    assert of("rankpulse_incidents", "_total") == {"": (3, "i3")}
    assert of("rankpulse_incidents_closed", "_total")["recovered"] == (1, "")
    assert of("rankpulse_restarts", "_total")["order"] == (2, "i2")


async def test_who_does_not_ask_for_openmetrics_gets_the_classic_text(site: Site) -> None:
    site.vitals.listed = True
    site.vitals.note_incident(incident("i1"))
    _, text = await site.get("/metrics")
    assert site.kind == "text/plain; version=0.0.4; charset=utf-8"
    assert "# {" not in text
    families = {family.name: family for family in text_string_to_metric_families(text)}
    buckets = [row for row in families["rankpulse_time_to_recover_seconds"].samples if row.name.endswith("_bucket")]
    assert {row.value for row in buckets} == {0}, "of every class, before it happens"
    assert {row.labels["class"] for row in buckets} == set(CLASSES)


async def test_a_metric_that_cannot_be_made_is_left_out_counted_and_told_once(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    """The others stand: what is missing must not blind every alert."""
    whole = {family.name for family in text_string_to_metric_families((await site.get("/metrics"))[1])}
    site.state["ledger"] = {**STATE["ledger"], "trend": {"verdict": "rising"}}
    gone = {"rankpulse_failure_trend_p_ratio", "rankpulse_failure_trend_beta"}
    for accept in ("text/plain", "application/openmetrics-text"):
        _, text = await site.get("/metrics", accept)
        parse = openmetrics_families if "open" in accept else text_string_to_metric_families
        families = {family.name: family for family in parse(text)}
        assert whole - families.keys() == gone
        assert families["rankpulse_monitor_metrics_missing"].samples[0].value == len(gone)
    assert len([line for line in caplog.messages if "cannot be made" in line]) == len(gone)


@pytest.mark.parametrize("accept", ["text/plain", "application/openmetrics-text; version=1.0.0"])
async def test_decisions_go_on_while_metrics_are_written_down(
    site: Site, accept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fleet of thousands of nodes takes a quarter of a second."""
    began, turned, written = threading.Event(), threading.Event(), list[bool]()
    module: Any = openmetrics_exposition if "openmetrics" in accept else exposition
    write = module.generate_latest

    def slowly(told: Any) -> Any:
        began.set()
        written.append(turned.wait(5))  # the loop turns meanwhile, or never
        return write(told)

    monkeypatch.setattr(module, "generate_latest", slowly)
    asked = asyncio.create_task(site.get("/metrics", accept))
    await eventually(began.is_set, 10, "that it is written down")
    turned.set()
    assert (await asked)[0] == 200
    assert written == [True]


async def test_it_tells_of_its_own_health(site: Site) -> None:
    site.vitals.tick_s.observe(0.02)
    _, text = await site.get("/metrics")
    families = {family.name: family for family in text_string_to_metric_families(text)}
    [build] = families["rankpulse_build_info"].samples
    assert (build.labels["component"], build.labels["version"]) == ("monitor", "1")
    assert families["process_resident_memory_bytes"].samples[0].value > 1e6
    assert families["rankpulse_monitor_echo_age_seconds"].samples[0].value == 0.25
    assert families["rankpulse_store_status_age_seconds"].samples[0].value == 4.0
    ticks = {row.labels["le"]: row.value for row in families["rankpulse_monitor_tick_seconds"].samples if row.labels}
    assert (ticks["0.01"], ticks["0.025"]) == (0, 1)


def of_runs(family: Any) -> dict[str, float]:
    return {sample.labels["run_uid"]: sample.value for sample in family.samples}


def by_label(family: Any) -> dict[str, float]:
    """Values of a family by that of their labels which does not name the run."""
    return {
        next((value for name, value in sample.labels.items() if name != "run_uid"), "r1"): sample.value
        for sample in family.samples
    }


def test_of_nodes_at_which_nobody_looked_nothing_is_told() -> None:
    nodes = {"n1": {"look": None}, "n2": {"look": {"answer": "", "reached": False}}, "n3": {}}
    assert list(SOURCES["rankpulse_node_reached"]({"nodes": nodes}, Vitals())) == []


def test_incidents_of_every_class_count_from_zero() -> None:
    """A counter that is born at 1 has not grown, for Prometheus."""
    assert {*diagnosis.STANDSTILLS, *diagnosis.DEATHS, diagnosis.SILENT_CORRUPTION} <= set(CLASSES)


def test_every_metric_of_the_catalogue_has_a_source() -> None:
    assert set(SOURCES) == {metric.name for metric in (BUILD, *MONITOR)}


async def test_health_and_readiness_say_why_not(site: Site) -> None:
    assert await site.get("/healthz") == (200, "ok\n")
    assert await site.get("/readyz") == (200, "ok\n")
    site.ready = "the store has not been listed yet"
    assert await site.get("/readyz") == (503, "the store has not been listed yet\n")
    site.alive = "the loop has not turned for 40 s"
    assert (await site.get("/healthz"))[0] == 503


async def test_state_is_json(site: Site) -> None:
    async with aiohttp.ClientSession() as session, session.get(site.url + "/state") as answer:
        assert await answer.json() == STATE


async def test_a_taken_port_is_a_clear_error_that_says_how_to_choose_another() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PortTaken, match=rf"127\.0\.0\.1:{port}: the port is taken.*--listen"):
            await Site().pages.start(f"127.0.0.1:{port}")


@pytest.mark.parametrize(
    ("listen", "part"),
    [
        ("garbage", r"monitor\.listen 'garbage': write host:port"),
        ("nohost.invalid:0", "the name cannot be resolved"),
        ("203.0.113.1:0", "an address of this machine"),
    ],
)
async def test_places_that_cannot_be_had_are_told_with_the_right_remedy(listen: str, part: str) -> None:
    with pytest.raises(PortTaken, match=part) as refused:
        await Site().pages.start(listen)
    assert "Another monitor" not in str(refused.value)


def test_a_loop_without_file_descriptors_complains_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    loop = asyncio.new_event_loop()
    complain = SeldomSaid()
    for _ in range(200):
        complain(
            loop, {"message": "socket.accept() out of system resource", "exception": OSError(24, "too many files")}
        )
    complain(loop, {"message": "something else"})
    loop.close()
    texts = [record.getMessage() for record in caplog.records]
    assert [text for text in texts if "no room for another connection" in text] == texts[:1]
    assert any("something else" in text for text in texts)
