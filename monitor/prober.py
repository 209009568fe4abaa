"""Carries out the engine's wish to look at an agent directly: many at once, none of them in anybody's way.

A look never raises and never holds up the loop; whatever happens, each one ends in exactly one `Probed`.
"""

import asyncio
import logging
import math
import secrets
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from rankpulse.core import look as wire
from rankpulse.core.addresses import BadAddress
from rankpulse.core.codec import Refused
from rankpulse.core.events import ACCEPTED, ANSWERED, REFUSED, SILENT, UNABLE, Action, Probe, Probed
from rankpulse.core.records import Beat, NodeState
from rankpulse.core.words import printable
from rankpulse.monitor import look
from rankpulse.monitor.clock import Clock
from rankpulse.monitor.names import Names, Unresolved
from rankpulse.monitor.vitals import Vitals
from rankpulse.store.secret import Tokens

AT_ONCE: Final = 64
WAITING_MAX: Final = 1024
REHEARSE_S: Final = 60.0  # between two tries to reach an agent that was never reached
REHEARSE_EACH: Final = 16  # at one turn of the loop
OTHERS_REACHED: Final = 0.75  # of the agents looked at
QUEUED_MAX: Final = 64  # connections of ours that a stopped agent's kernel surely keeps for it
log = logging.getLogger("rankpulse.monitor")


@dataclass(slots=True)
class Known:
    """What looks at one node have come to so far. Times: the monitor's monotonic seconds."""

    address: str = ""
    boot_id: str = ""
    reached: str = ""  # the address from which something has come back before
    answer: str = ""
    detail: str = ""
    at: float | None = None
    accepted: int = 0  # in a row: each leaves a connection behind that the agent has not taken
    rehearse_at: float = 0.0


class Prober:
    """`tell` receives each result, in the order in which they come. `boot_id`: of this machine."""

    def __init__(
        self,
        tell: Callable[[Probed], None],
        *,
        timeout_s: float,
        tokens: Tokens,
        boot_id: str,
        clock: Clock,
        vitals: Vitals,
        names: Names | None = None,
    ) -> None:
        self._tell, self._timeout_s, self._tokens, self._boot_id = tell, timeout_s, tokens, boot_id
        self._clock, self._vitals, self._names = clock, vitals, names or Names(clock)
        self._waiting: deque[tuple[Probe, bool]] = deque()  # a look, and whether the engine wants to hear of it
        self._running: set[asyncio.Task[None]] = set()
        self._rehearsals: deque[tuple[float, str]] = deque()  # when and whom, the next first
        self.known: dict[str, Known] = {}
        self._counted_at, self._open = -math.inf, False

    # -- what the loop says -------------------------------------------------------------------------------------
    def send(self, actions: Iterable[Action]) -> None:
        """Begin the looks among `actions`. Returns at once."""
        for action in actions:
            if isinstance(action, Probe):
                if len(self._waiting) >= WAITING_MAX:
                    self._end(action, UNABLE, "too many looks wait already", None, wanted=True)
                else:
                    self._waiting.append((action, True))
        self._start()

    def learn(self, state: NodeState) -> None:
        """Where an agent can be looked at."""
        known = self.known.setdefault(state.node, Known())
        if (known.address, known.boot_id) != (state.probe, state.boot_id):
            known.address, known.boot_id, known.accepted = state.probe, state.boot_id, 0
            known.rehearse_at = self._clock.now()
            self._rehearsals.appendleft((known.rehearse_at, state.node))

    def forget(self, node: str) -> None:
        self.known.pop(node, None)

    def rehearse(self) -> None:
        """Look at some agents that were never reached: of a machine that could never be seen, silence says nothing.

        Meant to be called at every turn of a leader's loop. The engine does not hear of these looks.
        """
        now = self._clock.now()
        while self._rehearsals and self._rehearsals[0][0] <= now and len(self._waiting) < REHEARSE_EACH:
            due, node = self._rehearsals.popleft()
            known = self.known.get(node)
            if known is None or known.rehearse_at != due or not known.address or known.reached == known.address:
                continue
            known.rehearse_at = now + REHEARSE_S
            self._rehearsals.append((known.rehearse_at, node))
            self._waiting.append((Probe(node, known.address, known.boot_id, 0), False))
        self._start()

    def shown(self) -> dict[str, dict[str, Any]]:
        """For people: what the last look at each node came to, and whether any has ever come through."""
        now = self._clock.now()
        return {
            node: {
                "answer": known.answer,
                "detail": known.detail,
                "age_s": round(now - known.at, 3) if known.at is not None else None,
                "reached": bool(known.reached) and known.reached == known.address,
            }
            for node, known in self.known.items()
        }

    async def close(self) -> None:
        self._waiting.clear()
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    # -- one look -----------------------------------------------------------------------------------------------
    def _start(self) -> None:
        while self._waiting and len(self._running) < AT_ONCE:
            task = asyncio.create_task(self._carry_out(*self._waiting.popleft()))
            self._running.add(task)
            task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            self._start()

    async def _carry_out(self, probe: Probe, wanted: bool) -> None:
        began = self._clock.now()
        try:
            answer, detail, beat = await self._look(probe)
        except Exception as error:  # a bug of ours is no fact about a node
            log.exception("a look at %s failed: a bug in rankpulse, please report it", printable(probe.node, 128))
            answer, detail, beat = UNABLE, f"the look itself failed: {type(error).__name__}", None
        self._vitals.probe_s = self._clock.now() - began
        self._end(probe, answer, detail, beat, wanted=wanted)

    async def _look(self, probe: Probe) -> tuple[str, str, Beat | None]:
        try:
            places = await self._names.places(probe.address, probe.boot_id, self._boot_id, self._timeout_s)
        except (BadAddress, Unresolved) as error:
            return UNABLE, str(error), None
        nonce, token = secrets.token_hex(16), self._tokens.first()
        line = wire.ask(probe.node, nonce, token)
        outcome = look.Outcome(UNABLE, "no address")
        for place in places:
            outcome = await look.look(place, line, self._timeout_s, self._clock.now)
            if outcome.answer != UNABLE:
                break
        if outcome.answer != look.HEARD:
            return outcome.answer, outcome.detail, None
        try:
            return ANSWERED, "", wire.hear(outcome.line, probe.node, nonce, token)
        except Refused as refused:
            return UNABLE, f"what answers there is not that agent: {refused}", None

    # -- what it comes to ---------------------------------------------------------------------------------------
    def _end(self, probe: Probe, answer: str, detail: str, beat: Beat | None, *, wanted: bool) -> None:
        now = self._clock.now()
        known = self.known.get(probe.node) or Known(probe.address, probe.boot_id)
        if wanted:
            self.known[probe.node] = known
        answer, detail = self._weigh(known, probe, answer, detail)
        known.answer, known.detail, known.at = answer, detail, now
        if wanted:
            self._vitals.probes[answer] += 1
            self._tell(Probed(probe.node, probe.number, answer, beat, detail, now))

    def _weigh(self, known: Known, probe: Probe, answer: str, detail: str) -> tuple[str, str]:
        """Silence is a fact only about a place that could be reached, and whose doorway our own looks do not fill."""
        if answer in (ANSWERED, ACCEPTED, REFUSED):
            known.reached = probe.address
            known.accepted = known.accepted + 1 if answer == ACCEPTED else 0
        elif answer == SILENT and known.reached != probe.address and not self._others_are_reached(known):
            why = f"but no look has ever come through to {probe.address}: a firewall may be in the way"
            return UNABLE, f"{detail}, {why}"
        elif answer == SILENT and known.accepted >= QUEUED_MAX:
            return UNABLE, f"{detail}, but {known.accepted} of our own looks wait there for an agent that takes none"
        return answer, detail

    def _others_are_reached(self, known: Known) -> bool:
        """Whether nearly all other agents that were looked at have been reached: then the way to this one is open, too.

        So a machine that had died before this monitor began is silent, and not merely unknown.
        """
        now = self._clock.now()
        if now - self._counted_at >= 1.0:
            self._counted_at = now
            tried = [one for one in self.known.values() if one.at is not None and one is not known]
            self._open = sum(one.reached == one.address != "" for one in tried) >= max(OTHERS_REACHED * len(tried), 1)
        return self._open
