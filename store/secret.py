"""Secrets in files: read with limits, never logged, and read again when the file changes."""

import logging
import os
import stat
import time
from collections.abc import Callable
from typing import Final

from rankpulse.store.api import StoreError
from rankpulse.store.files import mark

_MAX: Final = 4096  # bytes of such a file
_TOKEN_MIN: Final = 16  # characters; what is shorter can be guessed
_LOOK_EVERY_S: Final = 1.0
_log = logging.getLogger(__name__)
_warned: set[str] = set()  # said once, not at every reading


def read_lines(path: str, setting: str, most: int = _MAX) -> list[str]:
    """The lines of a secret file, [] when it holds no text of at most `most` bytes; warns when everybody may read it.

    `setting` names it in messages. Raises `StoreError` when it cannot be read.
    """
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if not stat.S_ISREG(mode):
                raise StoreError(f"{setting} {path} is not a regular file")
            data = file.read(most + 1)
    except (OSError, ValueError) as error:
        raise StoreError(f"cannot read {setting} {path}: {getattr(error, 'strerror', None) or error}") from error
    if mode & (stat.S_IROTH | stat.S_IWOTH) and path not in _warned:
        _warned.add(path)
        _log.warning("%s can be read or written by everybody: chmod 600 it", path)
    try:
        return data.decode().splitlines() if len(data) <= most else []
    except UnicodeDecodeError:
        return []


class Tokens:
    """The shared secrets in one file, one a line. The first one proves us; whoever knows any of them is believed.

    So a token is changed without a moment of mistrust: put the new one last everywhere, then first, then alone.
    """

    def __init__(
        self,
        path: str,
        setting: str,
        *,
        clock: Callable[[], float] = time.monotonic,
        warn: Callable[[str], None] = _log.warning,
    ) -> None:
        """`path` "": there are none. Raises `StoreError` when the file cannot serve."""
        self._path, self._setting, self._clock, self._warn = path, setting, clock, warn
        self._mark = mark(path)
        self._known = self._read() if path else ()
        self._looked_at = clock()

    def get(self) -> tuple[bytes, ...]:
        """The tokens as they are now. When the file has become useless those known so far stand, and it is said."""
        now = self._clock()
        if self._path and now - self._looked_at >= _LOOK_EVERY_S:
            self._looked_at = now
            now_there = mark(self._path)
            if now_there != self._mark:
                self._mark = now_there
                self._renew()
        return self._known

    def first(self) -> bytes:
        """The token that proves us, b"" when there are none."""
        known = self.get()
        return known[0] if known else b""

    def _renew(self) -> None:
        try:
            self._known = self._read()
        except StoreError as error:
            self._warn(f"{error}; the token read before is used on")

    def _read(self) -> tuple[bytes, ...]:
        tokens = [line.strip() for line in read_lines(self._path, self._setting) if line.strip()]
        if not tokens or min(map(len, tokens)) < _TOKEN_MIN:
            raise StoreError(
                f"{self._setting} {self._path}: each line must be a token of at least {_TOKEN_MIN} characters "
                "(UTF-8, at most 4 KB in all), as `openssl rand -hex 32` makes one"
            )
        return tuple(token.encode() for token in tokens)
