"""Codec and keys: bytes that are not ours are refused with the reason; keys and roles are the permission model."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankpulse.core import codec, keys, records
from rankpulse.core.keys import BadName, Keys

KEYS = Keys("c1")
RUN = records.RunRow("none", "0123456789abcdef", "1234.8812345", 16, True)
BEAT = records.Beat(
    node="gpu-017",
    inc=3,
    seq=12345,
    at=1_800_000_000.123,
    runs=(RUN,),
    phases=("train",),
    ranks=tuple(
        records.RankRow(0, 8 + n, n, 1_234_567 + n, 881_234_567 + n, "S", 0, 123_456, 120_001) for n in range(8)
    ),
)


def parsed(key: str) -> keys.Parsed:
    found = KEYS.parse(key)
    assert found is not None
    return found


def test_a_record_comes_back_as_it_was() -> None:
    assert codec.decode(records.Beat, codec.encode(BEAT)) == BEAT


def test_a_beat_of_eight_ranks_is_small() -> None:
    assert len(codec.encode(BEAT)) <= 250 + 50 * 8


def test_unknown_fields_are_ignored_so_that_newer_agents_are_understood() -> None:
    tree = json.loads(codec.encode(BEAT)) | {"new_field": {"a": 1}}
    tree["ranks"][0].append("a column of the future")
    assert codec.decode(records.Beat, json.dumps(tree).encode()) == BEAT


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "not a Beat"),
        (b"\xff\xfe", "not a Beat"),
        (b"[]", "not a Beat"),
        (b'{"v":1}', "node"),
        (codec.encode(BEAT).replace(b'"v":1', b'"v":2'), "schema 2, this version reads 1"),
        (codec.encode(BEAT).replace(b'"seq":12345', b'"seq":"x"'), "seq"),
        (b"[" * 100_000, "not a Beat"),
        (b" " * (codec.MAX_BYTES + 1), "at most"),
    ],
)
def test_bad_bytes_are_refused_with_the_reason(data: bytes, why: str) -> None:
    with pytest.raises(codec.Refused, match=why):
        codec.decode(records.Beat, data)


@given(st.binary(max_size=300), st.sampled_from([records.Beat, records.Observation, records.Incident, records.Order]))
def test_decoding_is_total(data: bytes, kind: type[records.Record]) -> None:
    with contextlib.suppress(codec.Refused):
        codec.decode(kind, data)


def test_nobody_speaks_in_anothers_name() -> None:
    with pytest.raises(codec.Refused, match="'gpu-017' in the record, 'gpu-018' in its key"):
        codec.decode_at(parsed(KEYS.beat("gpu-018")), codec.encode(BEAT))
    assert codec.decode_at(parsed(KEYS.beat("gpu-017")), codec.encode(BEAT)) == BEAT


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        (KEYS.beat("n"), records.Beat),
        (KEYS.claim("n"), records.AgentClaim),
        (KEYS.state("n"), records.NodeState),
        (KEYS.obs("n", 1, 2), records.Observation),
        (KEYS.roster("r", 1), records.Roster),
        (KEYS.run_state("r"), records.RunState),
        (KEYS.checkpoint("r"), records.CheckpointState),
        (KEYS.order("r", 1, "restart"), records.Order),
        (KEYS.incident("i"), records.Incident),
        (KEYS.leader(), records.Leader),
        (KEYS.arm(), records.Arm),
        (KEYS.request("q"), records.Request),
    ],
)
def test_every_key_says_what_it_holds(key: str, kind: type[records.Record]) -> None:
    assert parsed(key).kind is kind


@pytest.mark.parametrize(
    "key",
    [
        "",
        "/x",
        KEYS.prefix,
        KEYS.canary("m"),
        KEYS.epoch(),
        *(
            KEYS.prefix + rest
            for rest in ("nodes/n/obs/x/y", "runs/we ird/roster/1", "incidents/a b", "runs/r/roster/-1")
        ),
    ],
)
def test_foreign_keys_hold_nothing(key: str) -> None:
    assert KEYS.parse(key) is None


@given(st.text(max_size=80))
def test_parsing_keys_is_total(rest: str) -> None:
    KEYS.parse(KEYS.prefix + rest)


@pytest.mark.parametrize("name", ["", "a/b", "a b", "..", "-a", "ü", "x" * 129, "a\n"])
def test_names_that_cannot_stand_in_a_key_say_which_can(name: str) -> None:
    with pytest.raises(BadName, match="letters, digits"):
        KEYS.beat(name)


def test_a_nodes_name_leaves_room_for_its_processes() -> None:
    longest = keys.check_node("n" * keys.NODE_MAX)
    key = KEYS.joiner("run-1", longest, f"{2**22}.{2**46}")
    assert parsed(key).names["node"] == longest
    with pytest.raises(BadName, match="at most 100"):
        keys.check_node("n" * 101)


def test_an_agent_may_write_for_its_own_node_only_and_never_give_orders() -> None:
    agent = KEYS.roles("n1")["agent"]
    may = lambda key: any(key.startswith(prefix) for prefix in agent.write)  # noqa: E731
    assert may(KEYS.beat("n1"))
    assert may(KEYS.obs("n1", 1, 1))
    for key in (KEYS.beat("n10"), KEYS.order("r", 1, "restart"), KEYS.leader(), KEYS.arm(), KEYS.incident("i")):
        assert not may(key), key
