"""Checkpoints that are verified before they are trusted.

    from rankpulse.trainer.checkpoint import CheckpointManager

    manager = CheckpointManager("checkpoints", model=model, optimizer=optimizer, every_steps=100)
    resumed = manager.load()
    for step in range(resumed.step + 1 if resumed else 1, steps + 1):
        ...
        manager.step(step, metrics={"loss": loss.item()})

Importing this loads no torch: the commands read checkpoints without it. What needs torch is loaded when it is named.
"""

import importlib
from typing import TYPE_CHECKING, Any

from rankpulse.trainer.checkpoint.errors import (
    CheckpointError,
    ChecksumDiffers,
    Damaged,
    ForeignShard,
    ManifestInvalid,
    NewerSchema,
    NotCovered,
    NothingVerified,
    RanksLost,
    Refused,
    SaveFailed,
    ShardCountDiffers,
    ShardMissing,
    StateMismatch,
    StateRefused,
    Truncated,
    WorldSizeChanged,
)
from rankpulse.trainer.checkpoint.manifest import ShardManifest

if TYPE_CHECKING:
    from rankpulse.trainer.checkpoint.loading import Resumed, Where, load_sharded
    from rankpulse.trainer.checkpoint.manager import CheckpointManager
    from rankpulse.trainer.checkpoint.saving import How, Saved, save_sharded
    from rankpulse.trainer.checkpoint.writer import write_file

__all__ = [
    "CheckpointError", "CheckpointManager", "ChecksumDiffers", "Damaged", "ForeignShard", "How", "ManifestInvalid",
    "NewerSchema", "NotCovered", "NothingVerified", "RanksLost", "Refused", "Resumed", "SaveFailed", "Saved",
    "ShardCountDiffers", "ShardManifest", "ShardMissing", "StateMismatch", "StateRefused", "Truncated",
    "Where", "WorldSizeChanged", "load_sharded", "save_sharded", "write_file",
]  # fmt: skip

_LATER = {
    "CheckpointManager": "manager", "How": "saving", "Resumed": "loading", "Saved": "saving", "Where": "loading",
    "load_sharded": "loading", "save_sharded": "saving", "write_file": "writer",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_LATER[name]}"), name)
