"""Who speaks for a node: one agent, proven by its claim key. Every beat is fenced by it."""

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from rankpulse.agent.outbox import MAX_INC
from rankpulse.core import codec
from rankpulse.core.keys import Keys
from rankpulse.core.records import AgentClaim, Beat, NodeState, Observation
from rankpulse.store.api import Guard, Item, Put, Store, Uncertain


class NameTaken(Exception):
    """Another living agent speaks for the node; the text says which and what to do."""


class Me(NamedTuple):
    """This agent, as it claims a name. `token` is random per start; `floor` the highest incarnation known locally."""

    node: str
    token: str
    host: str
    boot_id: str
    pid: int


class Held(NamedTuple):
    """A claim that is ours, as of `revision` of its key."""

    inc: int
    revision: int


Sleep = Callable[[float], Awaitable[None]]
Warn = Callable[[str], None]


def taken_by(other: AgentClaim) -> NameTaken:
    return NameTaken(
        f"another agent named {other.node} runs on host {other.host}, pid {other.pid}: "
        "give this one another --node, or stop that one"
    )


async def check(store: Store, keys: Keys, me: Me) -> Held | None:
    """Our claim as it stands, or None when nobody holds the name. Raises `NameTaken`."""
    item = await store.get(keys.claim(me.node))
    if item is None:
        return None
    claim = _decode(item)
    if claim is None or claim.token == me.token:
        return Held(claim.inc, item.modified) if claim else None
    raise taken_by(claim)


async def take(
    store: Store,
    keys: Keys,
    me: Me,
    *,
    floor: int,
    interval_s: float,
    utc: float,
    sleep: Sleep = asyncio.sleep,
    warn: Warn = lambda _text: None,
) -> Held:
    """Claim the name with a new incarnation above `floor` and everything believable in the store.

    A holder that surely is dead is replaced at once; of another its beat is watched for three of its heartbeat
    intervals. Raises `NameTaken` when it moves or somebody else is quicker, and `StoreError`s.
    """
    key = keys.claim(me.node)
    item = await store.get(key)
    other = _decode(item) if item else None
    if item is not None and other is not None and other.token == me.token:
        return Held(other.inc, item.modified)  # an earlier attempt of ours that seemed to fail
    if other is not None and not _surely_dead(other, me) and await _beat_moves(store, keys, me.node, interval_s, sleep):
        raise taken_by(other)
    inc = max(floor, await _highest_seen(store, keys, me.node, warn)) + 1
    claim = AgentClaim(node=me.node, inc=inc, token=me.token, host=me.host, pid=me.pid, boot_id=me.boot_id, at=utc)
    with contextlib.suppress(Uncertain):  # what came of it is read below
        await store.txn([Guard(key, item.modified if item else 0)], [Put(key, codec.encode(claim))])
    held = await check(store, keys, me)
    if held is None or held.inc != inc:
        raise Uncertain("the claim of this node's name did not get through: trying again")
    return held


def _decode(item: Item) -> AgentClaim | None:
    """A claim that cannot be read, or be, is nobody's."""
    try:
        claim = codec.decode(AgentClaim, item.value)
    except codec.Refused:
        return None
    return claim if 0 <= claim.inc <= MAX_INC else None


def _surely_dead(other: AgentClaim, me: Me) -> bool:
    """Same boot of the same host, and no such process. Our own pid may be another's in another pid namespace."""
    if (other.host, other.boot_id) != (me.host, me.boot_id) or not me.boot_id or other.pid in (0, me.pid):
        return False
    try:
        os.close(os.pidfd_open(other.pid))
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


async def _beat_moves(store: Store, keys: Keys, node: str, interval_s: float, sleep: Sleep) -> bool:
    patience_s = 3 * max(interval_s, await _interval_of(store, keys, node)) + 1.0
    first = await store.get(keys.beat(node))
    for _ in range(8):
        await sleep(patience_s / 8)
        beat = await store.get(keys.beat(node))
        if beat is not None and (first is None or beat.modified != first.modified):
            return True
    return False


async def _interval_of(store: Store, keys: Keys, node: str) -> float:
    """The heartbeat interval that the holder of the name uses, 0 if unknown; at most a minute is believed."""
    item = await store.get(keys.state(node))
    if item is None:
        return 0.0
    try:
        return min(max(codec.decode(NodeState, item.value).interval_s, 0.0), 60.0)
    except codec.Refused:
        return 0.0


async def _highest_seen(store: Store, keys: Keys, node: str, warn: Warn) -> int:
    """The highest incarnation that left anything in the store (the claim may have been removed by hand)."""
    highest = 0
    for item in (await store.list(keys.node(node))).items:
        inc = _inc_of(keys, item)
        if inc > MAX_INC:
            warn(f"{item.key[:200]} names an incarnation that cannot be: it is ignored, remove it")
        else:
            highest = max(highest, inc)
    return highest


def _inc_of(keys: Keys, item: Item) -> int:
    """The incarnation in the key, or in the record; 0 when there is none."""
    parsed = keys.parse(item.key)
    if parsed is None or parsed.kind not in (Observation, Beat, AgentClaim):
        return 0
    if parsed.kind is Observation:
        return int(parsed.names["inc"])
    try:
        return int(getattr(codec.decode(parsed.kind, item.value), "inc", 0))
    except codec.Refused:
        return 0
