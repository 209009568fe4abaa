"""`POST /act`: an operator's request over HTTP becomes what the command of that name would write, in his name."""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web

from rankpulse.core.asked_over_http import ACTS, BODY_MAX, Ask, Unclear, parse
from rankpulse.core.buckets import Buckets
from rankpulse.monitor.clock import Clock
from rankpulse.web.door import CALLER, HEADERS

DONE, REFUSED, FAILED = "done", "refused", "failed"
RESULTS: Final = (DONE, REFUSED, FAILED)
PER_MINUTE: Final = 60  # of one name
AT_ONCE: Final = 4
BODY_S: Final = 10.0
log = logging.getLogger("rankpulse.monitor")
Act = Callable[[Ask, str], Awaitable[str]]  # does it in the name of an author, and says what is so now


class NotDone(Exception):
    """What was asked cannot be; the text says why."""


async def nobody(ask: Ask, author: str) -> str:
    """Where the monitor runs without the commands, as in tests."""
    raise NotDone("this monitor takes no requests over HTTP: use the commands")


class Acts:
    """`act` raises `NotDone` for what cannot be. `counts` by (act, result)."""

    def __init__(self, act: Act, clock: Clock) -> None:
        self._act, self._clock, self._often = act, clock, Buckets(PER_MINUTE)
        self._room = asyncio.Semaphore(AT_ONCE)
        self.counts: Counter[tuple[str, str]] = Counter({(act, result): 0 for act in ACTS for result in RESULTS})

    def routes(self) -> list[web.RouteDef]:
        return [web.post("/act", self._asked)]

    async def _asked(self, request: web.Request) -> web.Response:
        """The door has let in only whoever may act."""
        author = CALLER.get().name
        if not self._often.one_more(author, self._clock.now()):
            return _said(429, f"{author} asks too often: try again in a minute")
        if request.content_type != "application/json":
            return _said(415, "send application/json")
        if (request.content_length or BODY_MAX + 1) > BODY_MAX:
            return _said(413, f"say how long it is; at most {BODY_MAX} bytes")
        try:
            async with asyncio.timeout(BODY_S):
                ask = parse(await request.content.readexactly(request.content_length or 0))
        except (Unclear, TimeoutError, asyncio.IncompleteReadError) as error:
            return _said(400, str(error) or "the body did not come")
        async with self._room:
            return await self._done(ask, author)

    async def _done(self, ask: Ask, author: str) -> web.Response:
        try:
            said = await self._act(ask, author)
        except NotDone as error:
            self._note(ask, author, REFUSED, str(error))
            return _said(409, str(error))
        except Exception as error:  # what a person asked must not end the monitor
            log.error("%s asked by %s over HTTP failed: a bug in rankpulse", ask.do, author, exc_info=error)
            self.counts[ask.do, FAILED] += 1
            return _said(500, "this is a bug in rankpulse; the monitor's log has more")
        self._note(ask, author, DONE, said)
        return _said(200, said)

    def _note(self, ask: Ask, author: str, result: str, said: str) -> None:
        self.counts[ask.do, result] += 1
        about = ask.run or ask.node or "the cluster"
        log.warning("%s of %r asked over HTTP by %s (%r): %s: %s", ask.do, about, author, ask.reason, result, said)


def _said(status: int, text: str) -> web.Response:
    return web.Response(status=status, text=f"{text}\n", headers=HEADERS)
