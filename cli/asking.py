"""Requests to the monitor that leads: written, waited for, and told in a sentence. It decides and answers."""

import asyncio
import secrets
import time
from typing import Any, Final

from rankpulse.cli import books, show
from rankpulse.cli.failing import Failed
from rankpulse.core import codec
from rankpulse.core.keys import Keys
from rankpulse.core.records import Leader, Request
from rankpulse.store.api import Guard, Put, Store, Uncertain

WAIT_S: Final = 10.0
REASON_MAX: Final = 500


def good_reason(reason: str) -> str:
    """A reason people can read later. Raises `Failed`."""
    reason = show.plain(" ".join(reason.split()))
    if not reason or len(reason) > REASON_MAX:
        raise Failed(f"--reason must say why, in 1 to {REASON_MAX} characters: others will read it in the incident")
    return reason


async def ask(
    store: Store, keys: Keys, kind: str, reason: str, *, run_uid: str = "", author: str = "", **more: Any
) -> Request:
    """Write a request; `author` "": whoever runs this; `more`: further fields of it.

    Raises `Failed` when nobody would answer it.
    """
    if await store.get(keys.leader()) is None:
        raise Failed("no monitor leads at present, so nobody would answer: start one with `rankpulse monitor`")
    request = Request(
        id=f"{int(time.time()):d}-{secrets.token_hex(4)}",
        kind=kind,
        run_uid=run_uid,
        author=author or show.author(),
        reason=reason,
        at=time.time(),
        **more,
    )
    await _create(store, keys.request(request.id), codec.encode(request))
    return request


async def _create(store: Store, key: str, value: bytes) -> None:
    try:
        await store.txn([Guard(key, 0)], [Put(key, value)])
    except Uncertain:  # the key is new and random: if it stands there, it was us
        if await store.get(key) is None:
            await store.txn([Guard(key, 0)], [Put(key, value)])


async def answered(store: Store, keys: Keys, request: Request) -> bool:
    """The monitor erases a request once it has acted on it or refused it; False: not in time."""
    deadline = time.monotonic() + WAIT_S
    while await store.get(keys.request(request.id)) is not None:
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(0.2)
    return True


def unanswered(request: Request) -> str:
    return f"asked (request {request.id}); no answer within {WAIT_S:.0f} s. See `rankpulse incidents` later"


async def refused(store: Store, keys: Keys) -> str:
    leader = (await books.read(store, keys, keys.leader())).first(Leader)
    where = f"the log of monitor {leader.monitor}" if leader else "the monitor's log"
    return f"the monitor refused; the reason is in {where}"
