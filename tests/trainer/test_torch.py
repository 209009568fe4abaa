"""With torch: counting optimizer steps, tensors as losses, the worker server, and a torch that is not as we know it."""

import math
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rankpulse.core import slot
from rankpulse.trainer import interfaces, place
from rankpulse.trainer.plain import plain_float
from rankpulse.trainer.pulse import Pulse

torch = pytest.importorskip("torch")
ATTACH = "import os, sys, torch\nfrom rankpulse.trainer import attach\npulse = attach()\n"


class Counted:
    """A pulse that counts the optimizer steps of one test, through torch's own hook."""

    def __init__(self) -> None:
        self.memory = bytearray(slot.SLOT_SIZE)
        self.pulse = Pulse(self.memory)
        place.publish(self.memory, slot.pack_json({}, slot.IDENTITY_MAX))
        assert interfaces.count_optimizer_steps(torch, self.pulse.optimizer_stepped) == "ok"

    @property
    def step(self) -> int:
        return slot.read(lambda: bytes(self.memory)).pulse.step


@pytest.fixture
def counted() -> Iterator[Counted]:
    made = Counted()
    yield made
    made.pulse.forsake()


def trainable(kind: Any = None) -> tuple[Any, Any]:
    model = torch.nn.Linear(2, 1)
    return model, (kind or torch.optim.SGD)(model.parameters(), lr=0.1)


def backward(model: Any, scale: float = 1.0) -> None:
    (model(torch.ones(1, 2)).sum() * scale).backward()


def test_accumulated_gradients_count_by_optimizer_step(counted: Counted) -> None:
    model, optimizer = trainable()
    for batch in range(12):
        backward(model)
        if batch % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()
    assert counted.step == 3


@pytest.mark.parametrize("kind", ["SGD", "AdamW", "Adagrad"])
def test_optimizers_of_torch(counted: Counted, kind: str) -> None:
    model, optimizer = trainable(getattr(torch.optim, kind))
    for _ in range(3):
        backward(model)
        optimizer.step()
    assert counted.step == 3


def test_lbfgs_counts_a_step_once_however_often_it_evaluates(counted: Counted) -> None:
    model, optimizer = trainable(torch.optim.LBFGS)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = (model(torch.ones(1, 2)) ** 2).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    optimizer.step(closure)
    assert counted.step == 2


def test_two_optimizers_count_as_one(counted: Counted) -> None:
    pairs = [trainable(), trainable()]
    for _ in range(5):
        for model, optimizer in pairs:
            backward(model)
            optimizer.step()
    assert counted.step == 5


def test_a_recreated_optimizer_counts_on(counted: Counted) -> None:
    for _ in range(2):
        model, optimizer = trainable()
        for _ in range(3):
            backward(model)
            optimizer.step()
        del model, optimizer
    assert counted.step == 6


def test_steps_skipped_by_the_scaler_do_not_count(counted: Counted) -> None:
    model, optimizer = trainable()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    for scale in (1.0, math.inf, 1.0, math.inf):
        optimizer.zero_grad()
        scaler.scale(model(torch.ones(1, 2)).sum() * scale).backward()
        scaler.step(optimizer)
        scaler.update()
    assert counted.step == 2


def test_a_scheduler_does_not_hide_the_steps(counted: Counted) -> None:
    model, optimizer = trainable()
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    for _ in range(3):
        backward(model)
        optimizer.step()
        scheduler.step()
    assert counted.step == 3


def test_a_step_that_fails_does_not_count(counted: Counted) -> None:
    _, optimizer = trainable(torch.optim.LBFGS)
    with pytest.raises(ZeroDivisionError):
        optimizer.step(lambda: 1 / 0)
    assert counted.step == slot.NO_STEP


@pytest.mark.live
def test_a_compiled_optimizer_step_counts(tmp_path: Path) -> None:
    code = ATTACH + (
        "model = torch.nn.Linear(2, 1); optimizer = torch.optim.AdamW(model.parameters())\n"
        "step = torch.compile(optimizer.step, backend='eager')\n"
        "for _ in range(5): model(torch.ones(1, 2)).sum().backward(); step()\n"
        "print(pulse._step)\n"
    )
    env = {**os.environ, "RANKPULSE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.split() == ["5"]
    assert "monotonic_ns" not in done.stderr


def test_tensors_are_read_when_that_cannot_wait() -> None:
    assert plain_float(torch.tensor(0.5)) == 0.5
    assert plain_float(torch.tensor([0.5], requires_grad=True)) == 0.5
    assert plain_float(torch.tensor(0.5, dtype=torch.bfloat16)) == 0.5
    assert plain_float(torch.tensor(3)) == 3.0


@pytest.mark.parametrize("shape", [(2,), (0,), (1000, 1000)])
def test_tensors_of_many_elements_are_unknown(shape: tuple[int, ...]) -> None:
    assert math.isnan(plain_float(torch.zeros(shape)))


def test_tensors_elsewhere_are_never_asked() -> None:
    class Elsewhere(torch.Tensor):  # like every tensor of another library: not ours to judge
        def item(self) -> Any:
            raise AssertionError("waited")

        __float__ = __index__ = item

    tensor = torch.zeros(()).as_subclass(Elsewhere)
    memory = bytearray(slot.SLOT_SIZE)
    Pulse(memory).step(tensor, loss=tensor)
    assert math.isnan(plain_float(torch.zeros((), device="meta")))


@pytest.mark.live
def test_the_worker_server_answers_while_the_main_thread_is_busy(job: Any) -> None:
    running = job.start(ATTACH + "pulse.step(1); print('up', flush=True)\nsum(range(10**12))")
    assert running.stdout.readline() == "up\n"
    who = job.slot().identity
    assert who["capabilities"] == {"auto_step": "ok", "worker_server": "ok"}
    assert who["torch"] == torch.__version__
    assert b"200 OK" in post(who["server"], "ping")
    running.kill()


@pytest.mark.live
def test_the_process_ends_in_peace_while_its_server_is_asked_for_the_lock(job: Any) -> None:
    running = job.start(ATTACH + "pulse.step(1); print('up', flush=True); sys.stdin.readline()")
    assert running.stdout.readline() == "up\n"
    path = job.slot().identity["server"]
    asking = [pending(path, "dump_traceback") for _ in range(3)]
    running.stdin.write("\n")
    running.stdin.flush()
    assert running.wait(30) == 0
    assert job.slot().ending == {"kind": "exit"}
    assert not os.path.exists(path)
    for client in asking:
        client.close()


def test_the_end_waits_for_requests_under_way_and_for_nothing_else(tmp_path: Path) -> None:
    path = str(tmp_path / "x.sock")
    interfaces.let_server_finish(path, patience_s=60.0)
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as client:
        listener.bind(path)
        listener.listen()
        interfaces.let_server_finish(path, patience_s=60.0)
        client.connect(path)
        server, _ = listener.accept()
        threading.Timer(0.1, server.close).start()
        interfaces.let_server_finish(path, patience_s=60.0)
        assert server.fileno() == -1
        second = socket.socket(socket.AF_UNIX)
        second.connect(path)
        interfaces.let_server_finish(path, patience_s=0.05)  # one that never ends is not waited for
        second.close()


@pytest.mark.live
@pytest.mark.parametrize("end", ["sys.exit(0)", "os._exit(0)"])
def test_a_forked_child_outlives_the_server_it_inherits(job: Any, end: str) -> None:
    """Without care the server's destructor aborts in the child."""
    done = job.run(ATTACH + f"pid = os.fork()\nif pid == 0: {end}\nprint(os.waitpid(pid, 0)[1])")
    assert (done.code, done.out) == (0, "0\n")
    assert job.slot().ending == {"kind": "exit"}


@pytest.mark.live
def test_data_loader_workers_leave_the_slot_alone(job: Any, tmp_path: Path) -> None:
    script = tmp_path / "loading.py"
    script.write_text(
        ATTACH + "class Data(torch.utils.data.Dataset):\n"
        "    def __len__(self): return 8\n"
        "    def __getitem__(self, at):\n        pulse.step(999); return at\n"
        "def main():\n"
        "    for how in ('fork', 'spawn'):\n"
        "        loader = torch.utils.data.DataLoader(Data(), num_workers=1, multiprocessing_context=how)\n"
        "        for at in loader: pulse.step(int(at))\n"
        "if __name__ == '__main__': main()\n"
    )
    subprocess.run([sys.executable, str(script)], env=job.environ, check=True, timeout=120, capture_output=True)
    said = job.slot()
    assert (said.pulse.step, said.ending) == (7, {"kind": "exit"})


@pytest.mark.live
def test_a_path_too_long_for_a_socket_is_a_reason(job: Any) -> None:
    long = job.base / ("x" * 90)
    long.mkdir(parents=True)
    done = job.run(ATTACH + "pulse.step(3)", RANKPULSE_DIR=str(long))
    assert done.code == 0
    (path,) = long.glob("u*/*.slot")
    who = slot.read(path.read_bytes).identity
    assert "RANKPULSE_DIR" in who["capabilities"]["worker_server"]
    assert who["server"] == ""


WRONG = {
    "empty": "",
    "hook refuses": "register = None",
    "raises at import": "raise RuntimeError('CUDA driver too old')",
    "lies about its version": "__version__ = type('V', (), {'__str__': lambda self: 1 / 0})()",
}


@pytest.mark.parametrize("source", WRONG.values(), ids=list(WRONG))
@pytest.mark.parametrize("elastic", [True, False])
def test_another_torch_costs_capabilities_only(job: Any, tmp_path: Path, source: str, elastic: bool) -> None:
    package = tmp_path / "path" / "torch"
    (package / "optim").mkdir(parents=True)
    (package / "__init__.py").write_text(source)
    (package / "optim" / "__init__.py").write_text("")
    (package / "optim" / "optimizer.py").write_text("def register_optimizer_step_post_hook(): pass" if source else "")
    extra = {"TORCHELASTIC_RUN_ID": "x"} if elastic else {}
    code = "try:\n    import torch\nexcept Exception: pass\n" if not elastic else ""
    code += "from rankpulse.trainer import attach\npulse = attach(); pulse.step(3)"
    done = job.run(code, PYTHONPATH=str(package.parent), **extra)
    assert (done.code, done.err) == (0, "")
    said = job.slot()
    assert said.pulse.step == 3
    assert all(reason != "ok" for reason in said.identity["capabilities"].values())


TRAIN = """
import os, sys, time, torch
import torch.distributed as dist
from rankpulse.trainer import attach

pulse = attach()
print("attempt", os.environ["TORCHELASTIC_RESTART_COUNT"], os.getpid(), flush=True)
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(20):
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
with pulse.phase("checkpoint"):
    dist.barrier()
if sys.argv[1] == "explicit":
    pulse.step(100, loss=0.25)
dist.destroy_process_group()
pulse.close()
"""


def torchrun(job: Any, script: Path, *args: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    """Runs `script` with the last of `args`; the others are torchrun's."""
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--rdzv-backend=c10d",
            "--rdzv-endpoint=localhost:0",
            "--nproc-per-node=2",
            *args[:-1],
            str(script),
            args[-1],
        ],
        env={**job.environ, "OMP_NUM_THREADS": "1", **environ},
        capture_output=True,
        text=True,
        timeout=180,
    )


@pytest.mark.live
@pytest.mark.parametrize("how", ["auto", "explicit"])
def test_a_job_of_two_ranks_under_torchrun(job: Any, tmp_path: Path, how: str) -> None:
    script = tmp_path / "train.py"
    script.write_text(TRAIN)
    done = torchrun(job, script, "--max-restarts=2", "--rdzv-id=a job, ☃ 1", how)
    assert done.returncode == 0, done.stderr
    begun = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("attempt ")]
    attempts = 1 + max(int(attempt) for attempt, _ in begun)  # gloo may lose a connection by itself on a busy machine
    assert done.stderr.count("rankpulse: restarts will fail") == attempts, f"not by local rank 0 only:\n{done.stderr}"
    pids = {int(pid) for attempt, pid in begun if int(attempt) == attempts - 1}
    said = sorted((one for one in job.slots() if one.identity["pid"] in pids), key=lambda one: one.identity["rank"])
    assert [one.identity["rank"] for one in said] == [0, 1]
    for one in said:
        assert one.ending == {"kind": "closed"}
        assert one.pulse[:2] == ((20, 0) if how == "auto" else (100, 100))
        assert one.identity["source"] == "torchelastic"
        assert (one.identity["run_id"], one.identity["world_size"], one.identity["elastic"]) == ("a job, ☃ 1", 2, True)
        assert "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1" in one.identity["capabilities"]["restartable"]


@pytest.mark.live
def test_an_error_under_record_is_told(job: Any, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        ATTACH + "from torch.distributed.elastic.multiprocessing.errors import record\n"
        "@record\ndef main():\n    pulse.step(2)\n    raise RuntimeError('CUDA error: nothing here')\nmain()\n"
    )
    done = torchrun(job, script, "--max-restarts=0", "x")
    assert done.returncode != 0
    endings = [one.ending for one in job.slots()]
    assert {"kind": "exception", "error": "RuntimeError", "message": "CUDA error: nothing here"} in endings


def pending(path: str, handler: str) -> socket.socket:
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(10)
    client.connect(path)
    client.sendall(
        f"POST /handler/{handler} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode()
    )
    return client


def post(path: str, handler: str) -> bytes:
    with pending(path, handler) as client:
        return b"".join(iter(lambda: client.recv(4096), b""))
