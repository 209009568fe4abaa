"""Our rendezvous on this node: what `core.rendezvous` decides for each local torchrun is told and written.

Reads come from the mirror; every write is a transaction whose guards are what the decision rested on. When one is
refused, or nobody can tell what came of it, the keys are read again before anything is tried again. While the store
is away nothing is decided, and the torchruns of an established round simply hear nothing.
"""

import asyncio
import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from rankpulse.agent.clock import Clock
from rankpulse.agent.log import Log
from rankpulse.agent.mirror import Mirror
from rankpulse.agent.proof import Proof
from rankpulse.agent.torchruns import Torchrun, Torchruns
from rankpulse.agent.writing import write
from rankpulse.core import rendezvous
from rankpulse.core.keys import Keys
from rankpulse.core.records import Joiner
from rankpulse.core.rendezvous import Answer, Met, Refused, Timing, Txn, Waiting
from rankpulse.store.api import Store

_BACKOFF_S: Final = (0.05, 2.0)
_SWEEP_EVERY_S: Final = 30.0
_AGAIN_S: Final = 5.0
_SAY_EVERY_S: Final = 1.0
_DEAR_S: Final = 0.005
_AWAY: Final = "the store cannot be reached: the round forms when it can"
_UNSAFE = re.compile(r"[^A-Za-z0-9]+")


def _yes() -> bool:
    return True


def _silent(_run_uid: str, _round: int) -> bool:
    return False


def _never(_launcher: tuple[int, int]) -> bool:
    return False


def _well(_one: Torchrun) -> tuple[bool, str]:
    return False, ""


@dataclass(slots=True)
class Rendezvous:
    """`named`: whether this agent speaks for the node by now; `busy`: whether workers of a launcher still live;
    `lives`: whether a launcher does; `speaking`: whether last words are asked for in a round; `standing`: whether the
    node is being looked at before it joins, and why it may not."""

    node: str
    keys: Keys
    store: Store
    mirror: Mirror
    torchruns: Torchruns
    clock: Clock
    rng: random.Random
    log: Log
    timing: Timing = field(default_factory=Timing)
    named: Callable[[], bool] = _yes
    busy: Callable[[tuple[int, int]], bool] = _never
    lives: Callable[[tuple[int, int]], bool] = _never
    speaking: Callable[[str, int], bool] = _silent
    standing: Callable[[Torchrun], tuple[bool, str]] = _well
    saved: Callable[[], None] = lambda: None
    proof: Proof = field(init=False)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _swept_at: float = float("-inf")
    _spent_s: float = 0.0  # on decisions, in this pass

    def __post_init__(self) -> None:
        self.proof = Proof(self.node, self.keys, self.mirror)

    def look(self) -> None:
        """Something changed: tell what is to be told at once, and decide anew."""
        self._confirm()
        self.push()
        self._wake.set()

    def push(self) -> None:
        """Tell the torchruns of established rounds that they have to meet again; each once per conversation."""
        if not self.mirror.ready:
            return
        for one in self.torchruns.table.values():
            due = one.established and one.watching and one.pushed != one.round
            if due and not self.speaking(one.run_uid, one.round):  # it would stop them while they write
                found = rendezvous.again(self.mirror.view, one.run_uid, one.round)
                if found and one.send({"again": {**found._asdict()}}):
                    one.pushed = one.round
                    self.log.say("info", f"run {one.run_uid}: round {one.round} meets again: {found.reason[:200]}")

    # -- the loop -----------------------------------------------------------------------------------------------
    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self._spent_s = 0.0
            try:
                wait_s = await self._pass()
            except Exception as error:  # the view, the presence and every conversation live on
                text = f"{type(error).__name__}: {error}"[:300]
                self.log.change("rendezvous", "error", f"rendezvous: {text}")
                wait_s = _AGAIN_S
            if self._spent_s > _DEAR_S:  # many nodes arrive one after the other: each look is for all that came since
                await asyncio.sleep(min(9 * self._spent_s, _BACKOFF_S[1] / 4))
            try:
                async with asyncio.timeout(wait_s):
                    await self._wake.wait()
            except TimeoutError:
                continue
            finally:
                self._wake.clear()

    async def _pass(self) -> float:
        """Everything that is due, once; returns the seconds until something is due again."""
        due = self._swept_at + _SWEEP_EVERY_S
        for one in list(self.torchruns.table.values()):
            if one.me is not None or (not one.left and (one.leaving or one.dead)):
                due = min(due, await self._serve(one))
        if self._can_write() and self.clock.monotonic() >= self._swept_at + _SWEEP_EVERY_S:
            await self._sweep()
            due = min(due, self._swept_at + _SWEEP_EVERY_S)
        return max(0.0, min(due - self.clock.monotonic(), _SWEEP_EVERY_S)) if due > float("-inf") else 1.0

    def _can_write(self) -> bool:
        return self.mirror.sighted and self.named()

    async def _serve(self, one: Torchrun) -> float:
        """What one torchrun makes us stumble over does not cost the others."""
        try:
            return await (self._ask(one) if one.me is not None else self._part(one))
        except Exception as error:
            text = f"{type(error).__name__}: {error}"[:300]
            self.log.change(f"ask {one.launcher}", "error", f"launcher {one.launcher} cannot be served: {text}")
            one.send({"wait": "the agent has an error of its own with this run: see its log"})
            return self.clock.monotonic() + _AGAIN_S

    # -- asking for a round -------------------------------------------------------------------------------------
    async def _ask(self, one: Torchrun) -> float:
        """Decide for a torchrun that waits; returns when to do so again."""
        me, now = one.me, self.clock.monotonic()
        assert me
        if not (self.mirror.ready and self.named()):
            self._answer(one, _too_late(me.asked_at, me.timeout_s, now) or Waiting(_AWAY))
            return now + 1.0
        if one.run_uid != me.run_uid:
            me = one.me = replace(me, run_uid=one.run_uid)
        checking, refused = self.standing(one)
        if (me.checking, me.refused) != (checking, refused):
            me = one.me = replace(me, checking=checking, refused=refused)
        new_uid = _new_uid(me.label, self.rng)
        step = rendezvous.decide(self.mirror.view, me, now, self.clock.utc(), self.timing, new_uid)
        self._spent_s += self.clock.monotonic() - now
        if step.txn is None:
            self._answer(one, step.answer)
            due = step.wake_at if step.wake_at is not None else now + _SWEEP_EVERY_S
            return max(min(due, self._told_at(one, step.answer)), now + _BACKOFF_S[0])
        if not self.mirror.sighted:
            self._answer(one, _too_late(me.asked_at, me.timeout_s, now) or Waiting(_AWAY))
            return now + 1.0
        if isinstance(step.answer, Waiting):
            self._answer(one, step.answer)
        if now >= one.retry_at and await self._write_for(one, step.txn) and one.me is me:
            self._answer(one, step.answer)
        return one.retry_at

    def _answer(self, one: Torchrun, answer: Answer) -> None:
        if isinstance(answer, Waiting):
            now = self.clock.monotonic()
            if now >= self._told_at(one, answer) and one.send({"wait": answer.reason[:1000]}):
                one.said, one.said_at = answer.reason, now
        elif isinstance(answer, Met):
            self._met(one, answer)
        else:
            self._refuse(one, answer)

    def _told_at(self, one: Torchrun, answer: Answer) -> float:
        """When a new reason is told: not each of a thousand arrivals is worth a line."""
        if not isinstance(answer, Waiting) or answer.reason == one.said or one.line is None:
            return float("inf")
        return one.said_at + _SAY_EVERY_S if one.said else float("-inf")

    def _met(self, one: Torchrun, met: Met) -> None:
        """On disk before it is told: a torchrun in a round is never one that the next agent does not know."""
        assert one.me
        one.run_uid, one.join, one.met, one.me = met.run_uid, one.me.join, met, None
        one.said, one.pushed, one.watching, one.sure, one.attempts = "", 0, True, True, 0
        one.moved.clear()
        self.saved()
        one.send({"met": met.told()})
        self.log.say("info", f"run {met.run_uid}: round {met.round} met, {met.nodes} nodes, this one is {met.rank}")
        self.push()

    def _refuse(self, one: Torchrun, answer: Refused) -> None:
        """It gets no round. Its place in line goes at once, without closing anything for the others."""
        one.me, one.said = None, ""
        one.send({"refused": {"kind": answer.kind, "reason": answer.reason[:2000]}})
        self.log.say("warning", f"launcher {one.launcher}: refused, {answer.kind}: {answer.reason[:300]}")
        if one.run_uid:
            one.leaving = one.leaving or ("gone", f"refused: {answer.reason}"[:200])
            self.saved()
            self._wake.set()

    # -- leaving ------------------------------------------------------------------------------------------------
    def leave(self, one: Torchrun, outcome: str, reason: str) -> None:
        """It takes no part any more; written as soon as the store takes it, also by the next agent."""
        if not one.left and (one.run_uid or one.me):  # its joiner may be on its way to the store
            one.leaving = (outcome, reason[:200])
            self.saved()
        one.me = None
        one.moved.set()
        self._wake.set()

    async def _part(self, one: Torchrun) -> float:
        """Write that it leaves; a dead one only once none of its workers lives: orphans train on."""
        now = self.clock.monotonic()
        if one.leaving is None:
            if self.busy((one.pid, one.start)):
                return now + _SWEEP_EVERY_S
            one.leaving = ("gone", f"its torchrun {one.dead}")
        if not one.run_uid:
            self._gone(one)
            return now
        if not self._can_write():
            return now + 1.0
        if now < one.retry_at:
            return one.retry_at
        outcome, reason = one.leaving
        at = self.clock.utc()
        txn = rendezvous.leave(self.mirror.view, one.run_uid, self.node, one.launcher, outcome, reason, at)
        if txn is not None and not await self._write_for(one, txn):
            return one.retry_at
        self._gone(one)
        return self.clock.monotonic()

    def _gone(self, one: Torchrun) -> None:
        one.leaving, one.left, one.me = None, True, None
        one.moved.set()
        self._swept_at = float("-inf")  # it may have been the last
        if one.dead:
            self.torchruns.drop(one)
        self.saved()

    async def _sweep(self) -> None:
        self._swept_at = self.clock.monotonic()
        living = frozenset(one.launcher for one in self._joiners() if self._takes_part(one.launcher))
        for txn in rendezvous.sweep(self.mirror.view, self.node, living, self.clock.utc()):
            done = await write(self.store, self.mirror, self.log, txn)
            again_s = _BACKOFF_S[0] if done else _BACKOFF_S[1]  # there may be more to do by now
            self._swept_at = self.clock.monotonic() - _SWEEP_EVERY_S + again_s

    def _joiners(self) -> list[Joiner]:
        rows = (record for record in self.mirror.all(self.keys.rdzv()) if isinstance(record, Joiner))
        return [row for row in rows if row.node == self.node]

    def _takes_part(self, launcher: str) -> bool:
        """A torchrun that is about to be told gone by ourselves is left to that, too."""
        pid, _, start = launcher.partition(".")
        who = (int(pid), int(start))
        return who in self.torchruns.table or self.lives(who) or self.busy(who)

    # -- what a torchrun says of itself --------------------------------------------------------------------------
    def _confirm(self) -> None:
        """What was believed while the store was away is compared with what stands there."""
        if not self.mirror.ready:
            return
        for one in list(self.torchruns.table.values()):
            if one.sure or not one.met:
                continue
            found = self.proof.meeting(one.owner, one.launcher, one.run_uid, one.round, one.join)
            one.met, one.sure = found, True
            if found is None:
                one.send({"error": f"run {one.run_uid} has no round with this torchrun in it"})
                self.torchruns.drop(one)
            self.saved()

    # -- writing ------------------------------------------------------------------------------------------------
    async def _write_for(self, one: Torchrun, txn: Txn) -> bool:
        done = await write(self.store, self.mirror, self.log, txn)
        self._learn(one, txn)
        if done:
            one.attempts = 0
            one.retry_at = self.clock.monotonic()
        else:
            low, high = _BACKOFF_S
            pause_s = min(high, low * 2 ** min(one.attempts, 10)) * self.rng.uniform(0.5, 1.0)
            one.attempts += 1
            one.retry_at = self.clock.monotonic() + pause_s
        return done

    def _learn(self, one: Torchrun, txn: Txn) -> None:
        """Which run it is in, once its joiner stands there."""
        for key, record in txn.puts:
            if not isinstance(record, Joiner) or record.launcher != one.launcher or record.left:
                continue
            if self.mirror.get(key) == record and one.run_uid != record.run_uid:
                one.run_uid = record.run_uid
                self.saved()


def _too_late(asked_at: float, timeout_s: float, now: float) -> Refused | None:
    if now - asked_at < timeout_s:
        return None
    return Refused("timeout", f"no round within {timeout_s:g} s: the agent cannot reach the store; see its log")


def _new_uid(label: str, rng: random.Random) -> str:
    """Unique, and still readable: what the user called it, and chance."""
    name = _UNSAFE.sub("-", label)[:40].strip("-")
    return f"{name or 'run'}-{rng.getrandbits(48):012x}"
