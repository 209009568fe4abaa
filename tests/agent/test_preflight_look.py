"""Looking at GPUs, directories and processes through a child that may hang."""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from gpu_bench import GpuBench, NvmlStub, bench, library
from support import eventually

from rankpulse.agent import preflight_look
from rankpulse.agent.preflight_look import Asked, Look
from rankpulse.core import preflight
from rankpulse.core.preflight import FAIL, OK, UNKNOWN, Finding, Holder
from rankpulse.core.settings import PreflightSettings

pytestmark = pytest.mark.live
NOBODY = Asked()
HANGS = "import time, sys; sys.stdout.write(sys.argv[1]); sys.stdout.flush(); time.sleep(600)"


@pytest.fixture
def gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GpuBench:
    return bench(tmp_path, monkeypatch)


def look(*, code: str = "", said: str | None = None, **settings: Any) -> Look:
    """`code`: a program that stands for the child; `said`: what it says before it hangs."""
    made = Look(PreflightSettings(**{"look_timeout_s": 30.0, "gpus": 1, "retry_s": 0.05, **settings}))
    if code or said is not None:
        made.child = (sys.executable, "-c", code or HANGS, said or "")
    return made


async def findings(made: Look, asked: Asked = NOBODY) -> tuple[Finding, ...]:
    return (await made.at(asked)).findings


async def test_gpus_that_are_well(gpus: GpuBench) -> None:
    assert await findings(look()) == (Finding("gpu", OK, "2 GPUs without complaint, driver 595.45.04"),)


async def test_gpus_that_are_not(gpus: GpuBench) -> None:
    gpus.say([{}, {"action": 2}, {"error": 15}, {"failed": 1}])
    found = await findings(look())
    assert [finding.level for finding in found] == [FAIL, FAIL, FAIL]
    assert "GPU 1 (00000000:0f:00.0) asks for a reboot" in preflight.refusal(found)


async def test_what_a_driver_does_not_tell_is_unknown(gpus: GpuBench) -> None:
    gpus.say([{"action": None}])
    (found,) = await findings(look())
    assert found.level == UNKNOWN


async def test_nvml_that_does_not_start(gpus: GpuBench) -> None:
    gpus.say([], errors={"init": 18})
    (found,) = await findings(look())
    assert (found.level, "library" in found.text) == (FAIL, True)


async def test_a_driver_that_does_not_answer_costs_its_time_and_no_more(gpus: GpuBench) -> None:
    gpus.say([{}], hangs="init")
    made = look(look_timeout_s=0.5)
    (found,) = await asyncio.wait_for(findings(made), 20)
    assert (found.check, found.level, found.text) == ("gpu", FAIL, "the GPU driver does not answer")
    gpus.say([{}])
    made.settings = PreflightSettings(look_timeout_s=30.0, gpus=1)

    async def well() -> bool:
        return [found.level for found in await findings(made)] == [OK]

    await eventually(well, 20, "the driver answers again")


async def test_those_who_ask_together_do_not_all_wait_for_the_same_silence(gpus: GpuBench, tmp_path: Path) -> None:
    began = tmp_path / "began"
    code = f"open({str(began)!r}, 'a').write('x'); import time; time.sleep(600)"
    made = look(code=code, look_timeout_s=2.0, retry_s=5.0)
    answers = await asyncio.gather(*(findings(made) for _ in range(8)))
    assert {found.text for (found,) in answers} == {"the GPU driver does not answer"}
    assert began.read_text() == "x"


async def test_without_pynvml_it_is_unknown_and_nobody_is_kept_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pynvml.py").write_text("raise ImportError('none here')")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}".rstrip(":"))
    (found,) = await findings(look(gpus=8))
    assert (found.level, found.text) == (UNKNOWN, "pynvml is not installed")


@pytest.mark.parametrize(
    ("said", "check", "level"),
    [
        ("", "checkpoint directory", FAIL),
        ('{"dirs": []}\n', "leftovers", UNKNOWN),
        ('{"dirs": []}\n{"holders": []}\n', "gpu", FAIL),
    ],
)
async def test_what_hangs_is_named(said: str, check: str, level: str) -> None:
    made = look(said=said, look_timeout_s=1.0, checkpoint_dir="/ckpt")
    (found,) = await findings(made, Asked(0, "run"))
    assert (found.check, found.level) == (check, level)


@pytest.mark.parametrize("code", ["raise SystemExit(3)", "print('{')", "print('[1]'); print('{\"gpus\": 7}')"])
async def test_a_child_that_says_nothing_sound_keeps_nobody_out(code: str) -> None:
    (found,) = await findings(look(code=code))
    assert (found.check, found.level) == ("gpu", UNKNOWN)


async def test_a_child_that_hangs_in_the_kernel_is_not_waited_for_and_gets_no_second(tmp_path: Path) -> None:
    """It cannot be killed while the kernel does not let it go; here it is only not killed."""
    began = tmp_path / "began"
    code = f"open({str(began)!r}, 'a').write('x'); import time; time.sleep(600)"
    made = look(code=code, look_timeout_s=2.0)
    spared: list[asyncio.subprocess.Process] = []

    async def cannot(process: asyncio.subprocess.Process) -> None:
        spared.append(process)

    made.end = cannot
    for _ in range(3):
        (found,) = await findings(made)
        assert found.text == "the GPU driver does not answer"
    assert began.read_text() == "x"
    spared[0].kill()
    await spared[0].wait()
    made.end = preflight_look.end_child

    async def looked_anew() -> bool:
        await findings(made)
        return began.read_text() == "xx"

    await eventually(looked_anew, 20, "a second child")
    assert began.read_text() == "xx"


async def test_of_a_machine_without_gpus_nothing_is_said_about_them(tmp_path: Path) -> None:
    made = look(gpus=0)
    made.devices = "/dev/none"
    assert not made.needed()
    made.settings = PreflightSettings(checkpoint_dir=str(tmp_path), checkpoint_free_mb=0)
    assert [found.check for found in await findings(made)] == ["checkpoint directory"]


async def test_the_checkpoint_directory(gpus: GpuBench, tmp_path: Path) -> None:
    good, room = look(checkpoint_dir=str(tmp_path), checkpoint_free_mb=0), 1 << 40
    assert [found.level for found in await findings(good)] == [OK, OK]
    full = look(checkpoint_dir=str(tmp_path), checkpoint_free_mb=room)
    assert "MiB left, less than" in preflight.refusal(await findings(full))
    missing = look(checkpoint_dir=str(tmp_path / "not there"))
    assert "No such file" in preflight.refusal(await findings(missing))


@pytest.mark.skipif(os.geteuid() != 0, reason="takes root, to be somebody else")
@pytest.mark.parametrize("inner", ["", "run-1"])
def test_a_directory_of_another_user_is_not_called_broken(tmp_path: Path, inner: str) -> None:
    """An agent that may not look into it knows nothing of it."""
    with tempfile.TemporaryDirectory(prefix="rp-") as place:
        Path(place).chmod(0o755)
        ckpt = Path(place) / "ckpt"
        (ckpt / "run-1").mkdir(parents=True)
        ckpt.chmod(0o700)
        code = "import os, sys; from rankpulse.agent.preflight_child import space, tell; os.setuid(65534); "
        code += "tell('dirs', space(sys.argv[1]))"
        said = subprocess.run([sys.executable, "-c", code, str(ckpt / inner)], capture_output=True, check=True).stdout
    seen = msgspec.convert(json.loads(said)["dirs"], preflight.Space)
    assert preflight.of_space("checkpoint directory", seen, 0).level == UNKNOWN


# -- processes that hold a GPU --

HOLDER = "import sys; file = open(sys.argv[1]); print('here', flush=True); sys.stdin.read()"


@pytest.fixture
def hold(tmp_path: Path) -> Iterator[Any]:
    """Starts processes with the device open and the environment of a round; yields (pid, device)."""
    device = tmp_path / "nvidia7"
    device.touch()
    started: list[subprocess.Popen[str]] = []

    def start(run_uid: str, round_: str, *, opens: str = "") -> int:
        env = {**os.environ, "RANKPULSE_RUN_UID": run_uid, "RANKPULSE_ROUND": round_}
        command = [sys.executable, "-c", HOLDER, opens or str(device)]
        process = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout
        process.stdout.readline()
        return process.pid

    yield start, device
    for process in started:
        process.kill()
        process.communicate()


async def test_processes_of_the_run_that_have_a_gpu_open_are_found(gpus: GpuBench, hold: Any) -> None:
    start, device = hold
    pid = start("run-1", "3")
    start("run-2", "3")
    start("run-1", "three")
    start("run-1", "3", opens="/dev/null")
    made = look()
    made.devices = f"{device.parent}/nvidia\\d+"
    seen = await made.at(Asked(os.geteuid(), "run-1"))
    (found,) = seen.holders
    assert (found.pid, found.round, found.device) == (pid, 3, str(device))
    assert (await made.at(Asked(os.geteuid() + 1, "run-1"))).holders == ()
    assert (await made.at(Asked())).holders == ()
    assert isinstance(found, Holder)


# -- the collective --


@pytest.mark.parametrize(
    ("code", "level"),
    [
        ('print(\'{"ok": "a sum over two GPUs took 0.10 s"}\')', OK),
        ('print(\'{"unknown": "it takes two GPUs, and torch sees 0"}\')', UNKNOWN),
        ('print(\'{"fail": "a sum over two GPUs came out wrong on GPU 1"}\')', FAIL),
        ("import time; time.sleep(600)", FAIL),
        ("raise SystemExit(1)", UNKNOWN),
    ],
)
async def test_a_sum_over_two_gpus(gpus: GpuBench, code: str, level: str) -> None:
    made = look(collective=True, collective_timeout_s=2.0)
    made.collective = (sys.executable, "-c", code)
    found = await findings(made)
    assert [(one.check, one.level) for one in found] == [("gpu", OK), ("collective", level)]


async def test_no_sum_is_asked_of_gpus_that_are_broken(gpus: GpuBench) -> None:
    gpus.say([{"action": 1}])
    assert [one.check for one in await findings(look(collective=True))] == ["gpu"]


# -- the real binding, over a library of ours --


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NvmlStub:
    return library(tmp_path, monkeypatch)


async def test_the_real_binding_is_called_rightly(stub: NvmlStub) -> None:
    assert await findings(look()) == (Finding("gpu", OK, "2 GPUs without complaint, driver 595.45.04"),)
    stub.say({"1.field:230": 1})
    (found,) = await findings(look())
    assert found.text == "GPU 1 (00000000:10:00.0) asks for a reset"
    stub.say({"1.field:230": 0, "remap_pending": 1})
    assert [one.level for one in await findings(look())] == ["warn", "warn"]
    stub.say({"remap_pending": 0, "1.error": 15})
    assert "fallen off the bus" in preflight.refusal(await findings(look()))
    stub.say({"error:nvmlInitWithFlags": 18})
    assert "kernel module" in preflight.refusal(await findings(look()))


async def test_a_hanging_library_is_given_up(stub: NvmlStub) -> None:
    stub.say({"hang:nvmlInitWithFlags": 1})
    made = look(look_timeout_s=1.0)
    task = asyncio.create_task(findings(made))
    await eventually(task.done, 20, "the look given up")
    assert [one.text for one in task.result()] == ["the GPU driver does not answer"]
