"""How the ranks of a snapshot ended, and which of these ends explains the others."""

import re
from collections import defaultdict
from collections.abc import Iterable
from enum import IntEnum
from typing import Final, NamedTuple

from rankpulse.core import signs, xids
from rankpulse.core.exits import SIGNALS
from rankpulse.core.scene import Said, Scene
from rankpulse.core.snapshot import Rank

_VICTIMS: Final = (signs.VICTIM, signs.TIMED_OUT, signs.RDZV_CLOSED, signs.IB_RETRY, signs.IB_FLUSHED, signs.STORE)
_FAILING: Final = (
    signs.ERROR, signs.CUDA, signs.ILLEGAL_INSTRUCTION, signs.OOM_GPU, signs.OOM_HOST, signs.BUS_ERROR, signs.ECC,
    signs.CONTAINED, signs.NVLINK, signs.GPU_LOST, signs.STORAGE,
    signs.PORT_TAKEN, *_VICTIMS[:2],
)  # fmt: skip
_STATUS = re.compile(
    r"exit(?:ed with)?[ _]?(?:code)?[^\w-]{0,4}(-?\d+)\b|(?:by|with|got|signal:?) signal:? (\d+)", re.IGNORECASE
)
_POLITE: Final = (1, 2, 3, 15)
GRACE_S: Final = 1.0  # a SIGKILL this long after another's end may be the launcher's


class Weight(IntEnum):
    """Ordered by how well an end explains the others."""

    CLEAN = 0
    VICTIM = 1
    STOPPED = 2
    ABORTED = 3
    FAILED = 4
    KILLED = 5


class End(NamedTuple):
    rank: int
    weight: Weight
    at: float | None
    signal: int | None
    code: int | None
    sign: str  # what its words are a sign of
    text: str
    ref: str

    @property
    def words(self) -> str:
        if self.signal is not None:
            how = f"killed by signal {self.signal} ({SIGNALS.get(self.signal, '?')})"
        else:
            how = f"exited with code {self.code}" if self.code is not None else "is gone"
        return f"{how}: {self.text}" if self.text else how


def ends(scene: Scene) -> list[End]:
    """Every rank that ended or failed, the first in time first."""
    if "ends" not in scene.kept:
        scene.kept["ends"] = _ends(scene)
    found: list[End] = scene.kept["ends"]
    return found


def _ends(scene: Scene) -> list[End]:
    told: dict[int, list[Said]] = defaultdict(list)
    for said in scene.said:
        if said.rank is not None:
            told[said.rank].append(said)
    rows = [*scene.snap.ranks, *(Rank(rank) for rank in sorted(told.keys() - scene.ranks.keys()))]
    found = [end for rank in rows if (end := _end_of(scene, rank, told.get(rank.rank, []))) is not None]
    return sorted(found, key=lambda end: (end.at is None, end.at or 0.0, end.rank))


def _end_of(scene: Scene, rank: Rank, told: list[Said]) -> End | None:
    words = _words(rank, told)
    code, signal = _status(rank, [rank.error, *(said.text for said in told if said.ref.startswith("events"))])
    gone = rank.alive is False or rank.state in ("Z", "X") or rank.exited_at is not None
    raised = bool(rank.error and words) or any(s.sign in _FAILING and s.ref.startswith("events") for s in told)
    if code is None and signal is None and not gone and not raised:
        return None
    text, sign, ref = (words.text, words.sign, words.ref) if words else ("", signs.NOTHING, f"ranks[{rank.rank}]")
    return End(rank.rank, _weight(rank, code, signal, sign), _when(scene, rank, words), signal, code, sign, text, ref)


def _when(scene: Scene, rank: Rank, words: Said | None) -> float | None:
    """The earliest that is known of its failing."""
    offset = scene.nodes[rank.node].clock_offset_s if rank.node in scene.nodes else 0.0
    own = [at - offset for at in (rank.error_at, rank.exited_at) if at is not None]
    if words is not None and words.at is not None:
        own.append(words.at)
    return min(own, default=None)


def _status(rank: Rank, texts: Iterable[str]) -> tuple[int | None, int | None]:
    """Exit code and signal: a shell writes 128 + signal, Python minus the signal, a launcher a line of text."""
    code, signal = rank.exit_code, rank.signal
    if signal is not None:
        return None, abs(signal)
    if code is None:
        found = next((m for text in texts if (m := _STATUS.search(text))), None)
        if found and found.group(2):
            return None, int(found.group(2))
        code = int(found.group(1)) if found else None
    if code is not None and (code < 0 or 128 < code <= 159):
        return None, -code if code < 0 else code - 128
    return code, None


def _words(rank: Rank, told: list[Said]) -> Said | None:
    """Its own words: the exception, else the first telling line or event."""
    if rank.error:
        sign = signs.sign(rank.error)
        return Said(None, sign or signs.ERROR, rank.error, f"ranks[{rank.rank}].error")
    mine = [one for one in told if one.sign and (one.sign != signs.XID or xids.meaning(one.code) != xids.ECHO)]
    own = [one for one in mine if one.sign not in _VICTIMS] or mine
    return own[0] if own else None


def _weight(rank: Rank, code: int | None, signal: int | None, sign: str) -> Weight:
    if sign == signs.STOPPED or signal in _POLITE:
        return Weight.STOPPED
    if sign in _VICTIMS and signal in (None, 6):
        return Weight.VICTIM
    if signal is not None:
        return Weight.ABORTED if signal == 6 and not sign else Weight.FAILED if signal == 6 else Weight.KILLED
    if code == 0:
        return Weight.CLEAN
    if sign or code is not None:
        return Weight.FAILED
    return Weight.CLEAN if rank.pulse == "closed" else Weight.KILLED


def first_movers(found: list[End]) -> list[End]:
    """Those that explain the others: nobody's victims, and nobody of weight went before."""
    own = [end for end in found if end.weight >= Weight.ABORTED]
    heavy = [end for end in own if end.weight > Weight.ABORTED] or own
    killed = [end for end in heavy if end.weight == Weight.KILLED]
    failed = [end for end in heavy if end.weight == Weight.FAILED]
    if killed and failed:
        heavy = _killed_or_failed(killed, failed)
    timed = [end for end in heavy if end.at is not None]
    if not timed:
        return heavy
    first = min(end.at for end in timed if end.at is not None)
    return [end for end in timed if end.at is not None and end.at <= first + GRACE_S]


def _killed_or_failed(killed: list[End], failed: list[End]) -> list[End]:
    """A launcher kills what a failure left; a death by signal makes its peers fail. Time tells, else number."""
    k, f = killed[0].at, failed[0].at
    if k is not None and f is not None:
        return killed if k <= f else failed
    by_launcher = all(end.signal == 9 for end in killed) and len(killed) > len(failed)
    return failed if by_launcher else killed
