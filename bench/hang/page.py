"""Makes docs/benchmarks/hang.md from a report: `python -m rankpulse.bench.hang.page REPORT PAGE`.

No figure on that page is typed by hand.
"""

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from rankpulse.bench.hang import dumps, tables
from rankpulse.bench.hang.trials import OWN

FIT_S: Final = 5.0
FIT_MIB: Final = 1500
EXACT, WRONG, CONTAINS = 0.99, 0.01, 0.99  # at least, at most, at least
FEW: Final = 100  # trials: fewer show no 99 %
MET: Final = "met"
USUAL: Final = ("TP4 x PP4 x DP4", "TP8 x PP16 x DP128")
RANKS: Final = ("host", "gpu", "skip", "mismatch")

HEAD: Final = """# Hangs: who froze the job, by the dumps alone

Simulated jobs run until a fault has stopped all of their ranks. Every rule then gets the same flight recorder dumps,
and nothing else, and says who it was. Made by `python -m rankpulse.bench.hang.page` from a report of
`rankpulse bench hang --json`; no figure was typed by hand.

## What was promised, what was measured
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
  sharded optimizer are drawn for each trial; at 16,384 ranks one short program stands for all.
* A collective ends when all its members have begun it with the same operation, size and type. A send ends when it has
  met its receive, the how manieth of a pair with the how manieth. What comes of a fault emerges from that: the rank
  that leaves out a call runs on, meets the wrong calls of its peers, or none, and somewhere the job stops.
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


def page(report: dict[str, Any]) -> str:
    """The whole page."""
    rows = report["rows"]
    seen = (
        f"`rankpulse bench hang --seed {report['seed']}`, Python {report['python'].split()[0]}, {report['cpus']} cores"
    )
    parts = [HEAD, *promises(report), "", f"{seen}, shared with other work.", "", RULE, HOW]
    parts += [
        "## Beside it, on the same dumps",
        "",
        "No dump missing, `started` recorded. Exact answers, and in brackets",
    ]
    parts += ["how many ranks a rule names.", "", *tables.beside(rows), ""]
    parts += ["## Everything", "", *tables.ours(rows), "", "## Time and memory", ""]
    parts += [
        "Reading the snapshot and judging it, in a process of its own with one thread; the best of three. On a busy",
        "machine it waits for its turns: what it takes of the CPU is what it takes on an idle one.",
        "",
        *tables.speed(report["speed"]),
        "",
    ]
    parts += ["## Again", "", "```bash", f"rankpulse bench hang --seed {report['seed']} --json > hang.json"]
    return "\n".join([*parts, "python -m rankpulse.bench.hang.page hang.json docs/benchmarks/hang.md", "```", ""])


def promises(report: dict[str, Any]) -> Iterator[str]:
    """One line per promise."""
    rows = [row for row in report["rows"] if row["rule"] == tables.OURS]
    timed = [row for row in rows if row["recorder"] == dumps.TIMED]
    yield "| what | goal | measured | |"
    yield "|---|---|---|---|"
    for name in USUAL:
        mine = [row for row in timed if row["topology"] == name]
        yield _at_least(f"{name}: rank exactly named, no dump missing", EXACT, _of(mine, "exact", 0.0, RANKS))
        yield _at_least(f"{name}: stuck link, pair or communicator", EXACT, _of(mine, "exact", 0.0, ("link",)))
        for missing in (0.05, 0.2):
            told = _of(mine, "exact", missing, RANKS)
            yield _told(f"{name}: rank exactly named, {tables.missing(missing)} missing", "-", told, "")
    drawn = [row for row in rows if row["missing"] != OWN]
    wrong, trials = _sum(drawn, "wrong")
    good = wrong <= WRONG * trials
    yield _told("wrong though sure, all topologies and recorders", "at most 1 %", (wrong, trials), _met(good))
    yield _at_least("answers that contain the culprit, all of them", CONTAINS, _sum(drawn, "contains"))
    worst = max(one["cpu_s"] for one in report["speed"])
    ranks, most = report["speed"][0]["ranks"], max(one["peak_mib"] for one in report["speed"])
    yield f"| {ranks:,} ranks read and judged, s of one core | under {FIT_S:g} | {worst:.3g} | {_met(worst < FIT_S)} |"
    yield f"| the same, MiB | under {FIT_MIB} | {most} | {_met(most < FIT_MIB)} |"


def _of(rows: Iterable[dict[str, Any]], what: str, missing: float, faults: Iterable[str]) -> tuple[int, int]:
    return _sum([row for row in rows if row["missing"] == missing and row["fault"] in faults], what)


def _sum(rows: Iterable[dict[str, Any]], what: str) -> tuple[int, int]:
    told = list(rows)
    return sum(row[what] for row in told), sum(row["trials"] for row in told)


def _at_least(what: str, goal: float, told: tuple[int, int]) -> str:
    verdict = _met(told[0] >= goal * told[1])
    if verdict == MET and told[1] < FEW:
        verdict = f"none wrong, but {told[1]} are too few to tell"
    return _told(what, f"at least {goal:.0%}".replace("%", " %"), told, verdict)


def _told(what: str, goal: str, told: tuple[int, int], verdict: str) -> str:
    count, trials = told
    return f"| {what} | {goal} | {100 * count / max(1, trials):.3g} %, {count} of {trials} | {verdict} |"


def _met(good: bool) -> str:
    return MET if good else "**not met**"


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(page(json.loads(Path(sys.argv[1]).read_bytes())), encoding="utf-8")
