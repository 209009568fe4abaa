"""Carries out the engine's actions: in order, each fenced by the leader key's revision.

A second monitor, a paused and resumed one, or one killed at any line leaves one order, not two and not none: the
store refuses whoever does not hold the leader key, and a key that is created exists once.
"""

import logging
from collections.abc import Sequence
from typing import Final, NamedTuple

from rankpulse.core import codec
from rankpulse.core.events import Action, Ask, Create, Diagnose, Erase, Post, Probe, Say, Write
from rankpulse.core.keys import Keys
from rankpulse.core.words import printable
from rankpulse.monitor.election import Election, Term
from rankpulse.monitor.vitals import Vitals
from rankpulse.store.api import Delete, Guard, Put, Store, StoreError, TooLarge, Uncertain
from rankpulse.store.api import Write as StoreWrite

LINE_MAX: Final = 2000
ERASE_AT_ONCE: Final = 64  # etcd allows 128 operations in a transaction
DONE, EXISTS, DEPOSED, FAILED = "done", "exists", "deposed", "failed"
_LEVELS: Final = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_ELSEWHERE: Final = (Probe, Post, Ask, Diagnose)  # carried out by others: they are no writes
log = logging.getLogger("rankpulse.monitor")


class Verdict(NamedTuple):
    """How a batch ended: `done`, `deposed` (we do not lead) or `failed`; `revision` of the last write, 0 if none."""

    result: str
    revision: int
    reason: str = ""


def say(actions: Sequence[Action]) -> None:
    """Only what is for people: the log lines."""
    for action in actions:
        if isinstance(action, Say):
            log.log(_LEVELS.get(action.level, logging.INFO), "%s", printable(action.text, LINE_MAX))


class Executor:
    """Turns actions into guarded transactions."""

    def __init__(self, store: Store, keys: Keys, election: Election, vitals: Vitals) -> None:
        self._store, self._keys, self._election, self._vitals = store, keys, election, vitals

    async def run(self, actions: Sequence[Action]) -> Verdict:
        """All of `actions`, or as many as come before the first that fails: the rest is dropped.

        Never raises `StoreError`. A `Create` whose key exists is not a failure of the fence, but what follows it was
        decided in ignorance of that key, so the batch ends there as `failed`.
        """
        revision = 0
        for group in grouped(actions):
            if isinstance(group[0], Say):
                say(group)
                continue
            if isinstance(group[0], _ELSEWHERE):
                continue
            result, at, reason = await self._one(group)
            self._vitals.actions[type(group[0]).__name__.lower(), result] += len(group)
            revision = max(revision, at)
            if result != DONE:
                return Verdict(DEPOSED if result == DEPOSED else FAILED, revision, reason)
        return Verdict(DONE, revision)

    async def _one(self, group: Sequence[Action]) -> Verdict:
        term = self._election.term()
        if term is None:
            return Verdict(DEPOSED, 0, self._election.reason)
        try:
            return await self._txn(group, term)
        except Uncertain as error:
            return await self._after_doubt(group, term, error)
        except TooLarge as error:
            # what the store will never take must not hold up every other decision of the cluster
            log.error("the record at %s is not written: %s", _key(group[0]), error)
            return Verdict(DONE, 0, str(error))
        except StoreError as error:
            return Verdict(FAILED, 0, str(error))

    async def _txn(self, group: Sequence[Action], term: Term) -> Verdict:
        fence = Guard(self._keys.leader(), term.revision)
        guards = [fence, *(Guard(action.key, 0) for action in group if isinstance(action, Create))]
        outcome = await self._store.txn(guards, [_write(action) for action in group])
        return Verdict(DONE, outcome.revision) if outcome.done else await self._refused(group, term)

    async def _refused(self, group: Sequence[Action], term: Term) -> Verdict:
        """A guard did not hold: which one decides what we are."""
        leader = await self._store.get(self._keys.leader())
        if leader is None or leader.modified != term.revision:
            self._election.lose("another monitor took over" if leader else "the leader key is gone")
            return Verdict(DEPOSED, 0, self._election.reason)
        return Verdict(EXISTS, 0, f"{_key(group[0])} exists already")

    async def _after_doubt(self, group: Sequence[Action], term: Term, doubt: Uncertain) -> Verdict:
        """Nobody knows whether the write happened: read before anything else is done."""
        action = group[0]
        if not isinstance(action, Create):
            return Verdict(FAILED, 0, str(doubt))
        try:
            item = await self._store.get(action.key)
        except StoreError as error:
            return Verdict(FAILED, 0, str(error))
        if item is not None and item.value == codec.encode(action.record):
            return Verdict(DONE, item.modified)
        return Verdict(FAILED, 0, str(doubt))


def grouped(actions: Sequence[Action]) -> list[list[Action]]:
    """`actions` in order, with neighbouring erasures together: thousands of folded records go in few transactions."""
    groups: list[list[Action]] = []
    for action in actions:
        last = groups[-1] if groups else []
        if isinstance(action, Erase) and last and isinstance(last[0], Erase) and len(last) < ERASE_AT_ONCE:
            last.append(action)
        else:
            groups.append([action])
    return groups


def _write(action: Action) -> StoreWrite:
    if isinstance(action, Write | Create):
        return Put(action.key, codec.encode(action.record))
    assert isinstance(action, Erase)
    return Delete(action.key)


def _key(action: Action) -> str:
    return "" if isinstance(action, Say | Probe | Post | Ask | Diagnose) else action.key
