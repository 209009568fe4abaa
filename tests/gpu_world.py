"""A world in which GPUs break: what agents tell of them, as they tell it."""

from dataclasses import dataclass, field
from typing import Any

import msgspec
from core_world import UTC
from evidence_world import NODES, EvidenceWorld

from rankpulse.core import records as r
from rankpulse.core.settings import Settings, preset
from rankpulse.core.topology import Topology

BUS = "0000:18:00"
LOST = ("xid_79", "broken", "drain_reboot", "XID 79: the GPU has fallen off the bus")
LINK = ("xid_149", "broken", "reset_gpu", "XID 149: NVLink: fatal")
ECC = ("xid_48", "broken", "reset_gpu", "XID 48: memory error that ECC could not correct")


def believing(chosen: Settings | None = None) -> Settings:
    """Settings that believe what programs write into the kernel's log."""
    chosen = chosen or preset("drill")
    return msgspec.structs.replace(chosen, gpu=msgspec.structs.replace(chosen.gpu, believe_injected=True))


@dataclass
class GpuWorld(EvidenceWorld):
    index: dict[str, int] = field(default_factory=dict)  # by bus
    books: dict[str, dict[str, dict[str, r.HealthFinding]]] = field(default_factory=dict)  # node, bus, what

    def breaks(
        self, node: str, bus: str = BUS, fault: tuple[str, str, str, str] = LOST, *, source: str = "kernel",
        index: int = 0, only: str = "",
    ) -> str:  # fmt: skip
        """The agent of the node tells of a fault: as an observation, and in its record. `only`: of these, one."""
        what, level, action, text = fault
        book = self.books.setdefault(node, {}).setdefault(bus, {})
        self.index[bus] = index
        before, at, key = book.get(what), UTC + self.now, ""
        first, count = (before.first_at, before.count + 1) if before is not None else (at, 1)
        book[what] = r.HealthFinding(what, level, action, text, first, at, count, None, source)
        how = "changed" if before is not None and before.cleared_at is None else "opened"
        if only != "record":
            key = self.turn(node, bus, how, book[what], index)
        if only != "observation":
            self.writes(node)
        return key

    def heals(self, node: str, bus: str = BUS, what: str = LOST[0]) -> None:
        book = self.books[node][bus]
        book[what] = msgspec.structs.replace(book[what], cleared_at=UTC + self.now)
        self.turn(node, bus, "cleared", book[what])
        self.writes(node)

    def turn(self, node: str, bus: str, how: str, one: r.HealthFinding, index: int = 0, **more: Any) -> str:
        said = {name: getattr(one, name) for name in ("what", "level", "action", "text", "count", "source")}
        return self.observe(
            r.GPU_FAULT, node, **{"how": how, "bus": bus, "uuid": f"GPU-{bus}", "index": index}, **said, **more
        )

    def writes(self, node: str) -> None:
        """The record of its health."""
        gpus = tuple(
            r.GpuRow(bus, f"GPU-{bus}", "H100", self.index[bus], "ok", "ignore", tuple(book.values()))
            for bus, book in sorted(self.books[node].items())
        )
        self.put(
            self.keys.health(node), r.NodeHealth(node=node, inc=self.inc.get(node, 1), at=UTC + self.now, gpus=gpus)
        )

    def cordons(self) -> dict[str, str]:
        """Node and owner."""
        return {node: cordon.owner for node, cordon in self.engine.folder.joint.cordons.items()}

    def faults_told(self) -> list[str]:
        """Keys of observations that are in the store still."""
        return [key for key in self.store if "/obs/" in key]


def trained(
    nodes: dict[str, int] | None = None, *, armed: bool = False, spare: bool = False, settings: Settings | None = None,
    domain: str = "",
) -> GpuWorld:  # fmt: skip
    """A job that trains. `spare`: another node waits for a place. `domain`: the NVLink domain of all of them."""
    nodes = nodes or NODES
    world = GpuWorld(settings or preset("drill"))
    if domain:
        from rankpulse.core.snapshot_nodes import Place

        world.engine.folder.topology = Topology({node: Place(domain=domain) for node in nodes})
    if armed:
        world.arm()
    world.meets(nodes, 1)
    world.addresses(*nodes, *(["node-s"] if spare else []))
    if spare:
        world.torchrun("node-s", 1)
    for number in range(6):  # so many that one is not the fleet
        world.inc[f"x{number}"] = 1
    world.run(30)
    assert (world.incidents(), world.questions) == ([], [])
    return world
