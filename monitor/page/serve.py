"""The page's way to the browser: routes, headers, and the stream of what is new.

A page is made when somebody looks at it, at most every `EVERY_S`, and what did not change is not made again. Watchers
share what was made. Each has at most one message under way and no queue; one that does not take it is let go.
"""

import asyncio
import hashlib
import logging
import time
from collections.abc import Callable
from importlib.resources import files
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import unquote, urlencode

from aiohttp import web

from rankpulse.core.glance import Glance, glance
from rankpulse.core.keys import NODE_MAX
from rankpulse.core.node_standing import Standings
from rankpulse.monitor.clock import Clock
from rankpulse.monitor.page import sight
from rankpulse.monitor.page.about import About
from rankpulse.monitor.page.board import Board, Piece, beat
from rankpulse.monitor.page.compose import Frame, document
from rankpulse.monitor.page.views import SEARCH, Views
from rankpulse.monitor.page.words import path as path_of
from rankpulse.web.door import STILL

if TYPE_CHECKING:
    from rankpulse.core.engine import Engine

EVERY_S: Final = 0.5  # a page is as old as this at most
SHARE, SELDOM_S = 20.0, 1.0  # or looking would take more than a twentieth of the time; but never older than this
BEAT_S: Final = 5.0  # a watcher hears at least so often
TAKE_S: Final = 10.0  # a watcher that does not take a message for so long is let go
WATCHERS_MAX: Final = 64
BOARDS_MAX: Final = 2 * WATCHERS_MAX  # pages that are kept for the next look
ADDRESS_MAX: Final = 1500  # of a page: a name of which every letter is escaped
COMPLAINTS_MAX: Final = 100  # errors that are logged
_ASSETS: Final = {"page.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"}
HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
READ_ONLY: Final = (
    "This page is read-only. Act in a terminal, where your name and your reason are recorded: rankpulse restart, "
    "pause, resume, cordon, uncordon, maintenance, breaker close, arm, disarm.\n"
)
CANNOT: Final = "This page cannot be made: a bug in rankpulse. What it would show: rankpulse status, or /state\n"
log = logging.getLogger("rankpulse.monitor")


class Kept(NamedTuple):
    board: Board
    known: bool
    made_at: float


class OnCall:
    """The page of one monitor."""

    def __init__(self, engine: "Engine", about: Callable[[], About], clock: Clock, token: str) -> None:
        """`token`: names this life of this monitor."""
        self._engine, self._about, self._clock, self._token = engine, about, clock, token
        self._assets = {name: files(__package__).joinpath("static", name).read_bytes() for name in _ASSETS}
        self.look = hashlib.sha256(b"".join(self._assets.values())).hexdigest()[:12]
        self._glance: tuple[float, Glance] | None = None
        self._views, self._standings = Views(engine, self._complain), Standings()
        self._boards: dict[str, Kept] = {}
        self._born = time.monotonic() - 1.0
        self.watchers, self._pause_s = 0, EVERY_S
        self._complained: set[str] = set()

    def routes(self) -> list[web.RouteDef]:
        got = {"/": self._page, "/nodes": self._search, "/events": self._events}
        got |= {f"/{kind}/{{name}}": self._page for kind in ("incidents", "nodes", "runs")}
        told = [web.get(path, handler, allow_head=path != "/events") for path, handler in got.items()]
        told += [web.get("/static/{name}", self._asset)]
        told += [web.post(path, self._refuse) for path in got if path != "/events"]
        return [
            *told,
            web.get("/{name:.*}", self._page, allow_head=False),
        ]  # says that there is no such page, and where to go on

    # --- what there is to show

    def _look_now(self) -> Glance:
        """The engine at a glance, at most so old; pages that are asked for together share it."""
        began = time.monotonic()
        if self._glance is None or began - self._glance[0] >= self._pause_s:
            self._glance = began, glance(self._engine, self._clock.now(), self._clock.utc(), self._standings)
            self._pause_s = min(max(EVERY_S, SHARE * (time.monotonic() - began)), SELDOM_S)
        return self._glance[1]

    def board(self, path: str, *, watched: bool = False) -> tuple[Board, bool]:
        """The page at this path as it is now, and whether there is what it is about.

        What was searched for, and what there is not, is kept if it is watched: nobody drives out pages by asking.
        """
        began = time.monotonic()
        kept = self._boards.pop(path, None)
        if kept is not None and began - kept.made_at < EVERY_S:
            self._boards[path] = kept
            return kept.board, kept.known
        board = kept.board if kept is not None else Board(self._token, self._beyond())
        pieces, known = self._pieces(path)
        board.update(pieces)
        if watched or (known and "?" not in path):
            self._boards[path] = Kept(board, known, began)  # the newest last
        while len(self._boards) > BOARDS_MAX:
            del self._boards[next(iter(self._boards))]
        return board, known

    def _pieces(self, path: str) -> tuple[list[Piece], bool]:
        """A page that cannot be made at all does not end the stream, and must not pass for one that is live."""
        try:
            return self._views.pieces(path, self._look_now(), self._about())
        except Exception as error:
            self._complain(path, error)
            return [Piece("verdict", sight.cannot())], False

    def _beyond(self) -> int:
        """A version that no board of this life has come to: they count at most twice a second."""
        return int((time.monotonic() - self._born) * 1000)

    def _frame(self, path: str) -> Frame:
        told, about = self._look_now(), self._about()
        title = (
            f"{told.cluster}: rankpulse"
            if path == "/"
            else f"{unquote(path.rpartition('/')[2])}: rankpulse {told.cluster}"
        )
        return Frame(about, told.cluster, title, path, self.look, told.at)

    # --- answers

    async def _page(self, request: web.Request) -> web.Response:
        return self._shown(request, _path(request))

    def _shown(self, request: web.Request, path: str) -> web.Response:
        try:
            (board, known), frame = self.board(path), self._frame(path)
        except Exception as error:
            self._complain(path, error)
            return web.Response(text=CANNOT, status=500, headers=HEADERS)
        return _html(request, *board.document(lambda board: document(frame, board), frame.at), 200 if known else 404)

    async def _search(self, request: web.Request) -> web.Response:
        """A node by its name, or those whose names hold these letters."""
        name = request.query.get("name", "").strip()[:NODE_MAX]
        try:
            exact = any(node.node == name for node in self._look_now().nodes())
        except Exception:
            exact = False  # that page cannot be made, and says so
        if exact:
            raise web.HTTPSeeOther(path_of("nodes", name), headers=HEADERS)
        return self._shown(request, f"{SEARCH}?{urlencode({'name': name})}")

    async def _asset(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if name not in self._assets:
            raise web.HTTPNotFound(text="no such file\n", headers=HEADERS)
        return web.Response(body=self._assets[name], content_type=_ASSETS[name], charset="utf-8", headers=HEADERS)

    async def _refuse(self, request: web.Request) -> web.Response:
        return web.Response(text=READ_ONLY, status=403, headers=HEADERS)

    # --- the stream

    async def _events(self, request: web.Request) -> web.StreamResponse:
        if self.watchers >= WATCHERS_MAX:
            text = f"{WATCHERS_MAX} pages are watched live already; this one shows what was when it was loaded\n"
            return web.Response(text=text, status=503, headers={**HEADERS, "Retry-After": "10"})
        self.watchers += 1
        try:
            return await self._watch(request, request.query.get("view", "/")[:ADDRESS_MAX])
        finally:
            self.watchers -= 1

    async def _watch(self, request: web.Request, path: str) -> web.StreamResponse:
        answer = web.StreamResponse(headers={**HEADERS, "Content-Type": "text/event-stream"})
        await answer.prepare(request)
        seen = request.headers.get("Last-Event-ID", request.query.get("since", ""))[:100]
        said_at, still = float("-inf"), STILL.get()  # a token that was taken away ends the stream too
        try:
            while request.transport is not None and not request.transport.is_closing() and still():
                board, _ = self.board(path, watched=True)
                news = board.news(seen, self._clock.utc(), self.look)
                if news or time.monotonic() - said_at >= BEAT_S:
                    async with asyncio.timeout(TAKE_S):
                        await answer.write(news or beat(self._clock.utc()))
                    seen, said_at = board.mark if news else seen, time.monotonic()
                await asyncio.sleep(EVERY_S)
        except (TimeoutError, ConnectionError):
            if request.transport is not None:
                request.transport.abort()  # what it did not take is not kept for it
        return answer

    def _complain(self, what: str, error: Exception) -> None:
        """Once for each error; of errors without end no more than a few."""
        if repr(error) not in self._complained and len(self._complained) < COMPLAINTS_MAX:
            self._complained.add(repr(error))
            log.error("the page: %r cannot be made: a bug in rankpulse, please report it", what[:100], exc_info=error)


def _path(request: web.Request) -> str:
    """As the browser asked for it, so that a name keeps its escapes."""
    return request.rel_url.raw_path[:ADDRESS_MAX]


def _html(request: web.Request, raw: bytes, squeezed: bytes, status: int) -> web.Response:
    headers = {**HEADERS, "Vary": "Accept-Encoding"}
    body = raw
    if "gzip" in request.headers.get("Accept-Encoding", ""):
        body, headers = squeezed, {**headers, "Content-Encoding": "gzip"}
    return web.Response(body=body, status=status, content_type="text/html", charset="utf-8", headers=headers)
