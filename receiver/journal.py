"""What was heard and what is being done about it, on disk before it is answered: one SQLite file.

Every write is forced to the disk before the call returns, on the event loop's own thread: they are few, and what
follows rests on them. `Journal` is the seam at which tests kill the receiver.
"""

import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import IO, Final, NamedTuple

VERSION: Final = 1
BEGUN, DONE, FAILED, HEARD, DRY = "begun", "done", "failed", "heard", "dry"
_TABLES: Final = """
CREATE TABLE events (id TEXT PRIMARY KEY, digest BLOB NOT NULL, body BLOB NOT NULL, state TEXT NOT NULL,
                     received_at REAL NOT NULL, changed_at REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE memory (id TEXT NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (id, name)) WITHOUT ROWID;
CREATE TABLE audit (seq INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, id TEXT NOT NULL, what TEXT NOT NULL,
                    text TEXT NOT NULL);
"""


class BadJournal(Exception):
    """The file cannot serve; the text says why and what to do."""


class Entry(NamedTuple):
    """An event that was had. `received_at`: UTC seconds."""

    id: str
    digest: bytes
    body: bytes
    state: str
    received_at: float


class Line(NamedTuple):
    """One line of the audit."""

    seq: int
    at: float
    id: str
    what: str
    text: str


class Journal:
    """Open for writing: by one receiver at a time. Raises `sqlite3.Error` where the disk fails."""

    def __init__(self, path: str) -> None:
        """Raises `BadJournal`."""
        self._lock = _alone(path)
        try:
            self._db = _opened(path)
            os.chmod(path, 0o640)
        except (sqlite3.Error, OSError, BadJournal) as error:
            self._lock.close()
            raise error if isinstance(error, BadJournal) else BadJournal(f"state_file {path}: {error}") from None

    def close(self) -> None:
        self._db.close()
        self._lock.close()

    def had(self, id_: str) -> Entry | None:
        row = self._db.execute(
            "SELECT id, digest, body, state, received_at FROM events WHERE id = ?", (id_,)
        ).fetchone()
        return Entry(*row) if row else None

    def unfinished(self) -> list[Entry]:
        """In the order in which they came."""
        rows = self._db.execute(
            "SELECT id, digest, body, state, received_at FROM events WHERE state = ? ORDER BY received_at, id", (BEGUN,)
        )
        return [Entry(*row) for row in rows]

    def take(self, entry: Entry, text: str) -> None:
        """An event that was not had: remembered for good, together with its line in the audit."""
        with self._db:
            self._db.execute("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?)", (*entry, entry.received_at))
            self._note(entry.received_at, entry.id, entry.state, text)

    def finish(self, id_: str, state: str, text: str, at: float) -> None:
        with self._db:
            self._db.execute("UPDATE events SET state = ?, changed_at = ? WHERE id = ?", (state, at, id_))
            self._note(at, id_, state, text)

    def note(self, id_: str, what: str, text: str, at: float) -> None:
        """One line in the audit."""
        with self._db:
            self._note(at, id_, what, text)

    def remember(self, id_: str, name: str, value: str) -> None:
        """For whoever takes the action up again."""
        with self._db:
            self._db.execute("INSERT OR REPLACE INTO memory VALUES (?, ?, ?)", (id_, name, value))

    def remembered(self, id_: str, name: str) -> str | None:
        row = self._db.execute("SELECT value FROM memory WHERE id = ? AND name = ?", (id_, name)).fetchone()
        return row[0] if row else None

    def prune(self, before: float) -> None:
        """Forget what ended before that UTC time. What is unfinished stays."""
        with self._db:
            self._db.execute("DELETE FROM events WHERE changed_at < ? AND state != ?", (before, BEGUN))
            self._db.execute("DELETE FROM memory WHERE id NOT IN (SELECT id FROM events)")
            self._db.execute("DELETE FROM audit WHERE at < ?", (before,))

    def _note(self, at: float, id_: str, what: str, text: str) -> None:
        self._db.execute("INSERT INTO audit (at, id, what, text) VALUES (?, ?, ?, ?)", (at, id_, what, text))


def audit(path: str, id_: str = "", limit: int = 200) -> Iterator[Line]:
    """The last lines of the audit, oldest first; `id_`: of events whose id holds that. Raises `BadJournal`."""
    query = "SELECT seq, at, id, what, text FROM audit WHERE instr(id, ?) > 0 ORDER BY seq DESC LIMIT ?"
    try:
        with closing(sqlite3.connect(f"file:{_quoted(path)}?mode=ro", uri=True, timeout=5.0)) as db:
            yield from reversed([Line(*row) for row in db.execute(query, (id_, limit))])
    except sqlite3.Error as error:
        raise BadJournal(f"state_file {path}: {error}") from None


def _quoted(path: str) -> str:
    return path.replace("%", "%25").replace("?", "%3f").replace("#", "%23")


def _alone(path: str) -> IO[bytes]:
    """Holds a lock beside the file until we end, however that is."""
    try:
        fd = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o640)
    except (OSError, ValueError) as error:
        raise BadJournal(f"state_file {path}: {getattr(error, 'strerror', None) or error}") from None
    lock = os.fdopen(fd, "r+b")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        raise BadJournal(f"state_file {path}: another receiver has it; give this one a file of its own") from None
    return lock


def _opened(path: str) -> sqlite3.Connection:
    db = sqlite3.connect(path, timeout=5.0)
    try:
        db.execute("PRAGMA journal_mode = DELETE")
        db.execute("PRAGMA synchronous = EXTRA")  # FULL, and the directory, too: an answer never outlives its record
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version == 0:
            db.executescript(f"BEGIN; {_TABLES} PRAGMA user_version = {VERSION}; COMMIT;")
        elif version != VERSION:
            raise BadJournal(f"state_file {path}: made by another version of rankpulse ({version}, here {VERSION})")
    except BaseException:
        db.close()
        raise
    return db
