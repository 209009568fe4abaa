"""Which user a client certificate is to etcd: the common name of its subject, as a TLS server is shown it."""

import ssl
from typing import Final

from rankpulse.core.settings import StoreSettings
from rankpulse.store.api import StoreError

_FLIGHTS: Final = 8  # more than a handshake has


def common_name(settings: StoreSettings) -> str:
    """The common name in `store.cert_file`; "" when there is none. Raises `StoreError` when it cannot be told.

    By a handshake in memory: Python's ssl shows a certificate to nobody but the other side.
    """
    try:
        shown = _shown(settings)
    except (OSError, ValueError) as error:
        raise StoreError(f"store.cert_file {settings.cert_file} is shown to nobody: {error}") from error
    pairs = [pair for part in shown.get("subject", ()) for pair in part]
    return next((value for name, value in pairs if name == "commonName"), "")


def _shown(settings: StoreSettings) -> dict[str, tuple[tuple[tuple[str, str], ...], ...]]:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(settings.cert_file, settings.key_file)
    server.verify_mode = ssl.CERT_REQUIRED
    server.load_verify_locations(settings.ca_file or settings.cert_file)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    client.load_cert_chain(settings.cert_file, settings.key_file)
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours, theirs = client.wrap_bio(down, up), server.wrap_bio(up, down, server_side=True)
    for _ in range(_FLIGHTS):
        done = [_turn(side) for side in (ours, theirs)]
        if all(done):
            return dict(theirs.getpeercert() or {})  # type: ignore[arg-type]
    raise ValueError("the handshake does not end")


def _turn(side: ssl.SSLObject) -> bool:
    """Whether its handshake is over."""
    try:
        side.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True
