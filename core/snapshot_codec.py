"""Bytes to a snapshot, in one pass, with limits. A part that cannot be understood costs that part, not the answer."""

from typing import Any

import msgspec

from rankpulse.core.snapshot import RANKS_MAX, Snapshot

BYTES_MAX = 512 * 1024 * 1024
ROWS_MAX = 65_536  # of any other list
UNREAD_MAX = 64  # told one by one

_decoder = msgspec.json.Decoder(Snapshot)
_LISTS = {
    field.name: field.type.__args__[0]
    for field in msgspec.structs.fields(Snapshot)
    if getattr(field.type, "__origin__", None) is tuple and field.name != "unread"
}


class Unreadable(ValueError):
    """Not a snapshot at all, or beyond its limits. The text says why."""


def decode(data: bytes) -> Snapshot:
    """The snapshot in `data`. Raises Unreadable, and nothing else."""
    if len(data) > BYTES_MAX:
        raise Unreadable(f"{len(data)} bytes, at most {BYTES_MAX}")
    try:
        return _checked(_decoder.decode(data))
    except msgspec.ValidationError:
        return _checked(_piece_by_piece(data))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Unreadable(f"not JSON: {error}") from None


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
    parts: dict[str, Any] = {}
    for field in msgspec.structs.fields(Snapshot):
        if field.name in raw and field.name != "unread":
            parts[field.name] = _part(field.name, raw[field.name], field.type, unread)
    told = unread[:UNREAD_MAX] + ([f"and {len(unread) - UNREAD_MAX} more"] if len(unread) > UNREAD_MAX else [])
    return Snapshot(**{name: value for name, value in parts.items() if value is not None}, unread=tuple(told))


def _part(name: str, value: object, kind: Any, unread: list[str]) -> Any:
    if name not in _LISTS:
        return _lenient(name, value, kind, unread)
    if not isinstance(value, list):
        unread.append(f"{name}: not a list")
        return None
    rows = (_lenient(f"{name}[{i}]", row, _LISTS[name], unread) for i, row in enumerate(value))
    return tuple(row for row in rows if row is not None)


def _lenient(where: str, value: object, kind: Any, unread: list[str]) -> Any:
    """As `kind`; field by field where the whole does not fit, so that a wrong type costs that field alone."""
    try:
        return msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError as error:
        if not isinstance(value, dict) or not _is_struct(kind):
            unread.append(f"{where}: {error}")
            return None
    parts = {}
    for field in msgspec.structs.fields(kind):
        if field.encode_name in value:
            try:
                parts[field.name] = msgspec.convert(value[field.encode_name], field.type, strict=False)
            except msgspec.ValidationError as error:
                unread.append(f"{where}.{field.encode_name}: {error}")
    try:
        return kind(**parts)
    except TypeError as error:
        unread.append(f"{where}: {error}")
        return None


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)
