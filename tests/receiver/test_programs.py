"""Programs of this machine, for real; a command of the site's; a unit of systemd."""

import json
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from receiver_world import SystemdWorld, restart, settings
from support import eventually
from test_slurm import MARK, Note

from rankpulse.receiver.acting import Later, Refused
from rankpulse.receiver.command import Command
from rankpulse.receiver.deciding import Plan, plan
from rankpulse.receiver.programs import System
from rankpulse.receiver.reading import event
from rankpulse.receiver.settings import CommandSettings, TorchrunSettings
from rankpulse.receiver.torchrun import Torchrun


def asked(folder: Path, job: Mapping[str, Any], **change: Any) -> Plan:
    body = restart(**change)
    made = plan(event(body, json.loads(body)["id"]), settings(folder, {"run_id": "*", **job}))
    assert isinstance(made, Plan)
    return made


def command(folder: Path, text: str, *argv: str, **change: Any) -> tuple[Command, Plan]:
    """An actuator, and a plan to run that Python text."""
    path = folder / "program"
    path.write_text(f"#!{sys.executable}\n{text}\n")
    path.chmod(0o755)
    job = {"actuator": "command", "argv": [str(path), *argv]}
    return Command(CommandSettings(**change), System(kill_after_s=0.5)), asked(folder, job)


TELL = """
import json, os, sys
told = {k: v for k, v in os.environ.items() if k.startswith("RANKPULSE_")}
json.dump([sys.argv[1:], told], open(__file__ + ".told", "w"))
"""


async def test_a_program_is_told_all_of_the_decision_and_no_shell_reads_it(tmp_path: Path) -> None:
    actuator, asked_ = command(tmp_path, TELL, "--job={run_id}", "$HOME; id")
    assert (await actuator.restart(asked_, Note())).endswith("exit code 0")
    argv, told = json.loads((tmp_path / "program.told").read_text())
    assert argv == ["--job=77", "$HOME; id"]
    assert told == {
        "RANKPULSE_DECISION": "prod/i0001-0001-restart/1800000000",
        "RANKPULSE_MARK": MARK,
        "RANKPULSE_AGAIN": "0",
        "RANKPULSE_CLUSTER": "prod",
        "RANKPULSE_INCIDENT": "i0001-0001",
        "RANKPULSE_RUN_ID": "77",
        "RANKPULSE_RUN_UID": "r1",
        "RANKPULSE_ROUND": "3",
        "RANKPULSE_NODES": "gpu07",
        "RANKPULSE_WITHOUT": "gpu07",
        "RANKPULSE_REASON": "i0001-0001-restart asks that run 77 be started again: gpu07 is dead",
    }


async def test_a_program_that_succeeded_is_not_run_again(tmp_path: Path) -> None:
    actuator, asked_ = command(tmp_path, "open(__file__ + '.runs', 'a').write('x')")
    note = Note()
    first = await actuator.restart(asked_, note)
    assert await actuator.restart(asked_, note) == first
    assert (tmp_path / "program.runs").read_text() == "x"


async def test_how_a_program_fails(tmp_path: Path) -> None:
    note = Note()
    actuator, asked_ = command(tmp_path, "import sys; print('no such job'); sys.exit(3)")
    with pytest.raises(Refused, match="exit code 3: no such job"):
        await actuator.restart(asked_, note)
    actuator, asked_ = command(tmp_path, "import sys; sys.exit(75)")
    with pytest.raises(Later, match="exit code 75"):
        await actuator.restart(asked_, note)
    os.unlink(tmp_path / "program")
    with pytest.raises(Later, match="cannot be started: No such file"):
        await actuator.restart(asked_, note)
    assert note.lines[-1][1].endswith("(again: how the last run ended is not known)")


async def test_one_that_hangs_is_killed_with_what_it_started(tmp_path: Path) -> None:
    text = """
import os, signal, subprocess, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen(["sleep", "600"])
open(__file__ + ".pids", "w").write(f"{os.getpid()} {child.pid}")
time.sleep(600)
"""
    actuator, asked_ = command(tmp_path, text, timeout_s=2.0)
    with pytest.raises(Later, match="had not ended after 2 s"):
        await actuator.restart(asked_, Note())
    pids = [int(one) for one in (tmp_path / "program.pids").read_text().split()]
    await eventually(lambda: not any(map(_lives, pids)), 10, "the end of both")


def _lives(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


async def test_what_it_leaves_in_the_background_is_not_waited_for_nor_killed(tmp_path: Path) -> None:
    text = """
import subprocess
print("begun", flush=True)
open(__file__ + ".pid", "w").write(str(subprocess.Popen(["sleep", "600"]).pid))
"""
    actuator, asked_ = command(tmp_path, text, timeout_s=20.0)
    assert (await actuator.restart(asked_, Note())).endswith("exit code 0: begun")
    pid = int((tmp_path / "program.pid").read_text())
    try:
        assert _lives(pid)
    finally:
        os.kill(pid, signal.SIGKILL)


async def test_one_that_talks_without_end_costs_little(tmp_path: Path) -> None:
    actuator, asked_ = command(tmp_path, "print('x' * 30_000_000)", output_max=100)
    note = Note()
    await actuator.restart(asked_, note)
    assert 100 <= len(note.lines[-1][1]) < 400


async def test_dry_run_of_a_program(tmp_path: Path) -> None:
    actuator, asked_ = command(tmp_path, TELL, "{run_id}")
    (said,) = await actuator.would(asked_, Note())
    assert said.startswith(f"run {tmp_path}/program 77 with RANKPULSE_DECISION=prod/i0001-0001-restart/1800000000 ")
    assert not (tmp_path / "program.told").exists()


# --- systemd

UNIT = {"actuator": "torchrun", "target": "train@{run_id}.service"}


def torchrun(world: SystemdWorld) -> Torchrun:
    return Torchrun(TorchrunSettings(), world)


async def test_a_unit_is_restarted_once(tmp_path: Path) -> None:
    world, note = SystemdWorld("failed", "exit-code"), Note()
    actuator = torchrun(world)
    assert await actuator.would(asked(tmp_path, UNIT), note) == ["systemctl restart -- train@77.service"]
    assert await actuator.restart(asked(tmp_path, UNIT), note) == "train@77.service: restarted"
    assert "since the decision" in await actuator.restart(asked(tmp_path, UNIT), note)
    assert await actuator.would(asked(tmp_path, UNIT), note) == []
    assert world.restarts == 1


async def test_one_that_somebody_has_restarted_meanwhile_is_not_restarted(tmp_path: Path) -> None:
    world, note = SystemdWorld(), Note()
    note.remember("invocation", f"{world.starts:032x}")
    world.starts += 1
    assert "since the decision" in await torchrun(world).restart(asked(tmp_path, UNIT), note)
    assert world.restarts == 0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"load": "not-found"}, "knows no unit"),
        ({"active": "inactive"}, "finished or stopped on purpose"),
    ],
)
async def test_units_that_are_left_alone(tmp_path: Path, change: dict[str, str], words: str) -> None:
    world = SystemdWorld()
    vars(world).update(change)
    with pytest.raises(Refused, match=words):
        await torchrun(world).restart(asked(tmp_path, UNIT), Note())
    with pytest.raises(Refused, match="too old"):
        await torchrun(SystemdWorld()).restart(asked(tmp_path, UNIT)._replace(may_begin=False), Note())
    assert world.restarts == 0


async def test_a_systemd_that_does_not_answer_is_asked_later(tmp_path: Path) -> None:
    path = tmp_path / "systemctl"
    path.write_text("#!/bin/sh\necho 'System has not been booted with systemd'; exit 1\n")
    path.chmod(0o755)
    actuator = Torchrun(TorchrunSettings(systemctl=str(path)), System())
    with pytest.raises(Later, match="has not been booted"):
        await actuator.restart(asked(tmp_path, UNIT), Note())
