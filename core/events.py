"""What goes into the engine (events) and what comes out of it (actions). Plain values, no behaviour.

`received_at` and `now` are seconds on the monitor's own monotonic clock; `at` is UTC seconds, for people.
"""

from typing import NamedTuple, TypeAlias

from rankpulse.core.records import Record


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


Event: TypeAlias = Seen | Gone | Garbled | Relisted | SightLost | SightBack | CanarySeen | TookOffice | LeftOffice


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


Action: TypeAlias = Write | Create | Erase | Say
"""Done in order. When one fails the rest of the batch is dropped and the engine is told by the next listing."""
