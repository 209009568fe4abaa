"""Python values as JSON and back: what a state dict holds beside tensors. No torch, no pickle.

What JSON has stays as it is, so that people can read a manifest; everything else is `{"$": kind, "v": ...}`. Types are
kept exactly: a tuple comes back as a tuple, a key 3 as 3, a Counter as a Counter, NaN as NaN. What is not known here
is offered to `leaf` (tensors), and refused when that does not know it either: nothing is lost silently.
"""

import base64
import binascii
import math
import sys
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator
from typing import Any, Final

from rankpulse.trainer.checkpoint.errors import StateRefused

ROOM: Final = 40  # levels of JSON below this one: a manifest may have 64
ARRAY_MAX: Final = 1 << 20  # bytes of a numpy array; a larger one belongs in a tensor
_PLAIN_INT: Final = 1 << 63
_TAG: Final = "$"
_ARRAY_KINDS: Final = "biufc"

Leaf = Callable[[Any, str], Any]


def no_leaf(value: Any, path: str) -> Any:
    """Knows nothing."""
    return NotImplemented


def encode(value: Any, path: str, leaf: Leaf = no_leaf, room: int = ROOM) -> Any:
    """`value` as JSON. Raises StateRefused, naming the place (`path`), for what cannot be kept.

    `leaf(value, path)` gives JSON for what is not known here (it comes back to `decode`'s leaf), or NotImplemented.
    """
    if room <= 0:
        raise StateRefused(
            f"{path}: nested too deeply (or within itself): flatten what this object's state_dict() returns"
        )
    kind = type(value)
    if value is None or kind is bool:
        return value
    if kind is str:
        return value if writable(value) else _tagged("str", _base64(value.encode("utf-8", "surrogatepass")))
    if kind is int:
        return value if abs(value) < _PLAIN_INT else _tagged("int", hex(value))
    if kind is float:
        return value if math.isfinite(value) else _tagged("float", repr(value))
    encoder = _ENCODERS.get(kind) or (_ENCODERS[dict] if issubclass(kind, dict) and _is_defaultdict(kind) else None)
    if encoder is not None:
        return encoder(value, path, leaf, room)
    return _other(value, path, leaf)


def decode(value: Any, leaf: Callable[[Any], Any] = lambda payload: payload) -> Any:
    """The value again. Raises ValueError for what `encode` does not make."""
    if isinstance(value, list):
        return [decode(item, leaf) for item in value]
    if not isinstance(value, dict):
        return value
    if _TAG not in value:
        return {key: decode(item, leaf) for key, item in value.items()}
    kind, payload = value[_TAG], value.get("v")
    if kind == "leaf":
        return leaf(payload)
    try:
        return _DECODERS[kind](payload, leaf)
    except (KeyError, TypeError, ValueError, OverflowError, binascii.Error) as error:
        raise ValueError(f"not a value of a checkpoint: {_TAG} {kind!r} ({type(error).__name__})") from None


def leaves(value: Any) -> Iterator[Any]:
    """The payloads of all leaves in an encoded value, in its order."""
    if isinstance(value, list):
        for item in value:
            yield from leaves(item)
    elif isinstance(value, dict):
        if value.get(_TAG) == "leaf":
            yield value.get("v")
        else:
            for item in value.values():
                yield from leaves(item)


def is_leaf(value: Any) -> bool:
    return isinstance(value, dict) and value.get(_TAG) == "leaf"


def _tagged(kind: str, payload: Any) -> dict[str, Any]:
    return {_TAG: kind, "v": payload}


def writable(text: str) -> bool:
    """Whether UTF-8 has it: a file's name that Python could not read may hold halves of characters."""
    if text.isascii():
        return True
    try:
        return bool(text.encode())
    except UnicodeEncodeError:
        return False


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _is_defaultdict(kind: type) -> bool:
    return kind.__name__ == "defaultdict" and kind.__module__ == "collections"


def _list(value: Any, path: str, leaf: Leaf, room: int) -> Any:
    return [encode(item, f"{path}.{at}", leaf, room - 1) for at, item in enumerate(value)]


def _tuple(value: Any, path: str, leaf: Leaf, room: int) -> Any:
    return _tagged("tuple", _list(value, path, leaf, room - 1))


def _dict(value: Any, path: str, leaf: Leaf, room: int) -> Any:
    if all(type(key) is str and writable(key) for key in value) and _TAG not in value:
        return {key: encode(item, f"{path}.{key}", leaf, room - 1) for key, item in value.items()}
    return _tagged("dict", _pairs(value, path, leaf, room - 1))


def _pairs(value: Any, path: str, leaf: Leaf, room: int) -> Any:
    return [
        [encode(key, f"{path}.(key)", no_leaf, room - 2), encode(item, f"{path}.{key}", leaf, room - 2)]
        for key, item in value.items()
    ]


def _ordered(value: Any, path: str, leaf: Leaf, room: int) -> Any:
    return _tagged("ordered", _pairs(value, path, leaf, room - 1))


def _counter(value: Any, path: str, leaf: Leaf, room: int) -> Any:
    return _tagged("counter", _pairs(value, path, leaf, room - 1))


def _set(value: Any, path: str, leaf: Leaf, room: int) -> Any:
    return _tagged(type(value).__name__, sorted(_list(value, path, no_leaf, room - 1), key=repr))


def _deque(value: Any, path: str, leaf: Leaf, room: int) -> Any:
    return _tagged("deque", [value.maxlen, _list(value, path, leaf, room - 2)])


def _bytes(value: Any, path: str, leaf: Leaf, room: int) -> Any:
    return _tagged(type(value).__name__, _base64(value))


def _complex(value: Any, path: str, leaf: Leaf, room: int) -> Any:
    return _tagged("complex", [encode(value.real, path), encode(value.imag, path)])


def _other(value: Any, path: str, leaf: Leaf) -> Any:
    payload = leaf(value, path)
    if payload is not NotImplemented:
        return _tagged("leaf", payload)
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.generic):
        item = value.item()
        if type(item) in (bool, int, float, complex, str, bytes):
            return _tagged("np", [value.dtype.str, encode(item, path)])
    if numpy is not None and type(value) is numpy.ndarray and value.dtype.kind in _ARRAY_KINDS:
        if value.nbytes > ARRAY_MAX:
            raise StateRefused(
                f"{path}: a numpy array of {value.nbytes} bytes: give a tensor instead (torch.from_numpy)"
            )
        data = _base64(numpy.ascontiguousarray(value).tobytes())
        return _tagged("nparray", [value.dtype.str, list(value.shape), data])
    kind = type(value)
    raise StateRefused(
        f"{path}: a {kind.__module__}.{kind.__qualname__} cannot be saved: a state may hold tensors, numbers, text, "
        f"bytes, None, and lists, tuples, sets and dicts of them"
    )


_ENCODERS: Final[dict[type, Callable[[Any, str, Leaf, int], Any]]] = {
    list: _list, tuple: _tuple, dict: _dict, OrderedDict: _ordered, Counter: _counter, set: _set, frozenset: _set,
    deque: _deque, bytes: _bytes, bytearray: _bytes, complex: _complex,
}  # fmt: skip


def _pairs_back(payload: Any, leaf: Callable[[Any], Any]) -> list[tuple[Any, Any]]:
    return [(decode(key, leaf), decode(item, leaf)) for key, item in payload]


def _items_back(payload: Any, leaf: Callable[[Any], Any]) -> list[Any]:
    if not isinstance(payload, list):
        raise ValueError("no list")
    return [decode(item, leaf) for item in payload]


def _deque_back(payload: Any, leaf: Callable[[Any], Any]) -> Any:
    maxlen, items = payload
    return deque(_items_back(items, leaf), maxlen)


def _scalar_back(payload: Any, leaf: Callable[[Any], Any]) -> Any:
    kind, item = payload
    numpy = sys.modules.get("numpy")
    plain = decode(item)
    return plain if numpy is None else numpy.dtype(kind).type(plain)


def _array_back(payload: Any, leaf: Callable[[Any], Any]) -> Any:
    kind, shape, data = payload
    numpy = sys.modules.get("numpy")
    if numpy is None:
        raise ValueError("numpy is not imported")
    found = numpy.dtype(kind)
    if found.kind not in _ARRAY_KINDS:
        raise ValueError(kind)
    return numpy.frombuffer(base64.b64decode(data, validate=True), found).reshape(shape).copy()


_DECODERS: Final[dict[str, Callable[[Any, Callable[[Any], Any]], Any]]] = {
    "int": lambda payload, leaf: int(payload, 16),
    "float": lambda payload, leaf: float(payload),
    "complex": lambda payload, leaf: complex(*_items_back(payload, leaf)),
    "str": lambda payload, leaf: base64.b64decode(payload, validate=True).decode("utf-8", "surrogatepass"),
    "bytes": lambda payload, leaf: base64.b64decode(payload, validate=True),
    "bytearray": lambda payload, leaf: bytearray(base64.b64decode(payload, validate=True)),
    "tuple": lambda payload, leaf: tuple(_items_back(payload, leaf)),
    "dict": lambda payload, leaf: dict(_pairs_back(payload, leaf)),
    "ordered": lambda payload, leaf: OrderedDict(_pairs_back(payload, leaf)),
    "counter": lambda payload, leaf: Counter(dict(_pairs_back(payload, leaf))),
    "deque": _deque_back,
    "np": _scalar_back,
    "nparray": _array_back,
    "set": lambda payload, leaf: set(_items_back(payload, leaf)),
    "frozenset": lambda payload, leaf: frozenset(_items_back(payload, leaf)),
}
