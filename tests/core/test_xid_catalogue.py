"""The catalogue as data: every code has all its parts, offline diagnosis sees the same, and known traps are avoided."""

import pytest

from rankpulse.core import xid_catalogue as c
from rankpulse.core import xids


def test_every_code_has_all_its_parts() -> None:
    assert (len(c.xids()), len(c.sxids())) == (176, 95)
    for code, found in c.xids().items():
        assert code == found.code
        assert found.role in (c.CAUSE, c.CONSEQUENCE, c.INFORMATIONAL, c.UNKNOWN)
        assert found.scope in (c.PROCESS, c.GPU, c.LINK, c.FABRIC, c.NODE)
        assert found.program in ("no", "unlikely", "possible", "likely", "unknown")
        assert found.action in (*c.ACTIONS, c.DECODE, c.STATED)
        assert all((found.mnemonic, found.meaning, found.generation, found.source, found.followup))
    for number, switch in c.sxids().items():
        assert number == switch.code
        assert switch.action in c.ACTIONS
        assert all((switch.meaning, switch.role, switch.scope, switch.fatal, switch.followup))


@pytest.mark.parametrize(
    ("code", "role", "program", "action", "meaning"),
    [
        (13, c.CAUSE, "likely", c.RESTART_APP, xids.PROGRAM),
        (48, c.CAUSE, "no", c.RESET_GPU, xids.HARDWARE),
        (63, c.INFORMATIONAL, "no", c.IGNORE, xids.NOTE),
        (79, c.CAUSE, "no", c.DRAIN_REBOOT, xids.HARDWARE),
        (94, c.CAUSE, "no", c.RESTART_APP, xids.HARDWARE),
        (95, c.CAUSE, "no", c.RESET_GPU, xids.HARDWARE),
        (109, c.CAUSE, "possible", c.RESET_GPU, xids.HARDWARE),
        (119, c.CAUSE, "no", c.RESET_GPU, xids.HARDWARE),
        (121, c.INFORMATIONAL, "no", c.IGNORE, xids.NOTE),
        (149, c.CAUSE, "no", c.DECODE, xids.NVLINK),
        (74, c.CAUSE, "no", c.RESET_GPU, xids.NVLINK),
        (137, c.CAUSE, "likely", c.RESTART_APP, xids.PROGRAM),
        (15, c.UNKNOWN, "unknown", c.CONTACT_VENDOR, xids.UNLISTED),
        (99999, c.UNKNOWN, "unknown", c.CONTACT_VENDOR, xids.UNLISTED),
    ],
)
def test_spot_rows(code: int, role: str, program: str, action: str, meaning: str) -> None:
    """A table that was made by a wrong column shows here."""
    found = c.of(code)
    assert (found.role, found.program, found.action, xids.meaning(code)) == (role, program, action, meaning)


def test_what_follows_from_others_is_never_a_cause() -> None:
    for code in (43, 45, 154, 160, 161):
        assert c.of(code).role == c.CONSEQUENCE
        assert xids.meaning(code) == xids.ECHO


def test_recovery_actions_go_by_number_and_the_heavier_wins() -> None:
    asked = [c.of_recovery(number) for number in range(8)]
    assert asked == [
        c.IGNORE, c.RESET_GPU, c.DRAIN_REBOOT, c.RESET_GPU, c.RESET_GPU, c.RESTART_APP, c.DRAIN_REBOOT, c.DRAIN_REBOOT
    ]  # fmt: skip
    assert c.of_recovery(42) == c.CONTACT_VENDOR
    assert c.heavier(c.of(79).action, c.of_recovery(1)) == c.DRAIN_REBOOT
    assert c.heavier(c.of(13).action, c.of_recovery(2)) == c.DRAIN_REBOOT
