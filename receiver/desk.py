"""From a request to its answer: verified, read, decided, written down, begun. What is answered is on disk before."""

import hashlib
import logging
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from rankpulse.core.buckets import Buckets
from rankpulse.core.signing import BadKey, key
from rankpulse.core.words import printable
from rankpulse.receiver import journal as j
from rankpulse.receiver.clock import Clock
from rankpulse.receiver.deciding import Denied, Heard, Plan, decide, plan
from rankpulse.receiver.journal import Entry, Journal
from rankpulse.receiver.reading import Event, Unreadable, event
from rankpulse.receiver.settings import ReceiverSettings
from rankpulse.receiver.verifying import Unverified, Verified, verified
from rankpulse.receiver.vitals import Vitals
from rankpulse.receiver.work import Work, said
from rankpulse.store.api import StoreError
from rankpulse.store.secret import read_lines

BUSY_S: Final = 15  # until a monitor may ask again
log: Final = logging.getLogger("rankpulse.receiver")


class Reply(NamedTuple):
    """As HTTP answers it. `text`: with 204, which has no body, the words after the number."""

    status: int
    text: str
    retry_after_s: int = 0


class Desk:
    """Takes requests one after the other: nothing here waits, so two of the same event cannot pass each other."""

    def __init__(self, settings: ReceiverSettings, journal: Journal, work: Work, clock: Clock, vitals: Vitals) -> None:
        self._settings, self._journal, self._work = settings, journal, work
        self._clock, self._vitals = clock, vitals
        self._bad = Buckets(settings.limits.bad_per_minute)
        self._denied: dict[str, str] = {}  # by id, what was written into the audit of it

    def take_up(self) -> None:
        """What the last of us left unfinished, by the settings of now."""
        for entry in self._journal.unfinished():
            found = self._reread(entry)
            if isinstance(found, Plan):
                self._journal.note(entry.id, "again", "taken up after a restart of the receiver", self._clock.utc())
                self._work.begin(found, entry.received_at)
            else:
                text = f"not taken up again: {found.reason}"
                self._journal.finish(entry.id, j.FAILED, text, self._clock.utc())
                said(entry.id, j.FAILED, text)

    def answer(self, headers: Iterable[tuple[str, str]], body: bytes, caller: str) -> Reply:
        """`caller`: the address it came from."""
        try:
            keys = signing_keys(self._settings.secret_file)
        except (StoreError, BadKey) as error:
            return self._unable(f"its secret_file cannot serve: {error}")
        now = self._clock.utc()
        found = verified(tuple(headers), body, keys, now, self._settings.limits.age_s)
        if isinstance(found, Unverified):
            return self._refuse(found, caller)
        try:
            reply = self._heard(found, body, now)
        except sqlite3.Error as error:
            return self._unable(f"the journal cannot be written: {error}")
        self._vitals.trouble = ""
        return reply

    def too_large(self, caller: str) -> Reply:
        """Refused before its signature is looked at, and told of like a bad one."""
        limit = self._settings.limits.body_max
        self._refuse(Unverified("size", f"an event has at most {limit} bytes"), caller)
        return Reply(413, f"an event has at most {limit} bytes")

    def _heard(self, found: Verified, body: bytes, now: float) -> Reply:
        digest = hashlib.sha256(body).digest()
        had = self._journal.had(found.id)
        if had is not None:
            return self._again(had, digest, now)
        try:
            read = event(body, found.id)
        except Unreadable as error:
            return self._deny(found.id, 400, str(error), now)
        entry = Entry(found.id, digest, body, j.HEARD, now)
        return self._decided(read, entry, now)

    def _decided(self, read: Event, entry: Entry, now: float) -> Reply:
        made = decide(read, self._settings, now)
        if isinstance(made, Denied):
            return self._deny(entry.id, made.status, made.reason, now)
        if isinstance(made, Heard):
            text = f"{made.reason}. {printable(read.data.summary, 300)}"
            return self._taken(entry, text, "heard")
        if other := self._work.busy(made):
            return self._deny(entry.id, 409, f"{made.target} is being started again for {other}", now, BUSY_S)
        if self._work.full():
            self._vitals.events["full"] += 1
            return Reply(503, "too much is under way already", BUSY_S)
        reply = self._taken(entry._replace(state=j.BEGUN), made.reason, "accepted")
        self._work.begin(made, now)
        return reply

    def _taken(self, entry: Entry, text: str, word: str) -> Reply:
        self._journal.take(entry, text)
        self._denied.pop(entry.id, None)
        self._vitals.events[word] += 1
        said(entry.id, entry.state, text)
        return Reply(204, word)

    def _again(self, had: Entry, digest: bytes, now: float) -> Reply:
        if had.digest != digest:
            return self._deny(had.id, 409, "another event had this id", now)
        self._vitals.events["had"] += 1
        said(had.id, "had", "had already: nothing is done")
        return Reply(204, "had already")

    def _deny(self, id_: str, status: int, reason: str, now: float, retry_after_s: int = 0) -> Reply:
        """Not remembered as had: once the settings allow it, the monitor's next attempt is taken. Audited once."""
        self._vitals.events["denied"] += 1
        if self._denied.get(id_) != reason:
            self._journal.note(id_, "denied", reason, now)
            said(id_, "denied", f"{status}: {reason}")
            if len(self._denied) >= 1000:
                self._denied.clear()
            self._denied[id_] = reason
        return Reply(status, reason, retry_after_s)

    def _refuse(self, found: Unverified, caller: str) -> Reply:
        self._vitals.refused[found.what] += 1
        if not self._bad.one_more(caller, self._clock.now()):
            return Reply(429, "too many refused signatures from there", 60)
        log.warning("refused %s: %s", printable(caller, 60), found.why)
        return Reply(401, found.why)

    def _unable(self, why: str) -> Reply:
        if self._vitals.trouble != why:
            log.error("%s", why)
        self._vitals.trouble = why
        return Reply(503, "cannot take events at present; its log says why", BUSY_S)

    def _reread(self, entry: Entry) -> Plan | Heard | Denied:
        try:
            read = event(entry.body, entry.id)
        except Unreadable as error:
            return Denied(400, str(error))
        made = plan(read, self._settings)
        if not isinstance(made, Plan):
            return made
        return made._replace(may_begin=self._clock.utc() - read.data.at <= self._settings.limits.stale_s)


def signing_keys(path: str, read: Callable[[str, str], Sequence[str]] = read_lines) -> list[bytes]:
    """One a line; read at each request, so that a key is changed without a restart. Raises `StoreError`, `BadKey`."""
    found = [key(line) for line in read(path, "secret_file") if line.strip()]
    if not found:
        raise BadKey("it holds no key")
    return found
