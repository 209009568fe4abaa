"""Passwords for new users, each in a file of its own that only we can read. They are shown nowhere."""

import os
import secrets
from collections.abc import Iterable, Mapping
from typing import Final

from rankpulse.cli.failing import Failed
from rankpulse.store.api import StoreError
from rankpulse.store.auth import read_password

_BYTES: Final = 32


class Passwords:
    """In a folder, by user; `folder` None: users have none, and come with certificates."""

    def __init__(self, folder: str | None) -> None:
        self._folder = folder

    def path(self, user: str) -> str:
        """Where its password is, or will be; "" without a folder."""
        return os.path.join(self._folder, user) if self._folder else ""

    def of(self, user: str) -> str:
        """The password in its file, which is made if it is missing; "" without a folder. Raises `Failed`."""
        if not self._folder:
            return ""
        path = self.path(user)
        try:
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w") as file:
                file.write(secrets.token_urlsafe(_BYTES) + "\n")
        except FileExistsError:
            pass  # of an earlier try
        except OSError as error:
            raise Failed(f"--password-dir: {path} cannot be written ({error.strerror})") from error
        try:
            return read_password(path)
        except StoreError as error:
            raise Failed(str(error)) from error

    def told(self, wanted: Iterable[str], there: Mapping[str, object]) -> list[str]:
        """Where to take them from, and of whom we have none."""
        if not self._folder:
            return []
        without = [user for user in wanted if user in there and not os.path.exists(self.path(user))]
        lost = f"no password is known here of users that were there before: {', '.join(without)}"
        where = (
            f"passwords are in {self._folder}, one file for each user: bring each to its machine as store.password_file"
        )
        return [where, *([lost] if without else [])]
