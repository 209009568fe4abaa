"""What a reading of a GPU says of its state, rule by rule. What is not told is unknown: it neither opens nor clears."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from rankpulse.core.gpu_rates import Rates
from rankpulse.core.gpu_reading import Said
from rankpulse.core.health_book import (
    BROKEN,
    CLEAR,
    IGNORE,
    INSPECT,
    REBOOT,
    RESET,
    SICK,
    VENDOR,
    WATCH,
    Condition,
    Verdict,
)

# NVML_FI_DEV_GET_GPU_RECOVERY_ACTION by its number: no order of severity, and labels differ between drivers
RECOVERY: Final[Mapping[int, tuple[str, str, str]]] = {
    1: (BROKEN, RESET, "the driver asks for a reset of the GPU"),
    2: (BROKEN, REBOOT, "the driver asks for a reboot of the node"),
    3: (BROKEN, RESET, "the driver asks that traffic between GPUs be drained"),
    4: (SICK, RESET, "it works with less; the driver asks to drain and reset it"),
    5: (BROKEN, INSPECT, "the driver asks to recover the IMEX domain"),
    6: (BROKEN, REBOOT, "the driver asks for a reset of its bus"),
    7: (BROKEN, REBOOT, "the driver asks for a reboot of the system"),
}
_FABRIC_SLOW_S: Final = 300.0  # joining takes minutes after a boot; longer means that its manager is not there
_SHARE: Final = 0.01  # of the time that clocks were held down
_REPLAYS_PER_S: Final = 8 / 60
_RECOVERIES_PER_S: Final = 10 / 3600
_HOUR_S: Final = 3600.0


@dataclass(slots=True)
class Memory:
    """What the rules keep between readings. `open`: what was the matter before this one."""

    corrected_per_s: float = 100.0
    slow_call_s: float = 1.0
    rates: Rates = field(default_factory=Rates)
    active_links: set[int] = field(default_factory=set)
    fabric_since: float | None = None
    open: set[str] = field(default_factory=set)


class Reading(NamedTuple):
    """One reading: what it tells, what was told last of everything, when it came (monotonic), and what came before."""

    values: Mapping[str, float]
    last: Mapping[str, float]
    said: Said
    now: float
    memory: Memory

    def get(self, name: str) -> float | None:
        return self.values.get(name)


def verdicts(reading: Reading) -> dict[str, Verdict]:
    """Every rule is asked every time: some learn by it."""
    return {name: rule(reading) for name, rule in _RULES.items()}


def _recovery(reading: Reading) -> Verdict:
    action = reading.get("recovery_action")
    if action is None:
        return None
    unknown = (SICK, INSPECT, f"the driver asks for recovery action {action:.0f}")
    return Condition(*RECOVERY.get(int(action), unknown)) if action else CLEAR


def _when(name: str, level: str, action: str, text: str) -> Callable[[Reading], Verdict]:
    """A figure that should be zero."""

    def rule(reading: Reading) -> Verdict:
        value = reading.get(name)
        if value is None:
            return None
        return Condition(level, action, text.format(value)) if value else CLEAR

    return rule


def _corrected(reading: Reading) -> Verdict:
    """By the rate over minutes alone: corrected errors are no fault, a storm of them stalls whoever asks the GPU."""
    memory, name = reading.memory, "ecc_corrected_volatile"
    value = reading.get(name) if name in reading.values else reading.get("ecc_corrected_aggregate")
    rate = memory.rates.add(name, value, reading.now)
    fast = rate.too_fast(memory.corrected_per_s, before="corrected_errors" in memory.open)
    if fast is None:
        return None
    return Condition(SICK, RESET, "a storm of corrected memory errors") if fast else CLEAR


def _held_down(name: str, level: str, text: str) -> Callable[[Reading], Verdict]:
    """By a counter of nanoseconds: a snapshot of the reasons misses what is short."""

    def rule(reading: Reading) -> Verdict:
        rate = reading.memory.rates.add(name, reading.get(name), reading.now)
        held = rate.too_fast(_SHARE * 1e9, before=name in reading.memory.open)
        if held is None:
            return None
        return Condition(level, INSPECT, text) if held else CLEAR

    return rule


def _replays(reading: Reading) -> Verdict:
    rate = reading.memory.rates.add("pcie_replay", reading.get("pcie_replay"), reading.now)
    fast = rate.too_fast(_REPLAYS_PER_S, before="pcie_replay" in reading.memory.open)
    if fast is None:
        return None
    return Condition(WATCH, INSPECT, "many replays on its PCIe link") if fast else CLEAR


def _width(reading: Reading) -> Verdict:
    """By the width alone: the generation drops by design when nothing runs."""
    width, most = reading.get("pcie_width"), reading.last.get("pcie_width_max")
    if width is None or most is None:
        return None
    text = f"its PCIe link is {width:.0f} lanes wide instead of {most:.0f}"
    return Condition(SICK, INSPECT, text) if 0 < width < most else CLEAR


def _fabric(reading: Reading) -> Verdict:
    state, memory = reading.get("fabric_state"), reading.memory
    if state is None:
        return None
    if state not in (1, 2):
        memory.fabric_since = None
        status = int(reading.get("fabric_status") or 0)
        text = f"its registration with the NVLink fabric failed ({status})"
        return Condition(BROKEN, INSPECT, text) if state == 3 and status else CLEAR
    memory.fabric_since = reading.now if memory.fabric_since is None else memory.fabric_since
    if reading.now - memory.fabric_since < _FABRIC_SLOW_S:
        return None
    return Condition(BROKEN, INSPECT, "it does not get into its NVLink fabric: is the fabric manager running?")


_BITS: Final = ((0, "bandwidth is degraded"), (2, "a route recovers"), (4, "a route is unhealthy"),
                (6, "recovers from access time-outs"))  # fmt: skip


def _fabric_health(reading: Reading) -> Verdict:
    mask = reading.get("fabric_health")
    if mask is None:
        return None
    bits = int(mask)
    found = [text for shift, text in _BITS if bits >> shift & 3 == 1]
    found += ["it is wrongly configured"] if bits >> 8 & 15 > 1 else []
    found += ["the fabric manager is not connected"] if bits >> 14 & 3 == 2 else []
    if found:
        return Condition(SICK, INSPECT, f"NVLink fabric: {', '.join(found)}")
    return CLEAR


def _links(reading: Reading) -> Verdict:
    """A link that was up and is not any more."""
    links, memory = reading.said.links, reading.memory
    states = {number: link["state"] for number, link in enumerate(links or ()) if "state" in link}
    if not states:
        return None
    memory.active_links |= {number for number, state in states.items() if state}
    down = sorted(number for number in memory.active_links if states.get(number) == 0)
    text = f"NVLink {', '.join(map(str, down))} is down"
    return Condition(BROKEN, RESET, text) if down else CLEAR


def _recoveries(reading: Reading) -> Verdict:
    """Per link: one that recovers again and again is about to fail, days before."""
    links, before = reading.said.links or (), "nvlink_errors" in reading.memory.open
    total = reading.get("nvlink_recovery")  # of all links together: what generations before Hopper tell
    if not links and total is None:
        return None
    found = [_link(reading, number, link, before=before) for number, link in enumerate(links)]
    rate = reading.memory.rates.add("links", total, reading.now, _HOUR_S)
    found += ["its NVLinks recover again and again"] if rate.too_fast(_RECOVERIES_PER_S, before=before) else []
    texts = [text for text in found if text]
    return Condition(WATCH, INSPECT, "; ".join(texts)[:150]) if texts else CLEAR


def _link(reading: Reading, number: int, link: Mapping[str, float], *, before: bool) -> str:
    told = [link[name] for name in ("recovery", "recoveries", "recovered", "recovery_failed") if name in link]
    if not told:
        return ""
    rate = reading.memory.rates.add(f"link {number}", sum(told), reading.now, _HOUR_S)
    failed = reading.memory.rates.add(f"link {number} failed", link.get("recovery_failed"), reading.now, _HOUR_S)
    if failed.per_s:
        return f"NVLink {number} fails to recover"
    return f"NVLink {number} recovers again and again" if rate.too_fast(_RECOVERIES_PER_S, before=before) else ""


def _slow(reading: Reading) -> Verdict:
    """Whoever asks such a GPU holds up all others who do, the training among them."""
    call, took_s = reading.said.slowest
    if took_s > reading.memory.slow_call_s:
        return Condition(WATCH, INSPECT, f"the driver takes {took_s:.0f} s to answer ({call})")
    return CLEAR


_RULES: Final[Mapping[str, Callable[[Reading], Verdict]]] = {
    "recovery_action": _recovery,
    "remap_failed": _when("remap_failed", BROKEN, VENDOR, "no spare memory rows left where it needs one: replace it"),
    "remap_pending": _when("remap_pending", WATCH, RESET, "a spare memory row is put in place at its next reset"),
    "spare_rows": _when("banks_none", WATCH, IGNORE, "{:.0f} memory banks have no spare rows left"),
    "retired_pending": _when("retired_pending", WATCH, RESET, "a memory page is retired at its next reset"),
    "sram_threshold": _when("sram_threshold_exceeded", SICK, VENDOR, "too many uncorrected errors in its SRAM"),
    "uncorrected_errors": _when(
        "ecc_uncorrected_volatile", WATCH, IGNORE, "memory errors that ECC could not correct, since its last reset"
    ),
    "repair": _when("repair_channel", WATCH, RESET, "a memory channel is repaired at its next reset"),
    "corrected_errors": _corrected,
    "power_brake_ns": _held_down("power_brake_ns", WATCH, "held down by the power brake: power supply or rack"),
    "hw_thermal_ns": _held_down("hw_thermal_ns", WATCH, "held down because it is hot: cooling"),
    "pcie_replay": _replays,
    "pcie_width": _width,
    "fabric": _fabric,
    "fabric_health": _fabric_health,
    "nvlink_down": _links,
    "nvlink_errors": _recoveries,
    "slow_calls": _slow,
}
