"""From what the store shows to what the engine folds. Bytes are parsed here, once."""

from collections.abc import Iterator

from rankpulse.core import codec
from rankpulse.core.events import CanarySeen, Event, Garbled, Gone, Relisted, Seen, SightBack, SightLost
from rankpulse.core.keys import Keys
from rankpulse.store.api import Changes, Listing, Lost, Sight


class Translator:
    """Remembers whether anything was seen yet, and why sight is lost at present (`lost`, "" while we see)."""

    def __init__(self, keys: Keys, canary: str, token: bytes) -> None:
        """`canary`: the key this monitor writes to itself; its values begin with `token`, unknown to any other."""
        self._keys, self._canary, self._token = keys, canary, token
        self.lost = ""
        self._seeing = False

    def events(self, sight: Sight, received_at: float) -> Iterator[Event]:
        """The events of one message of the watch, in order."""
        if isinstance(sight, Lost):
            yield from self.lose(sight.reason, received_at)
            return
        if not self._seeing:
            self._seeing, self.lost = True, ""
            yield SightBack(received_at)
        if isinstance(sight, Listing):
            yield Relisted(sight.revision, received_at)
            for item in sight.items:
                yield from self._put(item.key, item.value, item.modified, received_at)
        elif isinstance(sight, Changes):
            for change in sight.changes:
                yield from self._change(change.key, change.value, change.revision, received_at)

    def lose(self, reason: str, received_at: float) -> Iterator[Event]:
        """Sight is lost, also when the monitor itself finds it so."""
        if not self.lost:
            self._seeing, self.lost = False, reason or "no reason given"
            yield SightLost(self.lost, received_at)

    def _change(self, key: str, value: bytes | None, revision: int, received_at: float) -> Iterator[Event]:
        if value is not None:
            yield from self._put(key, value, revision, received_at)
        elif self._keys.parse(key) is not None:
            yield Gone(key, revision, received_at)

    def _put(self, key: str, value: bytes, revision: int, received_at: float) -> Iterator[Event]:
        if key == self._canary:
            if value.startswith(self._token):
                yield CanarySeen(received_at)
            return
        parsed = self._keys.parse(key)
        if parsed is None:
            return
        try:
            yield Seen(key, codec.decode_at(parsed, value), revision, received_at)
        except codec.Refused as refused:
            yield Garbled(key, str(refused), revision, received_at)


def leader_sights(sight: Sight, leader: str) -> Iterator[tuple[bool, int]]:
    """What one message says of the leader key: (is it there, at which revision), in order."""
    if isinstance(sight, Listing):
        held = next((item.modified for item in sight.items if item.key == leader), 0)
        yield (True, held) if held else (False, sight.revision)
    elif isinstance(sight, Changes):
        for change in sight.changes:
            if change.key == leader:
                yield change.value is not None, change.revision
