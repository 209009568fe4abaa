"""gRPC channels of our own: TLS, keep-alive, and a token on every call."""

import asyncio
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

import grpc
import grpc.aio

from rankpulse.core.addresses import Endpoint
from rankpulse.core.settings import StoreSettings
from rankpulse.store.api import StoreError
from rankpulse.store.files import problem

Metadata: TypeAlias = tuple[tuple[str, str], ...]
# A member cut off from the others refuses instead of answering from the past.
REQUIRE_LEADER: Final = ("hasleader", "true")
MAX_MESSAGE: Final = 256 * 1024 * 1024  # a listing of ten thousand nodes is far above gRPC's 4 MiB

_OPTIONS: Final = [
    ("grpc.max_receive_message_length", MAX_MESSAGE),
    ("grpc.max_send_message_length", MAX_MESSAGE),
    ("grpc.keepalive_time_ms", 10_000),  # etcd hangs up on clients that ping more often than every 5 s
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 0),  # likewise
    ("grpc.enable_retries", 0),  # whether to repeat a write is not gRPC's to decide
    ("grpc.enable_http_proxy", 0),  # http_proxy is set on many clusters and is not meant for etcd
    ("grpc.use_local_subchannel_pool", 1),  # a channel of its own is a connection of its own
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 1_000),
]


@dataclass(frozen=True, slots=True)
class Certificates:
    """Paths of PEM files, "" for none; read again at each new connection, because certificates are renewed."""

    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""

    @classmethod
    def of(cls, settings: StoreSettings) -> "Certificates":
        return cls(settings.ca_file, settings.cert_file, settings.key_file)

    def grpc(self) -> Any:
        """Channel credentials. Raises `StoreError` naming the file that cannot be read."""
        return grpc.ssl_channel_credentials(
            root_certificates=_pem(self.ca_file, "ca_file"),
            private_key=_pem(self.key_file, "key_file"),
            certificate_chain=_pem(self.cert_file, "cert_file"),
        )

    def context(self) -> ssl.SSLContext:
        """The same for Python's ssl, which says clearly what is wrong. Raises `StoreError`."""
        for name in ("ca_file", "cert_file", "key_file"):
            _pem(getattr(self, name), name)  # of a missing file ssl does not say which
        try:
            context = ssl.create_default_context(cafile=self.ca_file or None)
        except (ssl.SSLError, OSError) as error:
            raise StoreError(f"store.ca_file {self.ca_file} holds no usable certificate: {error}") from error
        context.set_alpn_protocols(["h2"])
        try:
            if self.cert_file:
                context.load_cert_chain(self.cert_file, self.key_file)
        except (ssl.SSLError, OSError) as error:
            files = f"store.cert_file {self.cert_file} and store.key_file {self.key_file}"
            raise StoreError(f"{files} are no usable pair: {error}") from error
        return context


def _pem(path: str, name: str) -> bytes | None:
    if not path:
        return None
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise StoreError(f"store.{name}: {problem(path) or error.strerror}") from error


def dial(endpoint: Endpoint, certificates: Certificates) -> Any:
    """A `grpc.aio.Channel` to this one endpoint; nothing is sent yet. Raises `StoreError` for unreadable files."""
    if not endpoint.tls:
        return grpc.aio.insecure_channel(endpoint.target, options=_OPTIONS)
    return grpc.aio.secure_channel(endpoint.target, certificates.grpc(), options=_OPTIONS)


async def connected(channel: Any, timeout_s: float) -> bool | None:
    """True when the connection stands, False when it was refused, None when nothing was decided in time."""
    try:
        async with asyncio.timeout(timeout_s):
            while (state := channel.get_state(try_to_connect=True)) is not grpc.ChannelConnectivity.READY:
                if state in (grpc.ChannelConnectivity.TRANSIENT_FAILURE, grpc.ChannelConnectivity.SHUTDOWN):
                    return False
                await channel.wait_for_state_change(state)
    except TimeoutError:
        return None
    except grpc.aio.UsageError:  # another call has given this channel up
        return False
    return True
