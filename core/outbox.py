"""The outbox: what is told to whom, when it is tried again, and when it is given up.

An event is created in the store before it is sent, and what came of it is written there. So whoever leads goes on
where the last leader was, and an event is sent twice only where an answer was lost on its way: by its id the target
knows it again.
"""

import zlib
from collections.abc import Iterator

import msgspec

from rankpulse.core import announcing, ladder
from rankpulse.core import events as ev
from rankpulse.core import incidents as book_of
from rankpulse.core import records as r
from rankpulse.core.desk import Desk
from rankpulse.core.fold import RESTART as RESTART_ORDER
from rankpulse.core.fold_outbox import DEAD, DELIVERED, PENDING, WITHDRAWN, Letter
from rankpulse.core.settings import WebhookSettings
from rankpulse.core.targets import CLOSED, PAGE, RESTART
from rankpulse.core.words import printable

AT_ONCE = 4  # to one target: one that hangs delays itself alone
PAUSE_MAX_S = 3600.0  # a target may ask to be left alone for so long
ERROR_MAX = 300
TESTS_KEPT_S = 60.0


def wait_s(attempts: int, letter: Letter, settings: WebhookSettings) -> float:
    """How long to wait after so many attempts: doubling, and spread by the event, so that not all come back at once."""
    whole = min(settings.retry_s * 2.0 ** min(attempts - 1, 60), settings.retry_max_s)
    lot = zlib.crc32(f"{letter.event}/{letter.target} {attempts}".encode()) / 2**32
    return round(whole * (0.5 + 0.5 * lot), 3)


def after(outgoing: r.Outgoing, posted: ev.Posted, settings: WebhookSettings, at: float) -> r.Outgoing:
    """The record once an attempt has ended."""
    letter, attempts = Letter(outgoing.event, outgoing.target), outgoing.attempts + 1
    waited_s = outgoing.waited_s + outgoing.pause_s
    made = msgspec.structs.replace(outgoing, attempts=attempts, pause_s=0.0, waited_s=waited_s, next_at=0.0)
    if posted.outcome == ev.TAKEN:
        return msgspec.structs.replace(made, state=DELIVERED, body="", ended_at=at)
    made = msgspec.structs.replace(made, last_error=printable(posted.detail, ERROR_MAX))
    is_test = not outgoing.incident  # whoever tries it out wants to know now
    if posted.outcome == ev.GONE or is_test or waited_s >= settings.give_up_after_s:
        return msgspec.structs.replace(made, state=DEAD, ended_at=at)
    pause_s = max(wait_s(attempts, letter, settings), min(posted.pause_s, PAUSE_MAX_S))
    return msgspec.structs.replace(made, pause_s=pause_s, next_at=at + pause_s)


class Outbox:
    """One per judge."""

    def __init__(self, desk: Desk) -> None:
        self._desk, self._settings = desk, desk.settings.webhook
        self._targets = {target.name for target in self._settings.targets}

    def announce(self) -> None:
        """Decide what is to be told of the incidents that are open."""
        if self._targets:
            for incident in self._desk.book.open():
                self._desk.announce(incident)

    def judge(self) -> None:
        """Everything that should stand in the outbox by now. Incidents come before what is told of them."""
        outbox = self._desk.folder.outbox
        for incident, event, letter in self._told():
            if letter not in outbox.stored and letter.target in self._targets and not _is_late(incident, event):
                self._create(incident, event, letter)
        for letter, posted in list(outbox.posted.items()):
            outgoing = outbox.stored.get(letter)
            if outgoing is not None and outgoing.state == PENDING:
                self._record(after(outgoing, posted, self._settings, self._desk.at))
        for letter, outgoing in outbox.pending.items():
            if self._is_overtaken(outgoing) and letter not in outbox.under_way and letter not in outbox.posted:
                self._withdraw(outgoing)
        for letter, outgoing in list(outbox.stored.items()):
            if self._is_past(letter, outgoing):
                self._desk.erase(self._desk.keys.outgoing(*letter))

    def posts(self) -> list[ev.Post]:
        """What is to be sent now. Each of them is answered by one `Posted`."""
        outbox, found = self._desk.folder.outbox, []
        busy = outbox.busy()
        for letter, outgoing in outbox.pending.items():
            if busy[letter.target] < AT_ONCE and self._is_due(letter, outgoing):
                busy[letter.target] += 1
                outbox.under_way[letter] = outgoing.attempts + 1
                found.append(ev.Post(outgoing, outgoing.attempts + 1))
        return found

    def _told(self) -> Iterator[tuple[r.Incident, str, Letter]]:
        for incident in self._desk.book:
            for event, target in announcing.told_pairs(incident):
                yield incident, event, Letter(announcing.event_id(incident, event), target)

    def _is_due(self, letter: Letter, outgoing: r.Outgoing) -> bool:
        """`closed` does not overtake what it is the end of."""
        outbox = self._desk.folder.outbox
        if letter in outbox.under_way or letter in outbox.posted or letter.target not in self._targets:
            return False
        if self._desk.now < outbox.due_at(letter, outgoing) or self._is_overtaken(outgoing):
            return False
        if letter.event != f"{outgoing.incident}-{CLOSED}":
            return True
        return not any(Letter(f"{outgoing.incident}-{one}", letter.target) in outbox.pending for one in (PAGE, RESTART))

    def _create(self, incident: r.Incident, event: str, letter: Letter) -> None:
        desk = self._desk
        order = desk.folder.ordered(incident.run_uid, incident.round, RESTART_ORDER) if event == RESTART else None
        without = order.without if order is not None else ()
        made = r.Outgoing(
            event=letter.event,
            target=letter.target,
            incident=incident.id,
            first_at=desk.at,
            body=announcing.body(incident, event, cluster=desk.keys.cluster, at=desk.at, without=without),
        )
        desk.want(desk.keys.outgoing(*letter), made, f"{letter.target} is to be told of {letter.event}", once=True)

    def _record(self, made: r.Outgoing) -> None:
        """Write what came of an attempt, and tell it in the incident's story."""
        desk, event = self._desk, made.event.removeprefix(f"{made.incident}-")
        key = desk.keys.outgoing(made.event, made.target)
        desk.want(key, made, f"{made.event} to {made.target}: {made.state}, attempt {made.attempts}")
        if made.state == DEAD:
            why = f"in {made.attempts} attempts: {made.last_error}"
            self._tell("error", made, f"{made.target} could not be told of {event} {why}")
        elif made.state == DELIVERED and event != CLOSED:
            self._tell("info", made, f"{made.target} was told of {event}, attempt {made.attempts}")

    def _is_overtaken(self, outgoing: r.Outgoing) -> bool:
        """A restart that comes late would hit a job that is there again, or get in the way of a person."""
        incident = self._desk.book.get(outgoing.incident)
        return outgoing.event == f"{outgoing.incident}-{RESTART}" and (incident is None or _is_late(incident, RESTART))

    def _withdraw(self, outgoing: r.Outgoing) -> None:
        desk = self._desk
        made = msgspec.structs.replace(outgoing, state=WITHDRAWN, pause_s=0.0, next_at=0.0, ended_at=desk.at)
        desk.want(desk.keys.outgoing(made.event, made.target), made, f"{made.event} is not wanted any more")
        self._tell("warning", made, f"{made.target} is not told of {RESTART} any more: it would come too late")

    def _tell(self, level: str, outgoing: r.Outgoing, text: str) -> None:
        incident = self._desk.book.get(outgoing.incident)
        if incident is None or self._desk.note(incident, text) is not incident:
            self._desk.folder.say(level, f"{outgoing.event}: {text}")

    def _is_past(self, letter: Letter, outgoing: r.Outgoing) -> bool:
        """Kept as long as its incident, so that nothing is told again; a test for a minute after its end."""
        if outgoing.state == PENDING and letter.target in self._targets:
            return False
        if outgoing.incident:
            return self._desk.book.get(outgoing.incident) is None
        return self._desk.now - self._desk.folder.outbox.since(letter) > TESTS_KEPT_S


def _is_late(incident: r.Incident, event: str) -> bool:
    """Whether the incident does not ask for it any more."""
    return event == RESTART and (incident.state != book_of.OPEN or incident.rung != ladder.WEBHOOK)
