"""Losses and gradient norms that are not finite: what the slot says of them, and that nothing is asked of a device."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankpulse.core import slot
from rankpulse.core.slot_numbers import (
    COUNTED,
    LOSS_INF,
    LOSS_NAN,
    NORM_INF,
    NORM_NAN,
    NUMBERS,
    NUMBERS_AT,
    Numbers,
    in_words,
)
from rankpulse.trainer import place
from rankpulse.trainer.pulse import Pulse

NAN, INF = math.nan, math.inf


class Written:
    """A pulse on plain memory, and what its slot says of numbers."""

    def __init__(self) -> None:
        self.memory = bytearray(slot.SLOT_SIZE)
        self.pulse = Pulse(self.memory)
        place.publish(self.memory, slot.pack_json({}, slot.IDENTITY_MAX))

    def steps(self, first: int, *losses: object) -> None:
        for n, loss in enumerate(losses, first):
            self.pulse.step(n, loss=loss)

    @property
    def numbers(self) -> Numbers | None:
        return slot.read(lambda: bytes(self.memory)).numbers


@pytest.fixture
def written() -> Written:
    return Written()


class OnADevice:
    """Stands for a GPU tensor: whoever asks it anything waits."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} was asked for")

    def __float__(self) -> float:
        raise AssertionError("read")

    __bool__ = __int__ = __index__ = __sub__ = __eq__ = __float__  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]


def test_whoever_hands_over_no_number_tells_nothing_of_numbers(written: Written) -> None:
    written.pulse.step(1)
    written.pulse.step(2, loss=None, grad_norm="x")
    assert written.numbers is None


def test_finite_numbers_say_that_numbers_are_handed_over(written: Written) -> None:
    written.steps(1, 0.5, 0, -3.0, True, 1e308)
    assert written.numbers == Numbers()


def test_a_row_counts_from_its_first_step(written: Written) -> None:
    written.steps(10, 0.5, 0.5, NAN, INF, NAN)
    assert written.numbers == Numbers(3, 12, 11, 14, LOSS_NAN | LOSS_INF, 3, 0)


def test_a_finite_number_ends_the_row_and_the_counts_stay(written: Written) -> None:
    written.steps(10, 0.5, NAN, NAN, 0.5, 0.5)
    assert written.numbers == Numbers(0, -1, 10, 12, 0, 2, 0)
    written.steps(15, NAN)
    assert written.numbers == Numbers(1, 15, 14, 15, LOSS_NAN, 3, 0)


def test_the_very_first_step_has_no_finite_one_before_it(written: Written) -> None:
    written.steps(7, NAN, NAN)
    assert written.numbers == Numbers(2, 7, -1, 8, LOSS_NAN, 2, 0)


def test_gradient_norms_are_counted_apart(written: Written) -> None:
    written.pulse.step(1, loss=0.5, grad_norm=1.0)
    written.pulse.step(2, loss=0.5, grad_norm=INF)
    written.pulse.step(3, loss=NAN, grad_norm=NAN)
    assert written.numbers == Numbers(2, 2, 1, 3, LOSS_NAN | NORM_NAN | NORM_INF, 1, 2)


def test_a_step_without_numbers_leaves_the_row_as_it_is(written: Written) -> None:
    written.steps(1, 0.5, NAN)
    written.pulse.step(3)
    written.steps(4, NAN)
    assert written.numbers == Numbers(2, 2, 1, 4, LOSS_NAN, 2, 0)


def test_steps_that_have_no_number_are_marked_as_a_count(written: Written) -> None:
    for _ in range(2):
        written.pulse.step(loss=NAN)
    assert written.numbers == Numbers(2, 1, -1, 2, LOSS_NAN | COUNTED, 2, 0)


def test_a_first_step_that_the_optimizer_has_counted_too_keeps_its_number(written: Written) -> None:
    written.pulse.optimizer_stepped(object())
    written.pulse.step(1, loss=NAN)
    assert written.numbers == Numbers(1, 1, -1, 1, LOSS_NAN, 1, 0)


def test_a_step_that_is_told_twice_counts_once(written: Written) -> None:
    written.pulse.step(1, loss=0.5)
    for loss in (NAN, NAN, 0.5):  # accumulated gradients: several losses of one step
        written.pulse.step(2, loss=loss)
    assert written.numbers == Numbers(1, 2, 1, 2, LOSS_NAN, 1, 0)


def test_a_program_that_goes_back_by_itself_begins_another_row(written: Written) -> None:
    written.steps(10, 0.5, NAN, NAN)
    written.steps(5, NAN)
    assert written.numbers is not None
    assert (written.numbers.row, written.numbers.first, written.numbers.losses) == (1, 5, 3)


def test_a_value_on_a_device_is_never_asked(written: Written) -> None:
    written.pulse.step(1, loss=OnADevice(), grad_norm=OnADevice())
    assert written.numbers is None
    assert slot.read(lambda: bytes(written.memory)).pulse.step == 1


def test_numbers_of_numpy_and_of_cpu_tensors_count(written: Written) -> None:
    numpy, torch = pytest.importorskip("numpy"), pytest.importorskip("torch")
    written.steps(1, numpy.float32("nan"), torch.tensor(float("nan")), numpy.float64("inf"))
    assert written.numbers == Numbers(3, 1, -1, 3, LOSS_NAN | LOSS_INF, 3, 0)


def test_what_a_pulse_says_that_was_opened_again_is_of_its_new_life(written: Written) -> None:
    written.steps(1, 0.5, NAN)
    written.pulse.close()
    written.pulse.step(3, loss=NAN)
    assert written.numbers == Numbers(1, 2, 1, 2, LOSS_NAN, 1, 0), "closed: nothing is written"
    written.pulse.reopen()
    assert written.numbers == Numbers()


def test_a_reader_of_before_sees_what_it_always_saw(written: Written) -> None:
    """The part lies where nobody looked: version, pulse, identity and ending are as they were."""
    written.steps(4, 0.5, NAN)
    wiped = bytearray(written.memory)
    wiped[NUMBERS_AT : NUMBERS_AT + NUMBERS.size] = bytes(NUMBERS.size)
    new, old = slot.read(lambda: bytes(written.memory)), slot.read(lambda: bytes(wiped))
    assert old.numbers is None, "as a trainer of before writes it"
    assert repr(old) == repr(new._replace(numbers=None))
    assert slot.PULSE_AT + slot.PULSE.size <= NUMBERS_AT
    assert NUMBERS_AT + NUMBERS.size <= slot.IDENTITY_AT


@given(st.lists(st.tuples(st.integers(0, 6), st.floats() | st.none(), st.floats() | st.none()), max_size=40))
def test_any_sequence_keeps_its_books(said: list[tuple[int, float | None, float | None]]) -> None:
    written = Written()
    for n, loss, norm in said:
        written.pulse.step(n, loss=loss, grad_norm=norm)
        told = [number for number in (loss, norm) if number is not None]
        numbers = written.numbers
        if told and not all(map(math.isfinite, told)):
            assert numbers is not None
            assert numbers.row >= 1
            assert 0 <= numbers.first <= numbers.last == n
            assert in_words(numbers.what)
        if numbers is not None:
            assert (numbers.row > 0) == (numbers.what > 0) == (numbers.first >= 0)
            assert numbers.losses + numbers.norms >= numbers.row
