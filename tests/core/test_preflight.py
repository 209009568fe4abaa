"""What findings about a node come to."""

import pytest

from rankpulse.core import preflight as pf
from rankpulse.core.preflight import FAIL, OK, UNKNOWN, WARN, Finding, Gpu, Gpus, Space


def levels(findings: list[Finding]) -> list[str]:
    return [finding.level for finding in findings]


def well(index: int = 0) -> Gpu:
    return Gpu(index, bus="0000:0f:00.0", name="H200", action=0, remap_failed=False, remap_pending=False, fabric=3)


def test_gpus_without_complaint() -> None:
    (found,) = pf.of_gpus(Gpus((well(0), well(1)), "595.45.04"), 2)
    assert found == Finding("gpu", OK, "2 GPUs without complaint, driver 595.45.04")
    assert pf.refusal([found]) == pf.lacking([found]) == ""


@pytest.mark.parametrize(
    ("action", "level", "says"),
    [
        (1, FAIL, "asks for a reset"),
        (2, FAIL, "asks for a reboot"),
        (3, FAIL, "traffic between GPUs"),
        (4, WARN, "drained and reset"),
        (5, FAIL, "IMEX"),
        (6, FAIL, "bus"),
        (7, FAIL, "reboot of the system"),
        (99, FAIL, "recovery action 99"),
        (None, UNKNOWN, "does not tell its recovery action"),
    ],
)
def test_the_recovery_action(action: int | None, level: str, says: str) -> None:
    """What still works keeps nobody out; a number that is not known yet does."""
    (found,) = pf.of_gpus(Gpus((Gpu(3, bus="0000:0f:00.0", action=action),)), 0)
    assert (found.level, says in found.text, "GPU 3 (0000:0f:00.0)" in found.text) == (level, True, True)


@pytest.mark.parametrize(
    ("gpu", "level"),
    [
        (Gpu(0, error=15), FAIL),
        (Gpu(0, error=16), FAIL),
        (Gpu(0, error=999), FAIL),
        (Gpu(0, error=4, error_text="Insufficient Permissions"), UNKNOWN),
        (Gpu(0, action=0, remap_failed=True), FAIL),
        (Gpu(0, action=0, remap_pending=True), WARN),
        (Gpu(0, action=0, fabric=2), FAIL),
        (Gpu(0, action=0, fabric=1), WARN),
    ],
)
def test_what_is_wrong_with_a_gpu(gpu: Gpu, level: str) -> None:
    assert levels(pf.of_gpus(Gpus((gpu,)), 0)) == [level]


@pytest.mark.parametrize(
    ("code", "level"), [(-1, UNKNOWN), (12, UNKNOWN), (9, UNKNOWN), (999, UNKNOWN), (15, FAIL), (16, FAIL), (18, FAIL)]
)
def test_nvml_that_does_not_answer_is_unknown_unless_no_program_could_use_the_gpus(code: int, level: str) -> None:
    (found,) = pf.of_gpus(Gpus(error=code), 8)
    assert found.level == level
    assert bool(pf.refusal([found])) == (level == FAIL)
    assert bool(pf.lacking([found])) == (level == UNKNOWN)


def test_a_gpu_that_is_not_listed_any_more_is_missed() -> None:
    found = pf.of_gpus(Gpus((well(0),)), 2)
    assert pf.refusal(found) == "refused, because the driver lists 1 of 2 GPUs"


@pytest.mark.parametrize(
    ("space", "level"),
    [
        (Space("/ckpt", 2048 * pf.MIB), OK),
        (Space("/ckpt", 1023 * pf.MIB), FAIL),
        (Space("/ckpt", 2048 * pf.MIB, read_only=True), FAIL),
        (Space("/ckpt", error="Stale file handle"), FAIL),
        (Space("/ckpt", 2048 * pf.MIB, files_left=0), FAIL),
        (Space("/ckpt", 2048 * pf.MIB, files_left=1), OK),
        (Space("/ckpt", error="Permission denied", denied=True), UNKNOWN),
    ],
)
def test_room(space: Space, level: str) -> None:
    assert pf.of_space("checkpoint directory", space, 1024).level == level


def test_a_clock_that_differs_is_told_of_and_keeps_nobody_out() -> None:
    """Records are of the past: only one from the future shows anything."""
    assert pf.of_clock(1000.0, [("n2", 400.0), ("n3", 1004.0)], 5.0).level == OK
    found = pf.of_clock(1000.0, [("n2", 400.0), ("n3", 1062.0)], 5.0)
    assert (found.level, "62 s behind that of n3" in found.text) == (WARN, True)
    assert pf.refusal([found]) == ""
    assert pf.of_clock(1000.0, [], 5.0).level == OK


def test_all_reasons_are_given_in_one_line() -> None:
    found = [Finding("a", FAIL, "this"), Finding("b", OK, "not this"), Finding("c", FAIL, "that\nand\x1b[2J")]
    assert pf.refusal(found) == "refused, because this; that\\x0aand\\x1b[2J"


def test_it_is_looked_at_again_ever_more_seldom() -> None:
    assert [pf.again_s(n, 5.0, 60.0) for n in (1, 2, 3, 4, 5, 10_000)] == [5, 10, 20, 40, 60, 60]


@pytest.mark.parametrize(
    ("round_", "alone", "over"),
    [(1, False, True), (2, False, True), (3, True, True), (3, False, False), (4, True, False), (0, True, False)],
)
def test_whose_round_is_certainly_over(round_: int, alone: bool, over: bool) -> None:
    """The torchrun that asks was in round 3, the newest: of another torchrun here it could go on."""
    assert pf.is_over(round_, newest=3, left=3, alone=alone) is over


def test_a_newcomer_ends_nobody_of_the_round_that_stands() -> None:
    assert not pf.is_over(3, newest=3, left=0, alone=True)
    assert pf.is_over(2, newest=3, left=0, alone=True)
