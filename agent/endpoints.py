"""What the agent serves: its socket, /metrics and /healthz, direct looks. What cannot be served is said."""

import asyncio
import contextlib
import os
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

from rankpulse.agent.http import CatalogueCollector, HttpServer
from rankpulse.agent.probe import ProbeServer
from rankpulse.agent.report import Report
from rankpulse.agent.sock import LocalSocket, Session
from rankpulse.core import catalogue
from rankpulse.store.api import StoreError
from rankpulse.web.door import Door

RETRY_S: Final = 1.0  # doubled each time,
RETRY_MAX_S: Final = 60.0  # up to this


class Endpoints:
    """`door`: of the HTTP port, made when it opens; `metrics`: their samples; `able(source, problem)` is told how each
    endpoint does; `sessions`: of the socket; `probe`: answers direct looks, None: nobody does."""

    def __init__(
        self,
        run_dir: str,
        listen: str,
        door: Callable[[], Door],
        report: Report,
        metrics: Callable[[], Any],
        able: Callable[[str, str], None],
        sessions: Mapping[str, Session],
        probe: ProbeServer | None = None,
    ) -> None:
        self._sessions, self._probe, self._door = sessions, probe, door
        self._path, self._listen, self._report = os.path.join(run_dir, "agent.sock"), listen, report
        self._metrics, self._able = metrics, able
        self._socket: LocalSocket | None = None
        self._http: HttpServer | None = None
        self._failed: dict[str, tuple[Callable[[], Coroutine[Any, Any, None]], str]] = {}  # with where it is to listen
        self._opening = asyncio.Lock()

    async def open(self) -> None:
        """Never raises: the agent goes on without, and `keep` tries again."""
        await self.open_socket()
        if self._listen:
            await self._try("http", self._open_http, f"{self._listen}: ")
        if self._probe:
            await self._try("probe", self._open_probe, f"{self._probe.listen}: ")

    async def open_socket(self) -> None:
        """Also again, when its directory was made anew."""
        await self._try("socket", self._open_socket)

    async def keep(self) -> None:
        """What could not be served is tried again, for as long as it takes: who has the port may just be ending."""
        pause_s = RETRY_S
        while True:
            await asyncio.sleep(pause_s)
            for source, (opening, where) in list(self._failed.items()):
                await self._try(source, opening, where)
            pause_s = min(2.0 * pause_s, RETRY_MAX_S) if self._failed else RETRY_S

    async def close(self) -> None:
        for one in (self._socket, self._http, self._probe):
            await _end(one)

    async def _open_socket(self) -> None:
        if self._socket:
            await self._socket.close()
        report = self._report
        answers = {"ping": report.ping, "runs": report.runs, "hardware": report.hardware.show}
        self._socket = LocalSocket(self._path, answers, self._sessions, report.socket_refused)
        await self._socket.open()

    async def _open_http(self) -> None:
        await _end(self._http)
        self._http = HttpServer(
            CatalogueCollector((catalogue.BUILD, *catalogue.AGENT, *catalogue.GPU, *catalogue.HOST), self._metrics),
            self._report.health,
            self._door(),
        )
        await self._http.open(self._listen)

    async def _open_probe(self) -> None:
        assert self._probe is not None
        await _end(self._probe)
        await self._probe.open()

    async def _try(self, source: str, opening: Callable[[], Coroutine[Any, Any, None]], where: str = "") -> None:
        """One at a time: the directory may be made anew while one is tried again."""
        async with self._opening:
            try:
                await opening()
            except (OSError, ValueError, StoreError) as error:
                text = (error.strerror if isinstance(error, OSError) else None) or str(error)
                self._failed[source] = opening, where
                self._able(source, f"not served: {where}{text}; the agent goes on without, and tries again")
            else:
                self._failed.pop(source, None)
                self._able(source, "")


async def _end(one: LocalSocket | HttpServer | ProbeServer | None) -> None:
    with contextlib.suppress(OSError, TimeoutError):
        if one:
            async with asyncio.timeout(1.0):
                await one.close()
