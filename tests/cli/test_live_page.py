"""What answers at the leader's url: a monitor, or something else that is told in a sentence."""

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from aiohttp import web

from rankpulse.cli import live, status
from rankpulse.cli.books import Books
from rankpulse.core.records import Beat, CheckpointState, RunAdvice, RunState

GOOD = (
    b'{"monitor":"m","nodes":{"a":{"silence_s":1,"suspect":true}},'
    b'"runs":{"r":{"step":3,"ranks":[{"rank":0,"node":"a"}]}}}'
)
KNOWN = Books(
    {
        "a": Beat(node="a", inc=1, seq=1, at=0.0),
        "r": RunState(run_uid="r", run_id="x", round=1, outcome="running", reason="", at=0.0),
    },
    {},
)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b"\xff\xfe",
        b"<html>",
        b"[" * 100_000,
        b'{"monitor":"m","runs":{},"nodes":{},"x":' + b"[" * 100_000,
        b'{"monitor":"m","runs":{},"nodes":[]}',
        b'{"monitor":"m","runs":{},"nodes":{"a":5}}',
        b'{"monitor":"m","runs":{},"nodes":{"a":{"silence_s":"x"}}}',
        b'{"monitor":"m","runs":{"r":{"ranks":5}},"nodes":{}}',
        b'{"monitor":"m","runs":{"r":{"ranks":[1]}},"nodes":{}}',
        b'{"monitor":"m","runs":{"r":{"phases":[1]}},"nodes":{}}',
        b'{"monitor":"m","runs":{},"nodes":{},"blind":true,"blind_reason":[1]}',
    ],
    ids=range(14),
)
def test_what_is_no_monitor_is_told(body: bytes) -> None:
    state, error = live.understand("http://h:1", 200, body, live.State)
    assert state is None
    assert "http://h:1 does not answer as a monitor does" in error


def test_a_monitors_answer_is_joined_with_the_store() -> None:
    state, error = live.understand("http://h:1", 200, GOOD, live.State)
    assert state is not None, error
    (node,) = status._nodes(KNOWN, state.nodes)
    (run,) = status._runs(KNOWN, state.runs)
    assert (node["silence_s"], node["suspect"]) == (1.0, True)
    assert (run["step"], run["ranks"], run["world_size"]) == (3, 1, None)


def test_without_a_monitor_live_figures_are_unknown() -> None:
    (node,) = status._nodes(KNOWN, None)
    (run,) = status._runs(KNOWN, {})
    assert status._standing(node) == ""
    assert (node["silence_s"], node["suspect"], run["step"], run["ranks"]) == (None,) * 4


def test_a_node_that_was_stopped_on_purpose_is_told_from_one_that_is_silent() -> None:
    def standing(page: dict[str, live.Node]) -> str:
        (node,) = status._nodes(KNOWN, page)
        return status._standing(node)

    name = status._nodes(KNOWN, None)[0]["node"]
    assert standing({name: live.Node(leaving=True)}) == "left: its agent said goodbye"
    assert standing({name: live.Node(leaving=True, suspect=True)}).startswith("SUSPECT")
    assert standing({}).startswith("not watched any more")
    assert standing({name: live.Node()}) == ""


def line(state: CheckpointState, page: live.Run | None = None) -> str:
    """What people see of a run's checkpoints."""
    (run,) = status._runs(Books({**KNOWN.records, "c": state}, {}), {"r": page} if page else {})
    return status.checkpoint(run)


def test_a_line_tells_of_the_checkpoints_of_a_run() -> None:
    page = live.Run(checkpoint=live.Checkpoint(age_s=14.2, verified_age_s=14.2))
    good = CheckpointState(run_uid="r", step=120, verified_step=120, at=1.0, save_s=0.31, saves=3, verifications=3)
    assert line(good, page) == "step 120, verified, 14 s ago; save took 0.3 s"
    assert "NOT verified" in line(msgspec.structs.replace(good, verified_step=110), page)
    assert " d ago" in line(good), "without a monitor's page by the time in the record"
    bad = msgspec.structs.replace(
        good, failed_since=2, failed_step=140, failure="disk full \x1b[2J", loaded_step=100, loaded_round=2, refused=1,
        resume_before_step=130,
    )  # fmt: skip
    assert line(bad, page) == (
        "step 120, verified, 14 s ago; save took 0.3 s; 2 SAVES FAILED since, the last at step 140: disk full \x1b[2J; "
        "round 2 resumed from step 100; 1 refused; the next load is to be before step 130"
    )
    assert line(CheckpointState(run_uid="r", failed_since=1, failed_step=9, failure="x")).startswith(
        "none yet; 1 SAVES"
    )


def test_the_line_says_how_often_to_save_and_how_sure_that_is() -> None:
    state = CheckpointState(run_uid="r", step=120, verified_step=120, saves=3, save_s=20.0)
    advice = RunAdvice(
        run_uid="r", at=1.0, interval_s=1737.0, low_s=829.0, high_s=46757.0, mtbf_s=76588.0, mtbf_low_s=17734.0,
        mtbf_high_s=54686952.0, save_s=20.0, saves=3, recover_s=300.0, failures=0, lost_share=0.0252, why="",
    )  # fmt: skip
    known = Books({**KNOWN.records, "c": state, "a": advice}, {})
    (run,) = status._runs(known, {})
    told = "save every 29 min (14 min to 13 h): a failure every 21 h is expected, 2.5% of the time lost"
    assert status.checkpoint(run).endswith(f"; {told}")
    assert run["advice"]["interval_s"] == 1737.0, "and for programs"


def test_the_line_stands_below_the_runs_and_steers_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    state = CheckpointState(run_uid="r", step=120, failed_since=2, failed_step=140, failure="disk full \x1b[2J")
    runs = status._runs(Books({**KNOWN.records, "c": state}, {}), {})
    nothing: dict[str, Any] = {"leader": None, "monitor": None, "arm": None, "armed": False, "cordons": [], "nodes": []}
    status.page({**nothing, "cluster": "c", "store": [], "refused": {}, "incidents_open": [], "runs": runs})
    shown = capsys.readouterr().out
    assert "checkpoint  step 120, NOT verified" in shown
    assert "\x1b" not in shown


class Site:
    """A web server that answers as the test says."""

    def __init__(self) -> None:
        self.answer: dict[str, Any] = {"body": GOOD}
        self.url = ""

    async def serve(self, _request: web.Request) -> web.Response:
        return web.Response(**self.answer)


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    site, app = Site(), web.Application()
    app.add_routes([web.get("/state", site.serve)])
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    site.url = "http://{}:{}".format(*runner.addresses[0][:2])
    yield site
    await runner.cleanup()


async def test_a_page_is_fetched(site: Site) -> None:
    state, error = await live.fetch(site.url)
    assert state is not None, error
    assert state.monitor == "m"


@pytest.mark.parametrize(
    ("answer", "part"),
    [
        ({"status": 404}, "status 404"),
        ({"status": 302, "headers": {"Location": "/state"}}, "status 302"),
        ({"body": b" " * (live.MAX_BYTES + 1)}, "more than"),
        ({"body": b"x", "headers": {"Content-Encoding": "gzip"}}, "does not answer as a monitor"),
    ],
)
async def test_other_services_are_told(site: Site, answer: dict[str, Any], part: str) -> None:
    site.answer = answer
    state, error = await live.fetch(site.url)
    assert state is None
    assert part in error


@pytest.mark.parametrize("url", ["ftp://x", "http://[::1", "x\n", "http://a b", "", "http://127.0.0.1:1"])
async def test_urls_that_lead_nowhere_are_told(url: str) -> None:
    state, error = await live.fetch(url)
    assert state is None
    assert error


def test_who_is_slow_is_told_by_name_and_a_run_that_is_slow_as_a_whole_too() -> None:
    body = (
        b'{"monitor":"m","nodes":{},"runs":{"r":{"pace":{"step_s":2.0,"usual_step_s":1.0,"slowdown":2.0,"slower":true},'
        b'"stragglers":[{"rank":3,"node":"a","ratio":1.6,"for_s":90,"why":"in phase data for 40% of the time"}]}}}'
    )
    state, error = live.understand("http://h:1", 200, body, live.State)
    assert state is not None, error
    (run,) = status._runs(KNOWN, state.runs)
    one, whole = status.slowness(run)
    assert one == "r: rank 3 on a, 1.6 times slower than its peers for 90 s: in phase data for 40% of the time"
    assert whole == "r: all ranks, 2.0 times slower than usual (1 s per step)"
    (unknown,) = status._runs(KNOWN, {})
    assert status.slowness(unknown) == []
