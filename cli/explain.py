"""`rankpulse explain`: one incident on a page that a tired person can act on.

What happened and who first, what to do next; then who waits for whom, why, where all are; then what is missing, where
more lies, and the story. However many ranks there are: counts and ranges, never a wall of numbers.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from rankpulse.cli import books, show
from rankpulse.cli.status import advised
from rankpulse.core import todo
from rankpulse.core.incident_sections import sections
from rankpulse.core.incident_words import facts, headline, records
from rankpulse.core.keys import Keys
from rankpulse.core.records import Finding, Incident, RunAdvice
from rankpulse.core.settings import Settings
from rankpulse.core.stages import RECOMPUTATION


async def saving(settings: Settings, incident: Incident) -> RunAdvice | None:
    """How often its run is to save, as the monitor has it; None where nothing is known. Raises `StoreError`."""
    if not incident.run_uid:
        return None
    async with books.opened(settings) as store:
        return await books.one(store, Keys(settings.cluster).advice(incident.run_uid), RunAdvice)


async def finding(settings: Settings, incident: Incident) -> Finding | None:
    """What its evidence came to; None where there is none, or none that can be read. Raises `StoreError`."""
    async with books.opened(settings) as store:
        return await books.one(store, Keys(settings.cluster).finding(incident.id), Finding)


def as_json(incident: Incident, found: Finding | None, saves: RunAdvice | None = None) -> dict[str, Any]:
    """The incident's own fields, its finding, the next step in words, and how often its run is to save."""
    told: dict[str, Any] = msgspec.to_builtins(incident)
    told |= {"finding": msgspec.to_builtins(found), "saving": msgspec.to_builtins(saves)}
    return {**told, "what_to_do": list(todo.todo(incident, found))}


def page(incident: Incident, found: Finding | None = None, saves: RunAdvice | None = None) -> None:
    """Everything about one incident, the next step first."""
    out = show.console()
    out.print(f"{show.plain(headline(incident, found))}\n", style="bold", soft_wrap=True)
    show.facts(out, (*facts(incident, found, _when), *_saving(incident, saves)))
    for title, lines in (*sections(incident, found), *records(incident)):
        told = list(lines)
        if told:
            out.print(f"\n{title}", style="bold")
        for line in told:
            out.print(f"  {show.plain(line)}", soft_wrap=True)


def _when(at: float) -> str:
    return f"{show.clock_time(at)} ({show.ago(at)})"


def _saving(i: Incident, saves: RunAdvice | None) -> Iterator[tuple[str, str]]:
    """What saving more often or more seldom would have to do with what it cost."""
    if saves is None:
        return
    again = i.lost_s.get(RECOMPUTATION, 0.0)
    done = f"; work done again: {again:.0f} s, on average it is half of that interval" if again else ""
    yield "saving", f"{advised(msgspec.to_builtins(saves))}{done}"
