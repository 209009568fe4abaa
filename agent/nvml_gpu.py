"""One GPU through NVML: every figure that it tells, and by which code those are refused that it does not.

In the process that may hang: nothing of ours but this is imported there.
"""

import ctypes
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

_NOT_SUPPORTED, _NOT_FOUND_FUNCTION, UNKNOWN = 3, 13, 999
GONE: Final = (1, 9, 12, 18)  # NVML itself is void: uninitialised, driver not loaded, no library, another driver
SICK: Final = (15, 16, 28)  # this GPU is: lost, waits for a reset, not found
_ABSENT: Final = (_NOT_SUPPORTED, _NOT_FOUND_FUNCTION)  # not asked for again for a while: it costs a call each time
_ASK_AGAIN_S: Final = 3600.0
_VALUES: Final = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")  # by value type
_LINKS_MAX: Final = 72
# fields by the name of what they tell; those of the second table are asked for less often
_FIELDS: Final = {
    "ecc_corrected_volatile": 3, "ecc_uncorrected_volatile": 4, "ecc_corrected_aggregate": 5,
    "ecc_uncorrected_aggregate": 6, "power_cap_ns": 74, "thermal_ns": 75, "memory_temperature_c": 82,
    "pcie_replay": 94, "pcie_replay_rollover": 95, "recovery_action": 230, "sw_thermal_ns": 269, "hw_thermal_ns": 270,
    "power_brake_ns": 271,
}  # fmt: skip
_SLOW_FIELDS: Final = {
    "nvlink_crc_flit": 38, "nvlink_crc_data": 45, "nvlink_replay": 52, "nvlink_recovery": 59, "nvlink_ecc": 160,
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
        if not values and UNKNOWN in self._unknown.values():
            raise self._nvml.NVMLError(UNKNOWN)
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
        rows = [{name: value for name, value in row.items() if value is not None} for row in named]
        return rows if any("state" in row for row in rows) else self._with_states(rows)

    def _with_states(self, rows: list[dict[str, float]]) -> list[dict[str, float]]:
        """Before Hopper a link's state is no field."""
        state = self._nvml.nvmlDeviceGetNvLinkState
        for link, row in enumerate(rows):
            told = self._ask("link_state", partial(state, self.handle, link))
            row |= {} if told is None else {"state": told}
        return rows

    def _fields(self, table: dict[str, int]) -> dict[str, float]:
        """In one call. What this GPU does not tell is left out: unknown, not zero."""
        found = self._ask(f"fields{min(table.values())}", lambda: self._values([(n, 0) for n in table.values()])) or {}
        for name, number in table.items():
            if found and (number, 0) not in found:
                self._unknown[name] = _NOT_SUPPORTED
        return {name: found[number, 0] for name, number in table.items() if (number, 0) in found}

    def _values(self, wanted: list[tuple[int, int]]) -> dict[tuple[int, int], float]:
        rows = self._nvml.nvmlDeviceGetFieldValues(self.handle, wanted)
        sick = [row.nvmlReturn for row in rows if row.nvmlReturn in SICK or row.nvmlReturn in GONE]
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
            if wrong in SICK or wrong in GONE:
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


def or_none(nvml: Any, call: Callable[[], Any]) -> Any:
    try:
        return call()
    except (nvml.NVMLError, AttributeError):
        return None


def code(error: Any) -> int:
    return int(getattr(error, "value", 0) or UNKNOWN)


def text(value: object) -> str:
    """Older bindings answer with bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
