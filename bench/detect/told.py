"""The records that agents of the trace would write: beats with their ranks, and the state of their node."""

from collections.abc import Callable
from typing import Final

from rankpulse.bench.detect import parameters as z
from rankpulse.bench.detect.job import CHECKPOINT, EVALUATE, TRAIN, Place
from rankpulse.core import records as r
from rankpulse.core.slot import PHASE_PAUSED

RUN_ID: Final = "trace-z"
PID: Final = 1000
INC: Final = 1_000_000  # more than a past has (past.py)
BOOT: Final = "boot"


def node_name(number: int) -> str:
    return f"n{number:03d}"


def node_number(name: str) -> int:
    return int(name[1:])


class Teller:
    """Makes them. Rows are made once per node and step: most beats repeat those of the one before."""

    def __init__(self, nodes: int, place: Callable[[int, float], Place], *, progress: bool = True) -> None:
        """`place`: where the ranks of a node are at a moment. Without `progress` nothing is told of that."""
        self._place, self._progress = place, progress
        self._runs: dict[int, tuple[r.RunRow, ...]] = {}
        self._rows: dict[int, tuple[int, tuple[r.RankRow, ...]]] = {}
        self._phases = {name: (name,) for name in (TRAIN, CHECKPOINT, EVALUATE, PHASE_PAUSED)}
        self._ranks = nodes * z.RANKS_PER_NODE
        self._names = [node_name(n) for n in range(nodes)]

    def beat(self, node: int, made: float, number: int) -> r.Beat:
        """The beat of this number, with what is true at the moment `made`."""
        if self._progress:
            step, phase = self._place(node, made)
        else:
            step, phase = -1, PHASE_PAUSED  # or the engine would take it for a job that does not get going
        cached = self._rows.get(node)
        if cached is None or cached[0] != step:
            cached = self._rows[node] = (step, self._make_rows(node, step))
        runs = self._runs.get(node)
        if runs is None:
            runs = self._runs[node] = (r.RunRow(RUN_ID, "meeting", f"{PID}.{node}", self._ranks, elastic=True),)
        return r.Beat(
            node=self._names[node],
            inc=INC,
            seq=number + 1,
            at=made,
            runs=runs,
            phases=self._phases[phase],
            ranks=cached[1],
        )

    def _make_rows(self, node: int, step: int) -> tuple[r.RankRow, ...]:
        first = 1 if step >= 1 else -1
        rank = node * z.RANKS_PER_NODE
        return tuple(
            r.RankRow(0, rank + i, i, PID + 1 + i, 7 * (rank + i) + 1, "S", 0, step, first)
            for i in range(z.RANKS_PER_NODE)
        )

    def state(self, node: int, racks: bool, looks: bool) -> r.NodeState:
        return r.NodeState(
            node=node_name(node),
            inc=INC,
            at=0.0,
            host=node_name(node),
            agent_version="bench",
            interval_s=z.INTERVAL_S,
            probe=f"10.0.{node // 250}.{node % 250 + 1}:9466" if looks else "",
            rack=f"r{node // z.NODES_PER_RACK}" if racks else "",
            boot_id=f"{BOOT}-{node}",
        )
