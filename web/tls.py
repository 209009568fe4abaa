"""TLS of a port of ours: a certificate that is renewed in its files is used from the next connection on."""

import asyncio
import ssl
from collections.abc import Callable
from typing import Final

from rankpulse.store.files import mark

LOOK_EVERY_S: Final = 10.0


class Certificates:
    """`context` serves; None where no files are named, for plain HTTP on this machine."""

    def __init__(
        self, cert_file: str, key_file: str, say: Callable[[str, str], None], look_every_s: float = LOOK_EVERY_S
    ) -> None:
        """`say(level, text)` writes to the log. Raises `OSError` when the files cannot serve."""
        self._cert_file, self._key_file, self._say, self._look_every_s = cert_file, key_file, say, look_every_s
        self._mark = self._now()
        self.context = self._loaded() if cert_file else None

    async def keep(self) -> None:
        """Until cancelled. New files that do not fit leave the old certificate in use."""
        while True:
            await asyncio.sleep(self._look_every_s)
            self.look()

    def look(self) -> None:
        there = self._now()
        if self.context is None or there == self._mark:
            return
        self._mark = there
        try:
            self._loaded()  # in a context of its own: what does not fit must not be half of ours
            self.context.load_cert_chain(self._cert_file, self._key_file)
        except OSError as error:
            self._say("error", f"the new certificate cannot serve ({error}); the old one is used on")
        else:
            self._say("info", "a new certificate is in use")

    def _loaded(self) -> ssl.SSLContext:
        made = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        made.minimum_version = ssl.TLSVersion.TLSv1_2
        made.load_cert_chain(self._cert_file, self._key_file)
        return made

    def _now(self) -> tuple[object, ...]:
        return tuple(mark(path) for path in (self._cert_file, self._key_file) if path)
