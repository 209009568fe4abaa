"""How a training process ended, in its own words: the ending of the slot. Pure."""

from typing import Any

from rankpulse.core import slot

MESSAGE_CHARS = 200
NAME_CHARS = 80


def ending(*, closed: bool, error: object, place: str = "") -> dict[str, Any]:
    """The ending of a process whose interpreter ends, because of `error` (an exception, its type, or None).

    A pulse that was closed stays closed; an error after it is added, with the collective that was called last.
    """
    said: dict[str, Any] = {"kind": "closed" if closed else "exit" if error is None else "exception"}
    if error is not None:
        kind = error if isinstance(error, type) else type(error)
        said["error"] = _text(kind.__name__, NAME_CHARS)
        said["message"] = "" if kind is error else _text(error, MESSAGE_CHARS)
        said |= {"place": place} if place else {}
    return said


def packed(said: dict[str, Any], limit: int = slot.ENDING_MAX) -> bytes:
    """`said` for the slot, its message cut until it fits."""
    said = dict(said)
    while True:
        try:
            return slot.pack_json(said, limit)
        except ValueError:
            message = said.get("message", "")
            if not message:
                return slot.pack_json({"kind": said["kind"]}, limit)
            said["message"] = message[: len(message) * 3 // 4]


def _text(value: object, chars: int) -> str:
    """The first characters of `value` as text that any encoder takes."""
    try:
        return str(value)[:chars].encode("utf-8", "replace").decode()
    except Exception:  # its __str__ is the job's code
        return ""
