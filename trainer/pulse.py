"""The pulse: what the training loop calls.

Nothing here raises, blocks, allocates without bound or starts a thread, whatever it is given. A step is one
`pack_into` on shared memory; see `rankpulse.core.slot` for why a reader never sees half of one.
"""

from time import monotonic_ns
from typing import TYPE_CHECKING
from weakref import ref

from rankpulse.core import slot, slot_checks
from rankpulse.trainer import endings
from rankpulse.trainer.interfaces import untraced
from rankpulse.trainer.numbers import UNTOLD, NumberRow
from rankpulse.trainer.plain import NAN, phase_bytes, plain_float, plain_int

if TYPE_CHECKING:
    from collections.abc import Callable
    from mmap import mmap
    from types import TracebackType

LARGEST_STEP = 2**63 - 1
# The counted optimizer rests while another makes this many steps: the other one is the training now.
HANDOVER_STEPS = 64
_pack = slot.PULSE.pack_into
_AT = slot.PULSE_AT
_INIT, _TRAIN, _PAUSED, _CLOSED = (
    name.encode() for name in (slot.PHASE_INIT, slot.PHASE_TRAIN, slot.PHASE_PAUSED, slot.PHASE_CLOSED)
)


def _nobody() -> None:
    return None


class Pulse:
    """The progress of one training process, written where the sidecar looks. `attach()` makes it.

    Without a slot (`shared` is None) every call is a no-op. Not to be shared between threads: one training loop, one
    pulse (a race costs a wrong number, never an error).
    """

    __slots__ = (
        "__weakref__", "_auto", "_checks", "_counted", "_finite", "_first", "_loss", "_map", "_numbers", "_optimizer",
        "_others", "_paused", "_phase", "_row", "_settled", "_shared", "_shown", "_step", "_writes",
    )  # fmt: skip

    def __init__(self, shared: "mmap | bytearray | None") -> None:
        self._shared = shared
        self._writes = 0  # never starts anew: a reader tells two writes apart by it
        self._numbers = NumberRow()
        self._checks = 0  # likewise
        self._begin()

    def _begin(self) -> None:
        self._map = self._shared  # None when there is nothing to write to, or not any more
        self._step = self._first = slot.NO_STEP
        self._loss = NAN
        self._row = UNTOLD  # how many steps in a row had numbers that are not finite
        self._finite = slot.NO_STEP  # the last step whose numbers were
        self._numbers.forget(self._map)
        self._phase = self._shown = _INIT
        self._paused = False
        self._counted = False  # explicit steps came without a number
        self._auto = True  # optimizer steps count until the first explicit step
        self._settled = False  # nothing is to be arranged before an explicit step is written
        self._optimizer: Callable[[], object] = _nobody
        self._others = 0
        self._write()

    @property
    def live(self) -> bool:
        """Whether anything is written: False without a slot, after `close()`, and in a forked child."""
        return self._map is not None

    @untraced
    def step(self, n: object = None, loss: object = NAN, grad_norm: object = NAN) -> None:
        """Step `n` (0 <= n < 2**63) is done; without `n`, or with one that is no such number, one more step is.

        `loss` and `grad_norm` (the norm of all gradients) are read when that cannot wait: a number, or a CPU tensor of
        one element. Whatever else they are, they count as not handed over: a GPU tensor is never asked. Numbers that
        are not finite are counted, nothing more. The first call switches the counting of optimizer steps off for good.
        Ends a pause.
        """
        shared = self._map
        if shared is None:
            return
        if type(n) is not int or not 0 <= n <= LARGEST_STEP:
            n = self._number(n)
        if type(loss) is not float:
            loss = plain_float(loss)
        if type(grad_norm) is not float:
            grad_norm = plain_float(grad_norm)
        if not self._settled:
            self._settle(n, explicit=True)
        if loss is not NAN or grad_norm is not NAN:
            # what is not finite less itself is NaN, which is true; a finite number leaves 0.0, which is false
            if self._row or loss - loss or (grad_norm is not NAN and grad_norm - grad_norm):
                self._judge(shared, n, loss, grad_norm)
            else:
                self._finite = n
        self._step = n
        self._loss = loss
        self._writes = writes = self._writes + 1
        _pack(shared, _AT, writes, n, self._first, monotonic_ns(), loss, self._shown, writes, writes)

    def phase(self, name: object) -> "Phase":
        """`with pulse.phase("checkpoint"):` names what the process does; leaving restores the phase outside.

        A name is 1 to 16 printable ASCII characters; longer ones are cut, others replaced.
        """
        return Phase(self, phase_bytes(name))

    @untraced
    def pause(self) -> None:
        """Training stands still on purpose, until `resume()` or the next step."""
        self._paused, self._settled = True, False
        self._show()

    @untraced
    def resume(self) -> None:
        """The end of a pause: the phase is again what it was."""
        self._paused = False
        self._show()

    @untraced
    def close(self) -> None:
        """Training is over and all is well. Later calls do nothing; a new `attach()` opens the pulse again."""
        if self._map is None:
            return
        self._shown = _CLOSED
        self._write()
        self._map = None
        self._end({"kind": "closed"})

    @untraced
    def checked(self, checks: slot_checks.Checks) -> None:
        """Checksums of what this rank holds alike with others: for `guard`."""
        shared = self._map
        if shared is not None:
            self._checks += 1
            data = slot_checks.packed(checks, self._checks)
            shared[slot_checks.CHECKS_AT : slot_checks.CHECKS_AT + len(data)] = data

    def updating(self, begun: bool) -> None:
        """An optimizer's step begins, or is over. One byte, also after `close()`: a program may train on."""
        shared = self._shared
        if shared is not None:
            shared[slot.UPDATING_AT] = begun

    def finish(self, error: object, place: str = "") -> None:
        """The interpreter ends, because of `error` (an exception or None), after the collective `place`. A hook."""
        closed = self._map is None
        self._write()
        self._map = None
        if not closed or error is not None:
            self._end(endings.ending(closed=closed, error=error, place=place))

    def reopen(self) -> None:
        """Undo `close()`: the same process trains again, from no step."""
        if self._map is not None or self._shared is None:
            return
        self._end(None)
        self._begin()

    def forsake(self) -> None:
        """Never write again: the slot is the parent's, this is a forked child."""
        self._map = self._shared = None

    def optimizer_stepped(self, optimizer: object, _args: object = None, _kwargs: object = None) -> None:
        """An optimizer made a step. Counts the first one seen as long as it lives and works."""
        if not self._auto or self._map is None:
            return
        counted = self._optimizer()
        if counted is not optimizer:
            self._others += 1
            if counted is not None and self._others < HANDOVER_STEPS:
                return
            self._optimizer = _reference(optimizer)
        self._others = 0
        self._step = min(max(self._step, 0) + 1, LARGEST_STEP)
        if self._first < 0 or self._paused or self._phase is _INIT:
            self._settle(self._step, explicit=False)
        self._write()

    @untraced
    def enter(self, phase: bytes) -> bytes:
        """Set the phase and return the one before. For `Phase`."""
        before, self._phase = self._phase, phase
        self._settled = False
        self._show()
        return before

    def _judge(self, shared: "mmap | bytearray", n: int, loss: float, grad_norm: float) -> None:
        """The first numbers, such as are not finite, and those after them."""
        self._row = self._numbers.told(shared, n, loss, grad_norm, self._finite, self._counted)
        if not self._row:
            self._finite = n

    def _number(self, n: object) -> int:
        """A step number for anything that `step` may be given."""
        number = None if n is None else plain_int(n)
        if number is not None and 0 <= number <= LARGEST_STEP:
            return number
        self._counted = True
        if self._auto and self._step > 0:
            return self._step  # the optimizer hook has counted this very step
        return min(max(self._step, 0) + 1, LARGEST_STEP)

    def _settle(self, n: int, *, explicit: bool) -> None:
        """Before a step is written: what a first step, an end of a pause, a change of counting bring with them."""
        if self._first < 0 or (explicit and self._auto and n != self._step):
            # what this process counts by itself starts anew with it, and tells nothing of where the job goes on from
            self._first = n if explicit and not self._counted else 0
        self._auto = self._auto and not explicit
        self._paused = False
        if self._phase is _INIT:
            self._phase = _TRAIN
        self._shown = self._phase
        self._settled = explicit

    def _show(self) -> None:
        self._shown = _PAUSED if self._paused else self._phase
        self._write()

    def _write(self) -> None:
        shared = self._map
        if shared is None:
            return
        self._writes = writes = self._writes + 1
        _pack(shared, _AT, writes, self._step, self._first, monotonic_ns(), self._loss, self._shown, writes, writes)

    def _end(self, ending: "dict[str, object] | None") -> None:
        """Write the ending: no length, body, length, so that a reader sees none or a whole one."""
        shared, at = self._shared, slot.ENDING_AT
        if shared is None:
            return
        head = slot.LENGTH.size
        body = endings.packed(ending) if ending else bytes(head)
        shared[at : at + head] = bytes(head)
        shared[at + head : at + len(body)] = body[head:]
        shared[at : at + head] = body[:head]


class Phase:
    """A phase of the pulse as a context manager; nests, may be entered again, and lets every exception through."""

    __slots__ = ("_name", "_outer", "_pulse")

    def __init__(self, pulse: Pulse, name: bytes) -> None:
        self._pulse = pulse
        self._name = name
        self._outer: list[bytes] = []

    def __enter__(self) -> "Phase":
        self._outer.append(self._pulse.enter(self._name))
        return self

    def __exit__(
        self, kind: "type[BaseException] | None", error: "BaseException | None", trace: "TracebackType | None"
    ) -> None:
        if self._outer:
            self._pulse.enter(self._outer.pop())


def _reference(optimizer: object) -> "Callable[[], object]":
    try:
        return ref(optimizer)
    except TypeError:  # an optimizer with __slots__: hold its place until another one takes over
        return _nobody
