"""Whatever the training loop hands in, made plain without asking it anything that could wait or fail.

Values are judged by their exact type before they are touched. A tensor has `__float__` and `__index__`, and both
would wait for the GPU, so only Python's numbers (and numpy's) are converted; a CPU tensor of one element is read, and
everything else counts as unknown.
"""

import sys

from rankpulse.core import slot

NAN = float("nan")


def phase_bytes(name: object) -> bytes:
    """`name` as it stands in the slot: 1 to 16 printable ASCII bytes."""
    if not issubclass(type(name), str):
        return b"unnamed"
    text = str.encode(name, "ascii", "replace")[: slot.PHASE_BYTES]  # type: ignore[arg-type]
    clean = bytes(byte if 32 <= byte < 127 else 63 for byte in text).strip()
    return b"closing" if clean == slot.PHASE_CLOSED.encode() else clean or b"unnamed"  # "closed" is for close() to say


def plain_int(value: object) -> int | None:
    """`value` as an int, when that needs nobody's code but Python's and numpy's."""
    kind = type(value)
    try:
        if issubclass(kind, int):
            return int.__add__(value, 0)  # type: ignore[operator]
        if issubclass(kind, float):
            whole = float.__trunc__(value)  # type: ignore[arg-type]
            return whole if whole == value else None
        if kind.__module__ == "numpy" and value.size == 1:  # type: ignore[attr-defined]
            return plain_int(value.item())  # type: ignore[attr-defined]
    except Exception:
        return None
    return None


def plain_float(value: object) -> float:
    """`value` as a float, NaN when it is none or when asking would mean to wait for a device."""
    kind = type(value)
    try:
        if issubclass(kind, float):
            return float.__add__(value, 0.0)  # type: ignore[operator]
        if issubclass(kind, int):
            return int.__float__(value)  # type: ignore[arg-type]
        if kind.__module__ == "numpy" and value.size == 1:  # type: ignore[attr-defined]
            return plain_float(value.item())  # type: ignore[attr-defined]
        return _tensor_float(kind, value)
    except Exception:
        return NAN


def _tensor_float(kind: type, value: object) -> float:
    torch = sys.modules.get("torch")
    if torch is None or kind is not torch.Tensor or value.device.type != "cpu" or value.numel() != 1:  # type: ignore[attr-defined]
        return NAN
    return plain_float(value.detach().item())  # type: ignore[attr-defined]
