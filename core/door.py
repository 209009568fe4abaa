"""Who may do what at an HTTP port of ours, decided from what a request says of itself. Pure.

Without a file of tokens everybody who reaches the port reads, and nobody acts. With one, reading takes a token of
either role and acting one of the role act. A browser asks people for a name and password and then sends them with
everything, also with what another site made it ask: such a token reads, and never acts.
"""

import base64
import binascii
import hashlib
import hmac
import ipaddress
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from rankpulse.core.addresses import is_loopback

READ, ACT = "read", "act"
ROLES: Final = (READ, ACT)
TOKEN_MIN: Final = 16  # characters; what is shorter can be guessed
CALLERS_MAX: Final = 64
OPEN: Final = ("/healthz", "/readyz")  # whether it serves, and no word more, is told to whoever has no token
SAFE: Final = ("GET", "HEAD")
HOST, TOKEN, ROLE, PLAIN, RATE = "host", "token", "role", "plain", "rate"
REASONS: Final = (HOST, TOKEN, ROLE, PLAIN, RATE)  # of refusals, as they are counted


class Caller(NamedTuple):
    """Whom a token is of. `name` "": nobody in particular."""

    name: str
    role: str
    digest: bytes = b""  # SHA-256 of the token


class Knock(NamedTuple):
    """What a request says. `peer`: the address it comes from; `secure`: it came over TLS."""

    method: str
    path: str
    host: str
    peer: str
    secure: bool
    authorization: str = ""


class Refusal(NamedTuple):
    """`what`: one of `REASONS`; `said`: to the caller, and in the log."""

    status: int
    what: str
    said: str


ANYBODY: Final = Caller("", READ)


class BadTokens(ValueError):
    """This is no file of tokens; the text says why, and repeats nothing of it."""


def callers(lines: Sequence[str]) -> tuple[Caller, ...]:
    """Of a file: `role name token` a line; blank lines and those that begin with # are passed over."""
    found: list[Caller] = []
    for number, line in enumerate(lines, 1):
        parts = line.split()
        if not parts or parts[0].startswith("#"):
            continue
        if len(parts) != 3 or parts[0] not in ROLES or len(parts[2]) < TOKEN_MIN or not parts[1].isprintable():
            raise BadTokens(f"line {number}: write read or act, a name, and a token of at least {TOKEN_MIN} characters")
        found.append(Caller(parts[1][:64], parts[0], digest_of(parts[2])))
    if not found or len(found) > CALLERS_MAX:
        raise BadTokens(f"it holds {len(found)} tokens: 1 to {CALLERS_MAX} are good, each `read NAME TOKEN` or `act …`")
    return tuple(found)


def digest_of(token: str) -> bytes:
    """Of any text: bytes of a header that are no UTF-8 come as lone surrogates, and must not be a fault of ours."""
    return hashlib.sha256(token.encode(errors="surrogatepass")).digest()


def decide(knock: Knock, known: Sequence[Caller], hosts: Collection[str]) -> Caller | Refusal:
    """Who comes in, or why not. `known`: by the file of tokens, () without one; `hosts`: names of ours, lower case."""
    if not _is_our_name(knock.host, hosts):
        return Refusal(421, HOST, "this server has another name: ask for it by its address, or add to http.hosts")
    acts = knock.method not in SAFE
    if not known:
        return _nobody_acts() if acts else ANYBODY
    caller, by_browser = _caller(knock.authorization, known)
    if caller is None:
        if knock.path in OPEN and not acts and not knock.authorization:
            return ANYBODY
        return Refusal(401, TOKEN, "a token of http.tokens_file is needed: Authorization: Bearer …")
    return _acting(knock, caller, by_browser) if acts else caller


def _acting(knock: Knock, caller: Caller, by_browser: bool) -> Caller | Refusal:
    if by_browser:
        return Refusal(403, ROLE, "a browser's login only reads: send Authorization: Bearer …")
    if caller.role != ACT:
        return Refusal(403, ROLE, f"{caller.name} may read, not act: that takes a token of the role act")
    if not knock.secure and not is_loopback(knock.peer):
        return Refusal(403, PLAIN, "nobody acts over a network without TLS: set http.cert_file and http.key_file")
    return caller


def _nobody_acts() -> Refusal:
    return Refusal(403, ROLE, "nobody acts here without http.tokens_file")


def _is_our_name(host: str, hosts: Collection[str]) -> bool:
    """Whether a request was meant for us. An address always is: a page that has its own name point at us cannot have
    the browser say that."""
    name = _without_port(host).lower().rstrip(".")
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name == "localhost" or name in hosts
    return True


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() else host


def _caller(authorization: str, known: Sequence[Caller]) -> tuple[Caller | None, bool]:
    """Whose token it is, and whether a browser sent it. Every token is held against it, whichever fits."""
    scheme, _, value = authorization.partition(" ")
    by_browser = scheme.lower() == "basic"
    token = _password(value) if by_browser else value.strip() if scheme.lower() == "bearer" else ""
    digest = digest_of(token)
    fits = [one for one in known if hmac.compare_digest(one.digest, digest)]
    return (fits[0] if token and fits else None), by_browser


def _password(value: str) -> str:
    """Of basic authentication; its user name is not looked at."""
    try:
        return base64.b64decode(value.strip(), validate=True).decode().partition(":")[2]
    except (binascii.Error, ValueError):
        return ""
