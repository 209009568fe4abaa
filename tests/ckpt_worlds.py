"""Worlds of real ranks for the tests of checkpoints: forked, so that torch is imported once, over gloo on this machine.

A rank is a function of its number; what it returns (JSON) comes back. A parent that has run torch's operations on one
thread only can be forked.
"""

import ctypes
import faulthandler
import json
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import torch
import torch._dynamo
import torch.distributed as dist
import torch.distributed.fsdp
import torch.distributed.optim
from support import fork
from torch import nn

from rankpulse.trainer.checkpoint import manager as _manager  # noqa: F401 (imported before the fork)

torch.set_num_threads(1)


class Ranks:
    """The forked ranks of one world. `work(rank)` runs in each, with torch.distributed initialised."""

    def __init__(
        self, size: int, work: Callable[[int], Any], directory: Path, environ: dict[str, str] | None = None
    ) -> None:
        self._pipes: dict[int, int] = {}
        self._stacks = {rank: directory / f"stacks-{os.urandom(6).hex()}-{rank}" for rank in range(size)}
        init = directory / f"init-{os.urandom(6).hex()}"
        sys.stdout.flush()
        sys.stderr.flush()
        self.pids = [self._fork(rank, size, work, init, environ or {}) for rank in range(size)]

    def _fork(self, rank: int, size: int, work: Callable[[int], Any], init: Path, environ: dict[str, str]) -> int:
        out, into = os.pipe()
        pid = fork()
        if pid == 0:
            os.close(out)
            faulthandler.register(signal.SIGUSR1, file=self._stacks[rank].open("w"), all_threads=True)
            _rank(rank, size, work, init, environ, into)
        os.close(into)
        self._pipes[rank] = out
        return pid

    def kill(self, ranks: Sequence[int], number: int = signal.SIGKILL) -> None:
        for rank in ranks:
            os.kill(self.pids[rank], number)

    def _where(self, ranks: Sequence[int]) -> str:
        """What ranks that do not end are doing: the Python stacks of their threads, as far as they can tell."""
        for rank in ranks:
            os.kill(self.pids[rank], signal.SIGUSR1)
        deadline = time.monotonic() + 5.0
        while time.monotonic() < deadline and not all("File" in self._stacks[rank].read_text() for rank in ranks):
            select.select([], [], [], 0.1)
        return "\n".join(f"rank {rank}:\n{self._stacks[rank].read_text()[:6000]}" for rank in ranks)

    def results(self, timeout_s: float = 60.0, *, whatever_came: bool = False) -> list[Any]:
        """What the ranks returned, None for those that were killed. Fails when one does not end, or raised
        (unless `whatever_came`: a rank whose peer has died may)."""
        deadline = time.monotonic() + timeout_s
        said = dict.fromkeys(self._pipes, b"")
        while self._pipes and time.monotonic() < deadline:
            ready, _, _ = select.select(list(self._pipes.values()), [], [], 0.5)
            for rank, pipe in list(self._pipes.items()):
                if pipe in ready:
                    data = os.read(pipe, 1 << 16)
                    said[rank] += data
                    if not data:
                        os.close(self._pipes.pop(rank))
        late = list(self._pipes)
        where = self._where(late)
        for rank in late:
            os.kill(self.pids[rank], signal.SIGKILL)
            os.close(self._pipes.pop(rank))
        statuses = [os.waitpid(pid, 0)[1] for pid in self.pids]
        assert not late, f"ranks {late} did not end within {timeout_s:g} s; they were at\n{where}"
        if whatever_came:
            return []
        failed = [rank for rank, status in enumerate(statuses) if os.WIFEXITED(status) and os.WEXITSTATUS(status)]
        assert not failed, "\n".join(f"rank {rank}: {said[rank].decode()}" for rank in failed)
        return [json.loads(data) if data else None for data in said.values()]


def world(size: int, work: Callable[[int], Any], directory: Path, **environ: str) -> list[Any]:
    """What `work(rank)` returns on each of `size` ranks."""
    return Ranks(size, work, directory, environ).results()


def _rank(rank: int, size: int, work: Callable[[int], Any], init: Path, environ: dict[str, str], into: int) -> NoReturn:
    try:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: not longer than the test
        os.environ.update(environ, GLOO_SOCKET_IFNAME="lo")
        torch.set_num_threads(1)
        if size > 1:
            dist.init_process_group("gloo", init_method=f"file://{init}", rank=rank, world_size=size)
        said = json.dumps(work(rank))
        os.write(into, said.encode())
        if size > 1:
            dist.barrier()  # a rank that ends breaks off what others are still about
            dist.destroy_process_group()
    except BaseException:
        os.write(into, traceback.format_exc()[-8000:].encode())
        os._exit(1)
    os._exit(0)


class Net(nn.Module):
    """A small net of several types, with running statistics, dropout and a tied weight."""

    def __init__(self, width: int = 6, half: torch.dtype = torch.bfloat16) -> None:
        super().__init__()
        self.first = nn.Linear(8, width)
        self.norm = nn.BatchNorm1d(width)
        self.drop = nn.Dropout(0.25)
        self.middle = nn.Linear(width, 5, dtype=half)
        self.last = nn.Linear(5, 8, bias=False)
        self.tied = self.last
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.drop(torch.relu(self.norm(self.first(x))))
        return self.last(self.middle(hidden.to(self.middle.weight.dtype)).float())


def train(model: Any, optimizer: Any, scheduler: Any = None) -> float:
    """One step on random data of this rank."""
    loss = (model(torch.randn(4, 8)) - 1).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if scheduler is not None:
        scheduler.step()
    return float(loss.detach())


def bits(tensor: Any) -> str:
    """The bytes of a tensor (the whole of it, also of a DTensor), as hex."""
    whole = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return bytes(whole.detach().cpu().contiguous().reshape(-1).view(torch.uint8).tolist()).hex()


def state_bits(model: Any, optimizer: Any) -> dict[str, str]:
    """All of a model and of an optimizer (its part, of a ZeRO one), as it is."""
    found = {name.removeprefix("module."): bits(tensor) for name, tensor in model.state_dict().items()}
    names = {parameter: name.removeprefix("module.") for name, parameter in model.named_parameters()}
    for parameter, state in getattr(optimizer, "optim", optimizer).state.items():
        for key, value in state.items():
            found[f"{names[parameter]}/{key}"] = bits(value) if isinstance(value, torch.Tensor) else repr(value)
    return found


def build(kind: str, seed: int, half: torch.dtype = torch.float32) -> tuple[Any, Any]:
    """A model and its optimizer as "ddp", "zero" (DDP with a ZeroRedundancyOptimizer), "fsdp" (FSDP2) or "one"."""
    torch.manual_seed(seed)
    net = Net(half=half)
    if kind == "fsdp":
        mesh = dist.init_device_mesh("cpu", (dist.get_world_size(),))
        torch.distributed.fsdp.fully_shard(net.middle, mesh=mesh)
        torch.distributed.fsdp.fully_shard(net, mesh=mesh)
        return net, torch.optim.AdamW(net.parameters(), lr=0.01)
    model = nn.parallel.DistributedDataParallel(net) if kind != "one" else net
    if kind == "zero":
        zero = torch.distributed.optim.ZeroRedundancyOptimizer
        return model, zero(model.parameters(), torch.optim.AdamW, lr=0.01)
    return model, torch.optim.AdamW(model.parameters(), lr=0.01)
