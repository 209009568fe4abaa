"""The checksum: any flipped bit is seen, and the same bits have the same sum."""

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from rankpulse.trainer.guard import checksum as module  # noqa: E402
from rankpulse.trainer.guard.checksum import WORDS, checksum  # noqa: E402

TYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.uint8, torch.bool]


def of(*tensors: Any) -> int:
    return int(checksum(tensors, tensors[0].device))


def drawn(shape: tuple[int, ...], dtype: Any, seed: int) -> Any:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 2, shape, generator=generator).to(dtype)


def flip(tensor: Any, bit: int) -> None:
    """One bit of the memory of a contiguous tensor."""
    data = tensor.view(-1).view(torch.uint8)
    data[bit // 8] ^= 1 << bit % 8


@given(st.sampled_from(TYPES[:-1]), st.integers(1, 70), st.integers(0, 10**9), st.integers(0, 100))
def test_any_flipped_bit_is_seen(dtype: Any, size: int, bit: int, seed: int) -> None:
    tensor, other = drawn((size,), dtype, seed), drawn((3, 5), torch.float32, seed)
    before = of(tensor, other)
    flip(tensor, bit % (tensor.numel() * tensor.element_size() * 8))
    assert of(tensor, other) != before
    assert of(tensor.clone(), other) == of(tensor, other)


def test_every_bit_of_a_small_tensor_has_a_sum_of_its_own() -> None:
    tensor = torch.randn(33, dtype=torch.float32)
    sums = {of(tensor)}
    for bit in range(33 * 32):
        flip(tensor, bit)
        sums.add(of(tensor))
        flip(tensor, bit)
    assert len(sums) == 33 * 32 + 1


def test_a_bit_beyond_the_first_piece_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WORDS", 16)
    tensor = torch.randn(16 * 2 * 5 + 3)
    sums = {of(tensor)}
    for bit in (0, 1023, 1024, 16 * 64 * 4 + 7, tensor.numel() * 32 - 1):
        flip(tensor, bit)
        sums.add(of(tensor))
        flip(tensor, bit)
    assert len(sums) == 6
    assert WORDS > 16


def test_what_is_swapped_or_stands_elsewhere_has_another_sum() -> None:
    one, other = torch.tensor([1.0, 2.0]), torch.tensor([2.0, 1.0])
    assert len({of(one, other), of(other, one), of(torch.cat([one, other])), of(one), of(other)}) == 5
    assert of(torch.zeros(2)) != of(torch.zeros(3))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(), (0,), (1,), (7,), (3, 5)])
def test_it_takes_whatever_a_parameter_may_be(dtype: Any, shape: tuple[int, ...]) -> None:
    tensor = drawn(shape, dtype, 1)
    assert of(tensor) == of(tensor.clone())


def test_memory_that_is_not_in_order_or_begins_anywhere_counts_by_its_values() -> None:
    tensor = torch.randn(6, 8)
    assert of(tensor.t()) == of(tensor.t().contiguous())
    odd = torch.randn(40).to(torch.bfloat16)[1:33]
    assert of(odd) == of(odd.clone())


def test_two_flipped_signs_do_not_cancel_each_other() -> None:
    """The top bit of a word alone would count the same wherever it is."""
    tensor = torch.randn(64)
    sums = {of(tensor)}
    for other in range(1, 64):
        for place in (0, other):
            flip(tensor, place * 32 + 31)
        sums.add(of(tensor))
        for place in (0, other):
            flip(tensor, place * 32 + 31)
    assert len(sums) == 64
