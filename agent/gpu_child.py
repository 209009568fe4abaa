"""How busy the GPUs are, by NVML, in a process of its own: a call into a driver that hangs cannot be taken back.

    python -P -m rankpulse.agent.gpu_child

Prints one line of JSON: a list of GPUs, or {"error": TEXT}. What a driver does not tell is left out.
"""

import ctypes
import json
import signal
import sys
from typing import Any

_REASONS = {0x8: "hardware slowdown", 0x20: "thermal (software)", 0x40: "thermal", 0x80: "power brake"}


def main() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # nobody needs the answer when the agent is gone
    sys.stdout.write(json.dumps(gpus()) + "\n")
    sys.stdout.flush()


def gpus() -> Any:
    try:
        import pynvml as nvml
    except ImportError:
        return {"error": "nvidia-ml-py is not installed"}
    try:
        nvml.nvmlInit()
        return [gpu(nvml, index) for index in range(int(nvml.nvmlDeviceGetCount()))]
    except nvml.NVMLError as error:
        return {"error": str(error)}


def gpu(nvml: Any, index: int) -> dict[str, Any]:
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
    except nvml.NVMLError as error:
        return {"index": index, "error": str(error)}
    found = {
        "util": _told(nvml, lambda: float(nvml.nvmlDeviceGetUtilizationRates(handle).gpu)),
        "used": _told(nvml, lambda: int(nvml.nvmlDeviceGetMemoryInfo(handle).used)),
        "uuid": _told(nvml, lambda: _text(nvml.nvmlDeviceGetUUID(handle))),
        "pci": _told(nvml, lambda: _text(nvml.nvmlDeviceGetPciInfo(handle).busId).lower()),
        "throttled": _told(nvml, lambda: _reasons(nvml, handle)),
        "pids": _told(nvml, lambda: [int(one.pid) for one in nvml.nvmlDeviceGetComputeRunningProcesses(handle)]),
    }
    return {"index": index, **{name: value for name, value in found.items() if value is not None}}


def _reasons(nvml: Any, handle: Any) -> str:
    ask = getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None) or getattr(
        nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", None
    )
    bits = int(ask(handle)) if ask else 0
    return ", ".join(word for bit, word in _REASONS.items() if bits & bit)


def _told(nvml: Any, call: Any) -> Any:
    try:
        return call()
    except (nvml.NVMLError, AttributeError, ValueError, TypeError):
        return None


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


if __name__ == "__main__":
    main()
