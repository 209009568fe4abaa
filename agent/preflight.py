"""The gate before a round: a node is looked at when one of its torchruns asks to join, and again while it waits.

What takes no time is done at once. What may hang is looked at beside, and the torchrun's joiner says so meanwhile: the
others hear at once that it asks for a round, so that nobody stands in a collective for the sake of a look.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from rankpulse.agent.clock import Clock
from rankpulse.agent.log import Log
from rankpulse.agent.mirror import Mirror
from rankpulse.agent.preflight_child import space
from rankpulse.agent.preflight_look import Asked, Look
from rankpulse.agent.preflight_orphans import Leftovers
from rankpulse.agent.torchruns import Torchrun
from rankpulse.core import preflight
from rankpulse.core.preflight import FAIL, UNKNOWN, WARN, Finding, Space
from rankpulse.core.records import Gate, Joiner, Record
from rankpulse.core.settings import PreflightSettings

SOURCE: Final = "preflight"  # its name among the agent's capabilities


class Standing(NamedTuple):
    """How a torchrun's wish to join stands. Neither: it may."""

    checking: bool = False
    refused: str = ""


_CHECKING: Final = Standing(checking=True)


@dataclass(slots=True, eq=False)
class _Ask:
    """One join of one torchrun."""

    join: int
    standing: Standing = _CHECKING
    failures: int = 0
    task: asyncio.Task[None] | None = None


@dataclass(slots=True)
class Preflight:
    """One per agent. `wake`: a standing has changed; `able`: how it stands, for the agent's capabilities."""

    settings: PreflightSettings
    node: str
    run_dir: str
    look: Look
    leftovers: Leftovers
    mirror: Mirror
    clock: Clock
    log: Log
    wake: Callable[[], None]
    able: Callable[[str, str], None]
    _asks: dict[Torchrun, _Ask] = field(default_factory=dict)
    _lacks: str = ""  # what could not be found out the last time

    def standing(self, one: Torchrun) -> Standing:
        """To be asked again and again while it waits for a round."""
        if not self.settings.enabled or one.me is None:
            return Standing()
        ask = self._asks.get(one)
        if ask is None or ask.join != one.me.join:
            self._drop(one)
            ask = self._asks[one] = _Ask(one.me.join)
            if not self.look.needed() and not self.leftovers.in_slots(one):
                self._conclude(ask, self._at_once())
            ask.task = asyncio.create_task(self._keep_looking(one, ask), name="preflight")
        return ask.standing

    async def close(self) -> None:
        tasks = [ask.task for ask in self._asks.values() if ask.task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._asks.clear()

    # -- looking ------------------------------------------------------------------------------------------------
    async def _keep_looking(self, one: Torchrun, ask: _Ask) -> None:
        """As long as it asks: until it may, then seldom, for a spare may wait for days."""
        try:
            if ask.standing.checking:
                await self._look(one, ask)
            while True:
                await asyncio.sleep(self._again_s(ask))
                if one.me is None or one.me.join != ask.join:
                    return
                await self._look(one, ask)
        finally:
            if self._asks.get(one) is ask:
                self._drop(one)

    def _again_s(self, ask: _Ask) -> float:
        if not ask.failures:
            return self.settings.again_s
        return preflight.again_s(ask.failures, self.settings.retry_s, self.settings.retry_max_s)

    async def _look(self, one: Torchrun, ask: _Ask) -> None:
        """Never fails for what it looks at; our own mistakes keep nobody out."""
        try:
            findings = await self._examine(one)
        except Exception as error:
            findings = [Finding("preflight", UNKNOWN, f"failed: {type(error).__name__}: {error}"[:200])]
        self._conclude(ask, findings)
        self.wake()

    async def _examine(self, one: Torchrun) -> list[Finding]:
        findings = self._at_once()
        left = self.leftovers.in_slots(one)
        if self.look.needed():
            seen = await self.look.at(Asked(one.owner, self.leftovers.run_of(one)))
            findings += seen.findings
            left += self.leftovers.on_gpus(one, seen.holders)
        return findings + await self.leftovers.end(one, left)

    def _at_once(self) -> list[Finding]:
        said = _said(self.node, (*self.mirror.all(self.mirror.keys.rdzv()), *self.mirror.all(self.mirror.keys.gates())))
        return at_once(self.settings, self.run_dir, self.clock.utc(), said)

    # -- telling ------------------------------------------------------------------------------------------------
    def _conclude(self, ask: _Ask, findings: list[Finding]) -> None:
        refused = preflight.refusal(findings)
        ask.standing, self._lacks = Standing(refused=refused), preflight.lacking(findings)
        ask.failures = ask.failures + 1 if refused else 0
        for finding in findings:
            if finding.level in (WARN, FAIL):
                text = f"preflight: {finding.check}: {finding.text}"
                remedy = f" ({finding.remedy})" if finding.remedy else ""
                self.log.change(text, "warning", text + remedy)
        self._tell()

    def _drop(self, one: Torchrun) -> None:
        ask = self._asks.pop(one, None)
        if ask and ask.task and ask.task is not asyncio.current_task():
            ask.task.cancel()
        self._tell()

    def _tell(self) -> None:
        """What keeps anybody out at present, else what could not be found out the last time."""
        refused = [ask.standing.refused for ask in self._asks.values() if ask.standing.refused]
        self.able(SOURCE, refused[0] if refused else self._lacks)


def at_once(settings: PreflightSettings, run_dir: str, utc: float, said: Iterable[tuple[str, float]]) -> list[Finding]:
    """What takes no time: the run directory, which the agent and the jobs use all the time anyway, and the clock."""
    return [
        preflight.of_space("run directory", Space(**space(run_dir, entering=False)), settings.run_dir_free_mb),
        preflight.of_clock(utc, said, settings.clock_warn_s),
    ]


def _said(node: str, records: Iterable[Record]) -> list[tuple[str, float]]:
    """UTC of others' records."""
    said = [(record.node, record.at) for record in records if isinstance(record, Joiner) and record.node != node]
    return said + [("the monitor", record.at) for record in records if isinstance(record, Gate)]
