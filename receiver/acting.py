"""What every actuator is: it starts one job again, however often it is asked to for the same decision."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from rankpulse.receiver.deciding import Plan


class Refused(Exception):
    """It will not be done, now or later; the text says why."""


class Later(Exception):
    """It cannot be done now; the text says why. It is tried again."""


class Ran(NamedTuple):
    """How a program ended. `code`: negative for a signal. `output`: stdout and stderr, cut off where it is long."""

    code: int
    output: str


class Answer(NamedTuple):
    """Of an API server."""

    status: int
    tree: Mapping[str, object]


class Programs(Protocol):
    """Runs programs. What changes something is told apart, so that a dry run can leave it out."""

    async def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        environ: Mapping[str, str] | None = None,
        output_max: int = 65_536,
    ) -> Ran:
        """Raises `Later` when it cannot be started or takes too long."""
        ...


class Api(Protocol):
    """An API server of Kubernetes. Raises `Later` when it does not answer."""

    async def get(self, path: str) -> Answer: ...

    async def patch(self, path: str, body: Mapping[str, object]) -> Answer: ...


class Scribe(Protocol):
    """Of one action: its audit and what it remembers over restarts of ours. Each call is on disk when it returns."""

    def note(self, what: str, text: str) -> None: ...

    def remember(self, name: str, value: str) -> None: ...

    def remembered(self, name: str) -> str | None: ...


class Actuator(Protocol):
    async def restart(self, plan: Plan, scribe: Scribe) -> str:
        """Start it again, or find that it was; says what came of it. Raises `Refused` or `Later`."""
        ...

    async def would(self, plan: Plan, scribe: Scribe) -> list[str]:
        """What `restart` would do as things are now, step by step; nothing is changed. Raises the same."""
        ...
