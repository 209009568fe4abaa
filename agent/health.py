"""What the agent tells of its hardware: one record, when there is something to tell, and metrics of its own."""

import math
from dataclasses import dataclass
from typing import Any

import msgspec

from rankpulse.agent.gpu_watch import Gpus
from rankpulse.agent.host_watch import HostWatch
from rankpulse.core import gpu_told
from rankpulse.core.records import NodeHealth


@dataclass(slots=True)
class HealthTold:
    """One per agent."""

    node: str
    host_name: str
    gpus: Gpus
    host: HostWatch
    publish_s: float
    _written: NodeHealth | None = None
    _at: float = 0.0
    _changes: int = 0

    def due(self, now: float, inc: int) -> bool:
        """At once when a finding has changed; figures alone wait for their time. Never, where nothing is known."""
        written, books = self._written, self.gpus.books
        if written is None:
            return bool(books.gpus or books.book.findings)
        if written.inc != inc or self._changes != books.changes:
            return True
        if now - self._at < self.publish_s:
            return False
        self._at = now
        return written != self.record(inc, written.at)

    def record(self, inc: int, at: float) -> NodeHealth:
        books = self.gpus.books
        rows = tuple(gpu_told.row(gpu) for _, gpu in sorted(books.gpus.items()))
        node = gpu_told.findings(books.book)
        return NodeHealth(node=self.node, inc=inc, at=at, driver=books.driver, gpus=rows, findings=node)

    def written(self, record: NodeHealth, now: float) -> None:
        self._written, self._at, self._changes = record, now, self.gpus.books.changes

    def samples(self) -> gpu_told.Samples:
        """As named in `core.catalogue.GPU` and `HOST`. None of GPUs where none has ever been asked."""
        around = self.host.samples(self.host_name)
        if not self.gpus.started:
            return around
        host = (self.host_name,)
        own: gpu_told.Samples = {
            "rankpulse_gpu_probes_stuck": {host: float(self.gpus.left)},
            "rankpulse_gpu_probes": {host: float(self.gpus.started)},
        }
        return around | own | gpu_told.samples(self.gpus.books.gpus.values(), self.host_name)

    def read_at(self) -> dict[str, float]:
        """When the machine was looked at last, and the last answer of the GPU that has been silent for longest.

        Monotonic; minus infinity where that was never.
        """
        heard = (gpu.heard for gpu in self.gpus.books.gpus.values())
        answered = [at for at in heard if at is not None]
        return {"host": self.host.looked_at, "gpu": min(answered, default=-math.inf)}

    def show(self, _uid: int) -> dict[str, Any]:
        """For who asks on the socket of the node."""
        known = msgspec.to_builtins(self.record(0, 0.0))
        values = {gpu.bus: gpu.values for gpu in self.gpus.books.gpus.values()}
        return {**known, "values": values, "links": {g.bus: g.links for g in self.gpus.books.gpus.values()}}
