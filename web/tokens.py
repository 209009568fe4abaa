"""The file of tokens, read again when it changes."""

import time
from collections.abc import Callable
from typing import Final

from rankpulse.core.door import BadTokens, Caller, callers
from rankpulse.store.api import StoreError
from rankpulse.store.files import mark
from rankpulse.store.secret import read_lines

_LOOK_EVERY_S: Final = 1.0
FILE_MAX: Final = 64 * 1024  # bytes: as many tokens as may be, and words about them
SETTING: Final = "http.tokens_file"


class Callers:
    """Who has which token now. A file that has become useless leaves those in force that were, and it is said."""

    def __init__(self, path: str, say: Callable[[str, str], None], clock: Callable[[], float] = time.monotonic) -> None:
        """`path` "": there are none. Raises `StoreError` when the file cannot serve."""
        self._path, self._say, self._clock = path, say, clock
        self._mark, self._looked_at = mark(path), clock()
        self._bad: tuple[object, str] | None = None  # of what it was said that it cannot serve
        self._known = read(path) if path else ()

    def get(self) -> tuple[Caller, ...]:
        now = self._clock()
        if self._path and now - self._looked_at >= _LOOK_EVERY_S:
            self._looked_at = now
            self._look()
        return self._known

    def _look(self) -> None:
        there = mark(self._path)
        if there == self._mark:
            return
        try:
            self._known = read(self._path)
        except StoreError as error:  # perhaps only for now, as without a free file descriptor: it is tried again
            if self._bad != (said := (there, str(error))):
                self._bad = said
                self._say("warning", f"{error}; the tokens read before are in force")
        else:
            self._mark, self._bad = there, None


def read(path: str) -> tuple[Caller, ...]:
    """Raises `StoreError`."""
    try:
        return callers(read_lines(path, SETTING, FILE_MAX))
    except BadTokens as error:
        raise StoreError(f"{SETTING} {path}: {error}") from None
