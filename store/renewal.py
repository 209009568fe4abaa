"""Certificates that are renewed in their files while we run: noticed, tried, and then used for a new connection."""

import logging
import time
from collections.abc import Callable
from typing import Final

from rankpulse.store.api import StoreError
from rankpulse.store.channel import Certificates
from rankpulse.store.files import mark

LOOK_EVERY_S: Final = 1.0
AGAIN_S: Final = 30.0
_log = logging.getLogger(__name__)


class Renewal:
    """Of the files that one connection was made with. New ones that cannot serve leave the connection as it is."""

    def __init__(self, certificates: Certificates, clock: Callable[[], float] = time.monotonic) -> None:
        self._certificates, self._clock = certificates, clock
        self._mark = self._now()
        self._looked_at = clock()
        self._again_at = float("inf")
        self._failed: object = None  # the files with which it was tried in vain

    def due(self) -> bool:
        """Whether a connection made now would be made with other certificates. Files are looked at once a second."""
        if self._clock() - self._looked_at < LOOK_EVERY_S:
            return False
        self._looked_at = self._clock()
        now = self._now()
        if now == self._mark and self._looked_at < self._again_at:
            return False
        self._again_at = float("inf")
        self._mark = now  # of files that cannot serve it is said once; when they change again they are tried again
        try:
            self._certificates.context()
        except StoreError as error:
            _log.warning("new certificates cannot serve (%s): the connection that stands is used on", error)
            return False
        return True

    def in_vain(self) -> bool:
        """etcd did not take us with these files: they are tried again. Whether that is new, and to be said."""
        self._again_at = self._clock() + AGAIN_S
        new, self._failed = self._failed != self._mark, self._mark
        return new

    def _now(self) -> tuple[object, ...]:
        named = (self._certificates.ca_file, self._certificates.cert_file, self._certificates.key_file)
        return tuple(mark(path) for path in named if path)
