"""The report of `rankpulse bench asking` as Markdown."""

import statistics
from collections.abc import Iterator
from typing import Any

from rankpulse.bench.asking_figures import WHAT


def text(report: dict[str, Any]) -> str:
    """Everything."""
    about = (
        f"{report['turns']} stretches of {report['seconds']:g} s in which somebody asked every {report['every_s']:g} s"
    )
    where = (
        f"{report['date']}, {report['cpus']} cores, {report['machine']}, load {report['load'][0]} before it began,"
        f" Python {report['python']}, torch {report['torch']}"
    )
    parts = ["step times, ms", *steps(report), "", "over the quiet stretches beside it", *ratios(report), ""]
    parts += ["steps that a question fell into, over the others of the same stretch", *meanwhile(report), ""]
    return "\n".join([*parts, "ranks that cannot answer", *cannot(report), "", f"{about}, between quiet ones; {where}"])


def steps(report: dict[str, Any]) -> Iterator[str]:
    yield "| job | | steps | mean | median | p99 |"
    yield "|---|---|---|---|---|---|"
    for name, told in report["disturbance"].items():
        for when in ("before", "during", "after"):
            one = told[when]
            yield f"| {name} | {when} | {one['steps']} | {' | '.join(f'{one[what]:.1f}' for what in WHAT)} |"


def ratios(report: dict[str, Any]) -> Iterator[str]:
    yield "| job | | mean | median | p99 |"
    yield "|---|---|---|---|---|"
    for name, told in report["disturbance"].items():
        for what, words in (("asked", "asked"), ("noise", "nobody asked")):
            yield f"| {name} | {words} | {' | '.join(_spread(told[what][one]) for one in WHAT)} |"


def meanwhile(report: dict[str, Any]) -> Iterator[str]:
    yield "| job | mean | median |"
    yield "|---|---|---|"
    for name, told in report["disturbance"].items():
        yield f"| {name} | {' | '.join(_spread(told['meanwhile'][one]) for one in ('mean', 'median'))} |"


def _spread(ratio: dict[str, float]) -> str:
    return f"{ratio['median']:.3f} ({ratio['low']:.2f} to {ratio['high']:.2f})" if ratio else "-"


def cannot(report: dict[str, Any]) -> Iterator[str]:
    yield "| case | questions | answered | s, median | s, longest | ranks told | with positions | with a stack |"
    yield "|---|---|---|---|---|---|---|---|"
    for case in report["cannot"]:
        seconds, told = case["seconds"], [_few(case[what]) for what in ("ranks", "positions", "stacks")]
        answered = case["questions"] - case["unanswered"]
        times = f"{statistics.median(seconds):.2f} | {max(seconds):.2f}"
        yield f"| {case['case']} | {case['questions']} | {answered} | {times} | {' | '.join(told)} |"


def _few(counts: list[int]) -> str:
    """Of each answer: one number where they are all alike."""
    return "-" if not counts else str(counts[0]) if len(set(counts)) == 1 else f"{min(counts)} to {max(counts)}"
