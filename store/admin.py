"""Users and roles of a real etcd: read, changed step by step, and the door closed behind them."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import grpc.aio
from etcd3aio import EtcdError
from etcd3aio.auth import AuthService, PermissionType

from rankpulse.core.settings import StoreSettings
from rankpulse.store.api import Denied, StoreError, Unreachable
from rankpulse.store.calls import Wire
from rankpulse.store.common_name import common_name
from rankpulse.store.etcd import EtcdStore
from rankpulse.store.roles import BOTH, READ, ROOT, WRITE, AddRole, AddUser, Allow, Forbid, Permits, Range, Step

_KINDS: Final[Mapping[str, PermissionType]] = {
    READ: PermissionType.READ,
    WRITE: PermissionType.WRITE,
    BOTH: PermissionType.READWRITE,
}
_NAMES: Final = {int(kind): name for name, kind in _KINDS.items()}
_THERE: Final = ("already exists", "is already granted")


class Admin:
    """Over a store whose user is root, or that lets in everybody still."""

    def __init__(self, store: EtcdStore, settings: StoreSettings) -> None:
        self._store, self._settings = store, settings

    async def enabled(self) -> bool:
        """Whether etcd lets in only whom it knows."""
        return bool((await self._ask("auth_status")).enabled)

    async def version(self) -> str:
        """Of etcd."""
        return (await self._store.status()).version

    async def there(self, roles: Iterable[str], users: Iterable[str]) -> Permits:
        """All users and roles by name; what they may, of these alone. Raises `Denied` unless we are root."""
        known_roles = set((await self._ask("role_list")).roles)
        known_users = set((await self._ask("user_list")).users)
        wanted_roles, wanted_users = known_roles.intersection(roles), known_users.intersection(users)
        return Permits(
            {role: await self._may(role) if role in wanted_roles else {} for role in sorted(known_roles)},
            {user: await self._has(user) if user in wanted_users else frozenset() for user in sorted(known_users)},
        )

    async def take(self, step: Step, password: Callable[[str], str]) -> None:
        """`password`: of a user to be made, "" for one that comes with a certificate only."""
        if isinstance(step, AddRole):
            await self._ask("role_add", step.role)
        elif isinstance(step, Allow):
            kind = _KINDS[step.what]
            await self._ask("role_grant_permission", step.role, *map(str.encode, step.where), perm_type=kind)
        elif isinstance(step, Forbid):
            await self._ask("role_revoke_permission", step.role, *_bytes(step.where))
        elif isinstance(step, AddUser):
            secret = password(step.user)
            await self._ask("user_add", step.user, secret, no_password=not secret)
        else:
            await self._ask("user_grant_role", step.user, step.role)

    async def set_password(self, user: str, password: str) -> None:
        await self._ask("user_change_password", user, password)

    async def enable(self) -> None:
        """From now on etcd asks everybody who he is. Raises `Denied` when that leaves us outside ourselves."""
        await self._ask("auth_enable")

    async def proved(self) -> None:
        """Raises `StoreError` unless etcd takes us for root."""
        await self._ask("role_get", ROOT)

    async def _may(self, role: str) -> dict[Range, str]:
        found = (await self._ask("role_get", role)).perm
        return {(one.key.decode(), one.range_end.decode()): _NAMES[int(one.permType)] for one in found}

    async def _has(self, user: str) -> frozenset[str]:
        return frozenset((await self._ask("user_get", user)).roles)

    async def _ask(self, what: str, *args: Any, **named: Any) -> Any:
        """What another has done in the meantime counts as done."""
        try:
            return await self._store.raw(
                lambda wire, s: _call(wire, what, *args, timeout=s, max_attempts=1, **named),
                write=what.startswith(("role_add", "user_add")),
            )
        except StoreError as error:
            if not any(text in str(error) for text in _THERE):
                raise
            return None


def _auth(wire: Wire) -> Any:
    """etcd3aio's service for users and roles on this connection, with our token of now."""
    service, token = AuthService(wire.channel), dict(wire.metadata()).get("token")
    if token:
        service.set_token(token)
    return service


async def _call(wire: Wire, what: str, *args: Any, **named: Any) -> Any:
    """What etcd itself answered is raised, as from all other calls, not what etcd3aio makes of it."""
    try:
        return await getattr(_auth(wire), what)(*args, **named)
    except EtcdError as error:
        raise (
            error.__cause__ if isinstance(error.__cause__, grpc.aio.AioRpcError) else TimeoutError(str(error))
        ) from None


def _bytes(where: Range) -> tuple[bytes, bytes | None]:
    return where[0].encode(), where[1].encode() or None


async def why_locked_out(settings: StoreSettings, root_password_file: str) -> str:
    """Why nobody could change anything any more once etcd asks who comes, or "".

    `root_password_file`: what holds the password that root is given, "" for none.
    """
    if settings.user and settings.user != ROOT:
        return f'store.user is {settings.user}: only root changes users later. Use a configuration with user = "root"'
    if settings.user or root_password_file:
        return ""
    if not settings.cert_file:
        return "root needs a password (--password-dir) or a certificate with the common name root (store.cert_file)"
    name = common_name(settings)
    if name != ROOT:
        return f"store.cert_file is that of {name or 'nobody'}: use one with the common name root, or --password-dir"
    if await _takes_anybody(settings):
        return "etcd does not ask for certificates (--client-cert-auth): users would have no way to say who they are"
    return ""


async def _takes_anybody(settings: StoreSettings) -> bool:
    bare = StoreSettings(endpoints=settings.endpoints, ca_file=settings.ca_file, timeout_s=settings.timeout_s)
    store = EtcdStore(bare)
    try:
        await store.status()
    except (Denied, Unreachable):
        return False
    finally:
        await store.close()
    return True
