"""`rankpulse store init`: what is missing in etcd is made and said; the door is closed last."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from rankpulse.cli.failing import Failed
from rankpulse.cli.passwords import Passwords
from rankpulse.core.keys import Keys
from rankpulse.core.settings import Settings
from rankpulse.core.store_care import roles_leak
from rankpulse.store import roles
from rankpulse.store.admin import Admin, why_locked_out
from rankpulse.store.api import Denied
from rankpulse.store.etcd import EtcdStore

NODES_MAX: Final = 20_000
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Asked:
    """As on the command line."""

    node: tuple[str, ...]
    nodes_file: str | None
    password_dir: str | None
    enable_auth: bool
    dry_run: bool

    def nodes(self) -> list[str]:
        """Each once, in order. Raises `Failed`."""
        lines: list[str] = []
        if self.nodes_file is not None:
            try:
                lines = Path(self.nodes_file).read_text(encoding="utf-8").splitlines()
            except (OSError, UnicodeDecodeError) as error:
                raise Failed(f"--nodes {self.nodes_file}: cannot be read ({error})") from error
        found = list(dict.fromkeys([*self.node, *roles.node_names(lines)]))
        if len(found) > NODES_MAX:
            raise Failed(f"--nodes {self.nodes_file}: more than {NODES_MAX} nodes")
        return found


async def run(settings: Settings, asked: Asked, say: Say) -> None:
    """Raises `Failed` and `StoreError`; what was done until then was said, and the next try goes on from there."""
    wanted = roles.wanted(Keys(settings.cluster), asked.nodes())
    passwords = Passwords(asked.password_dir)
    if not asked.password_dir and (long := roles.too_long_for_certificates(wanted)):
        raise Failed(
            f"a certificate's common name has at most {roles.CN_MAX} characters, too few for: {', '.join(long)}"
        )
    if asked.enable_auth and (why := await why_locked_out(settings.store, passwords.path(roles.ROOT))):
        raise Failed(f"--enable-auth: {why}. Nothing was changed")
    store = EtcdStore(settings.store)
    try:
        await _made(Admin(store, settings.store), wanted, asked, passwords, say)
    except Denied as error:
        raise Failed(f"{error}. Users and roles are root's: store.user = \"root\", or root's certificate") from error
    finally:
        await store.close()
    if asked.enable_auth and not asked.dry_run:
        await _proved(settings, passwords)
        say("etcd lets in only whom it knows, and takes us for root: proved")


async def _made(admin: Admin, wanted: roles.Permits, asked: Asked, passwords: Passwords, say: Say) -> None:
    on, there = await admin.enabled(), await admin.there(wanted.roles, [*wanted.users, roles.ROOT])
    todo = roles.steps(wanted, there)
    todo += roles.root_steps(there) if asked.enable_auth else []
    for step in todo:
        if not asked.dry_run:
            await admin.take(step, passwords.of)
        say(f"{'would be done: ' if asked.dry_run else ''}{step}")
    for text in roles.doubts(wanted, there):
        say(f"look: {text}")
    for text in passwords.told(wanted.users, there.users):
        say(text)
    if leak := roles_leak(await admin.version()):
        say(f"look: {leak}")
    if not todo:
        say("users and roles are as they should be: nothing to do")
    await _door(admin, on, roles.ROOT in there.users, asked, passwords, say)


async def _door(admin: Admin, on: bool, root_was: bool, asked: Asked, passwords: Passwords, say: Say) -> None:
    if on:
        say("etcd lets in only whom it knows, as before")
    elif not asked.enable_auth:
        say("etcd lets in everybody STILL: give each part its user, then run this again with --enable-auth")
    elif asked.dry_run:
        say("would be done: etcd lets in only whom it knows")
    else:
        if root_was and asked.password_dir:  # whoever had it may be gone; without this we could be locked out
            await admin.set_password(roles.ROOT, passwords.of(roles.ROOT))
            say(f"user root: its password is now that in {passwords.path(roles.ROOT)}")
        await admin.enable()


async def _proved(settings: Settings, passwords: Passwords) -> None:
    """As who comes next: with the password that was just given, or as we are."""
    store_settings = settings.store
    path = passwords.path(roles.ROOT)
    if path and os.path.exists(path) and not store_settings.user:
        store_settings = msgspec.structs.replace(store_settings, user=roles.ROOT, password_file=path)
    store = EtcdStore(store_settings)
    try:
        await Admin(store, store_settings).proved()
    except Denied as error:
        raise Failed(
            f"etcd lets in only whom it knows now, and does not take us for root ({error}). The parts' users work; "
            "find root's password or certificate before you need it"
        ) from error
    finally:
        await store.close()
