"""The only process of the agent that calls NVML. It does what it is told, line by line, and says first what it touches.

    python -P -m rankpulse.agent.nvml_child '{"gpus": ["0000:0f:00.0"], "events": true, "wait_ms": 1000}'

Orders come in on stdin, answers go out on stdout, both lines of JSON. A call that hangs is answered by nobody: whoever
reads knows from the last `begin` what it was about, and kills this process. Nothing of ours but `nvml_gpu` is imported,
NVML is never shut down, and no state of it outlives a fork: the process was started anew.
"""

import ctypes
import json
import os
import select
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from rankpulse.agent.nvml_gpu import GONE, Gpu, code, or_none, text

NO_PYNVML: Final = -1
_EVENTS: Final = 0x8 | 0x400 | 0x800 | 0x1000 | 0x2000 | 0x4000 | 0x8000  # Xids, retirement, poison, lost, recovery
_STORM_S, _STORM_MS = 0.5, 20  # events that come at once are told together
_NO_INSTANCE: Final = 0xFFFFFFFF


def main(request: str) -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # nobody needs the answers when the agent is gone
    asked = json.loads(request)
    say(begin="init")
    try:
        import pynvml as nvml
    except ImportError:
        say(fatal=NO_PYNVML, text="pynvml is not installed")
        return
    try:
        serve(nvml, asked)
    except nvml.NVMLError as error:
        say(fatal=code(error), text=str(error))


def say(**said: object) -> None:
    sys.stdout.write(json.dumps(said) + "\n")
    sys.stdout.flush()


def serve(nvml: Any, asked: dict[str, Any]) -> None:
    nvml.nvmlInit()
    driver = or_none(nvml, nvml.nvmlSystemGetDriverVersion)
    say(driver=text(driver or ""), library=text(or_none(nvml, nvml.nvmlSystemGetNVMLVersion) or ""))
    if asked.get("gpus") is None:
        say(buses=[bus for index in range(int(nvml.nvmlDeviceGetCount())) if (bus := bus_at(nvml, index))])
    node = Node(nvml, events=bool(asked.get("events")), wait_ms=int(asked.get("wait_ms", 1000)))
    for order in node.orders():
        node.read(str(order["read"]), slow=bool(order.get("slow")), processes=bool(order.get("processes")))


def bus_at(nvml: Any, index: int) -> str | None:
    """Where no directory tells which GPUs there are: the driver is asked for one after the other."""
    found = or_none(nvml, lambda: nvml.nvmlDeviceGetPciInfo(nvml.nvmlDeviceGetHandleByIndex(index)).busId)
    return text(found).lower() if found else None


class Node:
    """The GPUs that were asked for so far, and the one set of events for them all."""

    def __init__(self, nvml: Any, *, events: bool, wait_ms: int) -> None:
        self._nvml, self._events, self._wait_ms = nvml, events, wait_ms
        self._gpus: dict[str, Gpu] = {}
        self._set: Any = None
        self._typed = b""

    def orders(self) -> Iterator[dict[str, Any]]:
        """Until stdin ends. Between orders it waits for events, where there are any, and for orders alone elsewhere."""
        while True:
            ready, _, _ = select.select([0], [], [], 0 if self._set else None)
            if ready:
                more = os.read(0, 1 << 16)
                if not more:
                    return
                *lines, self._typed = (self._typed + more).split(b"\n")
                for line in lines:
                    yield json.loads(line)
            elif self._set:
                self._wait()

    def read(self, bus: str, *, slow: bool, processes: bool) -> None:
        """One GPU, from its handle to its counters. What is wrong with it alone is said and no end to the others."""
        say(begin=bus)
        began = time.monotonic()
        try:
            gpu = self._gpus.get(bus)
            if gpu is None:
                gpu = self._gpus[bus] = Gpu(self._nvml, bus)
                self._register(gpu)
            told = gpu.read(slow=slow, processes=processes)
        except self._nvml.NVMLError as error:
            if code(error) in GONE:
                raise
            self._gpus.pop(bus, None)  # a new handle next time
            say(bus=bus, failed=code(error), text=str(error), took_s=time.monotonic() - began)
        else:
            say(bus=bus, took_s=time.monotonic() - began, slow=slow, **told)

    # -- events -------------------------------------------------------------------------------------------------
    def _register(self, gpu: Gpu) -> None:
        """Each in a try of its own: one lost GPU does not blind the rest."""
        if not self._events:
            return
        nvml = self._nvml
        try:
            types = _EVENTS & nvml.nvmlDeviceGetSupportedEventTypes(gpu.handle)
            if types:
                self._set = self._set or nvml.nvmlEventSetCreate()
                nvml.nvmlDeviceRegisterEvents(gpu.handle, types, self._set)
            say(bus=gpu.bus, events=types)
        except nvml.NVMLError as error:
            if code(error) in GONE:
                raise
            say(bus=gpu.bus, events=0, text=str(error))

    def _wait(self) -> None:
        """Only an event or a time-out proves that the stream lives; on anything else there is no set any more."""
        nvml, heard = self._nvml, Counter[tuple[Any, ...]]()
        say(begin="events")
        try:
            heard[self._event(self._wait_ms)] += 1
            until = time.monotonic() + _STORM_S
            while time.monotonic() < until:  # a storm of them is a few lines
                heard[self._event(_STORM_MS)] += 1
        except nvml.NVMLError as error:
            self._say_events(heard)
            if code(error) in GONE:
                raise
            if code(error) != nvml.NVML_ERROR_TIMEOUT:
                self._set = None
                self._gpus.clear()  # each is registered anew when it is read next
                say(events_lost=code(error), text=str(error))
        else:
            self._say_events(heard)

    def _event(self, wait_ms: int) -> tuple[Any, ...]:
        data = self._nvml.nvmlEventSetWait_v2(self._set, wait_ms)
        instances = (None if one == _NO_INSTANCE else one for one in (data.gpuInstanceId, data.computeInstanceId))
        return int(data.eventType), int(data.eventData), self._bus_of(data.device), *instances

    def _say_events(self, heard: Counter[tuple[Any, ...]]) -> None:
        for (kind, data, bus, *instances), times in heard.items():
            say(event=kind, data=data, bus=bus, instances=instances, times=times)

    def _bus_of(self, device: Any) -> str:
        address = ctypes.cast(device, ctypes.c_void_p).value
        known = (one.bus for one in self._gpus.values() if one.address == address)
        return next(known, "")


if __name__ == "__main__":
    main(sys.argv[1])
