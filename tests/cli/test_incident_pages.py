"""The page about an incident: everything a tired person needs, and nothing that steers the terminal."""

import json
from pathlib import Path

import msgspec
import pytest

from rankpulse.cli import explain, incidents, live, show
from rankpulse.cli.doctor import OK, WARN, _clocks, _version, kernel_log, looks
from rankpulse.core import todo
from rankpulse.core.records import Beat, DeviceFault, Incident, Member, RunAdvice, Trail

INCIDENT = Incident(
    id="i-1",
    klass="worker_dead",
    state="open",
    opened_at=1.7e9,
    run_uid="llama-1f",
    run_id="llama [bold]7b[/bold] \x1b[2J",
    round=2,
    nodes=("n2",),
    culprits=(Member(3, "n2", 1, 4711, 99),),
    cascade=(0, 1, 2),
    confidence=0.97,
    summary="rank 3 on n2 (pid 4711) was killed by SIGKILL",
    reasons=("it ended first", "its peers lost the connection to it"),
    evidence=("/rankpulse/c/nodes/n2/obs/00000001/0000000007",),
    action="page",
    action_reason="torchelastic has ended too",
    time_to_detect_s=0.12,
    trail=(Trail(0.0, "worker_dead: rank 3"), Trail(1.5, "action page")),
)


def page(capsys: pytest.CaptureFixture[str], incident: Incident = INCIDENT) -> str:
    explain.page(incident)
    return capsys.readouterr().out


def test_the_page_tells_everything(capsys: pytest.CaptureFixture[str]) -> None:
    text = page(capsys)
    for part in (
        "was killed by SIGKILL",
        "rank 3 on n2 (local rank 1, pid 4711)",
        "3 others stalled or died because of it: ranks 0-2",
        "it ended first",
        "torchelastic has ended too",
        "0.1 s after the first evidence",
        "not over yet",
        "/rankpulse/c/nodes/n2/obs/00000001/0000000007",
        "+1.5 s",
        "read the worker's log",
        "confidence  0.97, sure enough to act on",
    ):
        assert part in text, part


def test_what_was_resumed_from_and_lost_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    ended = msgspec.structs.replace(INCIDENT, state="closed", outcome="recovered", resumed_from_step=80, lost_steps=7)
    assert "resumed from step 80 (7 steps of work lost)" in page(capsys, ended)
    assert "resumed from step 80\n" in page(capsys, msgspec.structs.replace(ended, lost_steps=0))


def test_names_chosen_by_a_job_are_data(capsys: pytest.CaptureFixture[str]) -> None:
    text = page(capsys)
    assert "\x1b" not in text
    assert "llama [bold]7b[/bold]" in text


@pytest.mark.parametrize("klass", [*todo.ADVICE, "a class of a later version"])
@pytest.mark.parametrize("action", ["none", "adopt", "restart", "observe", "page"])
def test_there_is_always_a_next_step(klass: str, action: str) -> None:
    incident = Incident(id="i", klass=klass, state="open", opened_at=0.0, run_uid="r", action=action)
    step = todo.next_step(incident)
    assert step
    assert "{" not in step


def test_what_is_over_needs_nothing() -> None:
    closed = Incident(id="i", klass="worker_dead", state="closed", opened_at=0.0, outcome="recovered")
    assert todo.next_step(closed).startswith("nothing")


def test_a_run_that_ended_with_its_incident_must_be_started_again() -> None:
    ended = Incident(id="i", klass="worker_dead", state="closed", opened_at=0.0, outcome="run_ended", action="page")
    assert "start the job again" in todo.next_step(ended)


def test_a_thousand_stalled_ranks_stay_readable(capsys: pytest.CaptureFixture[str]) -> None:
    incident = Incident(id="i", klass="unknown", state="open", opened_at=0.0, cascade=tuple(range(1000)))
    assert "1000 others stalled or died because of it: ranks 0-999" in page(capsys, incident)


def test_an_empty_list_says_so_and_json_stays_json(capsys: pytest.CaptureFixture[str]) -> None:
    incidents.listing([])
    assert "no incidents" in capsys.readouterr().out
    show.as_json([INCIDENT])
    assert json.loads(capsys.readouterr().out)[0]["culprits"] == [[3, "n2", 1, 4711, 99]]


def test_the_same_failure_again_shows_in_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    one = msgspec.structs.replace(INCIDENT, signature="collective_hang:lock")
    incidents.listing([one, INCIDENT, one, msgspec.structs.replace(one, signature="oom")])
    lines = capsys.readouterr().out.splitlines()[1:5]
    assert [("alike: 2" in line) for line in lines] == [False, False, True, False]


@pytest.mark.parametrize("seconds", [0.0, 0.04, 59.0, 3600.0, 1e6, 1e9])
def test_spans_are_short(seconds: float) -> None:
    assert len(show.span(seconds)) < 10


def test_etcd_versions_that_lose_data_are_warned_of() -> None:
    levels = {version: _version(version).level for version in ("3.5.0", "3.5.2", "3.5.3", "3.6.0-rc.1", "3.3.1", "odd")}
    assert [version for version, level in levels.items() if level == WARN] == ["3.5.0", "3.5.2", "3.3.1", "odd"]


def test_a_clock_ahead_is_found_from_the_beats() -> None:
    assert _clocks([Beat(node="n1", inc=1, seq=1, at=100.0)], 99.0).level == "ok"
    assert "n2" in _clocks([Beat(node="n2", inc=1, seq=1, at=4000.0)], 99.0).text


def test_agents_that_cannot_be_looked_at_are_told_with_the_remedy() -> None:
    good, never = live.Node(look=live.Look(reached=True)), live.Node(look=live.Look("unable", "a firewall \x1b[2J"))
    assert looks({"a": good, "b": good}).level == "ok"
    for other in (never, live.Node()):
        found = looks({"a": good, "b": other})
        assert (found.level, "1 of 2 agents, and not b" in found.text) == (WARN, True)
        assert found.text.isprintable()
        assert "probe.token_file" in found.remedy


@pytest.mark.parametrize("at", [1e308, -1e18, 1e18])
def test_times_that_no_calendar_has_are_unknown(capsys: pytest.CaptureFixture[str], at: float) -> None:
    assert "? (" in page(capsys, msgspec.structs.replace(INCIDENT, opened_at=at))
    incidents.listing([msgspec.structs.replace(INCIDENT, opened_at=at)])


def test_doctor_says_whether_the_kernels_log_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "kmsg").touch()
    assert kernel_log(str(tmp_path / "kmsg")).level == OK
    assert kernel_log("").level == OK
    found = kernel_log(str(tmp_path / "none"))
    assert (found.level, "CAP_SYSLOG" in found.remedy) == (WARN, True)


LOST_GPU = msgspec.structs.replace(
    INCIDENT,
    klass="gpu_fault",
    run_uid="",
    run_id="",
    round=-1,
    culprits=(),
    cascade=(),
    summary="GPU lost (Xid 79): n2, GPU 3 at 0000:18:00",
    action="observe",
    action_reason="would keep n2 out of all rounds. By hand: rankpulse cordon n2 --drain --reason 'GPU lost'",
    faults=(
        DeviceFault("n2", "0000:18:00", "xid_79", "broken", "drain_reboot", "XID 79", 3, "GPU-1", "kernel", 0.0, 2),
    ),
)


def test_a_broken_gpu_is_shown_with_its_place_its_source_and_the_command_that_keeps_the_node_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = " ".join(page(capsys, LOST_GPU).split())
    assert (
        "n2, GPU 3 at 0000:18:00 (GPU-1): xid_79, by the kernel's log, 2 times; open; drain the node and reboot it"
        in text
    )
    assert "rankpulse cordon n2 --drain --reason 'GPU lost (Xid 79): n2, GPU 3 at 0000:18:00'" in text
    assert "lets the monitor keep it out now" in text
    over = msgspec.structs.replace(LOST_GPU.faults[0], cleared="the machine was booted anew")
    assert "over: the machine was booted anew" in page(capsys, msgspec.structs.replace(LOST_GPU, faults=(over,)))


def test_what_it_cost_stands_beside_how_often_its_run_should_save(capsys: pytest.CaptureFixture[str]) -> None:
    """Half an interval is done again at each failure: who lost much more, saves too seldom."""
    saves = RunAdvice(
        run_uid="u1", at=0.0, interval_s=600.0, low_s=480.0, high_s=900.0, mtbf_s=14_400.0, mtbf_low_s=9000.0,
        mtbf_high_s=30_000.0, save_s=12.0, saves=9, recover_s=90.0, failures=3, lost_share=0.045, why="x",
    )  # fmt: skip
    over = msgspec.structs.replace(INCIDENT, lost_s={"stop": 4.0, "recomputation": 1300.0})
    explain.page(over, None, saves)
    text = " ".join(capsys.readouterr().out.split())
    assert "saving save every 10 min (8 min to 15 min): a failure every 4 h is expected, 4.5% of the time lost" in text
    assert "work done again: 1300 s, on average it is half of that interval" in text
    assert explain.as_json(over, None, saves)["saving"]["interval_s"] == 600.0
    assert "saving" not in page(capsys)
