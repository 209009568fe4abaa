"""etcd's calls on the raw stubs, one connection each: our metadata on every one, nothing tried twice.

Written on the stubs because a beat is one such call, thousands of times a second on a whole cluster: gRPC's
interceptors make a task for each call, and etcd3aio's services a timer and a retry around each.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from etcd3aio import _protobuf as pb

from rankpulse.store.api import Delete, Guard, Item, Put, StoreError, Write
from rankpulse.store.channel import REQUIRE_LEADER, Metadata
from rankpulse.store.renewals import Renewals


@dataclass(frozen=True, slots=True)
class Wire:
    """A channel and etcd's services on it. `metadata` is asked at each call: a renewed token is used at once."""

    channel: Any
    kv: Any
    leases: Any
    auth: Any
    maintenance: Any
    metadata: Callable[[], Metadata]
    renewals: Renewals

    @classmethod
    def on(cls, channel: Any, metadata: Callable[[], Metadata]) -> "Wire":
        leases = pb.LeaseStub(channel)
        return cls(
            channel,
            pb.KVStub(channel),
            leases,
            pb.AuthStub(channel),
            pb.MaintenanceStub(channel),
            metadata,
            Renewals(leases),
        )

    async def close(self, grace_s: float | None = None) -> None:
        """Calls under way have `grace_s` to end."""
        if not grace_s:
            await self.renewals.close()
        await self.channel.close(grace_s)
        await self.renewals.close()

    async def range(self, key: str, end: bytes, timeout_s: float) -> Any:
        request = pb.RangeRequest(key=key.encode(), range_end=end)
        return await self.kv.Range(request, timeout=timeout_s, metadata=self.metadata())

    async def put(self, key: str, value: bytes, lease: int, timeout_s: float) -> Any:
        request = pb.PutRequest(key=key.encode(), value=value, lease=lease)
        return await self.kv.Put(request, timeout=timeout_s, metadata=self.metadata())

    async def delete(self, key: str, end: bytes, timeout_s: float) -> Any:
        request = pb.DeleteRangeRequest(key=key.encode(), range_end=end)
        return await self.kv.DeleteRange(request, timeout=timeout_s, metadata=self.metadata())

    async def txn(self, request: Any, timeout_s: float) -> Any:
        return await self.kv.Txn(request, timeout=timeout_s, metadata=self.metadata())

    async def compact(self, revision: int, timeout_s: float) -> Any:
        request = pb.CompactionRequest(revision=revision)
        return await self.kv.Compact(request, timeout=timeout_s, metadata=self.metadata())

    async def grant(self, ttl_s: int, timeout_s: float) -> Any:
        return await self.leases.LeaseGrant(
            pb.LeaseGrantRequest(TTL=ttl_s), timeout=timeout_s, metadata=self.metadata()
        )

    async def revoke(self, lease: int, timeout_s: float) -> Any:
        request = pb.LeaseRevokeRequest(ID=lease)
        return await self.leases.LeaseRevoke(request, timeout=timeout_s, metadata=self.metadata())

    async def status(self, timeout_s: float) -> Any:
        """Of this member; wanted most when there is no leader."""
        own = tuple(pair for pair in self.metadata() if pair != REQUIRE_LEADER)
        return await self.maintenance.Status(pb.StatusRequest(), timeout=timeout_s, metadata=own)

    async def authenticate(self, user: str, password: str, timeout_s: float) -> str:
        """A token."""
        request = pb.AuthenticateRequest(name=user, password=password)
        answer = await self.auth.Authenticate(request, timeout=timeout_s, metadata=(REQUIRE_LEADER,))
        return str(answer.token)


def transaction(guards: Sequence[Guard], writes: Sequence[Write]) -> Any:
    """The request. A key that does not exist has the modified revision 0 in etcd too."""
    return pb.TxnRequest(
        compare=[
            pb.Compare(
                result=pb.Compare.EQUAL, target=pb.Compare.MOD, key=guard.key.encode(), mod_revision=guard.modified
            )
            for guard in guards
        ],
        success=[_op(write) for write in writes],
    )


def _op(write: Put | Delete) -> Any:
    if isinstance(write, Put):
        return pb.RequestOp(request_put=pb.PutRequest(key=write.key.encode(), value=write.value, lease=write.lease))
    return pb.RequestOp(request_delete_range=pb.DeleteRangeRequest(key=write.key.encode()))


def item(kv: Any) -> Item:
    return Item(kv.key.decode(errors="replace"), kv.value, kv.create_revision, kv.mod_revision, kv.lease)


def prefix_end(prefix: str) -> bytes:
    """Where the keys under `prefix` end: the prefix with its last byte raised. Raises `StoreError` for an empty one."""
    if not prefix:
        raise StoreError("an empty prefix would mean the whole store: name one")
    raw = prefix.encode()  # UTF-8 never ends in 0xff
    return raw[:-1] + bytes([raw[-1] + 1])
