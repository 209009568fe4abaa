"""What goes wrong in a trial: drawn evenly over ranks and over the calls of the middle of the training."""

from collections.abc import Sequence
from random import Random
from typing import Final

from rankpulse.bench.hang.layout import Layout
from rankpulse.bench.hang.machine import Fault
from rankpulse.bench.hang.program import COLLECTIVE, P2P, Call, Program

HOST: Final = "host"  # the rank stops calling
GPU: Final = "gpu"  # its device stops, the host runs ahead as far as it may
LINK: Final = "link"  # nothing passes between two ranks any more
SKIP: Final = "skip"  # the rank leaves out one call
MISMATCH: Final = "mismatch"  # the rank calls something else
KINDS: Final = (HOST, GPU, LINK, SKIP, MISMATCH)


def draw(
    kind: str, layout: Layout, programs: Sequence[Program], random: Random, among: Sequence[int] | None = None
) -> Fault:
    """A fault in the second third of the program of a random rank of all, or of those."""
    rank = random.choice(among) if among else random.randrange(layout.size)
    program = programs[layout.stage(rank)]
    at = random.randrange(len(program) // 3, 2 * len(program) // 3)
    if kind == LINK:
        return Fault(kind, rank, at, other=_neighbour(layout, rank, random))
    if kind in (HOST, GPU):
        return Fault(kind, rank, at)
    while program[at].what not in (COLLECTIVE, P2P) or program[at].kind not in layout.of[rank]:
        at += 1
    if kind == SKIP:
        return _skip(rank, at, program[at], random)
    return Fault(MISMATCH, rank, at, call=_other(program[at], layout.of[rank], random))


def _skip(rank: int, at: int, call: Call, random: Random) -> Fault:
    """Of a batch of sends and receives, one of them or all."""
    if len(call.legs) > 1 and random.random() < 0.5:
        kept = call.legs[random.randrange(2)]
        return Fault(MISMATCH, rank, at, call=call._replace(legs=(kept,)))
    return Fault(SKIP, rank, at)


def _other(call: Call, groups: dict[str, str], random: Random) -> Call:
    """The same call with another size, type, operation or group."""
    if call.what == P2P:
        return call._replace(size=call.size + 64) if random.random() < 0.5 else call._replace(dtype="float16")
    how = random.randrange(4)
    if how == 0:
        return call._replace(size=call.size + 1)
    if how == 1:
        return call._replace(dtype="float16")
    if how == 2:
        return call._replace(
            op=random.choice([op for op in ("all_reduce", "broadcast", "all_gather") if op != call.op])
        )
    return call._replace(kind=random.choice([kind for kind in sorted(groups) if kind not in (call.kind, "pp")]))


def _neighbour(layout: Layout, rank: int, random: Random) -> int:
    """Another rank that this one exchanges data with directly, in one of its groups."""
    name = random.choice([name for kind, name in sorted(layout.of[rank].items()) if kind != "embedding"])
    members = layout.groups[name]
    place = members.index(rank)
    sides = (1,) if place == 0 else (-1,) if place == len(members) - 1 else (1, -1)
    return members[place + random.choice(sides)]
