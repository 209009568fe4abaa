"""What nodes tell of their GPUs, as JSON values: how many there are, the worst that is open, and each finding."""

from typing import Any

from rankpulse.core import gpu_faults as faults
from rankpulse.core import gpu_words
from rankpulse.core.fold_health import HealthFolder, findings
from rankpulse.core.records import DeviceFault

SHOWN = 32  # findings of a node


def health(folder: HealthFolder, node: str) -> dict[str, Any] | None:
    """None where the node tells of none: not known, not well."""
    record = folder.records.get(node)
    if record is None:
        return None
    told = [faults.of_finding(node, finding, gpu) for finding, gpu in findings(record)]
    broken = [fault for where, fault in folder.causes.items() if where.node == node]
    return {
        "at": record.at,
        "driver": record.driver,
        "gpus": len(record.gpus),
        "broken": [gpu_words.title([fault]) for fault in broken[:SHOWN]],
        "faults": len(broken),
        "findings": [_finding(fault) for fault in told[:SHOWN]],
    }


def _finding(fault: DeviceFault) -> dict[str, Any]:
    names = ("bus", "index", "uuid", "what", "level", "action", "text", "count", "source")
    return {name: getattr(fault, name) for name in names}
