"""A direct look at an agent, past the store, as it goes over the wire: one line of JSON each way. Pure.

    ask     {"v":1,"op":"probe","node":NODE,"nonce":HEX,"mac":HEX}
    answer  {"v":1,"nonce":HEX,"beat":{...},"mac":HEX}   or   {"v":1,"error":TEXT}

Each side proves with a shared secret (HMAC-SHA256) that it knows it; the nonce, new for each look, binds the answer to
the question, so that yesterday's answer proves nothing today. Without a secret the `mac` is "": for one machine only.
"""

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
PROBE: Final = "probe"  # the one thing that can be asked by this version
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


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    v: int
    nonce: str = ""
    beat: msgspec.Raw = msgspec.Raw(b"null")
    mac: str = ""
    error: str = ""


_Said = TypeVar("_Said", Ask, _Answer)
_encoder = msgspec.json.Encoder()
_asks: Final = msgspec.json.Decoder(Ask)
_answers: Final = msgspec.json.Decoder(_Answer)


def ask(node: str, nonce: str, token: bytes, op: str = PROBE) -> bytes:
    """The line that asks. `token` b"": without a proof."""
    return _line(Ask(v=VERSION, op=op, node=node, nonce=nonce, mac=_mac(token, "ask", op, nonce, node.encode())))


def understand(line: bytes) -> Ask:
    """What a line asks. Raises `Refused`; whether the asker may is for `proven` to say."""
    said = _decode(_asks, line, ASK_MAX)
    if said.v != VERSION:
        raise Refused(f"asked in version {said.v}, this agent answers version {VERSION}")
    return said


def proven(said: Ask, tokens: Sequence[bytes]) -> bytes | None:
    """The token with which the asker has proved itself, None when it has not; b"" when there are no tokens."""
    for token in tokens:
        if _same(said.mac, _mac(token, "ask", said.op, said.nonce, said.node.encode())):
            return token
    return None if tokens else b""


def answer(said: Ask, beat: bytes, token: bytes) -> bytes:
    """The line that answers, with `beat` as `codec.encode` made it."""
    mac = _mac(token, "answer", said.op, said.nonce, beat)
    return _line(_Answer(v=VERSION, nonce=said.nonce, beat=msgspec.Raw(beat), mac=mac))


def failure(reason: str) -> bytes:
    """The line that says why there is no answer."""
    return _line(_Answer(v=VERSION, error=printable(reason)))


def hear(line: bytes, node: str, nonce: str, token: bytes, op: str = PROBE) -> Beat:
    """The beat in an answer to our question. Raises `Refused` for anything that is not that node's answer to it."""
    said = _decode(_answers, line, ANSWER_MAX)
    if said.v != VERSION:
        raise Refused(f"an answer of version {said.v}, this monitor reads version {VERSION}")
    if said.error:
        raise Refused(f"it says: {printable(said.error)}")
    if not _same(said.nonce, nonce):
        raise Refused("the answer belongs to another question")
    beat = bytes(said.beat)
    if not _same(said.mac, _mac(token, "answer", op, nonce, beat)):
        raise Refused("the answer is not proved by our token: is probe.token_file the same on agents and monitors?")
    told = codec.decode(Beat, beat)
    if told.node != node:
        raise Refused(f"node {printable(told.node, 128)} answers there")
    return told


def _line(message: Ask | _Answer) -> bytes:
    return _encoder.encode(message) + b"\n"


def _decode(decoder: "msgspec.json.Decoder[_Said]", line: bytes, limit: int) -> _Said:
    if len(line) > limit:
        raise Refused(f"more than {limit} bytes")
    try:
        return decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(f"not understood: {printable(error, 100)}") from None


def _mac(token: bytes, *parts: str | bytes) -> str:
    """Hex, "" without a token. The parts before the last hold no separator, so that no two questions look alike."""
    if not token:
        return ""
    text = b"|".join(part.encode() if isinstance(part, str) else part for part in parts)
    return hmac.new(token, text, "sha256").hexdigest()


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())
