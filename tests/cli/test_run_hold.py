"""`rankpulse run` writes torchrun's line, and `rankpulse hold` stands beside a worker at little cost."""

import subprocess
import sys
from pathlib import Path

import pytest
from fakeagent import FakeAgent, World

from rankpulse.cli.failing import Failed

pytest.importorskip("torch")
from rankpulse.cli.run import build

Q = ["--rdzv-id", "q"]
HOLD = [sys.executable, "-P", "-m", "rankpulse.trainer.hold"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]
MEET = ["--rdzv-backend", "rankpulse", "--rdzv-id"]


@pytest.mark.parametrize(
    ("given", "options", "program"),
    [
        (["train.py"], [*MEET, "train-abc", "--no-python"], [*HOLD, sys.executable, "-u", "train.py"]),
        (
            ["--nnodes", "2", "train.py", "--lr", "1", "--", "-m", "--no-hold"],
            ["--nnodes", "2", *MEET, "train", "--no-python"],
            [*HOLD, sys.executable, "-u", "train.py", "--lr", "1", "--", "-m", "--no-hold"],
        ),
        (
            ["--nnodes=2:4", "-m", "pkg.train", "x"],
            ["--nnodes=2:4", *MEET, "pkg.train", "--no-python"],
            [*HOLD, sys.executable, "-u", "-m", "pkg.train", "x"],
        ),
        (["--rdzv-id", "q", "--no-hold", "t.py"], ["--rdzv-id", "q", *MEET[:2]], ["t.py"]),
        (["--rdzv_id=q", "--no-hold", "--module", "t"], ["--rdzv_id=q", "--module", *MEET[:2]], ["t"]),
        (["--no-python", *Q, "./go", "a"], ["--no-python", *Q, *MEET[:2]], [*HOLD, "./go", "a"]),
        (["--rdzv_id=q", *MEET[:2], "--no-h", "t.py"], ["--rdzv_id=q", *MEET[:2]], ["t.py"]),
        (["--run-path", "dir/x.py"], ["--run-path", *MEET, "x-abc"], ["dir/x.py"]),
        (["--", "t.py"], [*MEET, "t-abc", "--no-python"], [*HOLD, sys.executable, "-u", "t.py"]),
        (["--no-hold", "--", "-t.py"], [*MEET, "t-abc", "--"], ["-t.py"]),
    ],
)  # fmt: skip
def test_the_line(given: list[str], options: list[str], program: list[str]) -> None:
    assert build(given, {}, "abc").argv == [*TORCHRUN, *options, *program]


def test_a_label_from_the_script_is_said_when_others_could_have_it() -> None:
    assert build(["train.py"], {}, "abc").notes == []
    (note,) = build(["--nnodes", "2", "train.py"], {}, "abc").notes
    assert "called train" in note
    assert "--rdzv-id" in note


def test_a_slurm_job_names_its_run() -> None:
    line = build(["--nnodes", "2", "train.py"], {"SLURM_JOB_ID": "77"}, "abc")
    assert "slurm-77" in line.argv


def test_the_python_that_torchrun_would_take() -> None:
    assert build(["t.py"], {"PYTHON_EXEC": "/opt/py"}, "abc").argv[-3:] == ["/opt/py", "-u", "t.py"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--standalone", "t.py"], "leave --standalone out"),
        (["--rdzv-backend", "c10d", "t.py"], "use torchrun itself"),
    ],
)
def test_what_it_is_not_for(given: list[str], said: str) -> None:
    with pytest.raises(Failed, match=said):
        build(given, {}, "abc")


def test_wrong_options_end_as_in_torchrun(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        build(["--no-such-option", "t.py"], {}, "abc")
    assert caught.value.code == 2
    assert "rankpulse run: error" in capsys.readouterr().err


def command(*args: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    argv = [sys.executable, "-m", "rankpulse.cli.entry", *args]
    return subprocess.run(argv, capture_output=True, text=True, timeout=120, env=environ or None)


def test_help_teaches() -> None:
    for name, said in (("run", "--rdzv-backend rankpulse"), ("hold", "RANKPULSE_HOLD_S")):
        for flag in ("--help", "-h"):
            done = command(name, flag)
            assert (done.returncode, done.stderr) == (0, "")
            assert said in done.stdout
        assert command(name).returncode == 2
        assert name in command("--help").stdout


def test_hold_by_either_door() -> None:
    for module in ("rankpulse.cli.entry", "rankpulse.cli.main"):
        argv = [
            sys.executable,
            "-m",
            module,
            "hold",
            sys.executable,
            "-c",
            "print('here', __import__('sys').argv[1:])",
            "--help",
            "-x",
        ]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stdout) == (0, "here ['--help', '-x']\n")


def test_the_holder_stays_light() -> None:
    code = (
        "import sys; sys.argv = ['rankpulse', 'hold', '--help']\n"
        "from rankpulse.cli.entry import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "heavy = {'typer', 'rich', 'torch', 'asyncio', 'msgspec', 'logging', 'subprocess'}\n"
        "print(heavy & set(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stderr == "set()\n"


@pytest.mark.live
def test_run_starts_a_job(tmp_path: Path) -> None:
    world = World(1)
    agent = FakeAgent(tmp_path / "node", world).start()
    script = tmp_path / "train.py"
    script.write_text("import os, sys; print(os.environ['RANKPULSE_ROUND'], os.environ['RANK'], sys.argv[1:])")
    done = command("run", str(script), "--lr", "1", RANKPULSE_DIR=str(agent.directory), PATH="/usr/bin:/bin")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "1 0 ['--lr', '1']\n"
    assert "rankpulse: " + sys.executable + " -m torch.distributed.run --rdzv-backend rankpulse" in done.stderr
    (join,) = world.heard("join")
    assert join["label"].startswith("train-")
    assert [said["outcome"] for said in world.outcomes] == ["finished"]
    assert len(world.of("hold")) == 1
    agent.stop()
