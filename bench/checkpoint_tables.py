"""The report of `rankpulse bench checkpoint` as tables: ratios first, for seconds are this machine's."""

from typing import Any

from rich.table import Table

from rankpulse.cli import show as showing


def show(report: dict[str, Any]) -> None:
    """Print the tables of `run`'s report."""
    out = showing.console()
    size = report["state_bytes"]
    for state, ways in report["median"].items():
        out.print(_saves(report["states"][state], ways, size))
    out.print(_beside(report["beside"]))
    out.print(_reads(report["verify"]))
    ours = report["ours"]
    out.print(
        f"{report['ranks']} ranks, {mib(size)} of state, medians of {report['repeat']}; {report['cpus']} CPUs, load "
        f"{report['load']}, files in {report['directory']}. time: seconds over those of “{ours}”. memory: what rank 0 "
        "had at most above what it had before, as a share of the state. Where every rank holds everything there is "
        "nothing to gather: rank 0 writes what it has, and sharding pays where nodes have disks or links of their own."
    )
    if report["verify"]["why_not_cold"]:
        out.print(f"Nothing was read cold: {report['verify']['why_not_cold']}.")


def _saves(title: str, ways: dict[str, Any], size: int) -> Table:
    table = Table(title=f"state {title}", title_justify="left")
    table.add_column("save")
    for column in ("time", "seconds", "(from – to)", "rank 0 memory", "", "others, most", "written"):
        table.add_column(column, justify="right")
    for way, figures in ways.items():
        peak = figures["peak_rank0"]
        table.add_row(
            way,
            f"× {figures['ratio']:.2f}",
            f"{figures['seconds']:.2f}",
            f"{figures['least']:.2f} – {figures['most']:.2f}",
            "-" if peak is None else f"{peak / size:.0%}",
            "-" if peak is None else mib(peak),
            "-" if figures["peak_others"] is None else mib(figures["peak_others"]),
            mib(figures["written"]),
        )
    return table


def _beside(found: dict[str, Any]) -> Table:
    ranks = "1 rank" if found["ranks"] == 1 else f"{found['ranks']} ranks"
    title = f"{found['steps']} steps around a save of {found['megabytes']} MiB, {ranks}, {found['turns']} turns"
    table = Table(title=title, title_justify="left")
    table.add_column("save")
    for column in ("added", "(from – to)", "seconds", "step", "first step", "steps meanwhile"):
        table.add_column(column, justify="right")
    for kind, figures in found["kinds"].items():
        table.add_row(
            kind,
            f"{figures['added']:+.1%}",
            f"{figures['least']:+.1%} – {figures['most']:+.1%}",
            f"{figures['added_s']:+.3f}",
            f"{figures['step_s']:.3f} s",
            f"{figures['first_s']:.3f} s",
            f"{figures['busy']:g}",
        )
    return table


def _reads(found: dict[str, Any]) -> Table:
    table = Table(title=f"reading the {mib(found['bytes'])} of one checkpoint, one process", title_justify="left")
    table.add_column("")
    for column in ("warm GB/s", "time", "cold GB/s", "time"):
        table.add_column(column, justify="right")
    for name, warm in found["warm"].items():
        cold = found["cold"][name] if found["cold"] else None
        cells = [f"{one['gb_s']:.2f}" if one else "-" for one in (warm, cold)]
        ratios = [f"× {one['ratio']:.2f}" if one else "-" for one in (warm, cold)]
        table.add_row(name, cells[0], ratios[0], cells[1], ratios[1])
    return table


def mib(size: int) -> str:
    return f"{size / 2**20:.0f} MiB" if size >= 10 * 2**20 else f"{size / 2**20:.1f} MiB"
