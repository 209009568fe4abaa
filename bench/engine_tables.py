"""The report of `rankpulse bench engine` as tables."""

from typing import Any

from rich.table import Table

from rankpulse.cli import show as showing


def show(report: dict[str, Any]) -> None:
    """Print the tables of `run`'s report."""
    out = showing.console()
    out.print(_beats(report["fleets"]))
    out.print(_ticks(report["fleets"]))
    out.print(
        f"One core of {report['cpus']} ({report['machine']}, load {report['load'][0]}), Python {report['python']}; "
        "medians, seconds of the process. A beat is a record with the rows of its ranks; half of them show new steps. "
        "× is the cost per beat over that of the smallest fleet with as many ranks on a node."
    )


def _beats(fleets: list[dict[str, Any]]) -> Table:
    table = Table(title="beats", title_justify="left")
    for column in ("nodes", "ranks on each", "beats/s", "at best", "µs per beat", "at best", "×", "decoding µs"):
        table.add_column(column, justify="right")
    for fleet in fleets:
        table.add_row(
            f"{fleet['nodes']:,}",
            str(fleet["ranks"]),
            f"{fleet['beats_per_s']:,}",
            f"{fleet['best_per_s']:,}",
            f"{fleet['us_per_beat']:.2f}",
            f"{fleet['best_us']:.2f}",
            f"{fleet['ratio']:.2f}",
            f"{fleet['decode_us']:.2f}",
        )
    return table


def _ticks(fleets: list[dict[str, Any]]) -> Table:
    table = Table(title="one tick, ms: typical (worst)", title_justify="left")
    for column in ("nodes", "ranks on each", "quiet", "all late", "all back"):
        table.add_column(column, justify="right")
    for fleet in fleets:
        cells = [
            f"{taken['typical_ms']:.2f} ({taken['worst_ms']:.1f})" if taken else "-"
            for taken in (fleet["ticks"].get(name) for name in ("quiet", "late", "back"))
        ]
        table.add_row(f"{fleet['nodes']:,}", str(fleet["ranks"]), *cells)
    return table
