"""The report as Markdown tables. The same cells go to the screen."""

from typing import Any, Final

COLUMNS: Final = (
    "detector",
    "T_D mean, s",
    "p99",
    "max",
    "mistakes / rank-day",
    "false restarts / 10k GPU-days",
    "job lost, s / day",
)


def number(value: float | None, digits: int = 3) -> str:
    """Three digits that count, without an exponent where it can be read without one."""
    if value is None:
        return "-"
    if value == 0:
        return "0"
    if abs(value) >= 10_000:
        return f"{value:,.0f}"
    if abs(value) < 1e-3:
        return f"{value:.1e}"
    text = f"{value:.{digits}g}"
    return text if "e" not in text else f"{value:.0f}"


def between(row: dict[str, Any], name: str) -> str:
    """A figure with its interval."""
    span = row.get(name + "_95")
    if row.get(name) is None:
        return "-"
    if span is None:
        return number(row[name])
    return f"{number(row[name])} ({number(span[0])} to {number(span[1])})"


def cells(row: dict[str, Any]) -> tuple[str, ...]:
    return (
        row["name"],
        number(row["detection_mean_s"]),
        number(row["detection_p99_s"]),
        number(row["detection_max_s"]),
        number(row["mistakes_per_rank_day"]),
        between(row, "false_restarts_per_10k_gpu_days"),
        between(row, "job_seconds_lost_per_day"),
    )


def table(rows: list[dict[str, Any]]) -> str:
    lines = ["| " + " | ".join(COLUMNS) + " |", "|---" * len(COLUMNS) + "|"]
    lines += ["| " + " | ".join(cells(row)) + " |" for row in rows]
    return "\n".join(lines)


def racks(rows: list[dict[str, Any]]) -> str:
    lines = ["| detector | rack losses | mean, s | p99 | max | decisions per loss, mean | most |", "|---" * 7 + "|"]
    for row in rows:
        if "rack_p99_s" in row:
            times = (row["rack_mean_s"], row["rack_p99_s"], row["rack_max_s"])
            told = (number(row["rack_decisions_mean"]), str(row["rack_decisions_max"]))
            lines.append("| " + " | ".join((row["name"], str(row["rack_losses"]), *map(number, times), *told)) + " |")
    return "\n".join(lines)


def phases(rows: list[dict[str, Any]]) -> str:
    lines = ["| detector | died in | deaths | mean, s | p99 |", "|---" * 5 + "|"]
    for row in rows:
        for phase, found in row.get("by_phase", {}).items():
            cells_ = (row["name"], phase, str(found["deaths"]), number(found["mean_s"]), number(found["p99_s"]))
            lines.append("| " + " | ".join(cells_) + " |")
    return "\n".join(lines)


def manners(rows: list[dict[str, Any]]) -> str:
    lines = ["| detector, job | deaths | T_D mean, s | p99 | max | never told |", "|---" * 6 + "|"]
    for row in rows:
        times = (row["detection_mean_s"], row["detection_p99_s"], row["detection_max_s"])
        told = (str(row["deaths"]), *map(number, times), str(row["deaths_never_told"]))
        lines.append("| " + " | ".join((row["name"], *told)) + " |")
    return "\n".join(lines)


def pauses(rows: list[dict[str, Any]]) -> str:
    lines = ["| detector, pause | pauses | convictions |", "|---" * 3 + "|"]
    lines += [f"| {row['name']} | {row['pauses']} | {row['convictions']} |" for row in rows]
    return "\n".join(lines)


def markdown(report: dict[str, Any]) -> str:
    """All tables of one report."""
    ours = [row for row in report["detectors"] if row["name"].startswith("rankpulse")]
    least = report["floor"]
    days = max((row["rank_days"] for row in ours), default=0.0)
    parts = [
        f"`{report['command']}`, version {report['version']}, {report['date']}, {report['machine']}, "
        f"Python {report['python']}; {days:,.0f} rank-days of ours.",
        "### One sender per node",
        table(report["detectors"]),
        f"A pure timeout on freezes alone loses at least {least['job_seconds_lost_per_day']:.1f} s a day, at "
        f"{least['timeout_s']:.1f} s.",
        "### Racks",
        racks(ours),
        "### By the phase in which the node died",
        phases(ours),
    ]
    for name, title, show in (
        ("layers", "### What each layer buys", table),
        ("manners", "### How the ranks run together", manners),
        ("pauses", "### Pauses of the monitor and of the store", pauses),
        ("per_rank", "### One sender per rank", table),
    ):
        if report[name]:
            parts += [title, show(report[name])]
    return "\n\n".join(parts) + "\n"
