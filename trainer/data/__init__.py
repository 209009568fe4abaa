"""Where a job is in its data, so that a restart trains on every sample once.

    from rankpulse.trainer.data import ReplayLoader

    data = ReplayLoader(dataset, batch_size=256, seed=0, num_workers=4)
    manager = CheckpointManager("checkpoints", model=model, optimizer=optimizer, extra={"data": data})

Importing this loads no torch; what needs torch is loaded when it is named.
"""

import importlib
from typing import TYPE_CHECKING, Any

from rankpulse.trainer.data.batches import GlobalBatches
from rankpulse.trainer.data.order import Order
from rankpulse.trainer.data.plan import Batch, Plan, Position
from rankpulse.trainer.data.streams import StreamLoader

if TYPE_CHECKING:
    from rankpulse.trainer.data.loader import ReplayLoader

__all__ = ["Batch", "GlobalBatches", "Order", "Plan", "Position", "ReplayLoader", "StreamLoader"]


def __getattr__(name: str) -> Any:
    if name != "ReplayLoader":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.loader").ReplayLoader
