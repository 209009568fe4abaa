"""How busy the GPUs of this node are, and with which processes. Asked of a child; one that hangs is asked no more."""

import asyncio
import os
import re
import sys
from asyncio.subprocess import Process
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Final, NamedTuple

import msgspec
from msgspec import Meta

from rankpulse.agent import children
from rankpulse.core.snapshot_nodes import Device
from rankpulse.core.words import printable

CHILD: Final = (sys.executable, "-P", "-m", "rankpulse.agent.gpu_child")
DEVICES: Final = r"nvidia\d+"
HANGS: Final = "GPUs: the driver does not answer"
_GPUS_MAX: Final = 256
_GIB: Final = 1 << 30


class _Gpu(msgspec.Struct):
    index: Annotated[int, Meta(ge=0, lt=_GPUS_MAX)]
    util: Annotated[float, Meta(ge=0, le=100)] | None = None
    used: Annotated[int, Meta(ge=0)] | None = None
    uuid: str = ""
    pci: str = ""
    throttled: str = ""
    pids: list[int] = []
    error: str = ""


class Use(NamedTuple):
    """`of`: the GPU of a process, by pid; `left_out`: why something is not known, in words."""

    devices: tuple[Device, ...] = ()
    of: dict[int, Device] = {}  # noqa: RUF012
    left_out: tuple[str, ...] = ()


_decoder: Final = msgspec.json.Decoder(list[_Gpu])


@dataclass(slots=True)
class Gpus:
    """`child`: the command; `devices`: the names under /dev that mean that there is a GPU."""

    node: str
    child: Sequence[str] = CHILD
    devices: str = DEVICES
    _hanging: Process | None = field(default=None)
    _looking: asyncio.Task[Use] | None = field(default=None)

    async def look(self, within_s: float) -> Use:
        """Never raises. One look at a time, and to its end: who asks meanwhile gets what it finds."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look(within_s))
        return await asyncio.shield(self._looking)

    async def _look(self, within_s: float) -> Use:
        if not any(re.fullmatch(self.devices, name) for name in os.listdir("/dev")):
            return Use()
        if self._hanging is not None and self._hanging.returncode is None:
            return Use(left_out=(HANGS,))
        try:
            said = await children.run(self.child, within_s)
        except OSError as error:
            return Use(left_out=(f"GPUs: {error.strerror or error}",))
        if said.code is None:
            self._hanging = said.process
            return Use(left_out=(f"{HANGS} within {within_s:.1f} s",))
        return use(self.node, said.output)


def use(node: str, output: bytes) -> Use:
    """What the child said."""
    try:
        found = _decoder.decode(output)[:_GPUS_MAX]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Use(left_out=(f"GPUs: {_error(output)}",))
    devices = {gpu.index: _device(node, gpu) for gpu in found if not gpu.error}
    of = {pid: devices[gpu.index] for gpu in found if not gpu.error for pid in gpu.pids}
    lost = tuple(f"GPU {gpu.index}: {printable(gpu.error, 100)}" for gpu in found if gpu.error)
    return Use(tuple(devices.values()), of, lost)


def _device(node: str, gpu: _Gpu) -> Device:
    return Device(
        node, gpu.index, util=gpu.util, memory_used_gib=None if gpu.used is None else round(gpu.used / _GIB, 2),
        uuid=printable(gpu.uuid, 80), pci=printable(gpu.pci, 40), throttled=printable(gpu.throttled, 80),
    )  # fmt: skip


def _error(output: bytes) -> str:
    try:
        return printable(msgspec.json.decode(output, type=dict[str, str]).get("error", "?"), 100)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return "what looks at them said nothing sound"
