"""The drills' job without rankpulse: what others have for a pulse and for checkpoints."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

KEEP_LAST = 3


@dataclass(frozen=True)
class PlainResumed:
    """Where the job goes on: after `step`, whose checkpoint is the file `path`."""

    step: int
    path: str


class NoPulse:
    """Nobody watches."""

    def step(self, step: int, loss: float | None = None) -> None:
        pass

    def close(self) -> None:
        pass


class FtPulse(NoPulse):
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

    def close(self) -> None:
        self._client.shutdown_workload_monitoring()


class PlainCheckpoints:
    """As little of `CheckpointManager` as the training script calls. Every rank calls it, at the same steps.

    Rank 0 writes parameters and optimizer into one .npz (no pickle), renamed into place; nothing is verified.
    """

    def __init__(self, directory: str, *, model: Any, optimizer: Any, every_steps: int) -> None:
        self._directory, self._model, self._optimizer = Path(directory), model, optimizer
        self._every_steps = every_steps

    def load(self) -> PlainResumed | None:
        """Put the newest file into model and optimizer; None when there is none."""
        import numpy as np
        import torch

        newest = max(self._directory.glob("[0-9]*.npz"), default=None)
        if newest is None:
            return None
        with np.load(newest, allow_pickle=False) as arrays:
            found = {name: torch.from_numpy(arrays[name].copy()) for name in arrays.files}
        state = self._optimizer.state_dict()
        state["state"] = {}
        for name, tensor in found.items():
            kind, _, rest = name.partition(":")
            if kind == "optimizer":
                number, _, key = rest.partition(":")
                state["state"].setdefault(int(number), {})[key] = tensor
        self._model.load_state_dict({n.partition(":")[2]: t for n, t in found.items() if n.startswith("model:")})
        self._optimizer.load_state_dict(state)
        return PlainResumed(int(newest.stem), str(newest))

    def step(self, step: int) -> None:
        """Save after `step` when that is due. Nobody goes on before it is written."""
        if step % self._every_steps:
            return
        import torch.distributed as dist

        if dist.get_rank() == 0:
            self._save(step)
        dist.barrier()

    def close(self) -> None:
        pass

    def _save(self, step: int) -> None:
        import numpy as np

        temporary = self._directory / f".{step}.tmp.npz"
        np.savez(temporary, **dict(self._arrays()))
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        temporary.replace(self._directory / f"{step:08d}.npz")
        for old in sorted(self._directory.glob("[0-9]*.npz"))[:-KEEP_LAST]:
            old.unlink()

    def _arrays(self) -> Iterator[tuple[str, Any]]:
        for name, tensor in self._model.state_dict().items():
            yield f"model:{name}", tensor.detach().numpy()
        for number, values in self._optimizer.state_dict()["state"].items():
            for key, tensor in values.items():
                yield f"optimizer:{number}:{key}", tensor.numpy()
