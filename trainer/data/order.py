"""In which order an epoch reads its samples: a permutation of 0 ... n-1 that is computed, never stored.

A function of (seed, epoch, n) and nothing else, so every rank of every round knows the same order without being told,
and the sample at any place of any epoch costs the same few microseconds and no memory, whatever n is.

How: a Feistel network over pairs (left, right) with left < a, right < b and n <= a * b, as Black and Rogaway describe
for arbitrary finite domains ("Ciphers with Arbitrary Finite Domains", CT-RSA 2002): each round adds to one half, modulo
its size, a keyed hash of the other, which can be undone, so the whole is a permutation of the a * b pairs. Pairs beyond
n are sent through again until they fall below n ("cycle walking"), which leaves a permutation of 0 ... n-1. With
a = ceil(sqrt(n)) hardly any pair is beyond it. It mixes well; it is no secret to anybody.
"""

import math
from typing import Final

NAME: Final = "feistel-1"  # stands in checkpoints: another way to order samples must have another name
ROUNDS: Final = 8
ROUNDS_OF_FEW: Final = 24  # where the halves have a few values each, it takes more to reach every order
FEW: Final = 4096
_MASK: Final = (1 << 64) - 1
_ODD: Final = 0xD6E8FEB86659FD93  # odd: nothing is lost by multiplying with it
_GOLDEN: Final = 0x9E3779B97F4A7C15


def mixed(value: int) -> int:
    """64 bits in which every bit depends on every bit of `value` (the finalizer of splitmix64, Steele et al. 2014)."""
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def keyed(*parts: int) -> int:
    """64 bits that follow from all of these numbers and their order."""
    key = 0
    for part in parts:
        key = mixed((key * 3 + (part & _MASK) + _GOLDEN) & _MASK)
    return key


class Order:
    """The order of one epoch of `n` samples, n >= 1; as they lie when not `shuffle`."""

    __slots__ = ("_a", "_b", "_keys", "_n", "_shuffle")

    def __init__(self, n: int, seed: int, epoch: int, *, shuffle: bool = True) -> None:
        self._n, self._shuffle = n, shuffle
        self._a = math.isqrt(n - 1) + 1
        self._b = -(-n // self._a)
        keys = [keyed(seed, epoch, n, number) for number in range(ROUNDS if n > FEW else ROUNDS_OF_FEW)]
        self._keys = list(zip(keys[::2], keys[1::2], strict=True))

    def __getitem__(self, place: int) -> int:
        """The sample at `place` of the epoch. IndexError beyond it."""
        if not 0 <= place < self._n:
            raise IndexError(f"place {place} of an epoch of {self._n} samples")
        if not self._shuffle:
            return place
        found = self._pair(place)
        while found >= self._n:
            found = self._pair(found)
        return found

    def _pair(self, value: int) -> int:
        """One pass. The hash is two multiplications with key and other half, written out: calls would cost most."""
        a, b = self._a, self._b
        left, right = divmod(value, b)
        for one, other in self._keys:
            hashed = (((right ^ one) * _ODD & _MASK) ^ one) >> 29
            left = (left + ((hashed * _ODD & _MASK) >> 20)) % a
            hashed = (((left ^ other) * _ODD & _MASK) ^ other) >> 29
            right = (right + ((hashed * _ODD & _MASK) >> 20)) % b
        return left * b + right
