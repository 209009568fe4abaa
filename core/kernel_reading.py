"""What one line of the kernel's log says, as a value; the vocabulary of its kinds and what each is worth."""

from typing import Final, NamedTuple

import msgspec

from rankpulse.core import xid_catalogue as c

NONE: Final = "none"
XID: Final = "xid"
SXID: Final = "sxid"
GPU_UUID: Final = "gpu_uuid_map"
GPU_LOST: Final = "gpu_lost"
GSP_STALL: Final = "gsp_stall"


class Reading(msgspec.Struct, frozen=True, omit_defaults=True):
    """`kind` says what it is about; None: the line does not tell. Bus ids: dddd:bb:dd, as the kernel writes them."""

    kind: str = NONE
    xid: int | None = None
    pci_bus_id: str | None = None
    pid: int | None = None
    process_name: str | None = None
    gpu_uuid: str | None = None
    recovery_action: dict[str, int] | None = None  # of a 154: from, to
    origin: str | None = None  # kernel, user; None: the line does not say
    gpu_instance: int | None = None  # of a MIG device
    compute_instance: int | None = None
    gpc: int | None = None
    tpc: int | None = None
    sm: int | None = None
    caused_by_xid: int | None = None
    sxid: int | None = None
    switch: int | None = None
    subcomponent: str | None = None
    fatal: bool | None = None
    link: int | None = None
    clear: bool | None = None  # the end of a trouble
    continuation: bool | None = None  # belongs to the line before, counts for nothing
    interface: str | None = None
    aer_severity: str | None = None
    edac: str | None = None
    severity: str | None = None
    count: int | None = None
    library: str | None = None
    scope: str | None = None  # of an OOM kill: host, cgroup
    client_version: str | None = None
    module_version: str | None = None

    @property
    def injected(self) -> bool:
        """Somebody wrote it into the log: a test, or worse. Not to be acted upon."""
        return self.origin == "user"

    @property
    def place(self) -> tuple[int, int] | None:
        """Where on the chip: the same place again speaks against the chip."""
        return (self.gpc, self.tpc) if self.gpc is not None and self.tpc is not None else None


class Kind(NamedTuple):
    role: str
    scope: str
    action: str
    words: str


KINDS: Final = {
    GPU_UUID: Kind(c.INFORMATIONAL, c.GPU, c.IGNORE, "which GPU sits where"),
    GPU_LOST: Kind(c.CAUSE, c.GPU, c.DRAIN_REBOOT, "GPU lost: it has fallen off the bus"),
    "gpu_init_failed": Kind(c.CAUSE, c.GPU, c.DRAIN_REBOOT, "the driver cannot bring a GPU up"),
    "gpu_reset_required": Kind(c.CAUSE, c.GPU, c.RESET_GPU, "a GPU does nothing before it is reset"),
    GSP_STALL: Kind(c.CAUSE, c.GPU, c.RESET_GPU, "the firmware of a GPU (GSP, PMU) stands still"),
    "nvlink_training_warning": Kind(c.INFORMATIONAL, c.LINK, c.IGNORE, "NVLink found fewer links than it looked for"),
    "driver_load": Kind(c.INFORMATIONAL, c.NODE, c.IGNORE, "the driver was loaded: volatile counters start over"),
    "driver_probe_failed": Kind(c.CAUSE, c.NODE, c.DRAIN_REBOOT, "the driver found no working GPU in a slot"),
    "driver_mismatch": Kind(c.CAUSE, c.NODE, c.DRAIN_REBOOT, "driver and library do not fit: new programs fail here"),
    "peermem_warning": Kind(c.CONSEQUENCE, c.PROCESS, c.IGNORE, "GPUDirect memory of a program that ended"),
    "nic_warning": Kind(c.INFORMATIONAL, c.LINK, c.IGNORE, "a network card warns"),
    "nic_error": Kind(c.CAUSE, c.LINK, c.DRAIN_REBOOT, "a network card failed"),
    "nic_link_down": Kind(c.CAUSE, c.LINK, c.CONTACT_VENDOR, "a network link went down: look at cable and switch"),
    "nic_link_up": Kind(c.INFORMATIONAL, c.LINK, c.IGNORE, "a network link is up"),
    "nic_recovered": Kind(c.INFORMATIONAL, c.LINK, c.IGNORE, "a network card recovered"),
    "pcie_degraded": Kind(c.INFORMATIONAL, c.LINK, c.IGNORE, "a PCIe link is narrower or slower than it could be"),
    "pcie_link_down": Kind(c.CAUSE, c.LINK, c.DRAIN_REBOOT, "a PCIe slot lost its card"),
    "pcie_aer": Kind(c.CAUSE, c.LINK, c.DRAIN_REBOOT, "PCIe error"),
    "pcie_aer_detail": Kind(c.CONSEQUENCE, c.LINK, c.IGNORE, "details of a PCIe error"),
    "iommu_fault": Kind(c.CAUSE, c.NODE, c.CONTACT_VENDOR, "a device wrote where it may not (IOMMU)"),
    "edac": Kind(c.CAUSE, c.NODE, c.DRAIN_REBOOT, "memory error of the host"),
    "mce": Kind(c.CAUSE, c.NODE, c.DRAIN_REBOOT, "hardware error of the host"),
    "hung_task": Kind(c.CONSEQUENCE, c.PROCESS, c.IGNORE, "a task stands in the kernel"),
    "soft_lockup": Kind(c.CAUSE, c.NODE, c.DRAIN_REBOOT, "a CPU stands still"),
    "hard_lockup": Kind(c.CAUSE, c.NODE, c.DRAIN_REBOOT, "a CPU stands still with interrupts off"),
    "rcu_stall": Kind(c.CAUSE, c.NODE, c.DRAIN_REBOOT, "a CPU does not answer the others"),
    "kernel_panic": Kind(c.CAUSE, c.NODE, c.DRAIN_REBOOT, "the kernel gave up"),
    "segfault": Kind(c.CAUSE, c.PROCESS, c.RESTART_APP, "a program crashed"),
    "oom_kill": Kind(c.CAUSE, c.PROCESS, c.RESTART_APP, "a process was killed: out of memory"),
    "oom_invoked": Kind(c.INFORMATIONAL, c.PROCESS, c.IGNORE, "who asked for memory, not who was killed"),
    "oom_reaped": Kind(c.CONSEQUENCE, c.PROCESS, c.IGNORE, "the memory of a killed process is free again"),
    "disk_error": Kind(c.CAUSE, c.NODE, c.CONTACT_VENDOR, "a disk or file system failed"),
    "storage_stall": Kind(c.CAUSE, c.NODE, c.IGNORE, "a file server does not answer"),
}  # fmt: skip
_MILD: Final = ("corrected", "recovered", "nonfatal", "CE", "info")


def role(reading: Reading) -> str | None:
    """cause, consequence, informational or unknown; None where the line says nothing."""
    if reading.continuation:
        return c.CONSEQUENCE
    if reading.clear or mild(reading):
        return c.INFORMATIONAL
    if reading.xid is not None:
        return c.of(reading.xid).role
    if reading.sxid is not None:
        return _of_switch(reading).role
    return KINDS[reading.kind].role if reading.kind in KINDS else None


def action(reading: Reading) -> str | None:
    """What this line alone asks for; None where it says nothing."""
    if reading.kind == NONE:
        return None
    if reading.continuation or reading.clear or mild(reading):
        return c.IGNORE
    if reading.xid is not None:
        return _of_xid(reading, c.of(reading.xid).action)
    if reading.sxid is not None:
        return _of_switch(reading).action
    return KINDS[reading.kind].action


def scope(reading: Reading) -> str | None:
    if reading.xid is not None:
        return c.of(reading.xid).scope
    if reading.sxid is not None:
        return c.of_switch(reading.sxid).scope
    return KINDS[reading.kind].scope if reading.kind in KINDS else None


def words(reading: Reading) -> str:
    """One plain sentence, without a full stop."""
    if reading.xid is not None:
        told = f"XID {reading.xid}: {c.of(reading.xid).meaning}"
        asked = (reading.recovery_action or {}).get("to")
        return told if asked is None else f"{told}: it asks for {c.recovery_words(asked)}"
    if reading.sxid is not None:
        return f"SXid {reading.sxid}: {c.of_switch(reading.sxid).meaning}"
    if reading.kind not in KINDS:
        return ""
    return KINDS[reading.kind].words + (" (corrected, or only logged)" if mild(reading) else "")


def mild(reading: Reading) -> bool:
    """Errors that the hardware has corrected or that the driver goes on after; that something was logged is no more."""
    if reading.kind == "mce" and reading.severity is None and reading.pid is None:
        return True
    return bool({reading.aer_severity, reading.edac, reading.severity} & {*_MILD})


def _of_xid(reading: Reading, listed: str) -> str:
    if listed == c.DECODE:
        return c.IGNORE if reading.fatal is False else c.RESET_GPU
    if listed == c.STATED:
        return c.of_recovery((reading.recovery_action or {}).get("to"))
    return listed


def _of_switch(reading: Reading) -> c.Switch:
    """What the line prints is the floor of what a code without an entry means."""
    found = c.of_switch(reading.sxid or 0)
    if found.role != c.UNKNOWN or reading.fatal is None:
        return found
    return found._replace(role=c.CAUSE if reading.fatal else c.INFORMATIONAL,
                          action=c.RESET_GPU if reading.fatal else c.IGNORE)  # fmt: skip
