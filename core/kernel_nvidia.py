"""What NVIDIA's drivers print: XID in all its historic forms, SXid, lost GPUs, stalled firmware, versions. Total."""

import re
from collections.abc import Callable
from typing import Any, Final

from rankpulse.core import xid_catalogue
from rankpulse.core.kernel_reading import GPU_LOST, GPU_UUID, GSP_STALL, SXID, XID, Reading

_NAME_MAX: Final = 64
COMM_MAX: Final = 15  # characters of a name that the kernel keeps
_HEX = "[0-9a-fA-F]"
_BDF = rf"(?:({_HEX}{{4,8}}):)?({_HEX}{{2}}):({_HEX}{{2}})(?:\.[0-7])?"
_XID = re.compile(
    rf"""NVRM:\ Xid
    (?:\ \((?:(?:PCI:)?(?:(?P<domain>{_HEX}{{4,8}}):)?(?P<bus>{_HEX}{{2}})|00(?P<alone>{_HEX}{{2}}))
        :(?P<device>{_HEX}{{2}})(?:\.[0-7])?
        (?:[ ,]\ ?GPU-I:(?P<gi>\d{{1,3}}))?(?:[ ,]\ ?(?:GPU-)?CI:(?P<ci>\d{{1,3}}))?\))?
    :\s{{1,4}}(?P<code>\d{{1,10}})(?:,\s*|\s*$)
    (?:pid=(?P<pid>'<unknown>'|<unknown>|'?\d{{1,10}}'?|[^,\s]{{1,32}})(?:,\s*|\s*$))?
    (?:name=(?P<name>.*))?""",
    re.VERBOSE | re.ASCII | re.DOTALL,
)
# how the text after a process name begins: a name may hold commas itself
_BODY = re.compile(
    r"Ch(?:annel)?\b|Graphics|Timeout|GPU|MMU|Row Remap|Dynamic Page|(?:Unc|C)ontained|NVLink|Class Error|An |PBDMA"
    r"|SM |CE|errorString|Uncorrect|Unrecover|[A-Z][A-Z0-9_/]{3,} +(?:Nonf|F)atal|[0-9a-f]{8}\b|Fault"
)
_PLACE = re.compile(r"\(GPC (\d{1,3}), TPC (\d{1,3})(?:, SM (\d{1,3}))?", re.ASCII)
_CAUSED = re.compile(r"caused by previous Xid (\d{1,6})", re.ASCII)
_ASKS = re.compile(
    r"from (0x[0-9a-f]{1,8}|\d{1,8})\s{0,4}(?:\([^)]{0,64}\))?\s{0,4}to (0x[0-9a-f]{1,8}|\d{1,8})\b", re.I | re.A
)
_NVLINK5 = re.compile(r"([A-Z][\w/]{2,63})\s+(Fatal|Nonfatal)\s+(?:XC\d+\s+)?(?:i\d+\s+)?(?:Link\s+(-?\d{1,3}))?", re.A)
_SXID = re.compile(
    rf"nvidia-nvswitch(\d{{1,4}}): SXid \(PCI:({_HEX}{{4,8}}:{_HEX}{{2}}:{_HEX}{{2}}\.[0-7])\): (\d{{4,6}}), (.*)",
    re.ASCII | re.DOTALL,
)
_LINK = re.compile(r"\b[Ll]ink (\d{1,3})\b", re.ASCII)
_ENDS = re.compile(r"Deactivated|thermal_event_end|thermal event end", re.IGNORECASE)
_VERSION = r"(\d{1,4}(?:\.\d{1,4}){1,3})"
_CLIENT = re.compile(
    rf"the client (?:'([^']{{0,64}})' )?(?:\(pid (\d{{1,10}})\) )?has the version {_VERSION}", re.ASCII
)
_MODULE = re.compile(rf"kernel module has (?:the )?version {_VERSION}", re.ASCII)
_AT = re.compile(rf"(?<![\w:])(?:PCI:)?{_BDF}(?!\w|:\w)", re.ASCII)  # no part of a longer number
_UUID = re.compile(r"GPU at (?:PCI:)?\S{1,40}?:?\s{1,4}(GPU-[0-9a-fA-F-]{1,64}|MIG-\S{1,80})", re.ASCII)


def bus(domain: str | None, number: str, device: str) -> str:
    """dddd:bb:dd, in lower case; longer domains stay longer."""
    return f"{int(domain or '0', 16):04x}:{number.lower()}:{device.lower()}"


def read(text: str) -> Reading | None:
    """None: no line of theirs, or one that says nothing."""
    if text.startswith("NVRM: "):
        return xid(text) if text.startswith("Xid", 6) else _told(text[6:])
    if text.startswith("nvidia-nvswitch"):
        return _switch(text)
    if text.startswith(("nvidia-peermem ", "nvidia_peermem", "nv_peer_mem")) and "ERROR" in text:
        return Reading("peermem_warning")
    return None


def xid(text: str) -> Reading | None:
    found = _XID.match(text)
    if found is None:  # cut off by the next one, as on a serial console
        again = text.rfind("NVRM: Xid (PCI:")
        return xid(text[again:]) if again > 0 else None
    digits, pid, name = found["code"], found["pid"], found["name"]
    if found.end("code") == len(text.rstrip()) and xid_catalogue.may_go_on(digits):
        return None  # cut within its number
    if not (found["bus"] or found["alone"]) and len(digits) > 2:
        return None  # drivers that named no device knew no such codes
    body = text[found.end() :] if name is None else ""
    if name is not None:
        name, body = _named(name)
    code, pid = int(digits), (pid or "").strip("'")
    more: dict[str, Any] = _MORE[code](body) if code in _MORE else {}
    if found["gi"]:
        more["gpu_instance"] = int(found["gi"])
    if found["ci"]:
        more["compute_instance"] = int(found["ci"])
    number = found["bus"] or found["alone"]
    where = bus(found["domain"], number, found["device"]) if number else None
    return Reading(XID, code, where, int(pid) if pid.isdigit() else None, name, **more)


def _named(text: str) -> tuple[str | None, str]:
    """A process name and what stands after it. The name is the program's choice, and may hold anything."""
    first = end = text.find(", ")
    while 0 <= end <= COMM_MAX and not _BODY.match(text, end + 2):
        end = text.find(", ", end + 1)
    end = end if 0 <= end <= COMM_MAX else first
    name, body = (text[:end], text[end + 2 :]) if end >= 0 else (text, "")
    name = name[:_NAME_MAX].strip("\n")
    bare = name.strip("'")
    return (None if not bare or (bare[0] == "<" and "<unknown>".startswith(bare)) else name), body


def _place(body: str) -> dict[str, Any]:
    found = _PLACE.search(body)
    if found is None:
        return {}
    gpc, tpc, sm = found.groups()
    return {"gpc": int(gpc), "tpc": int(tpc), "sm": int(sm) if sm else None}


def _caused(body: str) -> dict[str, Any]:
    found = _CAUSED.search(body)
    return {"caused_by_xid": int(found[1])} if found else {}


def _asks(body: str) -> dict[str, Any]:
    """By number: the labels differ from one driver to the next."""
    found = _ASKS.search(body)
    return {"recovery_action": {"from": _number(found[1]), "to": _number(found[2])}} if found else {}


def _number(text: str) -> int:
    return int(text, 16 if text[:2].lower() == "0x" else 10)


def _nvlink5(body: str) -> dict[str, Any]:
    found = _NVLINK5.match(body)
    if found is None:
        return {}
    part, how, link = found.groups()
    return {"subcomponent": part, "fatal": how == "Fatal", "link": int(link) if link else None}


def _link(body: str) -> dict[str, Any]:
    found = _LINK.search(body)
    return {"link": int(found[1]), "fatal": "fatal error" in body and "non-fatal" not in body} if found else {}


_MORE: Final[dict[int, Callable[[str], dict[str, Any]]]] = {
    13: _place, 31: _place, 74: _link, 43: _caused, 45: _caused, 154: _asks, **dict.fromkeys(range(144, 151), _nvlink5),
}  # fmt: skip


def _switch(text: str) -> Reading | None:
    found = _SXID.match(text)
    if found is None:
        return None
    number, where, code, body = found.groups()
    link = _LINK.search(body)
    return Reading(
        SXID, pci_bus_id=where.lower(), sxid=int(code), switch=int(number),
        fatal=True if body.startswith("Fatal") else False if body.startswith("Non-fatal") else None,
        link=int(link[1]) if link else None,
        clear=True if _ENDS.search(body) else None,
        continuation=True if body.startswith(("Severity ", "Data ")) else None,
    )  # fmt: skip


def _told(text: str) -> Reading | None:
    """The driver's other lines. The first rule that fits decides."""
    if text.startswith("API mismatch"):
        return _mismatch(text)
    for needle, kind in _TOLD:
        if needle.search(text):
            return _about_gpu(text, kind)
    return None


_TOLD: Final = (
    (re.compile(r"GPU at (?:PCI:)?\S{1,40}?:? {1,4}(?:GPU|MIG)-\w"), GPU_UUID),
    (re.compile(r"^(?:The NVIDIA )?GPU .*fallen off the bus", re.DOTALL), GPU_LOST),
    (re.compile(r"RmInitAdapter failed|rm_init_adapter\S{0,16} failed"), "gpu_init_failed"),
    (
        re.compile(r"NVIDIA probe routine (?:failed|was not called)|^None of the NVIDIA .* initialized"),
        "driver_probe_failed",
    ),
    (re.compile(r"NV_ERR_RESET_REQUIRED|[Rr]eset required \["), "gpu_reset_required"),
    (re.compile(r"Heartbeat timed out|PMU has halted|^Rate limiting GSP RPC error prints"), GSP_STALL),
    (re.compile(r"^knvlink\w+: .*(?:RxDetLinkMask|Rx Detect Link mask)"), "nvlink_training_warning"),
    (re.compile(r"^loading NVIDIA UNIX "), "driver_load"),
)


def _about_gpu(text: str, kind: str) -> Reading | None:
    where = _AT.search(text) if kind != "driver_load" else None
    uuid = _UUID.search(text) if kind == GPU_UUID else None
    if where is None and kind in (GPU_LOST, GPU_UUID):
        return None  # the driver always says which
    return Reading(
        kind, pci_bus_id=bus(where[1], where[2], where[3]) if where else None, gpu_uuid=uuid[1] if uuid else None
    )


def _mismatch(text: str) -> Reading:
    text = text.replace("\nNVRM: ", " ")
    client, module = _CLIENT.search(text), _MODULE.search(text)
    pid = client[2] if client else None
    return Reading(
        "driver_mismatch", pid=int(pid) if pid else None, process_name=(client[1] or None) if client else None,
        client_version=client[3] if client else None, module_version=module[1] if module else None,
    )  # fmt: skip
