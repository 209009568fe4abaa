"""The progress slot: the bytes a training process shares with the sidecar.

Standard library only, because the training process imports this module. A slot is a plain file of `SLOT_SIZE`
bytes in a shared mapping: a fixed head, the *pulse* (rewritten at every step, guarded against torn reads), the
*identity* (JSON, written once before the head) and the *ending* (JSON, written once at most).

Everything that comes out of `read` is untrusted: whoever owns the file wrote it. `read` is total: it returns a
`Slot` or raises `SlotRefused` with a reason, whatever the bytes are.
"""

import json
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

MAGIC = b"RKPULSE\0"
VERSION = 1
SLOT_SIZE = 4096
HEAD = struct.Struct("<8sHHI")  # magic, version, reserved, size
# begin, step, first_step, stamp_ns, loss, phase, pulses, end: `begin` and `end` are equal in a whole write
PULSE = struct.Struct("<Qqqqd16sQQ")
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


class Pulse(NamedTuple):
    """What the rank last said. `step` and `first_step` are -1 before the first step; `stamp_ns` is CLOCK_MONOTONIC."""

    step: int
    first_step: int
    stamp_ns: int
    loss: float
    phase: str
    pulses: int


class Slot(NamedTuple):
    """One slot, read whole. `identity` and `ending` are JSON objects as their writer left them."""

    pulse: Pulse
    identity: dict[str, Any]
    ending: dict[str, Any] | None


def pack_json(value: dict[str, Any], limit: int) -> bytes:
    """`value` as length-prefixed JSON; ValueError when it is longer than `limit` bytes."""
    body = json.dumps(value, separators=(",", ":")).encode()
    if len(body) > limit - LENGTH.size:
        raise ValueError(f"{len(body)} bytes of JSON do not fit into {limit - LENGTH.size}")
    return LENGTH.pack(len(body)) + body


def head() -> bytes:
    return HEAD.pack(MAGIC, VERSION, 0, SLOT_SIZE)


def read(copy: Callable[[], bytes], *, attempts: int = 8) -> Slot:
    """Read a slot through `copy`, which returns the file's bytes anew at each call.

    Two equal copies of the pulse whose guards agree are a whole write; anything else is tried again. Raises
    `SlotRefused` for foreign, old, short, or endlessly torn bytes.
    """
    data = copy()
    _check_head(data)
    for _ in range(attempts):
        again = copy()
        whole = _pulse_bytes(data) == _pulse_bytes(again)
        begin, *_rest, end = PULSE.unpack(_pulse_bytes(again)) if len(again) == SLOT_SIZE else (0, 1)
        if whole and begin == end:
            return Slot(_pulse(again), _json(again, IDENTITY_AT, IDENTITY_MAX, "identity") or {}, _ending(again))
        data = again
    raise SlotRefused("torn at every read: its writer died in the middle of a write, or it is not a slot")


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


def _pulse_bytes(data: bytes) -> bytes:
    return data[PULSE_AT : PULSE_AT + PULSE.size]


def _pulse(data: bytes) -> Pulse:
    _begin, step, first_step, stamp_ns, loss, phase, pulses, _end = PULSE.unpack(_pulse_bytes(data))
    name = phase.rstrip(b"\0").decode("ascii", "replace")
    return Pulse(step, first_step, stamp_ns, loss, name or PHASE_INIT, pulses)


def _ending(data: bytes) -> dict[str, Any] | None:
    return _json(data, ENDING_AT, ENDING_MAX, "ending")


def _json(data: bytes, at: int, limit: int, what: str) -> dict[str, Any] | None:
    (length,) = LENGTH.unpack_from(data, at)
    if length == 0:
        return None
    if length > limit - LENGTH.size:
        raise SlotRefused(f"{what} of {length} bytes, at most {limit - LENGTH.size}: corrupt")
    try:
        value = json.loads(data[at + LENGTH.size : at + LENGTH.size + length])
    except (ValueError, RecursionError) as error:
        raise SlotRefused(f"{what} is not JSON: corrupt") from error
    if not isinstance(value, dict):
        raise SlotRefused(f"{what} is not a JSON object: corrupt")
    return value
