"""What an agent is asked for beyond its beat, on suspicion: a node's evidence, and full dumps piece by piece. Pure.

    collect   about {"order_id","run_uid","round"}    part: a `core.dossier.Part`
    dump      about {"name","offset"}                 part: {"name","size","offset","data"}, `data` in base64

Question and answer travel and are proved like a look's (`core/look.py`); `about` and `part` are under the same proof.
"""

import base64
import binascii
from typing import Annotated, Final, TypeVar

import msgspec
from msgspec import Meta

from rankpulse.core import dossier, look
from rankpulse.core.codec import Refused
from rankpulse.core.words import printable

COLLECT: Final = "collect"
DUMP: Final = "dump"
LINE_MAX: Final = 512 * 1024  # of an answer to these
CHUNK_MAX: Final = 256 * 1024  # bytes of a dump in one answer
DUMP_MAX: Final = 4 * 1024 * 1024  # of one whole dump, compressed as it lies on disk
_Text = Annotated[str, Meta(max_length=160)]
_Count = Annotated[int, Meta(ge=0, le=2**31)]


class Collect(msgspec.Struct, frozen=True, kw_only=True):
    """Whose evidence. Questions with the same order get one and the same collection."""

    order_id: _Text
    run_uid: _Text
    round: _Count


class Fetch(msgspec.Struct, frozen=True, kw_only=True):
    """Which dump, from which byte on."""

    name: Annotated[str, Meta(pattern=r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,150}\Z")]
    offset: _Count = 0


class Chunk(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of a dump. `size`: of the whole."""

    name: _Text
    size: _Count
    offset: _Count
    data: bytes


class _Wired(msgspec.Struct, frozen=True, kw_only=True):
    name: _Text
    size: Annotated[int, Meta(ge=0, le=DUMP_MAX)]
    offset: Annotated[int, Meta(ge=0, le=DUMP_MAX)]
    data: str


T = TypeVar("T", Collect, Fetch, _Wired)
_collects: Final = msgspec.json.Decoder(Collect)
_fetches: Final = msgspec.json.Decoder(Fetch)
_wired: Final = msgspec.json.Decoder(_Wired)


def ask_collect(node: str, nonce: str, token: bytes, about: Collect) -> bytes:
    """The line that asks a node for its evidence."""
    return look.ask(node, nonce, token, COLLECT, msgspec.json.encode(about))


def ask_dump(node: str, nonce: str, token: bytes, about: Fetch) -> bytes:
    """The line that asks a node for a piece of a dump."""
    return look.ask(node, nonce, token, DUMP, msgspec.json.encode(about))


def collect_of(said: look.Ask) -> Collect:
    """What a question is about. Raises `Refused`."""
    return _read(_collects, bytes(said.about))


def fetch_of(said: look.Ask) -> Fetch:
    """What a question is about. Raises `Refused`."""
    return _read(_fetches, bytes(said.about))


def chunk(piece: Chunk) -> bytes:
    """As a `part`, for `look.answer_part`."""
    text = base64.b64encode(piece.data).decode("ascii")
    return msgspec.json.encode(_Wired(name=piece.name, size=piece.size, offset=piece.offset, data=text))


def hear_collect(line: bytes, node: str, nonce: str, token: bytes) -> dossier.Part:
    """The evidence in an answer. Raises `Refused` for anything that is not that node's answer to our question."""
    told = dossier.decode(look.hear_part(line, nonce, token, COLLECT, LINE_MAX))
    if told.node != node:
        raise Refused(f"node {printable(told.node, 128)} answers there")
    return told


def hear_dump(line: bytes, nonce: str, token: bytes, about: Fetch) -> Chunk:
    """The piece in an answer. Raises `Refused` for anything that is not the piece that was asked for."""
    said = _read(_wired, look.hear_part(line, nonce, token, DUMP, LINE_MAX))
    try:
        data = base64.b64decode(said.data, validate=True)
    except (binascii.Error, ValueError):
        raise Refused("not understood: its bytes are no base64") from None
    if (said.name, said.offset) != (about.name, about.offset) or said.offset + len(data) > said.size:
        raise Refused("the answer is no piece of what was asked for")
    return Chunk(name=said.name, size=said.size, offset=said.offset, data=data)


def _read(decoder: "msgspec.json.Decoder[T]", raw: bytes) -> T:
    try:
        return decoder.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(f"not understood: {printable(error, 100)}") from None
