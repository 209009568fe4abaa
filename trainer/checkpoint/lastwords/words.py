"""What is asked and answered over last words, and what ranks tell each other in files: values, and JSON of them.

Every `understood` is total: what is not understood raises `Unfit`.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from rankpulse.trainer.checkpoint import strictjson as strict
from rankpulse.trainer.checkpoint.manifest import MAX_WORLD, Shard
from rankpulse.trainer.checkpoint.rows import row_of, shard_of
from rankpulse.trainer.checkpoint.strictjson import Unfit

VERSION: Final = 1
QUESTION_MAX: Final = 4096  # bytes
REASON_MAX: Final = 600  # characters
SAVED: Final = "saved"
REFUSED: Final = "refused"
_SECONDS_MAX: Final = 3600.0


@dataclass(frozen=True, slots=True)
class Question:
    """Write last words of this life, if you can. absent: ranks that are not to be waited for; torn: those of them that
    were in the middle of an update; within_s: how long whoever asks waits."""

    run_uid: str = ""
    round: int = -1
    absent: tuple[int, ...] = ()
    torn: tuple[int, ...] = ()
    within_s: float = _SECONDS_MAX

    @classmethod
    def understood(cls, data: bytes) -> "Question":
        if len(data) > QUESTION_MAX:
            raise Unfit(f"at most {QUESTION_MAX} bytes", len(data))
        said = _versioned(data, "a question")
        within_s = strict.number(said.get("within_s"), "within_s")
        if not 0 < within_s <= _SECONDS_MAX:
            raise Unfit(f"within_s above 0, up to {_SECONDS_MAX:g}", within_s)
        return cls(
            strict.text(said.get("run_uid", ""), "run_uid"),
            strict.integer(said.get("round", -1), "round", -1),
            _ranks(said.get("absent", []), "absent"),
            _ranks(said.get("torn", []), "torn"),
            within_s,
        )


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of it. `step`: of the checkpoint, or the highest one that was spoken of; -1: none. `path`: "" unless
    it was saved. `absent`: whose files survivors wrote."""

    outcome: str
    step: int = -1
    reason: str = ""
    path: str = ""
    took_s: float = 0.0
    absent: tuple[int, ...] = ()

    @property
    def saved(self) -> bool:
        return self.outcome == SAVED

    def encoded(self) -> str:
        return _json({"v": VERSION, **asdict(self), "reason": self.reason[:REASON_MAX]})


@dataclass(frozen=True, slots=True)
class Announcement:
    """A rank stands here. `clean`: it holds exactly the state at the end of `step`; else it is on the way to the next,
    or (`unable`, with the reason) cannot say. The rest, digests of what it holds, is told where it is clean."""

    rank: int
    step: int
    clean: bool
    unable: str = ""
    layout: str = ""
    compared: Mapping[str, str] = field(default_factory=dict)
    buffers: str = ""
    samples: str = ""
    values: str = ""

    @property
    def mark(self) -> int:
        """Grows with everything that this rank does."""
        return 2 * self.step + (0 if self.clean or self.unable else 1)

    def encoded(self) -> bytes:
        return _json({"v": VERSION, **asdict(self)}).encode()

    @classmethod
    def understood(cls, data: bytes) -> "Announcement":
        said = _versioned(data, "an announcement")
        compared = strict.members(said.get("compared"), "compared")
        return cls(
            _rank(said.get("rank"), "rank"),
            strict.integer(said.get("step"), "step", -1),
            strict.truth(said.get("clean"), "clean"),
            strict.text(said.get("unable"), "unable"),
            strict.text(said.get("layout"), "layout"),
            {name: strict.text(value, "a digest") for name, value in compared.items()},
            *(strict.text(said.get(name), name) for name in ("buffers", "samples", "values")),
        )


@dataclass(frozen=True, slots=True)
class Plan:
    """What one rank decided for all, once. `top`: the highest step that anybody had come to. `writers`: the ranks whose
    files make the checkpoint, the lowest of them commits it; `absent`: all others.

    own: parts of which each rank keeps its own. first_only: plain tensors are taken from the lowest writer alone, for
    ranks have drifted apart. told: the writers tell their values, for they differ."""

    may: bool
    top: int
    reason: str = ""
    step: int = -1
    save_id: str = ""
    writers: tuple[int, ...] = ()
    absent: tuple[int, ...] = ()
    own: tuple[str, ...] = ()
    buffers_differ: bool = False
    first_only: bool = False
    told: bool = False

    def encoded(self) -> bytes:
        return _json({"v": VERSION, **asdict(self), "reason": self.reason[:REASON_MAX]}).encode()

    @classmethod
    def understood(cls, data: bytes) -> "Plan":
        said = _versioned(data, "a plan")
        return cls(
            strict.truth(said.get("may"), "may"),
            strict.integer(said.get("top"), "top", -1),
            strict.text(said.get("reason"), "reason"),
            strict.integer(said.get("step"), "step", -1),
            strict.text(said.get("save_id"), "save_id"),
            _ranks(said.get("writers"), "writers"),
            _ranks(said.get("absent"), "absent"),
            tuple(strict.text(name, "a part") for name in strict.items(said.get("own"), "own")),
            *(strict.truth(said.get(name), name) for name in ("buffers_differ", "first_only", "told")),
        )


@dataclass(frozen=True, slots=True)
class Row:
    """A writer's part is on the disk (`shards`: its own file and those that it wrote for absent ranks), or is not:
    `failed`. values: what it holds beside tensors, where the plan asks for that."""

    rank: int
    shards: tuple[Shard, ...] = ()
    values: Any = None
    failed: str = ""

    def encoded(self) -> bytes:
        rows = [row_of(shard) for shard in self.shards]
        return _json(
            {"v": VERSION, "rank": self.rank, "shards": rows, "values": self.values, "failed": self.failed[:REASON_MAX]}
        ).encode()

    @classmethod
    def understood(cls, data: bytes) -> "Row":
        said = _versioned(data, "a row")
        try:
            shards = tuple(shard_of(row) for row in strict.items(said.get("shards"), "shards"))
        except (TypeError, ValueError, KeyError) as error:
            raise Unfit("rows of shards", str(error)) from None
        failed = strict.text(said.get("failed"), "failed")
        return cls(_rank(said.get("rank"), "rank"), shards, said.get("values"), failed)


def _versioned(data: bytes, what: str) -> dict[str, Any]:
    said = strict.members(strict.parsed(data), what)
    strict.integer(said.get("v"), f"the version of {what}", VERSION, VERSION)
    return said


def _rank(value: Any, what: str) -> int:
    return strict.integer(value, what, 0, MAX_WORLD - 1)


def _ranks(value: Any, what: str) -> tuple[int, ...]:
    """Ascending, each once."""
    return tuple(sorted({_rank(one, f"a rank of {what}") for one in strict.items(value, what)}))


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))
