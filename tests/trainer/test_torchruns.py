"""Real torchruns that meet through the plug-in, over an agent that does as the test says."""

import json
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

pytest.importorskip("torch")
pytestmark = pytest.mark.live

HOLD = ("--no-python", sys.executable, "-P", "-m", "rankpulse.trainer.hold", sys.executable, "-u")
# A worker that is quickly there: it writes down who it is, and waits for the end.
WAITS = """
import json, os, sys, time
base = sys.argv[1]
names = ("RANK", "WORLD_SIZE", "RANKPULSE_ROUND", "RANKPULSE_RUN_UID", "TORCHELASTIC_RESTART_COUNT",
         "TORCHELASTIC_USE_AGENT_STORE", "TORCH_FR_BUFFER_SIZE", "MASTER_ADDR", "MASTER_PORT")
with open(base + "/events", "a") as file:
    file.write(json.dumps({"pid": os.getpid(), **{name: os.environ[name] for name in names}}) + "\\n")
while not os.path.exists(base + "/finish"):
    time.sleep(0.02)
"""
TRAINS = """
import json, os, sys, torch
import torch.distributed as dist
base = sys.argv[1]
dist.init_process_group("gloo")
tensor = torch.ones(1)
dist.all_reduce(tensor)
with open(base + "/events", "a") as file:
    file.write(json.dumps({"pid": os.getpid(), "RANK": os.environ["RANK"], "sum": tensor.item(),
                           "RANKPULSE_ROUND": os.environ["RANKPULSE_ROUND"]}) + "\\n")
over = torch.zeros(1)
while not over.item():
    over.fill_(float(os.path.exists(base + "/finish")))
    dist.all_reduce(over, dist.ReduceOp.MAX)
dist.destroy_process_group()
"""


class Jobs:
    """torchruns of one job, each as if on a node of its own; `world` lets them meet."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.world = World(1)
        self.agent = FakeAgent(base / "node", self.world).start()
        self.torchruns: list[subprocess.Popen[str]] = []
        self.script = base / "train.py"
        self.script.write_text(WAITS)
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("TORCH", "RANKPULSE", "PET_"))}
        self.env |= {"RANKPULSE_DIR": str(self.agent.directory), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}

    def start(self, nodes: int, *options: str, hold: bool = False, workers: int = 1, **environ: str) -> None:
        self.world.nodes = nodes
        for _ in range(nodes):
            self.one(nodes, *options, *(HOLD if hold else ()), workers=workers, **environ)

    def one(self, nodes: int, *options: str, workers: int = 1, **environ: str) -> "subprocess.Popen[str]":
        common = ["--rdzv-backend=rankpulse", "--rdzv-id=job", "--local-addr=127.0.0.1", f"--nproc-per-node={workers}"]
        argv = [sys.executable, "-m", "torch.distributed.run", f"--nnodes={nodes}", *common, *options]
        return self.launch([*argv, str(self.script), str(self.base)], **environ)

    def launch(self, argv: list[str], **environ: str) -> "subprocess.Popen[str]":
        pipe = subprocess.PIPE
        env = {**self.env, **environ}
        self.torchruns.append(subprocess.Popen(argv, env=env, stdout=pipe, stderr=subprocess.STDOUT, text=True))
        return self.torchruns[-1]

    def events(self, round_: int | None = None) -> list[dict[str, Any]]:
        try:
            lines = (self.base / "events").read_text().splitlines()
        except OSError:
            return []
        found = [json.loads(line) for line in lines]
        return [one for one in found if round_ is None or one["RANKPULSE_ROUND"] == str(round_)]

    def until_round(self, round_: int, ranks: int) -> list[dict[str, Any]]:
        """What the workers of a round wrote, once all are there."""
        what = f"{ranks} workers in round {round_}"
        eventually_sync(lambda: len(self.events(round_)) == ranks or self._dead(), 90, what)
        return sorted(self.events(round_), key=lambda one: one["RANK"])

    def _dead(self) -> bool:
        for torchrun in self.torchruns:
            if torchrun.poll() is not None:
                raise AssertionError(f"a torchrun ended: {torchrun.communicate()[0]}")
        return False

    def finish(self) -> list[tuple[int, str]]:
        """Exit codes and outputs of all torchruns."""
        (self.base / "finish").touch()
        return self.ends()

    def ends(self) -> list[tuple[int, str]]:
        outputs = [torchrun.communicate(timeout=90)[0] for torchrun in self.torchruns]
        return [(torchrun.returncode, output) for torchrun, output in zip(self.torchruns, outputs, strict=True)]

    def stop(self) -> None:
        for torchrun in self.torchruns:
            if torchrun.poll() is None:
                torchrun.kill()
            if torchrun.stdout is not None:
                torchrun.stdout.close()
            torchrun.wait()
        for event in self.events():
            try:
                os.kill(event["pid"], signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.agent.stop()


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Jobs]:
    made = Jobs(tmp_path)
    yield made
    made.stop()


def codes(ends: list[tuple[int, str]]) -> list[int]:
    return [code for code, _ in ends]


def test_two_nodes_meet_and_meet_again_and_burn_nothing(jobs: Jobs) -> None:
    jobs.script.write_text(TRAINS)
    jobs.start(2, "--max-restarts=0")
    jobs.until_round(1, 2)
    jobs.world.order()
    assert [one["sum"] for one in jobs.until_round(2, 2)] == [2.0, 2.0]
    ends = jobs.finish()
    assert codes(ends) == [0, 0], ends
    assert [said["outcome"] for said in jobs.world.outcomes] == ["finished", "finished"]
    assert sorted(said["round"] for said in jobs.world.heard("restarting")) == [1, 1]


def test_what_workers_are_told(jobs: Jobs) -> None:
    jobs.start(2, workers=2)
    told = jobs.until_round(1, 4)
    assert [one["RANK"] for one in told] == ["0", "1", "2", "3"]
    (meeting,) = jobs.world.meetings
    for one in told:
        assert (one["RANKPULSE_RUN_UID"], one["WORLD_SIZE"], one["TORCH_FR_BUFFER_SIZE"]) == ("demo-1", "4", "2000")
        assert one["TORCHELASTIC_USE_AGENT_STORE"] == "True"
        assert (one["MASTER_ADDR"], one["MASTER_PORT"]) == (meeting["address"], str(meeting["port"]))
    assert codes(jobs.finish()) == [0, 0]


def test_ten_restarts_leave_nothing_behind(jobs: Jobs) -> None:
    jobs.start(2, "--max-restarts=0", hold=True)

    def counts() -> list[tuple[int, int, int]]:
        rows = []
        for torchrun in jobs.torchruns:
            proc = f"/proc/{torchrun.pid}"
            children = Path(f"{proc}/task/{torchrun.pid}/children").read_text().split()
            rows.append((len(os.listdir(f"{proc}/fd")), len(os.listdir(f"{proc}/task")), len(children)))
        return rows

    jobs.until_round(1, 2)
    jobs.world.order()
    jobs.until_round(2, 2)
    before = counts()
    for round_ in range(3, 12):
        jobs.world.order()
        jobs.until_round(round_, 2)
    eventually_sync(lambda: counts() == before, 10, f"descriptors, threads and children as before ({before})")
    assert codes(jobs.finish()) == [0, 0]


def test_a_crash_without_holder_burns_one_here_and_none_there(jobs: Jobs) -> None:
    jobs.start(2, "--max-restarts=1")
    victim = jobs.until_round(1, 2)[1]
    os.kill(victim["pid"], signal.SIGKILL)
    assert sorted(one["TORCHELASTIC_RESTART_COUNT"] for one in jobs.until_round(2, 2)) == ["0", "1"]
    assert codes(jobs.finish()) == [0, 0]


def test_a_crash_with_holder_burns_nothing(jobs: Jobs) -> None:
    jobs.start(2, "--max-restarts=0", hold=True)
    victim = jobs.until_round(1, 2)[0]
    os.kill(victim["pid"], signal.SIGSEGV)
    eventually_sync(lambda: jobs.world.heard("ended", "hold"), 20, "the report of the holder")
    assert jobs.world.heard("ended", "hold") == [{"code": None, "signal": signal.SIGSEGV}]
    jobs.world.order()
    jobs.until_round(2, 2)
    ends = jobs.finish()
    assert codes(ends) == [0, 0]
    assert any(f"(pid {victim['pid']}) was killed by SIGSEGV" in output for _, output in ends)


def test_a_released_holder_hides_nothing(jobs: Jobs) -> None:
    jobs.start(1, "--max-restarts=0", hold=True)
    (victim,) = jobs.until_round(1, 1)
    os.kill(victim["pid"], signal.SIGSEGV)
    eventually_sync(lambda: jobs.world.heard("ended", "hold"), 20, "the report of the holder")
    jobs.world.of("hold")[-1].send(release="nobody may restart this")
    ((code, output),) = jobs.ends()
    assert code == 1
    assert "Signal 11 (SIGSEGV)" in output, "in torchrun's own table"
    assert "nobody may restart this" in output
    assert jobs.world.outcomes == [{"outcome": "failed", "reason": "rank 0 ended with exit code -11"}]


def test_a_stopped_worker_costs_the_holders_grace_only(jobs: Jobs) -> None:
    jobs.start(2, "--max-restarts=0", hold=True, RANKPULSE_GRACE_S="0.5")
    victim = jobs.until_round(1, 2)[1]
    os.kill(victim["pid"], signal.SIGSTOP)
    jobs.world.order()
    jobs.until_round(2, 2)
    ends = jobs.finish()
    assert codes(ends) == [0, 0]
    assert not any("Unable to shutdown process" in output for _, output in ends), "torch's own 30 s were not needed"


def test_an_established_round_does_not_notice_its_agent(jobs: Jobs) -> None:
    jobs.start(2, "--max-restarts=0")
    jobs.until_round(1, 2)
    jobs.agent.stop()
    jobs.agent.start()
    eventually_sync(lambda: len(jobs.world.heard("watch")) == 2, 20, "both to come back")
    assert len(jobs.events()) == 2
    jobs.world.order()
    jobs.until_round(2, 2)
    jobs.agent.stop()
    assert codes(jobs.finish()) == [0, 0]


def test_an_agent_that_comes_late(jobs: Jobs) -> None:
    jobs.agent.stop()
    jobs.start(1)
    output = ""
    stdout = jobs.torchruns[0].stdout
    assert stdout is not None
    while "rankpulse: waiting: no agent at" not in output:
        output = stdout.readline()
        assert output, "torchrun ended"
    jobs.agent.start()
    jobs.until_round(1, 1)
    assert codes(jobs.finish()) == [0]


def test_no_agent_at_all(jobs: Jobs) -> None:
    jobs.agent.stop()
    jobs.start(1, "--rdzv-conf=agent_wait_s=0.5,is_host=1")
    ((code, output),) = jobs.ends()
    assert code == 1
    assert f"RendezvousConnectionError: no agent at {jobs.agent.path}" in output
    assert "--rdzv-conf is_host: unknown here" in output


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_waiting_for_others_ends_at_a_signal(jobs: Jobs, number: signal.Signals) -> None:
    jobs.world.nodes = 2
    torchrun = jobs.one(2)
    eventually_sync(lambda: jobs.world.heard("join"), 60, "the join")
    torchrun.send_signal(number)
    assert torchrun.wait(30) != 0


def test_waiting_for_the_next_round_ends_at_a_signal(jobs: Jobs) -> None:
    """By now torchelastic has its own signal handlers."""
    jobs.start(1)
    jobs.until_round(1, 1)
    jobs.world.nodes = 2
    jobs.world.again()
    eventually_sync(lambda: len(jobs.world.heard("join")) == 2, 60, "the second join")
    jobs.torchruns[0].send_signal(signal.SIGTERM)
    assert jobs.torchruns[0].wait(15) != 0


def test_a_spare_that_is_not_needed_ends_well(jobs: Jobs) -> None:
    def finished(session: Session, _join: Any) -> bool:
        session.send(refused={"kind": "finished", "reason": "the run has finished; this spare was not needed"})
        return True

    jobs.world.on_join = finished
    jobs.start(1)
    ((code, output),) = jobs.ends()
    assert code == 0, output
    assert "this spare was not needed" in output
    assert "Traceback" not in output


def test_the_run_directory_as_endpoint(jobs: Jobs) -> None:
    jobs.start(1, f"--rdzv-endpoint={jobs.agent.directory}", RANKPULSE_DIR="/nowhere")
    jobs.until_round(1, 1)
    assert codes(jobs.finish()) == [0]


def test_accelerate_launch(jobs: Jobs) -> None:
    """It gives a run no name: the endpoint, which is the same on all nodes, stands for it."""
    pytest.importorskip("accelerate", reason="accelerate is not installed")
    jobs.world.nodes = 2
    for machine in range(2):
        argv = [sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes=2"]
        argv += [
            "--num_machines=2",
            f"--machine_rank={machine}",
            "--main_process_ip=gpu01",
            "--main_process_port=29555",
        ]
        argv += ["--rdzv_backend=rankpulse", "--mixed_precision=no", "--dynamo_backend=no"]
        jobs.launch([*argv, str(jobs.script), str(jobs.base)])
    jobs.until_round(1, 2)
    assert {join["label"] for join in jobs.world.heard("join")} == {"gpu01:29555"}
    jobs.world.order()
    jobs.until_round(2, 2)
    assert codes(jobs.finish()) == [0, 0]
