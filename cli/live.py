"""The leader's own page, as a command reads it: only what is used, and nothing of it believed before it was checked."""

from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import urlsplit

import msgspec

from rankpulse.core.addresses import is_loopback
from rankpulse.core.settings import HttpSettings
from rankpulse.store.api import StoreError
from rankpulse.store.secret import Tokens

if TYPE_CHECKING:
    import ssl

FETCH_S: Final = 3.0
MAX_BYTES: Final = 64 * 1024 * 1024
PLAIN: Final = HttpSettings()


class Look(msgspec.Struct, frozen=True):
    """What the last direct look at the node's agent came to; `answer` "": none was taken yet."""

    answer: str = ""
    detail: str = ""
    age_s: float | None = None
    reached: bool = False  # one has come through at its present address


class Suspicion(msgspec.Struct, frozen=True):
    """What is thought of a silent node: trusted, suspect, excused or convicted."""

    state: str = ""
    reason: str = ""


class Health(msgspec.Struct, frozen=True):
    """What is wrong with the GPUs of a node, in words."""

    broken: tuple[str, ...] = ()


class Node(msgspec.Struct, frozen=True):
    silence_s: float | None = None
    deadline_s: float | None = None
    suspect: bool = False
    leaving: bool = False  # its agent said goodbye, and its lease has not ended yet
    suspicion: Suspicion | None = None
    look: Look | None = None
    health: Health | None = None


class Rank(msgspec.Struct, frozen=True):
    rank: int
    node: str


class Checkpoint(msgspec.Struct, frozen=True):
    """As the monitor has seen it: seconds since then, None where nothing was ever saved or verified."""

    age_s: float | None = None
    verified_age_s: float | None = None


class Straggler(msgspec.Struct, frozen=True):
    """A rank that is slower than its peers, `ratio` times, for `for_s` seconds by now."""

    rank: int
    node: str
    ratio: float = 1.0
    for_s: float = 0.0
    why: str = ""


class Pace(msgspec.Struct, frozen=True):
    """Seconds per step, now and as usual for the run; None where nothing can be said yet."""

    step_s: float | None = None
    usual_step_s: float | None = None
    slowdown: float | None = None
    slower: bool = False  # by `detect.straggler_factor` of the monitor


class Run(msgspec.Struct, frozen=True):
    step: int | None = None
    step_spread: int | None = None
    world_size: int | None = None
    phases: tuple[str, ...] = ()
    ranks: tuple[Rank, ...] = ()
    checkpoint: Checkpoint | None = None
    pace: Pace = Pace()
    stragglers: tuple[Straggler, ...] = ()


class State(msgspec.Struct, frozen=True):
    """What a monitor answers at `/state`, as far as commands show it. The first three tell a monitor from others."""

    monitor: str
    nodes: dict[str, Node]
    runs: dict[str, Run]
    version: str = ""
    leads: bool = False
    epoch: int = 0
    blind: bool = False
    blind_reason: str = ""


S = TypeVar("S", bound=State)


async def fetch(url: str, http: HttpSettings = PLAIN) -> tuple[State | None, str]:
    """A monitor's state, or None and why not. `http`: what proves us to it, and it to us."""
    return await fetch_as(url, State, http)


async def fetch_as(url: str, kind: type[S], http: HttpSettings = PLAIN) -> tuple[S | None, str]:
    """Likewise; `kind`: what is read of it."""
    import aiohttp

    try:
        trust, headers = _trust(http), {"Accept-Encoding": "identity", **_proof(url, http)}
    except (StoreError, OSError) as error:
        return None, str(error)
    try:
        # uncompressed and without redirects, as a monitor answers: what is read stays below the limit
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=FETCH_S), auto_decompress=False) as session,
            session.get(f"{url}/state", allow_redirects=False, headers=headers, ssl=trust) as answer,
        ):
            data = bytearray()
            async for chunk in answer.content.iter_chunked(1 << 16):
                data += chunk
                if len(data) > MAX_BYTES:
                    return None, f"{url} answers with more than {MAX_BYTES} bytes: no monitor does"
            return understand(url, answer.status, bytes(data), kind)
    except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError):
        return None, f"{url} is not the address of a page"
    except TimeoutError:
        return None, f"{url} did not answer within {FETCH_S:.0f} s"
    except (aiohttp.ClientError, OSError, ValueError) as error:
        return None, f"{url}: {error}"


def _proof(url: str, http: HttpSettings) -> dict[str, str]:
    """Our token, where nobody on the way can read it: over TLS, or to this machine. Raises `StoreError`."""
    if not http.token_file or not (url.startswith("https://") or _is_here(url)):
        return {}
    return {"Authorization": f"Bearer {Tokens(http.token_file, 'http.token_file').first().decode()}"}


def _is_here(url: str) -> bool:
    with suppress(ValueError):
        return is_loopback(urlsplit(url).hostname or "")
    return False


def _trust(http: HttpSettings) -> "ssl.SSLContext | bool":
    """Raises `OSError` naming the file that is none."""
    import ssl

    if not http.ca_file:
        return True
    try:
        return ssl.create_default_context(cafile=http.ca_file)
    except OSError as error:
        raise OSError(f"http.ca_file {http.ca_file} holds no usable certificate: {error}") from error


def understand(url: str, status: int, data: bytes, kind: type[S]) -> tuple[S | None, str]:
    """The state in an answer, or None and why it is none."""
    if status in (401, 403):
        return None, f"{url} wants a token: set http.token_file (over http:// it is sent to this machine only)"
    if status != 200:
        return None, f"{url} answers with status {status}, not as a monitor does: what listens there?"
    try:
        return msgspec.json.decode(data, type=kind), ""
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return None, f"{url} does not answer as a monitor does ({str(error)[:100]}): what listens there?"
