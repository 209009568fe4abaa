"""`rankpulse evidence`: what the agents kept of an incident, fetched from their nodes, and what to do with it."""

import asyncio
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

from rankpulse.cli import books, explain, incidents, show
from rankpulse.cli.ckpt_progress import bar
from rankpulse.cli.failing import Failed
from rankpulse.cli.fetching import Fetcher, Outcome
from rankpulse.core.keys import Keys, check_name
from rankpulse.core.naming import names_in_words
from rankpulse.core.records import DumpRow, Finding, NodeState
from rankpulse.core.settings import Settings
from rankpulse.core.stacks import ranks_in_words
from rankpulse.core.words import size


async def fetch(
    settings: Settings, name: str, out: str | None, ranks: Sequence[int], time_s: float
) -> tuple[str, list[Outcome]]:
    """The dumps of the incident called `name`, and where they lie now. Raises `Failed` and `StoreError`."""
    incident = await incidents.one(settings, name)
    found = await explain.finding(settings, incident)
    dumps = wanted(incident.id, found, ranks)
    place = Path(out or f"evidence-{incident.id}")
    states = await _states(settings, {dump.node for dump in dumps})
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        return str(place), await _fetch(settings, place, dumps, states, time_s)
    except OSError as error:
        raise Failed(f"cannot write to {show.plain(place)}: {error.strerror}") from None


def wanted(incident: str, found: Finding | None, ranks: Collection[int]) -> list[DumpRow]:
    """Of all dumps that are known those of `ranks`, all where none are named. Raises `Failed`."""
    if found is None:
        raise Failed(f"no evidence was collected for {incident}: `rankpulse explain {incident}` has all that is known")
    if not found.dumps:
        raise Failed(f"no agent kept a full dump for {incident}: see what is missing in `rankpulse explain {incident}`")
    dumps = [dump for dump in found.dumps if not ranks or dump.rank in ranks]
    if not dumps:
        known = ranks_in_words(dump.rank for dump in found.dumps if dump.rank >= 0)
        raise Failed(f"no full dump of {ranks_in_words(ranks)} is known for {incident}; there are those of {known}")
    return [dump for dump in dumps if check_name(dump.node, "node")]


async def _states(settings: Settings, nodes: Iterable[str]) -> dict[str, NodeState | None]:
    keys = Keys(settings.cluster)
    async with books.opened(settings) as store:
        return {node: await books.one(store, keys.state(node), NodeState) for node in sorted(nodes)}


async def _fetch(
    settings: Settings, place: Path, dumps: list[DumpRow], states: dict[str, NodeState | None], time_s: float
) -> list[Outcome]:
    from rankpulse.monitor import clock as clocks
    from rankpulse.monitor.main import boot_id
    from rankpulse.store.secret import Tokens

    clock = clocks.system()
    tokens = Tokens(settings.probe.token_file, "probe.token_file", clock=clock.now)
    with bar("fetching", sum(dump.bytes for dump in dumps)) as done:
        fetcher = Fetcher(place, tokens, boot_id=boot_id(), clock=clock, until=clock.now() + time_s, done=done)
        theirs = (fetcher.node(node, state, [d for d in dumps if d.node == node]) for node, state in states.items())
        return [outcome for outcomes in await asyncio.gather(*theirs) for outcome in outcomes]


def as_json(place: str, outcomes: list[Outcome]) -> dict[str, Any]:
    return {
        "directory": place,
        "dumps": [
            {"node": o.dump.node, "rank": o.dump.rank, "name": o.dump.name, "path": o.path or None, "why": o.why}
            for o in outcomes
        ],
    }


def pickles(place: str, outcomes: list[Outcome]) -> int:
    """The dumps of ranks that are here, for torch's own analyser; how many. Raises `Failed`."""
    from rankpulse.cli import torch_pickles

    try:
        return torch_pickles.write(Path(place), {o.dump.rank: o.path for o in outcomes if o.path and o.dump.rank >= 0})
    except OSError as error:
        raise Failed(f"cannot write to {show.plain(place)}: {error.strerror}") from None


def page(place: str, outcomes: list[Outcome], made: int = 0) -> None:
    """What came, what did not and why, and what can be done with it. `made`: pickles for torch's own analyser."""
    out = show.console()
    here = [outcome for outcome in outcomes if not outcome.why]
    total = size(sum(outcome.dump.bytes for outcome in here))
    out.print(f"{len(here)} of {len(outcomes)} dumps ({total}) are in {show.plain(place)}", soft_wrap=True)
    for why, nodes in _failures(outcomes).items():
        out.print(f"  not from {names_in_words(nodes)}: {show.plain(why)}", soft_wrap=True)
    ranks = [outcome.path for outcome in here if outcome.dump.rank >= 0]
    if ranks:
        where = show.plain(place)
        out.print("\nwhat to do with them", style="bold")
        for command, what in (
            (f"rankpulse diagnose --flight-recorder {where}", "who froze the job, by these alone"),
            (f"python -m json.tool {show.plain(ranks[0])}", "read one"),
            (f"torchfrtrace {where}/torchfrtrace --prefix rank_", "torch's own analyser" + _how(made)),
        ):
            out.print(f"  {command}    # {what}", soft_wrap=True)


def _how(made: int) -> str:
    return f", over {made} pickles" if made else "; for that fetch once more with --pickles"


def _failures(outcomes: list[Outcome]) -> dict[str, list[str]]:
    """Reasons, each with its nodes."""
    found: dict[str, list[str]] = {}
    for outcome in outcomes:
        if outcome.why:
            found.setdefault(outcome.why, []).append(outcome.dump.node)
    return found
