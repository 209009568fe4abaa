"""`rankpulse sim`: many seeds, a process for each processor; a table, or what failed and how to replay it."""

import hashlib
import multiprocessing
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import IO, NamedTuple

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from rankpulse.drills.sim.asked import refused, unwritable
from rankpulse.drills.sim.plan import Options
from rankpulse.drills.sim.run import Outcome, Simulation
from rankpulse.drills.sim.shown import report
from rankpulse.drills.sim.tally import tally

WIDTH = 120  # of a log file or a pipe


class _Unwritable(Exception):
    """The trace has no place; the text says what to do."""


class _How(NamedTuple):
    """What is asked of every seed, and how it is shown."""

    trace: str | None
    until: float | None
    verbose: bool
    processes: int
    quiet: bool


def run(
    seeds: range,
    options: Options,
    *,
    trace: str | None = None,
    until: float | None = None,
    as_json: bool = False,
    quiet: bool = False,
    verbose: bool = False,
    processes: int = 0,
) -> int:
    """Simulate each seed. Returns the exit code: 0 when every rule held, 1 when one did not, 2 for a bad request.

    `trace`: a file for the trace of a single seed; `until`: stop at this second; `verbose`: tell what happens.
    """
    how = _How(trace, until, verbose, processes, quiet)
    wrong = refused(seeds, options, trace=trace, until=until, verbose=verbose, processes=processes)
    if wrong:
        print(wrong, file=sys.stderr)
        return 2
    console = _console(as_json)
    try:
        outcomes = _outcomes(seeds, options, how, console)
    except _Unwritable as error:
        print(error, file=sys.stderr)
        return 2
    digest = hashlib.sha256("".join(one.digest for one in outcomes).encode()).hexdigest()
    total = tally(outcomes, outcomes[0].digest if len(outcomes) == 1 else digest)
    report(outcomes, total, options, console, as_json, quiet)
    return 1 if total.failed else 0


def _console(as_json: bool) -> Console:
    console = Console(stderr=as_json, highlight=False)
    return console if console.is_terminal else Console(stderr=as_json, highlight=False, width=WIDTH)


def _outcomes(seeds: range, options: Options, how: _How, console: Console) -> list[Outcome]:
    """Of all seeds, in their order. Raises `_Unwritable`."""
    if len(seeds) == 1:
        return [_one(seeds[0], options, how)]
    found = _shown(_many(seeds, options, how), len(seeds), console, how.quiet)
    return sorted(found, key=lambda one: one.seed)


def _one(seed: int, options: Options, how: _How) -> Outcome:
    say = sys.stderr if how.verbose else None
    if how.trace is None:
        return simulate(seed, options, until=how.until, say=say)
    try:
        file = open(how.trace, "w", encoding="utf-8")  # noqa: SIM115 - closed below; only this may be the user's fault
    except OSError as error:
        raise _Unwritable(unwritable(how.trace, error)) from error
    with file:
        return simulate(seed, options, file, until=how.until, say=say)


def simulate(
    seed: int, options: Options, file: IO[str] | None = None, *, until: float | None = None, say: IO[str] | None = None
) -> Outcome:
    """One seed, here."""
    return Simulation(seed, options, file, until=until, say=say).run()


def _many(seeds: range, options: Options, how: _How) -> Iterator[Outcome]:
    """In order of their end. A seed is the same in every process."""
    count = how.processes or len(os.sched_getaffinity(0))
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(count, len(seeds)), mp_context=context) as pool:
        yield from pool.map(partial(simulate, options=options, until=how.until), seeds)


def _shown(outcomes: Iterator[Outcome], count: int, console: Console, quiet: bool) -> Iterator[Outcome]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=quiet or not console.is_terminal, transient=True) as bar:
        task, failed = bar.add_task("seeds", total=count), 0
        for outcome in outcomes:
            failed += outcome.violation is not None
            bar.update(task, advance=1, description=f"seeds, {failed} failed" if failed else "seeds")
            yield outcome
