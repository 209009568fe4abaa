"""Who is believed: signatures, ages, and headers that nobody's library would send."""

import base64
import hmac

import pytest
from receiver_world import KEY, NOW, restart, signed

from rankpulse.receiver.verifying import Unverified, Verified, verified

SECOND = "ffffffffffffffffffffffffffffffff"
BODY = restart()
GOOD = signed(BODY)


def look(
    headers: dict[str, str] | list[tuple[str, str]],
    body: bytes = BODY,
    keys: tuple[str, ...] = (KEY,),
    now: float = NOW,
) -> Verified | Unverified:
    given = list(headers.items()) if isinstance(headers, dict) else headers
    return verified(given, body, [one.encode() for one in keys], now, 300.0)


def what(found: Verified | Unverified) -> str:
    assert isinstance(found, Unverified)
    return found.what


def test_what_a_monitor_signs_is_believed() -> None:
    assert look(GOOD) == Verified(GOOD["webhook-id"], round(NOW))
    assert isinstance(look({name.title(): value for name, value in GOOD.items()}), Verified)


def test_a_key_is_changed_without_a_gap_on_either_side() -> None:
    for keys in ((SECOND, KEY), (KEY, SECOND)):
        assert isinstance(look(signed(BODY, keys=keys)), Verified)
        assert isinstance(look(signed(BODY, keys=(SECOND,)), keys=keys), Verified)
    assert what(look(signed(BODY, keys=(SECOND,)))) == "signature"


@pytest.mark.parametrize("age", [-300, 0, 300])
def test_clocks_may_differ_a_little(age: int) -> None:
    assert isinstance(look(GOOD, now=NOW + age), Verified)


def test_late_and_early_are_refused_both() -> None:
    assert what(look(GOOD, now=NOW + 301)) == "late"
    assert what(look(GOOD, now=NOW - 301)) == "early"


def test_age_is_told_to_key_holders_only() -> None:
    assert what(look(signed(BODY, keys=(SECOND,), at=NOW - 9999))) == "signature"


@pytest.mark.parametrize(
    "changed",
    [
        {"webhook-id": "prod/i0001-0002-restart/1800000000"},
        {"webhook-timestamp": str(round(NOW) + 1)},
        {"webhook-signature": ""},
        {"webhook-signature": "v1,"},
        {"webhook-signature": "v1,!!!!"},
        {"webhook-signature": GOOD["webhook-signature"].replace("v1,", "v2,")},
        {"webhook-signature": GOOD["webhook-signature"].replace("v1,", "v1a,")},
        {"webhook-signature": GOOD["webhook-signature"].removeprefix("v1,")},
        {"webhook-signature": GOOD["webhook-signature"].rstrip("=")},
        {"webhook-signature": "v1," + base64.b64encode(hmac.digest(b"", b"", "sha256")).decode()},
        {"webhook-signature": "v1,éé"},
    ],
)
def test_forged_signatures_are_refused(changed: dict[str, str]) -> None:
    assert what(look({**GOOD, **changed})) == "signature"


def test_a_changed_body_is_refused() -> None:
    assert what(look(GOOD, BODY + b" ")) == "signature"
    assert what(look(GOOD, b"")) == "signature"


@pytest.mark.parametrize("name", GOOD)
def test_each_header_must_be_there_once(name: str) -> None:
    assert what(look({key: value for key, value in GOOD.items() if key != name})) == "headers"
    assert what(look([*GOOD.items(), (name, GOOD[name])])) == "headers"
    assert what(look([*GOOD.items(), (name.upper(), "1")])) == "headers"


@pytest.mark.parametrize(
    "changed",
    [
        {"webhook-id": ""},
        {"webhook-id": "a.b"},  # where the seam between id and time lies must not be moved
        {"webhook-id": "a b"},
        {"webhook-id": "x" * 301},
        {"webhook-id": "é"},
        {"webhook-timestamp": ""},
        {"webhook-timestamp": "-1"},
        {"webhook-timestamp": "1e9"},
        {"webhook-timestamp": " 1"},
        {"webhook-timestamp": "١٢٣"},
        {"webhook-timestamp": "9" * 5000},
        {"webhook-signature": "v1,AAAA " * 10_000},
    ],
)
def test_headers_that_nobody_signs_are_refused_at_once(changed: dict[str, str]) -> None:
    assert what(look({**GOOD, **changed})) == "headers"


def test_without_any_key_nobody_is_believed() -> None:
    assert what(look(GOOD, keys=())) == "signature"
