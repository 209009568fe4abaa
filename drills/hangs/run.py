"""All cases, so many times over, as a table: `python -m rankpulse.drills.hangs.run ROUNDS [DIRECTORY]`.

One stage and one job for each round, and ranks drawn anew. What was wrong is told on stderr, with its seed.
"""

import asyncio
import json
import random
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

from rankpulse.drills.hangs.cases import CASES, play
from rankpulse.drills.hangs.theatre import MONITOR, Theatre
from rankpulse.drills.stage import Stage

CUT = "the network between two of three ranks"
ON_THE_WIRE = ("network_stall", "partition")


class Outcome(NamedTuple):
    right: bool
    after_s: float | None
    line: str


async def acted(directory: Path, seed: int) -> dict[str, Outcome]:
    """One round of all cases in one job."""
    found = {}
    async with Theatre(Stage(directory, monitor=MONITOR)) as theatre:
        for number, case in enumerate(CASES.values()):
            played = await play(theatre, case, f"{seed}-{number}")
            found[case.told] = Outcome(not played.wrong, played.after_s, played.line())
            _tell(played.line(), f"seed {played.seed}", *played.wrong)
    return found


def wired(directory: Path, seed: int) -> Outcome:
    """The wire that is cut, in a process of its own."""
    argv = [sys.executable, "-m", "rankpulse.drills.hangs.cut", str(directory), str(seed)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        _tell(CUT, f"seed {seed}", done.stderr[-2000:])
        return Outcome(False, None, done.stderr[-200:])
    return judged(json.loads(done.stdout), f"seed {seed}")


def judged(told: dict[str, Any], seed: str = "") -> Outcome:
    """What was said of the wire against what was cut."""
    incidents = told["incidents"]
    said = [(one["klass"], one["nodes"], [rank for rank, *_ in one["culprits"]]) for one in incidents]
    right = len(said) == 1 and said[0][0] in ON_THE_WIRE and said[0][1:] == (told["cut"], told["ranks"])
    line = f"wire: {' and '.join(told['cut'])} cut: {said or 'no incident'}"
    _tell(line, seed, *([] if right else [str(incidents)]))
    return Outcome(right, told["after_s"] if right else None, line)


def _tell(line: str, seed: str, *wrong: str) -> None:
    print(line, *([seed, *wrong] if wrong else []), file=sys.stderr, sep="\n  ", flush=True)


def table(rounds: list[dict[str, Outcome]]) -> str:
    """One row per case: how many were right, and how soon."""
    by_case: dict[str, list[Outcome]] = defaultdict(list)
    for one in rounds:
        for told, outcome in one.items():
            by_case[told].append(outcome)
    lines = ["| case | right | seconds until the right verdict stood |", "|---|---|---|"]
    for told, outcomes in by_case.items():
        times = sorted(outcome.after_s for outcome in outcomes if outcome.after_s is not None)
        took = f"{times[0]:.1f} to {times[-1]:.1f}" if times else "–"
        lines.append(f"| {told} | {sum(outcome.right for outcome in outcomes)} of {len(outcomes)} | {took} |")
    return "\n".join(lines)


def main(rounds: int, directory: Path) -> int:
    found = []
    for number in range(rounds):
        seed, here = random.SystemRandom().randrange(1 << 30), directory / str(number)
        (here / "wires").mkdir(parents=True)
        outcome = asyncio.run(acted(here, seed))
        found.append({**outcome, CUT: wired(here / "wires", seed)})
    print(table(found))
    return 0 if all(outcome.right for one in found for outcome in one.values()) else 1


if __name__ == "__main__":
    where = Path(sys.argv[2] if len(sys.argv) > 2 else tempfile.mkdtemp(prefix="rankpulse-hangs-"))
    sys.exit(main(int(sys.argv[1]), where))
