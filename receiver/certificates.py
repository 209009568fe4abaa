"""The receiver's TLS: a certificate that is renewed in its files is used from the next connection on."""

import asyncio
import logging
import os
import ssl
from typing import Final

from rankpulse.receiver.settings import TlsSettings

LOOK_EVERY_S: Final = 10.0
log: Final = logging.getLogger("rankpulse.receiver")


class Certificates:
    """`context` serves; None where no files are named, for plain HTTP on this machine."""

    def __init__(self, settings: TlsSettings, look_every_s: float = LOOK_EVERY_S) -> None:
        """Raises `OSError` when the files cannot serve."""
        self._settings, self._look_every_s = settings, look_every_s
        self._mark = self._now()
        self.context = self._loaded() if settings.cert_file else None

    async def keep(self) -> None:
        """Until cancelled. New files that do not fit leave the old certificate in use."""
        while True:
            await asyncio.sleep(self._look_every_s)
            self.look()

    def look(self) -> None:
        mark = self._now()
        if self.context is None or mark == self._mark:
            return
        self._mark = mark
        try:
            self._loaded()  # in a context of its own: what does not fit must not be half of ours
            self.context.load_cert_chain(self._settings.cert_file, self._settings.key_file)
        except OSError as error:
            log.error("the new certificate cannot serve (%s); the old one is used on", error)
        else:
            log.info("a new certificate is in use")

    def _loaded(self) -> ssl.SSLContext:
        made = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        made.minimum_version = ssl.TLSVersion.TLSv1_2
        made.load_cert_chain(self._settings.cert_file, self._settings.key_file)
        return made

    def _now(self) -> tuple[object, ...]:
        return tuple(_mark(path) for path in (self._settings.cert_file, self._settings.key_file) if path)


def _mark(path: str) -> tuple[int, ...] | None:
    try:
        info = os.stat(path)
    except OSError:
        return None
    return info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns
