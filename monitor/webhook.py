"""Tells webhooks what the engine wants them told: each attempt apart, none of them in anybody's way.

Only targets of the settings are ever spoken to, redirects lead nowhere, and an attempt never raises: whatever happens,
each one ends in exactly one `Posted`.
"""

import asyncio
import errno
import logging
import os
import socket
import ssl
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final, NamedTuple

import aiohttp
import msgspec
from aiohttp.abc import AbstractResolver, ResolveResult

from rankpulse.core import payloads
from rankpulse.core.events import FAILED, GONE, TAKEN, UNSENT, Action, Post, Posted
from rankpulse.core.outbox import PAUSE_MAX_S
from rankpulse.core.settings import WebhookSettings
from rankpulse.core.signing import BadKey
from rankpulse.core.targets import WebhookTarget
from rankpulse.core.words import printable
from rankpulse.monitor.clock import Clock
from rankpulse.monitor.names import Names, Unresolved
from rankpulse.monitor.vitals import Vitals
from rankpulse.store.api import StoreError
from rankpulse.store.secret import read_lines

ANSWER_MAX: Final = 300  # bytes of an answer that are looked at
SECRET_BEGINS: Final = 6  # characters by which a secret is known again, also where the rest was cut off
AGENT: Final = "rankpulse-monitor"
log = logging.getLogger("rankpulse.monitor")


class Answer(NamedTuple):
    """How an attempt ended, in the words of `Posted`."""

    outcome: str
    detail: str = ""
    pause_s: float = 0.0


class Postman:
    """`tell` receives what came of each attempt. `leads`: asked right before sending, for whoever was paused."""

    def __init__(
        self,
        settings: WebhookSettings,
        tell: Callable[[Posted], None],
        *,
        leads: Callable[[], bool],
        clock: Clock,
        vitals: Vitals,
        names: Names | None = None,
    ) -> None:
        self._targets = {target.name: target for target in settings.targets}
        self._timeout_s, self._tell, self._leads = settings.timeout_s, tell, leads
        self._clock, self._vitals, self._names = clock, vitals, names or Names(clock)
        self._running: set[asyncio.Task[None]] = set()

    def send(self, actions: Iterable[Action]) -> None:
        """Begin the attempts among `actions`. Returns at once."""
        for action in actions:
            if isinstance(action, Post):
                task = asyncio.create_task(self._carry_out(action), name="webhook")
                self._running.add(task)
                task.add_done_callback(self._running.discard)

    async def close(self) -> None:
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _carry_out(self, post: Post) -> None:
        try:
            answer = await self._attempt(post)
        except Exception as error:
            log.exception("an attempt to tell %s failed: a bug in rankpulse, please report it", post.outgoing.target)
            answer = Answer(FAILED, f"the attempt itself failed: {type(error).__name__}")
        self._vitals.posts[post.outgoing.target, answer.outcome] += 1
        said = answer.outcome, answer.detail, answer.pause_s
        self._tell(Posted(post.outgoing.event, post.outgoing.target, post.number, *said, self._clock.now()))

    async def _attempt(self, post: Post) -> Answer:
        target = self._targets.get(post.outgoing.target)
        if target is None:
            return Answer(UNSENT, "no such target is configured here")
        try:
            secrets = read_lines(target.secret_file, "secret_file") if target.secret_file else []
            event = msgspec.json.decode(post.outgoing.body)
            sending = payloads.sending(target, event, secrets, self._clock.utc())
            context = _trust(target)
        except (StoreError, BadKey) as error:
            return Answer(FAILED, f"its secret_file cannot serve: {error}")
        except OSError as error:
            return Answer(FAILED, f"its ca_file cannot serve: {error.strerror or type(error).__name__}")
        except (msgspec.DecodeError, LookupError, TypeError, AttributeError) as error:
            return Answer(GONE, f"the event in the store is none of ours: {type(error).__name__}")
        if not self._leads():
            return Answer(UNSENT, "this monitor does not lead any more")
        return _veiled(await self._exchange(sending, context), secrets)

    async def _exchange(self, sending: payloads.Sending, context: ssl.SSLContext | bool) -> Answer:
        try:
            async with asyncio.timeout(self._timeout_s), self._session() as session:
                request = session.post(
                    sending.url, data=sending.body, headers=sending.headers, ssl=context, allow_redirects=False
                )
                async with request as response:
                    said = b"" if response.ok else await response.content.read(ANSWER_MAX)
                    return _answer(response.status, said, response.headers.get("Retry-After", ""))
        except TimeoutError:
            return Answer(FAILED, f"no answer within {self._timeout_s:g} s")
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return Answer(FAILED, _why(error))

    def _session(self) -> aiohttp.ClientSession:
        """A new one each time: attempts are rare, and a connection kept from the last may be dead."""
        connector = aiohttp.TCPConnector(resolver=_Resolver(self._names, self._timeout_s), force_close=True)
        return aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"user-agent": AGENT, "accept-encoding": "identity"},
            auto_decompress=False,
            timeout=aiohttp.ClientTimeout(total=self._timeout_s),
        )


class _Resolver(AbstractResolver):
    """Ours, which waits for no resolver of the system."""

    def __init__(self, names: Names, timeout_s: float) -> None:
        self._names, self._timeout_s = names, timeout_s

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        try:
            found = await self._names.resolve(host, self._timeout_s)
        except Unresolved as error:
            raise OSError(str(error)) from None
        return [
            ResolveResult(
                hostname=host,
                host=number,
                port=port,
                family=socket.AF_INET6 if ":" in number else socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
            for number in found
        ]

    async def close(self) -> None:
        return None


def _trust(target: WebhookTarget) -> ssl.SSLContext | bool:
    """Whom to believe that they are the target. Raises `OSError`."""
    return ssl.create_default_context(cafile=target.ca_file) if target.ca_file else True


def _answer(status: int, said: bytes, retry_after: str) -> Answer:
    if 200 <= status < 300:
        return Answer(TAKEN)
    if 300 <= status < 400:
        return Answer(FAILED, f"answered {status}: redirects are not followed, correct its url")
    text = printable(said.decode(errors="replace").strip(), 200)
    detail = f"answered {status}{f': {text}' if text else ''}"
    if status == 410:
        return Answer(GONE, f"{detail}: it wants no more of these")
    pause_s = 0.0
    with suppress(ValueError):  # a date is no number of seconds; the usual pause will do
        pause_s = float(min(max(int(retry_after), 0), PAUSE_MAX_S))
    return Answer(FAILED, detail, pause_s)


def _veiled(answer: Answer, secrets: Iterable[str]) -> Answer:
    """Without what a target said, where that begins like a secret that it was sent: `detail` stands in the store."""
    if any(line.strip()[:SECRET_BEGINS] in answer.detail for line in secrets if line.strip()):
        said, _, _ = answer.detail.partition(": ")
        return answer._replace(detail=f"{said}, with a text that repeats its secret")
    return answer


def _why(error: Exception) -> str:
    """In words, and without the URL, for that may be secret."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"its certificate is not trusted: {printable(error.certificate_error, 200)}"
    if isinstance(error, aiohttp.ClientConnectorSSLError):  # its errno is of OpenSSL, not of the system
        return f"no TLS with it: {printable(getattr(error.os_error, 'reason', None) or error.os_error, 200)}"
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"cannot connect: {_cause(error.os_error)}"
    if isinstance(error, aiohttp.ServerDisconnectedError | ConnectionError):
        return "the connection ended before an answer"
    return f"the exchange failed: {type(error).__name__}"


def _cause(error: OSError) -> str:
    """What the system says; of a name that does not resolve, what the resolver says."""
    if error.errno is not None and error.errno in errno.errorcode:
        return os.strerror(error.errno)
    return printable(error, 200)
