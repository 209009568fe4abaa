"""Last words of real ranks, over gloo: killed, stopped, in the middle of an update, terminated, without replicas.

What was saved is compared bit for bit with what each rank held at the end of that step.
"""

import http.client
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ckpt_worlds import Net, Ranks, bits, build, state_bits, train, world
from support import eventually_sync
from torch.optim.optimizer import register_optimizer_step_pre_hook

from rankpulse.core import slot
from rankpulse.trainer import attach, attaching, interfaces
from rankpulse.trainer.checkpoint import CheckpointManager, reader
from rankpulse.trainer.data import GlobalBatches

pytestmark = pytest.mark.live
VICTIM = 2
LAST = 7  # the step that all have done when it happens; one of step 5 was saved


class Job:
    """What a rank trains, and where it writes down what it held at the end of each step."""

    def __init__(self, directory: Path, rank: int, kind: str, **settings: Any) -> None:
        torch.manual_seed(1)
        self.rank, self.directory = rank, directory
        self.model, self.optimizer = hsdp() if kind == "hsdp" else build(kind, 1)
        self.scheduler = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.9)
        self.data = GlobalBatches(64, 8, rank=rank, world_size=dist.get_world_size())
        self.manager = CheckpointManager(
            directory / "ckpt", model=self.model, optimizer=self.optimizer, scheduler=self.scheduler,
            extra={"data": self.data}, every_steps=5, last_words=True, last_words_s=20.0, **settings,
        )  # fmt: skip

    def held(self) -> dict[str, Any]:
        found: dict[str, Any] = state_bits(self.model, self.optimizer)
        return {
            **found, "rng": bits(torch.get_rng_state()), "lr": self.scheduler.state_dict()["_last_lr"],
            "data": self.data.state_dict(),
        }  # fmt: skip

    def run(self, before: Callable[[int], object], steps: int = 1000) -> None:
        """before: called when the step before this one is done."""
        dist.barrier()
        torch.manual_seed(self.rank)
        batches = iter(self.data)
        for step in range(1, steps + 1):
            before(step)
            train(self.model, self.optimizer, self.scheduler)
            next(batches, None)
            self.data.consumed(min(1, self.data._drawn))
            write(self.directory / f"held-{self.rank}-{step}", self.held())
            self.manager.step(step)
            write(self.directory / f"done-{self.rank}-{step}", {})


def hsdp() -> tuple[Any, Any]:
    """Two replicas, each sharded over two ranks."""
    net = Net(half=torch.float32)
    mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicas", "shards"))
    torch.distributed.fsdp.fully_shard(net, mesh=mesh)
    return net, torch.optim.AdamW(net.parameters(), lr=0.01)


def write(path: Path, value: Any) -> None:
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(value))
    temporary.rename(path)


def life(directory: Path, kind: str, before: Callable[[int, int], object]) -> Callable[[int], None]:
    """before(rank, step): when the step before is done. An uncaught error takes the way that it would in a program."""

    def work(rank: int) -> None:
        attach()
        write(directory / f"server-{rank}", attaching._Process.socket)
        job = Job(directory, rank, kind)
        try:
            job.run(lambda step: before(rank, step))
        except BaseException:
            sys.excepthook(*sys.exc_info())
            interfaces.let_server_finish(attaching._Process.socket)  # as at the end of the interpreter
        os._exit(7)

    return work


def ask(directory: Path, ranks: Sequence[int], **question: Any) -> dict[int, dict[str, Any]]:
    """The agent's part: all at the same time."""
    answers: dict[int, dict[str, Any]] = {}

    def one(rank: int) -> None:
        line = http.client.HTTPConnection("localhost")
        line.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        line.sock.settimeout(40.0)
        line.sock.connect(json.loads((directory / f"server-{rank}").read_text()))
        line.request("POST", "/handler/rankpulse_last_words", json.dumps({"v": 1, "within_s": 20.0, **question}))
        answers[rank] = json.loads(line.getresponse().read())

    threads = [threading.Thread(target=one, args=(rank,)) for rank in ranks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers.keys() == set(ranks)
    return answers


def done(directory: Path, ranks: Sequence[int], step: int) -> None:
    eventually_sync(
        lambda: all((directory / f"done-{rank}-{step}").exists() for rank in ranks), 60.0, f"step {step} of {ranks}"
    )


def ended(pid: int) -> bool:
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None


def stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def resumed(directory: Path, kind: str, size: int) -> list[Any]:
    """What a new life loads: (step, kind, what each rank then holds)."""

    def work(rank: int) -> Any:
        job = Job(directory, rank, kind)
        found = job.manager.load()
        assert found is not None
        held = job.held()
        job.manager.close()
        return [found.step, found.kind, held]

    return world(size, work, directory)


def assert_as_it_was(directory: Path, size: int, step: int, found: Sequence[Any]) -> tuple[int, ...]:
    """The ranks that were absent: they hold what the lowest survivor had, but draw other random numbers."""
    manifest = reader.scan(str(directory / "ckpt")).committed[0].manifest
    assert manifest is not None
    first = next(rank for rank in range(size) if rank not in manifest.absent)
    for rank in range(size):
        assert found[rank][:2] == [step, "last_words"]
        gone = rank in manifest.absent
        was, now = json.loads((directory / f"held-{first if gone else rank}-{step}").read_text()), found[rank][2]
        if gone:
            assert now.pop("rng") != was.pop("rng"), "no two ranks draw the same"
        assert now == was, {name for name in was if was[name] != now.get(name)}
    return manifest.absent


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"RANKPULSE_DIR": str(tmp_path / "run")}


def kill_at(number: int, at: int = LAST + 1) -> Callable[[int, int], object]:
    return lambda rank, step: os.kill(os.getpid(), number) if (rank, step) == (VICTIM, at) else None


def test_one_is_killed_and_nobody_asks(tmp_path: Path, environ: dict[str, str]) -> None:
    ranks = Ranks(4, life(tmp_path, "ddp", kill_at(signal.SIGKILL)), tmp_path, environ)
    ranks.results(90.0, whatever_came=True)
    absent = assert_as_it_was(tmp_path, 4, LAST, resumed(tmp_path, "ddp", 4))
    assert VICTIM in absent, "and perhaps who heard of the death too late, through the end of others"


@pytest.mark.parametrize(("kind", "number"), [("ddp", signal.SIGSTOP), ("hsdp", signal.SIGKILL)])
def test_one_is_gone_and_the_agent_asks_the_others(
    tmp_path: Path, environ: dict[str, str], kind: str, number: signal.Signals
) -> None:
    ranks = Ranks(4, life(tmp_path, kind, kill_at(number)), tmp_path, environ)
    gone = stopped if number == signal.SIGSTOP else ended
    try:
        eventually_sync(lambda: gone(ranks.pids[VICTIM]), 60.0, "the end of one")
        done(tmp_path, (0, 1, 3), LAST)
        answers = ask(tmp_path, (0, 1, 3), absent=[VICTIM])
        again = ask(tmp_path, (0,), absent=[VICTIM]) if number == signal.SIGSTOP else {0: answers[0]}
    finally:
        ranks.kill(range(4))
    ranks.results(whatever_came=True)
    assert {(one["outcome"], one["step"], tuple(one["absent"])) for one in answers.values()} == {("saved", LAST, (2,))}
    assert again[0] == answers[0]
    assert assert_as_it_was(tmp_path, 4, LAST, resumed(tmp_path, kind, 4)) == (VICTIM,)


def test_killed_in_the_middle_of_an_update_it_is_refused(tmp_path: Path, environ: dict[str, str]) -> None:
    def in_an_update(rank: int, step: int) -> None:
        if (rank, step) == (VICTIM, LAST + 1):
            register_optimizer_step_pre_hook(lambda *_: os.kill(os.getpid(), signal.SIGKILL))

    ranks = Ranks(4, life(tmp_path, "ddp", in_an_update), tmp_path, environ)
    try:
        eventually_sync(lambda: ended(ranks.pids[VICTIM]), 60.0, "the death")
        server = json.loads((tmp_path / f"server-{VICTIM}").read_text())
        data = Path(server.removesuffix(".sock") + ".slot").read_bytes()
        assert slot.read(lambda: data).updating, "what the agent says of it"
        answers = ask(tmp_path, (0, 1, 3), absent=[VICTIM], torn=[VICTIM])
    finally:
        ranks.kill(range(4))
    ranks.results(whatever_came=True)
    for answer in answers.values():
        assert answer["outcome"] == "refused"
        assert f"rank {VICTIM} was in the middle of an update" in answer["reason"]
    assert [one[:2] for one in resumed(tmp_path, "ddp", 4)] == [[5, "consolidated"]] * 4


def test_all_are_terminated_and_meet_at_one_step(tmp_path: Path, environ: dict[str, str]) -> None:
    ranks = Ranks(4, life(tmp_path, "ddp", lambda rank, step: None), tmp_path, environ)
    done(tmp_path, range(4), LAST)
    ranks.kill(range(4), signal.SIGTERM)
    statuses = {os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT).si_status for pid in ranks.pids}  # type: ignore[union-attr]
    ranks.results(whatever_came=True)
    assert statuses == {signal.SIGTERM}, "they end as they would have"
    found = resumed(tmp_path, "ddp", 4)
    newest = reader.scan(str(tmp_path / "ckpt")).committed[0]
    assert newest.step >= LAST
    if newest.step % 5:  # else a save was just over
        assert assert_as_it_was(tmp_path, 4, newest.step, found) == ()


def test_sharded_without_replicas_it_is_refused_and_nothing_has_changed(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    ranks = Ranks(4, life(tmp_path, "fsdp", kill_at(signal.SIGKILL)), tmp_path, environ)
    try:
        eventually_sync(lambda: ended(ranks.pids[VICTIM]), 60.0, "the death")
        before = sorted(path.name for path in (tmp_path / "ckpt").iterdir())
        answers = ask(tmp_path, (0, 1, 3), absent=[VICTIM])
    finally:
        ranks.kill(range(4))
    ranks.results(whatever_came=True)
    for answer in answers.values():
        assert answer["outcome"] == "refused"
        assert answer["reason"].startswith("nobody who is left holds all of model.first.weight (rank 2)")
    assert sorted(path.name for path in (tmp_path / "ckpt").iterdir()) == before
    assert [one[:2] for one in resumed(tmp_path, "fsdp", 4)] == [[5, "consolidated"]] * 4
