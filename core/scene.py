"""A snapshot, made ready for questions: who is where, what was told when, whether the job moves at all.

Times are brought to one clock: that of the snapshot, each node's offset removed.
"""

import re
from collections import defaultdict
from collections.abc import Iterable
from functools import cached_property
from statistics import median
from typing import Any, Final, NamedTuple

from rankpulse.core import signs, xids
from rankpulse.core.snapshot import Rank, Snapshot
from rankpulse.core.snapshot_nodes import Device, Node, Place, Xid

WINDOW_S: Final = 1800.0  # what is older than this before the job stood still has not stopped it
STARTING: Final = ("init", "start", "startup", "starting", "rendezvous", "launch", "import", "setup")
SLOW_PHASES: Final = re.compile(
    r"check|ckpt|sav|eval|valid|compil|load|warm|init|start|resum|restor|test", re.IGNORECASE
)
MOVING_STEPS: Final = 2.0  # usual steps since the last: it moves
MOVING_S: Final = 5.0  # the same where no usual step is known
STILL_STEPS: Final = 5.0  # usual steps without one: it stands
STILL_S: Final = 30.0
LINES_MAX: Final = 32_768  # of logs that are read, the last of each rank
OF_DEVICES: Final = (
    signs.XID,
    signs.FABRIC,
    signs.ECC,
    signs.NVLINK,
    signs.GPU_LOST,
    signs.GPU_FAILED,
    signs.LINK_DOWN,
)
_UPTIME = re.compile(r"^\[\s*(\d+\.\d+)\]")


class Said(NamedTuple):
    """One thing that was told, by a text or by a counter."""

    at: float | None  # on the clock of the snapshot
    sign: str
    text: str
    ref: str  # where in the snapshot
    node: str = ""
    rank: int | None = None
    gpu: int | None = None
    code: int = 0  # of an Xid


class Scene:
    """One snapshot. Nothing here judges."""

    def __init__(self, snap: Snapshot) -> None:
        self.snap = snap
        self.ranks: dict[int, Rank] = {rank.rank: rank for rank in snap.ranks}
        self.nodes: dict[str, Node] = {node.node: node for node in snap.nodes}
        self.kept: dict[str, Any] = {}  # what questions have found out, for the next that asks
        self._on: dict[str, list[int]] = defaultdict(list)
        self._at: dict[tuple[str, int], int] = {}
        for rank in snap.ranks:
            self._on[rank.node].append(rank.rank)
            if rank.gpu is not None:
                self._at[rank.node, rank.gpu] = rank.rank

    def on(self, nodes: Iterable[str]) -> tuple[int, ...]:
        """The ranks on these nodes."""
        return tuple(sorted(rank for node in set(nodes) if node for rank in self._on.get(node, ())))

    def where(self, ranks: Iterable[int]) -> tuple[str, ...]:
        """The nodes of these ranks."""
        return tuple(sorted({self.ranks[r].node for r in ranks if r in self.ranks and self.ranks[r].node}))

    def place(self, node: str) -> Place:
        told, own = self.snap.topology.get(node, Place()), self.nodes.get(node)
        if own is None:
            return told
        return Place(told.rack or own.rack, told.switch or own.switch, told.domain or own.domain)

    def domain(self, node: str, gpu: int | None = None) -> str:
        """The NVLink domain of a device, "" when none is known."""
        own = self._domains.get((node, gpu)) or self._domains.get((node, None))
        return own or self.place(node).domain

    @cached_property
    def _domains(self) -> dict[tuple[str, int | None], str]:
        """By device, and by node: that of any of its devices."""
        told = [d for d in self.snap.devices if d.domain]
        return {(d.node, None): d.domain for d in told} | {(d.node, d.gpu): d.domain for d in told}

    def in_domain(self, domain: str) -> tuple[str, ...]:
        """The nodes of an NVLink domain."""
        everyone = {*self.nodes, *self._on, *self.snap.topology, *(d.node for d in self.snap.devices)} - {""}
        return tuple(sorted(node for node in everyone if self.domain(node) == domain)) if domain else ()

    def rank_of(self, node: str, gpu: int | None) -> int | None:
        return self._at.get((node, gpu)) if gpu is not None else None

    def gpu_of(self, rank: int | None) -> int | None:
        return self.ranks[rank].gpu if rank in self.ranks else None

    @cached_property
    def node_names(self) -> tuple[str, ...]:
        """Everybody of the job that is known by name."""
        return tuple(sorted({*self.nodes, *self._on, *(event.node for event in self.snap.events)} - {""}))

    @cached_property
    def moves(self) -> bool | None:
        """Whether the job makes steps, None when that is not known: too long for a usual step, too short to stand."""
        job = self.snap.job
        if job.steps_moving is not None:
            return job.steps_moving
        ages = [rank.step_age_s for rank in self.snap.ranks if rank.step_age_s is not None]
        still = job.still_s if job.still_s is not None else min(ages, default=None)
        if still is None:
            return None
        usual = job.step_s or self._usual_step_s
        if still <= (MOVING_STEPS * usual or MOVING_S):
            return True
        return False if still > (self.snap.phase_limits_s.get("step") or STILL_STEPS * usual or STILL_S) else None

    @property
    def _usual_step_s(self) -> float:
        known = [rank.step_s for rank in self.snap.ranks if rank.step_s]
        return median(known) if known else 0.0

    @cached_property
    def still_since(self) -> float | None:
        """Since when nothing moves, on the clock of the snapshot."""
        ages = [rank.step_age_s for rank in self.snap.ranks if rank.step_age_s is not None]
        still = self.snap.job.still_s if self.snap.job.still_s is not None else min(ages, default=None)
        return self.snap.taken_at - still if self.snap.taken_at is not None and still is not None else None

    def fresh(self, at: float | None) -> bool:
        """Whether it can have to do with what is wrong now. What has no time can."""
        now = self.snap.taken_at
        if at is None or now is None:
            return True
        began = min(self.still_since if self.still_since is not None else now, now)
        return at >= began - WINDOW_S

    @cached_property
    def starting(self) -> bool:
        """Whether the job has not made a step in this round."""
        job = self.snap.job
        if job.state:
            return job.state.lower() in STARTING
        if (job.phase or "").lower() in STARTING:
            return True
        steps = [rank.step for rank in self.snap.ranks if rank.step is not None]
        phases = {rank.phase.lower() for rank in self.snap.ranks if rank.phase}
        if steps:
            resumed = self.snap.saving.resumed_step or 0
            return max(steps) <= max(resumed, 0) and (not phases or phases <= set(STARTING))
        return bool(phases) and phases <= set(STARTING)

    @cached_property
    def said(self) -> tuple[Said, ...]:
        """All signs that are fresh, in order of time; those without a time where they stand."""
        found = [*self._of_devices(), *self._of_kernels(), *self._of_nodes(), *self._of_ranks(), *self._of_events()]
        found = [one for one in found if one.sign not in OF_DEVICES or self.fresh(one.at)]
        return tuple(sorted(found, key=lambda one: (one.at is None, one.at or 0.0)))

    def of(self, *wanted: str) -> list[Said]:
        return [one for one in self.said if one.sign in wanted]

    def _time(self, at: float | None, node: str) -> float | None:
        return at - self.nodes[node].clock_offset_s if at is not None and node in self.nodes else at

    def _text(self, text: str, ref: str, at: float | None, node: str, rank: int | None, gpu: int | None) -> Said:
        sign = signs.sign(text)
        node = node or (self.ranks[rank].node if rank in self.ranks else "")
        code = 0
        if sign == signs.XID and (told := signs.xid(text)):
            code = told.code  # "GPU0" in a line is the driver's own count: the bus says which it is
            gpu = next((one for one in (gpu, self._by_pci(node, told.pci), told.gpu) if one is not None), None)
            rank = self.rank_of(node, gpu) if rank is None else rank
        return Said(self._time(at, node), sign, text, ref, node, rank, gpu, code)

    def _by_pci(self, node: str, pci: str) -> int | None:
        return self._buses.get((node, _bus(pci))) if pci else None

    @cached_property
    def _buses(self) -> dict[tuple[str, str], int]:
        return {(d.node, _bus(d.pci)): d.gpu for d in self.snap.devices if d.pci and d.gpu is not None}

    def _of_devices(self) -> Iterable[Said]:
        for place, device in enumerate(self.snap.devices):
            node, gpu = self.owner(device)
            for told in device.xids:
                xid = told if isinstance(told, Xid) else Xid(told)
                text = f"{xids.words(xid.code)}{f' ({xid.text})' if xid.text else ''}"
                at = self._time(xid.at, node)
                rank = device.rank if device.rank is not None else self.rank_of(node, gpu)
                yield Said(at, signs.XID, text, f"devices[{place}].xids", node, rank, gpu, xid.code)

    def owner(self, device: Device) -> tuple[str, int | None]:
        """The node and index of a device, by its rank where they are not said."""
        rank = self.ranks.get(device.rank) if device.rank is not None else None
        gpu = device.gpu if device.gpu is not None else rank.gpu if rank else None
        return device.node or (rank.node if rank else ""), gpu

    def _of_kernels(self) -> Iterable[Said]:
        for node in self.snap.nodes:
            for place, line in enumerate(node.kernel):
                at, now = _UPTIME.match(line), self.snap.taken_at
                up = node.uptime_s if at and now is not None else None
                told = now - up + float(at.group(1)) if at and up is not None and now is not None else None
                said = self._text(line, f"nodes[{node.node}].kernel[{place}]", None, node.node, None, None)
                yield said._replace(at=told)

    def _of_nodes(self) -> Iterable[Said]:
        for node in self.snap.nodes:
            if node.launcher_error:
                ref = f"nodes[{node.node}].launcher_error"
                yield self._text(node.launcher_error, ref, node.launcher_at, node.node, None, None)

    def _of_ranks(self) -> Iterable[Said]:
        lines = max(2, LINES_MAX // max(len(self.ranks), 1))
        for r in self.snap.ranks:
            if r.error:
                at = r.error_at if r.error_at is not None else r.exited_at
                yield self._text(r.error, f"ranks[{r.rank}].error", at, r.node, r.rank, r.gpu)
            for place, line in list(enumerate(r.log))[-lines:]:
                if not signs.sign(line):
                    continue  # most lines of a log tell nothing
                yield self._text(line, f"ranks[{r.rank}].log[{place}]", None, r.node, r.rank, r.gpu)

    def _of_events(self) -> Iterable[Said]:
        for place, event in enumerate(self.snap.events):
            gpu = event.gpu if event.gpu is not None else self.gpu_of(event.rank)
            yield self._text(event.text, f"events[{place}]", event.at, event.node, event.rank, gpu)


def _bus(pci: str) -> str:
    """An address on the bus without domain and function: some lines have them, some not."""
    return pci.lower().split(".")[0][-5:]
