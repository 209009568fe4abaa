"""What goes into the engine (events) and what comes out of it (actions). Plain values, no behaviour.

`received_at` and `now` are seconds on the monitor's own monotonic clock; `at` is UTC seconds, for people.
"""

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from rankpulse.core.records import Beat, Outgoing, Record

if TYPE_CHECKING:  # what is believed of nodes rests on these events, and a verdict names those
    from rankpulse.core.dossier import Part
    from rankpulse.core.snapshot import Snapshot
    from rankpulse.core.verdict import Verdict


class Seen(NamedTuple):
    """A record was written at `key`."""

    key: str
    record: Record
    revision: int
    received_at: float


class Gone(NamedTuple):
    """`key` was deleted."""

    key: str
    revision: int
    received_at: float


class Garbled(NamedTuple):
    """The bytes at `key` were refused, for this reason."""

    key: str
    reason: str
    revision: int
    received_at: float


class Relisted(NamedTuple):
    """A whole listing begins: what was known of the store's content is replaced by the `Seen` events that follow.

    They come in order of their revision, so that the past is told in the order in which it happened.
    """

    revision: int
    received_at: float


class SightLost(NamedTuple):
    """The store cannot be seen: nothing may be concluded from silence."""

    reason: str
    received_at: float


class SightBack(NamedTuple):
    """The store is seen again: every deadline starts anew."""

    received_at: float


class CanarySeen(NamedTuple):
    """The monitor's own key, written by itself, came back through the watch."""

    received_at: float


class TookOffice(NamedTuple):
    """This monitor leads from now on, under `epoch`."""

    epoch: int
    received_at: float


class LeftOffice(NamedTuple):
    """This monitor no longer leads: it folds, and decides nothing."""

    reason: str
    received_at: float


# what a direct look at an agent can come to; each is another fact
ANSWERED = "answered"  # the agent itself spoke: it and its machine live
ACCEPTED = "accepted"  # the machine took the connection, the agent said nothing in time: the machine lives
REFUSED = "refused"  # the machine said that nobody listens there: it lives, its agent does not
SILENT = "silent"  # nothing came back: the machine or the way to it is gone
UNABLE = "unable"  # the look could not be taken, or came to nothing that can be trusted: no fact at all


class Probed(NamedTuple):
    """What came of a direct look at an agent, past the store."""

    node: str
    number: int  # of the `Probe` that asked for it
    answer: str  # answered | accepted | refused | silent | unable
    beat: Beat | None  # what the agent said of itself and its ranks, of `answered`
    detail: str  # in words, for people
    received_at: float


# what an attempt to deliver an event to a webhook can come to
TAKEN = "taken"  # the target said that it has it
FAILED = "failed"  # it did not, or nobody knows: try again
GONE = "gone"  # the target wants no more of these, for good
UNSENT = "unsent"  # nothing was sent: this monitor does not lead any more


class Posted(NamedTuple):
    """What came of an attempt to deliver an event."""

    event: str
    target: str
    number: int  # of the `Post` that asked for it
    outcome: str  # taken | failed | gone | unsent
    detail: str  # in words, for people
    pause_s: float  # the target asked to be left alone for so long, 0: it did not
    received_at: float


class Told(NamedTuple):
    """What a node answered to a question for evidence."""

    node: str
    order_id: str  # of the `Ask`
    part: "Part | None"  # None: nothing that can be used
    detail: str  # why there is none, in words
    received_at: float


class Diagnosed(NamedTuple):
    """What came of diagnosing a snapshot."""

    number: int  # of the `Diagnose` that asked for it
    verdict: "Verdict | None"
    detail: str  # why there is none, in words
    received_at: float


Event: TypeAlias = (
    Seen
    | Gone
    | Garbled
    | Relisted
    | SightLost
    | SightBack
    | CanarySeen
    | TookOffice
    | LeftOffice
    | Probed
    | Posted
    | Told
    | Diagnosed
)


class Write(NamedTuple):
    """Put `record` at `key`, if we still lead."""

    key: str
    record: Record
    reason: str


class Create(NamedTuple):
    """Put `record` at `key` if we still lead and the key does not exist. At most one of these ever succeeds per key."""

    key: str
    record: Record
    reason: str


class Erase(NamedTuple):
    """Delete `key`, whose content has been folded into records written before, if we still lead."""

    key: str
    reason: str


class Say(NamedTuple):
    """One line for the log; said once, on change. `level`: info | warning | error."""

    level: str
    text: str


class Probe(NamedTuple):
    """Look at this agent directly, past the store. Disturbs nothing; what comes of it is told as `Probed`."""

    node: str
    address: str  # as the agent's state tells it, "" when it tells none
    boot_id: str  # of the agent's machine: a loopback address means something on that one only
    number: int


class Post(NamedTuple):
    """Tell a webhook of this event, which stands in the store. What comes of it is told as `Posted`, once."""

    outgoing: Outgoing
    number: int  # of the attempt, from 1


class Ask(NamedTuple):
    """Ask this agent directly what its ranks are doing. Disturbs nobody; what comes of it is told as `Told`, once."""

    node: str
    address: str
    boot_id: str  # of the agent's machine
    order_id: str  # an agent collects once per order, whoever asks
    run_uid: str
    round: int


class Diagnose(NamedTuple):
    """Diagnose a snapshot that is too large to be thought about between two beats. Told as `Diagnosed`, once."""

    number: int
    snapshot: "Snapshot"


Action: TypeAlias = Write | Create | Erase | Say | Probe | Post | Ask | Diagnose
"""Done in order. When one fails the rest of the batch is dropped and the engine is told by the next listing."""
