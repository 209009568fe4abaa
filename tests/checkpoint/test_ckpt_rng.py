"""Random number generators: what is drawn after a load is what would have been drawn after the save."""

import random
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from rankpulse.trainer.checkpoint import rng  # noqa: E402


def test_random_numbers_go_on_as_they_would_have() -> None:
    numpy = pytest.importorskip("numpy")

    def draws() -> list[Any]:
        return [random.random(), random.gauss(), numpy.random.rand(), numpy.random.randn(), torch.randn(3).tolist()]

    draws()
    state = rng.captured()
    expected = draws()
    draws()
    assert rng.restore(state) == []
    assert draws() == expected
    rng.captured()  # draws nothing
    rest = draws()
    rng.restore(state)
    draws()
    assert draws() == rest
