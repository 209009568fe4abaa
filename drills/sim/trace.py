"""The trace: every change of the store and every thing that was done, one JSON line each. Same seed, same bytes."""

import hashlib
import json
from collections import deque
from collections.abc import Callable
from typing import IO, Any
from zlib import crc32

from rankpulse.store.api import Change

KEPT = 60


class Trace:
    """Hashes the lines, keeps the last, and writes them to `file`; those of note go to `say`, for people."""

    def __init__(self, now: Callable[[], float], file: IO[str] | None = None, say: IO[str] | None = None) -> None:
        self._now, self._file, self._say = now, file, say
        self._hash = hashlib.sha256()
        self.last: deque[str] = deque(maxlen=KEPT)

    def digest(self) -> str:
        return self._hash.hexdigest()

    def note(self, what: str, /, **detail: Any) -> None:
        """Something that is worth a line."""
        line = json.dumps({"t": round(self._now(), 6), "what": what, **detail}, sort_keys=True)
        self.last.append(line)
        self._write(line)
        if self._say is not None:
            told = ", ".join(f"{name} {value}" for name, value in detail.items() if value not in ("", [], None))
            self._say.write(f"{self._now():9.3f}  {what:<12} {told}\n")

    def change(self, change: Change, quiet: bool) -> None:
        """A change of the store; `quiet`: too common to be among the last lines."""
        sum_ = crc32(change.value) if change.value is not None else -1
        line = f'{{"t": {self._now():.6f}, "rev": {change.revision}, "key": "{change.key}", "sum": {sum_}}}'
        if not quiet:
            self.last.append(line)
        self._write(line)

    def _write(self, line: str) -> None:
        self._hash.update(line.encode() + b"\n")
        if self._file is not None:
            self._file.write(line + "\n")
