"""A checksum of tensors on the device where they are: any one flipped bit changes it, and so does a swap.

The bytes are taken as 64-bit words. Each has its upper half folded into its lower one (which can be undone), is
multiplied with an odd weight of its place, and all are added up modulo 2^64. A flipped bit changes its folded word, an
odd number times that change is not 0 modulo 2^64, and no other term changes: so the sum differs, always. Two changes
cancel each other by chance, about once in 2^32: the fold lets no bit count at the top alone, where weights say nothing.
Integer sums have no rounding, so the order in which a device adds them changes nothing: the same bits have the same sum
on every machine. Nothing is copied to the CPU here but by whoever asks for the result.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

import torch

WORDS: Final = 1 << 19  # at a time: 4 MiB, and as much for the products
_STEP: Final = 0x9E3779B97F4A7C15 - (1 << 64)
_MIX: Final = 0xBF58476D1CE4E5B9 - (1 << 64)
_NEXT: Final = 0x94D049BB133111EB - (1 << 64)  # odd, as every factor here: nothing is lost by it
_LOW: Final = (1 << 32) - 1
_weights: dict[Any, Any] = {}


def checksum(tensors: Iterable[Any], device: Any) -> Any:
    """A scalar of int64 on `device`, where all of the tensors (plain ones) are."""
    total = torch.zeros((), dtype=torch.int64, device=device)
    for tensor in tensors:
        for words in _words(tensor.detach()):
            folded = words ^ ((words >> 32) & _LOW)
            total = total * _NEXT + (folded * _weight(device)[: words.numel()]).sum()
        total = total * _NEXT + tensor.numel()
    return total


def _weight(device: Any) -> Any:
    """Odd numbers that follow from their places; kept for each device."""
    found = _weights.get(device)
    if found is None:
        places = torch.arange(1, WORDS + 1, dtype=torch.int64, device=device) * _STEP
        places = (places ^ (places >> 29)) * _MIX
        found = _weights[device] = (places ^ (places >> 32)) | 1
    return found


def _words(tensor: Any) -> Iterator[Any]:
    """The bytes of a tensor as int64, piece by piece; the last word is filled up with zeros."""
    flat = tensor.reshape(-1) if tensor.is_contiguous() else tensor.contiguous().reshape(-1)
    data = flat.view(torch.uint8)
    for at in range(0, data.numel(), 8 * WORDS):
        piece = data[at : at + 8 * WORDS]
        left = piece.numel() % 8
        if left:
            piece = torch.cat([piece, piece.new_zeros(8 - left)])
        elif piece.storage_offset() % 8:
            piece = piece.clone()  # a word must begin where the device can read one
        yield piece.view(torch.int64)
