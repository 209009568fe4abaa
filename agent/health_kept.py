"""What was found about GPUs and the machine, on disk: a restart of the agent is no proof that they are well again."""

import contextlib
from collections.abc import Iterable
from typing import Final

import msgspec

from rankpulse.agent.folder import Folder
from rankpulse.agent.gpu_books import GpuBooks
from rankpulse.core.faults import KERNEL
from rankpulse.core.gpu_health import XidCount
from rankpulse.core.gpu_reading import Identity, bus_id
from rankpulse.core.gpu_told import findings
from rankpulse.core.health_book import ACTIONS, LEVELS, Finding
from rankpulse.core.records import HealthFinding

_NAME: Final = "gpus.health"
_MAX_BYTES: Final = 4 << 20


class Gpu(msgspec.Struct, frozen=True):
    bus: str
    uuid: str
    findings: tuple[HealthFinding, ...] = ()
    xids: dict[str, tuple[float, float, int]] = {}  # first and last seen, how often


class Kept(msgspec.Struct, frozen=True):
    """Of one boot of the machine: a reboot proves what nothing else does."""

    boot_id: str
    gpus: tuple[Gpu, ...] = ()
    node: tuple[HealthFinding, ...] = ()  # by the kernel's word; whatever else is found of a node is looked at anew


def save(folder: Folder, boot_id: str, books: GpuBooks) -> None:
    """Whole or not at all. A disk that is full costs only the memory of this, so errors pass."""
    rows = [
        Gpu(gpu.bus, gpu.identity.uuid, findings(gpu.book), {str(code): tuple(one) for code, one in gpu.xids.items()})  # type: ignore[misc]
        for gpu in books.gpus.values()
        if gpu.book.findings or gpu.xids
    ]
    node = tuple(one for one in findings(books.book) if one.source == KERNEL)
    with contextlib.suppress(OSError):
        folder.write(_NAME, msgspec.json.encode(Kept(boot_id, tuple(rows), node)))


def restore(folder: Folder, boot_id: str, books: GpuBooks) -> None:
    """What an earlier agent found in this boot. None of it is told again."""
    try:
        kept = msgspec.json.decode(folder.read(_NAME, _MAX_BYTES), type=Kept)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return
    if kept.boot_id != boot_id:
        return
    books.book.findings |= _findings(one for one in kept.node if one.source == KERNEL)
    for row in kept.gpus:
        if bus_id(row.bus) == row.bus:
            gpu = books.known(row.bus)
            gpu.identity = Identity(row.uuid)
            gpu.book.findings = _findings(row.findings)
            gpu.xids = {int(code): XidCount(*one) for code, one in row.xids.items() if code.isdecimal()}


def _findings(told: Iterable[HealthFinding]) -> dict[str, Finding]:
    return {one.what: Finding(*msgspec.structs.astuple(one)) for one in told if _known(one)}


def _known(one: HealthFinding) -> bool:
    """Another version of the agent may have had other words."""
    return one.level in LEVELS and one.action in ACTIONS
