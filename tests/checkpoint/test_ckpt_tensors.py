"""Tensors as bytes, in every type and layout; and which are refused."""

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from rankpulse.trainer.checkpoint import tensors  # noqa: E402
from rankpulse.trainer.checkpoint.errors import StateRefused  # noqa: E402
from rankpulse.trainer.checkpoint.manifest import DTYPE_BYTES  # noqa: E402


def raw(tensor: Any) -> bytes:
    """The reference: torch's own way to bytes."""
    if not tensor.numel():
        return b""
    return bytes(tensor.contiguous().resolve_conj().resolve_neg().reshape(-1).view(torch.uint8).tolist())


def ours(tensor: Any, start: int = 0, numel: int | None = None) -> bytes:
    count = tensor.numel() if numel is None else numel
    return b"".join(bytes(view) for view in tensors.bytes_of(tensor, start, count))


def sample(name: str) -> Any:
    width = DTYPE_BYTES[name]
    data = torch.randint(0, 2 if name == "BOOL" else 256, (24 * width,), dtype=torch.uint8)
    return data.view(tensors.dtype_of(name)).reshape(2, 3, 4)


@pytest.mark.parametrize("name", DTYPE_BYTES)
def test_every_type_has_its_bytes(name: str) -> None:
    tensor = sample(name)
    assert tensors.dtype_name(tensor.dtype) == name
    assert ours(tensor) == raw(tensor)
    assert ours(tensor.permute(2, 0, 1)) == raw(tensor.permute(2, 0, 1))
    width = DTYPE_BYTES[name]
    assert ours(tensor, 5, 7) == raw(tensor)[5 * width : 12 * width]
    into = tensors.empty((2, 3, 4), name)
    tensors.memory(into)[:] = raw(tensor)
    assert raw(into) == raw(tensor)


@pytest.mark.parametrize(
    "make",
    [
        lambda x: x.t(),
        lambda x: x[::2, 1:],
        lambda x: x.expand(3, *x.shape),
        lambda x: x.reshape(1, 4, 2, 3).to(memory_format=torch.channels_last),
        lambda x: x[1, 2],
        lambda x: x[:0],
        lambda x: torch.empty(3, 0, 2),
        lambda x: x.to(torch.complex64).conj(),
        lambda x: torch.view_as_complex(x.reshape(12, 2)).conj().imag,
    ],
)
def test_every_layout_in_row_major_order(make: Any) -> None:
    tensor = make(torch.randn(6, 4))
    assert ours(tensor) == raw(tensor)
    half = tensor.numel() // 2
    assert ours(tensor, 0, half) + ours(tensor, half, tensor.numel() - half) == raw(tensor)


def test_a_dense_tensor_is_not_copied() -> None:
    tensor = torch.zeros(8)
    view = next(tensors.bytes_of(tensor, 2, 4))
    tensor[2] = 1.0
    assert bytes(view[:4]) == b"\0\0\x80?"


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: torch.empty(2, device="meta"), "meta device"),
        (lambda: torch.zeros(2, 2).to_sparse(), "sparse"),
        (lambda: torch.zeros(2, dtype=torch.complex128), "complex128"),
        (lambda: torch.nn.UninitializedParameter(), "UninitializedParameter"),
        (lambda: torch.zeros(2).as_subclass(type("Odd", (torch.Tensor,), {})), "Odd"),
    ],
)
def test_what_cannot_be_saved_is_refused(make: Any, says: str) -> None:
    with pytest.raises(StateRefused, match=r"model\.w: ") as refused:
        tensors.refuse_unsavable(make(), "model.w")
    assert says in str(refused.value)


def test_parameters_and_buffers_are_plain_tensors() -> None:
    for tensor in (torch.nn.Parameter(torch.zeros(2)), torch.nn.Buffer(torch.zeros(2)), torch.zeros(())):
        tensors.refuse_unsavable(tensor, "x")


def test_the_same_memory_is_known_as_such() -> None:
    tensor = torch.zeros(4, 4)
    assert tensors.where(tensor) == tensors.where(tensor.detach())
    assert tensors.where(tensor) != tensors.where(tensor.t())
    assert tensors.where(tensor[0]) != tensors.where(tensor[1])
    assert tensors.where(torch.empty(0)) != tensors.where(torch.empty(0))
