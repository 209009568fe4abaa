"""What operators say about acting at all: `arm`, `disarm`, `pause`, `resume`, and the breaker.

The words on arming are written by the operator himself: they hold from when they stand, whether a monitor leads or not.
"""

import time
from typing import Final, NamedTuple

from rankpulse.cli import asking, books, show
from rankpulse.cli.failing import Failed
from rankpulse.cli.operate import find_run, paused
from rankpulse.core import codec, modes
from rankpulse.core.keys import Keys
from rankpulse.core.node_requests import BREAKER_CLOSE
from rankpulse.core.records import Arm, Breaker, Record, RunMode
from rankpulse.core.settings import Settings
from rankpulse.store.api import Store, Uncertain


async def arm(settings: Settings, *, armed: bool, reason: str, author: str = "") -> str:
    """Allow or forbid orders in the cluster; returns what is so now. `author` "", here and below: whoever runs this."""
    record = Arm(armed=armed, author=author or show.author(), reason=asking.good_reason(reason), at=time.time())
    async with books.opened(settings) as store:
        await _put(store, Keys(settings.cluster).arm(), record)
    done = "armed: the monitor may order restarts" if armed else "disarmed: the monitor observes only"
    return f"cluster {settings.cluster} is {done} (by {record.author}: {record.reason})"


class Consent(NamedTuple):
    """What else is a reason for a restart of one run; None: as it was."""

    on_non_finite: bool | None = None
    on_corruption: bool | None = None

    def over(self, before: RunMode | None) -> "Consent":
        """What was said before stays, unless something else is said now."""
        if before is None:
            return self
        numbers = before.restart_on_non_finite if self.on_non_finite is None else self.on_non_finite
        replicas = before.restart_on_corruption if self.on_corruption is None else self.on_corruption
        return Consent(numbers, replicas)

    def words(self) -> str:
        """As they follow `armed`."""
        said = ((self.on_non_finite, "of numbers that are not finite"), (self.on_corruption, "its replicas differ"))
        return "".join(f", {'also' if word else 'but not'} because {what}" for word, what in said if word is not None)


AS_BEFORE: Final = Consent()


async def arm_run(
    settings: Settings, name: str, *, armed: bool, reason: str, consent: Consent = AS_BEFORE, author: str = ""
) -> str:
    """Allow or forbid orders for one run; returns what is so now. Raises `Failed`."""
    keys, mode = Keys(settings.cluster), modes.ARMED if armed else modes.OBSERVED
    async with books.opened(settings) as store:
        uid = (await find_run(store, keys, name)).run_uid
        before = await _mode(store, keys, uid)
        if before is not None and before.mode == modes.PAUSED:
            raise Failed(paused(before))
        await _set(store, keys, uid, mode, reason, consent=consent, author=author)
    return f"run {uid} is {'armed' if armed else 'only observed'}{consent.words()}"


async def pause(settings: Settings, name: str, reason: str, *, author: str = "") -> str:
    """Nothing is done about a run and nobody is paged, until it is resumed. Raises `Failed`."""
    keys = Keys(settings.cluster)
    async with books.opened(settings) as store:
        uid = (await find_run(store, keys, name)).run_uid
        before = await _mode(store, keys, uid)
        if before is not None and before.mode == modes.PAUSED:
            raise Failed(f"run {uid} is paused already, by {show.plain(before.author)}: {show.plain(before.reason)}")
        then = before.mode if before is not None else ""
        await _set(store, keys, uid, modes.PAUSED, reason, await _lasting(store, keys, uid, then), author=author)
    return f"run {uid} is paused: nothing is done about it and nobody is paged until `rankpulse resume {uid}`"


async def resume(settings: Settings, name: str, reason: str, *, author: str = "") -> str:
    """The run is again as it was before it was paused. Raises `Failed`."""
    keys, reason = Keys(settings.cluster), asking.good_reason(reason)
    async with books.opened(settings) as store:
        uid = (await find_run(store, keys, name)).run_uid
        before = await _mode(store, keys, uid)
        if before is None or before.mode != modes.PAUSED:
            raise Failed(f"run {uid} is not paused")
        then = await _lasting(store, keys, uid, before.then)
        if then:
            await _set(store, keys, uid, then, reason, author=author)
        else:
            await _delete(store, keys.run_mode(uid))
    now = {modes.ARMED: "armed", modes.OBSERVED: "only observed"}.get(then, "as the cluster is")
    return f"run {uid} is resumed: {now}"


async def breaker(settings: Settings) -> Breaker | None:
    """The breaker as the store has it; None: it was never opened."""
    keys = Keys(settings.cluster)
    async with books.opened(settings) as store:
        return await books.one(store, keys.breaker(), Breaker)


async def close_breaker(settings: Settings, reason: str) -> str:
    """Ask the monitor to act again; returns the answer. Raises `Failed`."""
    keys, reason = Keys(settings.cluster), asking.good_reason(reason)
    async with books.opened(settings) as store:
        stands = await books.one(store, keys.breaker(), Breaker)
        if stands is None or not stands.open:
            raise Failed("the breaker is closed: nothing to do")
        request = await asking.ask(store, keys, BREAKER_CLOSE, reason)
        if not await asking.answered(store, keys, request):
            return asking.unanswered(request)
        stands = await books.one(store, keys.breaker(), Breaker)
    if stands is not None and stands.open:
        return "closed, and open again at once: too much is silent or left out still. See `rankpulse status`"
    return "the breaker is closed: the monitor acts again"


async def _mode(store: Store, keys: Keys, uid: str) -> RunMode | None:
    return await books.one(store, keys.run_mode(uid), RunMode)


async def _lasting(store: Store, keys: Keys, uid: str, mode: str) -> str:
    """`mode`, or "" where it would arm the run against a `disarm` of the cluster that came after the run's own word.

    What is written now is the newest: without this a pause would undo the brake.
    """
    arm, own = await store.get(keys.arm()), await store.get(keys.run_mode(uid))
    if mode != modes.ARMED or arm is None or own is None or own.modified > arm.modified:
        return mode
    word = await books.one(store, keys.arm(), Arm)
    return mode if word is not None and word.armed else ""


async def _set(
    store: Store,
    keys: Keys,
    uid: str,
    mode: str,
    reason: str,
    then: str = "",
    consent: Consent = AS_BEFORE,
    *,
    author: str,
) -> None:
    author, reason = author or show.author(), asking.good_reason(reason)
    stays = consent.over(await _mode(store, keys, uid))
    record = RunMode(
        run_uid=uid,
        mode=mode,
        author=author,
        reason=reason,
        at=time.time(),
        then=then,
        restart_on_non_finite=stays.on_non_finite,
        restart_on_corruption=stays.on_corruption,
    )
    await _put(store, keys.run_mode(uid), record)


async def _put(store: Store, key: str, record: Record) -> None:
    """Writing the same twice is harmless, so doubt is answered by writing again."""
    try:
        await store.put(key, codec.encode(record))
    except Uncertain:
        await store.put(key, codec.encode(record))


async def _delete(store: Store, key: str) -> None:
    try:
        await store.delete(key)
    except Uncertain:
        await store.delete(key)
