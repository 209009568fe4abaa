"""Ranks of one life that speak their last words, all in this process, on a real directory and a clock of the test's.

What a rank holds at the end of a step is a function of the step: so every byte of a checkpoint tells of which it is.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import ckpt_store
import torch

from rankpulse.trainer.checkpoint import reader, rng
from rankpulse.trainer.checkpoint.coverage import key_of
from rankpulse.trainer.checkpoint.division import Item
from rankpulse.trainer.checkpoint.files import Files
from rankpulse.trainer.checkpoint.flat import Flat
from rankpulse.trainer.checkpoint.lastwords import layouts as agreeing
from rankpulse.trainer.checkpoint.lastwords.gate import Gate
from rankpulse.trainer.checkpoint.lastwords.layouts import Layouts
from rankpulse.trainer.checkpoint.lastwords.meeting import Meeting
from rankpulse.trainer.checkpoint.lastwords.moment import Moment
from rankpulse.trainer.checkpoint.lastwords.participant import Participant, Who
from rankpulse.trainer.checkpoint.lastwords.words import Answer
from rankpulse.trainer.checkpoint.manifest import Box, ShardManifest
from rankpulse.trainer.checkpoint.state import Captured, Held

LIFE = "0123abcd"
WITHIN_S = 8.0


def number(name: str, step: int) -> float:
    """What every element of a tensor is at the end of a step."""
    return 1000.0 * step + sum(map(ord, name)) % 1000


def state_of(items: Iterable[Item], step: int, *, own: object = None) -> Captured:
    """own: of a part that ranks may differ in."""
    held = {}
    for item in items:
        sizes = item.box.sizes if item.box else item.shape
        tensor = torch.full(sizes, number(item.name, step))
        held[item.name] = Held(item, tensor, tensor)
    values = {"model": {"state": {name: {"$": "leaf", "v": name} for name in held}}, "extra.own": {"value": own}}
    compared = {"extra.own": json.dumps(own)}
    samples = {name: str(number(name, step)) for name, has in held.items() if has.item.box is None}
    generators = {"python": [step], "torch": {"$": "leaf", "v": "rng.torch"}}
    return Captured(
        values, {"model": held, "extra.own": {}}, frozenset(), frozenset(held), compared, "", samples,
        generators, {"rng.torch": torch.arange(8, dtype=torch.uint8)},
    )  # fmt: skip


@dataclass
class Kept:
    """In the place of a `Keeper`."""

    items: Sequence[Item]
    own: object = None
    trouble: str = ""

    def captured(self, moment: Moment) -> Captured:
        return state_of(self.items, moment.step, own=self.own)


@dataclass
class Rank:
    who: Who
    gate: Gate

    def done(self, step: int) -> None:
        self.gate.passed(step, Moment(step, {"loss": 1.0}, generators=rng.captured()))


@dataclass
class World:
    """held: what each rank holds. own: of each rank, what it alone has."""

    root: Path
    held: Sequence[Sequence[Item]]
    own: Sequence[object] = ()
    files: dict[int, Files] = field(default_factory=dict)
    now: float = 0.0

    def __post_init__(self) -> None:
        self.directory = str(self.root)
        self.own = self.own or [None] * len(self.held)
        self.layouts = layouts_of(self.held, self.own)
        Meeting(ckpt_store.Quick(), self.directory, LIFE, 0).found()
        self.ranks = [self._rank(rank) for rank in range(len(self.held))]
        for rank in self.ranks:
            rank.done(5)

    def _rank(self, rank: int) -> Rank:
        gate = Gate(clock=lambda: self.now)
        meeting = Meeting(self.files.get(rank) or ckpt_store.Quick(), self.directory, LIFE, rank)
        kept = Kept(self.held[rank], self.own[rank])
        return Rank(Who(rank, self.layouts, kept, gate, meeting, {"run_uid": "u1", "run_id": "job", "round": 3}), gate)  # type: ignore[arg-type]

    def asked(self, rank: int, absent: Sequence[int] = (), torn: Sequence[int] = ()) -> Participant:
        found = Participant(self.ranks[rank].who, self.now, self.now + WITHIN_S)
        found.learn({other: other in torn for other in (*absent, *torn)})
        return found

    def talk(self, going: dict[int, Participant], answers: dict[int, Answer], tick_s: float = 0.1) -> dict[int, Answer]:
        """Each in turn, in the order given, until all have answered; a round takes a tick."""
        while going.keys() - answers.keys():
            for rank, one in going.items():
                if rank not in answers and (answer := one.advance(self.now)) is not None:
                    answers[rank] = answer
                    one.close()
            self.now += tick_s
        return answers

    def newest(self) -> tuple[str, ShardManifest] | None:
        return ckpt_store.newest_sound(self.directory)

    def settled(self, ranks: Iterable[int], absent: Sequence[int] = (), torn: Sequence[int] = ()) -> dict[int, Answer]:
        return self.talk({rank: self.asked(rank, absent, torn) for rank in ranks}, {})


def layouts_of(held: Sequence[Sequence[Item]], own: Sequence[object] | None = None) -> Layouts:
    states = [state_of(items, 0, own=own[rank] if own else None) for rank, items in enumerate(held)]
    marks = tuple(map(agreeing.mark_of, states))
    texts = {mark: agreeing.packed(state) for mark, state in zip(marks, states, strict=True)}
    differ = ("extra.own",) if len({json.dumps(one) for one in own or ()}) > 1 else ()
    return Layouts(LIFE, marks, texts, tuple(f"generators of {rank}" for rank in range(len(held))), differ)


def replicas(world: int) -> list[list[Item]]:
    return [[Item("w", "F32", (7, 3)), Item("b", "F32", (5,))] for _ in range(world)]


def halves(world: int) -> list[list[Item]]:
    """Even ranks hold the upper half of x, odd ones the lower half: DP x TP 2."""
    return [[Item("x", "F32", (4, 3), Box("x", (2 * (rank % 2), 0), (2, 3)))] for rank in range(world)]


def assert_of_step(path: str, manifest: ShardManifest) -> None:
    """Every element is what it was at the end of the manifest's step."""
    specs = {tensor.name: tensor for tensor in manifest.tensors}
    for shard in manifest.shards:
        with reader.ShardFile(path, manifest, shard) as file:
            for part in (*Flat(manifest.tensors).pieces(shard.ranges), *shard.boxes):
                found = torch.frombuffer(bytearray(file.read(key_of(part, specs[part.name]))), dtype=torch.float32)
                assert (found == number(part.name, manifest.step)).all(), (path, part)
