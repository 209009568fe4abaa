"""Records of the kernel's log, and how far a reader came: nothing lost unsaid, nothing handed on twice."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankpulse.core.kernel_cursor import Cursor, Found, advance, parse
from rankpulse.core.kernel_log import of_message

LOST = b"NVRM: Xid (PCI:0000:05:00): 79, GPU has fallen off the bus."


def test_a_record_of_the_kernel() -> None:
    record = parse(b"4,1733,48429999,-;" + LOST + b"\n SUBSYSTEM=pci\n DEVICE=+pci:0000:05:00.0\n")
    assert record is not None
    assert (record.seq, record.framed.at) == (1733, 48.429999)
    found = of_message(record.framed)
    assert (found.xid, found.injected) == (79, False)


def test_a_record_that_a_program_wrote() -> None:
    record = parse(b"12,1733,48429999,-,caller=T1;" + LOST)
    assert record is not None
    assert of_message(record.framed).injected


def test_what_stands_in_a_record_cannot_be_another() -> None:
    """Newlines of a message are escaped by the kernel, and a prefix inside of it is text."""
    for text in (b"12,1,2,-;x\\x0a4,2,3,-;" + LOST, b"12,1,2,-;<4>" + LOST, b"12,1,2,-;4,1,2,-;" + LOST):
        record = parse(text)
        assert record is not None
        found = of_message(record.framed)
        assert found.xid is None or found.injected


@pytest.mark.parametrize(
    "raw", [b"", b"x", b";", b"1;x", b"a,b,c,-;x", b"1,2,-;x", b"1,99999999999999999999,3,-;x", LOST]
)
def test_what_is_no_record(raw: bytes) -> None:
    assert parse(raw) is None


@given(st.binary(max_size=300))
def test_any_bytes_are_read(raw: bytes) -> None:
    for data in (raw, b"4,1,2,-;" + raw):
        record = parse(data)
        assert record is None or of_message(record.framed).kind


def test_a_reader_goes_on_where_it_stopped() -> None:
    here = Cursor("a", 10)
    assert advance(here, "a", 9) == Found(here, False)
    assert advance(here, "a", 10) == Found(here, False)
    assert advance(here, "a", 11) == Found(Cursor("a", 11), True)


def test_a_gap_is_told() -> None:
    assert advance(Cursor("a", 10), "a", 15) == Found(Cursor("a", 15), True, 4)


def test_another_boot_starts_over() -> None:
    assert advance(Cursor("a", 10), "b", 3) == Found(Cursor("b", 3), True, 3)
    assert advance(Cursor("a", 10), "b", 0) == Found(Cursor("b", 0), True, 0)


def test_who_starts_to_watch_is_not_told_the_story_of_last_week() -> None:
    assert not advance(Cursor(), "a", 500, stale=True).fresh
    assert advance(Cursor(), "a", 500) == Found(Cursor("a", 500), True)
