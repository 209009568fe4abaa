"""Questions for evidence on the wire: only what was asked, of whom it was asked, by who may ask."""

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankpulse.core import dossier, look
from rankpulse.core import look_evidence as wire
from rankpulse.core.codec import Refused
from rankpulse.core.dossier import Part
from rankpulse.core.look_evidence import Chunk, Collect, Fetch
from rankpulse.core.snapshot import Rank
from rankpulse.core.snapshot_nodes import Node

TOKEN, NONCE = b"a token that is long enough", "5a" * 16
ABOUT = Collect(order_id="c0001-0001", run_uid="r-1", round=3)
PART = Part(node="n1", order_id="c0001-0001", taken_at=5.0, ranks=(Rank(7, state="S"),), report=Node("n1"))
FETCH = Fetch(name="c0001-0001.7.fr.json.gz", offset=4)


def answered(part: Part = PART, token: bytes = TOKEN) -> bytes:
    said = look.understand(wire.ask_collect("n1", NONCE, token, ABOUT))
    return look.answer_part(said, dossier.encode(part), token)


def changed(line: bytes, **fields: Any) -> bytes:
    return json.dumps({**json.loads(line), **fields}, separators=(",", ":")).encode() + b"\n"


@pytest.mark.parametrize("token", [TOKEN, b""], ids=["proved", "for one machine"])
def test_a_question_and_its_answer(token: bytes) -> None:
    said = look.understand(wire.ask_collect("n1", NONCE, token, ABOUT))
    assert look.proven(said, [token] if token else []) == token
    assert (said.op, said.node, wire.collect_of(said)) == (wire.COLLECT, "n1", ABOUT)
    assert wire.hear_collect(answered(token=token), "n1", NONCE, token) == PART


def test_a_piece_of_a_dump() -> None:
    said = look.understand(wire.ask_dump("n1", NONCE, TOKEN, FETCH))
    assert wire.fetch_of(said) == FETCH
    piece = Chunk(name=FETCH.name, size=9, offset=4, data=b"\0\xffabc")
    line = look.answer_part(said, wire.chunk(piece), TOKEN)
    assert wire.hear_dump(line, NONCE, TOKEN, FETCH) == piece


def test_the_largest_question_fits() -> None:
    longest = Collect(order_id="o" * 160, run_uid="r" * 160, round=2**31)
    line = wire.ask_collect("n" * 128, "5a" * 64, TOKEN, longest)
    assert len(line) <= look.ASK_MAX
    assert wire.collect_of(look.understand(line)) == longest
    assert len(wire.ask_dump("n" * 128, "5a" * 64, TOKEN, Fetch(name="d" * 151, offset=2**31))) <= look.ASK_MAX


def test_the_largest_answer_fits() -> None:
    piece = Chunk(name=FETCH.name, size=wire.DUMP_MAX, offset=4, data=b"\xff" * wire.CHUNK_MAX)
    line = look.answer_part(look.understand(wire.ask_dump("n1", NONCE, TOKEN, FETCH)), wire.chunk(piece), TOKEN)
    assert len(line) <= wire.LINE_MAX
    assert wire.hear_dump(line, NONCE, TOKEN, FETCH) == piece


@pytest.mark.parametrize(
    "forged",
    [{"about": {"order_id": "c0001-0001", "run_uid": "r-2", "round": 3}}, {"op": "dump"}, {"node": "n2"},
     {"nonce": "5b" * 16}, {"mac": ""}, {"about": {}}],
    ids=["about", "op", "node", "nonce", "mac", "nothing"],
)  # fmt: skip
def test_a_question_that_was_changed_is_not_proved(forged: dict[str, Any]) -> None:
    line = changed(wire.ask_collect("n1", NONCE, TOKEN, ABOUT), **forged)
    assert look.proven(look.understand(line), [TOKEN]) is None


def test_what_a_question_is_about_cannot_pass_for_a_node() -> None:
    """A proof of one question is none of another that only reads alike."""
    said = look.understand(wire.ask_collect("n1", NONCE, TOKEN, ABOUT))
    other = look.understand(look.ask("n1", NONCE, TOKEN, wire.COLLECT))
    assert said.mac != other.mac
    assert look.proven(other, [TOKEN]) == TOKEN
    with pytest.raises(Refused):
        wire.collect_of(other)


@pytest.mark.parametrize(
    "line",
    [
        answered(token=b"another token"), changed(answered(), nonce="5b" * 16), changed(answered(), mac=""),
        changed(answered(), part={"node": "n1"}), changed(answered(), v=2), changed(answered(), error="no"),
        answered(Part(node="n2", order_id="", taken_at=0.0, report=Node("n2"))), b"", b"x" * (wire.LINE_MAX + 1),
    ],
    ids=range(9),
)  # fmt: skip
def test_what_is_not_that_nodes_answer_is_refused(line: bytes) -> None:
    with pytest.raises(Refused):
        wire.hear_collect(line, "n1", NONCE, TOKEN)


def test_a_beat_is_no_evidence() -> None:
    said = look.understand(look.ask("n1", NONCE, TOKEN))
    with pytest.raises(Refused):
        wire.hear_collect(look.answer(said, dossier.encode(PART), TOKEN), "n1", NONCE, TOKEN)


@pytest.mark.parametrize(
    "piece",
    [{"name": "other"}, {"offset": 5}, {"size": 3}, {"size": wire.DUMP_MAX + 1}, {"data": "*"}, {"data": "YQ"},
     {"offset": -1}],
    ids=range(7),
)  # fmt: skip
def test_what_is_no_piece_of_that_dump_is_refused(piece: dict[str, Any]) -> None:
    said = look.understand(wire.ask_dump("n1", NONCE, TOKEN, FETCH))
    honest = {"name": FETCH.name, "size": 9, "offset": 4, "data": base64.b64encode(b"abc").decode()}
    line = look.answer_part(said, json.dumps({**honest, **piece}).encode(), TOKEN)
    with pytest.raises(Refused):
        wire.hear_dump(line, NONCE, TOKEN, FETCH)


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".x", "-x", "x" * 152, "a b"])
def test_a_name_is_a_name(name: str) -> None:
    line = look.ask("n1", NONCE, TOKEN, wire.DUMP, json.dumps({"name": name}).encode())
    with pytest.raises(Refused):
        wire.fetch_of(look.understand(line))


@given(st.binary(max_size=200) | st.text(max_size=50).map(lambda t: json.dumps({"v": 1, "about": t}).encode()))
def test_reading_is_total(line: bytes) -> None:
    for read in (lambda: wire.collect_of(look.understand(line)), lambda: wire.hear_collect(line, "n", NONCE, b"")):
        with pytest.raises(Refused):
            read()
