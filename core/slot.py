"""The progress slot: the bytes a training process shares with the sidecar.

Standard library only, because the training process imports this module. A slot is a plain file of `SLOT_SIZE`
bytes in a shared mapping: a fixed head, the *pulse* (rewritten at every step, guarded against torn reads), the
*numbers* (`core/slot_numbers.py`), the *identity* (JSON, written once before the head) and the *ending* (JSON, written
once at most).

Everything that comes out of `read` is untrusted: whoever owns the file wrote it. `read` is total: it returns a
`Slot` or raises `SlotRefused` with a reason, whatever the bytes are.

Why a read is whole. The writer makes one `PULSE.pack_into` per write; CPython zeroes the target, then stores field
after field, so `begin` is stored before everything else and `end` after it. Both carry the number of the write,
which only grows and is never 0 (0 is what the zeroing leaves). The reader takes three copies. `end == g` in the first:
write g was over. `begin == g` in the last: write g+1 had not begun. So the middle copy, taken between the two, is
write g, in whatever order a copy reads its bytes. (Processors that reorder stores could still mix two neighbouring
writes; the guards of the middle copy make even that improbable, and the next beat repairs it.) The ending is
written length 0, body, length; it counts only when it is equal in all three copies.
"""

import functools
import json
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from rankpulse.core import slot_checks, slot_numbers
from rankpulse.core.slot_checks import Checks
from rankpulse.core.slot_numbers import Numbers

MAGIC = b"RKPULSE\0"
VERSION = 1
SLOT_SIZE = 4096
HEAD = struct.Struct("<8sHHI")  # magic, version, reserved, size
# begin, step, first_step, stamp_ns, loss, phase, pulses, end: `begin` and `end` are equal and not 0 in a whole write
PULSE = struct.Struct("<Qqqqd16sQQ")
PULSE_END = 7  # index of `end`
UPDATING_AT = 48  # one byte: 1 while the process is inside an optimizer's step; 0 in slots of older writers
PULSE_AT = 64
IDENTITY_AT = 256
IDENTITY_MAX = 2048
ENDING_AT = 3072
ENDING_MAX = 512
LENGTH = struct.Struct("<I")
NO_STEP = -1
PHASE_BYTES = 16
PHASE_INIT = "init"
PHASE_TRAIN = "train"
PHASE_PAUSED = "paused"
PHASE_CLOSED = "closed"


class SlotRefused(ValueError):
    """The bytes are not a slot we read; the text says why and what to do."""


class SlotTorn(SlotRefused):
    """Every read met a write: the writer died or was stopped within one, or writes without pause. Try again later."""


class Pulse(NamedTuple):
    """What the rank last said. `step` and `first_step` are -1 before the first step; `stamp_ns` is CLOCK_MONOTONIC.

    `loss` is NaN when unknown. `pulses` counts the writes: steps and changes of phase.
    """

    step: int
    first_step: int
    stamp_ns: int
    loss: float
    phase: str
    pulses: int


class Slot(NamedTuple):
    """One slot, read whole. `identity` and `ending` are JSON objects as their writer left them.

    `numbers`, `checks`: None where none was handed over, or the writer is just at it. `updating`: it is, or was when it
    died, inside an optimizer's step; told only by programs that keep last words ready.
    """

    pulse: Pulse
    identity: dict[str, Any]
    ending: dict[str, Any] | None
    numbers: Numbers | None = None
    checks: Checks | None = None
    updating: bool = False


def pack_json(value: dict[str, Any], limit: int) -> bytes:
    """`value` as length-prefixed JSON; ValueError when it is longer than `limit` bytes."""
    body = json.dumps(value, separators=(",", ":")).encode()
    if len(body) > limit - LENGTH.size:
        raise ValueError(f"{len(body)} bytes of JSON do not fit into {limit - LENGTH.size}")
    return LENGTH.pack(len(body)) + body


def head() -> bytes:
    return HEAD.pack(MAGIC, VERSION, 0, SLOT_SIZE)


def image(identity: dict[str, Any], pulse: Pulse, ending: dict[str, Any] | None = None) -> bytes:
    """A whole slot as bytes: what a writer leaves behind. ValueError when a part does not fit."""
    data = bytearray(SLOT_SIZE)
    phase = pulse.phase.encode("ascii", "replace")
    step, first_step, stamp_ns, loss, _phase, pulses = pulse
    guard = max(pulses, 1)
    PULSE.pack_into(data, PULSE_AT, guard, step, first_step, stamp_ns, loss, phase, pulses, guard)
    for at, value, limit in ((IDENTITY_AT, identity, IDENTITY_MAX), (ENDING_AT, ending, ENDING_MAX)):
        body = b"" if value is None else pack_json(value, limit)
        data[at : at + len(body)] = body
    data[: HEAD.size] = head()
    return bytes(data)


def read(copy: Callable[[], bytes], *, attempts: int = 8) -> Slot:
    """Read a slot through `copy`, which returns the file's bytes anew at each call.

    Raises `SlotTorn` when every attempt met a write, `SlotRefused` for foreign, old or short bytes and for an identity
    or an ending that is not a JSON object of sound text.
    """
    first = copy()
    _check_head(first)
    middle = copy()
    for _ in range(attempts):
        last = copy()
        if _whole(first, middle, last):
            identity = _json(middle, IDENTITY_AT, IDENTITY_MAX, "identity") or {}
            more = slot_numbers.read(first, middle, last), slot_checks.read(first, middle, last)
            return Slot(_pulse(middle), identity, _ending(middle), *more, middle[UPDATING_AT] == 1)
        first, middle = middle, last
    raise SlotTorn("torn at every read: its writer was stopped within a write, or writes without pause")


def _whole(first: bytes, middle: bytes, last: bytes) -> bool:
    if not len(first) == len(middle) == len(last) == SLOT_SIZE:
        return False
    guards = {guard for data in (first, middle, last) for guard in PULSE.unpack_from(data, PULSE_AT)[::PULSE_END]}
    return len(guards) == 1 and 0 not in guards and first[ENDING_AT:] == middle[ENDING_AT:] == last[ENDING_AT:]


def _check_head(data: bytes) -> None:
    if len(data) != SLOT_SIZE:
        raise SlotRefused(f"{len(data)} bytes, a slot has {SLOT_SIZE}: still being created, or not ours")
    magic, version, _reserved, size = HEAD.unpack_from(data)
    if magic != MAGIC:
        raise SlotRefused("no slot (wrong magic): remove the file, or point RANKPULSE_DIR elsewhere")
    if version != VERSION:
        raise SlotRefused(
            f"slot version {version}, this agent reads {VERSION}: give the job and the agent the same rankpulse"
        )
    if size != SLOT_SIZE:
        raise SlotRefused(f"slot says it has {size} bytes, expected {SLOT_SIZE}: corrupt")


def _pulse(data: bytes) -> Pulse:
    _begin, step, first_step, stamp_ns, loss, phase, pulses, _end = PULSE.unpack_from(data, PULSE_AT)
    text = phase.rstrip(b"\0").decode("ascii", "replace")
    name = "".join(letter if letter.isprintable() else "?" for letter in text)  # it ends up on terminals
    return Pulse(step, first_step, stamp_ns, loss, name or PHASE_INIT, pulses)


def _ending(data: bytes) -> dict[str, Any] | None:
    return _json(data, ENDING_AT, ENDING_MAX, "ending")


def _json(data: bytes, at: int, limit: int, what: str) -> dict[str, Any] | None:
    (length,) = LENGTH.unpack_from(data, at)
    if length == 0:
        return None
    if length > limit - LENGTH.size:
        raise SlotRefused(f"{what} of {length} bytes, at most {limit - LENGTH.size}: corrupt")
    return dict(_object(data[at + LENGTH.size : at + LENGTH.size + length], what))


@functools.lru_cache(maxsize=64)
def _object(text: bytes, what: str) -> dict[str, Any]:
    """Remembered: a slot is read every second, and its identity stays."""
    try:
        value = json.loads(text.decode())
        json.dumps(value, ensure_ascii=False).encode()  # lone surrogates pass as JSON, and break whoever writes them on
    except (ValueError, RecursionError) as error:
        raise SlotRefused(f"{what} is not JSON: corrupt") from error
    if not isinstance(value, dict):
        raise SlotRefused(f"{what} is not a JSON object: corrupt")
    return value
