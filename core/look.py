"""A direct look at an agent, past the store, as it goes over the wire: one line of JSON each way. Pure.

    ask     {"v":1,"op":"probe","node":NODE,"nonce":HEX,"mac":HEX}
    answer  {"v":1,"nonce":HEX,"beat":{...},"mac":HEX}   or   {"v":1,"error":TEXT}

What is asked for beyond the beat, and what is answered then (`core/look_evidence.py`), goes as `about` and `part`.

Each side proves with a shared secret (HMAC-SHA256) that it knows it; the nonce, new for each look, binds the answer to
the question, so that yesterday's answer proves nothing today. Without a secret the `mac` is "": for one machine only.
"""

import hashlib
import hmac
from collections.abc import Sequence
from typing import Annotated, Final, TypeVar

import msgspec
from msgspec import Meta

from rankpulse.core import codec
from rankpulse.core.codec import Refused
from rankpulse.core.records import Beat
from rankpulse.core.words import printable

VERSION: Final = 1
PROBE: Final = "probe"
ASK_MAX: Final = 1024  # bytes of a line, its end included
ANSWER_MAX: Final = 256 * 1024  # a beat of some thousand ranks
_Hex = Annotated[str, Meta(pattern=r"\A([0-9a-f]{2}){8,64}\Z")]
_Mac = Annotated[str, Meta(pattern=r"\A([0-9a-f]{64})?\Z")]


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """One question. `nonce`: 8 to 64 random bytes in hex; `mac`: "" or 32 bytes in hex."""

    v: int
    op: Annotated[str, Meta(pattern=r"\A[a-z_]{1,32}\Z")]
    node: Annotated[str, Meta(max_length=128)]
    nonce: _Hex
    mac: _Mac
    about: msgspec.Raw = msgspec.Raw(b"")  # an object, of operations that need to be told more


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    v: int
    nonce: str = ""
    beat: msgspec.Raw = msgspec.Raw(b"null")
    part: msgspec.Raw = msgspec.Raw(b"")
    mac: str = ""
    error: str = ""


_Said = TypeVar("_Said", Ask, _Answer)
_encoder = msgspec.json.Encoder()
_asks: Final = msgspec.json.Decoder(Ask)
_answers: Final = msgspec.json.Decoder(_Answer)


def ask(node: str, nonce: str, token: bytes, op: str = PROBE, about: bytes = b"") -> bytes:
    """The line that asks. `token` b"": without a proof; `about`: JSON, b"" where there is nothing more to say."""
    mac = _ask_mac(token, op, nonce, node, about)
    return _line({"v": VERSION, "op": op, "node": node, "nonce": nonce, "mac": mac}, about=about)


def understand(line: bytes) -> Ask:
    """What a line asks. Raises `Refused`; whether the asker may is for `proven` to say."""
    said = _decode(_asks, line, ASK_MAX)
    if said.v != VERSION:
        raise Refused(f"asked in version {said.v}, this agent answers version {VERSION}")
    return said


def proven(said: Ask, tokens: Sequence[bytes]) -> bytes | None:
    """The token with which the asker has proved itself, None when it has not; b"" when there are no tokens."""
    for token in tokens:
        if _same(said.mac, _ask_mac(token, said.op, said.nonce, said.node, bytes(said.about))):
            return token
    return None if tokens else b""


def answer(said: Ask, beat: bytes, token: bytes) -> bytes:
    """The line that answers, with `beat` as `codec.encode` made it."""
    return _answer(said, "beat", beat, token)


def answer_part(said: Ask, part: bytes, token: bytes) -> bytes:
    """The line that answers anything but a look; `part` is JSON without line ends."""
    return _answer(said, "part", part, token)


def _answer(said: Ask, what: str, told: bytes, token: bytes) -> bytes:
    mac = _mac(token, "answer", said.op, said.nonce, told)
    return _line({"v": VERSION, "nonce": said.nonce, "mac": mac}, **{what: told})


def failure(reason: str) -> bytes:
    """The line that says why there is no answer."""
    return _line({"v": VERSION, "error": printable(reason)})


def hear(line: bytes, node: str, nonce: str, token: bytes) -> Beat:
    """The beat in an answer to our look. Raises `Refused` for anything that is not that node's answer to it."""
    said = _heard(line, ANSWER_MAX)
    beat = bytes(said.beat)
    _check(said, PROBE, nonce, token, beat)
    told = codec.decode(Beat, beat)
    if told.node != node:
        raise Refused(f"node {printable(told.node, 128)} answers there")
    return told


def hear_part(line: bytes, nonce: str, token: bytes, op: str, limit: int) -> bytes:
    """What an answer to our question `op` told, as JSON. Raises `Refused` for what is no answer to it."""
    said = _heard(line, limit)
    part = bytes(said.part)
    _check(said, op, nonce, token, part)
    return part


def _heard(line: bytes, limit: int) -> _Answer:
    said = _decode(_answers, line, limit)
    if said.v != VERSION:
        raise Refused(f"an answer of version {said.v}, this monitor reads version {VERSION}")
    if said.error:
        raise Refused(f"it says: {printable(said.error)}")
    return said


def _check(said: _Answer, op: str, nonce: str, token: bytes, told: bytes) -> None:
    if not _same(said.nonce, nonce):
        raise Refused("the answer belongs to another question")
    if not _same(said.mac, _mac(token, "answer", op, nonce, told)):
        raise Refused("the answer is not proved by our token: is probe.token_file the same on agents and monitors?")


def _line(message: dict[str, object], **told: bytes) -> bytes:
    return _encoder.encode({**message, **{name: msgspec.Raw(raw) for name, raw in told.items() if raw}}) + b"\n"


def _decode(decoder: "msgspec.json.Decoder[_Said]", line: bytes, limit: int) -> _Said:
    if len(line) > limit:
        raise Refused(f"more than {limit} bytes")
    try:
        return decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(f"not understood: {printable(error, 100)}") from None


def _ask_mac(token: bytes, op: str, nonce: str, node: str, about: bytes) -> str:
    """What a question is about goes in as its digest: no text of it can then pass for another part."""
    if not about:
        return _mac(token, "ask", op, nonce, node)
    return _mac(token, "ask about", op, nonce, hashlib.sha256(about).hexdigest(), node)


def _mac(token: bytes, *parts: str | bytes) -> str:
    """Hex, "" without a token. The parts before the last hold no separator, so that no two questions look alike."""
    if not token:
        return ""
    text = b"|".join(part.encode() if isinstance(part, str) else part for part in parts)
    return hmac.new(token, text, "sha256").hexdigest()


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())
