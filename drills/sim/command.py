"""`rankpulse sim`: many seeds, a process for each processor; a table, or what failed and how to replay it."""

import hashlib
import json
import multiprocessing
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import IO, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from rankpulse.drills.sim.plan import FAULTS, Options
from rankpulse.drills.sim.run import Outcome, Simulation
from rankpulse.drills.sim.tally import Row, Tally, tally

WIDTH = 120  # of a log file or a pipe


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
    wrong = _refused(seeds, options, trace, verbose)
    if wrong:
        print(wrong, file=sys.stderr)
        return 2
    console = Console(stderr=as_json, highlight=False)
    if not console.is_terminal:
        console = Console(stderr=as_json, highlight=False, width=WIDTH)
    if len(seeds) == 1:
        try:
            outcomes = [_one(seeds[0], options, trace, until, verbose)]
        except OSError as error:
            print(f"{trace}: {error.strerror}", file=sys.stderr)
            return 2
    else:
        outcomes = list(_shown(_many(seeds, options, processes), len(seeds), console, quiet))
    outcomes.sort(key=lambda one: one.seed)
    digest = hashlib.sha256("".join(one.digest for one in outcomes).encode()).hexdigest()
    total = tally(outcomes, outcomes[0].digest if len(outcomes) == 1 else digest)
    _report(outcomes, total, options, console, as_json, quiet)
    return 1 if total.failed else 0


def _refused(seeds: range, options: Options, trace: str | None, verbose: bool) -> str:
    unknown = [kind for kind in options.faults if kind not in FAULTS]
    if unknown:
        return f"no fault named {', '.join(unknown)}: choose among {', '.join(FAULTS)}"
    if not seeds:
        return "no seed to simulate: --seeds must be at least 1"
    if not 2 <= options.nodes <= 1000 or not 1 <= options.gpus <= 64 or not 2 <= options.minutes <= 1440:
        return "2 to 1000 nodes, 1 to 64 GPUs and 2 to 1440 minutes can be simulated"
    if len(seeds) > 1 and (trace or verbose):
        return "a trace is that of one seed: name it with --seed, without --seeds"
    return ""


def _one(seed: int, options: Options, trace: str | None, until: float | None, verbose: bool) -> Outcome:
    say = sys.stderr if verbose else None
    if trace is None:
        return simulate(seed, options, until=until, say=say)
    with open(trace, "w", encoding="utf-8") as file:
        return simulate(seed, options, file, until=until, say=say)


def simulate(
    seed: int, options: Options, file: IO[str] | None = None, *, until: float | None = None, say: IO[str] | None = None
) -> Outcome:
    """One seed, here."""
    return Simulation(seed, options, file, until=until, say=say).run()


def _many(seeds: range, options: Options, processes: int) -> Iterator[Outcome]:
    """In order of their end. A seed is the same in every process."""
    count = processes or len(os.sched_getaffinity(0))
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(count, len(seeds)), mp_context=context) as pool:
        yield from pool.map(simulate, seeds, [options] * len(seeds))


def _shown(outcomes: Iterator[Outcome], count: int, console: Console, quiet: bool) -> Iterator[Outcome]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=quiet or not console.is_terminal, transient=True) as bar:
        task, failed = bar.add_task("seeds", total=count), 0
        for outcome in outcomes:
            failed += outcome.violation is not None
            bar.update(task, advance=1, description=f"seeds, {failed} failed" if failed else "seeds")
            yield outcome


# --- what came of it


def _report(
    outcomes: list[Outcome], total: Tally, options: Options, console: Console, as_json: bool, quiet: bool
) -> None:
    for outcome in outcomes:
        if outcome.violation is not None:
            _failure(outcome, options, console)
    if as_json:
        failures = [
            {"seed": o.seed, "replay": replay(o, options), **_plain(o.violation)} for o in outcomes if o.violation
        ]
        print(json.dumps({"options": options._asdict(), **total.plain(), "failures": failures}))
    elif not quiet or total.failed:
        console.print(_table(total))
        console.print(Text(_summary(total, options), "red" if total.failed else "green"), soft_wrap=True)


def _plain(violation: Any) -> dict[str, Any]:
    return {name: getattr(violation, name) for name in ("rule", "text", "at")}


def replay(outcome: Outcome, options: Options) -> str:
    """The command that shows it again."""
    faults = "".join(f" --faults {kind}" for kind in options.faults)
    at = outcome.violation.at + 1.0 if outcome.violation is not None else 0.0
    preset = "" if options.preset == "default" else f" --preset {options.preset}"
    return (
        f"rankpulse sim --seed {outcome.seed} --nodes {options.nodes} --gpus {options.gpus} "
        f"--minutes {options.minutes:g}{faults}{preset} --until {at:.0f} --verbose"
    )


def _failure(outcome: Outcome, options: Options, console: Console) -> None:
    assert outcome.violation is not None
    rule, text, at = outcome.violation.rule, outcome.violation.text, outcome.violation.at
    console.print(Text(f"seed {outcome.seed}: rule {rule} does not hold at {at:.3f} s: {text}", "bold red"))
    for line in outcome.last[-20:]:
        console.print(Text(f"  {line}"), soft_wrap=True)
    console.print(Text(f"  replay: {replay(outcome, options)}"), soft_wrap=True)


def _table(total: Tally) -> Table:
    table = Table(title="what was done, and how soon it was told of", title_justify="left")
    for column in (
        "fault",
        "what it is",
        "done",
        "told of",
        "overtaken",
        "clear",
        "p50 s",
        "p99 s",
        "max s",
        "worst s",
    ):
        table.add_column(column, justify="left" if column in ("fault", "what it is") else "right", overflow="fold")
    for row in total.rows:
        table.add_row(*_cells(row))
    return table


def _cells(row: Row) -> list[str]:
    def seconds(value: float | None) -> str:
        return "-" if value is None else f"{value:.2f}"

    return [
        row.kind, FAULTS[row.kind][1], str(row.injected), str(row.detected) if row.detected else "-",
        str(row.overtaken) if row.overtaken else "-", str(row.clear) if row.clear else "-", seconds(row.p50_s),
        seconds(row.p99_s), seconds(row.max_s), seconds(row.worst_s),
    ]  # fmt: skip


def _summary(total: Tally, options: Options) -> str:
    failed = (
        f"{len(total.failed)} of {total.seeds} seeds FAILED" if total.failed else f"{total.seeds} seeds, all rules held"
    )
    return (
        f"{failed}: {options.nodes} nodes x {options.gpus} ranks, {options.minutes:g} minutes each. "
        f"Restart orders: {total.orders}, wrong: {total.wrong}; asked for by the operator: {total.asked}. "
        f"Thought dead and came back (silent on every path beyond the deadline): {total.mistaken}. "
        f"Well again after the last fault within {total.recovered_max_s:.0f} s. "
        f"{total.beats} beats, {total.events} events; sha256 of the traces {total.digest}"
    )
