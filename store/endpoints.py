"""The endpoints of a store, in the words of its errors."""

from collections.abc import Sequence

from rankpulse.core.addresses import BadAddress, Endpoint, parse_endpoint
from rankpulse.store.api import StoreError


class BadEndpoint(StoreError, ValueError):
    """This is not an endpoint; the text says how one is written."""


def parse_endpoints(texts: Sequence[str], *, tls: bool) -> tuple[Endpoint, ...]:
    """All of them, without repeats. `tls`: certificates are configured, so a form without a scheme means TLS."""
    try:
        found = dict.fromkeys(parse_endpoint(text, tls=tls) for text in texts)
    except BadAddress as error:
        raise BadEndpoint(f"store.endpoints: {error}") from None
    if not found:
        raise BadEndpoint("store.endpoints is empty: name at least one host:port")
    return tuple(found)
