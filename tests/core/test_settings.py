"""Settings: presets hold, and every problem is reported at once with its key."""

import contextlib
import copy
import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankpulse.core import settings
from rankpulse.core.doubts import doubts
from rankpulse.core.settings import PRESETS, BadSettings, Settings, parse, preset
from rankpulse.monitor import canary


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_meant_as_it_is(name: str) -> None:
    assert doubts(preset(name)) == []


@pytest.mark.parametrize(
    ("tree", "words"),
    [
        ({"detect": {"node_dead_after_s": 0.5}}, "node_dead_after_s = 0.5 is less than"),
        ({"detect": {"node_dead_after_s": 20.0, "rack_dead_after_s": 10.0}}, "sooner than one"),
        ({"detect": {"node_dead_after_s": 20.0, "unwitnessed_after_s": 10.0}}, "than without"),
        ({"detect": {"unwitnessed_after_s": 3.0}}, "node_dead_after_s 17.5 by the cost rule: with a witness"),
        ({"detect": {"rack_dead_after_s": 3.0}}, "sooner than one"),
        ({"detect": {"silence_ceiling_s": 5.0}}, "a person is called before"),
        ({"probe": {"timeout_s": 4.0}}, "nobody waits for a look"),
        ({"probe": {"timeout_s": 2.0, "interval_s": 0.1}}, "before it can come back"),
    ],
)
def test_what_is_allowed_and_hardly_meant_is_said(tree: dict, words: str) -> None:
    assert any(words in doubt for doubt in doubts(parse(tree)))


def problems(tree: dict) -> list[str]:
    with pytest.raises(BadSettings) as caught:
        parse(tree)
    return caught.value.problems


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_valid(name: str) -> None:
    assert preset(name).preset == name


def test_nothing_given_is_the_default() -> None:
    assert parse({}) == Settings()


def test_a_section_changes_the_preset_it_stands_on() -> None:
    found = parse({"preset": "drill", "detect": {"margin_cap_s": 2.5}})
    assert found.detect.margin_cap_s == 2.5
    assert found.detect.heartbeat_interval_s == 0.5


def test_all_problems_at_once_each_with_its_key() -> None:
    found = problems(
        {
            "cluster": "a/b",
            "preset": "lann",
            "colour": 1,
            "store": {"endpoints": "x", "passwort": "y"},
            "detect": {"heartbeat_interval_s": "fast"},
            "agent": 5,
        }
    )
    text = "\n".join(found)
    for word in (
        "cluster",
        "lann",
        "colour",
        "store.endpoints",
        "store.passwort",
        "detect.heartbeat_interval_s",
        "agent",
    ):
        assert word in text, word


@pytest.mark.parametrize("listen", ["", "127.0.0.1:0", "localhost:9466", "[::1]:0"])
def test_direct_looks_within_one_machine_need_no_token(listen: str) -> None:
    assert parse({"probe": {"listen": listen}}).probe.token_file == ""


def test_direct_looks_from_elsewhere_take_a_token() -> None:
    assert parse({"probe": {"listen": ":9466", "token_file": "/etc/token", "advertise": "gpu07:9466"}})


@pytest.mark.parametrize(
    ("tree", "word"),
    [
        ({"detect": {"margin_floor_s": 9.0, "margin_cap_s": 1.0}}, "margin_floor_s"),
        ({"detect": {"quiet_s": -1.0}}, "quiet_s"),
        ({"detect": {"settle_s": math.nan}}, "settle_s"),
        ({"detect": {"hang_prior_s": math.inf}}, "hang_prior_s"),
        ({"detect": {"quantile": 1.5}}, "quantile"),
        ({"monitor": {"lease_ttl_s": 1.0}}, "lease_ttl_s"),
        ({"store": {"endpoints": []}}, "endpoints"),
        ({"store": {"cert_file": "a"}}, "key_file"),
        ({"store": {"user": "a"}}, "password_file"),
        ({"agent": {"spool_max": 0}}, "spool_max"),
        ({"agent": {"spool_max": 10**4000}}, "spool_max"),
        ({"agent": {"node": "we ird"}}, "agent.node"),
        ({"agent": {"listen": "9465"}}, "agent.listen"),
        ({"probe": {"listen": "9466"}}, "probe.listen"),
        ({"probe": {"listen": "0.0.0.0:9466"}}, "probe.token_file"),
        ({"probe": {"listen": "gpu07:9466"}}, "probe.token_file"),
        ({"probe": {"advertise": "0.0.0.0:9466"}}, "probe.advertise"),
        ({"probe": {"advertise": "gpu07"}}, "probe.advertise"),
        ({"monitor": {"name": "we ird"}}, "monitor.name"),
        ({"monitor": {"listen": "garbage"}}, "monitor.listen"),
        ({"monitor": {"tick_interval_s": 1e9}}, "tick_interval_s"),
        ({"monitor": {"lease_ttl_s": 1e18}}, "lease_ttl_s"),
        ({"store": {"timeout_s": 1e300}}, "timeout_s"),
        ({"store": {"endpoints": ["ok:1", "foo"]}}, "store.endpoints: endpoint 'foo'"),
        ({"store": {"endpoints": ["http://ok:1"], "ca_file": "ca"}}, "use https"),
        ({"detect": {"canary_late_s": 0.2}}, "canary_late_s must be more than 1"),
        ({"detect": {"observer_gap_s": 0.05}}, "twice monitor.tick_interval_s"),
        ({"detect": {"hang_floor_s": 1e9}}, "hang_floor_s"),
        ({"policy": {"orders_per_run": -1}}, "orders_per_run"),
        ({"policy": {"hang_act_s": -1}}, "hang_act_s"),
        ({"policy": {"grace_s": float("nan")}}, "grace_s"),
    ],
)
def test_values_that_make_no_sense(tree: dict, word: str) -> None:
    assert any(word in line for line in problems(tree))


def test_ranges_are_told_beside_wrong_types_and_nothing_is_said_of_what_has_none() -> None:
    found = problems(
        {
            "detect": {"margin_cap_s": "x", "margin_floor_s": 9.0, "quiet_s": -1.0},
            "store": {"timeout_s": "soon", "endpoints": ["foo"]},
            "monitor": 5,
        }
    )
    assert [line.split(":")[0] for line in found] == [
        "detect.margin_cap_s",
        "detect.quiet_s",
        "monitor",
        "store.endpoints",
        "store.timeout_s",
    ]


def test_of_an_unknown_preset_only_what_was_given_is_judged() -> None:
    found = problems({"preset": "lann", "detect": {"margin_cap_s": 0.8, "quiet_s": -1.0}})
    assert [line.split(":")[0] for line in found] == ["detect.quiet_s", "preset 'lann'"]


def test_every_number_has_a_range() -> None:
    numbers = {
        f"{section}.{field.name}"
        for section, kind in settings._SECTIONS.items()
        for field in msgspec.structs.fields(kind)
        if field.type in (int, float)
    }
    assert numbers == set(settings._RANGES)


def test_the_canary_is_written_as_often_as_the_check_thinks() -> None:
    assert canary.EVERY_S == settings.CANARY_EVERY_S


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
_sections = st.sampled_from(["cluster", "preset", "store", "detect", "agent", "monitor", "policy"])
_fields = st.sampled_from([field.name for field in msgspec.structs.fields(type(Settings().detect))])


@given(st.dictionaries(_sections, _json | st.dictionaries(_fields, _json, max_size=3), max_size=4))
def test_parsing_is_total(tree: dict) -> None:
    with contextlib.suppress(BadSettings):
        parse(tree)


def test_what_is_wrong_is_told_line_by_line_also_by_another_process() -> None:
    with pytest.raises(BadSettings) as told:
        parse({"preset": "nope", "cluster": 3})
    assert copy.copy(told.value).problems == told.value.problems
    assert len(told.value.problems) == 2
