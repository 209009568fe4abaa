"""The agent's own account of itself: answers on the local socket, health, metrics."""

import math
import platform
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from rankpulse.agent import host as hosts
from rankpulse.agent.health import HealthTold
from rankpulse.agent.http import Samples
from rankpulse.agent.numbers import Numbers
from rankpulse.agent.orders import Orders
from rankpulse.agent.outbox import Outbox
from rankpulse.agent.publish import Publisher
from rankpulse.agent.watch import Worker, Workers
from rankpulse.core.buckets import Buckets
from rankpulse.core.words import printable

SAID_PER_MINUTE: Final = 3


@dataclass(slots=True)
class Report:
    """Reads the parts; changes nothing."""

    node: str
    workers: Workers
    publisher: Publisher
    outbox: Outbox
    orders: Orders
    capabilities: Mapping[str, str]
    hardware: HealthTold
    numbers: Numbers
    probes: Mapping[str, int] = field(default_factory=dict)  # direct looks by result
    refused: Mapping[str, int] = field(default_factory=dict)  # requests at the HTTP port by reason
    warn: Callable[[str], None] = lambda text: None  # to the log
    clock: Callable[[], float] = time.monotonic
    at_socket: int = 0  # who asked the socket for what it does not give
    _said: Buckets = field(default_factory=lambda: Buckets(SAID_PER_MINUTE))

    def socket_refused(self, uid: int, why: str) -> None:
        """Counted, and said of each user a few times a minute."""
        self.at_socket += 1
        if self._said.one_more(str(uid), self.clock()):
            self.warn(f"refused user {uid} at the socket: {printable(why)}")

    def ping(self, _uid: int) -> dict[str, Any]:
        return {
            "node": self.node,
            "version": hosts.version(),
            "inc": self.publisher.inc,
            "store": self.publisher.connected,
        }

    def runs(self, uid: int) -> dict[str, Any]:
        """The workers of the user who asks; root sees all."""
        return {"node": self.node, "workers": [_row(worker) for worker in self.workers.of_uid(uid)]}

    def health(self) -> dict[str, Any]:
        return {
            **self.ping(0),
            "workers": len(self.workers.table),
            "waiting": len(self.outbox),
            "capabilities": dict(self.capabilities),
        }

    def metrics(self, now: float, refused: int, slots_read_at: float = -math.inf) -> dict[str, Samples]:
        """Samples by metric name, as named in `core.catalogue.AGENT` and `GPU`. slots_read_at: all of them, last."""
        node, figures = (self.node,), self.publisher.figures
        single = {
            "incarnation": self.publisher.inc,
            "beats": figures.beats,
            "beat_failures": figures.failures,
            "spooled": len(self.outbox),
            "dropped": self.outbox.dropped,
            "workers": len(self.workers.table),
            "slots_refused": refused,
            "socket_refused": self.at_socket,
            "orders_done": self.orders.done_count,
        }
        samples: dict[str, Samples] = {f"rankpulse_agent_{name}": {node: value} for name, value in single.items()}
        samples["rankpulse_agent_info"] = {(self.node, hosts.version()): 1}
        if figures.acknowledged_at is not None:
            samples["rankpulse_agent_store_silence_seconds"] = {node: now - figures.acknowledged_at}
        samples["rankpulse_agent_observations"] = {(self.node, k): n for k, n in self.outbox.counts.items()}
        samples["rankpulse_agent_capability"] = {
            (self.node, source): float(state == "ok") for source, state in self.capabilities.items()
        }
        read_at = {"slots": slots_read_at, **self.hardware.read_at()}
        samples["rankpulse_agent_source_age_seconds"] = {
            (self.node, source): now - at for source, at in read_at.items() if math.isfinite(at)
        }
        samples["rankpulse_build_info"] = {("agent", hosts.version(), platform.python_version()): 1}
        samples["rankpulse_agent_probes"] = {(self.node, result): n for result, n in self.probes.items()}
        samples["rankpulse_agent_http_refused"] = {(self.node, why): n for why, n in self.refused.items()}
        return samples | self.numbers.samples(self.node) | self.hardware.samples()


def _row(worker: Worker) -> dict[str, Any]:
    run = worker.who.run
    return {
        "run_id": run.run_id,
        "run_uid": run.run_uid,
        "round": run.round,
        "rank": worker.who.rank,
        "local_rank": worker.who.local_rank,
        "world_size": run.world_size,
        "pid": worker.pid,
        "state": worker.state,
        "step": worker.pulse.step,
        "phase": worker.pulse.phase,
    }
