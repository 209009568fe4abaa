"""One endpoint and the connection to it, dialled anew whenever it has failed."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

import grpc

from rankpulse.core.addresses import Endpoint
from rankpulse.store.api import Denied, StoreError, Unreachable
from rankpulse.store.calls import Wire
from rankpulse.store.channel import Certificates, Metadata, connected, dial
from rankpulse.store.probe import explain
from rankpulse.store.renewal import Renewal

_PROBE_S: Final = 1.0
_TRIAL_S: Final = 5.0  # of a connection with new certificates, beside the one that stands
_RETIRE_S: Final = 15.0  # then the connection with the old ones is closed
_log = logging.getLogger(__name__)
_PATIENCE: Final = 2  # deadlines missed in a row before the connection itself is doubted


class Link:
    """Dials on demand. A failed connection is dropped, so that the next try sees new addresses and certificates.

    So is one whose certificates were renewed: calls under way on it end as they would.
    """

    def __init__(self, endpoint: Endpoint, certificates: Certificates, metadata: Callable[[], Metadata]) -> None:
        self.endpoint = endpoint
        self._certificates, self._metadata = certificates, metadata
        self._wire: Wire | None = None
        self._renewal = Renewal(certificates)
        self._missed = 0
        self._closing: set[asyncio.Task[None]] = set()
        self._retiring: set[asyncio.Task[None]] = set()
        self._trial: asyncio.Task[None] | None = None

    async def connect(self, timeout_s: float) -> Wire:
        """A standing connection. Raises `Unreachable` or `Denied` with what is wrong; nothing was sent."""
        self.renew_soon()
        wire = self._wire
        if wire is not None and wire.channel.get_state() is grpc.ChannelConnectivity.READY:
            return wire  # the usual case, thousands of times a second
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        if wire is None:
            self._renewal = Renewal(self._certificates)
            wire = self._wire = self._dialled()
        answer = await connected(wire.channel, timeout_s)
        if answer:
            return wire
        self.drop(wire, 0.0)
        if answer is None:
            raise Unreachable(f"{self.endpoint} does not answer: check the address, the firewall and that etcd runs")
        left = min(_PROBE_S, deadline - loop.time())
        raise await explain(self.endpoint, self._certificates, max(0.1, left))

    def renew_soon(self) -> None:
        """Where our certificates were replaced, have another connection made beside this one, and used once it stands.

        If etcd does not take us with the new ones (its CA may be renewed later), the connection that stands is kept.
        """
        old = self._wire
        if old is not None and self.endpoint.tls and self._trial is None and self._renewal.due():
            self._trial = asyncio.get_running_loop().create_task(self._renew(old))

    async def _renew(self, old: Wire) -> None:
        try:
            made = self._dialled()
        except StoreError:  # the files have changed once more
            made = None
        try:
            if made is not None and await connected(made.channel, _TRIAL_S) and self._wire is old:
                self._wire, made = made, None
                self._retire(old)
            elif self._renewal.in_vain():
                _log.warning("%s does not take us with the new certificates yet: the connection is kept", self.endpoint)
        finally:
            self._trial = None
            if made is not None:
                await made.close()

    def _retire(self, wire: Wire) -> None:
        """No new call takes it; those that have taken it, and watches, have time to go over."""

        async def later() -> None:
            try:
                await asyncio.sleep(_RETIRE_S)
            finally:
                await wire.close()

        task = asyncio.get_running_loop().create_task(later())
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)

    @property
    def wire(self) -> Wire | None:
        """The connection that calls take now."""
        return self._wire

    def _dialled(self) -> Wire:
        return Wire.on(dial(self.endpoint, self._certificates), self._metadata)

    def answered(self) -> None:
        self._missed = 0

    def missed_deadline(self, wire: Wire, grace_s: float) -> None:
        """Twice in a row: the path may have swallowed the connection, which TCP learns only after minutes."""
        self._missed += 1
        if self._missed >= _PATIENCE:
            self.drop(wire, grace_s)

    def drop(self, wire: Wire, grace_s: float) -> None:
        """Give this connection up; calls still under way on it have `grace_s` to end."""
        if self._wire is wire:
            self._wire, self._missed = None, 0
            task = asyncio.get_running_loop().create_task(wire.close(grace_s))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        wire, self._wire = self._wire, None
        if wire is not None:
            await wire.close()
        ending = [*self._retiring, *([self._trial] if self._trial else [])]
        for task in ending:
            task.cancel()
        await asyncio.gather(*self._closing, *ending, return_exceptions=True)


def summary(failures: Sequence[StoreError]) -> StoreError:
    """One error for a round over all endpoints: `Denied` only when none is merely away."""
    if len(failures) == 1:
        return failures[0]
    kind = Denied if all(isinstance(failure, Denied) for failure in failures) else Unreachable
    return kind("no endpoint is of use: " + "; ".join(dict.fromkeys(map(str, failures))))
