"""The example for Alertmanager: everybody is told of what is theirs, and only consequences are muted."""

import asyncio
import contextlib
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import aiohttp
import pytest
from support import eventually

from rankpulse.dashboards import alertmanager, rules
from rankpulse.dashboards.alerting import CRITICAL, NONE
from rankpulse.dashboards.alertmanager import MUTINGS, RECEIVER, Muting
from rankpulse.drills.children import Child
from rankpulse.drills.job import free_port

REPO = Path(__file__).resolve().parents[2]
ALERTS = {alert.name: alert for alert in rules.ALERTS}
RECORDED = {record.name: set(record.labels) for record in rules.RECORDS}
OF_TARGETS = {"cluster", "instance", "job"}


def labels(name: str) -> set[str]:
    """The labels that an alert comes with: what its query groups by, what is recorded, or those of a target."""
    expr = ALERTS[name].expr
    grouped = re.match(r"(?:sum|max|min|count) by \(([^)]*)\)", expr)
    if grouped:
        return {label.strip() for label in grouped[1].split(",")}
    recorded = [found for series, found in RECORDED.items() if series in expr]
    return recorded[0] if recorded else OF_TARGETS


def muted(firing: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Those of `firing` (name, where) that are not told of, as Alertmanager has it: a muted culprit mutes as well."""
    return {
        (name, where)
        for name, where in firing
        for one in MUTINGS
        if name in one.cascade and (one.culprit, where) in firing
    }


@pytest.mark.parametrize("one", MUTINGS, ids=lambda one: f"{one.culprit} {one.cascade[0]}")
def test_what_mutes_and_what_is_muted_exist_and_have_what_must_be_equal(one: Muting) -> None:
    for name in (one.culprit, *one.cascade):
        assert set(one.same) <= labels(name), f"{name} has no such label: it would be equal where it is not"
    assert one.culprit not in one.cascade
    assert "cluster" in one.same


def test_nothing_that_wakes_somebody_is_muted_by_what_does_not() -> None:
    for one in MUTINGS:
        for name in one.cascade:
            if ALERTS[name].severity == CRITICAL:
                assert ALERTS[one.culprit].severity == CRITICAL, (one.culprit, name)


def test_no_two_mute_each_other() -> None:
    pairs = {(one.culprit, name) for one in MUTINGS for name in one.cascade}
    reached = set(pairs)
    while more := {(a, d) for a, b in reached for c, d in pairs if b == c} - reached:
        reached |= more
    assert [a for a, b in reached if a == b] == []


def test_the_sign_of_life_is_never_muted_and_mutes_nothing() -> None:
    always = {alert.name for alert in rules.ALERTS if alert.severity == NONE}
    assert always
    assert always.isdisjoint(name for one in MUTINGS for name in (one.culprit, *one.cascade))


def test_a_store_that_is_down_is_told_of_once() -> None:
    cascade = {"RankpulseBlind", "RankpulseNoLeader", "RankpulseAgentCutOff", "RankpulseSpoolWaits"}
    firing = {(name, "c") for name in {"RankpulseStoreSilent", *cascade}}
    assert firing - muted(firing) == {("RankpulseStoreSilent", "c")}


def test_another_cluster_is_told_of_all_the_same() -> None:
    firing = {("RankpulseStoreSilent", "c"), ("RankpulseBlind", "d")}
    assert muted(firing) == set()


def test_everybody_is_told_by_severity() -> None:
    severities = {alert.severity for alert in rules.ALERTS}
    assert severities == RECEIVER.keys()
    told = alertmanager.build()
    known = {receiver["name"] for receiver in told["receivers"]}
    assert {*RECEIVER.values(), told["route"]["receiver"]} == known
    routes = {route["matchers"][1]: route for route in told["route"]["routes"]}
    assert {matcher: route["receiver"] for matcher, route in routes.items()} == {
        f'severity="{severity}"': receiver for severity, receiver in RECEIVER.items()
    }
    assert routes[f'severity="{NONE}"']["repeat_interval"] == "1m"


def test_the_example_is_well_formed(binary: Callable[[str], str]) -> None:
    """By Alertmanager's own tool."""
    argv = [binary("amtool"), "check-config", str(REPO / alertmanager.EXAMPLE)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(MUTINGS)} inhibit rules" in done.stdout


@pytest.mark.parametrize(("severity", "receiver"), RECEIVER.items())
def test_alertmanager_itself_sends_each_to_whom_it_is_for(
    binary: Callable[[str], str], severity: str, receiver: str
) -> None:
    argv = [binary("amtool"), "config", "routes", "test", f"--config.file={REPO / alertmanager.EXAMPLE}"]
    argv += [f"--verify.receivers={receiver}", "alertname=RankpulseX", f"severity={severity}"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, receiver), done.stderr


class Manager:
    """The real Alertmanager with the example, on a free port. It has told nobody before the test is over."""

    def __init__(self, directory: Path, program: str) -> None:
        self.url = f"http://127.0.0.1:{free_port()}"
        argv = [program, f"--config.file={REPO / alertmanager.EXAMPLE}", f"--storage.path={directory}"]
        argv += [f"--web.listen-address={self.url.removeprefix('http://')}", "--cluster.listen-address="]
        self.child = Child("alertmanager", argv, log=directory / "alertmanager.log")

    async def up(self) -> bool:
        assert self.child.alive(), self.child.tail()
        with contextlib.suppress(aiohttp.ClientError):
            async with aiohttp.ClientSession() as session, session.get(f"{self.url}/-/ready") as answer:
                return answer.status == 200
        return False

    async def fire(self, alerts: list[dict[str, str]]) -> None:
        body = [{"labels": labels} for labels in alerts]
        async with aiohttp.ClientSession() as session, session.post(f"{self.url}/api/v2/alerts", json=body) as answer:
            assert answer.status == 200, await answer.text()

    async def muted(self) -> set[tuple[str, str]]:
        """(name, cluster) of those that another one inhibits."""
        async with aiohttp.ClientSession() as session, session.get(f"{self.url}/api/v2/alerts") as answer:
            found = await answer.json()
        labels = [one["labels"] for one in found if one["status"]["inhibitedBy"]]
        return {(one["alertname"], one["cluster"]) for one in labels}


@pytest.mark.live
async def test_a_cause_mutes_its_consequences_in_a_real_alertmanager(
    binary: Callable[[str], str], tmp_path: Path
) -> None:
    """Each rule in a cluster of its own; beside it one where the consequences come without their cause."""
    fired, muted = list[dict[str, str]](), set[tuple[str, str]]()
    for number, one in enumerate(MUTINGS):
        same = {**dict.fromkeys(one.same, "x"), "cluster": f"with-{number}"}
        fired += [{"alertname": name, **same} for name in (one.culprit, *one.cascade)]
        fired += [{"alertname": name, **same, "cluster": f"without-{number}"} for name in one.cascade]
        muted |= {(name, same["cluster"]) for name in one.cascade}
    manager = Manager(tmp_path, binary("prometheus-alertmanager"))
    manager.child.start()
    try:
        await eventually(manager.up, 30.0, f"Alertmanager\n{manager.child.tail()}")
        await manager.fire(fired)

        async def settled() -> bool:
            return await manager.muted() >= muted

        await eventually(settled, 30.0, "what is to be muted")
        assert {one for one in await manager.muted() if one not in muted and not _by_another(*one)} == set()
    finally:
        await asyncio.to_thread(manager.child.end)


def _by_another(name: str, cluster: str) -> bool:
    """Whether another rule mutes it by something that fires in the same cluster: a consequence may be a cause."""
    number = int(cluster.partition("-")[2])
    firing = {*MUTINGS[number].cascade, *([MUTINGS[number].culprit] if cluster.startswith("with-") else [])}
    return any(name in one.cascade and one.culprit in firing for one in MUTINGS)
