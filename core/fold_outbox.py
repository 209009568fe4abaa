"""What is believed of the outbox: what is to be told to whom, how far that has come, and what is under way."""

from collections import Counter
from typing import NamedTuple

from rankpulse.core import events as ev
from rankpulse.core.records import Outgoing

PENDING, DELIVERED, DEAD, WITHDRAWN = "pending", "delivered", "dead", "withdrawn"
FRESH_S = 5.0


class Letter(NamedTuple):
    """Which event, to which target."""

    event: str
    target: str


class _Since(NamedTuple):
    """Since when so many attempts have been made; `is_fresh`: they were made before this monitor looked."""

    attempts: int
    at: float
    is_fresh: bool


class OutboxFolder:
    """As the store has it. What this monitor has heard from targets itself is kept until it stands there."""

    def __init__(self) -> None:
        self.stored: dict[Letter, Outgoing] = {}
        self.pending: dict[Letter, Outgoing] = {}  # those of them that are to be told still
        self.posted: dict[Letter, ev.Posted] = {}  # answers that the store does not hold yet
        self.under_way: dict[Letter, int] = {}  # which attempt was sent and has not ended
        self._since: dict[Letter, _Since] = {}

    def seen(self, outgoing: Outgoing, event: ev.Seen, leading: bool) -> None:
        letter = Letter(outgoing.event, outgoing.target)
        self.stored[letter] = outgoing
        if outgoing.state == PENDING:
            self.pending[letter] = outgoing
        else:
            self.pending.pop(letter, None)
        known = self._since.get(letter)
        if known is None or known.attempts != outgoing.attempts:
            self._since[letter] = _Since(outgoing.attempts, event.received_at, known is None)
        if letter in self.posted and self.posted[letter].number <= outgoing.attempts:
            del self.posted[letter]

    def since(self, letter: Letter) -> float:
        """When this monitor first saw how it stands now, on its own clock."""
        return self._since[letter].at

    def due_at(self, letter: Letter, outgoing: Outgoing) -> float:
        """When it is tried next. A monitor that has just started waits little: from here the target may be reached."""
        since = self._since[letter]
        return since.at + (min(outgoing.pause_s, FRESH_S) if since.is_fresh else outgoing.pause_s)

    def answered(self, posted: ev.Posted) -> None:
        """An attempt has ended. One that is told of already, or of an event that is gone, changes nothing."""
        letter = Letter(posted.event, posted.target)
        self.under_way.pop(letter, None)
        outgoing = self.pending.get(letter)
        if posted.outcome != ev.UNSENT and outgoing is not None and posted.number > outgoing.attempts:
            self.posted[letter] = posted

    def gone(self, event: str, target: str) -> None:
        letter = Letter(event, target)
        self.stored.pop(letter, None)
        self.pending.pop(letter, None)
        self.posted.pop(letter, None)
        self._since.pop(letter, None)

    def relisted(self) -> None:
        self.stored.clear()
        self.pending.clear()

    def busy(self) -> Counter[str]:
        """How many attempts are under way, by target."""
        return Counter(letter.target for letter in self.under_way)
