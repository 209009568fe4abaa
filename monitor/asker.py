"""Asks agents for the evidence of their nodes, past the store: many at once, none of them in anybody's way.

A question never raises and never holds up the loop; whatever happens, each one ends in exactly one `Told`. An agent
collects for two seconds: whoever is asked later is answered at once where the order in the store came first.
"""

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from rankpulse.core import look_evidence as wire
from rankpulse.core.addresses import BadAddress
from rankpulse.core.codec import Refused
from rankpulse.core.dossier import Part
from rankpulse.core.events import Action, Ask, Told
from rankpulse.core.words import printable
from rankpulse.monitor import look
from rankpulse.monitor.clock import Clock
from rankpulse.monitor.names import Names, Unresolved
from rankpulse.monitor.vitals import Vitals
from rankpulse.store.secret import Tokens

AT_ONCE: Final = 256
WAITING_MAX: Final = 16_384
TIME_S: Final = 4.0  # of one question: collecting takes two seconds at most
log = logging.getLogger("rankpulse.monitor")


class Asker:
    """`tell` receives each answer, in the order in which they come. `boot_id`: of this machine."""

    def __init__(
        self,
        tell: Callable[[Told], None],
        *,
        tokens: Tokens,
        boot_id: str,
        clock: Clock,
        names: Names | None = None,
        time_s: float = TIME_S,
        vitals: Vitals | None = None,
    ) -> None:
        self._tell, self._tokens, self._boot_id, self._clock, self._time_s = tell, tokens, boot_id, clock, time_s
        self._names, self._vitals = names or Names(clock), vitals or Vitals()
        self._waiting: deque[Ask] = deque()
        self._running: set[asyncio.Task[None]] = set()

    def send(self, actions: Iterable[Action]) -> None:
        """Begin with the questions among `actions`. Returns at once."""
        for action in actions:
            if isinstance(action, Ask):
                if len(self._waiting) >= WAITING_MAX:
                    self._end(action, None, "too many questions wait already")
                else:
                    self._waiting.append(action)
        self._start()

    async def close(self) -> None:
        self._waiting.clear()
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def _start(self) -> None:
        while self._waiting and len(self._running) < AT_ONCE:
            task = asyncio.create_task(self._carry_out(self._waiting.popleft()))
            self._running.add(task)
            task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            self._start()

    async def _carry_out(self, ask: Ask) -> None:
        try:
            part, detail = await self._asked(ask)
        except Exception as error:  # a bug of ours is no fact about a node
            log.exception("a question to %s failed: a bug in rankpulse, please report it", printable(ask.node, 128))
            part, detail = None, f"the question itself failed: {type(error).__name__}"
        self._end(ask, part, detail)

    async def _asked(self, ask: Ask) -> tuple[Part | None, str]:
        nonce, token = secrets.token_hex(16), self._tokens.first()
        about = wire.Collect(order_id=ask.order_id, run_uid=ask.run_uid, round=ask.round)
        line, outcome = wire.ask_collect(ask.node, nonce, token, about), look.Outcome("", "no address")
        try:
            for place in await self._names.places(ask.address, ask.boot_id, self._boot_id, self._time_s):
                outcome = await look.look(place, line, self._time_s, self._clock.now, most=wire.LINE_MAX)
                if outcome.answer == look.HEARD:
                    return wire.hear_collect(outcome.line, ask.node, nonce, token), ""
        except (BadAddress, Unresolved, Refused) as error:
            return None, str(error)
        return None, outcome.detail

    def _end(self, ask: Ask, part: Part | None, detail: str) -> None:
        self._vitals.asked["told" if part is not None else "nothing"] += 1
        self._tell(Told(ask.node, ask.order_id, part, printable(detail, 300), self._clock.now()))
