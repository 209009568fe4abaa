"""What may hang is looked at in a process of its own: directories, other processes, GPUs. It prints a line for each.

    python -m rankpulse.agent.preflight_child '{"dirs": ["/ckpt"], "holders": [1000, "run-1", "/dev/nvidia\\d+"], "gpus": true}'

A call into the driver cannot be taken back when the driver does not answer; a process can be left to itself.
"""  # noqa: E501

import contextlib
import ctypes
import json
import os
import re
import signal
import sys
from collections.abc import Iterator
from typing import Any

_ENVIRON_MAX = 1 << 20
_RECOVERY_ACTION = 230  # NVML_FI_DEV_GET_GPU_RECOVERY_ACTION: no name for it in older bindings
_VALUES = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")  # by value type
_NO_PYNVML = -1
_COUNTERS = ("link_downed", "link_error_recovery", "symbol_error", "port_rcv_errors", "port_xmit_discards")


def main(request: str) -> None:
    """Answer in this order, each as soon as it is known: what is missing in the end is what hangs."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # nobody needs the answer when the agent is gone
    asked = json.loads(request)
    if asked.get("dirs"):
        tell("dirs", [space(path) for path in asked["dirs"]])
    if asked.get("ports"):
        tell("ports", list(ports(asked["ports"])))
    if asked.get("holders"):
        tell("holders", list(holders(*asked["holders"])))
    if asked.get("gpus"):
        tell("gpus", gpus())


def tell(what: str, value: object) -> None:
    sys.stdout.write(json.dumps({what: value}) + "\n")
    sys.stdout.flush()


def space(path: str, *, entering: bool = True) -> dict[str, Any]:
    """As `core.preflight.Space`."""
    try:
        found = os.statvfs(path)
        if entering:
            with os.scandir(path) as entries:  # a stale handle may still have its figures
                next(entries, None)
    except OSError as error:
        denied = isinstance(error, PermissionError)
        return {"path": path, "error": error.strerror or str(error), "denied": denied}
    return {
        "path": path,
        "free": found.f_bavail * found.f_frsize,
        "read_only": bool(found.f_flag & os.ST_RDONLY),
        "files_left": found.f_favail if found.f_files else None,
    }


def ports(root: str) -> Iterator[dict[str, Any]]:
    """As `core.host_rules.Port`. A card in trouble may hold up whoever reads its counters."""
    for card in sorted(os.listdir(root)):
        for number in sorted(os.listdir(f"{root}/{card}/ports")):
            place = f"{root}/{card}/ports/{number}"
            counters = {name: _number(f"{place}/counters/{name}") for name in _COUNTERS}
            told = {name: value for name, value in counters.items() if value is not None}
            yield {"name": f"{card}/{number}", "state": _line(f"{place}/state"), "counters": told}


def _line(path: str) -> str:
    with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
        return file.readline(200).strip()
    return ""


def _number(path: str) -> int | None:
    found = _line(path)
    return int(found) if found.isdecimal() else None


# -- processes that hold a GPU ------------------------------------------------------------------------------------
def holders(uid: int, run_uid: str, devices: str) -> Iterator[tuple[int, int, int, str]]:
    """Processes of that user that carry the run in the environment they were started with, and have a device open."""
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            with contextlib.suppress(OSError, ValueError, IndexError):
                found = _holder(int(name), uid, run_uid, re.compile(devices))
                if found:
                    yield found


def _holder(pid: int, uid: int, run_uid: str, devices: re.Pattern[str]) -> tuple[int, int, int, str] | None:
    if os.stat(f"/proc/{pid}").st_uid != uid:
        return None
    start = _start(pid)
    said = _environ(pid)
    if said.get("RANKPULSE_RUN_UID") != run_uid or not said.get("RANKPULSE_ROUND", "").isdecimal():
        return None
    device = next((link for link in _open_files(pid) if devices.fullmatch(link)), "")
    return (pid, start, int(said["RANKPULSE_ROUND"]), device) if device and _start(pid) == start else None


def _start(pid: int) -> int:
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        return int(file.read().rpartition(")")[2].split()[19])


def _environ(pid: int) -> dict[str, str]:
    with open(f"/proc/{pid}/environ", "rb") as file:
        entries = file.read(_ENVIRON_MAX).decode("utf-8", "replace").split("\0")
    return dict(entry.split("=", 1) for entry in entries if "=" in entry)


def _open_files(pid: int) -> Iterator[str]:
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            yield os.readlink(f"/proc/{pid}/fd/{name}")


# -- GPUs ---------------------------------------------------------------------------------------------------------
def gpus() -> dict[str, Any]:
    """As `core.preflight.Gpus`. NVML is not shut down: the process ends."""
    try:
        import pynvml as nvml
    except ImportError:
        return {"error": _NO_PYNVML}
    try:
        nvml.nvmlInit()
        count = int(nvml.nvmlDeviceGetCount())
    except nvml.NVMLError as error:
        return {"error": _code(error), "error_text": str(error)}
    driver = _or_none(nvml, nvml.nvmlSystemGetDriverVersion)
    return {"driver": _text(driver or ""), "gpus": [gpu(nvml, index) for index in range(count)]}


def gpu(nvml: Any, index: int) -> dict[str, Any]:
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        row = {"index": index, "name": _text(nvml.nvmlDeviceGetName(handle))}
    except nvml.NVMLError as error:
        return {"index": index, "error": _code(error), "error_text": str(error)}
    pci = _or_none(nvml, lambda: nvml.nvmlDeviceGetPciInfo(handle).busId)
    rows = _or_none(nvml, lambda: nvml.nvmlDeviceGetRemappedRows(handle))
    row |= {"bus": _text(pci or "").lower(), "action": _or_none(nvml, lambda: _recovery_action(nvml, handle))}
    row |= {"remap_pending": bool(rows[2]), "remap_failed": bool(rows[3])} if rows else {}
    return row | {"fabric": _or_none(nvml, lambda: _fabric(nvml, handle))}


def _recovery_action(nvml: Any, handle: Any) -> int | None:
    (value,) = nvml.nvmlDeviceGetFieldValues(handle, [_RECOVERY_ACTION])
    return int(getattr(value.value, _VALUES[value.valueType])) if value.nvmlReturn == 0 else None


def _fabric(nvml: Any, handle: Any) -> int:
    info = nvml.c_nvmlGpuFabricInfo_v2_t()
    nvml.nvmlDeviceGetGpuFabricInfoV(handle, ctypes.byref(info))
    return int(info.state)


def _or_none(nvml: Any, call: Any) -> Any:
    """What this driver or this binding does not have is not told."""
    try:
        return call()
    except (nvml.NVMLError, AttributeError, ValueError, TypeError, IndexError):
        return None


def _code(error: Any) -> int:
    return int(getattr(error, "value", 0) or 999)


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


if __name__ == "__main__":
    main(sys.argv[1])
