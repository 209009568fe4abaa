"""Values as JSON: exactly the same again, or refused with the place named."""

import json
import math
from collections import Counter, OrderedDict, defaultdict, deque
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rankpulse.trainer.checkpoint import tree
from rankpulse.trainer.checkpoint.errors import StateRefused
from rankpulse.trainer.checkpoint.strictjson import parsed

numbers = st.integers() | st.floats() | st.booleans() | st.complex_numbers()
keys = st.text() | st.integers() | st.none() | st.floats(allow_nan=False) | st.tuples(st.integers(), st.text())
plain = st.none() | numbers | st.text() | st.binary() | st.binary().map(bytearray) | st.just({"$": "leaf", "v": 1})
values = st.recursive(
    plain,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(keys, inner, max_size=4)
        | st.dictionaries(keys, inner, max_size=4).map(OrderedDict)
        | st.lists(inner, max_size=4).map(lambda items: deque(items, 9))
    ),
    max_leaves=20,
)


def again(value: Any) -> Any:
    return tree.decode(parsed(json.dumps(tree.encode(value, "state"), allow_nan=False).encode()))


@given(values)
def test_any_value_comes_back_as_it_was(value: Any) -> None:
    try:
        back = again(value)
    except StateRefused:
        assume(False)  # nested too deeply
    assert repr(back) == repr(value)


@pytest.mark.parametrize(
    "value",
    [
        Counter({2: 1, 4: 2}),
        {1, 2, 3},
        frozenset({"a"}),
        {"$": 1, "v": 2},
        {1: {2: (3, [4])}, "1": "one"},
        -0.0,
        2**63,
        -(2**200),
        deque([1], 3),
        OrderedDict([("b", 1), ("a", 2)]),
        "half \ud800 of a pair",
        {"\udcff": ("\udcff", "é"), "é": {"\ud800"}},
    ],
    ids=repr,
)
def test_types_are_kept(value: Any) -> None:
    back = again(value)
    assert back == value
    assert type(back) is type(value)
    assert repr(back) == repr(value)


def test_what_is_not_a_number_is_no_number_afterwards_either() -> None:
    back = again([math.nan, math.inf, -math.inf])
    assert math.isnan(back[0])
    assert back[1:] == [math.inf, -math.inf]


def test_a_dict_that_makes_its_own_entries_comes_back_as_a_dict() -> None:
    assert again(defaultdict(list, {"a": [1]})) == {"a": [1]}


def test_numpy_is_kept() -> None:
    numpy = pytest.importorskip("numpy")
    for value in (numpy.float32(0.1), numpy.int64(-7), numpy.bool_(True), numpy.float64("nan")):
        back = again(value)
        assert back.tobytes() == value.tobytes()
        assert back.dtype == value.dtype
    array = numpy.arange(6, dtype="<u4").reshape(2, 3).T
    back = again({"keys": array})["keys"]
    assert back.dtype == array.dtype
    assert (back == array).all()
    back[0, 0] = 1  # can be written to


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({"a": [1, object()]}, "state.a.1: a builtins.object"),
        ({"f": len}, "state.f: a builtins.builtin_function_or_method"),
        ([[{"x": type}]], "state.0.0.x"),
    ],
)
def test_what_cannot_be_kept_is_refused_by_its_place(value: Any, says: str) -> None:
    with pytest.raises(StateRefused) as refused:
        tree.encode(value, "state")
    assert says in str(refused.value)


def test_what_holds_itself_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(StateRefused, match="nested too deeply"):
        tree.encode(value, "state")


def test_what_fits_also_fits_a_manifest() -> None:
    value: Any = 1
    while True:
        try:
            encoded = tree.encode({"x": (value,)}, "state")
        except StateRefused:
            break
        value = {"x": (value,)}
    # a manifest has {"values": {"parts": {name: {"state": {name: ...}}}}} around it
    text = json.dumps({"values": {"parts": {"optim.0": {"state": {"weight": encoded}}}}})
    assert max(text[:at].count("{") + text[:at].count("[") for at in range(len(text) // 2)) <= 64


@pytest.mark.parametrize(
    "hostile",
    [
        {"$": "nobody"},
        {"$": ["tuple"], "v": []},
        {"$": "tuple"},
        {"$": "tuple", "v": 3},
        {"$": "dict", "v": [[1]]},
        {"$": "dict", "v": [[[1], 2]]},
        {"$": "int", "v": "x"},
        {"$": "float", "v": {}},
        {"$": "bytes", "v": "!"},
        {"$": "nparray", "v": ["O", [1], "AAAA"]},
        {"$": "nparray", "v": ["<i8", [10**12], "AAAA"]},
        {"$": "np", "v": ["O", 1]},
        {"$": "deque", "v": [-1, []]},
        {"$": "set", "v": [[]]},
        {"$": "complex", "v": ["1"]},
    ],
    ids=str,
)
def test_what_was_never_made_is_a_value_error_or_harmless(hostile: Any) -> None:
    pytest.importorskip("numpy")
    with suppress(ValueError):
        tree.decode(hostile)


def test_leaves_are_offered_and_found_again() -> None:
    marks = {object(): "a", object(): "b"}
    first, second = marks
    encoded = tree.encode({"x": [first, (second,)]}, "s", lambda value, path: f"{path}={marks[value]}")
    assert list(tree.leaves(encoded)) == ["s.x.0=a", "s.x.1.0=b"]
    assert tree.decode(encoded, lambda payload: payload.upper()) == {"x": ["S.X.0=A", ("S.X.1.0=B",)]}
