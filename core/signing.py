"""Signatures by the Standard Webhooks convention (https://www.standardwebhooks.com): id, time and body, HMAC-SHA256."""

import base64
import binascii
import hmac
from collections.abc import Sequence
from typing import Final

PREFIX: Final = "whsec_"
KEY_MIN: Final = 16  # bytes; what is shorter can be guessed


class BadKey(ValueError):
    """This cannot sign; the text says why, and does not repeat it."""


def key(line: str) -> bytes:
    """The key in one line of a secret file: base64 after `whsec_`, else the text itself. Raises `BadKey`."""
    text = line.strip()
    try:
        found = base64.b64decode(text.removeprefix(PREFIX), validate=True) if text.startswith(PREFIX) else text.encode()
    except binascii.Error:
        raise BadKey(f"what follows {PREFIX} is not base64") from None
    if len(found) < KEY_MIN:
        raise BadKey(f"a key has at least {KEY_MIN} bytes, as `openssl rand -hex 32` makes them")
    return found


def sign(keys: Sequence[bytes], id_: str, timestamp: int, body: bytes) -> str:
    """The header `webhook-signature`: one signature per key, so that a key can be changed without a gap."""
    signed = f"{id_}.{timestamp}.".encode() + body
    return " ".join(f"v1,{base64.b64encode(hmac.new(one, signed, 'sha256').digest()).decode()}" for one in keys)
