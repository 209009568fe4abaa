"""What `torchrun --rdzv-backend rankpulse` loads, through the entry point group `torchrun.handlers`.

torch loads it in every torchrun, of whatever backend: nothing is imported before it is used.
"""

from collections.abc import Callable
from typing import Any


def load() -> Callable[[Any], Any]:
    """The function that makes a rendezvous handler from torch's `RendezvousParameters`."""
    return _create


def _create(parameters: Any) -> Any:
    from rankpulse.trainer.handler import create

    return create(parameters)
