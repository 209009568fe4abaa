"""What operators ask about nodes: `cordon`, `uncordon`, `maintenance`. Requests: the monitor decides and answers."""

from typing import Any

from rankpulse.cli import asking, books, show
from rankpulse.cli.failing import Failed
from rankpulse.core import node_requests as wanted
from rankpulse.core.keys import BadName, Keys, check_name
from rankpulse.core.records import Cordon, Maintenance
from rankpulse.core.settings import Settings
from rankpulse.store.api import Store


async def cordon(settings: Settings, node: str, reason: str, *, drain: bool = False, for_s: float = 0.0) -> str:
    """Ask for a node to be kept out of all rounds to come; returns the answer. Raises `Failed`.

    `drain`: jobs on it leave it after their next checkpoint. `for_s`: lifted after so long, 0: by a person.
    """
    keys, reason = Keys(settings.cluster), asking.good_reason(reason)
    if for_s < 0:
        raise Failed(f"--for {for_s:g}: seconds, more than 0")
    key = keys.cordon(_named(node))
    async with books.opened(settings) as store:
        stands = await _of(store, keys, key, Cordon)
        if stands is not None and stands.owner == "person":
            by = f"{show.plain(stands.author)}: {show.plain(stands.reason)}"
            raise Failed(f"{node} is cordoned already, by {by}. To change the reason, uncordon it first")
        unknown = await _unknown(store, keys, node)
        answer = await _asked(store, keys, wanted.CORDON, node, reason, drain=drain, for_s=for_s)
        if answer:
            return answer
        made = await _of(store, keys, key, Cordon)
        if made is None or made.owner != "person":
            raise Failed(await asking.refused(store, keys))
    then = (
        "jobs on it leave it after their next checkpoint" if drain else "one that stands goes on until its next restart"
    )
    until = f" for {show.span(for_s)}" if for_s else ""
    return f"{node} takes part in no further round{until}; {then}{unknown}"


async def uncordon(settings: Settings, node: str, reason: str) -> str:
    """Ask for a node to be let in again; returns the answer. Raises `Failed`."""
    keys, reason = Keys(settings.cluster), asking.good_reason(reason)
    return await _lifted(
        settings, keys.cordon(_named(node)), node, reason, wanted.UNCORDON, "is not cordoned; see `rankpulse status`"
    )


async def maintenance(settings: Settings, node: str, reason: str) -> str:
    """Ask to take a node into maintenance; returns the answer. Raises `Failed`."""
    keys, reason = Keys(settings.cluster), asking.good_reason(reason)
    key = keys.maintenance(_named(node))
    async with books.opened(settings) as store:
        stands = await _of(store, keys, key, Maintenance)
        if stands is not None:
            by = f"{show.plain(stands.author)}: {show.plain(stands.reason)}"
            raise Failed(f"{node} is in maintenance already, by {by}")
        unknown = await _unknown(store, keys, node)
        answer = await _asked(store, keys, wanted.MAINTENANCE, node, reason)
        if answer:
            return answer
        if await store.get(key) is None:
            raise Failed(await asking.refused(store, keys))
    text = "its silence is nobody's fault, it takes part in no further round, and jobs on it leave it"
    return f"{node} is in maintenance: {text} after their next checkpoint{unknown}"


async def maintenance_over(settings: Settings, node: str, reason: str) -> str:
    """Ask to end a maintenance; returns the answer. Raises `Failed`."""
    keys, reason = Keys(settings.cluster), asking.good_reason(reason)
    return await _lifted(
        settings, keys.maintenance(_named(node)), node, reason, wanted.MAINTENANCE_END, "is not in maintenance"
    )


async def _lifted(settings: Settings, key: str, node: str, reason: str, kind: str, absent: str) -> str:
    keys = Keys(settings.cluster)
    async with books.opened(settings) as store:
        if await store.get(key) is None:
            raise Failed(f"{node} {absent}")
        answer = await _asked(store, keys, kind, node, reason)
        if answer:
            return answer
        if await store.get(key) is not None:
            raise Failed(await asking.refused(store, keys))
    return f"{node} may take part in rounds again"


def _named(node: str) -> str:
    try:
        return check_name(node, "node")
    except BadName as error:
        raise Failed(str(error)) from error


async def _asked(store: Store, keys: Keys, kind: str, node: str, reason: str, **more: Any) -> str:
    """Ask and wait; "" when there is an answer in time."""
    request = await asking.ask(store, keys, kind, reason, node=node, **more)
    return "" if await asking.answered(store, keys, request) else asking.unanswered(request)


async def _of(store: Store, keys: Keys, key: str, kind: type[books.T]) -> books.T | None:
    return (await books.read(store, keys, key)).first(kind) if await store.get(key) is not None else None


async def _unknown(store: Store, keys: Keys, node: str) -> str:
    known = await store.get(keys.claim(node)) is not None
    return "" if known else f". No agent of the name {node} was ever seen: is it spelled right?"
