"""A page in pieces, each with the version in which it last changed: who has seen a version is told only what is newer.

So nobody has a queue: one who reads slowly, or comes back after an hour, gets the newest state of what changed.
"""

import gzip
import json
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from rankpulse.monitor.page.html import Html

SQUEEZE: Final = 5  # gzip's level: beyond it the time grows faster than the page shrinks


class Piece(NamedTuple):
    """An element with an id. `within`: it stands inside of that other piece. `same`: what the piece is compared by,
    where it holds others, so that it is not sent because of one of them."""

    id: str
    html: Html
    within: str = ""
    same: str = ""


class Board:
    """One page. `token` tells the versions of this monitor's life from those of another's; `first`: where they begin.

    A page that was let go and is made anew begins beyond all that its readers have seen, and they are sent all of it.
    """

    def __init__(self, token: str, first: int = 0) -> None:
        self.token, self.version = token, first
        self._pieces: dict[str, Piece] = {}
        self._changed: dict[str, int] = {}
        self._bytes: tuple[tuple[int, int], bytes, bytes] | None = None

    def update(self, pieces: Iterable[Piece]) -> bool:
        """Take the present pieces; whether any is another than before."""
        before, self._pieces = self._pieces, {piece.id: piece for piece in pieces}
        changed = [piece.id for piece in self._pieces.values() if _differs(before.get(piece.id), piece)]
        if changed or before.keys() != self._pieces.keys():
            self.version += 1
            self._changed = {id_: self._changed.get(id_, 0) for id_ in self._pieces} | dict.fromkeys(
                changed, self.version
            )
        return bool(changed)

    @property
    def mark(self) -> str:
        """What a reader has seen, to be given to `since`."""
        return f"{self.token}-{self.version}"

    def since(self, mark: str) -> dict[str, str]:
        """The pieces that are newer, by id, as they are now. A mark of another life, or of nobody, has seen nothing."""
        token, _, number = mark.rpartition("-")
        seen = int(number) if token == self.token and number.isdecimal() and len(number) < 16 else 0
        newer = {id_ for id_, version in self._changed.items() if version > seen}
        return {id_: piece.html for id_, piece in self._pieces.items() if id_ in newer and piece.within not in newer}

    def news(self, mark: str, at: float, look: str) -> bytes:
        """A server-sent event with what is newer; empty where nothing is. `look`: of the page around the pieces."""
        parts = self.since(mark)
        if not parts:
            return b""
        data = json.dumps({"at": round(at, 1), "look": look, "parts": parts})
        return f"event: news\nid: {self.mark}\ndata: {data}\n\n".encode()

    def outer(self) -> list[Html]:
        """What stands in the document by itself, in order."""
        return [piece.html for piece in self._pieces.values() if not piece.within]

    def document(self, compose: Callable[["Board"], Html], at: float) -> tuple[bytes, bytes]:
        """The whole page as bytes, and the same by gzip: made once for each version and second, for it says when."""
        made_for = self.version, int(at)
        if self._bytes is None or self._bytes[0] != made_for:
            raw = compose(self).encode()
            self._bytes = made_for, raw, gzip.compress(raw, SQUEEZE, mtime=0)
        return self._bytes[1], self._bytes[2]


def _differs(before: Piece | None, now: Piece) -> bool:
    if before is None or before.same != now.same:
        return True
    return not now.same and before.html != now.html


def beat(at: float) -> bytes:
    """Nothing is new, and the monitor is there."""
    return f'event: beat\ndata: {{"at": {at:.1f}}}\n\n'.encode()
