"""What `torchrun --rdzv-backend rankpulse` loads, through the entry point group `torchrun.handlers`."""

from collections.abc import Callable
from typing import Any


def load() -> Callable[[Any], Any]:
    """The function that makes a rendezvous handler from torch's `RendezvousParameters`."""
    raise NotImplementedError
