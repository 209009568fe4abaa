"""Loading: all ranks agree on the newest checkpoint that is whole everywhere, verify it, and only then read it.

Damage, seen by any rank, sends all of them to the next older one, and it is said what was skipped and why. What a
person has to decide (another number of ranks, a newer schema, another model) is raised; and where there are
checkpoints and none can be trusted, nothing is loaded and nothing starts from zero.
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from rankpulse.trainer.checkpoint import choosing, reader, writer
from rankpulse.trainer.checkpoint.candidate import Candidate
from rankpulse.trainer.checkpoint.errors import CheckpointError, Damaged, NothingVerified, Refused, StateMismatch
from rankpulse.trainer.checkpoint.files import Files
from rankpulse.trainer.checkpoint.groups import speaking
from rankpulse.trainer.checkpoint.manifest import MANIFEST, digest_of
from rankpulse.trainer.checkpoint.parts import listed
from rankpulse.trainer.checkpoint.state import Part, mapped
from rankpulse.trainer.checkpoint.together import Fault, Faults, Together, everywhere, on_first

TRIED_MAX: Final = 100  # checkpoints that go while they are loaded, until it is given up
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Resumed:
    """A checkpoint that was loaded. `skipped`: (step, reason) of newer ones that could not be trusted, and `damaged`
    their paths."""

    step: int
    path: str
    metrics: dict[str, float]
    kind: str
    bytes: int
    skipped: tuple[tuple[int, str], ...]
    load_s: float
    verify_s: float
    resharded_from: int = 0  # by how many ranks it was saved, 0: by as many as there are now
    damaged: tuple[str, ...] = ()
    resume_before_step: int | None = None  # the limit that was obeyed


def _nobody(event: str, **said: Any) -> object:
    return None


@dataclass(frozen=True)
class Where:
    """What a load may do and whom it tells: `say` people, `tell` the monitor (both on rank 0 only)."""

    allow_reshard: bool = False
    verify: str = reader.FULL  # "full", "fast"
    resume_before_step: int | None = None  # None: as RANKPULSE_RESUME_BEFORE_STEP says
    files: Files = field(default_factory=Files)
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    say: Callable[[str], None] = lambda text: None
    tell: Callable[..., object] = _nobody


def load_sharded(
    directory: str,
    state: Mapping[str, Any] | Sequence[Part],
    *,
    together: Together | None = None,
    where: Where | None = None,
) -> Resumed | None:
    """Load the newest checkpoint in `directory` that verifies on all ranks into `state`. Called by all ranks.

    state: as it was given to `save_sharded`; tensors are filled in place. together: of all ranks of torch.distributed
    when it is left out. None: there is no checkpoint. Raises
    NothingVerified, WorldSizeChanged, NewerSchema, StateMismatch and RanksLost, the same on all ranks.
    """
    parts = mapped(state) if isinstance(state, Mapping) else tuple(state)
    with speaking(together) as world:
        return Load(os.path.abspath(directory), parts, world, where or Where()).run()


class Load:
    """One load. Every method is called by all ranks, unless it says that it is rank 0's."""

    def __init__(self, directory: str, parts: Sequence[Part], together: Together, where: Where) -> None:
        self._directory, self._parts, self._together, self._where = directory, parts, together, where
        self._skipped: list[tuple[int, str]] = []
        self._damaged: list[str] = []
        self._limit: int | None = None

    def run(self) -> Resumed | None:
        began = time.monotonic()
        self._limit = self._lowest_limit()
        rows = self._candidates()
        if not rows:
            everywhere(self._together, self._none_here_either, as_it_was)
        tried = set()
        while rows:
            name, step, refused = rows.pop(0)
            tried.add(name)
            path = os.path.join(self._directory, name)
            try:
                return self._resumed(path, step, refused, began)
            except Damaged as damaged:
                gone = self._skip(path, step, str(damaged))
            if gone and len(tried) < TRIED_MAX:  # somebody saves there: there is a newer one
                rows = [row for row in self._candidates() if row[0] not in tried]
        if self._skipped:
            reasons = "".join(f"\n  step {step}: {reason}" for step, reason in self._skipped)
            raise NothingVerified(
                f"{self._directory}: none of {len(self._skipped)} checkpoints can be trusted, and nothing was loaded:"
                f"{reasons}\nTo start from zero all the same, move them away."
            )
        return None

    def _lowest_limit(self) -> int | None:
        """The lowest limit of all ranks: only checkpoints of earlier steps are loaded."""
        mine = everywhere(
            self._together, lambda: choosing.limit_of(self._where.resume_before_step, self._where.environ), as_it_was
        )
        limits = [limit for limit in self._together.gather(mine) if limit is not None]
        found = self._together.tell(min(limits, default=None))
        return None if found is None else int(found)

    def _candidates(self) -> list[Any]:
        """[name, step, why not] of what is there now, the newest first."""
        rows, remarks = on_first(self._together, self._listed, as_it_was)
        self._say(remarks)
        return list(rows)

    def _listed(self) -> list[Any]:
        """On rank 0: the candidates [name, step, why not], newest first, and what is to be said."""
        limit, listing = self._limit, reader.scan(self._directory)
        late = choosing.too_late(listing.committed, limit, self._where.environ) if limit is not None else ()
        rest = [found for found in listing.committed if found not in late]
        if limit is not None and not rest:  # and nothing is renamed: another limit may be meant
            raise NothingVerified(choosing.nothing_before(self._directory, limit))
        remarks = choosing.set_aside(self._where.files, late, limit or 0)
        for found in late:
            self._where.tell("refused", step=found.step, reason=f"set aside: to resume before step {limit}")
        remarks += choosing.saved_since(rest, limit)
        if not rest:
            remarks += choosing.none_here(self._directory, len(listing.partial), len(listing.aside))
        return [[[os.path.basename(found.path), found.step, _row(found.refused)] for found in rest], remarks]

    def _none_here_either(self) -> None:
        """A rank that sees checkpoints where rank 0 sees none looks at another directory: that is no fresh start."""
        if seen := reader.count(self._directory):
            raise NothingVerified(
                f"{self._directory} has {seen} checkpoints where rank {self._together.rank} runs and none where rank 0"
                f" does, and nothing was loaded. {writer.SHARED} Is it mounted everywhere?"
            )

    def _resumed(self, path: str, step: int, refused: Any, began: float) -> Resumed:
        """Load one candidate. Raises Damaged when the next older one is to be tried."""
        digest = self._digest(path, refused)
        together, where = self._together, self._where
        with Candidate(path, together.rank, together.world_size) as one:
            self._all(lambda: one.open(digest, self._parts, where.allow_reshard))
            verify_s = self._verified(one)
            self._all(one.read)
            self._all(one.finish)
        self._say(one.remarks)
        manifest = one.manifest
        size = sum(shard.bytes for shard in manifest.shards)
        changed = manifest.world_size if manifest.world_size != self._together.world_size else 0
        resumed = Resumed(
            step,
            path,
            manifest.metrics,
            manifest.kind,
            size,
            tuple(self._skipped),
            time.monotonic() - began,
            verify_s,
            changed,
            tuple(self._damaged),
            self._limit,
        )
        if self._together.rank == 0:
            self._where.tell(
                "loaded", step=step, bytes=size, load_s=resumed.load_s, verify_s=verify_s, level=self._where.verify,
                skipped=len(self._skipped), resharded_from=changed,
            )  # fmt: skip
        return resumed

    def _digest(self, path: str, refused: Any) -> str:
        """The digest of the manifest that every rank is to find at this path."""
        return str(on_first(self._together, lambda: _digest(path, refused), worst))

    def _verified(self, one: Candidate) -> float:
        """Seconds that it took until every needed byte was found to be what was saved."""
        began = time.monotonic()
        told = self._together.gather([sorted(one.shards), list(one.unused)])
        unused, shared, nobodys = self._together.tell(_shared(told, len(one.manifest.shards)) if told else None)
        if unused:
            raise StateMismatch(f"the checkpoint {one.path} has {listed(unused)}, and the program has not")
        self._verify(one, choosing.to_verify(one.shards, shared, nobodys, self._together))
        return time.monotonic() - began

    def _verify(self, one: Candidate, mine: Sequence[int]) -> None:
        """mine: the shards that this rank verifies."""
        self._all(lambda: one.verify(mine, self._where.verify))

    def _all(self, work: Callable[[], T]) -> T:
        return everywhere(self._together, work, worst)

    def _skip(self, path: str, step: int, reason: str) -> bool:
        """Whether it was no damage: rotation, or a person, has removed it meanwhile."""
        gone = on_first(self._together, lambda: not os.path.lexists(os.path.join(path, MANIFEST)), as_it_was)
        if gone:
            self._skipped.append((step, f"{path} was removed while it was loaded"))
            return True
        self._skipped.append((step, reason))
        self._damaged.append(path)
        self._say([f"checkpoint of step {step} is skipped: {reason}"])
        if self._together.rank == 0:
            self._where.tell("refused", step=step, reason=reason)
        return False

    def _say(self, texts: Sequence[str]) -> None:
        if self._together.rank == 0:
            for text in texts:
                self._where.say(text)


def _digest(path: str, refused: Any) -> str:
    """On rank 0: the digest of the manifest to be loaded, which every rank is to find as well."""
    if refused:
        raise why_not(path, refused)
    return digest_of(reader.manifest_bytes(path))


def why_not(path: str, refused: Any) -> Exception:
    """From what is told of a manifest that cannot be used."""
    return Fault(*refused).error() or Damaged(path, found=refused[2])


def _row(refused: Refused | None) -> Any:
    return Fault.of(0, refused).row if refused is not None else None


def as_it_was(faults: Faults) -> Exception:
    """The first fault as it was met."""
    return faults[0].error() or CheckpointError(str(faults[0]))


def worst(faults: Faults) -> Exception:
    """What no walk back may hide comes first; then damage."""
    met = [(fault, fault.error()) for fault in faults]
    for fault, error in met:
        if not isinstance(error, Damaged):
            return error if error is not None else StateMismatch(f"the checkpoint could not be loaded: {fault}")
    fault, error = met[0]
    return error if error is not None and len(met) == len(faults) else Damaged(str(fault))


def _shared(told: Sequence[Any], shards: int) -> list[Any]:
    """From (shards, unused names) of all ranks: names nobody uses, shards that all read, shards that nobody reads."""
    needs = [set(needed) for needed, _ in told]
    unused = set.intersection(*(set(names) for _, names in told))
    return [sorted(unused), sorted(set.intersection(*needs)), sorted(set(range(shards)) - set.union(*needs))]
