"""What a swarm is asked to do: its size, and what happens to it when. Pure."""

from itertools import pairwise
from random import Random
from typing import Final

import msgspec

DEATH, PAUSE, HANG, SLOW, FLOOD, NEXT_SCHEMA = "death", "pause", "hang", "slow", "flood", "next_schema"
KINDS: Final = {
    DEATH: "a machine is gone: no beats, nothing at its port, and its peers stand still until their next round",
    PAUSE: "a machine stands still for `lasts_s`: its kernel takes connections, nobody answers",
    HANG: "a rank of it hangs for `lasts_s`, and its peers wait in the next step",
    SLOW: "the job of it takes twice as long for a step, for `lasts_s`",
    FLOOD: "`rate` records a second for `lasts_s` that cannot be read",
    NEXT_SCHEMA: "`rate` records a second for `lasts_s` of a schema that nobody knows yet",
}
NODES_MAX: Final = 8192  # each has a port of its own


class BadPlan(ValueError):
    """What cannot be done; the text says why."""


class Injection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One thing that is done, `at` seconds after the last node began to speak. `node` "": one that is well, by lot."""

    at: float
    kind: str
    node: str = ""
    lasts_s: float = 10.0
    rate: float = 100.0


class Options(msgspec.Struct, frozen=True, kw_only=True):
    nodes: int
    gpus: int = 8
    runs: int = 8
    interval_s: float = 1.0
    for_s: float = 900.0
    kill: int = 20
    seed: int = 1
    stands_s: float = 60.0  # peers of a dead node, until their backend gives up
    connections: int = 8
    preset: str = "default"
    warm_s: float = 30.0  # before the first death: every node is known and its job trains
    seen_s: float = 45.0  # after the last: it is to be found
    early: bool = False  # over as soon as all that was planned is done and found

    def check(self) -> None:
        """Raises `BadPlan`."""
        if not 1 <= self.nodes <= NODES_MAX:
            raise BadPlan(f"--nodes must be between 1 and {NODES_MAX:,}, not {self.nodes:,}")
        if not 1 <= self.runs <= self.nodes:
            raise BadPlan(f"--runs must be between 1 and the number of nodes ({self.nodes:,}), not {self.runs:,}")
        if self.kill > self.nodes // 2:
            raise BadPlan(f"--kill must be at most half of the nodes, not {self.kill}")
        if self.kill and self.for_s < self.least_s:
            raise BadPlan(f"--for must be at least {self.least_s:g} s with --kill: what is dead takes time to be found")

    @property
    def least_s(self) -> float:
        return self.warm_s + self.seen_s


def deaths(options: Options, rng: Random) -> list[Injection]:
    """Deaths by lot between the beginning and the time that the last needs to be found."""
    times = sorted(rng.uniform(options.warm_s, options.for_s - options.seen_s) for _ in range(options.kill))
    return [Injection(at=at, kind=DEATH) for at in times]


def read(data: bytes) -> list[Injection]:
    """The injections in a JSON file: a list of objects. Raises `BadPlan`."""
    try:
        found = msgspec.json.decode(data, type=list[Injection])
    except msgspec.DecodeError as error:
        raise BadPlan(f"--inject: {error}; each must be like {{'at': 60, 'kind': 'pause', 'lasts_s': 10}}") from error
    for one in found:
        if one.kind not in KINDS:
            raise BadPlan(f"--inject: unknown kind {one.kind!r}, choose one of {', '.join(KINDS)}")
    return found


def names(options: Options) -> list[str]:
    return [f"n{number:05d}" for number in range(options.nodes)]


def shared(options: Options) -> list[list[str]]:
    """The nodes of each run, in order and as even as can be."""
    every, count = names(options), options.runs
    edges = [len(every) * nth // count for nth in range(count + 1)]
    return [every[low:high] for low, high in pairwise(edges)]
