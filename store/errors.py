"""What gRPC and etcd say, in the words of `store.api`."""

from typing import Any, Final

import grpc
import grpc.aio

from rankpulse.store.api import Denied, LeaseLost, NoSpace, StoreError, TooLarge, Uncertain, Unreachable

RPC_ERRORS: Final = (grpc.aio.AioRpcError, TimeoutError)
_CODE: Final = grpc.StatusCode

# the token is unknown, expired, or from before a change of users: authenticate again. Nothing was done.
_STALE_TOKEN: Final = ("invalid auth token", "revision of auth store is old")
_TOO_LARGE: Final = ("request is too large", "larger than max")  # etcd's words, and those of gRPC on either side
# refused before anything was proposed
_NOT_DONE: Final = ("etcdserver: no leader", "failed to connect to all addresses", "too many requests", "not capable")


class Broken(Unreachable):
    """The connection stood and broke under way. A read may be tried again at once."""


def rpc_error(error: BaseException) -> Any:
    """The error if it is gRPC's, or None (a timeout of our own)."""
    return error if isinstance(error, grpc.aio.AioRpcError) else None


def details_of(error: BaseException) -> str:
    rpc = rpc_error(error)
    return (rpc.details() or "") if rpc is not None else ""


def timed_out(error: BaseException) -> bool:
    rpc = rpc_error(error)
    return rpc is None or rpc.code() is _CODE.DEADLINE_EXCEEDED


def stale_token(error: BaseException) -> bool:
    """Authenticating (again) may help. "User name is empty": users were switched on after we began."""
    return any(text in details_of(error) for text in (*_STALE_TOKEN, "user name is empty"))


def auth_is_off(error: BaseException) -> bool:
    return "authentication is not enabled" in details_of(error)


def translate(error: BaseException, where: str, *, write: bool, user: str, timeout_s: float) -> StoreError:
    """The error a caller sees. `where`: the endpoint; `write`: the call may have changed something."""
    rpc, details = rpc_error(error), details_of(error)
    code = rpc.code() if rpc is not None else _CODE.DEADLINE_EXCEEDED
    known = _known(code, details, where, user)
    if known is not None:
        return known
    if code in (_CODE.DEADLINE_EXCEEDED, _CODE.CANCELLED):
        said = f"{where} did not answer within {timeout_s:g} s"
    elif code in (_CODE.UNAVAILABLE, _CODE.UNKNOWN, _CODE.INTERNAL, _CODE.ABORTED):
        said = f"the connection to {where} broke ({details or code.name})"
    else:
        return StoreError(f"{where} refused the call: {details or code.name}")
    if write and not any(text in details for text in _NOT_DONE):
        return Uncertain(f"{said}; the write may have happened: read before trying again")
    kind = Broken if code is _CODE.UNAVAILABLE else Unreachable
    return kind(f"{said}: check that etcd runs and has a leader")


def _known(code: Any, details: str, where: str, user: str) -> StoreError | None:
    """Answers of etcd that mean one thing only."""
    if "user name is empty" in details:
        return Denied(f"{where} wants a user: set store.user and store.password_file")
    if "authentication failed" in details:
        return Denied(f"{where} refused user {user!r}: wrong name, or a wrong password in store.password_file")
    if code is _CODE.PERMISSION_DENIED or "permission denied" in details:
        return Denied(f"{where}: {'user ' + repr(user) if user else 'we'} may not do this; grant the role of this part")
    if code is _CODE.UNAUTHENTICATED or any(text in details for text in _STALE_TOKEN):
        return Denied(f"{where} does not accept our token ({details}): check store.user and store.password_file")
    if "database space exceeded" in details:
        return NoSpace(f"{where} refuses writes (database space exceeded): compact, defragment and disarm the alarm")
    if any(text in details for text in _TOO_LARGE):
        return TooLarge(f"{where} does not take so much at once ({details}): write less, or raise --max-request-bytes")
    if "requested lease not found" in details:
        return LeaseLost("the lease has ended")
    if code is _CODE.UNIMPLEMENTED:
        return Unreachable(f"{where} speaks gRPC but is not etcd v3 ({details}): correct store.endpoints")
    return None
