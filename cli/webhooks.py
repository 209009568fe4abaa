"""What `rankpulse webhook` does: asks the leading monitor, reads the outbox, prints it."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from rankpulse.cli import asking, books, show
from rankpulse.cli.failing import Failed
from rankpulse.core import outbox_requests
from rankpulse.core.fold_outbox import DEAD, DELIVERED, PENDING, WITHDRAWN
from rankpulse.core.keys import Keys, check_name
from rankpulse.core.records import Outgoing
from rankpulse.core.settings import Settings
from rankpulse.store.api import Store

LOOK_EVERY_S: Final = 0.2


async def test(settings: Settings, target: str, reason: str) -> list[Outgoing]:
    """Ask for a test and wait until every target was told or not. Raises `Failed`."""
    keys, reason = Keys(settings.cluster), asking.good_reason(reason)
    if target:
        check_name(target, "target")
    async with books.opened(settings) as store:
        request = await asking.ask(store, keys, outbox_requests.TEST, reason, about=target)
        if not await asking.answered(store, keys, request):
            raise Failed(asking.unanswered(request))
        event = outbox_requests.id_of_test(request)
        deadline = time.monotonic() + settings.webhook.timeout_s + asking.WAIT_S
        while True:
            found = [one for one in await _letters(store, keys) if one.event == event]
            if not found:
                about = f"target {target}" if target else "webhook target"
                raise Failed(
                    f"{await asking.refused(store, keys)}. It knows no {about}: [[webhook.targets]] in its own settings"
                )
            if all(one.state != PENDING for one in found) or time.monotonic() > deadline:
                return found
            await asyncio.sleep(LOOK_EVERY_S)


async def every(settings: Settings, *, everything: bool) -> list[Outgoing]:
    async with books.opened(settings) as store:
        letters = await _letters(store, Keys(settings.cluster))
    return [one for one in letters if everything or one.state in (PENDING, DEAD)]


async def retry(settings: Settings, event: str, reason: str) -> str:
    """Ask for dead letters to be tried anew; returns what came of it. Raises `Failed`."""
    keys, reason = Keys(settings.cluster), asking.good_reason(reason)
    async with books.opened(settings) as store:
        dead = [one for one in await _letters(store, keys) if _is_meant(one, event)]
        if not dead:
            what = f"{show.plain(event)} was not" if event else "nothing was"
            raise Failed(f"{what} given up, so nothing is tried anew: rankpulse webhook ls")
        request = await asking.ask(store, keys, outbox_requests.RETRY, reason, about=event)
        if not await asking.answered(store, keys, request):
            return asking.unanswered(request)
    return f"{len(dead)} tried anew: rankpulse webhook ls"


def _is_meant(letter: Outgoing, event: str) -> bool:
    name = f"{letter.event}/{letter.target}"
    return letter.state == DEAD and bool(letter.incident) and event in ("", letter.event, name)


async def _letters(store: Store, keys: Keys) -> list[Outgoing]:
    known = (await books.read(store, keys, keys.outbox())).of(Outgoing)
    return sorted(known, key=lambda one: (one.first_at, one.event, one.target))


def row(letter: Outgoing) -> dict[str, Any]:
    """For programs; without the event itself."""
    told = msgspec.to_builtins(letter)
    return {name: value for name, value in told.items() if name not in ("v", "body")}


def page(letters: Sequence[Outgoing]) -> None:
    out = show.console()
    if not letters:
        out.print("nothing waits to be told, and nothing was given up")
        return
    rows = [(one.event, one.target, one.state, one.attempts, show.ago(one.first_at), _note(one)) for one in letters]
    show.table(out, ("event", "target", "state", "attempts", "since", ""), rows)


def _note(letter: Outgoing) -> str:
    if letter.state == DELIVERED:
        return f"taken {show.ago(letter.ended_at)}"
    if letter.state == WITHDRAWN:
        return f"not wanted any more {show.ago(letter.ended_at)}"
    if letter.state == DEAD:
        return f"given up {show.ago(letter.ended_at)}: {letter.last_error}"
    return letter.last_error


def trouble(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line for each target that was not told of something, for people."""
    lines = []
    for target in sorted({row["target"] for row in rows}):
        mine = [row for row in rows if row["target"] == target and row["incident"]]
        dead, failing = _count(mine, DEAD), [row for row in mine if row["state"] == PENDING and row["attempts"]]
        parts = [f"{dead} given up (rankpulse webhook ls)"] if dead else []
        parts += [f"{len(failing)} tried again and again: {failing[-1]['last_error']}"] if failing else []
        lines += [f"{target}: {'; '.join(parts)}"] if parts else []
    return lines


def _count(rows: Sequence[Mapping[str, Any]], state: str) -> int:
    return sum(row["state"] == state for row in rows)
