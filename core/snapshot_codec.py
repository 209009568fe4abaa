"""Bytes to a snapshot, in one pass, with limits. A part that cannot be understood costs that part, not the answer."""

from types import NoneType, UnionType
from typing import Any, get_args, get_origin

import msgspec

from rankpulse.core.exits import SIGNALS
from rankpulse.core.snapshot import RANKS_MAX, Snapshot

BYTES_MAX = 512 * 1024 * 1024
ROWS_MAX = 65_536  # of any other list
UNREAD_MAX = 64  # told one by one

SAID_MAX = 200

_decoder = msgspec.json.Decoder(Snapshot)
_LISTS = [field.name for field in msgspec.structs.fields(Snapshot) if get_origin(field.type) is tuple]
_SIGNALS = {name: number for number, name in SIGNALS.items()}


class Unreadable(ValueError):
    """Not a snapshot at all, or beyond its limits. The text says why."""


def decode(data: bytes) -> Snapshot:
    """The snapshot in `data`. Raises Unreadable, and nothing else."""
    if len(data) > BYTES_MAX:
        raise Unreadable(f"{len(data)} bytes, at most {BYTES_MAX}")
    try:
        return _checked(_decoder.decode(data))
    except msgspec.ValidationError:
        pass
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Unreadable(f"not JSON: {error}") from None
    try:
        return _checked(_piece_by_piece(data))
    except (msgspec.DecodeError, RecursionError) as error:
        raise Unreadable(f"not a snapshot: {error}") from None


def _checked(found: Snapshot) -> Snapshot:
    if len(found.ranks) > RANKS_MAX:
        raise Unreadable(f"{len(found.ranks)} ranks, at most {RANKS_MAX}")
    for name in _LISTS:
        if len(getattr(found, name)) > ROWS_MAX:
            raise Unreadable(f"{name}: {len(getattr(found, name))} rows, at most {ROWS_MAX}")
    return found


def _piece_by_piece(data: bytes) -> Snapshot:
    raw = msgspec.json.decode(data)
    if not isinstance(raw, dict):
        raise Unreadable("a snapshot is an object")
    unread: list[str] = []
    found = _lenient("", raw, Snapshot, unread) or Snapshot()
    told = unread[:UNREAD_MAX] + ([f"and {len(unread) - UNREAD_MAX} more"] if len(unread) > UNREAD_MAX else [])
    return msgspec.structs.replace(found, unread=tuple(told))


def _lenient(where: str, value: object, kind: Any, unread: list[str]) -> Any:
    """As `kind`, part by part where the whole does not fit, so that a wrong part costs that part alone."""
    try:
        return msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError as error:
        why = str(error)
    kinds = [one for one in (get_args(kind) if isinstance(kind, UnionType) else (kind,)) if one is not NoneType]
    for one in kinds:
        found = _parts(where, value, one, unread)
        if found is not None:
            return found
    unread.append(f"{where}: {why}"[:SAID_MAX])
    return None


def _parts(where: str, value: object, kind: Any, unread: list[str]) -> Any:
    if isinstance(value, dict) and isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return _struct(where, value, kind, unread)
    if get_origin(kind) is tuple:
        rows = value if isinstance(value, list) else _as_list(value)
        found = (
            _lenient(f"{where}[{i}]", row, get_args(kind)[0], unread) for i, row in enumerate(rows) if row is not None
        )
        return tuple(row for row in found if row is not None)
    if get_origin(kind) is dict and isinstance(value, dict):
        parts = {k: _lenient(f"{where}.{k}", v, get_args(kind)[1], unread) for k, v in value.items() if v is not None}
        return {k: v for k, v in parts.items() if v is not None}
    if kind is str and isinstance(value, int | float):
        return str(value)
    return _SIGNALS.get(value.upper()) if kind is int and isinstance(value, str) else None


def _as_list(value: object) -> list[object]:
    """A text is its lines, anything else one row."""
    return list(value.splitlines()) if isinstance(value, str) else [value]


def _struct(where: str, value: dict[str, object], kind: Any, unread: list[str]) -> Any:
    """null is as good as absent."""
    parts = {}
    for field in msgspec.structs.fields(kind):
        told = value.get(field.encode_name)
        if told is not None and field.name != "unread":
            read = _lenient(f"{where}.{field.encode_name}".lstrip("."), told, field.type, unread)
            parts.update({field.name: read} if read is not None else {})
    try:
        return kind(**parts)
    except TypeError:  # a field that it cannot do without
        return None
