"""What the training loop calls: steps, phases, pauses, and that nothing it is given can hurt it."""

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankpulse.core import slot
from rankpulse.trainer import place
from rankpulse.trainer.plain import plain_float, plain_int
from rankpulse.trainer.pulse import HANDOVER_STEPS, Pulse


class Written:
    """A pulse on plain memory, and what its slot says."""

    def __init__(self) -> None:
        self.memory = bytearray(slot.SLOT_SIZE)
        self.pulse = Pulse(self.memory)
        place.publish(self.memory, slot.pack_json({}, slot.IDENTITY_MAX))

    def slot(self) -> slot.Slot:
        return slot.read(lambda: bytes(self.memory))

    def now(self) -> tuple[int, str]:
        said = self.slot().pulse
        return said.step, said.phase


@pytest.fixture
def written() -> Written:
    return Written()


class Trap:
    """Whatever is asked of it, the training would wait or die."""

    def _sprung(self, *_: object) -> Any:
        raise RuntimeError("touched")

    __float__ = __int__ = __index__ = __str__ = __bool__ = __eq__ = __len__ = _sprung  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]


class Disguised:
    """A proxy, as some libraries have them: it says it is an int, and is none."""

    @property
    def __class__(self) -> Any:
        return int


class EvilInt(int):
    def __int__(self) -> int:
        raise RuntimeError("touched")

    __index__ = __float__ = __int__  # type: ignore[assignment]


ABSURD: list[object] = [
    None, "x", "", b"x", -1, 10**30, -(10**30), 2**63, 1.5, math.nan, math.inf, 1j, [], {}, object(), object, len,
    Trap(), Disguised(),
]  # fmt: skip


def test_before_the_first_step(written: Written) -> None:
    assert written.now() == (slot.NO_STEP, "init")
    assert math.isnan(written.slot().pulse.loss)


def test_steps_with_a_number(written: Written) -> None:
    written.pulse.step(100, loss=0.5)
    written.pulse.step(101)
    said = written.slot().pulse
    assert (said.step, said.first_step, said.phase) == (101, 100, "train")
    assert said.stamp_ns > 0


def test_steps_without_a_number_count_themselves(written: Written) -> None:
    for _ in range(3):
        written.pulse.step()
    assert written.slot().pulse[:2] == (3, 0)
    written.pulse.step(9)
    written.pulse.step()
    assert written.now()[0] == 10


@pytest.mark.parametrize("n", ABSURD, ids=[str(at) for at in range(len(ABSURD))])
def test_an_absurd_step_is_one_more_step(written: Written, n: object) -> None:
    written.pulse.step(5)
    written.pulse.step(n)
    assert written.now() == (6, "train")


@pytest.mark.parametrize("loss", ABSURD, ids=[str(at) for at in range(len(ABSURD))])
def test_an_absurd_loss_does_not_stop_a_step(written: Written, loss: object) -> None:
    written.pulse.step(5, loss=loss)
    assert written.now()[0] == 5


@pytest.mark.parametrize(("n", "step"), [(True, 1), (3.0, 3), (EvilInt(4), 4), (2**63 - 1, 2**63 - 1), (0, 0)])
def test_whole_numbers_of_other_kinds(written: Written, n: object, step: int) -> None:
    written.pulse.step(n)
    assert written.now()[0] == step


def test_the_largest_step_stays(written: Written) -> None:
    written.pulse.step(2**63 - 1)
    written.pulse.step()
    assert written.now()[0] == 2**63 - 1


def test_numbers_of_numpy_count() -> None:
    numpy = pytest.importorskip("numpy")
    assert plain_int(numpy.int64(7)) == 7
    assert plain_float(numpy.float32(0.5)) == 0.5
    assert plain_float(numpy.array([0.25])) == 0.25
    assert math.isnan(plain_float(numpy.zeros(3)))


def test_a_huge_whole_loss_is_unknown() -> None:
    assert math.isnan(plain_float(10**400))


any_value = st.none() | st.integers() | st.floats() | st.text() | st.binary() | st.sampled_from(ABSURD)
calls = st.sampled_from(["step", "loss", "norm", "phase", "pause", "resume", "close", "reopen", "optimizer", "forsake"])


@given(st.lists(st.tuples(calls, any_value), max_size=20))
def test_no_sequence_of_calls_raises_or_breaks_the_slot(said: list[tuple[str, object]]) -> None:
    written = Written()
    pulse = written.pulse
    todo: dict[str, Callable[[object], object]] = {
        "step": lambda value: pulse.step(value),
        "loss": lambda value: pulse.step(1, loss=value),
        "norm": lambda value: pulse.step(2, grad_norm=value),
        "phase": lambda value: pulse.phase(value).__enter__(),
        "pause": lambda _: pulse.pause(),
        "resume": lambda _: pulse.resume(),
        "close": lambda _: pulse.close(),
        "reopen": lambda _: pulse.reopen(),
        "optimizer": lambda value: pulse.optimizer_stepped(value),
        "forsake": lambda _: pulse.forsake(),
    }
    for what, value in said:
        todo[what](value)
        assert 1 <= len(written.now()[1]) <= slot.PHASE_BYTES


def test_phases_nest_and_come_back(written: Written) -> None:
    pulse = written.pulse
    pulse.step(1)
    with pulse.phase("checkpoint"):
        assert written.now() == (1, "checkpoint")
        with pulse.phase("upload"):
            assert written.now() == (1, "upload")
        assert written.now() == (1, "checkpoint")
        pulse.step(2)
        assert written.now() == (2, "checkpoint")
    assert written.now() == (2, "train")


def test_a_phase_lets_exceptions_through_and_comes_back(written: Written) -> None:
    written.pulse.step(1)
    with pytest.raises(KeyError), written.pulse.phase("eval"):
        raise KeyError
    assert written.now() == (1, "train")


def test_a_phase_may_be_entered_again_within_itself(written: Written) -> None:
    written.pulse.step(1)
    phase = written.pulse.phase("eval")
    with phase, phase:
        assert written.now()[1] == "eval"
    assert written.now()[1] == "train"
    phase.__exit__(None, None, None)  # once too often
    assert written.now()[1] == "train"


def test_a_phase_before_the_first_step(written: Written) -> None:
    with written.pulse.phase("compile"):
        assert written.now() == (slot.NO_STEP, "compile")
    assert written.now() == (slot.NO_STEP, "init")
    written.pulse.step(0)
    assert written.now() == (0, "train")


@pytest.mark.parametrize(
    ("name", "phase"),
    [
        ("", "unnamed"),
        (None, "unnamed"),
        (7, "unnamed"),
        ("  ", "unnamed"),
        ("x" * 200, "x" * 16),
        ("éval☃", "?val?"),
        ("a\nb\0c", "a?b?c"),
        ("\ud800", "?"),
        ("closed", "closing"),
        (Trap(), "unnamed"),
    ],
    ids=[str(at) for at in range(10)],
)
def test_any_name_of_a_phase(written: Written, name: object, phase: str) -> None:
    with written.pulse.phase(name):
        assert written.now()[1] == phase


def test_a_pause_ends_with_resume_or_a_step(written: Written) -> None:
    pulse = written.pulse
    pulse.step(1)
    pulse.pause()
    assert written.now() == (1, "paused")
    pulse.resume()
    assert written.now() == (1, "train")
    pulse.pause()
    pulse.step(2)
    assert written.now() == (2, "train")


def test_a_pause_within_a_phase(written: Written) -> None:
    written.pulse.step(1)
    with written.pulse.phase("eval"):
        written.pulse.pause()
        assert written.now()[1] == "paused"
        written.pulse.resume()
        assert written.now()[1] == "eval"
        written.pulse.pause()
    assert written.now()[1] == "paused", "leaving a phase is no resume"
    written.pulse.resume()
    assert written.now()[1] == "train"


def test_closed_is_the_last_word(written: Written) -> None:
    pulse = written.pulse
    pulse.step(3)
    pulse.close()
    pulse.close()
    pulse.step(4)
    pulse.pause()
    assert written.now() == (3, "closed")
    assert written.slot().ending == {"kind": "closed"}
    assert not pulse.live


def test_a_closed_pulse_opens_again_from_no_step(written: Written) -> None:
    written.pulse.step(3)
    written.pulse.close()
    before = written.slot().pulse.pulses
    written.pulse.reopen()
    assert written.now() == (slot.NO_STEP, "init")
    assert written.slot().ending is None
    assert written.slot().pulse.pulses > before
    written.pulse.step(1)
    assert written.now() == (1, "train")


@pytest.mark.parametrize(
    ("closed", "error", "ending"),
    [
        (False, None, {"kind": "exit"}),
        (False, ValueError("no"), {"kind": "exception", "error": "ValueError", "message": "no"}),
        (False, KeyboardInterrupt, {"kind": "exception", "error": "KeyboardInterrupt", "message": ""}),
        (True, None, {"kind": "closed"}),
        (True, ValueError("no"), {"kind": "closed", "error": "ValueError", "message": "no"}),
    ],
)
def test_how_it_ended(written: Written, closed: bool, error: object, ending: dict[str, str]) -> None:
    if closed:
        written.pulse.close()
    written.pulse.finish(error)
    assert written.slot().ending == ending


@pytest.mark.parametrize("text", ["x" * 5000, "☃" * 5000, "\ud800\n\0" * 100])
def test_an_ending_fits_whatever_the_message(written: Written, text: str) -> None:
    written.pulse.finish(ValueError(text))
    ending = written.slot().ending
    assert ending is not None
    assert ending["error"] == "ValueError"
    assert 0 < len(ending["message"]) <= 200


def test_an_error_that_cannot_be_told(written: Written) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    written.pulse.finish(Mute())
    assert written.slot().ending == {"kind": "exception", "error": "Mute", "message": ""}


def test_without_a_slot_every_call_is_nothing() -> None:
    pulse = Pulse(None)
    pulse.step(1, loss=0.5)
    with pulse.phase("x"):
        pulse.pause()
    pulse.resume()
    pulse.optimizer_stepped(object())
    pulse.close()
    pulse.reopen()
    pulse.finish(None)
    assert not pulse.live


class Optimizer:
    """Something that can be seen again, and forgotten."""


def test_the_first_optimizer_seen_counts(written: Written) -> None:
    generator, critic = Optimizer(), Optimizer()
    for _ in range(4):
        written.pulse.optimizer_stepped(generator)
        for _ in range(5):
            written.pulse.optimizer_stepped(critic)
    assert written.slot().pulse[:2] == (4, 0)
    assert written.now()[1] == "train"


def test_when_it_is_gone_the_next_one_counts_on(written: Written) -> None:
    first = Optimizer()
    written.pulse.optimizer_stepped(first)
    del first
    second = Optimizer()
    written.pulse.optimizer_stepped(second)
    assert written.slot().pulse[:2] == (2, 0)


def test_when_it_rests_for_good_the_working_one_counts_on(written: Written) -> None:
    warm_up, main = Optimizer(), Optimizer()
    for _ in range(10):
        written.pulse.optimizer_stepped(warm_up)
    for _ in range(HANDOVER_STEPS + 5):
        written.pulse.optimizer_stepped(main)
    assert written.now()[0] == 10 + 6


def test_explicit_steps_win(written: Written) -> None:
    optimizer = Optimizer()
    for n in range(500, 503):
        written.pulse.optimizer_stepped(optimizer)
        written.pulse.step(n)
    assert written.slot().pulse[:2] == (502, 500)


def test_explicit_steps_without_a_number_go_on_from_the_count(written: Written) -> None:
    optimizer = Optimizer()
    for _ in range(3):
        written.pulse.optimizer_stepped(optimizer)
        written.pulse.step()
    assert written.slot().pulse[:2] == (3, 0)


def test_an_optimizer_step_ends_a_pause(written: Written) -> None:
    optimizer = Optimizer()
    written.pulse.optimizer_stepped(optimizer)
    written.pulse.pause()
    assert written.now() == (1, "paused")
    written.pulse.optimizer_stepped(optimizer)
    assert written.now() == (2, "train")


def test_an_update_that_began_is_told_until_it_is_over(written: Written) -> None:
    written.pulse.step(4)
    for begun in (True, False, True):
        written.pulse.updating(begun)
        assert written.slot().updating is begun
    written.pulse.close()
    written.pulse.updating(False)
    assert not written.slot().updating, "a program may train on without a pulse"
    written.pulse.forsake()
    written.pulse.updating(True)
    assert not written.slot().updating, "the slot is the parent's"
    Pulse(None).updating(True)
