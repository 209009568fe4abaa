"""The report of the hang bench as text, and as the tables of its page."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

OURS: Final = "wait-for graph"
FAULTS: Final = {
    "host": "host stuck",
    "gpu": "device stuck, host ran ahead",
    "link": "link stuck",
    "skip": "call left out",
    "mismatch": "other call",
}


def text(report: dict[str, Any]) -> str:
    """Everything, as Markdown that is read well in a terminal."""
    parts = ["ours", *ours(report["rows"]), "", "beside it, no dump missing", *beside(report["rows"]), ""]
    times = ["time and memory", *speed(report["speed"])] if report["speed"] else []
    return "\n".join([*parts, *times])


def ours(rows: Iterable[dict[str, Any]]) -> Iterator[str]:
    """One line per topology, recorder, fault and share of missing dumps."""
    heads = ("exact", "wrong though sure", "named first", "contain the culprit", "ranks named")
    yield _line("topology", "recorder", "fault", "dumps missing", "trials", *heads)
    yield "|---" * 10 + "|"
    for row in rows:
        if row["rule"] == OURS:
            yield _line(
                row["topology"],
                row["recorder"],
                FAULTS[row["fault"]],
                missing(row["missing"]),
                row["trials"],
                *(_share(row, what) for what in ("exact", "wrong", "first", "contains")),
                f"{row['size']:g}",
            )


def beside(rows: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Every rule on the same dumps: exact share, and in brackets how many ranks it names."""
    chosen = [row for row in rows if row["missing"] == 0 and row["recorder"].endswith(", started recorded")]
    rules = list(dict.fromkeys(row["rule"] for row in chosen if row["rule"] != OURS))
    yield _line("topology", "fault", OURS, *rules)
    yield "|---" * (len(rules) + 3) + "|"
    for key in dict.fromkeys((row["topology"], row["fault"]) for row in chosen):
        cells = {row["rule"]: row for row in chosen if (row["topology"], row["fault"]) == key}
        told = [f"{_share(cells[rule], 'exact')} ({cells[rule]['size']:g})" for rule in (OURS, *rules)]
        yield _line(key[0], FAULTS[key[1]], *told)


def speed(rows: Iterable[dict[str, Any]]) -> Iterator[str]:
    yield _line(
        "ranks",
        "snapshot, MB",
        "fault",
        "dumps missing",
        "read, s",
        "judged, s",
        "of the CPU, s",
        "load",
        "peak, MiB",
        "finding",
    )
    yield "|---" * 10 + "|"
    for row in rows:
        yield _line(
            row["ranks"],
            row["megabytes"],
            FAULTS[row["fault"]],
            missing(row["missing"]),
            row["read_s"],
            row["judged_s"],
            row["cpu_s"],
            row["load"],
            row["peak_mib"],
            row["kind"],
        )


def missing(share: float) -> str:
    """Which dumps are."""
    return "the culprit's" if share < 0 else f"{share:.0%}".replace("%", " %")


def _share(row: dict[str, Any], what: str) -> str:
    return f"{100 * row[what] / row['trials']:.3g} %"


def _line(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"
