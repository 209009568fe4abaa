"""The words of the rendezvous: who asks, how long to wait, what to write, what to answer."""

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from rankpulse.core import records as r


class Timing(NamedTuple):
    """How long to wait for what, in seconds. `last_call_s` comes with each joiner."""

    gate_s: float = 2.0  # for the policy's word on a round that could form
    straggler_s: float = 90.0  # for members of the last round that live and are still stopping their workers
    absent_s: float = 5.0  # a node whose presence is gone for so long is not waited for
    turn_s: float = 1.0  # the first in line forms the round; each of the others steps in so much later
    lost_s: float = 60.0  # all members of a round absent for so long: spares may go on without them


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
    run_uid: str = ""  # the run it was in a round of
    after: int = 0  # the last round it was in; with `run_uid` it is bound to that run, else it goes where the label is
    last_call_s: float = 30.0
    timeout_s: float = 600.0  # it gives up after this without a round; a spare waits for ever
    checking: bool = False  # its node is being looked at before it may be in a round
    refused: str = ""  # why its node may be in none at present, "" while it may

    @property
    def held(self) -> str:
        """Why no round may include it yet, "" when one may."""
        return self.refused or ("this node is looked at before it joins" if self.checking else "")


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
    resume_before_step: int = -1  # a limit for what the workers resume from, -1: none
    resume_before_round: int = 0  # the round in which it was asked for

    def told(self) -> dict[str, str | int]:
        """As torchrun is told: no word of a limit where there is none, which an older one would not understand."""
        everything = self._asdict()
        if self.resume_before_step < 0:
            del everything["resume_before_step"], everything["resume_before_round"]
        return everything


def met_of(meeting: r.Meeting, place: r.Place) -> Met:
    """What the torchrun at `place`, which is in the meeting, is told."""
    return Met(
        meeting.run_uid,
        meeting.round,
        meeting.places.index(place),
        len(meeting.places),
        meeting.address,
        meeting.port,
        meeting.resume_before_step,
        meeting.resume_before_round,
    )


class Refused(NamedTuple):
    """No round for this torchrun. `kind`: closed | finished | cordoned | mismatch | timeout | corrupt."""

    kind: str
    reason: str


class Waiting(NamedTuple):
    """Not yet, and why: for people. The same words as long as nothing changes."""

    reason: str


Answer: TypeAlias = Met | Refused | Waiting


class Step(NamedTuple):
    """What to do now. `txn` first: with one, `answer` stands only once it is done; did a guard fail or is the outcome
    unknown, then read and decide again. `wake_at`: look again then even if nothing changes."""

    answer: Answer
    txn: Txn | None = None
    wake_at: float | None = None


class Again(NamedTuple):
    """The members of an established round have to meet again."""

    round: int
    waiting: int  # how many torchruns wait for the next round; at least 1
    reason: str
