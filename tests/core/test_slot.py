"""The reader of slots: total over any bytes, and whole under a writer that never rests."""

import itertools
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankpulse.core import slot, slot_numbers
from rankpulse.core.slot_numbers import NUMBERS, NUMBERS_AT, Numbers

PULSE = slot.Pulse(step=7, first_step=3, stamp_ns=123, loss=0.5, phase="train", pulses=9)
IMAGE = slot.image({"rank": 1}, PULSE, {"kind": "exit"})


def changed(data: bytes, at: int, new: bytes) -> bytes:
    return data[:at] + new + data[at + len(new) :]


def test_what_was_written_is_read() -> None:
    assert slot.read(lambda: IMAGE) == slot.Slot(PULSE, {"rank": 1}, {"kind": "exit"})


def test_no_ending_yet() -> None:
    assert slot.read(lambda: slot.image({}, PULSE)).ending is None


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "0 bytes"),
        (bytes(slot.SLOT_SIZE), "wrong magic"),
        (changed(IMAGE, 8, b"\x09"), "slot version 9"),
        (changed(IMAGE, 12, b"\x09"), "expected 4096"),
        (IMAGE + b"\0", "4097 bytes"),
        (changed(IMAGE, slot.IDENTITY_AT, b"\xff\xff\xff\xff"), "identity of 4294967295 bytes"),
        (changed(IMAGE, slot.IDENTITY_AT + 4, b"\xff"), "identity is not JSON"),
        (changed(IMAGE, slot.IDENTITY_AT, slot.pack_json([1, 2], 64)), "identity is not a JSON object"),  # type: ignore[arg-type]
        (changed(IMAGE, slot.IDENTITY_AT, slot.pack_json({"a": "\ud800"}, 64)), "identity is not JSON"),
        (changed(IMAGE, slot.ENDING_AT, b"\x40\x40"), "ending of"),
        (changed(IMAGE, slot.PULSE_AT, b"\xee"), "torn"),
    ],
)
def test_bytes_that_are_no_slot_are_refused_with_a_reason(data: bytes, says: str) -> None:
    with pytest.raises(slot.SlotRefused, match=says):
        slot.read(lambda: data)


def test_deep_json_is_refused() -> None:
    body = b'{"a":' + b"[" * 2000
    data = changed(IMAGE, slot.IDENTITY_AT, slot.LENGTH.pack(len(body)) + body)
    with pytest.raises(slot.SlotRefused, match="not JSON"):
        slot.read(lambda: data)


def test_a_pulse_that_is_just_being_zeroed_is_not_read_as_step_0() -> None:
    data = changed(IMAGE, slot.PULSE_AT, bytes(slot.PULSE.size))
    with pytest.raises(slot.SlotRefused, match="torn"):
        slot.read(lambda: data)


def test_a_torn_read_is_tried_again() -> None:
    torn = changed(IMAGE, slot.PULSE_AT, b"\xee")
    copies = iter([IMAGE, torn, torn, IMAGE, IMAGE, IMAGE])
    assert slot.read(lambda: next(copies)).pulse == PULSE


def test_a_file_that_shrinks_while_it_is_read_is_refused() -> None:
    copies = itertools.chain([IMAGE], itertools.repeat(b"short"))
    with pytest.raises(slot.SlotRefused):
        slot.read(lambda: next(copies))


def test_an_ending_half_written_waits_for_the_whole() -> None:
    half = changed(IMAGE, slot.ENDING_AT, bytes(4))
    copies = iter([half, IMAGE, IMAGE, IMAGE])
    assert slot.read(lambda: next(copies)).ending == {"kind": "exit"}


def test_control_characters_do_not_leave_a_phase() -> None:
    data = slot.image({}, PULSE._replace(phase="\x1b[31m\n"))
    assert slot.read(lambda: data).pulse.phase == "?[31m?"


def test_what_does_not_fit_is_said() -> None:
    with pytest.raises(ValueError, match="do not fit"):
        slot.image({"a": "x" * 3000}, PULSE)


@given(st.binary(max_size=64) | st.binary(min_size=slot.SLOT_SIZE, max_size=slot.SLOT_SIZE))
def test_any_bytes_give_a_slot_or_a_reason(data: bytes) -> None:
    _read_or_refuse(data)


@given(st.lists(st.tuples(st.integers(0, slot.SLOT_SIZE - 1), st.binary(min_size=1, max_size=24)), max_size=6))
def test_any_change_to_a_slot_gives_a_slot_or_a_reason(edits: list[tuple[int, bytes]]) -> None:
    data = IMAGE
    for at, new in edits:
        data = changed(data, at, new)[: slot.SLOT_SIZE]
    _read_or_refuse(data)


@given(st.binary(max_size=slot.ENDING_MAX - 4), st.sampled_from([slot.IDENTITY_AT, slot.ENDING_AT]))
def test_any_text_in_place_of_the_json(body: bytes, at: int) -> None:
    _read_or_refuse(changed(IMAGE, at, slot.LENGTH.pack(len(body)) + body))


def _read_or_refuse(data: bytes) -> None:
    try:
        found = slot.read(lambda: data)
    except slot.SlotRefused:
        return
    json.dumps([found.identity, found.ending], ensure_ascii=False).encode()
    assert found.pulse.phase.isprintable()


WRITER = """
import mmap, sys
from rankpulse.core.slot import PULSE, PULSE_AT
file = open(sys.argv[1], "r+b")
shared = mmap.mmap(file.fileno(), 4096)
print("ready", flush=True)
pack, n, phases = PULSE.pack_into, 10, (b"even", b"odd")
while True:
    n += 1
    pack(shared, PULSE_AT, n, n, -n, n, float(n), phases[n & 1], n, n)
"""


@pytest.mark.live
def test_no_read_mixes_two_writes_of_a_writer_that_never_rests(tmp_path: Path) -> None:
    path = tmp_path / "x.slot"
    path.write_bytes(slot.image({}, slot.Pulse(10, -10, 10, 10.0, "even", 10)))
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE)
    try:
        assert writer.stdout is not None
        writer.stdout.readline()
        seen = _steps_seen(path, reads=20_000)
    finally:
        writer.kill()
        writer.communicate()
    assert len(set(seen)) > 100, "the reader came through, and the writer moved on"
    assert sorted(seen) == seen, "steps never go back"


def _steps_seen(path: Path, reads: int) -> list[int]:
    """Of `reads` reads, and of more where the two share a processor and take turns slowly."""
    seen: list[int] = []
    deadline = time.monotonic() + 30.0
    with path.open("rb", buffering=0) as file:
        while reads > 0 or (len(set(seen)) <= 100 and time.monotonic() < deadline):
            reads -= 1
            try:
                n, first, stamp, loss, phase, pulses = slot.read(lambda: _bytes_of(file)).pulse
            except slot.SlotRefused:  # torn at every attempt: allowed, mixed is not
                continue
            assert (first, stamp, loss, phase, pulses) == (-n, n, float(n), ("even", "odd")[n & 1], n)
            seen.append(n)
    return seen


def _bytes_of(file: "object") -> bytes:
    file.seek(0)  # type: ignore[attr-defined]
    return file.read()  # type: ignore[attr-defined,no-any-return]


def with_numbers(*fields: int) -> bytes:
    return changed(IMAGE, NUMBERS_AT, NUMBERS.pack(*fields))


def test_numbers_are_read_where_they_stand() -> None:
    numbers = Numbers(3, 100, 99, 102, 1, 3, 0)
    data = changed(IMAGE, NUMBERS_AT, slot_numbers.packed(numbers, 5))
    assert slot.read(lambda: data).numbers == numbers


@pytest.mark.parametrize(
    "fields",
    [
        (0, 3, 100, 99, 102, 1, 3, 0, 0),  # zeroed: a write has just begun
        (5, 3, 100, 99, 102, 1, 3, 0, 4),  # and is not over
        (5, 3, -1, 99, 102, 1, 3, 0, 5),  # a row that never began
        (5, 3, 100, 99, 102, 0, 3, 0, 5),  # and of nothing
        (5, 3, 100, 99, 102, 16, 3, 0, 5),
    ],
)
def test_numbers_half_written_or_absurd_are_none(fields: tuple[int, ...]) -> None:
    assert slot.read(lambda: with_numbers(*fields)).numbers is None


def test_numbers_that_change_while_they_are_read_wait() -> None:
    one, other = with_numbers(1, 1, 5, 4, 5, 1, 1, 0, 1), with_numbers(2, 2, 5, 4, 6, 1, 2, 0, 2)
    copies = iter([one, one, other])
    assert slot.read(lambda: next(copies)).numbers is None


@given(st.binary(min_size=NUMBERS.size, max_size=NUMBERS.size), st.booleans())
def test_any_bytes_give_numbers_that_json_carries(body: bytes, guarded: bool) -> None:
    data = body[:-8] + body[:8] if guarded else body
    found = slot.read(lambda: changed(IMAGE, NUMBERS_AT, data)).numbers
    if found is not None:
        assert all(-1 <= field <= 2**53 for field in found)
        assert found.row == 0 or (found.first >= 0 and found.what > 0)


def test_an_update_under_way_is_one_byte_that_older_writers_leave_zero() -> None:
    assert not slot.read(lambda: IMAGE).updating
    assert slot.read(lambda: changed(IMAGE, slot.UPDATING_AT, b"\x01")).updating
    assert not slot.read(lambda: changed(IMAGE, slot.UPDATING_AT, b"\x07")).updating, "no word of ours"
