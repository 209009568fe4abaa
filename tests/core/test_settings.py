"""Settings: presets hold, and every problem is reported at once with its key."""

import contextlib
import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankpulse.core.settings import PRESETS, BadSettings, Settings, parse, preset


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
    settings = parse({"preset": "drill", "detect": {"margin_cap_s": 2.5}})
    assert settings.detect.margin_cap_s == 2.5
    assert settings.detect.heartbeat_interval_s == 0.5


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
    ],
)
def test_values_that_make_no_sense(tree: dict, word: str) -> None:
    assert any(word in line for line in problems(tree))


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
