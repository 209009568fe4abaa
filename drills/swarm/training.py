"""A model of one training job launched by plain torchrun: its ranks go step by step together, or stand together.

Not torch: what matters is what agents can see of it. Time is handed in, so that the same calls give the same job.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from rankpulse.agent.facts import Fact, Reading, exit_detail
from rankpulse.agent.proc import Exit
from rankpulse.core import records as r
from rankpulse.core.records import RunRow
from rankpulse.core.slot import PHASE_INIT, PHASE_TRAIN, Pulse

INIT_S: Final = 6.0  # from a round's beginning to its first step
_NAN: Final = float("nan")
_PIDS: Final = 100_000  # first of a node's workers


@dataclass
class Training:
    """`nodes`: those of the present round, in the order of their ranks. All times: seconds on one monotonic clock."""

    label: str
    nodes: list[str]
    gpus: int
    step_s: float
    round: int = 0
    stuck: tuple[str, int] | None = None  # node and local rank that has not called what its peers wait in
    _place: dict[str, int] = field(default_factory=dict)
    _rows: dict[str, RunRow] = field(default_factory=dict)
    _base: int = 0  # steps at `_since`
    _since: float = 0.0
    _first: int = -1
    _standing: bool = True

    def convene(self, now: float, nodes: list[str]) -> None:
        """A new round of these nodes; its first step comes after `INIT_S`. It goes on from the last step."""
        self._base, self.nodes, self.round = self.step(now), list(nodes), self.round + 1
        self._place = {node: nth for nth, node in enumerate(self.nodes)}
        size, meeting = len(self.nodes) * self.gpus, f"{self.label}-{self.round}"
        self._rows = {node: RunRow(self.label, meeting, f"{_PIDS - 1}.77", size, True) for node in self.nodes}
        self._since, self._standing, self.stuck = now + INIT_S, False, None
        self._first = self._base + 1

    def stand(self, now: float) -> None:
        """Somebody is missing in the next collective."""
        self._base, self._since, self._standing = self.step(now), now, True

    def go_on(self, now: float) -> None:
        if self._standing:
            self._since, self._standing, self.stuck = max(now, self._since), False, None

    def hang(self, now: float, node: str, local: int) -> None:
        self.stand(now)
        self.stuck = node, local

    def pace(self, now: float, factor: float) -> None:
        """From now on a step takes `factor` times as long."""
        if self._standing:
            self.step_s *= factor
            return
        step = self.step(now)
        if now > self._since:
            self._base, self._since = step, now
        self.step_s *= factor

    def moves(self, now: float) -> bool:
        """It has begun, and nobody is waited for."""
        return not self._standing and self.step(now) >= self._first

    def step(self, now: float) -> int:
        """The last step that was finished by all."""
        if self._standing or now < self._since:
            return self._base
        return self._base + int((now - self._since) / self.step_s)

    def readings(self, node: str, now: float) -> list[Reading]:
        """What the node's agent reads of its ranks."""
        row, place, step = self._rows.get(node), self._place.get(node, 0), self.step(now)
        if row is None:
            return []
        begun = step >= self._first
        pulse = Pulse(step, self._first, 0, _NAN, PHASE_TRAIN, 1) if begun else Pulse(-1, -1, 0, _NAN, PHASE_INIT, 1)
        base, found = place * self.gpus, []
        for local in range(self.gpus):
            told = pulse
            if begun and self.stuck is not None and self.stuck != (node, local):
                told = pulse._replace(step=step + 1)  # in the step that the one who hangs has not come to
            found.append(Reading(row, base + local, local, self.pid(local), 7700 + self.round, "S", told))
        return found

    def pid(self, local: int) -> int:
        return _PIDS + 100 * self.round + local

    def joined(self, node: str, now: float) -> Iterator[Fact]:
        for one in self.readings(node, now):
            yield _fact(r.WORKER_JOINED, one, {"missing": ""})

    def gave_up(self, node: str, now: float) -> Iterator[Fact]:
        """The ranks of this node lost their peers and ended by themselves."""
        ending = {"kind": "error", "error": "DistBackendError", "message": "Connection closed by peer"}
        for one in self.readings(node, now):
            yield _fact(r.WORKER_EXITED, one, exit_detail(Exit(1, None), ending, one.pulse, ""))

    def end(self, node: str) -> None:
        """Its workers are gone: its beats tell of none."""
        self._rows.pop(node, None)


def _fact(kind: str, one: Reading, detail: dict[str, r.Scalar]) -> Fact:
    return Fact(kind, one.run, one.rank, one.local_rank, one.pid, one.start, detail)
