"""What the agent serves: its socket, /metrics and /healthz, direct looks. What cannot be served is said."""

import asyncio
import contextlib
import os
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from rankpulse.agent.http import CatalogueCollector, HttpServer
from rankpulse.agent.probe import ProbeServer
from rankpulse.agent.report import Report
from rankpulse.agent.sock import LocalSocket, Session
from rankpulse.core import catalogue
from rankpulse.store.api import StoreError


class Endpoints:
    """`metrics`: their samples; `able(source, problem)` is told how each endpoint does; `sessions`: of the socket;
    `probe`: answers direct looks, None: nobody does."""

    def __init__(
        self,
        run_dir: str,
        listen: str,
        report: Report,
        metrics: Callable[[], Any],
        able: Callable[[str, str], None],
        sessions: Mapping[str, Session],
        probe: ProbeServer | None = None,
    ) -> None:
        self._sessions, self._probe = sessions, probe
        self._path, self._listen, self._report = os.path.join(run_dir, "agent.sock"), listen, report
        self._metrics, self._able = metrics, able
        self._socket: LocalSocket | None = None
        self._http: HttpServer | None = None

    async def open(self) -> None:
        """Never raises: the agent goes on without."""
        await self.open_socket()
        if self._listen:
            self._http = HttpServer(CatalogueCollector(catalogue.AGENT, self._metrics), self._report.health)
            await self._try("http", self._http.open(self._listen), f"{self._listen}: ")
        if self._probe:
            await self._try("probe", self._probe.open(), f"{self._probe.listen}: ")

    async def open_socket(self) -> None:
        """Also again, when its directory was made anew."""
        if self._socket:
            await self._socket.close()
        answers = {"ping": self._report.ping, "runs": self._report.runs}
        self._socket = LocalSocket(self._path, answers, self._sessions)
        await self._try("socket", self._socket.open())

    async def close(self) -> None:
        for one in (self._socket, self._http, self._probe):
            with contextlib.suppress(OSError, TimeoutError):
                if one:
                    await asyncio.wait_for(one.close(), 1.0)

    async def _try(self, source: str, opening: Coroutine[Any, Any, Any], where: str = "") -> None:
        try:
            await opening
        except (OSError, ValueError, StoreError) as error:
            text = (error.strerror if isinstance(error, OSError) else None) or str(error)
            self._able(source, f"not served: {where}{text}; the agent goes on without")
        else:
            self._able(source, "")
