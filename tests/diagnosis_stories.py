"""Stories of a diagnosis: snapshots, each with what has to be said of it, kept by a module and checked all alike."""

from collections.abc import Callable
from typing import NamedTuple

import msgspec
from diagnosis_world import Json

from rankpulse.core.diagnosing import diagnose
from rankpulse.core.snapshot_codec import decode
from rankpulse.core.verdict import Verdict


def told(snap: Json) -> Verdict:
    return diagnose(decode(msgspec.json.encode(snap)))


class Story(NamedTuple):
    """`ranks` and `nodes`: the culprits, all of them."""

    make: Callable[[], Json]
    klass: str
    ranks: tuple[int, ...]
    nodes: tuple[str, ...]
    action: str

    @property
    def name(self) -> str:
        return self.make.__name__

    def is_understood(self) -> None:
        found = told(self.make())
        said = (found.klass, found.culprits.ranks, found.culprits.nodes)
        assert said == (self.klass, self.ranks, self.nodes), found.summary
        assert found.action == self.action
        assert found.unread == ()


class Stories:
    """`@story(klass, ...)` above a function that makes a snapshot keeps it."""

    def __init__(self) -> None:
        self.kept: list[Story] = []

    def __call__(
        self, klass: str, ranks: tuple[int, ...] = (), nodes: tuple[str, ...] = (), action: str = ""
    ) -> Callable[[Callable[[], Json]], Callable[[], Json]]:
        def keep(make: Callable[[], Json]) -> Callable[[], Json]:
            self.kept.append(Story(make, klass, ranks, nodes, action))
            return make

        return keep
