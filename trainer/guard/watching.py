"""Every so many steps each rank says what its parameters add up to, and the monitor compares replicas.

Nothing is asked of other ranks and nothing is waited for. On a device the sums are put behind the work that is there
already, copied beside it, and read at a later step, when they have come.
"""

import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import torch

from rankpulse.core.slot_checks import GROUPS_MAX, Check, Checks
from rankpulse.core.words import printable
from rankpulse.trainer import attaching
from rankpulse.trainer.guard import replicas as who
from rankpulse.trainer.guard.checksum import checksum
from rankpulse.trainer.guard.replicas import Group


class ReplicaGuard:
    """Finds a replica whose parameters are not those of the others.

        guard = ReplicaGuard(model, every_steps=100)
        for step in ...:
            optimizer.step()
            guard.step(step)          # before manager.step(step): what is saved then was compared
            manager.step(step)

    optimizer: its state is compared, too (one or several). replicas: the ranks of the world that hold all of this model
    alike, where neither DDP nor DTensors say it. pulse: that of the process when left out.
    Every rank must call `step` with the same numbers. Raises ValueError when made for a model of which no two ranks
    hold anything alike; afterwards it raises nothing: what goes wrong is said once, and the guard is off.
    """

    def __init__(
        self,
        model: Any,
        optimizer: Any = (),
        *,
        every_steps: int = 100,
        replicas: Sequence[int] | None = None,
        pulse: Any = None,
    ) -> None:
        if type(every_steps) is not int or every_steps < 1:
            raise ValueError(f"every_steps is {every_steps!r}: give a whole number from 1 on")
        self._model, self._every, self._replicas = model, every_steps, replicas
        self._optimizers = tuple(optimizer) if isinstance(optimizer, list | tuple) else (optimizer,)
        self._pulse = pulse
        self._coming: tuple[int, list[Group], Any, Any] | None = None
        self.on = True
        if not self._groups():
            raise ValueError(
                "no two ranks are known to hold the same parameters: wrap the model first (DDP, or FSDP2 over a mesh "
                "that replicates), or name the ranks by replicas="
            )

    def step(self, n: int) -> Checks | None:
        """Step `n` is done. Returns the checks that were told at this call, mostly None."""
        if not self.on:
            return None
        try:
            found = self._come()
            if n % self._every == 0 and self._coming is None:
                self._begin(n)
                found = self._come() or found
        except Exception as error:  # to know of corruption is worth no crash of a job that is well
            self.on = False
            _say(f"replicas are not compared any more: {type(error).__name__}: {error}")
            return None
        return found

    def _groups(self) -> list[Group]:
        """Anew each time: FSDP2 may give its shards other memory, and optimizers get their state late."""
        found = who.groups(self._model, self._optimizers, self._replicas)
        if len(found) > GROUPS_MAX:
            found = found[:GROUPS_MAX]
        return found

    def _begin(self, n: int) -> None:
        groups = self._groups()
        sums = []
        for group in groups:
            devices = list(dict.fromkeys(tensor.device for tensor in group.tensors))
            parts = [checksum([t for t in group.tensors if t.device == device], device) for device in devices]
            sums.append(sum((part.to(parts[0].device) for part in parts[1:]), parts[0]))
        together = torch.stack([one.to(sums[0].device) for one in sums])
        if together.device.type != "cuda":
            self._coming = n, groups, together.cpu(), None
            return
        host = torch.empty(together.shape, dtype=torch.int64, pin_memory=True)
        host.copy_(together, non_blocking=True)
        event = torch.cuda.Event()
        event.record(torch.cuda.current_stream(together.device))
        self._coming = n, groups, host, event

    def _come(self) -> Checks | None:
        """What was begun, once it is there."""
        if self._coming is None or (self._coming[3] is not None and not self._coming[3].query()):
            return None
        n, groups, host, _event = self._coming
        self._coming = None
        mask = (1 << 64) - 1
        found = Checks(
            n,
            tuple(
                Check(group.id, len(group.members), digest & mask)
                for group, digest in zip(groups, host.tolist(), strict=True)
            ),
        )
        pulse = self._pulse if self._pulse is not None else attaching.attached()
        if pulse is not None:
            pulse.checked(found)
        return found


def _say(text: str) -> None:
    with suppress(Exception):  # stderr may be closed or absent
        sys.stderr.write(f"rankpulse: {printable(text, 1000)}\n")
