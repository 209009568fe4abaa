"""What is known of the GPUs of this node, and what is told of it: every line of the processes that ask ends up here."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from rankpulse.agent.clock import Clock
from rankpulse.agent.facts import Fact
from rankpulse.core import gpu_told
from rankpulse.core import xid_catalogue as catalogue
from rankpulse.core.gpu_health import GpuHealth
from rankpulse.core.gpu_plan import Plan
from rankpulse.core.gpu_reading import NO_PYNVML, Said, bus_id
from rankpulse.core.gpu_rules import Memory
from rankpulse.core.health_book import (
    BROKEN,
    INSPECT,
    REBOOT,
    RESET,
    SICK,
    UNKNOWN,
    WATCH,
    Book,
    Change,
    Condition,
    Verdict,
)
from rankpulse.core.records import GPU_FAULT, Scalar
from rankpulse.core.settings import GpuSettings

SOURCE, EVENTS_SOURCE = "gpu", "gpu_events"  # their names among the agent's capabilities
OnXid = Callable[[str, int, float, int | None, int | None], None]  # bus, code, UTC, GPU and compute instance
_XID_EVENT: Final = 0x8
_MISMATCH: Final = 18
_LACKS: Final = {  # NVML does not start, and nothing is broken: what cannot be told, by code
    NO_PYNVML: "pynvml is not installed (pip install nvidia-ml-py): GPUs are seen by the kernel's log alone",
    4: "this user may not ask NVML: GPUs are seen by the kernel's log alone",
    12: "there is no libnvidia-ml.so.1 here: GPUs are seen by the kernel's log alone",
}
_NOT_STARTING: Final = {  # and something is
    9: Condition(SICK, INSPECT, "the GPU driver is not loaded"),
    15: Condition(BROKEN, REBOOT, "NVML does not start: a GPU has fallen off the bus"),
    16: Condition(BROKEN, RESET, "NVML does not start: a GPU waits for a reset"),
    _MISMATCH: Condition(
        WATCH, INSPECT, "driver and library are of different versions: new jobs fail here until a reload or a reboot"
    ),
}
_UNINITIALIZED, _NOT_LOADED = 1, 9


@dataclass(slots=True)
class GpuBooks:
    """One per agent. `wanted`: so many must be there, 0: as many as there are. `tell`: an observation."""

    settings: GpuSettings
    wanted: int
    clock: Clock
    tell: Callable[[Fact], None]
    able: Callable[[str, str], None]
    plan: Plan
    on_xid: OnXid | None = None  # who makes one fault of the driver's event and the kernel's lines; None: nobody does
    changed: Callable[[], None] = lambda: None  # what was found is another now
    gpus: dict[str, GpuHealth] = field(default_factory=dict)  # by place on the bus
    book: Book = field(default_factory=Book)  # of the node: NVML as a whole, and the machine
    driver: str = ""
    changes: int = 0  # of findings, so far
    _reloaded: bool = False

    # -- lines --------------------------------------------------------------------------------------------------
    def take(self, said: Said) -> bool:
        """False: NVML has ended for this process."""
        if said.fatal is not None:
            self._not_there(said.fatal, said.text)
        elif said.driver is not None:
            self._started(said.driver)
        elif said.buses is not None:
            self.place(bus for one in said.buses if (bus := bus_id(one)))
        elif said.event is not None:
            self._event(said)
        elif said.events_lost is not None:
            self.able(EVENTS_SOURCE, f"the driver tells of no Xids any more ({said.text}): they are asked for anew")
        elif said.events:
            self.able(EVENTS_SOURCE, "")
        elif said.values is not None or said.failed is not None:
            self.answer(said)
        return said.fatal is None

    def answer(self, said: Said) -> None:
        gpu, now, at = self.gpus.get(said.bus), self.clock.monotonic(), self.clock.utc()
        if gpu is None:
            return
        failed = said.failed
        changes = gpu.reading(said, now, at) if failed is None else gpu.failed(failed, said.text, at)
        slowly = said.slowest[1] > self.settings.slow_call_s or said.took_s > 5 * self.settings.slow_call_s
        self.plan.answered(said.bus, now, slow=said.slow, slowly=slowly)
        self.told(changes, gpu)

    def _event(self, said: Said) -> None:
        """Whatever it is about, the GPU is read anew."""
        if said.bus not in self.gpus:
            return
        self.plan.soon(said.bus, self.clock.monotonic())
        if said.event != _XID_EVENT:
            return
        if self.on_xid is not None:
            self.on_xid(said.bus, said.data, self.clock.utc(), *said.instances)
        else:
            known, at = catalogue.of(said.data), self.clock.utc()
            action = INSPECT if known.action == catalogue.DECODE else known.action
            self.fault(said.bus, said.data, f"Xid {said.data}: {known.meaning}", action, known.role, at, said.times)

    # -- what others tell ---------------------------------------------------------------------------------------
    def fault(
        self, bus: str, code: int, words: str, action: str, role: str, at: float, count: int = 1, source: str = "nvml"
    ) -> None:
        """An Xid, once for all that told of it. `bus`: dddd:bb:dd."""
        gpu = self.known(bus)  # not asked for: a container hears of GPUs that are not its own
        self.told(gpu.fault(code, words, action, role, at, count, source), gpu)
        self.plan.soon(bus, self.clock.monotonic())

    def stuck(self, bus: str, for_s: float, where: str) -> None:
        gpu = self.gpus[bus]
        self.told(gpu.stuck(for_s, where, self.clock.utc()), gpu)

    def all_stuck(self, where: str) -> None:
        text = f"NVML as a whole does not answer ({where or 'the call does not come back'})"
        self.told(self.book.found("nvml_stuck", Condition(UNKNOWN, REBOOT, text), self.clock.utc(), counts=True))

    def unheard(self) -> None:
        """Those that nobody has asked for too long are not called well any more, whatever they were."""
        now, s = self.clock.monotonic(), self.settings
        for gpu in self.gpus.values():
            limit_s = 3 * max(s.poll_s, self.plan.every_s(gpu.bus)) + s.call_timeout_s
            if gpu.heard is not None and now - gpu.heard > limit_s:
                self.told(gpu.unheard(self.clock.utc()), gpu)

    def place(self, buses: Iterable[str]) -> None:
        """These are there, and no others; each is to be asked."""
        listed = list(buses)
        for bus in listed:
            self.known(bus)
        self.plan.place(listed, self.clock.monotonic())
        have, at = len(listed), self.clock.utc()
        if self.wanted > have:
            missing = Condition(BROKEN, REBOOT, f"the driver lists {have} of {self.wanted} GPUs")
            self.told(self.book.found("missing", missing, at))
        else:
            self.told(self.book.cleared("missing", at))

    def of_host(self, what: str, verdict: Verdict) -> None:
        """Of the machine around the GPUs."""
        self.told(self.book.take(what, verdict, self.clock.utc()))

    def told(self, changes: list[Change], gpu: GpuHealth | None = None, *, injected: bool = False) -> None:
        """None: of the node. `injected`: somebody wrote it into the kernel's log."""
        for change in changes:
            self.changes += 1
            more: dict[str, Scalar] = {"injected": True} if injected else {}
            self.tell(Fact(GPU_FAULT, detail=gpu_told.detail(change, gpu) | more))
        if changes:
            self.changed()

    # -- NVML as a whole ----------------------------------------------------------------------------------------
    def _started(self, driver: str) -> None:
        self.driver, at = driver, self.clock.utc()
        self.able(SOURCE, "")
        for what in ("nvml_stuck", "nvml"):
            self.told(self.book.cleared(what, at))
        if self._reloaded:
            self._reloaded = False
            for gpu in self.gpus.values():
                self.told(gpu.driver_loaded(at), gpu)

    def _not_there(self, code: int, text: str) -> None:
        """What it lacks is told; what is broken is a finding; a driver that is loaded anew is neither."""
        if code in _LACKS:
            self.able(SOURCE, _LACKS[code])
            return
        self._reloaded |= code in (_UNINITIALIZED, _NOT_LOADED)
        self.able(SOURCE, f"NVML does not answer: {text} ({code})")
        if code != _UNINITIALIZED:
            unknown = Condition(UNKNOWN, INSPECT, f"NVML does not start: error {code} ({text}); compare with the host")
            self.told(self.book.found("nvml", _NOT_STARTING.get(code, unknown), self.clock.utc()))

    def known(self, bus: str) -> GpuHealth:
        """Its book, begun where there is none."""
        if bus not in self.gpus:
            self.gpus[bus] = GpuHealth(bus, Memory(self.settings.corrected_per_s, self.settings.slow_call_s))
            self.changes += 1
        return self.gpus[bus]
