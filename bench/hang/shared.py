"""Many hangs of one large job out of one healthy run of it: the run is brought to each fault in turn and forked there.

Running 16,384 ranks up to a fault takes far longer than all that comes after. Where a job ends does not depend on the
order in which its ranks are looked at. So one copy of the model is held where the next fault is due, while all others
are run as far as they get without it; the fault then comes to a rank of that copy, in a process that is a copy of all.
"""

import gc
import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from random import Random
from typing import NamedTuple, TypeAlias, TypeVar

import msgspec

from rankpulse.bench.hang import dumps, faults
from rankpulse.bench.hang.layout import Layout
from rankpulse.bench.hang.machine import Fault, Machine
from rankpulse.bench.hang.program import Style, stage_program
from rankpulse.bench.hang.trials import Hang, undisturbed
from rankpulse.core.snapshot import Rank

T = TypeVar("T")
Judge: TypeAlias = Callable[["Lot", Hang, list[Rank]], T]  # of a hang and the dumps of all its ranks


class ForkFailed(Exception):
    """A trial ended before it had told its result."""


class Lot(NamedTuple):
    """One trial, drawn. `random` goes on where drawing the fault has left it."""

    number: int
    fault: Fault
    random: Random
    share: float  # how far its rank is in its program when the fault comes


class Base:
    """A healthy run of a job, one copy of the model held back."""

    def __init__(self, layout: Layout, style: Style, replica: int) -> None:
        self._programs = [stage_program(stage, layout.pp, style) for stage in range(layout.pp)]
        self._held = layout.replica(replica)
        self._layout = layout
        self._machine = Machine(layout, self._programs, None, style.run_ahead)
        self._rows = dumps.ranks(self._machine, dumps.TIMED)

    def drawn(self, lots: Iterable[tuple[int, str, Random]]) -> list[Lot]:
        """The trials, in the order in which the run comes to them."""
        found = [self._drawn(*lot) for lot in lots]
        return sorted(found, key=lambda lot: lot.share)

    def _drawn(self, number: int, kind: str, random: Random) -> Lot:
        fault = faults.draw(kind, self._layout, self._programs, random, self._held)
        return Lot(number, fault, random, fault.at / len(self._programs[self._layout.stage(fault.rank)]))

    def each(self, lots: Iterable[Lot], judge: Judge[T], kind: type[T]) -> Iterator[T | None]:
        """What `judge` says of each, in a process of its own; None where the fault stopped no job."""
        decoder = msgspec.json.Decoder(kind | None)
        for lot in lots:
            undisturbed(partial(self._advance, lot.share))
            gc.freeze()  # a copy that looks for garbage would touch, and so copy, everything
            yield decoder.decode(_forked(partial(self._end, lot, judge)))
        gc.unfreeze()

    def _advance(self, share: float) -> None:
        self._machine.advance(share, self._held)
        dumps.renew(self._rows, self._machine, dumps.TIMED)

    def _end(self, lot: Lot, judge: Judge[T]) -> T | None:
        """To the end of this trial, in a process that ends with it."""
        gc.disable()
        self._machine.fail(lot.fault)
        self._machine.run()
        dumps.renew(self._rows, self._machine, dumps.TIMED)
        stopped = not any(rank.ended for rank in self._machine.ranks)
        return judge(lot, Hang(self._layout, lot.fault, self._machine), self._rows) if stopped else None


def _forked(work: Callable[[], object]) -> bytes:
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        code = 1
        try:
            os.close(reading)
            with os.fdopen(writing, "wb") as out:
                out.write(msgspec.json.encode(work()))
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading, "rb") as told:
        data = told.read()
    if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
        raise ForkFailed("a trial of the hang bench ended badly")
    return data
