"""A direct look on the wire: whatever comes is understood or refused, and nobody is believed without proof."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankpulse.core import codec, look
from rankpulse.core.codec import Refused
from rankpulse.core.records import Beat, RankRow, RunRow

TOKEN, OTHER = b"0123456789abcdef", b"another token, as long"
NONCE = "ab" * 16
RUN = RunRow(run_id="train", meeting="m", launcher="1.2", world_size=2)
ROW = RankRow(run=0, rank=1, local_rank=1, pid=7, start=8, state="R", phase=0, step=41, first_step=3)
BEAT = Beat(node="n1", inc=2, seq=9, at=1.5, runs=(RUN,), phases=("train",), ranks=(ROW,))
tokens = st.sampled_from((b"", TOKEN, OTHER))


def asked(node: str = "n1", nonce: str = NONCE, token: bytes = TOKEN, op: str = look.PROBE) -> look.Ask:
    return look.understand(look.ask(node, nonce, token, op))


def answered(token: bytes = TOKEN, beat: Beat = BEAT, **ask: str) -> bytes:
    return look.answer(asked(token=token, **ask), codec.encode(beat), token)


@pytest.mark.parametrize("token", [b"", TOKEN])
def test_a_question_and_its_answer(token: bytes) -> None:
    line = look.ask("n1", NONCE, token)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert len(line) <= look.ASK_MAX
    assert TOKEN not in line
    assert look.proven(look.understand(line), (token,) if token else ()) == token
    assert look.hear(answered(token), "n1", NONCE, token) == BEAT


def test_any_of_several_tokens_proves_and_is_the_one_that_answers() -> None:
    assert look.proven(asked(token=OTHER), (TOKEN, OTHER)) == OTHER
    assert look.proven(asked(token=b"a token taken away"), (TOKEN, OTHER)) is None
    assert look.proven(asked(token=b""), (TOKEN,)) is None


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (answered(OTHER), "not proved by our token"),
        (answered(b""), "not proved by our token"),
        (answered(nonce="cd" * 16), "another question"),
        (answered(op="evidence"), "not proved"),
        (answered(beat=Beat(node="n2", inc=1, seq=1, at=0.0)), "node n2 answers"),
        (look.failure("no \x1b[2J"), r"it says: no \\x1b"),
        (b'{"v":2}\n', "version 2"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "not understood"),
        (b"HTTP/1.1 400 Bad Request\r\n", "not understood"),
        (b'{"v":1}\n', "another question"),
        (look.ask("n1", NONCE, TOKEN), "not proved"),  # what a socket that met itself would hear
        (b"[" * 5000 + b"\n", "not understood"),
        (b" " * (look.ANSWER_MAX + 1), "more than"),
    ],
)
def test_what_is_no_answer_to_us(line: bytes, why: str) -> None:
    with pytest.raises(Refused, match=why):
        look.hear(line, "n1", NONCE, TOKEN)


@given(st.binary(max_size=300), st.binary(max_size=4))
def test_whatever_comes_is_refused_or_understood(garbage: bytes, end: bytes) -> None:
    for data in (garbage, b'{"v":1,' + garbage + b"}\n" + end, garbage + b"\xed\xa0\x80" + end):
        for read in (look.understand, lambda line: look.hear(line, "n1", NONCE, TOKEN)):
            with pytest.raises(Refused):
                read(data)


@given(st.data())
def test_one_changed_byte_of_an_answer_is_never_another_truth(data: st.DataObject) -> None:
    line = bytearray(answered())
    line[data.draw(st.integers(0, len(line) - 1))] = data.draw(st.integers(0, 255))
    try:
        heard = look.hear(bytes(line), "n1", NONCE, TOKEN)
    except Refused:
        return
    assert heard == BEAT


@given(
    st.text(max_size=128).filter(lambda text: text.isprintable()),
    st.binary(min_size=8, max_size=64),
    tokens,
    tokens,
    st.from_regex(r"\A[a-z_]{1,32}\Z"),
)
def test_only_who_knows_the_token_is_believed(node: str, nonce: bytes, mine: bytes, theirs: bytes, op: str) -> None:
    line = look.ask(node, nonce.hex(), theirs, op)
    said = look.understand(line)
    assert (said.node, said.nonce, said.op) == (node, nonce.hex(), op)
    believed = look.proven(said, (mine,) if mine else ())
    assert believed == (mine if not mine or mine == theirs else None)


@pytest.mark.parametrize("change", [{"op": "evidence"}, {"node": "n2"}, {"nonce": "00" * 16}])
def test_a_proof_proves_one_question(change: dict[str, str]) -> None:
    said = asked()
    forged = look.Ask(**{"v": 1, "op": said.op, "node": said.node, "nonce": said.nonce, "mac": said.mac} | change)
    assert look.proven(forged, (TOKEN,)) is None
