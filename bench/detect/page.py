"""The published page, made from reports: `python -m rankpulse.bench.detect.page docs/benchmarks REPORT.json ...`.

One report per scale, as `rankpulse bench detect --out DIR` leaves it. Nothing on the page is typed by hand but its
words (`prose.py`): figures, and whether goals are met, come from the reports.
"""

import json
import sys
from pathlib import Path
from typing import Any, Final, NamedTuple

from rankpulse.bench.detect import parameters as z
from rankpulse.bench.detect import prose, replay, tables, tally
from rankpulse.bench.detect.counting import rate
from rankpulse.bench.detect.plot import svg
from rankpulse.bench.detect.record import read
from rankpulse.bench.detect.tables import between, number

Report = dict[str, Any]
USAGE: Final = (
    "python -m rankpulse.bench.detect.page DIR REPORT.json ...: a directory for the page, and the report.json of each "
    "`rankpulse bench detect --out`, that of --scale 1 among them"
)
STUDY: Final = {  # false restarts per 10,000 GPU-days on the study's stream; 100 job-days, one sender per rank
    "fixed 5 s": 684,
    "fixed 10 s": 149,
    "fixed 30 s": 1.86,
    "fixed 45 s": 0.098,
    "fixed 60 s": 0,
    "Chen NFD-E a=1 s": 1230,
    "Chen NFD-E a=2 s": 970,
    "Chen NFD-E a=4 s": 682,
    "Chen NFD-E a=8 s": 207,
    "Bertier": 1410,
    "phi 8 (paper)": 1300,
    "phi 12 (paper)": 1300,
    "phi, Akka": 749,
    "phi, Cassandra": 19.4,
    "ED-FD 0.999": 417,
    "2W-FD d=0.5 s": 1310,
    "2W-FD d=1.0 s": 1210,
    "2W-FD d=2.0 s": 968,
    "2W-FD d=4.0 s": 680,
}
STUDY_RANK_DAYS: Final = 102_400.0
FAST, DEFAULT = "rankpulse fast", "rankpulse default"
ENOUGH, ENOUGH_FOR_HALF = 100_000.0, 400_000.0
_FOREIGN: Final = ("deaths_after_a_mistake", "innocents_named_with_the_dead")
_SOME: Final = (  # shown at other scales
    *(FAST, DEFAULT, "fixed 5 s", "fixed 10 s", "fixed 30 s", "fixed 45 s", "fixed 60 s"),
    *("Chen NFD-E a=4 s", "phi, Akka", "phi, Cassandra", "5 x max (NVRx)"),
)


def page(reports: list[Report], recorded: list[dict[str, Any]], recording: str) -> str:
    """The whole page."""
    main = next(report for report in reports if report["scale"] == 1.0)
    others = [report for report in reports if report is not main]
    ours = [row for row in main["detectors"] if row["name"] in (FAST, DEFAULT)]
    parts = [
        prose.head(),
        "## What was promised, what was measured\n\n" + goals(main),
        "## The same days through every detector\n\n" + _said(main),
        f"![detection time against false restarts]({_plot_name(main)})",
        tables.table(main["detectors"]),
        prose.limits(_limits(main)),
        "### Racks, and the phase in which a node dies\n\n" + tables.racks(ours) + "\n\n" + tables.phases(ours),
        prose.pauses_of() + tables.pauses(main["pauses"]),
        prose.LAYERS + tables.table(main["layers"]),
        prose.MANNERS + tables.manners(main["manners"]),
        *(_scaled(report) for report in others),
        prose.ranks() + against_study(main),
        prose.recorded(recording) + replay.table(recorded),
        prose.method(main),
        "## Again\n\n" + "\n\n".join(_said(report) for report in reports) + "\n\n" + prose.AGAIN,
    ]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _said(report: Report) -> str:
    plan = report["plan"]
    rank_days = [int(days * plan["seconds"] / z.DAY_S * z.RANKS) for days in (plan["days"], plan["more_days"])]
    days = f"{rank_days[0]:,} rank-days ({sum(rank_days):,} of default)"
    version = f"version {report['version']} (code {report['code']})"
    return f"`{report['command']}`: {days}, {version}, {report['date']}, {report['machine']}."


def _row(report: Report, name: str) -> dict[str, Any]:
    return next(row for row in report["detectors"] if row["name"] == name)


class _Promise(NamedTuple):
    what: str
    goal: str
    measured: str
    met: bool
    takes: float = 0.0  # how much of `of` it takes to tell
    of: str = "rank-days"


def goals(report: Report) -> str:
    """A line per promise. Rates of rare events and high percentiles are not judged by runs too short for them."""
    fast, default = _row(report, FAST), _row(report, DEFAULT)
    restarts, lost = "false_restarts_per_10k_gpu_days", "job_seconds_lost_per_day"
    upper = {**fast, restarts: fast[restarts + "_95"][1]}
    never, paused, foreign = _never(report), _in_pauses(report), _foreign(report)
    rows = [
        _p99("fast: p99 of a dead node (run-ahead 0), s", fast, 8.0),
        _goal("fast: false restarts per 10,000 GPU-days", fast, restarts, 1.0, ENOUGH),
        _goal("the same, upper end of 95 %", upper, restarts, 2.0, ENOUGH),
        _goal("default: seconds of the job lost per day", default, lost, 20.0, ENOUGH),
        _rack("fast: p99 of a lost rack, s", fast),
        _rack("default: p99 of a lost rack, s", default),
        _goal("decisions per lost rack, at most", fast, "rack_decisions_max", 1.0),
        _Promise("deaths that were never told", "0", str(never), never == 0),
        _Promise("deaths before which, or with which, a living node was convicted", "-", foreign, True),
        _Promise("convictions in pauses of monitor or store", "0", str(paused), paused == 0),
        _p99("beyond that: fast, p99 (run-ahead 0), s", fast, 5.0),
        _goal("beyond that: fast, false restarts", fast, restarts, 0.5, ENOUGH_FOR_HALF),
    ]
    seen = {"rank-days": fast["rank_days"], "deaths": fast["deaths"], "racks": fast.get("rack_losses", 0)}
    lines = ["| what | goal | measured | |", "|---|---|---|---|"]
    for row in rows:
        verdict = ("met" if row.met else "**not met**") if row.goal != "-" else ""
        verdict = verdict if seen[row.of] >= row.takes else f"takes {row.takes:,.0f} {row.of} to tell"
        lines.append(f"| {row.what} | {row.goal} | {row.measured} | {verdict} |")
    return "\n".join(lines)


def _goal(what: str, row: dict[str, Any], field: str, most: float, takes: float = 0.0) -> _Promise:
    said = between(row, field) if field + "_95" in row and what[:8] != "the same" else number(row[field])
    return _Promise(what, f"at most {most:g}", said, row[field] <= most, takes)


def _p99(what: str, row: dict[str, Any], most: float) -> _Promise:
    said = f"{between(row, 'detection_p99_s')}, {row['deaths']} deaths"
    return _Promise(what, f"at most {most:g}", said, row["detection_p99_s"] <= most, tally.LEAST_FOR_P99, "deaths")


def _rack(what: str, row: dict[str, Any]) -> _Promise:
    said = f"{number(row['rack_p99_s'])} (most: {number(row['rack_max_s'])}), {row['rack_losses']} racks"
    return _Promise(what, "at most 18", said, row["rack_p99_s"] <= 18.0, 100, "racks")


def _foreign(report: Report) -> str:
    ours = [row for row in report["detectors"] if row["name"] in (FAST, DEFAULT)]
    before, innocent = (sum(row[name] for row in ours) for name in _FOREIGN)
    return f"{before} before, {innocent} nodes with the dead"


def _never(report: Report) -> int:
    rows = [*report["manners"], *(row for row in report["detectors"] if row["name"] in (FAST, DEFAULT))]
    return sum(row["deaths_never_told"] for row in rows)


def _in_pauses(report: Report) -> int:
    return sum(row["convictions"] for row in report["pauses"])


def _limits(report: Report) -> dict[str, str]:
    fast, default = _row(report, FAST), _row(report, DEFAULT)
    racks = z.TRACE_Z["rack_pause"]
    rack_s = default["rack_mean_s"]
    paused = racks.rate * report["scale"] * z.RACKS * z.FABRIC_SHARE * racks.size.tail(rack_s) * z.RESTART_COST_S
    return {
        "least": number(report["floor"]["job_seconds_lost_per_day"]),
        "at": number(report["floor"]["timeout_s"]),
        "racks": number(paused),
        "rack_s": number(rack_s),
        "default": between(default, "job_seconds_lost_per_day"),
        "fixed": number(min(_lost(row) for row in report["detectors"] if row["name"].startswith("fixed"))),
        "frontier": number(tally.frontier(report["scale"], fast["detection_mean_s"] + 0.4, fast["rack_mean_s"])),
        "fast": between(fast, "false_restarts_per_10k_gpu_days"),
    }


def _lost(row: dict[str, Any]) -> float:
    return float(row["job_seconds_lost_per_day"] or float("inf"))


def _scaled(report: Report) -> str:
    rows = [row for row in report["detectors"] if row["name"] in _SOME]
    least = report["floor"]
    text = (
        f"## All disturbances times {report['scale']:g}\n\n{_said(report)} A pure timeout on freezes alone loses at "
        f"least {number(least['job_seconds_lost_per_day'])} s a day, at {number(least['timeout_s'])} s.\n\n"
    )
    plot = f"![detection time against false restarts]({_plot_name(report)})\n\n"
    return text + plot + tables.table(rows) + "\n\n" + tables.racks(rows)


def against_study(report: Report) -> str:
    """Our rerun of the usual detectors beside the study's figures: whether the two Poisson intervals meet."""
    lines = [
        "| detector | T_D mean, s | p99 | mistakes / rank-day | false restarts / 10k GPU-days | the study | agree |",
        "|---" * 7 + "|",
    ]
    for row in report["per_rank"]:
        theirs = STUDY.get(row["name"])
        mine = row["false_restarts_per_10k_gpu_days_95"]
        agree = "-"
        if theirs is not None:
            events = round(theirs * STUDY_RANK_DAYS / 10_000)
            low, high = rate(events, STUDY_RANK_DAYS, 10_000)[1:]
            agree = "yes" if low <= mine[1] and mine[0] <= high else "no"
        figures = (row["detection_mean_s"], row["detection_p99_s"], row["mistakes_per_rank_day"])
        said = (between(row, "false_restarts_per_10k_gpu_days"), "-" if theirs is None else f"{theirs:g}", agree)
        lines.append("| " + " | ".join((row["name"], *map(number, figures), *said)) + " |")
    return "\n".join(lines)


def _plot_name(report: Report) -> str:
    return f"detection-x{report['scale']:g}.svg"


def main(place: str = "", *paths: str) -> int:
    """Write the page and its plots. Returns 2 when it was asked wrongly."""
    try:
        reports = [json.loads(Path(path).read_text()) for path in paths]
        reports.sort(key=lambda report: report["scale"] != 1.0)
        if not reports or reports[0]["scale"] != 1.0:
            print(USAGE, file=sys.stderr)
            return 2
        _write(Path(place), reports)
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(f"the page cannot be made: {type(error).__name__}: {error}\n{USAGE}", file=sys.stderr)
        return 2
    return 0


def _write(place: Path, reports: list[Report]) -> None:
    head, rows = read(replay.SAMPLE)
    beats = sum(row[0] == "h" for row in rows)
    recording = (
        f"{head.nodes} agents, {head.seconds:g} s, {beats:,} beats, etcd {head.etcd}, {head.machine}, seed {head.seed}"
    )
    text = page(reports, replay.replay(replay.SAMPLE), recording)
    place.mkdir(parents=True, exist_ok=True)
    for report in reports:
        (place / _plot_name(report)).write_text(svg(report))
    (place / "detection.md").write_text(text)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
