"""The part of a slot that tells the checksums of what a rank holds alike with others. Standard library only.

It lies where slots of older writers hold zeros, and older readers do not look. Each write is whole or none: `begin` and
`end` are equal and not 0.
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

GROUPS_MAX: Final = 4
CHECKS: Final = struct.Struct(
    "<QqQ" + "QQQ" * GROUPS_MAX + "Q"
)  # begin, step, count, (group, replicas, digest) ..., end
CHECKS_AT: Final = 2304
REPLICAS_MAX: Final = 1 << 20
_AREA: Final = slice(CHECKS_AT, CHECKS_AT + CHECKS.size)
_MASK: Final = (1 << 64) - 1
_STEP_MAX: Final = 2**53  # what JSON carries unchanged


class Check(NamedTuple):
    """The checksum of tensors that `replicas` ranks hold alike; `group` is the same number on all of these."""

    group: int
    replicas: int
    digest: int


class Checks(NamedTuple):
    """Of one rank, as of the end of step `step`."""

    step: int
    checks: tuple[Check, ...]


def packed(checks: Checks, write: int) -> bytes:
    """As it stands in the slot; `write` (not 0) is the number of the write. At most GROUPS_MAX checks."""
    flat = [number & _MASK for check in checks.checks for number in check]
    flat += [0] * (3 * GROUPS_MAX - len(flat))
    return CHECKS.pack(write, checks.step, len(checks.checks), *flat, write)


def read(first: bytes, middle: bytes, last: bytes) -> Checks | None:
    """Of three copies of a slot. None: there is none yet, or a write is under way, or it makes no sense."""
    if not first[_AREA] == middle[_AREA] == last[_AREA]:
        return None
    begin, step, count, *flat, end = CHECKS.unpack_from(middle, CHECKS_AT)
    if begin != end or not begin or not 0 <= step <= _STEP_MAX or not 0 < count <= GROUPS_MAX:
        return None
    checks = tuple(Check(*flat[3 * at : 3 * at + 3]) for at in range(count))
    return Checks(step, checks) if _sound(checks) else None


def _sound(checks: Sequence[Check]) -> bool:
    return all(2 <= check.replicas <= REPLICAS_MAX for check in checks)
