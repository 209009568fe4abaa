"""Who is paged in a drill: takes what the monitor posts to a webhook on this machine, in the form that Slack wants."""

import time
from typing import Self

from aiohttp import web


class Pager:
    """`pages`: (when, text), the first first."""

    def __init__(self) -> None:
        self.pages: list[tuple[float, str]] = []
        self._port = 0

    async def __aenter__(self) -> Self:
        application = web.Application()
        application.router.add_post("/page", self._take)
        self._runner = web.AppRunner(application, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self._port = int(self._runner.addresses[0][1])
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    @property
    def target(self) -> str:
        """Itself, as settings of a monitor."""
        url = f"http://127.0.0.1:{self._port}/page"
        return f'[[webhook.targets]]\nname = "pager"\nkind = "slack"\nurl = "{url}"\nevents = ["page"]\n'

    async def _take(self, request: web.Request) -> web.Response:
        self.pages.append((time.time(), str((await request.json())["text"])))
        return web.Response(text="ok")

    def since(self, since: float) -> list[str]:
        return [text for at, text in self.pages if at >= since]
