"""The worker holder: what it does when its trainer ends, when it is stopped, and when everybody else is gone."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fakeagent import FakeAgent, Session, World
from support import eventually_sync

from rankpulse.trainer import hold

READY = "import os, signal, sys, time\n"


class Held:
    """A holder in a session of its own, as under torchrun, and its trainer."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.started: list[subprocess.Popen[str]] = []

    def start(self, code: str, *, session: bool = True, **environ: str) -> "subprocess.Popen[str]":
        env = {**os.environ, "RANKPULSE_DIR": str(self.directory), "RANK": "3", **environ}
        argv = [sys.executable, "-P", "-m", "rankpulse.trainer.hold", sys.executable, "-u", "-c", READY + code]
        pipe = subprocess.PIPE
        process = subprocess.Popen(
            argv, env=env, stdin=pipe, stdout=pipe, stderr=pipe, text=True, start_new_session=session
        )
        self.started.append(process)
        return process

    def stop(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.kill()
            for end in (process.stdin, process.stdout, process.stderr):
                if end is not None:
                    end.close()
            process.wait()


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Held]:
    made = Held(tmp_path / "node")
    yield made
    made.stop()


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def agent(tmp_path: Path, world: World) -> Iterator[FakeAgent]:
    made = FakeAgent(tmp_path / "node", world).start()
    yield made
    made.stop()


def ended(world: World) -> Any:
    eventually_sync(lambda: world.heard("ended", "hold"), 20, "the report")
    return world.heard("ended", "hold")[-1]


def rest(process: "subprocess.Popen[str]") -> tuple[int, str, str]:
    out, err = process.communicate(timeout=30)
    return process.returncode, out, err


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_a_good_end_is_one(held: Held, agent: FakeAgent, world: World) -> None:
    done = rest(held.start("print('trained', sys.stdin.read())"))
    assert done == (0, "trained \n", "")
    assert world.heard("ended", "hold") == []


@pytest.mark.parametrize(
    ("code", "said", "returncode"),
    [
        ("sys.exit(7)", {"code": 7, "signal": None}, 7),
        ("os.kill(os.getpid(), signal.SIGSEGV)", {"code": None, "signal": 11}, -11),
        ("os.kill(os.getpid(), signal.SIGKILL)", {"code": None, "signal": 9}, -9),
        ("os.kill(os.getpid(), 35)", {"code": None, "signal": 35}, -35),
        ("raise ValueError('no such file')", {"code": 1, "signal": None}, 1),
    ],
)
def test_a_crash_is_reported_held_and_in_the_end_not_hidden(
    held: Held, agent: FakeAgent, world: World, code: str, said: Any, returncode: int
) -> None:
    process = held.start(code)
    assert ended(world) == said
    (session,) = world.of("hold")
    assert session.pid == process.pid
    assert process.poll() is None
    session.send(release="the program failed twice in the same way")
    code_, _, err = rest(process)
    assert code_ == returncode
    assert "rank 3 (pid " in err
    assert "the program failed twice in the same way" in err
    assert ("ValueError: no such file" in err) == ("ValueError" in code)


def test_the_agent_is_told_the_trainers_pid(held: Held, agent: FakeAgent, world: World) -> None:
    process = held.start("print(os.getpid(), os.getppid()); sys.stdin.read()")
    assert process.stdout is not None
    pid, parent = process.stdout.readline().split()
    assert int(parent) == process.pid
    eventually_sync(lambda: world.of("hold"), 10, "the session")
    assert world.of("hold")[0].hello == {"op": "hold", "v": 1, "pid": int(pid), "rank": 3}


def test_what_is_no_rank_is_not_told() -> None:
    given = {"RANK": "1", "LOCAL_RANK": "-1", "WORLD_SIZE": "12x", "OTHER": "3"}
    assert hold.seat(given) == {"rank": 1}
    assert hold.seat({"RANK": "٣", "LOCAL_RANK": "0", "WORLD_SIZE": "9" * 30}) == {"local_rank": 0}


def test_without_an_agent_it_gives_up_soon(held: Held) -> None:
    code, _, err = rest(held.start("sys.exit(5)", RANKPULSE_HOLD_S="0.5"))
    assert code == 5
    assert f"no word from the agent at {held.directory}/agent.sock (No such file or directory)" in err


def test_a_silent_agent_is_none(held: Held, agent: FakeAgent) -> None:
    assert rest(held.start("sys.exit(5)", RANKPULSE_HOLD_S="0.5"))[0] == 5


def test_patience_ends_even_if_the_agent_always_asks_for_more(held: Held, agent: FakeAgent, world: World) -> None:
    def ask(session: Session, _ended: Any) -> None:
        session.send(wait="the monitor decides")

    world.on_ended = ask
    process = held.start("sys.exit(5)", RANKPULSE_HOLD_S="0.2")
    ended(world)

    def over() -> bool:
        for session in world.of("hold"):
            session.send(wait="the monitor still decides")
        return process.poll() is not None

    eventually_sync(over, 30, "the end of patience")
    assert process.returncode == 5


def test_no_holding_when_it_is_not_wanted(held: Held, agent: FakeAgent, world: World) -> None:
    assert rest(held.start("sys.exit(5)", RANKPULSE_HOLD_S="0")) == (5, "", "")
    assert world.of("hold") == []


def test_an_agent_that_comes_back_is_told_again(held: Held, agent: FakeAgent, world: World) -> None:
    process = held.start("sys.stdin.read(); sys.exit(9)", RANKPULSE_HOLD_S="60")
    eventually_sync(lambda: world.of("hold"), 10, "the session")
    agent.stop()
    assert process.stdin is not None
    process.stdin.close()
    agent.start()
    assert ended(world)["code"] == 9
    agent.stop()
    agent.start()
    eventually_sync(lambda: len(world.heard("ended", "hold")) == 2, 10, "the second report")
    world.of("hold")[-1].send(release="so be it")
    assert process.wait(20) == 9


def test_sigterm_while_it_holds_ends_it_like_the_trainer(held: Held, agent: FakeAgent, world: World) -> None:
    process = held.start("os.kill(os.getpid(), signal.SIGABRT)")
    ended(world)
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == -signal.SIGABRT


COUNTS = (
    "def on(number, frame):\n    print('told', flush=True)\n"
    "signal.signal(signal.SIGTERM, on)\n"
    "print('up', flush=True)\n"
    "while True: time.sleep(0.05)\n"
)


def test_sigterm_is_passed_on_and_ends_in_sigkill(held: Held) -> None:
    process = held.start(COUNTS, RANKPULSE_GRACE_S="0.5")
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    subprocess.run(["kill", "-TERM", str(process.pid)], check=True)  # by another than torchrun, to the holder alone
    code, out, err = rest(process)
    assert (code, out) == (-9, "told\n")
    assert err == "", "that was a stop, nothing is held"


def test_a_stop_of_the_whole_group_reaches_the_trainer_once(held: Held) -> None:
    """As torchrun does it."""
    process = held.start(COUNTS, RANKPULSE_GRACE_S="1")
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    os.killpg(process.pid, signal.SIGTERM)
    assert rest(process)[:2] == (-9, "told\n")


def test_a_stopped_trainer_is_ended_too(held: Held) -> None:
    process = held.start("print(os.getpid()); os.kill(os.getpid(), signal.SIGSTOP)", RANKPULSE_GRACE_S="0.3")
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    eventually_sync(lambda: "\nState:\tT" in Path(f"/proc/{pid}/status").read_text(), 10, "the stop")
    os.killpg(process.pid, signal.SIGTERM)
    assert process.wait(20) == -signal.SIGKILL


def test_a_trainer_that_uses_its_grace_well(held: Held) -> None:
    process = held.start(
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\nprint('up', flush=True)\ntime.sleep(60)\n"
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    os.killpg(process.pid, signal.SIGTERM)
    assert rest(process) == (0, "", "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP, signal.SIGQUIT])
def test_what_a_terminal_sends_to_all(held: Held, number: signal.Signals) -> None:
    process = held.start(
        f"signal.signal({int(number)}, signal.SIG_DFL); print('up', flush=True); time.sleep(60)", RANKPULSE_HOLD_S="60"
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    os.killpg(process.pid, number)
    assert rest(process) == (-number, "", "")


def test_preemption_notices_are_the_trainers(held: Held) -> None:
    process = held.start(
        "signal.signal(signal.SIGUSR1, lambda *_: print('noticed', flush=True))\nprint('up', flush=True)\n"
        "sys.stdin.read()\n"
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    os.killpg(process.pid, signal.SIGUSR1)
    assert process.stdout.readline() == "noticed\n"
    assert process.poll() is None


def test_the_trainer_dies_with_its_holder(held: Held) -> None:
    process = held.start("print(os.getpid(), flush=True); time.sleep(60)")
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    process.kill()
    eventually_sync(lambda: not alive(pid), 10, "the end of the trainer")


def test_both_end_with_torchrun(held: Held) -> None:
    """torchrun, killed without a word: here a shell in its place."""
    code = "import os, time; print(os.getppid(), os.getpid(), flush=True); time.sleep(60)"
    inner = f"{sys.executable} -P -m rankpulse.trainer.hold {sys.executable} -c '{code}'"
    env = {**os.environ, "RANKPULSE_DIR": str(held.directory), "TORCHELASTIC_RUN_ID": "x"}
    shell = subprocess.Popen(["sh", "-c", f"{inner} & wait"], env=env, stdout=subprocess.PIPE, text=True)
    assert shell.stdout is not None
    pids = [int(pid) for pid in shell.stdout.readline().split()]
    shell.kill()
    eventually_sync(lambda: not any(alive(pid) for pid in pids), 10, "the end of holder and trainer")
    shell.communicate()


def test_the_trainer_finds_its_signals_as_ever(held: Held) -> None:
    """Nothing is blocked, ignored or left open for it that torchrun would not have."""
    status = (
        "print([line for line in open('/proc/self/status') if line.startswith(('SigBlk', 'SigIgn'))])\n"
        "print(len(os.listdir('/proc/self/fd')))\n"
    )
    plain = subprocess.run(
        [sys.executable, "-u", "-c", READY + status], capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    process = held.start(status)
    assert rest(process)[1] == plain.stdout


def test_a_stopped_holder_harms_nobody(held: Held, agent: FakeAgent, world: World) -> None:
    process = held.start("print('up', flush=True); sys.stdin.read(); sys.exit(4)")
    assert process.stdout is not None
    assert process.stdin is not None
    assert process.stdout.readline() == "up\n"
    process.send_signal(signal.SIGSTOP)
    process.stdin.close()
    process.send_signal(signal.SIGCONT)
    assert ended(world)["code"] == 4


def test_what_cannot_be_started(tmp_path: Path, held: Held) -> None:
    for program, code in (("no-such-program", 127), (str(tmp_path), 126)):
        argv = [sys.executable, "-P", "-m", "rankpulse.trainer.hold", program]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=30)
        assert done.returncode == code
        assert done.stderr.startswith(f"rankpulse: hold: {program}: ")


@pytest.mark.parametrize("bad", ["soon", "-1", "nan", "1e9"])
def test_bad_settings_are_said(bad: str) -> None:
    with pytest.raises(ValueError, match=r"RANKPULSE_GRACE_S=.*a number of seconds"):
        hold.patience({"RANKPULSE_GRACE_S": bad})


def test_empty_settings_say_nothing() -> None:
    assert hold.patience({"RANKPULSE_GRACE_S": "", "RANKPULSE_HOLD_S": " 2 "}) == (2.0, 5.0)
