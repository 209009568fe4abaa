"""Tensors as bytes: their types by name, their memory as a memoryview, and which of them cannot be saved.

Bytes go between a tensor's memory and a file without a copy where the tensor lies dense in the CPU's memory, and
otherwise through a CPU buffer of at most CHUNK bytes. numpy is not asked: it knows no bf16.
"""

import ctypes
from collections.abc import Iterator
from typing import Any, Final

import torch
from torch.distributed.tensor import DTensor

from rankpulse.trainer.checkpoint.errors import StateRefused

CHUNK: Final = 64 << 20
_DTYPES: Final = {
    torch.bool: "BOOL", torch.uint8: "U8", torch.int8: "I8", torch.int16: "I16", torch.uint16: "U16",
    torch.float16: "F16", torch.bfloat16: "BF16", torch.int32: "I32", torch.uint32: "U32", torch.float32: "F32",
    torch.int64: "I64", torch.uint64: "U64", torch.float64: "F64", torch.complex64: "C64",
    torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2",
}  # fmt: skip
_BY_NAME: Final = {name: dtype for dtype, name in _DTYPES.items()}
_PLAIN: Final = {torch.Tensor, torch.nn.Parameter, torch.nn.Buffer}


def dtype_name(dtype: Any) -> str:
    """The name in the safetensors format, "" for a type that it does not have."""
    return _DTYPES.get(dtype, "")


def dtype_of(name: str) -> Any:
    """torch's type by that name."""
    return _BY_NAME[name]


def is_dtensor(value: Any) -> bool:
    return isinstance(value, DTensor)


def refuse_unsavable(tensor: Any, path: str) -> None:
    """Raises StateRefused for a tensor whose bytes are not all there is to it, or that has none."""
    trouble = _unsavable(tensor)
    if trouble:
        raise StateRefused(f"{path}: {trouble}")


def _unsavable(tensor: Any) -> str:
    if isinstance(tensor, DTensor):
        if any(placement.is_partial() for placement in tensor.placements):
            return "a partial DTensor (a sum that was never made): reduce it first"
        tensor = local_part(tensor)
    elif type(tensor) not in _PLAIN:
        return f"a {type(tensor).__name__} cannot be saved: only plain tensors and DTensors"
    if tensor.device.type == "meta":
        return "a tensor on the meta device has no values: initialise the model before it is saved or loaded"
    if tensor.layout is not torch.strided or tensor.is_quantized:
        return "a sparse or quantised tensor cannot be saved: make it dense first"
    if tensor.dtype not in _DTYPES:
        return f"tensors of {tensor.dtype} cannot be saved: the safetensors format has no such type"
    return ""


def local_part(tensor: Any) -> Any:
    """What this rank holds of it: a plain tensor, detached."""
    found = tensor.detach()
    return found.to_local() if isinstance(tensor, DTensor) else found


def where(tensor: Any) -> tuple[Any, ...]:
    """The same for two tensors that are the same memory, seen the same way."""
    part = local_part(tensor)
    start = part.untyped_storage().data_ptr() if part.numel() else id(tensor)
    return (start, part.storage_offset(), tuple(part.shape), part.stride(), part.dtype, str(part.device))


def nbytes(tensor: Any) -> int:
    return int(tensor.numel() * tensor.element_size())


def in_place(tensor: Any) -> bool:
    """Whether its bytes, in row-major order, are its memory."""
    plain = not (tensor.is_conj() or tensor.is_neg())
    return tensor.device.type == "cpu" and tensor.is_contiguous() and plain


def memory(tensor: Any) -> memoryview:
    """The bytes of a tensor for which `in_place` holds. The caller keeps the tensor alive."""
    size = nbytes(tensor)
    if size == 0:
        return memoryview(bytearray())
    return memoryview((ctypes.c_char * size).from_address(tensor.data_ptr())).cast("B")


def bytes_of(tensor: Any, start: int, numel: int) -> Iterator[memoryview]:
    """The bytes of elements [start, start + numel), row-major, in views that live until the next is asked for."""
    found = flat(tensor, start, numel)
    if in_place(found):
        yield memory(found)
        return
    step = max(CHUNK // max(found.element_size(), 1), 1)
    for at in range(0, numel, step):
        part = found[at : at + step].cpu()
        yield memory(part)


def flat(tensor: Any, start: int, numel: int) -> Any:
    """Elements [start, start + numel), row-major: the tensor's own memory where it lies dense, else a copy."""
    tensor = tensor.detach()
    dense = tensor if tensor.is_contiguous() else tensor.contiguous()
    return dense.resolve_conj().resolve_neg().reshape(-1)[start : start + numel]


def empty(shape: tuple[int, ...], dtype: str) -> Any:
    """A CPU tensor to be filled."""
    return torch.empty(shape, dtype=dtype_of(dtype))
