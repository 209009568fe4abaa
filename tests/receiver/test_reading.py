"""Bodies: what a monitor makes is read, everything else is refused in a sentence."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from receiver_world import other, restart

from rankpulse.receiver.reading import Unreadable, event

ID = json.loads(restart())["id"]


def changed(**fields: Any) -> bytes:
    tree = json.loads(restart())
    data = fields.pop("data", {})
    return json.dumps({**tree, **fields, "data": {**tree["data"], **data}}).encode()


def test_what_a_monitor_says_is_read() -> None:
    found = event(restart(), ID).data
    assert (found.event, found.run_id, found.without, found.round) == ("restart", "77", ("gpu07",), 3)
    for name in ("page", "closed", "test"):
        body = other(name)
        assert event(body, json.loads(body)["id"]).data.event == name


def test_fields_may_be_added() -> None:
    assert event(changed(data={"new": {"a": [1]}}, extension="x"), ID).data.run_id == "77"


def test_events_of_large_runs_are_read() -> None:
    nodes = [f"gpu{n:05d}" for n in range(5000)]
    assert len(event(changed(data={"nodes": nodes}), ID).data.nodes) == 5000


DEEP = "[" * 50_000
GARBAGE = [
    b"",
    b"\xff\xfe",
    b"nonsense",
    b"[]",
    b"7",
    b"null",
    b"{}",
    DEEP.encode(),
    restart() + b"{}",
    restart().replace(b'"round":3', b'"round":NaN'),
    restart().replace(b'"round":3', b'"round":Infinity'),
    restart().replace(b'"round":3', b'"round":' + b"9" * 100_000),
    restart().replace(b'"round":3', b'"round":99999999999'),
    restart().replace(b'"round":3', b'"round":true'),
    restart().replace(b'"round":3', b'"round":3.5'),
    restart().replace(b'"run_id":"77"', b'"run_id":"77","run_id":"78"'),
    restart().replace(b'"run_id":"77"', b'"run_id":["77"]'),
    changed(data={"run_id": "x" * 4001}),
    changed(data={"at": -1}),
    changed(data={"at": 1e300}),
    changed(data={"nodes": "gpu07"}),
    changed(data={"nodes": ["x"] * 20_001}),
    changed(data={"more": json.loads("[" * 20 + "]" * 20)}),
    changed(specversion="0.3"),
    changed(id="prod/other"),
    changed(type="rankpulse.page"),
    changed(source="/rankpulse/other"),
    changed(data={"cluster": "other"}),
    changed(data={"event": "page"}),
]


@pytest.mark.parametrize("body", GARBAGE, ids=range(len(GARBAGE)))
def test_garbage_is_refused_in_a_short_sentence(body: bytes) -> None:
    with pytest.raises(Unreadable) as refused:
        event(body, ID)
    assert len(str(refused.value)) < 300


@given(st.binary(max_size=300), st.integers(0, 500))
def test_no_bytes_do_anything_else_than_be_refused_or_read(noise: bytes, place: int) -> None:
    body = restart()
    for one in (noise, body[:place] + noise + body[place:]):
        try:
            event(one, ID)
        except Unreadable:
            continue
