"""What beats of the same processes have in common, as bytes: they lie in one piece, values lie all over the memory.

A node whose ranks go abreast, in the states they were in, says the same in each beat but for one number. So its beats
are compared with an imprint: what one of them said, with a gap for each step. Whether others are of the same processes
takes a second look, at all but steps and states (`who`).
"""

import itertools
from typing import Final

import msgspec

from rankpulse.core import records as r

# Packed it is one byte and four others that differ from it: in no bytes can it overlap with itself. So when it is
# found as often as there are rows, then these are the gaps, whatever else a job puts into its rows.
_GAP_STEP: Final = 0xC1C1_C1C1
_packed: Final = msgspec.msgpack.Encoder().encode
GAP: Final = _packed(_GAP_STEP)
ONE_BYTE: Final = 128  # numbers and letters below it are packed as one byte: then it is known where a state lies


def said(beat: r.Beat) -> bytes:
    """What a beat says of its ranks. OverflowError, ValueError: numbers that no process has; the others the same."""
    return _packed((beat.runs, beat.phases, beat.ranks))


def who(beat: r.Beat) -> bytes:
    """All of it but for steps and states."""
    rows = [(row.pid, row.start, row.rank, row.run, row.local_rank, row.phase, row.first_step) for row in beat.ranks]
    return _packed((beat.runs, beat.phases, rows))


def imprint(beat: r.Beat) -> bytes | None:
    """All of it, with gaps for the steps. None: it says what no agent does."""
    rows = [msgspec.structs.replace(row, step=_GAP_STEP) for row in beat.ranks]
    found = _packed((beat.runs, beat.phases, rows))
    regular = all(is_state(row.state) and 0 <= row.phase < ONE_BYTE for row in rows)
    return found if regular and found.count(GAP) == len(rows) else None


def filled(imprinted: bytes, step: int) -> bytes:
    """What a beat would say that shows all ranks at `step`."""
    return imprinted.replace(GAP, _packed(step))


def is_state(state: str) -> bool:
    return len(state) == 1 and ord(state) < ONE_BYTE


def states_at(imprinted: bytes) -> list[int]:
    """Where the state of each row lies: before its phase, and that before the gap."""
    ends = itertools.accumulate(len(head) + len(GAP) for head in imprinted.split(GAP)[:-1])
    return [end - len(GAP) - 2 for end in ends]


def with_states(imprinted: bytes, places: list[int], known: list[str], states: list[str]) -> bytes:
    """The imprint with other states, `known` being its own. ValueError: these are no states, or of more ranks."""
    changed = bytearray(imprinted)
    for at, before, state in zip(places, known, states, strict=True):
        if state != before:
            if not is_state(state):
                raise ValueError(f"{state!r} is no state")
            changed[at] = ord(state)
    return bytes(changed)
