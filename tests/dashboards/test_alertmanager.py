"""The example for Alertmanager: everybody is told of what is theirs, and only consequences are muted."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from rankpulse.dashboards import alertmanager, rules
from rankpulse.dashboards.alerting import CRITICAL, NONE
from rankpulse.dashboards.alertmanager import MUTINGS, RECEIVER, Muting

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


def test_the_example_is_well_formed() -> None:
    """By Alertmanager's own tool, where it is installed; what it says is in the tests above, too."""
    tool = shutil.which("amtool")
    if tool is None:
        pytest.skip("amtool is not here: apt-get install prometheus-alertmanager")
    argv = [tool, "check-config", str(REPO / alertmanager.EXAMPLE)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(MUTINGS)} inhibit rules" in done.stdout
