"""What `rankpulse sim` was asked for: whether that can be simulated, and the sentence that says why not."""

import math
from typing import Final

from rankpulse.drills.sim.plan import FAULTS, Options

NODES: Final = (2, 1000)
GPUS: Final = (1, 64)
MINUTES: Final = (3, 1440)  # faults begin after 75 s and end a minute before the end
SEEDS: Final = (1, 100_000)
PROCESSES: Final = (0, 1024)


def refused(
    seeds: range, options: Options, *, trace: str | None, until: float | None, verbose: bool, processes: int
) -> str:
    """Why not, and what to do; "" when it can be done."""
    numbers = (
        ("--nodes", options.nodes, NODES),
        ("--gpus", options.gpus, GPUS),
        ("--minutes", options.minutes, MINUTES),
        ("--seeds", seeds.stop - seeds.start, SEEDS),
        ("--processes", processes, PROCESSES),
    )
    return (
        _unknown(options.faults)
        or next((why for name, value, span in numbers if (why := _outside(name, value, span))), "")
        or _no_second(until)
        or _not_one(seeds, trace, verbose)
    )


def unwritable(trace: str, error: OSError) -> str:
    return f"--trace {trace}: {error.strerror}: name a file that can be written"


def _outside(name: str, value: float, span: tuple[int, int]) -> str:
    low, high = span
    return "" if low <= value <= high else f"{name} must be between {low} and {high}, not {value:g}"  # nan lies nowhere


def _unknown(faults: tuple[str, ...]) -> str:
    unknown = [kind for kind in faults if kind not in FAULTS]
    if not unknown:
        return ""
    return f"no fault named {', '.join(unknown)}: choose among {', '.join(FAULTS)}, each with a --faults of its own"


def _no_second(until: float | None) -> str:
    if until is None or (until > 0 and math.isfinite(until)):
        return ""
    return f"--until must be a virtual second after 0, not {until:g}: leave it out to play the whole run"


def _not_one(seeds: range, trace: str | None, verbose: bool) -> str:
    if len(seeds) > 1 and (trace or verbose):
        return "--trace and --verbose are for one seed: name it with --seed, and leave --seeds out"
    return ""
