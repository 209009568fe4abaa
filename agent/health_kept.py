"""What was found about GPUs, on disk: a restart of the agent is no proof that they are well again."""

import contextlib
from typing import Final

import msgspec

from rankpulse.agent.folder import Folder
from rankpulse.agent.gpu_books import GpuBooks
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


def save(folder: Folder, boot_id: str, books: GpuBooks) -> None:
    """Whole or not at all. A disk that is full costs only the memory of this, so errors pass."""
    rows = [
        Gpu(gpu.bus, gpu.identity.uuid, findings(gpu.book), {str(code): tuple(one) for code, one in gpu.xids.items()})  # type: ignore[misc]
        for gpu in books.gpus.values()
        if gpu.book.findings or gpu.xids
    ]
    with contextlib.suppress(OSError):
        folder.write(_NAME, msgspec.json.encode(Kept(boot_id, tuple(rows))))


def restore(folder: Folder, boot_id: str, books: GpuBooks) -> None:
    """What an earlier agent found in this boot. None of it is told again."""
    try:
        kept = msgspec.json.decode(folder.read(_NAME, _MAX_BYTES), type=Kept)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return
    for row in kept.gpus if kept.boot_id == boot_id else ():
        if bus_id(row.bus) == row.bus:
            gpu = books.known(row.bus)
            gpu.identity = Identity(row.uuid)
            gpu.book.findings = {
                one.what: Finding(*msgspec.structs.astuple(one)) for one in row.findings if _known(one)
            }
            gpu.xids = {int(code): XidCount(*one) for code, one in row.xids.items() if code.isdecimal()}


def _known(one: HealthFinding) -> bool:
    """Another version of the agent may have had other words."""
    return one.level in LEVELS and one.action in ACTIONS
