"""attach() in real processes: where it writes, how it ends, and that the training never notices."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support import eventually_sync

ATTACH = "from rankpulse.trainer import attach; pulse = attach()\n"
NOTHING_HAPPENED = "no progress will be reported"


def test_a_job_without_any_sidecar(job: Any) -> None:
    done = job.run(ATTACH + "pulse.step(7, loss=0.5); assert attach() is pulse; pulse.close()")
    assert done == (0, "", "")
    said = job.slot()
    assert (said.pulse.step, said.pulse.loss, said.pulse.phase) == (7, 0.5, "closed")
    assert said.ending == {"kind": "closed"}
    assert (said.identity["rank"], said.identity["world_size"], said.identity["source"]) == (0, 1, "single")
    assert job.paths()[0].name.startswith(f"{said.identity['pid']}-")


def test_the_default_footprint(job: Any) -> None:
    heavy = (
        "torch",
        "asyncio",
        "grpc",
        "logging",
        "msgspec",
        "threading",
        "socket",
        "subprocess",
        "ctypes",
        "dataclasses",
    )
    code = "import sys; before = set(sys.modules)\n" + ATTACH
    done = job.run(code + "print(*(set(sys.modules) - before))")
    loaded = set(done.out.split())
    assert "rankpulse.trainer" in loaded
    assert not loaded & set(heavy)
    assert len(loaded) < 45, sorted(loaded)


def test_no_python_thread_is_started(job: Any) -> None:
    done = job.run(
        ATTACH + "pulse.step(); import threading, sys; print(threading.active_count(), len(sys._current_frames()))"
    )
    assert done.out.split() == ["1", "1"]


VALUE_ERROR = {"error": "ValueError", "message": "invalid literal for int() with base 3: 'x y'"}


@pytest.mark.parametrize(
    ("end", "code", "ending"),
    [
        ("pass", 0, {"kind": "exit"}),
        ("sys.exit(3)", 3, {"kind": "exit"}),
        ("sys.exit('a message')", 1, {"kind": "exit"}),
        ("os._exit(0)", 0, None),
        ("raise RuntimeError('boom')", 1, {"kind": "exception", "error": "RuntimeError", "message": "boom"}),
        ("raise KeyboardInterrupt", -2, {"kind": "exception", "error": "KeyboardInterrupt", "message": ""}),
        ("pulse.close()", 0, {"kind": "closed"}),
        ("pulse.close(); 1/0", 1, {"kind": "closed", "error": "ZeroDivisionError", "message": "division by zero"}),
        ("sys.excepthook = print; int('x y', 3)", 1, {"kind": "exception", **VALUE_ERROR}),
        ("sys.stderr = None; int('x y', 3)", 1, {"kind": "exception", **VALUE_ERROR}),
        ("os.chdir('/'); exec('try: 1/0\\nexcept ZeroDivisionError: pass')", 0, {"kind": "exit"}),
    ],
)  # fmt: skip
def test_how_a_process_ends_is_in_its_slot(job: Any, end: str, code: int, ending: dict[str, str] | None) -> None:
    done = job.run("import os, sys\n" + ATTACH + "pulse.step(4)\n" + end)
    assert done.code == code
    assert job.slot().ending == ending
    assert job.slot().pulse.step == 4


def test_a_closed_pulse_is_opened_by_the_next_attach(job: Any) -> None:
    done = job.run(ATTACH + "pulse.step(9); pulse.close(); assert attach() is pulse; pulse.step(1)")
    assert done.err == ""
    assert job.slot().pulse[:3:2][0] == 1
    assert job.slot().ending == {"kind": "exit"}


def test_a_killed_process_leaves_a_readable_slot(job: Any) -> None:
    running = job.start("import time\n" + ATTACH + "while True:\n    pulse.step()\n    time.sleep(0.001)")
    eventually_sync(lambda: job.paths() and job.slot().pulse.step > 100, what="a hundred steps")
    running.send_signal(signal.SIGKILL)
    running.wait()
    assert job.slot().pulse.step > 100
    assert job.slot().ending is None


FORK = """
import os, sys
pid = os.fork()
if pid == 0:
    pulse.step(99); pulse.pause(); pulse.close()
    {child}
os.waitpid(pid, 0)
"""


@pytest.mark.parametrize("child", ["sys.exit(0)", "1/0", "os._exit(0)", "attach(); sys.exit(0)"])
def test_a_forked_child_leaves_its_parents_slot_alone(job: Any, child: str) -> None:
    done = job.run(ATTACH + "pulse.step(5)" + FORK.format(child=child) + "pulse.step(6)")
    assert done.code == 0
    by_pid = {said.identity["pid"]: said for said in job.slots()}
    parent = next(said for said in by_pid.values() if said.pulse.step == 6)
    assert parent.ending == {"kind": "exit"}
    assert parent.pulse.phase == "train"
    assert len(by_pid) == (2 if "attach" in child else 1)


def test_a_spawned_helper_that_runs_the_scripts_top_level_makes_no_slot(job: Any, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import multiprocessing, sys\n" + ATTACH + "def work():\n    pulse.step(99)\n    print('child', pulse.live)\n"
        "if __name__ == '__main__':\n"
        "    child = multiprocessing.get_context('spawn').Process(target=work)\n"
        "    child.start(); child.join(); pulse.step(1); print(pulse.live)\n"
    )
    assert _run_script(job, script).split() == ["child", "False", "True"]
    assert len(job.slots()) == 1, "none for the child"


def _run_script(job: Any, script: Path) -> str:
    return subprocess.run(
        [sys.executable, str(script)], env=job.environ, capture_output=True, text=True, check=True
    ).stdout


USE_ALL = (
    ATTACH
    + """
pulse.step(1, loss=0.5)
with pulse.phase('x'):
    pulse.pause()
attach()
pulse.close()
print('trained')
"""
)


def assert_degraded(job: Any, base: str, **environ: str) -> str:
    done = job.run(USE_ALL, RANKPULSE_DIR=base, **environ)
    assert (done.code, done.out) == (0, "trained\n")
    assert done.err.count("\n") == 1, "one line"
    assert NOTHING_HAPPENED in done.err
    assert "Traceback" not in done.err
    return done.err


@pytest.mark.parametrize("base", ["/proc/nowhere", "/dev/null/x", "/dev/null", "/sys/x"])
def test_a_place_that_cannot_be_written_costs_one_warning(job: Any, base: str) -> None:
    assert_degraded(job, base)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_no_permission_costs_one_warning(job: Any, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    assert "Permission denied" in assert_degraded(job, str(tmp_path / "run"))
    tmp_path.chmod(0o700)


def test_a_directory_open_to_others_costs_one_warning(job: Any) -> None:
    own = job.base / f"u{os.geteuid()}"
    own.mkdir(parents=True)
    own.chmod(0o777)
    assert "remove it, or chmod 700" in assert_degraded(job, str(job.base))


UNSHARED = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNS, MS_REC_PRIVATE, MS_REMOUNT_RO = 0x20000, 0x44000, 0x21
base = os.environ['RANKPULSE_DIR'].encode()
os.makedirs(base, exist_ok=True)
def must(rc):
    if rc: sys.exit(77)
must(libc.unshare(CLONE_NEWNS))
must(libc.mount(b'none', b'/', None, MS_REC_PRIVATE, None))
"""
READ_ONLY = UNSHARED + "must(libc.mount(b'tmpfs', base, b'tmpfs', 1, b'size=64k'))\n"
FULL = (
    UNSHARED
    + """
must(libc.mount(b'tmpfs', base, b'tmpfs', 0, b'size=16k'))
try: open(base + b'/filler', 'wb', buffering=0).write(bytes(1 << 20))
except OSError: pass
"""
)


@pytest.mark.parametrize(("mount", "says"), [(READ_ONLY, "Read-only"), (FULL, "No space left")], ids=["ro", "full"])
def test_a_read_only_or_full_disk_costs_one_warning(job: Any, mount: str, says: str) -> None:
    done = job.run(mount + USE_ALL)
    if done.code == 77:
        pytest.skip("needs root and the right to mount in a namespace of its own")
    assert (done.code, done.out) == (0, "trained\n")
    assert done.err.count("\n") == 1
    assert says in done.err


def test_a_disk_that_fills_after_attach_costs_nothing(job: Any) -> None:
    mount = FULL.split("try:")[0] + ATTACH + "try:" + FULL.split("try:")[1]
    done = job.run(mount + USE_ALL)
    if done.code == 77:
        pytest.skip("needs root and the right to mount in a namespace of its own")
    assert done == (0, "trained\n", "")


def test_no_stderr_to_warn_on(job: Any) -> None:
    done = job.run("import sys; sys.stderr = None\n" + USE_ALL, RANKPULSE_DIR="/dev/null/x")
    assert (done.code, done.out) == (0, "trained\n")


def test_a_run_id_of_any_characters(job: Any) -> None:
    job.run(ATTACH, TORCHELASTIC_RUN_ID="a/b c\n☃" * 60, PYTHONPATH=_without_torch(job))
    assert job.slot().identity["run_id"].startswith("a/b c\n☃")


def _without_torch(job: Any) -> str:
    """A path on which `import torch` fails at once."""
    package = job.base.parent / "broken" / "torch"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise OSError('libcudart.so: cannot open shared object file')")
    return str(package.parent)
