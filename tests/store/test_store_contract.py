"""One contract, two stores: what every room relies on holds in memory and with etcd alike."""

import asyncio
from typing import Any

import pytest
from support import eventually

from rankpulse.store.api import (
    Changes,
    Delete,
    Guard,
    LeaseLost,
    Listing,
    Lost,
    Put,
    StoreError,
    TooLarge,
    Uncertain,
    Unreachable,
)


@pytest.fixture
def prefix(cluster: str) -> str:
    return f"/rankpulse/{cluster}/"


async def test_put_get_delete(rig: Any, prefix: str) -> None:
    assert await rig.store.get(prefix + "a") is None
    first = await rig.store.put(prefix + "a", b"1")
    second = await rig.store.put(prefix + "a", b"2")
    item = await rig.store.get(prefix + "a")
    assert (item.key, item.value, item.created, item.modified) == (prefix + "a", b"2", first, second)
    assert second > first
    assert await rig.store.delete(prefix + "a") is True
    assert await rig.store.delete(prefix + "a") is False
    assert await rig.store.get(prefix + "a") is None


async def test_a_listing_is_in_the_order_of_the_last_writes(rig: Any, prefix: str) -> None:
    for name in ("b", "c", "a", "b"):
        last = await rig.store.put(prefix + name, name.encode())
    listing = await rig.store.list(prefix)
    assert [item.key for item in listing.items] == [prefix + name for name in ("c", "a", "b")]
    assert listing.revision >= last


async def test_a_prefix_ends_where_it_says(rig: Any, cluster: str) -> None:
    await rig.store.put(f"/rankpulse/{cluster}/a", b"")
    await rig.store.put(f"/rankpulse/{cluster}0/a", b"")
    assert len((await rig.store.list(f"/rankpulse/{cluster}/")).items) == 1
    assert await rig.store.delete_prefix(f"/rankpulse/{cluster}/") == 1
    assert await rig.store.delete_prefix(f"/rankpulse/{cluster}/") == 0
    assert await rig.store.get(f"/rankpulse/{cluster}0/a") is not None


async def test_the_empty_prefix_is_refused(rig: Any) -> None:
    for call in (rig.store.list(""), rig.store.delete_prefix("")):
        with pytest.raises(StoreError, match="empty prefix"):
            await call


async def test_create_once(rig: Any, prefix: str) -> None:
    guards, key = [Guard(prefix + "order", 0)], prefix + "order"
    outcomes = await asyncio.gather(*(rig.store.txn(guards, [Put(key, str(n).encode())]) for n in range(5)))
    assert [outcome.done for outcome in outcomes].count(True) == 1
    winner = [outcome.done for outcome in outcomes].index(True)
    assert (await rig.store.get(key)).value == str(winner).encode()


async def test_compare_and_swap_with_a_fence(rig: Any, prefix: str) -> None:
    fence = await rig.store.put(prefix + "leader", b"me")
    first = await rig.store.txn([Guard(prefix + "leader", fence)], [Put(prefix + "x", b"1"), Put(prefix + "y", b"1")])
    assert first.done
    assert (
        (await rig.store.get(prefix + "x")).modified == (await rig.store.get(prefix + "y")).modified == first.revision
    )
    await rig.store.put(prefix + "leader", b"another")
    second = await rig.store.txn([Guard(prefix + "leader", fence)], [Put(prefix + "x", b"2"), Delete(prefix + "y")])
    assert not second.done
    assert (await rig.store.get(prefix + "x")).value == b"1"
    assert await rig.store.get(prefix + "y") is not None


async def test_a_key_that_was_deleted_and_made_again_fails_the_old_guard(rig: Any, prefix: str) -> None:
    old = await rig.store.put(prefix + "k", b"1")
    await rig.store.delete(prefix + "k")
    await rig.store.put(prefix + "k", b"1")
    assert not (await rig.store.txn([Guard(prefix + "k", old)], [Delete(prefix + "k")])).done
    assert not (await rig.store.txn([Guard(prefix + "k", 0)], [Delete(prefix + "k")])).done


async def test_refused_transactions_change_nothing(rig: Any, prefix: str) -> None:
    many = [Put(f"{prefix}{n}", b"") for n in range(129)]
    twice = [Put(prefix + "a", b"1"), Put(prefix + "a", b"2")]
    for writes in (many, twice):
        with pytest.raises(StoreError):
            await rig.store.txn([], writes)
    assert (await rig.store.list(prefix)).items == ()


@pytest.mark.parametrize("size", [1536 * 1024, 3 * 1024 * 1024], ids=["for etcd", "for gRPC"])
async def test_what_is_too_large_says_so_and_changes_nothing(rig: Any, prefix: str, size: int) -> None:
    with pytest.raises(TooLarge, match="write less"):
        await rig.store.put(prefix + "a", bytes(size))
    with pytest.raises(TooLarge):
        await rig.store.txn(
            [Guard(prefix + "a", 0)], [Put(prefix + "a", bytes(size // 2)), Put(prefix + "b", bytes(size // 2))]
        )
    assert (await rig.store.list(prefix)).items == ()
    await rig.store.put(prefix + "a", bytes(1024 * 1024))


async def test_a_lease_carries_its_keys_away(rig: Any, prefix: str) -> None:
    lease = await rig.store.grant(1)
    await rig.store.put(prefix + "beat", b"1", lease=lease.id)
    await rig.store.put(prefix + "stays", b"1")
    assert (await rig.store.get(prefix + "beat")).lease == lease.id
    assert await rig.store.keep_alive(lease) >= 1
    await rig.pass_time(lease.ttl_s + 1)

    async def gone() -> bool:
        return await rig.store.get(prefix + "beat") is None

    await eventually(gone, 20, "the key goes with its lease")
    with pytest.raises(LeaseLost):
        await rig.store.keep_alive(lease)
    with pytest.raises(LeaseLost):
        await rig.store.put(prefix + "beat", b"2", lease=lease.id)
    with pytest.raises(LeaseLost):
        await rig.store.txn([], [Put(prefix + "beat", b"2", lease.id)])
    assert await rig.store.get(prefix + "stays") is not None


async def test_revoking_is_for_good_and_may_be_repeated(rig: Any, prefix: str) -> None:
    lease = await rig.store.grant(30)
    await rig.store.put(prefix + "a", b"", lease=lease.id)
    await rig.store.revoke(lease)
    await rig.store.revoke(lease)
    assert await rig.store.get(prefix + "a") is None


async def test_writing_without_the_lease_takes_the_key_out_of_it(rig: Any, prefix: str) -> None:
    lease = await rig.store.grant(30)
    await rig.store.put(prefix + "a", b"1", lease=lease.id)
    await rig.store.put(prefix + "a", b"2")
    await rig.store.revoke(lease)
    assert (await rig.store.get(prefix + "a")).value == b"2"


async def test_status(rig: Any) -> None:
    status = await rig.store.status()
    assert status.has_leader
    assert status.version
    assert status.revision >= 1
    assert status.alarms == ()


async def test_following_lists_then_watches(rig: Any, prefix: str, following: Any) -> None:
    await rig.store.put(prefix + "a", b"1")
    sights = following(rig.store, prefix)
    await eventually(lambda: sights.seen, what="a listing")
    assert isinstance(sights.seen[0], Listing)
    last = await rig.store.put(prefix + "b", b"2")
    await rig.store.put("/rankpulse-elsewhere", b"")
    last = (await rig.store.txn([], [Put(prefix + "c", b"3"), Delete(prefix + "a")])).revision
    await eventually(lambda: sights.fold() == {prefix + "b": b"2", prefix + "c": b"3"}, what="all changes")
    changes = [change for sight in sights.seen if isinstance(sight, Changes) for change in sight.changes]
    assert {change.revision for change in changes if change.key in (prefix + "a", prefix + "c")} == {last}
    assert [sight.revision for sight in sights.seen] == sorted(sight.revision for sight in sights.seen)


async def test_no_gap_between_listing_and_watch(rig: Any, prefix: str, following: Any) -> None:
    wrote: dict[str, bytes] = {}

    async def write() -> None:
        for n in range(120):
            key = f"{prefix}{n % 40}"
            wrote[key] = str(n).encode()
            await rig.beside().put(key, wrote[key])

    writing = asyncio.create_task(write())
    followers = [following(rig.store, prefix) for _ in range(3)]
    await writing
    for sights in followers:
        await eventually(lambda sights=sights: sights.fold() == wrote, what="every write is seen")
        revisions = [c.revision for s in sights.seen if isinstance(s, Changes) for c in s.changes]
        assert revisions == sorted(set(revisions)), "each change once and in order"


async def test_an_outage_is_said_once_and_nothing_is_missed(rig: Any, prefix: str, following: Any) -> None:
    await rig.store.put(prefix + "a", b"1")
    sights = following(rig.store, prefix)
    await eventually(lambda: sights.fold(), what="a listing")
    await rig.go_away()
    await eventually(lambda: "Lost" in sights.kinds(), what="the loss is said")
    with pytest.raises(Unreachable):
        await rig.store.get(prefix + "a")
    with pytest.raises(Unreachable):
        await rig.store.put(prefix + "a", b"9")
    await rig.beside().put(prefix + "b", b"2")
    await rig.beside().delete(prefix + "a")
    await rig.come_back()
    await eventually(lambda: sights.fold() == {prefix + "b": b"2"}, what="what happened meanwhile")
    assert sights.kinds().count("Lost") == 1
    assert sights.kinds().count("Listing") == 1, "resumed, not listed again"
    await rig.store.put(prefix + "c", b"3")
    await eventually(lambda: prefix + "c" in sights.fold(), what="the watch goes on")


async def test_back_without_news_is_said_too(rig: Any, prefix: str, following: Any) -> None:
    sights = following(rig.store, prefix)
    await eventually(lambda: sights.seen, what="a listing")
    await rig.go_away()
    await eventually(lambda: "Lost" in sights.kinds(), what="the loss is said")
    await rig.come_back()
    await eventually(lambda: sights.kinds()[-1] == "Progress", what="sight is back")


async def test_a_follower_may_begin_while_the_store_is_away(rig: Any, prefix: str, following: Any) -> None:
    await rig.go_away()
    sights = following(rig.store, prefix)
    await eventually(lambda: sights.kinds() == ["Lost"], what="the loss is said")
    await rig.beside().put(prefix + "a", b"1")
    await rig.come_back()
    await eventually(lambda: sights.fold() == {prefix + "a": b"1"}, what="a listing")


async def test_history_compacted_during_an_outage_means_a_new_listing(rig: Any, prefix: str, following: Any) -> None:
    await rig.store.put(prefix + "a", b"1")
    await rig.store.put(prefix + "b", b"1")
    sights = following(rig.store, prefix)
    await eventually(lambda: len(sights.fold()) == 2, what="a listing")
    await rig.go_away()
    await eventually(lambda: "Lost" in sights.kinds(), what="the loss is said")
    await rig.beside().delete(prefix + "a")
    for n in range(5):
        last = await rig.beside().put(prefix + "b", str(n).encode())
    await rig.beside().compact(last)
    await rig.beside().compact(last)
    await rig.come_back()
    await eventually(lambda: sights.fold() == {prefix + "b": b"4"}, what="the picture is right again")
    assert sights.kinds().count("Listing") == 2
    await rig.store.put(prefix + "c", b"")
    await eventually(lambda: prefix + "c" in sights.fold(), what="the watch goes on")


async def test_compacting_the_future_is_refused(rig: Any) -> None:
    with pytest.raises(StoreError):
        await rig.store.compact(10**9)


@pytest.mark.parametrize("applied", [True, False])
async def test_an_uncertain_write_says_so(rig: Any, prefix: str, applied: bool) -> None:
    await rig.blur(applied)
    with pytest.raises(Uncertain):
        await rig.store.txn([Guard(prefix + "once", 0)], [Put(prefix + "once", b"1")])
    await rig.clear()
    assert (await rig.store.get(prefix + "once") is not None) is applied
    again = await rig.store.txn([Guard(prefix + "once", 0)], [Put(prefix + "once", b"2")])
    assert again.done is not applied


async def test_ended_leases_are_seen_by_followers(rig: Any, prefix: str, following: Any) -> None:
    lease = await rig.store.grant(1)
    await rig.store.put(prefix + "leader", b"me", lease=lease.id)
    sights = following(rig.store, prefix)
    await eventually(lambda: sights.fold(), what="a listing")
    await rig.pass_time(lease.ttl_s + 1)
    await eventually(lambda: not sights.fold(), 20, "the key is gone")
    assert not any(isinstance(sight, Lost) for sight in sights.seen)
