"""Whole simulated clusters: every rule holds, the same seed gives the same bytes, and what fails can be replayed."""

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rankpulse.core import records as r
from rankpulse.drills.sim.command import run
from rankpulse.drills.sim.plan import FAULTS, Options
from rankpulse.drills.sim.run import Outcome, Simulation, Violation
from rankpulse.drills.sim.shown import replay
from rankpulse.drills.sim.tally import percentile, tally

SMALL = Options(nodes=16, minutes=4.0)
TINY = Options(nodes=4, gpus=2, minutes=3.0)


@pytest.mark.parametrize("seed", [4, 8, 17, 18])
def test_a_cluster_lives_through_its_faults(seed: int) -> None:
    outcome = Simulation(seed, SMALL).run()
    assert outcome.violation is None, f"{outcome.violation}; replay: {replay(outcome, SMALL)}"
    assert sum(outcome.injected.values()) > 2
    assert outcome.beats > 16 * 200


def test_the_same_seed_gives_the_same_bytes_in_every_process(tmp_path: Path) -> None:
    traces = []
    for hash_seed in ("1", "2"):
        file = tmp_path / f"trace-{hash_seed}"
        code = (
            "from rankpulse.drills.sim.command import run; from rankpulse.drills.sim.plan import Options; "
            f"raise SystemExit(run(range(3, 4), Options(4, 2, 3.0), trace={str(file)!r}, quiet=True))"
        )
        environ = os.environ | {"PYTHONHASHSEED": hash_seed}
        subprocess.run([sys.executable, "-c", code], env=environ, check=True, timeout=120)
        traces.append(file.read_bytes())
    assert traces[0] == traces[1]
    assert traces[0].count(b"\n") > 1000


def test_another_seed_gives_another_trace() -> None:
    digests = {Simulation(seed, TINY, until=100.0).run().digest for seed in (1, 2, 2)}
    assert len(digests) == 2


def test_an_order_that_nobody_should_have_given_is_found() -> None:
    simulation = Simulation(1, TINY)
    forged = r.Order(
        order_id="x", run_uid="run", run_id="job", round=1, kind="restart", epoch=99, incident="none", reason="",
        author="somebody", at=0.0,
    )  # fmt: skip
    cluster = simulation.cluster
    cluster.heap.at(50.0, cluster.put, cluster.keys.order("run", 1, "restart"), forged)
    outcome = simulation.run()
    assert outcome.violation is not None
    assert 50.0 <= outcome.violation.at < 51.0
    assert any('"order"' in line for line in outcome.last)


def test_a_cluster_that_does_not_recover_is_found() -> None:
    simulation = Simulation(1, TINY._replace(faults=("xid",)))
    machine = simulation.cluster.machines["n000"]
    simulation.heap.at(100.0, machine.freeze, True)
    simulation.heap.at(100.0, simulation.cluster.refresh, "n000")
    outcome = simulation.run()
    assert outcome.violation is not None


@pytest.mark.drill
def test_every_fault_can_be_done_and_recovered_from() -> None:
    """One at a time, on the smallest cluster that has racks."""
    for number, kind in enumerate(FAULTS):
        outcome = Simulation(number, Options(nodes=8, gpus=1, minutes=3.5, faults=(kind,))).run()
        assert outcome.violation is None, f"{kind}: {outcome.violation}"
        assert set(outcome.injected) <= {kind}


def test_a_failure_is_told_with_the_command_that_replays_it(capsys: pytest.CaptureFixture[str]) -> None:
    outcome = Outcome(seed=7, violation=Violation("fenced", "an order of nobody", 12.34))
    options = Options(nodes=16, faults=("crash", "hang"))
    assert replay(outcome, options) == (
        "rankpulse sim --seed 7 --nodes 16 --gpus 8 --minutes 12 --faults crash --faults hang --until 13 --verbose"
    )
    total = tally([outcome], "abc")
    assert total.failed == (7,)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"options": Options(faults=("flood",))}, "no fault named flood: choose among crash,"),
        ({"options": Options(nodes=1)}, "--nodes must be between 2 and 1000, not 1"),
        ({"options": Options(gpus=0)}, "--gpus must be between 1 and 64, not 0"),
        ({"options": Options(minutes=float("nan"))}, "--minutes must be between 3 and 1440, not nan"),
        ({"options": Options(minutes=float("inf"))}, "--minutes must be between 3 and 1440, not inf"),
        ({"seeds": range(0)}, "--seeds must be between 1 and"),
        ({"seeds": range(10**23)}, "--seeds must be between 1 and"),
        ({"processes": -1}, "--processes must be between 0 and"),
        ({"until": -5.0}, "--until must be a virtual second after 0, not -5"),
        ({"until": 0.0}, "--until must be a virtual second after 0"),
        ({"until": float("nan")}, "--until must be a virtual second after 0"),
        ({"seeds": range(2), "trace": "x"}, "name it with --seed"),
        ({"seeds": range(2), "verbose": True}, "name it with --seed"),
        ({"trace": "/"}, "--trace /: Is a directory: name a file that can be written"),
        ({"trace": "/nowhere/x"}, "--trace /nowhere/x: No such file or directory"),
    ],
    ids=str,
)
def test_what_cannot_be_simulated_is_refused_in_words(
    asked: dict[str, Any], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(**{"seeds": range(1), "options": TINY, **asked}) == 2
    out, err = capsys.readouterr()
    assert said in err
    assert (out, err.count("\n")) == ("", 1)


def test_one_seed_is_told_on_stdout_and_verbose_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(range(5, 6), TINY, verbose=True, until=110.0) == 0
    out, err = capsys.readouterr()
    assert "all rules held" in out
    assert "nobody had to be well again" in out
    assert " met " in err


def test_a_run_in_which_nothing_was_done_does_not_look_like_one_that_went_well(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(range(5, 6), TINY, until=20.0) == 0
    told = capsys.readouterr().out
    assert "NO FAULT WAS INJECTED" in told
    assert "all rules held" not in told
    assert run(range(5, 6), TINY, until=20.0, quiet=True) == 0
    assert "NO FAULT WAS INJECTED" in capsys.readouterr().out
    assert run(range(5, 6), TINY, until=20.0, as_json=True) == 0
    assert "NO FAULT WAS INJECTED" in capsys.readouterr().err


def test_percentiles_are_values_that_were_seen() -> None:
    assert percentile([], 0.5) is None
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile(range(1, 101), 0.99) == 99


def test_a_trace_is_of_json_lines() -> None:
    file = io.StringIO()
    Simulation(1, TINY, file, until=30.0).run()
    lines = file.getvalue().splitlines()
    assert all(line.startswith("{") and line.endswith("}") for line in lines)


@pytest.mark.drill
@pytest.mark.timeout(7200)
def test_two_hundred_clusters() -> None:
    assert run(range(200), Options(), quiet=True) == 0
