"""One line of the kernel's log, read. Total: whatever comes in, a Reading comes out, `none` where nothing is said."""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import msgspec

from rankpulse.core import kernel_host, kernel_nic, kernel_nvidia, kernel_pcie
from rankpulse.core.kernel_prefix import Framed, strip
from rankpulse.core.kernel_reading import NONE, Reading

# what every rule has one of: most lines have none, and are done with at once
_STEMS: Final = (
    "NVRM", "nvswitch", "peermem", "peer_mem", "mlx", "ink", "ueue", "failed", "Failed", "rror", "ailure", "block",
    "lockup", "LOCKUP", "stall", "panic", "fault", "protection", "emory", "oom", "Kill", "able", "PCI", "EDAC",
    "AMD-Vi", "DMAR", "smmu", "ime", "nvme", "ata", "JBD2", "XFS", "BTRFS", "EXT", "esponding", "ceph", "Lustre", "AER",
    "fatal", "recover", "trap", "power", "Abort", "carrier", "DPC", "sd ", "pciehp", "aer_", "  [", "Hang", "STALL",
)  # fmt: skip
_READERS: Final = (kernel_nvidia.read, kernel_host.read, kernel_pcie.read, kernel_nic.read)
_SEVERAL: Final = ("NVRM: The NVIDIA GPU ", "NVRM: API mismatch")
_PARTS_MAX: Final = 6  # lines of one message
_NOTHING: Final = Reading()


class Line(NamedTuple):
    """A line of a file and what it says."""

    number: int
    text: str
    framed: Framed
    reading: Reading


def read(line: str) -> Reading:
    """Never raises."""
    return of_message(strip(line))


def of_message(framed: Framed) -> Reading:
    if framed.foreign:
        return _NOTHING
    text = framed.text
    if text.startswith(("NVRM: ", "nvidia-nvswitch")):
        found = kernel_nvidia.read(text)
    elif any(stem in text for stem in _STEMS):
        found = next((found for read_ in _READERS if (found := read_(text)) is not None), None)
    else:
        return _NOTHING
    if found is None:
        return _NOTHING
    return found if framed.origin is None else _from(found, framed.origin)


def _from(found: Reading, origin: str) -> Reading:
    return msgspec.structs.replace(found, origin=origin)


def lines(texts: Iterable[str]) -> Iterator[Line]:
    """Every line of a log in order. A message over several lines is told at its first; the others say nothing."""
    held: list[Line] = []
    for number, text in enumerate(texts, 1):
        line = Line(number, text, strip(text), _NOTHING)
        if held and (len(held) >= _PARTS_MAX or not _goes_on(line.framed)):
            yield from _told(held)
            held = []
        if held or line.framed.text.startswith(_SEVERAL):
            held.append(line)
        else:
            yield line._replace(reading=of_message(line.framed))
    yield from _told(held)


def _goes_on(framed: Framed) -> bool:
    return framed.text.startswith("NVRM: ") and not framed.text.startswith(("NVRM: Xid", "NVRM: GPU", *_SEVERAL))


def _told(held: list[Line]) -> Iterator[Line]:
    """The first line speaks for all; one that would say something else by itself keeps its own word."""
    if not held:
        return
    first = held[0]
    whole = of_message(first.framed._replace(text="\n".join(line.framed.text for line in held)))
    yield first._replace(reading=whole)
    for line in held[1:]:
        alone = of_message(line.framed)
        yield line._replace(reading=alone if alone.kind not in (NONE, whole.kind) else _NOTHING)
