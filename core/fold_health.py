"""Folding what agents tell of GPUs: the record of a node's health, and the turns that were told beside it.

The record is the state, and the newest counts. An observation is heard at once and survives the node: what it tells
counts until a record that is as new says it as well.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec

from rankpulse.core import events as ev
from rankpulse.core import gpu_faults as faults
from rankpulse.core import gpu_words
from rankpulse.core.fleet import Fleet
from rankpulse.core.gpu_faults import Place
from rankpulse.core.records import DeviceFault, GpuRow, HealthFinding, NodeHealth, Observation, Scalar
from rankpulse.core.words import printable

GPUS_MAX, FINDINGS_MAX = 64, 80  # of a node, that are looked at
AHEAD_MAX: Final = 256  # faults of a node that are believed before its record says so: what is beyond waits for that
NOTES_MAX: Final = 8
LATELY_S: Final = 300.0  # a machine that falls silent later does so for another reason
OPENED, CLEARED = ("opened", "changed"), "cleared"


class Note(NamedTuple):
    """Something that was told of a node and is no incident of its own."""

    at: float
    text: str


@dataclass(slots=True)
class Heard:
    """When a fault was heard, by the monitor's clock, and which observations told of it."""

    began: float
    last: float
    count: int
    keys: list[str] = field(default_factory=list)
    lasted_s: float = 0.0  # from its first sighting to its last, by the clock of its node
    dated: bool = False  # whether it was looked up when a leader before this one heard of it


class HealthFolder:
    """By node. `say` and `fold` are those of all folding."""

    def __init__(
        self, fleet: Fleet, say: Callable[[str, str], None], fold: Callable[[str], None], *, believe_injected: bool
    ) -> None:
        self._fleet, self._say, self._fold, self._believe = fleet, say, fold, believe_injected
        self.records: dict[str, NodeHealth] = {}
        self.causes: dict[Place, DeviceFault] = {}  # that are open, and call for more than a restart of the program
        self.notes: dict[str, deque[Note]] = {}
        self.heard: dict[Place, Heard] = {}
        self._ahead: dict[str, dict[Place, tuple[DeviceFault, float]]] = {}  # told, and not yet in the record

    def health(self, record: NodeHealth, event: ev.Seen, leading: bool) -> None:
        self.records[record.node] = record = _slim(record)
        ahead = self._ahead.get(record.node, {})
        for where, (_, at) in list(ahead.items()):
            if at <= record.at:
                del ahead[where]
        self._weigh(record.node, event.received_at)

    def observed(self, obs: Observation, event: ev.Seen) -> None:
        """A turn. Kept in the store while an incident is to cite it; what is none is told, and done with."""
        how, fault = str(obs.detail.get("how") or ""), _of_detail(obs, self._boot(obs.node))
        where = faults.place(fault)
        is_cause = how in OPENED and obs.detail.get("injected") is not True and self._is_cause(fault)
        if not is_cause:
            self._fold(event.key)
            self._tell(how, fault, event.received_at)
            return
        record = self.records.get(obs.node)
        ahead = self._ahead.setdefault(obs.node, {})
        if (record is None or record.at < obs.at) and (where in ahead or len(ahead) < AHEAD_MAX):
            ahead[where] = fault, obs.at
            self._weigh(obs.node, event.received_at)
        if where not in self.causes:
            self._fold(event.key)  # over by now
            return
        keys = self.heard[where].keys
        if event.key not in keys:
            keys.append(event.key)

    def gone(self, key: str) -> None:
        """An observation was erased."""
        for heard in self.heard.values():  # as many as there are broken devices
            if key in heard.keys:
                heard.keys.remove(key)

    def relisted(self) -> None:
        """What is listed is all there is. When it was heard first is kept."""
        self.records.clear()
        self._ahead.clear()
        self.causes.clear()
        for heard in self.heard.values():
            heard.keys.clear()

    def lately(self, node: str, at: float) -> bool:
        """Whether a GPU of this node was told to be broken then, or not long before."""
        told = (heard for where, heard in self.heard.items() if where.node == node and where in self.causes)
        return any(heard.last >= at - LATELY_S for heard in told)

    def cleared(self, fault: DeviceFault) -> str:
        """The proof that it is over, "" where there is none: that nothing is told of it any more is not."""
        record = self.records.get(fault.node)
        if faults.place(fault) in self.causes or record is None:
            return ""
        row = next((gpu for gpu in record.gpus if gpu.bus == fault.bus), None)
        told = row.findings if row is not None else record.findings if not fault.bus else ()
        if any(one.what == fault.what for one in told):
            return "its agent has seen the proof"
        if row is not None and row.uuid and fault.uuid and row.uuid != fault.uuid:
            return f"another board sits there, {printable(row.uuid, 80)}"
        node, boot = self._fleet.nodes.get(fault.node), self._boot(fault.node)
        fresh = node is not None and record.inc >= node.inc
        return "the machine was booted anew" if fresh and boot and fault.boot and boot != fault.boot else ""

    # --- what is open

    def _weigh(self, node: str, now: float) -> None:
        """Which causes of this node are open now."""
        found = {faults.place(told[0]): told for told in self._told(node) if self._is_cause(told[0])}
        for where in [where for where in self.causes if where.node == node and where not in found]:
            del self.causes[where]
            for key in self.heard.pop(where).keys:
                self._fold(key)
        for where, (fault, age_s, lasted_s) in found.items():
            before = self.causes.get(where)
            if before is not None and before.boot:
                fault = msgspec.structs.replace(fault, boot=before.boot)
            self.causes[where] = fault
            heard = self.heard.get(where)
            if heard is None or (before is None and heard.count != fault.count):
                keys = heard.keys if heard is not None else []
                self.heard[where] = Heard(now - age_s, now - age_s, fault.count, keys, lasted_s)
            elif heard.count != fault.count:
                heard.last, heard.count = now, fault.count

    def _told(self, node: str) -> Iterator[tuple[DeviceFault, float, float]]:
        """What is open, how old its last sighting was when it was told, and how long after the first that came.

        Both by the clock of its node.
        """
        record, boot = self.records.get(node), self._boot(node)
        for fault, at in self._ahead.get(node, {}).values():
            yield fault, max(at - fault.first_at, 0.0) if fault.first_at else 0.0, 0.0
        ahead = self._ahead.get(node, {})
        for finding, gpu in findings(record) if record is not None else ():
            fault = faults.of_finding(node, finding, gpu, boot)
            if record is not None and faults.place(fault) not in ahead:
                yield fault, max(record.at - finding.last_at, 0.0), max(finding.last_at - finding.first_at, 0.0)

    def _is_cause(self, fault: DeviceFault) -> bool:
        return faults.is_cause(fault, believe_injected=self._believe)

    def _boot(self, node: str) -> str:
        view = self._fleet.nodes.get(node)
        return view.state.boot_id if view is not None and view.state is not None else ""

    def _tell(self, how: str, fault: DeviceFault, now: float) -> None:
        text = f"{gpu_words.device(fault)}: {fault.text or fault.what}"
        if how == CLEARED:
            self._say("info", f"{text}: over")
            return
        text = f"{text} (advice: {fault.action})" if fault.source != "injected" else f"{text} (injected: not believed)"
        self._say("warning", text)
        self.notes.setdefault(fault.node, deque(maxlen=NOTES_MAX)).append(Note(now, text))


def _slim(record: NodeHealth) -> NodeHealth:
    """What is needed of it: a large fleet has many GPUs, of which nearly all are well."""
    rows = (GpuRow(gpu.bus, gpu.uuid, index=gpu.index, findings=gpu.findings) for gpu in record.gpus[:GPUS_MAX])
    return msgspec.structs.replace(record, gpus=tuple(rows))


def findings(record: NodeHealth) -> Iterator[tuple[HealthFinding, tuple[str, str, int]]]:
    """Open ones, each with its GPU."""
    for one in record.findings[:FINDINGS_MAX]:
        if one.cleared_at is None:
            yield one, ("", "", -1)
    for gpu in record.gpus:
        for one in gpu.findings[:FINDINGS_MAX]:
            if one.cleared_at is None:
                yield one, (gpu.bus, gpu.uuid, gpu.index)


def _of_detail(obs: Observation, boot: str) -> DeviceFault:
    told = obs.detail
    index, count = _whole(told.get("index"), -1), _whole(told.get("count"), 1)
    texts = {name: str(told.get(name) or "") for name in ("what", "level", "action", "text", "source")}
    finding = HealthFinding(
        texts["what"], texts["level"], texts["action"], texts["text"], obs.at, obs.at,
        count, None, "injected" if told.get("injected") is True else texts["source"],
    )  # fmt: skip
    gpu = str(told.get("bus") or ""), str(told.get("uuid") or ""), index
    return faults.of_finding(obs.node, finding, gpu, boot)


def _whole(value: Scalar, usual: int) -> int:
    """Of what anybody may have written: JSON's true is no number."""
    return value if type(value) is int else usual
