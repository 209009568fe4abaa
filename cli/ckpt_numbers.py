"""How far apart the numbers of two tensors are, by numpy or by torch, whichever is here and can read the type."""

import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

_NUMPY: Final = {
    "BOOL": "u1", "U8": "u1", "I8": "i1", "I16": "<i2", "U16": "<u2", "F16": "<f2", "I32": "<i4", "U32": "<u4",
    "F32": "<f4", "I64": "<i8", "U64": "<u8", "F64": "<f8", "C64": "<c8",
}  # fmt: skip
_TORCH: Final = {
    "BOOL": "uint8", "U8": "uint8", "I8": "int8", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
    "I16": "int16", "U16": "uint16", "F16": "float16", "BF16": "bfloat16", "I32": "int32", "U32": "uint32",
    "F32": "float32", "I64": "int64", "U64": "uint64", "F64": "float64", "C64": "complex64",
}  # fmt: skip

Numbers = Callable[[memoryview], Any]


@dataclass(slots=True)
class Apart:
    """How far two tensors are apart, over all pieces seen so far. Of numbers that both are finite the largest absolute
    and relative difference (over the larger of the two); how many others differ (NaN or infinite on one side)."""

    elements: int = 0  # that are not equal as numbers
    max_abs: float = 0.0
    max_rel: float = 0.0
    not_finite: int = 0


@cache
def numbers_of(dtype: str) -> tuple[Any, Numbers] | None:
    """A library and what makes a double precision array of it from bytes; None when no library here can."""
    numpy = _imported("numpy")
    if numpy is not None and dtype in _NUMPY:
        wide = "c16" if dtype == "C64" else "f8"
        return numpy, lambda data: numpy.frombuffer(data, _NUMPY[dtype]).astype(wide)
    if numpy is not None and dtype == "BF16":  # the upper half of a float32
        return numpy, lambda data: (numpy.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4").astype("f8")
    torch = _imported("torch")
    kind = getattr(torch, _TORCH.get(dtype, ""), None)
    if torch is None or kind is None:
        return None
    double = torch.complex128 if dtype == "C64" else torch.float64
    return torch, lambda data: torch.frombuffer(bytearray(data), dtype=kind).to(double)


def _imported(name: str) -> Any:
    """The module; None where it is missing or broken."""
    import importlib

    try:
        return importlib.import_module(name)
    except (ImportError, OSError):
        return None


def compare(apart: Apart, dtype: str, a: memoryview, b: memoryview) -> bool:
    """Add two pieces of the same elements to `apart`; False when no library here reads `dtype`."""
    found = numbers_of(dtype)
    if found is None:
        return False
    library, numbers = found
    quiet = library.errstate(all="ignore") if hasattr(library, "errstate") else contextlib.nullcontext()
    with quiet:
        x, y = numbers(a), numbers(b)
        unequal = (x != y) & ~((x != x) & (y != y))
        finite = unequal & library.isfinite(x) & library.isfinite(y)
        apart.elements += int(unequal.sum())
        apart.not_finite += int(unequal.sum()) - int(finite.sum())
        x, y = x[finite], y[finite]
        if len(x):
            gap = library.abs(x - y)
            apart.max_abs = max(apart.max_abs, _finite(gap.max()))
            apart.max_rel = max(apart.max_rel, _finite((gap / library.maximum(library.abs(x), library.abs(y))).max()))
    return True


def _finite(value: Any) -> float:
    """A difference beyond double precision is as good as the largest number: JSON knows no infinity."""
    number = float(value)
    return number if math.isfinite(number) else 1.7976931348623157e308
