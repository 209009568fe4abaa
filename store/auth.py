"""Who we are: user, password from a file, and the token that etcd gives for them."""

import asyncio
from collections.abc import Callable
from typing import Final

from rankpulse.core.settings import StoreSettings
from rankpulse.store.api import StoreError
from rankpulse.store.calls import Wire
from rankpulse.store.channel import REQUIRE_LEADER, Metadata
from rankpulse.store.errors import RPC_ERRORS, auth_is_off
from rankpulse.store.secret import read_lines

RENEW_S: Final = 120.0  # etcd's tokens live 300 s by default; JWTs are not prolonged by use


def read_password(path: str) -> str:
    """The first line of the file. Raises `StoreError`; warns when others may read it. Never logs what it holds."""
    lines = read_lines(path, "store.password_file")
    if not lines or not lines[0]:
        raise StoreError(f"store.password_file {path}: the first line must be the password (UTF-8, at most 4 KB)")
    return lines[0]


class Identity:
    """The token of one user, shared by all connections of a store."""

    def __init__(self, settings: StoreSettings, clock: Callable[[], float]) -> None:
        self.user = settings.user
        self._password_file = settings.password_file
        self._clock = clock
        self._token = ""
        self._asked_at: float | None = None  # when we last got a token, or learned that none is needed
        self._lock = asyncio.Lock()

    @property
    def token(self) -> str:
        return self._token

    def metadata(self) -> Metadata:
        """To be put on every call and watch."""
        return (("token", self._token), REQUIRE_LEADER) if self._token else (REQUIRE_LEADER,)

    def forget(self) -> None:
        """Let the next `ensure` fetch a new token."""
        self._asked_at = None

    async def ensure(self, wire: Wire, timeout_s: float) -> None:
        """Have a token that is not old, over a standing connection."""
        if self.user and (self._asked_at is None or self._clock() - self._asked_at > RENEW_S):
            await self.renew(wire, self._token, timeout_s)

    async def renew(self, wire: Wire, stale: str, timeout_s: float) -> None:
        """A new token in place of `stale`; nothing to do when somebody else has just fetched one."""
        async with self._lock:
            if self._token != stale or not self.user:
                return
            password = read_password(self._password_file)
            try:
                token = await wire.authenticate(self.user, password, timeout_s)
            except RPC_ERRORS as error:
                if not auth_is_off(error):
                    raise
                self._token = ""  # etcd lets everybody in: say so no louder than etcd does
            else:
                self._token = token
            self._asked_at = self._clock()
