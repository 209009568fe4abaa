"""Makes docs/benchmarks/hang.md from reports: `python -m rankpulse.bench.hang.page PAGE REPORT...`.

No figure on that page is typed by hand.
"""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from rankpulse.bench.hang import bounds, dumps, tables
from rankpulse.bench.hang.trials import OWN

FIT_S: Final = 5.0
FIT_MIB: Final = 1500
EXACT, WRONG, CONTAINS = 0.99, 0.01, 0.99  # at least, at most, at least
MET: Final = "met"
USUAL: Final = ("TP4 x PP4 x DP4", "TP8 x PP16 x DP128")
RANKS: Final = ("host", "gpu", "skip", "mismatch")

HEAD: Final = """# Hangs: who froze the job, by the dumps alone

Simulated jobs run until a fault has stopped all of their ranks. Every rule then gets the same flight recorder dumps,
and nothing else, and says who it was. Made by `python -m rankpulse.bench.hang.page` from reports of
`rankpulse bench hang --json`; no figure was typed by hand.

## What was promised, what was measured
"""

SURE: Final = """*Sure of*: the exact one-sided bound at 95 % (Clopper and Pearson), for each trial as an independent
one. It takes 300 trials without a failure to be sure of 99 %.
"""

RULE: Final = """## The rule

A rank waits in every operation that its device has begun and that has not ended. The operation waits for the members
that have not begun it, a receive for its sender alone. Followed from anywhere, waiting ends in one of these, asked for
in this order:

1. **Another call at the same place**: operation, size or type differ, and the minority is wrong. Between two, the ranks
   that run the same program decide: data, tensor, expert and context parallel peers, and theirs.
2. **A rank that waits for nobody** and that others wait for: the culprit, whatever its host has called ahead.
3. **An operation to which all have come**: the link between them, or the library. Two ranks that are in all of several
   such operations are the ends of the link.
4. **A circle**: ranks that follow one program never wait for each other, so somebody left out a call or made one too
   many. It is the one without whom there would be no circle, or whose calls stand at other places of their order than
   those of the ranks that run the same program.
5. **Ranks of whom nothing is known**: a set, with the members of the operations that wait for them alone.

Set `TORCH_NCCL_ENABLE_TIMING=1` (our rendezvous does): without it NCCL does not record when operations begin, and a
rank is assumed inside the earliest of its open calls. Kinds of process groups matter too: without them nobody knows who
runs the same program, and pairs stay undecided.
"""

HOW: Final = """## How it is simulated

* Each rank has a host, which calls operations, and a device, which works them off in order. The host runs 16, 128 or
  1,000 calls ahead, or waits for the device after every send and receive, as Megatron does by default. The program is
  the 1F1B schedule with tensor parallel layers, a gradient reduction that runs beside the backward pass, the norm over
  a whole replica, now and then the timers of all ranks. Microbatches, layers, buckets, sequence parallelism and a
  sharded optimizer are drawn for each trial; at 16,384 ranks programs are short, and trials share them (below).
* A collective ends when all its members have begun it with the same operation, size and type. A send ends when it has
  met its receive, the how manieth of a pair with the how manieth. What comes of a fault emerges from that: the rank
  that leaves out a call runs on, meets the wrong calls of its peers, or none, and somewhere the job stops.
* At 16,384 ranks some fifty trials come out of one healthy run. Where a job ends does not depend on the order in which
  its ranks are looked at: so one copy of the model, drawn for each run, is held where the next fault is due, while all
  others are run as far as they get without it; then the fault comes to a rank of that copy, in a process that is a
  copy of all. On small jobs the dumps are the same as without this, to the last field (a test). With dumps missing,
  and by the usual rules, one run in eight is judged.
* Faults: **host stuck**: a rank stops calling. **Device stuck**: its device stops, the host runs ahead. **Link stuck**:
  nothing passes between two neighbours of a ring or pair any more. **Call left out**: of collectives, sends and
  receives, or one half of a batch. **Other call**: another size, type, operation or group. Rank and place are drawn
  evenly. A fault that does not stop the whole job is no hang, and another is drawn.
* Recorders: NCCL with `TORCH_NCCL_ENABLE_TIMING=1`, NCCL without (`started` is never recorded), gloo (calls and ends
  only). A dump has per group the last three that ended and at most eight open ones, with operation, size, type, line of
  the program and place in the order: about two kilobytes for a rank. Missing dumps are drawn evenly; `the culprit's`
  means that its own is missing, as of a rank that answers nothing.

## How it is scored

* **exact**: sure, and exactly the culprit; of a link: sure, and the pair or a communicator that holds both ends.
* **wrong though sure**: anything else that is told as certain, the culprit among others included.
* **named first**: exact, or unsure with the culprit before all others of the set.
* **contain the culprit**: of all answers; of an unsure one the whole set counts, its size is in the last column.

The same hang is judged with none, 5 and 20 % of the dumps missing, and by two recorders: answers are not independent.
While the rule was made, failures among the trials of seed 1 were looked at and mended: another seed is the fairer test.

What no positions can tell: with `started` not recorded, a device that stopped before a collective looks like a dead
link in it, so both are told as a set. A rank that told nothing may be the culprit, or inside a collective whose link is
dead: it is never named as certain by its silence alone. What else is known of it, that its process is stopped or its
GPU failed, is weighed [elsewhere](../snapshots.md).
"""


def page(reports: Sequence[dict[str, Any]]) -> str:
    """The whole page."""
    report = merged(reports)
    rows = report["rows"]
    parts = [HEAD, *promises(report), "", *map(_measured, reports), "", SURE, RULE, HOW]
    parts += [
        "## Beside it, on the same dumps",
        "",
        "No dump missing, `started` recorded. Exact answers, and in brackets",
    ]
    parts += ["how many ranks a rule names.", "", *tables.beside(rows), ""]
    parts += ["## Everything", "", *tables.ours(rows), "", "## Time and memory", ""]
    parts += [
        "Reading a snapshot and the whole diagnosis (`rankpulse diagnose`), in a process of its own with one thread;",
        "the best of three. Every rank tells positions, a stack, its state and its last lines, every machine its",
        "report. On a busy machine (its load is in the table) it waits for its turns on the clock: what it takes of",
        "the CPU is what it takes on an idle one.",
        "Peak: what the process had resident at most (`getrusage`).",
        "",
        *tables.speed(report["speed"]),
        "",
    ]
    files = [f"hang-{number}.json" for number in range(len(reports))]
    parts += ["## Again", "", "```bash", *(f"{_command(r)} --json > {f}" for r, f in zip(reports, files, strict=True))]
    made = f"python -m rankpulse.bench.hang.page docs/benchmarks/hang.md {' '.join(files)}"
    return "\n".join([*parts, made, "```", ""])


def merged(reports: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """All trials of all of them; times of the last."""
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in (row for report in reports for row in report["rows"]):
        key = tuple(row[name] for name in ("topology", "recorder", "fault", "missing", "rule"))
        rows[key] = _both(rows[key], row) if key in rows else row
    return {**reports[-1], "rows": list(rows.values())}


def _both(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    counted = {name: one[name] + other[name] for name in ("trials", "exact", "wrong", "first", "contains")}
    size = (one["size"] * one["trials"] + other["size"] * other["trials"]) / counted["trials"]
    return {**one, **counted, "size": round(size, 1)}


def _measured(report: dict[str, Any]) -> str:
    seen = f"{report['date']}, Python {report['python'].split()[0]}, {report['cpus']} cores"
    return f"* `{_command(report)}`, {seen}, shared with other work"


def _command(report: dict[str, Any]) -> str:
    small = "" if report["small"] else " --no-small"
    return f"rankpulse bench hang --seed {report['seed']} --large {report['large']}{small}"


def promises(report: dict[str, Any]) -> Iterator[str]:
    """One line per promise."""
    rows = [row for row in report["rows"] if row["rule"] == tables.OURS]
    timed = [row for row in rows if row["recorder"] == dumps.TIMED]
    yield "| what | goal | measured | sure of | |"
    yield "|---|---|---|---|---|"
    for name in USUAL:
        mine = [row for row in timed if row["topology"] == name]
        yield _at_least(f"{name}: rank exactly named, no dump missing", EXACT, _of(mine, "exact", 0.0, RANKS))
        yield _at_least(f"{name}: stuck link, pair or communicator", EXACT, _of(mine, "exact", 0.0, ("link",)))
        for missing in (0.05, 0.2):
            told = _of(mine, "exact", missing, RANKS)
            sure = f"at least {_percent(bounds.at_least(*told))}"
            yield _told(f"{name}: rank exactly named, {tables.missing(missing)} missing", "-", told, sure, "")
    drawn = [row for row in rows if row["missing"] != OWN]
    wrong, trials = _sum(drawn, "wrong")
    most = bounds.at_most(wrong, trials)
    good = _verdict(wrong <= WRONG * trials, most <= WRONG)
    yield _told("wrong though sure, all topologies and recorders", "at most 1 %", (wrong, trials),
                f"at most {_percent(most)}", good)  # fmt: skip
    yield _at_least("answers that contain the culprit, all of them", CONTAINS, _sum(drawn, "contains"))
    ranks = report["speed"][0]["ranks"]
    for what, took, fit in (
        (f"{ranks:,} ranks read and judged, s of one core", max(one["cpu_s"] for one in report["speed"]), FIT_S),
        ("the same, peak in MiB", max(one["peak_mib"] for one in report["speed"]), FIT_MIB),
    ):
        yield f"| {what} | under {fit:g} | {took:.4g} | | {_verdict(took < fit)} |"
    yield f"| the same, s on the clock | under {FIT_S:g} | {_on_the_clock(report)}"


def _on_the_clock(report: dict[str, Any]) -> str:
    """Judged only where a core was free for it: else it tells of the others."""
    took = [(float(one["read_s"] + one["judged_s"]), one["load"]) for one in report["speed"]]
    fair = [seconds for seconds, load in took if load <= report["cpus"]]
    if fair:
        return f"{max(fair):.4g} | | {_verdict(max(fair) < FIT_S)} |"
    by_load = {load: max(seconds for seconds, other in took if other == load) for _, load in sorted(took)}
    told = ", ".join(f"{seconds:.3g} at a load of {load:g}" for load, seconds in by_load.items())
    return f"{told} | | no core was free for it |"


def _of(rows: Iterable[dict[str, Any]], what: str, missing: float, faults: Iterable[str]) -> tuple[int, int]:
    return _sum([row for row in rows if row["missing"] == missing and row["fault"] in faults], what)


def _sum(rows: Iterable[dict[str, Any]], what: str) -> tuple[int, int]:
    told = list(rows)
    return sum(row[what] for row in told), sum(row["trials"] for row in told)


def _at_least(what: str, goal: float, told: tuple[int, int]) -> str:
    bound = bounds.at_least(*told)
    good = _verdict(told[0] >= goal * told[1], bound >= goal)
    return _told(what, f"at least {_percent(goal)}", told, f"at least {_percent(bound)}", good)


def _told(what: str, goal: str, told: tuple[int, int], sure: str, verdict: str) -> str:
    count, trials = told
    return f"| {what} | {goal} | {_percent(count / max(1, trials))}, {count} of {trials} | {sure} | {verdict} |"


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _verdict(good: bool, sure: bool = True) -> str:
    """Whether what was measured keeps a promise, and whether so few trials can show it."""
    return (MET if sure else "met, in too few trials to be sure of it") if good else "**not met**"


if __name__ == "__main__":
    told = [json.loads(Path(name).read_bytes()) for name in sys.argv[2:]]
    Path(sys.argv[1]).write_text(page(told), encoding="utf-8")
