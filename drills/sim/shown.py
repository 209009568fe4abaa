"""What came of `rankpulse sim`, for people and as JSON."""

import json
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rankpulse.drills.sim.plan import FAULTS, Options
from rankpulse.drills.sim.run import LAST_S, WARM_S, Outcome
from rankpulse.drills.sim.tally import Row, Tally

COLUMNS = ("fault", "what it is", "done", "told of", "overtaken", "clear", "p50 s", "p99 s", "max s", "worst s")
NOTHING = (
    f"NO FAULT WAS INJECTED, so nothing is shown: faults come from second {WARM_S:.0f} on, the last one "
    f"{LAST_S:.0f} s before --minutes are over; play for longer"
)


def report(
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
        console.print(Text(_summary(total, options), _colour(total)), soft_wrap=True)
    if not total.rows and (quiet or as_json):  # what shows nothing must not look like what went well
        console.print(Text(NOTHING, "yellow"), soft_wrap=True)


def _colour(total: Tally) -> str:
    if total.failed:
        return "red"
    return "green" if total.rows else "yellow"


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
    for column in COLUMNS:
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
    return (
        f"{_verdict(total)}: {options.nodes} nodes x {options.gpus} ranks, {options.minutes:g} minutes each. "
        f"Restart orders: {total.orders}, wrong: {total.wrong}; asked for by the operator: {total.asked}. "
        f"Thought dead and came back (silent on every path beyond the deadline): {total.mistaken}. "
        f"{_recovery(total)}{total.beats} beats, {total.events} events; sha256 of the traces {total.digest}"
    )


def _verdict(total: Tally) -> str:
    seeds = "1 seed" if total.seeds == 1 else f"{total.seeds} seeds"
    if total.failed:
        return f"{len(total.failed)} of {seeds} FAILED"
    return f"{seeds}, all rules held" if total.rows else f"{seeds}, {NOTHING}"


def _recovery(total: Tally) -> str:
    if not total.rows:
        return ""
    if total.recovered_max_s > 0:
        return f"Well again after the last fault within {total.recovered_max_s:.0f} s. "
    return "Not played to its end, so nobody had to be well again. "
