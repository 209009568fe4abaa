"""`rankpulse doctor` and `check-config`: what they find on a machine that was made so, and what they say to do."""

import json
import os
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from rankpulse.cli import doctor_node, doctor_timeouts
from rankpulse.cli.doctor import versions
from rankpulse.cli.doctor_check import FAIL, OK, WARN
from rankpulse.core.records import NodeState
from rankpulse.core.settings import Settings, parse
from rankpulse.core.timeouts import Around

SHOWN = """Configuration data as of 2026-01-01
KillOnBadExit           = 0
KillWait                = 3 sec
MessageTimeout          = 10 sec
SlurmdTimeout           = 300 sec
SuspendTimeout          = 30 sec
"""


def state(node: str, version: str) -> NodeState:
    return NodeState(node=node, inc=1, at=0.0, host=node, agent_version=version, interval_s=1.0)


def test_a_socket_that_anybody_may_replace_is_a_fault(tmp_path: Path) -> None:
    assert doctor_node.socket(str(tmp_path / "none")).level == OK
    with socket.socket(socket.AF_UNIX) as line:
        line.bind(str(tmp_path / "agent.sock"))
        tmp_path.chmod(0o1777)
        assert doctor_node.socket(str(tmp_path)).level == OK
        tmp_path.chmod(0o777)
        found = doctor_node.socket(str(tmp_path))
    assert (found.level, found.remedy) == (FAIL, f"chmod 1777 {tmp_path}")
    (tmp_path / "agent.sock").unlink()
    (tmp_path / "agent.sock").write_text("")
    tmp_path.chmod(0o700)
    assert "is no socket" in doctor_node.socket(str(tmp_path)).text


def test_agents_of_another_version_are_named() -> None:
    assert versions([state("n1", "1.0"), state("n2", "1.0")], "1.0").level == OK
    found = versions([state("n1", "1.0"), state("n2", "0.9")], "1.0")
    assert (found.level, "1 of 2" in found.text, "n2 has 0.9" in found.text) == (WARN, True, True)


def test_slurms_own_times_are_taken_over_and_judged() -> None:
    around = doctor_timeouts.of_slurm(SHOWN, Around())
    assert (around.kill_wait_s, around.node_down_s) == (3.0, 300.0)
    found = doctor_timeouts.checks(Settings(), around, "this shell")
    assert [check.level for check in found] == [WARN]
    assert "the scheduler kills trainers" in found[0].text
    assert "KillWait" in found[0].remedy
    assert doctor_timeouts.of_slurm(SHOWN.replace("= 300", "= 0"), Around()).node_down_s is None  # never
    assert doctor_timeouts.of_slurm("slurm_load_ctl_conf error", Around(kill_wait_s=9.0)).kill_wait_s == 9.0


def test_the_environment_of_a_running_job_counts(tmp_path: Path) -> None:
    environ = {**os.environ, "TORCHELASTIC_RUN_ID": "r", "LOCAL_RANK": "0", "RANKPULSE_GRACE_S": "45"}
    code = "import sys; print('up', flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as job:
        assert job.stdout is not None
        job.stdout.readline()
        seen = dict(doctor_timeouts.jobs())
        job.communicate()
    around = doctor_timeouts._of(Around(), seen[job.pid])
    found = doctor_timeouts.checks(Settings(), around, "")
    assert any("torchrun kills the holder" in check.text for check in found)


def test_every_timeout_is_listed_the_shortest_first() -> None:
    lines = list(doctor_timeouts.table(Settings(), Around(scheduler="Slurm", kill_wait_s=30.0, node_down_s=300.0)))
    seconds = [float(line.split()[0]) for line in lines]
    assert seconds == sorted(seconds)
    assert {line.split()[2] for line in lines} == {"rankpulse", "torch", "scheduler"}


def test_a_clock_and_rights_are_judged_without_being_touched() -> None:
    assert doctor_node.clock().level in (OK, WARN)
    found = doctor_node.rights()
    assert found.level == OK or found.remedy


def check_config(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rankpulse.cli.main", "check-config", *args]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("RANKPULSE_")}
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=cwd, env=environ)


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("[policy]\nhang_act_s = 12.0\n", 0, "good"),
        ("[policy]\nhang_act_s = 900.0\n", 0, "torch ends a hung job before"),
        ("[policy]\nhang_act = 12.0\n", 2, "policy.hang_act: unknown"),
        ('[probe]\ntoken_file = "nowhere"\n', 2, "probe.token_file"),
        ("[policy\n", 2, "is not valid TOML"),
    ],
)
def test_check_config_says_what_is_wrong_and_where(text: str, code: int, words: str, tmp_path: Path) -> None:
    (tmp_path / "rankpulse.toml").write_text(text)
    done = check_config(cwd=tmp_path)  # the one that would be read
    assert done.returncode == code
    assert words in done.stdout + done.stderr


def test_what_was_given_by_hand_stays() -> None:
    given = Around(process_group_s=5.0, kill_wait_s=60.0)
    assert replace(doctor_timeouts._of(given, {"RANKPULSE_HOLD_S": "x"})) == given
    found = doctor_timeouts.checks(parse({}), given, "this shell")
    assert json.dumps([check.text for check in found]).count("torch ends a hung job") == 1
