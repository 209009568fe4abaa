"""The job of the drills: a small transformer on generated text, DDP over gloo, plain checkpoints. Run it by torchrun.

An ordinary training script: all it knows of rankpulse is `attach` and what it calls on the pulse. Its checkpoints are
an .npz per file (no pickle), renamed into place, so that a crash in the middle of a save leaves the last one whole.
"""

import argparse
import contextlib
import ctypes
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

VOCABULARY, WIDTH, LENGTH, BATCH = 64, 48, 32, 8


class TinyTransformer(nn.Module):
    """Two layers over characters; enough for a loss that falls."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.place = nn.Parameter(torch.zeros(LENGTH, WIDTH))
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(LENGTH)
        return self.head(self.layers(self.embed(tokens) + self.place, mask=mask, is_causal=True))


def batch_of(step: int, rank: int) -> torch.Tensor:
    """Generated text: a noisy walk over the alphabet, the same for the same step and rank."""
    generator = torch.Generator().manual_seed(step * 1009 + rank)
    start = torch.randint(VOCABULARY, (BATCH, 1), generator=generator)
    noise = torch.randint(2, (BATCH, LENGTH + 1), generator=generator)
    return (start + torch.arange(LENGTH + 1) * 3 + noise) % VOCABULARY


def save(directory: Path, step: int, model: nn.Module) -> None:
    """The parameters after `step`, whole or not at all."""
    temporary = directory / f".{step}.tmp.npz"
    np.savez(temporary, **{name: tensor.detach().numpy() for name, tensor in model.state_dict().items()})
    with open(temporary, "rb") as file:
        os.fsync(file.fileno())
    temporary.replace(directory / f"{step:08d}.npz")
    for old in sorted(directory.glob("[0-9]*.npz"))[:-3]:
        old.unlink()


def load(directory: Path, model: nn.Module) -> int:
    """Restore the newest checkpoint; returns its step, 0 when there is none."""
    newest = max(directory.glob("[0-9]*.npz"), default=None)
    if newest is None:
        return 0
    with np.load(newest, allow_pickle=False) as arrays:
        model.load_state_dict({name: torch.from_numpy(arrays[name]) for name in arrays.files})
    return int(newest.stem)


def note(path: Path | None, **what: Any) -> None:
    if path is not None:
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps({"at": time.time(), **what}) + "\n")


def launched() -> dict[str, int]:
    """What torchelastic and the rendezvous say: restarts burned on this node, and the round (-1: not told)."""
    names = {"burned": "TORCHELASTIC_RESTART_COUNT", "round": "RANKPULSE_ROUND"}
    return {name: int(os.environ.get(variable, "-1")) for name, variable in names.items()}


def die_with_torchrun() -> None:
    """Workers have sessions of their own: a drill that is killed must not leave them training."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def attach_pulse(bare: bool, ft: bool = False) -> Any:
    if ft:
        return FtPulse()
    if bare:
        return None
    from rankpulse.trainer import attach

    return attach()


class FtPulse:
    """The same job as a user of nvidia-resiliency-ext writes it: a heartbeat per step, timeouts learned from them."""

    LEARNED_STEPS = 20

    def __init__(self) -> None:
        from nvidia_resiliency_ext.fault_tolerance import RankMonitorClient

        self._client, self._steps = RankMonitorClient(), 0

    def begin(self) -> None:
        """Its ranks agree on the timeouts through the process group: after that is set up."""
        self._client.init_workload_monitoring()

    def step(self, step: int, loss: float | None = None) -> None:
        if self._steps == 0:
            self.begin()
        self._steps += 1
        self._client.send_heartbeat()
        if self._steps == self.LEARNED_STEPS:
            self._client.calculate_and_set_hb_timeouts()

    def phase(self, name: str) -> Any:
        return contextlib.nullcontext()

    def close(self) -> None:
        self._client.shutdown_workload_monitoring()


def train(args: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    pulse = attach_pulse(args.bare, args.nvrx)
    dist.init_process_group("gloo")
    rank, directory = dist.get_rank(), Path(args.checkpoints)
    model = TinyTransformer()
    done = load(directory, model)
    trained = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(trained.parameters(), lr=3e-3)
    note(args.events, event="resumed", rank=rank, step=done, pid=os.getpid(), **launched())
    for step in range(done + 1, args.steps + 1):
        began = time.monotonic()
        tokens = batch_of(step, rank)
        logits = trained(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.reshape(-1, VOCABULARY), tokens[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if pulse is not None:
            pulse.step(step, loss=loss.item())
        if step == done + 1:
            note(args.events, event="first_step", rank=rank, step=step)
        if args.fail_at == step and rank == 0:
            raise ValueError(f"step {step} cannot be computed, whoever tries")
        if step % args.save_every == 0:
            checkpoint(pulse, directory, step, model, rank)
        time.sleep(
            max(args.step_s - (time.monotonic() - began), 0.0)
        )  # stands in for the GPU: leaves the CPU to others
    note(args.events, event="finished", rank=rank, step=args.steps)
    if pulse is not None:
        pulse.close()
    dist.barrier()
    dist.destroy_process_group()


def checkpoint(pulse: Any, directory: Path, step: int, model: nn.Module, rank: int) -> None:
    if pulse is None:
        return _save_together(directory, step, model, rank)
    with pulse.phase("checkpoint"):
        return _save_together(directory, step, model, rank)


def _save_together(directory: Path, step: int, model: nn.Module, rank: int) -> None:
    if rank == 0:
        save(directory, step, model)
    dist.barrier()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoints", required=True, help="directory of the checkpoints")
    parser.add_argument("--events", type=Path, default=None, help="file for one JSON line per event")
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--save-every", type=int, default=10)
    parser.add_argument("--step-s", type=float, default=0.15, help="seconds that a step should take at least")
    parser.add_argument("--fail-at", type=int, default=0, help="rank 0 raises at this step, in every round")
    parser.add_argument("--bare", action="store_true", help="without rankpulse, for reference")
    parser.add_argument("--nvrx", action="store_true", help="with nvidia-resiliency-ext instead, for comparison")
    args = parser.parse_args()
    die_with_torchrun()
    Path(args.checkpoints).mkdir(parents=True, exist_ok=True)
    train(args)


if __name__ == "__main__":
    main()
