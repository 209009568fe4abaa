"""A real Prometheus beside a real job that crashes and recovers: every panel has an answer, every rule evaluates."""

import asyncio
import json
import os
import re
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from boards_past import HISTORY, stub_of_gpus
from support import eventually

from rankpulse.cli.ledger_import import bring_back
from rankpulse.core import ledger_lines
from rankpulse.core import records as r
from rankpulse.core.catalogue import AGENT, GPU, HOST, MONITOR, SHARED, Metric
from rankpulse.core.settings import parse
from rankpulse.dashboards import build
from rankpulse.dashboards.promql import TARGET_LABELS, wire_names
from rankpulse.dashboards.rules import GROUPS
from rankpulse.drills.children import Child
from rankpulse.drills.job import Job, free_port
from rankpulse.drills.stage import NODES, Stage

pytestmark = [pytest.mark.live, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(420)]
CLUSTER = "shown"
WITH_GPUS = NODES[0]
MAY_BE_EMPTY = {  # metric -> why this drill need not have it
    "rankpulse_run_straggler_ratio": "told only of the slow; tests/monitor/test_pages.py shows it",
    "rankpulse_run_slowdown_ratio": "told only of a run with a past of its own; tests/monitor/test_pages.py shows it",
    "rankpulse_host_port_up": "of ports with a card behind them: a container has none; tests/agent/test_host_watch.py",
    "rankpulse_host_port_errors": "likewise",
    "rankpulse_monitor_http_acts": "nobody acts over HTTP here; tests/security/test_whole_live.py",
    "rankpulse_checkpoint_durable_step": "its checkpoints have one place only; tests/monitor/test_pages.py shows it",
    "rankpulse_checkpoint_durable_age_seconds": "likewise",
    "rankpulse_host_clock_error_seconds": "only while something keeps the machine's clock in time",
    "rankpulse_host_memory_pressure_ratio": "only where the kernel tells of pressure (CONFIG_PSI)",
}
OF_THE_OPEN = (
    "rankpulse_incident_opened_timestamp_seconds"  # nothing is open when the drill is over: asked of all of it
)
RANGES = {"$__rate_interval": "30s", "$__interval": "5m", "$__range": "5m"}


class ScrapedStage(Stage):
    """The stage of the drills, with agents that serve their metrics."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.gpus = stub_of_gpus(directory)
        self.pages = {node: f"127.0.0.1:{free_port()}" for node in NODES}

    def new_monitor(self, env: dict[str, str] | None = None) -> Child:
        """With a webhook target, of which nothing needs to be told."""
        child = super().new_monitor(env)
        config = self.directory / "monitor.toml"
        target = '[[webhook.targets]]\nname = "pager"\nkind = "slack"\nurl = "http://127.0.0.1:1/hook"\n'
        config.write_text(f"{config.read_text()}{target}")
        return child

    def new_agent(self, node: str, env: dict[str, str] | None = None) -> Child:
        child = super().new_agent(node, self.gpus.env if node == WITH_GPUS else env)
        config = self.directory / f"{node}.toml"
        config.write_text(config.read_text().replace('listen = ""', f'listen = "{self.pages[node]}"'))
        return child

    def of_agent(self, node: str) -> str:
        """One of them has GPUs, of the tests' own libnvidia-ml."""
        quick = "[gpu]\npoll_s = 1.0\nslow_poll_s = 1.0\nhost_poll_s = 1.0\n"
        return f"{quick}[preflight]\ngpus = 2\n" if node == WITH_GPUS else quick

    async def import_history(self) -> None:
        """As `rankpulse ledger import` does, and until the monitor has read it."""
        file = self.directory / "history.jsonl"
        file.write_bytes(b"".join(map(ledger_lines.written, HISTORY)))
        settings = {"cluster": self.keys.cluster, "store": {"endpoints": [self.etcd.endpoint]}}
        done = await bring_back(parse(settings), str(file))
        assert (done.written, done.refused) == (len(HISTORY), ())
        [leader] = self.witness.all(r.Leader)

        async def told() -> bool:
            async with aiohttp.ClientSession() as session, session.get(f"{leader.url}/state") as answer:
                return bool((await answer.json())["ledger"]["lemons"]["node"])

        await eventually(told, 30.0, "the history at the monitor")


class Prometheus:
    """The real one, on a free port, with our rules."""

    def __init__(self, directory: Path, program: str, rule_file: Path, targets: dict[str, list[str]]) -> None:
        self.url = f"http://127.0.0.1:{free_port()}"
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(rule_file)],
            "scrape_configs": [
                {"job_name": job, "static_configs": [{"targets": hosts, "labels": {"cluster": CLUSTER}}]}
                for job, hosts in targets.items()
            ],
        }
        file = directory / "prometheus.yml"
        file.write_text(json.dumps(config))  # JSON is YAML
        argv = [program, f"--config.file={file}", f"--storage.tsdb.path={directory / 'tsdb'}"]
        argv += [f"--web.listen-address={self.url.removeprefix('http://')}", "--log.level=warn"]
        argv += ["--enable-feature=exemplar-storage"]
        self.child = Child("prometheus", argv, log=directory / "prometheus.log")

    async def ask(self, path: str, **params: str) -> Any:
        """The answer's `data`; None while it is not up."""
        assert self.child.alive(), self.child.tail()
        try:
            async with aiohttp.ClientSession() as session, session.get(self.url + path, params=params) as answer:
                said = await answer.json(content_type=None)
        except (aiohttp.ClientConnectionError, ValueError):
            return None
        if not isinstance(said, dict):
            return None
        assert said["status"] == "success", (params, said)
        return said["data"]

    async def ever(self, expr: str, since: float) -> list[dict[str, Any]]:
        """Whatever it was at any second since then; of each series its last value."""
        span = {"start": str(since), "end": str(time.time()), "step": "1"}
        data = await self.ask("/api/v1/query_range", query=expr, **span)
        return [{**row, "value": row["values"][-1]} for row in data["result"]] if data else []

    async def query(self, expr: str) -> list[dict[str, Any]]:
        data = await self.ask("/api/v1/query", query=expr)
        return list(data["result"]) if data else []


class Scene:
    """What has happened: a job trained, crashed, recovered, and trains on, and Prometheus scraped it all."""

    def __init__(self, prometheus: Prometheus, run_uid: str, began: float, incident: str) -> None:
        self.prometheus, self.run_uid, self.began, self.incident = prometheus, run_uid, began, incident

    def filled(self, expr: str) -> str:
        """The query as Grafana sends it, with values for the variables: all nodes, or one where one is chosen."""
        expr = expr.replace('node="$node"', f'node="{WITH_GPUS}"')
        for name, value in {**RANGES, "$cluster": CLUSTER, "$node": ".*", "$run": self.run_uid, "$gpu": ".*"}.items():
            expr = expr.replace(name, value)
        assert "$" not in expr.replace("rankpulse explain $1", "")
        return expr

    async def answer(self, expr: str) -> list[dict[str, Any]]:
        asked = self.filled(expr)
        return await (self.prometheus.ever(asked, self.began) if OF_THE_OPEN in expr else self.prometheus.query(asked))


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def scene(
    tmp_path_factory: pytest.TempPathFactory, binary: Callable[[str], str], rule_file: Path
) -> AsyncIterator[Scene]:
    directory, program = tmp_path_factory.mktemp("boards"), binary("prometheus")
    async with ScrapedStage(directory) as stage:
        [leader] = stage.witness.all(r.Leader)
        targets = {
            "rankpulse-monitor": [leader.url.removeprefix("http://")],
            "rankpulse-agent": [*stage.pages.values()],
        }
        prometheus = Prometheus(directory, program, rule_file, targets)
        job = Job(directory / "job", stage.run_dirs, name=CLUSTER, train_args=("--step-s", "0.2"))
        try:
            await stage.import_history()
            began = time.time()
            prometheus.child.start()
            job.start()
            run_uid, incident = await crash_and_recover(stage, job)
            await xid(stage, prometheus)
            yield Scene(prometheus, run_uid, began, incident)
        finally:
            await asyncio.to_thread(job.end)
            await asyncio.to_thread(prometheus.child.end)


async def xid(stage: ScrapedStage, prometheus: Prometheus) -> None:
    """The driver tells of a program's fault on GPU 1, after Prometheus has seen that there were none."""
    seen = "rankpulse_gpu_xids_total"

    async def told() -> Any:
        return await prometheus.query(seen)

    stage.gpus.event(1, 13)
    await eventually(told, 60.0, f"the Xid\n{stage.agents[WITH_GPUS].tail()}")


async def crash_and_recover(stage: Stage, job: Job) -> tuple[str, str]:
    """SIGKILL one worker, wait until the job trains again; returns its run_uid and the incident."""
    witness = stage.witness

    async def until(found: Callable[[], Any], what: str) -> Any:
        return await witness.until(found, 120.0, f"{what}\n{job.tail()}\n{stage.monitor.tail()}")

    def trains() -> bool:
        steps = witness.steps(job.name)
        return len(steps) == job.world_size and min(steps.values()) >= 15

    await until(trains, "a job that trains")
    state = await until(lambda: witness.run(job.name), "the run in the store")
    roster = await until(lambda: witness.roster(state.run_uid), "its roster")
    since = time.time()
    os.kill(roster.members[1].pid, signal.SIGKILL)
    await until(lambda: any(i.state == "closed" for i in witness.incidents(since)), "the incident's end")
    [incident] = witness.incidents(since)
    return str(state.run_uid), incident.id


def targets_of(board: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """(title, query, what names its labels) of every panel and annotation."""
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"], target["legendFormat"]
    for one in board["annotations"]["list"]:
        yield f"annotation {one['name']}", one["expr"], f"{one['titleFormat']} {one['textFormat']}"


def may_be_empty(expr: str) -> bool:
    return any(name in expr for name in MAY_BE_EMPTY)


@pytest.mark.parametrize("board", build.read(), ids=lambda board: board["uid"])
async def test_every_panel_has_an_answer(scene: Scene, board: dict[str, Any]) -> None:
    """Where nothing is wrong the answer is 0, not nothing; and the legend's labels are there."""

    async def silent() -> list[str]:
        found = []
        for title, expr, legend in targets_of(board):
            rows = await scene.answer(expr)
            if not rows and may_be_empty(expr):
                continue
            if not rows or any(row["value"][1] == "NaN" for row in rows):
                found.append(f"{title}: {scene.filled(expr)}: {rows}")
            wanted = set(re.findall(r"{{(\w+)}}", legend))
            found += [
                f"{title}: no label {wanted - row['metric'].keys()}" for row in rows if wanted - row["metric"].keys()
            ]
        return found

    last: list[str] = []

    async def all_speak() -> bool:
        last[:] = await silent()
        return not last

    try:
        await eventually(all_speak, 60.0, "answers to all panels")
    except AssertionError as error:
        raise AssertionError("\n".join([str(error), *last])) from None


@pytest.mark.parametrize("board", build.read(), ids=lambda board: board["uid"])
async def test_every_variable_has_a_choice(scene: Scene, board: dict[str, Any]) -> None:
    for variable in board["templating"]["list"]:
        if variable["type"] != "query":
            continue
        found = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"])
        assert found is not None
        values = await scene.prometheus.ask(f"/api/v1/label/{found[2]}/values", **{"match[]": scene.filled(found[1])})
        wanted = {"cluster": {CLUSTER}, "node": set(NODES), "run": {scene.run_uid}, "gpu": {"0", "1"}}
        assert set(values) == wanted[variable["name"]]


@pytest.mark.parametrize("metric", [*SHARED, *AGENT, *GPU, *HOST, *MONITOR], ids=lambda metric: metric.name)
async def test_every_metric_is_really_emitted_with_its_labels(scene: Scene, metric: Metric) -> None:
    for name in wire_names(metric):
        if metric.name in MAY_BE_EMPTY:
            pytest.skip(MAY_BE_EMPTY[metric.name])
        asked = name if metric in GPU or name.startswith("rankpulse") else f'{name}{{job=~"rankpulse-.+"}}'
        series = await eventually(
            lambda asked=asked: scene.prometheus.ask("/api/v1/series", **{"match[]": asked}), 30.0, f"{asked} scraped"
        )
        labels = frozenset(metric.labels) | ({"le"} if name.endswith("_bucket") else frozenset())
        assert {frozenset(one.keys()) - TARGET_LABELS - {"__name__"} for one in series} == {labels}


async def test_the_story_is_told(scene: Scene) -> None:
    """The figures are those of what was done: one crash, one restart by torchelastic, nothing open."""
    expected = {
        "max(rankpulse_incidents_total{class='worker_dead'})": "1",
        "max(rankpulse_restarts_total{by='torchelastic'})": "1",
        "sum(rankpulse_incidents_open)": "0",
        f"max(rankpulse_run_restarts{{run_uid='{scene.run_uid}'}})": "1",
        "sum(rankpulse_ledger_failures_total{class='worker_dead'})": "1",
        "max(rankpulse_time_to_detect_seconds_count{class='worker_dead'})": "1",
        "max(rankpulse_time_to_recover_seconds_bucket{class='worker_dead', le='+Inf'})": "1",
        "max(rankpulse_incidents_closed_total{class='worker_dead', outcome='recovered'})": "1",
        "max(rankpulse_lemons{kind='node'})": "1",
        "sum(rankpulse_gpu_xids_total{xid='13', gpu='1'})": "1",
        "sum(rankpulse_ledger_lost_seconds_total{cause='start'}) > bool 0": "1",
        f"max(rankpulse_run_effective_ratio{{run_uid='{scene.run_uid}'}}) < bool 1": "1",
        f"max(rankpulse_run_round{{run_uid='{scene.run_uid}'}})": "2",
        f"sum(rankpulse_run_ranks_in_phase{{run_uid='{scene.run_uid}'}})": "4",
    }

    async def figures() -> dict[str, str]:
        answers = {expr: await scene.prometheus.query(expr) for expr in expected}
        return {expr: rows[0]["value"][1] if rows else "" for expr, rows in answers.items()}

    async def as_expected() -> bool:
        return await figures() == expected

    try:
        await eventually(as_expected, 30.0, "the figures of the crash")
    except AssertionError:
        assert await figures() == expected


async def test_every_rule_evaluates_and_a_healthy_cluster_is_quiet(scene: Scene) -> None:
    def evaluated(groups: list[dict[str, Any]]) -> bool:
        return all(rule["health"] == "ok" for group in groups for rule in group["rules"])

    async def rules() -> list[dict[str, Any]]:
        data = await scene.prometheus.ask("/api/v1/rules")
        return data["groups"] if data and evaluated(data["groups"]) else []

    groups = await eventually(rules, 30.0, "an evaluation of every rule")
    firing = [rule["name"] for group in groups for rule in group["rules"] if rule.get("state") == "firing"]
    assert firing == ["RankpulseWatchdog"]
    assert len(groups) == 1 + len(GROUPS)


async def test_figures_lead_to_their_incident(scene: Scene) -> None:
    """Exemplars as Prometheus has kept them: of the counter and of the bucket into which the crash fell."""
    names = ("rankpulse_incidents_total", "rankpulse_restarts_total", "rankpulse_time_to_recover_seconds_bucket")

    async def kept() -> list[set[str]]:
        span = {"start": str(scene.began), "end": str(time.time() + 1)}
        found = [await scene.prometheus.ask("/api/v1/query_exemplars", query=name, **span) for name in names]
        return [{row["labels"]["incident"] for series in one for row in series["exemplars"]} for one in found]

    async def all_kept() -> bool:
        return await kept() == [{scene.incident}] * len(names)

    try:
        await eventually(all_kept, 15.0, "exemplars")
    except AssertionError:
        assert await kept() == [{scene.incident}] * len(names)
