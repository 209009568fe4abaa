"""Whether a request comes from who has the key, and is fresh. Pure; the other side of `core.signing`."""

import base64
import binascii
import hmac
import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

ID, TIMESTAMP, SIGNATURE = "webhook-id", "webhook-timestamp", "webhook-signature"
KEYS_MAX: Final = 8
SIGNATURES_MAX: Final = 16
_ID: Final = re.compile(r"[!-\-/-~]{1,300}")  # visible ASCII, no dot: what is signed is separated by dots
_NUMBER: Final = re.compile(r"[0-9]{1,12}")
_SIGNATURES_LENGTH: Final = SIGNATURES_MAX * 64


class Verified(NamedTuple):
    """Somebody who has a key signed this body under this id at that time (UTC seconds)."""

    id: str
    timestamp: int


class Unverified(NamedTuple):
    """Refused. `what` is one word, for counting."""

    what: str
    why: str


def verified(
    headers: Iterable[tuple[str, str]], body: bytes, keys: Sequence[bytes], now: float, age_s: float
) -> Verified | Unverified:
    """`headers`: all of them as they came, doubles included. `now`: UTC seconds. Age is told to key holders only."""
    given = {name: [value for key, value in headers if key.lower() == name] for name in (ID, TIMESTAMP, SIGNATURE)}
    for name, values in given.items():
        if len(values) != 1:
            return Unverified("headers", f"{name} must be there once, not {len(values)} times")
    id_, timestamp, signatures = given[ID][0], given[TIMESTAMP][0], given[SIGNATURE][0]
    if not _ID.fullmatch(id_) or not _NUMBER.fullmatch(timestamp) or len(signatures) > _SIGNATURES_LENGTH:
        return Unverified("headers", "an id, a timestamp or a list of signatures that nobody signs so")
    if not _is_signed(f"{id_}.{timestamp}.".encode() + body, signatures.split(" "), keys):
        return Unverified("signature", "no signature by a key that is known here")
    late = now - int(timestamp)
    if abs(late) > age_s:
        word = "late" if late > 0 else "early"
        return Unverified(word, f"signed {abs(late):.0f} s too {word}: more than {age_s:g} s; do the clocks agree?")
    return Verified(id_, int(timestamp))


def _is_signed(signed: bytes, candidates: Sequence[str], keys: Sequence[bytes]) -> bool:
    """Every key is held against every candidate, whichever fits: time tells nothing."""
    given = [one for text in candidates[:SIGNATURES_MAX] if (one := _digest(text))]
    fits = 0
    for key in keys[:KEYS_MAX]:
        wanted = hmac.digest(key, signed, "sha256")
        for one in given:
            fits |= hmac.compare_digest(wanted, one)
    return bool(fits)


def _digest(text: str) -> bytes:
    """The 32 bytes of a signature of version 1; b"" for anything else, which is some other version's."""
    version, _, value = text.partition(",")
    try:
        found = base64.b64decode(value, validate=True) if version == "v1" else b""
    except (binascii.Error, ValueError):
        return b""
    return found if len(found) == 32 else b""
