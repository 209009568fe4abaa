"""What operators ask about nodes: `cordon`, `uncordon`, `maintenance`. Requests: the monitor decides and answers."""

from typing import Any, Final

from rankpulse.cli import asking, books, show
from rankpulse.cli.failing import Failed
from rankpulse.core import node_requests as wanted
from rankpulse.core.keys import BadName, Keys, check_name
from rankpulse.core.records import Cordon, Maintenance
from rankpulse.core.settings import Settings
from rankpulse.store.api import Store

FOR_MAX_S: Final = 366 * 86_400.0  # of a cordon that is to end by itself; longer is without an end


async def cordon(
    settings: Settings, node: str, reason: str, *, drain: bool = False, for_s: float | None = None, author: str = ""
) -> str:
    """Ask for a node to be kept out of all rounds to come; returns the answer. Raises `Failed`.

    `drain`: jobs on it leave it after their next checkpoint. `for_s`: lifted after so long, None: by a person.
    `author` "": whoever runs this.
    """
    keys, reason = Keys(settings.cluster), asking.good_reason(reason)
    if for_s is not None and not 0 < for_s <= FOR_MAX_S:
        raise Failed(f"--for {for_s:g}: seconds, more than 0 and at most {FOR_MAX_S:.0f}")
    key = keys.cordon(_named(node))
    async with books.opened(settings) as store:
        stands = await books.one(store, key, Cordon)
        if stands is not None and stands.owner == "person":
            by = f"{show.plain(stands.author)}: {show.plain(stands.reason)}"
            raise Failed(f"{node} is cordoned already, by {by}. To change that, uncordon it first")
        unknown = await _unknown(store, keys, node)
        answer = await _asked(store, keys, wanted.CORDON, node, reason, drain=drain, for_s=for_s or 0.0, author=author)
        if answer:
            return answer
        made = await books.one(store, key, Cordon)
        if made is None or made.owner != "person":
            raise Failed(await asking.refused(store, keys))
    then = (
        "jobs on it leave it after their next checkpoint" if drain else "one that stands goes on until its next restart"
    )
    until = f" for {show.span(for_s)}" if for_s else ""
    return f"{node} takes part in no further round{until}; {then}{unknown}"


async def uncordon(settings: Settings, node: str, reason: str, *, author: str = "") -> str:
    """Ask for a node to be let in again; returns the answer. Raises `Failed`."""
    keys, reason = Keys(settings.cluster), asking.good_reason(reason)
    key = keys.cordon(_named(node))
    async with books.opened(settings) as store:
        if await store.get(key) is None:
            raise Failed(f"{node} is not cordoned; see `rankpulse status`")
        answer = await _lifted(store, keys, key, wanted.UNCORDON, node, reason, author)
        other = await books.one(store, keys.maintenance(node), Maintenance)
    return answer or _free(node, "is cordoned no more", "is in maintenance", other)


async def maintenance(settings: Settings, node: str, reason: str) -> str:
    """Ask to take a node into maintenance; returns the answer. Raises `Failed`."""
    keys, reason = Keys(settings.cluster), asking.good_reason(reason)
    key = keys.maintenance(_named(node))
    async with books.opened(settings) as store:
        stands = await books.one(store, key, Maintenance)
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
    key = keys.maintenance(_named(node))
    async with books.opened(settings) as store:
        if await store.get(key) is None:
            raise Failed(f"{node} is not in maintenance")
        answer = await _lifted(store, keys, key, wanted.MAINTENANCE_END, node, reason)
        other = await books.one(store, keys.cordon(node), Cordon)
    return answer or _free(node, "is out of maintenance", "is cordoned", other)


async def _lifted(store: Store, keys: Keys, key: str, kind: str, node: str, reason: str, author: str = "") -> str:
    """Ask for what stands under `key` to go; "" when it is gone. Raises `Failed` when it stays."""
    answer = await _asked(store, keys, kind, node, reason, author=author)
    if not answer and await store.get(key) is not None:
        raise Failed(await asking.refused(store, keys))
    return answer


def _free(node: str, done: str, still: str, other: Cordon | Maintenance | None) -> str:
    """`other`: what else may keep it out."""
    if other is None:
        return f"{node} may take part in rounds again"
    return f"{node} {done}; it {still} still, by {show.plain(other.author)}: {show.plain(other.reason)}"


def _named(node: str) -> str:
    try:
        return check_name(node, "node")
    except BadName as error:
        raise Failed(str(error)) from error


async def _asked(store: Store, keys: Keys, kind: str, node: str, reason: str, **more: Any) -> str:
    """Ask and wait; "" when there is an answer in time."""
    request = await asking.ask(store, keys, kind, reason, node=node, **more)
    return "" if await asking.answered(store, keys, request) else asking.unanswered(request)


async def _unknown(store: Store, keys: Keys, node: str) -> str:
    known = await store.get(keys.claim(node)) is not None
    return "" if known else f". No agent of the name {node} was ever seen: is it spelled right?"
