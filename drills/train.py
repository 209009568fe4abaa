"""The job of the drills: a small transformer on generated text, DDP over gloo. Run it by torchrun.

An ordinary training script: all it knows of rankpulse is `attach`, what it calls on the pulse, and its checkpoints. The
rest is for the drills: what it notes down, so that they can tell what it did, and how it runs without rankpulse.
"""

import argparse
import ctypes
import json
import math
import os
import signal
import time
from pathlib import Path
from typing import Any, TextIO

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from rankpulse.drills import plain

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


def loss_of(model: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    logits = model(tokens[:, :-1])
    return nn.functional.cross_entropy(logits.reshape(-1, VOCABULARY), tokens[:, 1:].reshape(-1))


def settle(model: nn.Module) -> None:
    """A pass that is thrown away, before anything is loaded: from then on a resumed run equals one without a restart.

    DDP cuts its buckets anew after its first backward, and with them the order in which three ranks or more add up
    their gradients. Without this the first step of every round would differ in its last bits.
    """
    loss_of(model, batch_of(0, dist.get_rank())).backward()
    model.zero_grad()


def attached(args: argparse.Namespace) -> Any:
    """The pulse; in a comparison, what others have for one."""
    if args.nvrx:
        return plain.FtPulse()
    if args.bare:
        return plain.NoPulse()
    from rankpulse.trainer import attach

    return attach()


def checkpoints_of(args: argparse.Namespace, model: nn.Module, optimizer: torch.optim.Optimizer) -> Any:
    """The checkpoints; in a comparison, what scripts have that know nothing of rankpulse."""
    if args.bare or args.nvrx:
        return plain.PlainCheckpoints(args.checkpoints, model=model, optimizer=optimizer, every_steps=args.save_every)
    from rankpulse.trainer.checkpoint import CheckpointManager

    return CheckpointManager(
        args.checkpoints, model=model, optimizer=optimizer, mode="sharded", every_steps=args.save_every, keep_last=3,
        allow_reshard=args.reshard,
        last_words=args.last_words,
    )  # fmt: skip


def guard_of(args: argparse.Namespace, model: nn.Module) -> Any:
    if not args.guard_every:
        return None
    from rankpulse.trainer.guard import ReplicaGuard

    return ReplicaGuard(model, every_steps=args.guard_every)


def flip(model: nn.Module) -> None:
    """One bit of one number in a parameter, as bad memory does it. Not the last one: rounding may undo that."""
    with torch.no_grad():
        next(model.parameters()).view(-1)[:1].view(torch.int32).bitwise_xor_(1 << 20)


def train(args: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    pulse = attached(args)
    dist.init_process_group("gloo")
    notes = Notes(args, dist.get_rank())
    model = DistributedDataParallel(TinyTransformer())
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    checkpoints = checkpoints_of(args, model, optimizer)
    settle(model)
    guard = guard_of(args, model)
    resumed = checkpoints.load()
    done = resumed.step if resumed else 0
    notes.event("resumed", step=done, pid=os.getpid(), **launched(), **about(resumed))
    for step in range(done + 1, args.steps + 1):
        began = time.monotonic()
        loss = loss_of(model, batch_of(step, dist.get_rank()))
        if args.nan_at == step and dist.get_rank() == 0 and not 0 < args.nan_rounds < launched()["round"]:
            notes.event("nan", step=step)
            loss = loss * math.nan  # as bad data does: its gradients spread it over all ranks
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if args.flip_at == step and dist.get_rank() == args.flip_rank and launched()["round"] <= 1:
            flip(model)
            notes.event("flipped", step=step)
        if guard is not None:
            guard.step(step)
        pulse.step(step, loss=loss.item())
        notes.loss(step, loss.item())
        if step == done + 1:
            notes.event("first_step", step=step)
        if args.fail_at == step and dist.get_rank() == 0:
            notes.event("fails", step=step)
            raise ValueError(f"step {step} cannot be computed, whoever tries")
        checkpoints.step(step)
        # stands in for the GPU: leaves the CPU to others
        time.sleep(max(args.step_s - (time.monotonic() - began), 0.0))
    notes.event("finished", step=args.steps)
    checkpoints.close()
    pulse.close()
    dist.barrier()
    dist.destroy_process_group()


class Notes:
    """What the drills read: one JSON line per event, and one per step and rank with its loss, in files of all ranks.

    A line is one write to a file opened for appending: a kill leaves whole lines, and those of four ranks do not mix.
    """

    def __init__(self, args: argparse.Namespace, rank: int) -> None:
        self._rank, self._round = rank, launched()["round"]
        self._events, self._losses = _append(args.events), _append(args.losses)

    def event(self, event: str, **what: Any) -> None:
        _line(self._events, {"at": time.time(), "event": event, "rank": self._rank, **what})

    def loss(self, step: int, loss: float) -> None:
        """`loss` exactly: a float32 goes through JSON unchanged."""
        _line(self._losses, {"step": step, "round": self._round, "rank": self._rank, "loss": loss})


def _append(path: Path | None) -> TextIO | None:
    return None if path is None else open(path, "a", encoding="utf-8", buffering=1)


def _line(file: TextIO | None, what: dict[str, Any]) -> None:
    if file is not None:
        file.write(json.dumps(what) + "\n")


def launched() -> dict[str, int]:
    """What torchelastic and the rendezvous say: restarts burned on this node, and the round (-1: not told)."""
    names = {"burned": "TORCHELASTIC_RESTART_COUNT", "round": "RANKPULSE_ROUND"}
    return {name: int(os.environ.get(variable, "-1")) for name, variable in names.items()}


def about(resumed: Any) -> dict[str, Any]:
    """Of which checkpoint, and what was verified of it: nothing by a script without rankpulse."""
    if resumed is None or not hasattr(resumed, "verify_s"):
        return {}
    skipped, times = [str(one) for one in resumed.skipped], {"load_s": resumed.load_s, "verify_s": resumed.verify_s}
    return {"checkpoint": str(resumed.path), "skipped": skipped, **times}


def die_with_torchrun() -> None:
    """Workers have sessions of their own: a drill that is killed must not leave them training."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoints", required=True, help="directory of the checkpoints")
    parser.add_argument("--events", type=Path, default=None, help="file for one JSON line per event")
    parser.add_argument("--losses", type=Path, default=None, help="file for one JSON line per step and rank")
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--save-every", type=int, default=10)
    parser.add_argument("--reshard", action="store_true", help="go on with another number of ranks, too")
    parser.add_argument("--last-words", action="store_true", help="survivors of a fault save what they hold")
    parser.add_argument("--step-s", type=float, default=0.15, help="seconds that a step should take at least")
    parser.add_argument("--fail-at", type=int, default=0, help="rank 0 raises at this step, in every round")
    parser.add_argument("--nan-at", type=int, default=0, help="the loss of rank 0 is NaN at this step")
    parser.add_argument("--nan-rounds", type=int, default=0, help="only in so many rounds, 0: in every one")
    parser.add_argument("--guard-every", type=int, default=0, help="replicas are compared every so many steps")
    parser.add_argument("--flip-at", type=int, default=0, help="after this step a bit of a parameter flips, once")
    parser.add_argument("--flip-rank", type=int, default=0, help="on this rank")
    parser.add_argument("--bare", action="store_true", help="without rankpulse, for reference")
    parser.add_argument("--nvrx", action="store_true", help="with nvidia-resiliency-ext instead, for comparison")
    args = parser.parse_args()
    die_with_torchrun()
    Path(args.checkpoints).mkdir(parents=True, exist_ok=True)
    train(args)


if __name__ == "__main__":
    main()
