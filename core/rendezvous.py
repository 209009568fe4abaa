"""The rendezvous as a pure state machine: what an agent sees of a run, and what should happen next.

Every torchrun keeps one `Joiner` record through its agent. Whoever sees enough of them waiting creates the `Meeting`
of the next round; the store takes the first and refuses all others, so no round has two rosters. Everything else
(rank, address, who must meet again, who has to stay out) is derived from these records.
"""

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from rankpulse.core import records as r
from rankpulse.core.keys import Keys


class Timing(NamedTuple):
    """How long to wait for what, in seconds. `last_call_s` comes with each joiner."""

    gate_s: float = 2.0  # for the policy's word on a round that could form
    straggler_s: float = 90.0  # for members of the last round that live and are still stopping their workers
    absent_s: float = 5.0  # a node whose presence is gone for so long is not waited for
    turn_s: float = 1.0  # the first in line forms the round; each of the others steps in so much later


@dataclass(frozen=True)
class Me:
    """One local torchrun that asks for its next round. Times are the agent's monotonic seconds."""

    node: str
    launcher: str  # "pid.start"
    owner: int  # uid
    label: str
    min_nodes: int
    max_nodes: int
    join: int  # from 1
    address: str
    port: int
    asked_at: float
    run_uid: str = ""  # the run it is in, once known
    after: int = 0  # the last round it was in
    last_call_s: float = 30.0
    timeout_s: float = 600.0  # it gives up after this without a round; a spare waits for ever


class Txn(NamedTuple):
    """All writes if every guard (key, revision it was last modified at, 0: absent) holds, else none."""

    guards: tuple[tuple[str, int], ...]
    puts: tuple[tuple[str, r.Record], ...]
    deletes: tuple[str, ...] = ()
    why: str = ""


class Met(NamedTuple):
    """The round is complete: start the workers."""

    run_uid: str
    round: int
    rank: int  # of the node, in the group
    nodes: int
    address: str
    port: int


class Refused(NamedTuple):
    """No round for this torchrun. `kind`: closed | finished | cordoned | mismatch | timeout | corrupt."""

    kind: str
    reason: str


class Waiting(NamedTuple):
    """Not yet, and why: for people."""

    reason: str


Answer: TypeAlias = Met | Refused | Waiting


class Step(NamedTuple):
    """What to do now. `txn` first; `wake_at`: look again then even if nothing changes."""

    answer: Answer
    txn: Txn | None = None
    wake_at: float | None = None


class Again(NamedTuple):
    """The members of an established round have to meet again."""

    round: int
    waiting: int  # how many torchruns wait for the next round; at least 1
    reason: str


class View:
    """What one agent has seen of `rdzv/`, `gates/`, `cordons/` and restart orders. Folding is idempotent."""

    def __init__(self, keys: Keys) -> None:
        raise NotImplementedError

    def put(self, key: str, record: r.Record, modified: int, now: float) -> None:
        """A record was seen under its key, last modified at this revision."""
        raise NotImplementedError

    def garbled(self, key: str, reason: str, modified: int) -> None:
        """What lies under this key cannot be read: refused, never executed, and not overwritten silently."""
        raise NotImplementedError

    def gone(self, key: str, now: float) -> None:
        raise NotImplementedError

    def relisted(self, keys: frozenset[str], now: float) -> None:
        """These keys, put again after this call, are all there are."""
        raise NotImplementedError


def label_name(label: str, owner: int) -> str:
    """The key name of a user's label: readable, unique per label and owner."""
    raise NotImplementedError


def decide(view: View, me: Me, now: float, at: float, timing: Timing, new_uid: str) -> Step:
    """The next step for a torchrun that waits. `new_uid`: the run_uid to use should it found a launch. `at`: UTC."""
    raise NotImplementedError


def again(view: View, run_uid: str, round_: int) -> Again | None:
    """Whether the members of this round have to meet again: ordered, or a member waits for the next or is gone."""
    raise NotImplementedError


def leave(view: View, run_uid: str, node: str, launcher: str, outcome: str, reason: str, at: float) -> Txn | None:
    """What to write when a torchrun takes no part any more; None when there is nothing to write.

    `outcome`: finished | failed | gone (died, or was asked to end). A member of the current round that finished or
    failed closes the launch for everybody; a spare, a late node or one that is merely gone closes nothing, unless it
    was the last that took part.
    """
    raise NotImplementedError


def sweep(view: View, node: str, living: frozenset[str], at: float) -> list[Txn]:
    """At the start of an agent, and now and then: joiners of this node whose launcher is not `living` are gone, and
    keys that no round needs any more (old meetings, all of a closed run that everybody left) are deleted."""
    raise NotImplementedError
