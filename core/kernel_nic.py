"""What drivers of network cards print: links, cables, firmware, timeouts. Total."""

import re
from typing import Final

from rankpulse.core.kernel_pcie import LIMITED
from rankpulse.core.kernel_reading import Reading

_BDF = r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]"
_DRIVERS = (
    r"(?:mlx[45]_(?:core|ib)|bnxt_(?:en|re)|ice|irdma|i40e|ixgbe|igb|igc|e1000e"
    r"|tg3|ena|efa|hfi1|be2net|qede?|ionic)(?!\w)"
)
_IFACE = r"[A-Za-z][\w.-]{0,31}"
# driver, bus id, interface: each may be missing, but not all
_CARD = re.compile(
    rf"{_DRIVERS}(?: (?P<bdf>{_BDF}))?:? ?(?:(?P<iface>{_IFACE})(?: \(\w*\))?: (?!\d))?(?=\S)"
    r"|(?=mlx5_\w+:(?:\w+:)?\d+:)",
    re.ASCII,
)
_IB = re.compile(rf"(?:infiniband|ib_\w+) (?P<iface>{_IFACE}): ", re.ASCII)
_BOND = re.compile(
    rf"{_IFACE}: (?:\(slave (?P<slave>{_IFACE})\): )?link status (?:definitely )?(?P<how>down|up)\b"
    rf"(?: again)?(?: for interface (?P<iface>{_IFACE}))?", re.ASCII
)  # fmt: skip
_QUEUE = re.compile(
    rf"NETDEV WATCHDOG: (?:(?P<iface>{_IFACE}) \(\S*\): |CPU: \d+: )?transmit queue \d+ timed out"
    rf"|(?P<ipoib>ib[\w.-]{{1,30}}): transmit timeout: latency",
    re.ASCII,
)
_PLAIN_LINK = re.compile(
    rf"(?:[\w-]{{1,32}} (?P<bdf>{_BDF}) )?(?P<iface>(?=[\w.-]*\d)(?:eth|en|ib|bond|rdma|roce|hsn)[\w.-]{{0,31}}):? "
    r"(?:NIC )?[Ll]ink (?:is )?(?P<how>[Dd]own|[Uu]p)\b",
    re.ASCII,
)

_DOWN, _UP, _ERROR, _WARNING, _RECOVERED = (
    "nic_link_down", "nic_link_up", "nic_error", "nic_warning", "nic_recovered"
)  # fmt: skip
_RULES: Final = tuple(
    (re.compile(pattern), kind)
    for pattern, kind in (
        (LIMITED, "pcie_degraded"),
        (r"Recovered \d+ EQE|[Rr]ecovered after timeout|recovery (?:flow )?(?:completed|succe)", _RECOVERED),
        (r"Port: ?\d+ Link ACTIVE|\b(?:NIC )?[Ll]ink (?:is )?[Uu]p\b", _UP),
        (r"Port: ?\d+ Link (?:DOWN|INIT|ARMED|POLLING|DISABLED)", _DOWN),
        (r"\b(?:NIC )?[Ll]ink (?:is )?[Dd]own\b|[Cc]able unplugged|Lost carrier", _DOWN),
        (r"module event(?:\[error\])?: module \d+, (?:[Cc]able error|[Bb]us stuck|[Uu]nknown)|[Cc]able error", _ERROR),
        (r"insufficient power|[Hh]igh [Tt]emperature|[Cc]able plugged|temp_warn", _WARNING),
        (r"[Hh]ealth issue observed|health compromised|firmware internal error|[Ff]atal (?:error|fw)", _ERROR),
        (r"recovery flow aborted|recovery failed|PCI reads still not working|health poll failed|miss count", _ERROR),
        (
            r"(?:TX|Tx|tx)[ _]timeout|Unit Hang|transmit queue \d+ timed out|[Ww]ait for completion.*timeout",
            _ERROR,
        ),
        (r"Failed to process command |Error \(timeout: |[Ff]irmware fatal|FW STALL", _ERROR),
        (
            r"dump error cqe|[Ee]rror cqe|timeout\. Will cause a leak|watchdog timeout|is not responding|timed out",
            _ERROR,
        ),
        (r"cmd_out_err|(?:ACCESS_REG|[A-Z]{3,24}_[A-Z_]{3,40})\(0x[0-9a-f]{1,8}\).*failed", _WARNING),
    )
)


def read(text: str) -> Reading | None:
    for rule in (_queue, _bond, _card, _plain):
        if (found := rule(text)) is not None:
            return found
    return None


def _queue(text: str) -> Reading | None:
    found = _QUEUE.search(text)
    if found is None or not (found.start() == 0 or _CARD.match(text)):
        return None
    card = _CARD.match(text) if found.start() else None
    return Reading(
        "nic_error",
        pci_bus_id=card["bdf"].lower() if card and card["bdf"] else None,
        interface=found["iface"] or found["ipoib"] or (card["iface"] if card else None),
    )


def _bond(text: str) -> Reading | None:
    found = _BOND.match(text)
    if found is None:
        return None
    return Reading(_DOWN if found["how"] == "down" else _UP, interface=found["slave"] or found["iface"])


def _card(text: str) -> Reading | None:
    card = _CARD.match(text) or _IB.match(text)
    kind = next((kind for pattern, kind in _RULES if pattern.search(text, card.end())), None) if card else None
    if card is None or kind is None:
        return None
    named = card.groupdict()
    return Reading(kind, pci_bus_id=(named.get("bdf") or "").lower() or None, interface=named.get("iface"))


def _plain(text: str) -> Reading | None:
    found = _PLAIN_LINK.match(text)
    if found is None:
        return None
    kind = _DOWN if found["how"].lower() == "down" else _UP
    return Reading(kind, pci_bus_id=(found["bdf"] or "").lower() or None, interface=found["iface"])
