"""The sums of one day while they grow, and the record that is made of them."""

from dataclasses import dataclass, field

from rankpulse.core.records import LedgerDay, NodeShare, RunShare


@dataclass
class Share:
    """A run's part in a day."""

    run_id: str
    run_s: float = 0.0
    gpu_s: float = 0.0
    checkpoint_s: float = 0.0
    straggling_s: float = 0.0


@dataclass
class Day:
    """Sums of one day. `fresh`: more than was last written."""

    node_s: float = 0.0
    gpu_s: float = 0.0
    run_s: float = 0.0
    unseen_s: float = 0.0
    nodes: dict[str, list[float]] = field(default_factory=dict)  # seconds heard, seconds of ranks
    runs: dict[str, Share] = field(default_factory=dict)
    fresh: bool = False

    @classmethod
    def of(cls, told: LedgerDay) -> "Day":
        runs = {uid: Share(row.run_id, *row_seconds(row)) for uid, row in told.runs.items()}
        nodes = {name: [row.node_s, row.gpu_s] for name, row in told.nodes.items()}
        return cls(told.node_s, told.gpu_s, told.run_s, told.unseen_s, nodes, runs)

    def record(self, day: str, origin: str, at: float) -> LedgerDay:
        return LedgerDay(
            day=day,
            origin=origin,
            at=round(at, 3),
            node_s=round(self.node_s, 1),
            gpu_s=round(self.gpu_s, 1),
            run_s=round(self.run_s, 1),
            unseen_s=round(self.unseen_s, 1),
            nodes={name: NodeShare(round(row[0], 1), round(row[1], 1)) for name, row in sorted(self.nodes.items())},
            runs={uid: _share(row) for uid, row in sorted(self.runs.items())},
        )


def row_seconds(row: RunShare) -> tuple[float, float, float, float]:
    return row.run_s, row.gpu_s, row.checkpoint_s, row.straggling_s


def _share(row: Share) -> RunShare:
    return RunShare(
        row.run_id, round(row.run_s, 1), round(row.gpu_s, 1), round(row.checkpoint_s, 3), round(row.straggling_s, 1)
    )
