"""The only process of the agent that calls NVML. It does what it is told, line by line, and says first what it touches.

    python -P -m rankpulse.agent.nvml_child '{"gpus": ["0000:0f:00.0"], "events": true, "wait_ms": 1000}'

Orders come in on stdin, answers go out on stdout, both lines of JSON. A call that hangs is answered by nobody: whoever
reads knows from the last `begin` what it was about, and kills this process. Nothing else of ours is imported, NVML is
never shut down, and no state of it outlives a fork: the process was started anew.
"""

import ctypes
import json
import os
import select
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

NO_PYNVML: Final = -1
_NOT_SUPPORTED, _NOT_FOUND_FUNCTION, _UNKNOWN = 3, 13, 999
_GONE: Final = (1, 9, 12, 18)  # NVML itself is void: uninitialised, driver not loaded, no library, another driver
_SICK: Final = (15, 16, 28)  # this GPU is: lost, waits for a reset, not found
_ABSENT: Final = (_NOT_SUPPORTED, _NOT_FOUND_FUNCTION)  # not asked for again for a while: it costs a call each time
_ASK_AGAIN_S: Final = 3600.0
_EVENTS: Final = 0x8 | 0x400 | 0x800 | 0x1000 | 0x2000 | 0x4000 | 0x8000  # Xids, retirement, poison, lost, recovery
_VALUES: Final = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")  # by value type
_STORM_S, _STORM_MS = 0.5, 20  # events that come at once are told together
_NO_INSTANCE: Final = 0xFFFFFFFF
_LINKS_MAX: Final = 72
# fields by the name of what they tell; those of the second table are asked for less often
_FIELDS: Final = {
    "ecc_corrected_volatile": 3, "ecc_uncorrected_volatile": 4, "ecc_corrected_aggregate": 5,
    "ecc_uncorrected_aggregate": 6, "power_cap_ns": 74, "thermal_ns": 75, "memory_temperature_c": 82,
    "pcie_replay": 94, "pcie_replay_rollover": 95, "recovery_action": 230, "sw_thermal_ns": 269, "hw_thermal_ns": 270,
    "power_brake_ns": 271,
}  # fmt: skip
_SLOW_FIELDS: Final = {
    "retired_corrected": 29, "retired_uncorrected": 30, "retired_pending": 31, "links": 91, "remap_corrected": 142,
    "remap_uncorrected": 143, "remap_pending": 144, "remap_failed": 145, "pcie_correctable": 173,
    "pcie_nak_received": 174, "pcie_receiver": 175, "pcie_bad_tlp": 176, "pcie_nak_sent": 177, "pcie_bad_dllp": 178,
    "pcie_non_fatal": 179, "pcie_fatal": 180, "pcie_unsupported": 181, "pcie_lcrc": 182, "pcie_lane": 183,
    "remap_corrected_inactive": 301, "remap_uncorrected_inactive": 302,
}  # fmt: skip
_LINK_FIELDS: Final = {  # first those up to Hopper, then those of Blackwell
    "replay": 161, "recovery": 162, "crc": 163, "state": 165,
    "malformed": 206, "overrun": 207, "receive": 208, "remote": 209, "integrity": 211, "discards": 212,
    "recovered": 213, "recovery_failed": 214, "recoveries": 215, "effective": 219, "symbol": 221,
}  # fmt: skip
_LOCATIONS: Final = {"l1": 0, "l2": 1, "dram": 2, "register": 3, "texture": 4, "cbu": 6, "sram": 7}
_ECC: Final = {  # type, counter and location by name
    f"ecc_{where}_{kind}_{life}": (type_, counter, location)
    for where, location in _LOCATIONS.items()
    for type_, kind in enumerate(("corrected", "uncorrected"))
    for counter, life in enumerate(("volatile", "aggregate"))
}
_REMAPPED: Final = ("remap_corrected", "remap_uncorrected", "remap_pending", "remap_failed")
_HISTOGRAM: Final = ("max", "high", "partial", "low", "none")


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
    driver = _or_none(nvml, nvml.nvmlSystemGetDriverVersion)
    say(driver=text(driver or ""), library=text(_or_none(nvml, nvml.nvmlSystemGetNVMLVersion) or ""))
    if asked.get("gpus") is None:
        say(buses=[bus for index in range(int(nvml.nvmlDeviceGetCount())) if (bus := bus_at(nvml, index))])
    node = Node(nvml, events=bool(asked.get("events")), wait_ms=int(asked.get("wait_ms", 1000)))
    for order in node.orders():
        node.read(str(order["read"]), slow=bool(order.get("slow")), processes=bool(order.get("processes")))


def bus_at(nvml: Any, index: int) -> str | None:
    """Where no directory tells which GPUs there are: the driver is asked for one after the other."""
    found = _or_none(nvml, lambda: nvml.nvmlDeviceGetPciInfo(nvml.nvmlDeviceGetHandleByIndex(index)).busId)
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
            if code(error) in _GONE:
                raise
            self._gpus.pop(bus, None)  # a new handle next time
            say(bus=bus, failed=code(error), text=str(error), took_s=time.monotonic() - began)
        else:
            say(bus=bus, took_s=time.monotonic() - began, slow=slow, **told)

    # -- events -------------------------------------------------------------------------------------------------
    def _register(self, gpu: "Gpu") -> None:
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
            if code(error) in _GONE:
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
            if code(error) in _GONE:
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


class Gpu:
    """One GPU. Calls that it does not have are left out for an hour."""

    def __init__(self, nvml: Any, bus: str) -> None:
        self._nvml, self.bus = nvml, bus
        self.handle = nvml.nvmlDeviceGetHandleByPciBusId(bus.encode())
        self.address = ctypes.cast(self.handle, ctypes.c_void_p).value
        self._absent: dict[str, int] = {}
        self._absent_since = time.monotonic()
        self._identity: dict[str, Any] | None = None
        self._unknown: dict[str, int] = {}
        self._slowest = ("", 0.0)

    def read(self, *, slow: bool, processes: bool) -> dict[str, Any]:
        """Raises when the GPU as a whole does not answer."""
        if time.monotonic() - self._absent_since > _ASK_AGAIN_S:
            self._absent.clear()
            self._absent_since = time.monotonic()
        self._unknown, self._slowest = dict(self._absent), ("", 0.0)
        told: dict[str, Any] = {}
        if self._identity is None:
            told["identity"] = self._identity = self._who()
        values = self._fields(_FIELDS) | self._fast()
        if slow:
            values |= self._slow() | self._fields(_SLOW_FIELDS)
            values |= self._remapped() if "remap_failed" not in values else {}
            told["links"] = self._links(int(values.get("links", 0)))
            told["unknown"] = {name: why for name, why in self._unknown.items() if name not in values}
        if processes:
            told["processes"] = self._processes()
        if not values and _UNKNOWN in self._unknown.values():
            raise self._nvml.NVMLError(_UNKNOWN)
        return told | {"values": values, "slowest": self._slowest}

    def _who(self) -> dict[str, Any]:
        nvml, handle = self._nvml, self.handle
        said = {
            "uuid": self._ask("uuid", lambda: text(nvml.nvmlDeviceGetUUID(handle))),
            "name": self._ask("name", lambda: text(nvml.nvmlDeviceGetName(handle))),
            "index": self._ask("index", lambda: nvml.nvmlDeviceGetIndex(handle)),
            "minor": self._ask("minor", lambda: nvml.nvmlDeviceGetMinorNumber(handle)),
        }
        return {name: value for name, value in said.items() if value is not None}

    def _fast(self) -> dict[str, float]:
        nvml, handle = self._nvml, self.handle
        memory = self._ask("memory", lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
        values = {
            "temperature_c": self._ask("temperature_c", lambda: nvml.nvmlDeviceGetTemperature(handle, 0)),
            "power_mw": self._ask("power_mw", lambda: nvml.nvmlDeviceGetPowerUsage(handle)),
            "clock_reasons": self._ask("clock_reasons", self._reasons),
            "sm_clock_mhz": self._ask("sm_clock_mhz", lambda: nvml.nvmlDeviceGetClockInfo(handle, 1)),
            "busy_percent": self._ask("busy_percent", lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu),
            "pcie_width": self._ask("pcie_width", lambda: nvml.nvmlDeviceGetCurrPcieLinkWidth(handle)),
            "memory_used": memory.used if memory else None,
            "memory_total": memory.total if memory else None,
        }
        return {name: value for name, value in values.items() if value is not None}

    def _reasons(self) -> int:
        """Under its name since R530, else under the one before."""
        nvml = self._nvml
        try:
            return int(nvml.nvmlDeviceGetCurrentClocksEventReasons(self.handle))
        except nvml.NVMLError_FunctionNotFound:
            return int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(self.handle))

    def _slow(self) -> dict[str, float]:
        nvml, handle = self._nvml, self.handle
        banks = self._ask("histogram", lambda: nvml.nvmlDeviceGetRowRemapperHistogram(handle))
        mig = self._ask("mig", lambda: nvml.nvmlDeviceGetMigMode(handle))
        width = self._ask("pcie_width_max", lambda: nvml.nvmlDeviceGetMaxPcieLinkWidth(handle))
        repair = self._ask("repair", lambda: nvml.nvmlDeviceGetRepairStatus(handle))
        values: dict[str, float] = {f"banks_{name}": getattr(banks, name) for name in _HISTOGRAM} if banks else {}
        values |= {"mig": mig[0]} if mig else {}
        values |= {"pcie_width_max": width} if width is not None else {}
        values |= {"repair_channel": repair[0], "repair_tpc": repair[1]} if repair else {}
        return values | self._ecc() | self._sram() | self._fabric()

    def _remapped(self) -> dict[str, float]:
        """For drivers that do not tell it as fields."""
        rows = self._ask("remapped_rows", lambda: self._nvml.nvmlDeviceGetRemappedRows(self.handle))
        return dict(zip(_REMAPPED, rows, strict=True)) if rows else {}

    def _ecc(self) -> dict[str, float]:
        """Which places there are differs by generation."""
        count, values = self._nvml.nvmlDeviceGetMemoryErrorCounter, {}
        for name, place in _ECC.items():
            found = self._ask(name, partial(count, self.handle, *place))
            if found is not None:
                values[name] = found
        return values

    def _sram(self) -> dict[str, float]:
        status = self._ask("sram", self._sram_status)
        if status is None:
            return {}
        values = {"sram_threshold_exceeded": int(bool(status.bThresholdExceeded))}
        return values | {"sram_uncorrected_aggregate": status.aggregateUncParity + status.aggregateUncSecDed}

    def _sram_status(self) -> Any:
        status = self._nvml.c_nvmlEccSramErrorStatus_v1_t()
        self._nvml.nvmlDeviceGetSramEccErrorStatus(self.handle, ctypes.byref(status))
        return status

    def _fabric(self) -> dict[str, float]:
        info = self._ask("fabric", self._fabric_info)
        if info is None:
            return {}
        values = {"fabric_state": info.state, "fabric_status": info.status, "fabric_clique": info.cliqueId}
        return values | {"fabric_health": info.healthMask, "fabric_summary": getattr(info, "healthSummary", 0)}

    def _fabric_info(self) -> Any:
        """The newest form that this binding and this driver both know."""
        nvml = self._nvml
        kinds = [getattr(nvml, f"c_nvmlGpuFabricInfo_v{number}_t", None) for number in (3, 2)]
        for kind in filter(None, kinds):
            info = kind()
            try:
                nvml.nvmlDeviceGetGpuFabricInfoV(self.handle, ctypes.byref(info))
            except nvml.NVMLError as error:
                if code(error) != nvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH:
                    raise
            else:
                return info
        return None

    def _links(self, count: int) -> list[dict[str, float]]:
        """One row for each link, in one call for all."""
        count = min(count, _LINKS_MAX)
        if not count:
            return []
        wanted = [(number, link) for link in range(count) for number in _LINK_FIELDS.values()]
        found = self._ask("links", lambda: self._values(wanted)) or {}
        named = [{name: found.get((number, link)) for name, number in _LINK_FIELDS.items()} for link in range(count)]
        return [{name: value for name, value in row.items() if value is not None} for row in named]

    def _fields(self, table: dict[str, int]) -> dict[str, float]:
        """In one call. What this GPU does not tell is left out: unknown, not zero."""
        found = self._ask(f"fields{min(table.values())}", lambda: self._values([(n, 0) for n in table.values()])) or {}
        for name, number in table.items():
            if found and (number, 0) not in found:
                self._unknown[name] = _NOT_SUPPORTED
        return {name: found[number, 0] for name, number in table.items() if (number, 0) in found}

    def _values(self, wanted: list[tuple[int, int]]) -> dict[tuple[int, int], float]:
        rows = self._nvml.nvmlDeviceGetFieldValues(self.handle, wanted)
        sick = [row.nvmlReturn for row in rows if row.nvmlReturn in _SICK or row.nvmlReturn in _GONE]
        if sick:
            raise self._nvml.NVMLError(sick[0])
        good = (row for row in rows if row.nvmlReturn == 0 and row.valueType < len(_VALUES))
        return {(row.fieldId, row.scopeId): getattr(row.value, _VALUES[row.valueType]) for row in good}

    def _processes(self) -> list[tuple[int, int]]:
        listed = self._ask("processes", lambda: self._nvml.nvmlDeviceGetComputeRunningProcesses(self.handle)) or []
        return [(one.pid, one.usedGpuMemory or 0) for one in listed]

    def _ask(self, name: str, call: Callable[[], Any]) -> Any:
        """None: not told, and `unknown` says by which code. Raises what concerns the whole GPU, or NVML itself."""
        if name in self._absent:
            return None
        began = time.monotonic()
        try:
            return call()
        except self._nvml.NVMLError as error:
            wrong = code(error)
            if wrong in _SICK or wrong in _GONE:
                raise
            self._unknown[name] = wrong
            if wrong in _ABSENT:
                self._absent[name] = wrong
        except (AttributeError, ValueError, TypeError, IndexError):  # an older binding, or a newer one
            self._unknown[name] = self._absent[name] = _NOT_FOUND_FUNCTION
        finally:
            took = time.monotonic() - began
            if took > self._slowest[1]:
                self._slowest = (name, round(took, 4))
        return None


def _or_none(nvml: Any, call: Callable[[], Any]) -> Any:
    try:
        return call()
    except (nvml.NVMLError, AttributeError):
        return None


def code(error: Any) -> int:
    return int(getattr(error, "value", 0) or _UNKNOWN)


def text(value: object) -> str:
    """Older bindings answer with bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


if __name__ == "__main__":
    main(sys.argv[1])
