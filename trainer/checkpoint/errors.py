"""What can go wrong with a checkpoint. Every text names the file, what was expected, what was found, what to do."""


class CheckpointError(Exception):
    """Base of all that the checkpoint path raises on purpose."""


class StateRefused(CheckpointError):
    """This state cannot be saved as it is: a mistake in the program, said before anything is written."""


class SaveFailed(CheckpointError):
    """A save did not become a checkpoint. The ones before it are untouched."""


class NothingVerified(CheckpointError):
    """There are checkpoints and none can be trusted. Never taken for a fresh start."""


class RanksLost(CheckpointError):
    """Another rank cannot be reached any more. It has died, and this one cannot know what became of the checkpoint."""


class StateMismatch(CheckpointError):
    """The checkpoint is sound but is not of this model: names, shapes or types differ."""


class Refused(CheckpointError):
    """A checkpoint that must not be loaded as it is. `what` went wrong with `path`, `expected` and `found`."""

    what = "cannot be used"

    def __init__(self, path: str, expected: object = "", found: object = "", advice: str = "") -> None:
        self.path, self.expected, self.found, self.advice = path, str(expected), str(found), advice
        text = f"{path}: {self.what}"
        if self.expected or self.found:
            text += f": expected {self.expected}, found {self.found}"
        super().__init__(f"{text}. {advice}" if advice else text)


class Damaged(Refused):
    """The bytes are not those that were saved: an older checkpoint may be tried instead."""

    what = "is damaged"


class ManifestInvalid(Damaged):
    what = "is not a manifest"


class ShardMissing(Damaged):
    what = "is missing"


class ShardCountDiffers(Damaged):
    what = "lists another number of shards than its world size asks for"


class Truncated(Damaged):
    what = "has the wrong size (a partial write?)"


class ChecksumDiffers(Damaged):
    what = "does not have the checksum it was saved with"


class ForeignShard(Damaged):
    """A shard of another step, save, rank or world than its manifest says."""

    what = "belongs to another save"


class NotCovered(Damaged):
    what = "does not cover the state"


class WorldSizeChanged(Refused):
    """Sound, but saved by another number of ranks: not walked back from, a person decides."""

    what = "was saved by another number of ranks"


class NewerSchema(Refused):
    """Written by a newer version of rankpulse: not walked back from, a person decides."""

    what = "has a newer schema than this version reads"
