"""How one node stands, in one word, for a map that is read at a glance: the worst that is true of it. Pure.

Silence goes before everything: what else was known of a silent node is old. Then what is broken, then what people
and rankpulse have decided about it, then whether it has work.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Final, NamedTuple

from rankpulse.core.records import Cordon, DeviceFault, Maintenance, NodeHealth
from rankpulse.core.suspects import CONVICTED, EXCUSED, TRUSTED
from rankpulse.core.views import NodeView
from rankpulse.core.words import printable, span

LOST, SUSPECTED, LATE, UNKNOWN = "lost", "suspect", "late", "unknown"
BROKEN, SICK, REFUSED = "broken", "sick", "refused"
MAINTENANCE, DRAINING, CORDONED, LEFT = "maintenance", "draining", "cordoned", "left"
SPARE, BUSY, IDLE = "spare", "busy", "idle"
STANDINGS: Final = (  # the worst first
    LOST, SUSPECTED, BROKEN, REFUSED, LATE, SICK, MAINTENANCE, DRAINING, CORDONED, LEFT, UNKNOWN, SPARE, BUSY, IDLE,
)  # fmt: skip
UNHEARD: Final = frozenset({LOST, SUSPECTED, LATE})
QUIET: Final = frozenset({SPARE, BUSY, IDLE})  # nothing is to be said of such a node
_LEVELS: Final = ("broken", "sick", "unknown", "watch")  # of what is found, the worst first
_TEXT_MAX: Final = 300
_REFUSED: Final = "refused, because "
PREFLIGHT: Final = "preflight"


class Gpu(NamedTuple):
    """One GPU that is not well."""

    number: int  # its index on the node, -1: not known
    bus: str
    level: str  # watch | unknown | sick | broken
    text: str

    @property
    def name(self) -> str:
        return f"GPU {self.number if self.number >= 0 else self.bus}"


class Standing(NamedTuple):
    """One node on the map. What changes every second is not in it, so that it is drawn anew only when it changes."""

    node: str
    state: str
    words: str  # why, "" where the state says it all
    ranks: int  # that live on it
    gpus: tuple[Gpu, ...] = ()  # those that are not well, the worst first
    known_gpus: int = 0
    lacks: tuple[tuple[str, str], ...] = ()  # what its agent cannot watch with, and why


class Held(NamedTuple):
    """What people and rankpulse have decided about nodes, and who waits for a round."""

    cordon: Cordon | None = None
    maintenance: Maintenance | None = None
    spare: bool = False


NOT_HELD: Final = Held()


class Standings:
    """Of all nodes, each worked out anew only when something that it rests on has changed."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[tuple[object, ...], Standing]] = {}

    def of(self, node: NodeView, health: NodeHealth | None, broken: Sequence[DeviceFault], held: Held) -> Standing:
        """See `standing`."""
        suspect, beat = node.suspect, node.beat
        rests_on = (  # compared by identity first: quick while nothing happens
            node.silent_since, suspect.state, suspect.reason, suspect.look, node.leaving, node.state, health, broken,
            held, len(beat.ranks) if beat is not None else 0, node.arrival.last is None,
        )  # fmt: skip
        known = self._known.get(node.name)
        if known is None or known[0] != rests_on:
            known = self._known[node.name] = rests_on, standing(node, health, broken, held)
        return known[1]

    def keep(self, names: Collection[str]) -> None:
        """Forget nodes that are no more."""
        if len(self._known) > len(names):
            self._known = {name: known for name, known in self._known.items() if name in names}


def standing(node: NodeView, health: NodeHealth | None, broken: Sequence[DeviceFault], held: Held) -> Standing:
    """`broken`: faults of this node that are the cause of an incident, or would be."""
    ranks = len(node.beat.ranks) if node.beat is not None else 0
    gpus = _gpus(health) if health is not None else ()
    found = [*_silence(node), *_devices(gpus, broken), *_refused(node), *_decided(held), *_presence(node, held, ranks)]
    state = min((state for state, _ in found), key=STANDINGS.index)
    words = "; ".join(dict.fromkeys(text for _, text in found if text))
    known_gpus = len(health.gpus) if health is not None else 0
    return Standing(node.name, state, words, ranks, gpus, known_gpus, tuple(_lacks(node)))


def _lacks(node: NodeView) -> Iterable[tuple[str, str]]:
    """What the look before a round found is told of the node itself."""
    told = node.state.capabilities.items() if node.state is not None else ()
    return ((source, _short(why)) for source, why in told if why != "ok" and source != PREFLIGHT)


def absent(name: str, held: Held) -> Standing:
    """A node of which no agent tells, and about which somebody has decided something."""
    found = list(_decided(held)) or [(UNKNOWN, "")]
    state = min((state for state, _ in found), key=STANDINGS.index)
    return Standing(name, state, "; ".join(["no agent of it was heard", *(text for _, text in found if text)]), 0)


def _silence(node: NodeView) -> Iterable[tuple[str, str]]:
    if node.silent_since is None:
        return ()
    look = f", looked at directly: {node.suspect.look.answer}" if node.suspect.look is not None else ""
    if node.suspect.state == CONVICTED:
        return ((LOST, f"given up{look}: {_short(node.suspect.reason)}"),)
    if node.suspect.state == EXCUSED:
        return ((LATE, f"late{look}: {_short(node.suspect.reason)}"),)
    why = f": {_short(node.suspect.reason)}" if node.suspect.state != TRUSTED and node.suspect.reason else ""
    return ((SUSPECTED, f"silent{look}{why}"),)


def _devices(gpus: tuple[Gpu, ...], faults: Sequence[DeviceFault]) -> Iterable[tuple[str, str]]:
    """The heaviest fault, where it is."""
    worst = min(faults, key=lambda fault: _LEVELS.index(fault.level) if fault.level in _LEVELS else 0, default=None)
    if worst is not None:
        where = f"GPU {worst.index}: " if worst.index >= 0 else ""
        more = f" and {len(faults) - 1} more" if len(faults) > 1 else ""
        yield (BROKEN if worst.level == "broken" else SICK), f"{where}{_short(worst.text)}{more}"
    elif gpus and gpus[0].level in ("broken", "sick"):
        more = f" and {len(gpus) - 1} more" if len(gpus) > 1 else ""
        yield (BROKEN if gpus[0].level == "broken" else SICK), f"{gpus[0].name}: {gpus[0].text}{more}"


def _gpus(health: NodeHealth) -> tuple[Gpu, ...]:
    """Those of which something is open; the worst first."""
    found = []
    for row in health.gpus:
        told = [one for one in row.findings if one.cleared_at is None and one.level in _LEVELS]
        if told:
            worst = min(told, key=lambda one: _LEVELS.index(one.level))
            found.append(Gpu(row.index, row.bus, worst.level, _short(worst.text)))
    return tuple(sorted(found, key=lambda gpu: (_LEVELS.index(gpu.level), gpu.number, gpu.bus)))


def _refused(node: NodeView) -> Iterable[tuple[str, str]]:
    told = node.state.capabilities.get(PREFLIGHT, "") if node.state is not None else ""
    if told.startswith(_REFUSED):
        yield REFUSED, f"in no round: {_short(told.removeprefix(_REFUSED))}"


def _decided(held: Held) -> Iterable[tuple[str, str]]:
    if held.maintenance is not None:
        yield MAINTENANCE, f"in maintenance by {_by(held.maintenance)}"
    if held.cordon is not None:
        state, word = (DRAINING, "draining") if held.cordon.drain else (CORDONED, "cordoned")
        yield state, f"{word} by {_by(held.cordon)}"


def _presence(node: NodeView, held: Held, ranks: int) -> Iterable[tuple[str, str]]:
    if node.leaving:
        return ((LEFT, "its agent said goodbye"),)
    if node.arrival.last is None:
        return ((UNKNOWN, "no beat of it was heard"),)
    return ((SPARE if held.spare else BUSY if ranks else IDLE, ""),)


def _by(what: Cordon | Maintenance) -> str:
    return f"{_short(what.author)}: {_short(what.reason)}"


def _short(text: str) -> str:
    return printable(text, _TEXT_MAX)


def silent_words(silence_s: float | None) -> str:
    """For how long nothing was heard, roughly."""
    return "never heard" if silence_s is None else f"silent for {span(silence_s)}"
