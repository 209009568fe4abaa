"""One rank in words: where it runs, what it is doing, and the frame, state and kernel function that say so. Pure."""

import re
from collections.abc import Iterator
from typing import Final

from rankpulse.core.signatures import words
from rankpulse.core.snapshot import COMPLETED, Loaders, Position, Rank
from rankpulse.core.stacks import COLLECTIVE, DEVICE, IN_WORDS, UNSEEN, doing
from rankpulse.core.words import printable

FRAME_MAX: Final = 120
GROUPS_MAX: Final = 4
_LIBRARY: Final = re.compile(
    r"(^|/)(torch|multiprocessing|concurrent|torch_xla)/|^(threading|contextlib|functools)\.py"
)
STATES: Final = {
    "R": "running",
    "S": "sleeping",
    "D": "uninterruptible sleep",
    "T": "stopped by a signal",
    "t": "held by a debugger",
    "Z": "dead",
    "X": "dead",
    "I": "idle",
}


def place(rank: Rank) -> str:
    """rank 7 on gpu03 (GPU 3, pid 4711)"""
    more = [f"GPU {rank.gpu}"] if rank.gpu is not None else []
    more += [f"pid {rank.pid}"] if rank.pid is not None else []
    node = f" on {printable(rank.node, 100)}" if rank.node else ""
    return f"rank {rank.rank}{node}" + (f" ({', '.join(more)})" if more else "")


def activity(rank: Rank) -> str:
    """What it is doing, with the frame that matters; "" where nothing is known."""
    does = doing(rank)
    told = [*_ends(rank), *_held(rank)]
    if does.what != UNSEEN:
        told.append(IN_WORDS[does.what] + (f" ({printable(does.frame, FRAME_MAX)})" if does.frame else ""))
    if does.what in (COLLECTIVE, DEVICE) and (caller := _caller(rank)):
        told.append(f"called at {printable(caller, FRAME_MAX)}")
    return ", ".join(told)


def _caller(rank: Rank) -> str:
    """The innermost frame of the program itself."""
    return next((frame for frame in reversed(rank.stack) if not _LIBRARY.search(frame)), "")


def facts(rank: Rank) -> str:
    """What the kernel says of its process, and how far it is."""
    return ", ".join(_facts(rank))


def frame_of(rank: Rank) -> int:
    """Which frame of its stack says what it is doing, -1: none."""
    frame = doing(rank).frame
    return len(rank.stack) - 1 - rank.stack[::-1].index(frame) if frame in rank.stack else -1


def calls(rank: Rank) -> Iterator[str]:
    """How far it is in its process groups, those in which it is inside of something first."""
    told = sorted(rank.positions, key=lambda p: (p.enqueued == p.completed, p.group))
    for position in told[:GROUPS_MAX]:
        yield _position(position)
    if len(told) > GROUPS_MAX:
        yield f"and {len(told) - GROUPS_MAX} more groups"


def _position(position: Position) -> str:
    counts = (("called", position.enqueued), ("begun", position.started), ("ended", position.completed))
    told = ", ".join(f"{word} {'none' if number < 0 else number}" for word, number in counts if number is not None)
    return f"group {printable(position.group, 60)}: {told or 'not known'}{_inside(position)}"


def _inside(position: Position) -> str:
    """The first operation that has not ended, and where it was called."""
    going = position.open if position.enqueued != position.completed else ()
    op = next((one for one in going if one.state != COMPLETED), None)
    site = f", called at {printable(op.site, FRAME_MAX)}" if op is not None and op.site else ""
    return f"; in {words(op)}{site}" if op is not None else ""


def _ends(rank: Rank) -> Iterator[str]:
    if rank.exit_code is not None or rank.signal is not None:
        how = f"signal {rank.signal}" if rank.signal is not None else f"exit code {rank.exit_code}"
        yield f"ended ({how})"
    elif rank.alive is False:
        yield "dead"
    if rank.error:
        yield printable(rank.error, 160)


def _held(rank: Rank) -> Iterator[str]:
    if rank.state in ("T", "t"):
        yield STATES[rank.state]
    if rank.gil_held:
        yield "holding Python's lock (GIL) in native code"
    if rank.loaders is not None and rank.loaders.dead:
        yield f"{rank.loaders.dead} of its data loader's workers dead"


def _facts(rank: Rank) -> Iterator[str]:
    if rank.state:
        yield f"state {printable(rank.state, 8)} ({STATES.get(rank.state, 'unknown')})" + _wchan(rank)
    elif rank.wchan:
        yield _wchan(rank).strip()
    if rank.cpu_moving is not None:
        yield "uses the CPU" if rank.cpu_moving else "uses no CPU"
    if rank.io_moving is not None:
        yield "reads or writes" if rank.io_moving else "reads and writes nothing"
    if rank.gpu_util is not None:
        yield f"its GPU {rank.gpu_util:.0f} % busy"
    if rank.step is not None and rank.step >= 0:
        yield f"step {rank.step}"
    if rank.phase:
        yield f"phase {printable(rank.phase, 40)}"
    if rank.loaders is not None:
        yield _loaders(rank.loaders)
    if rank.unacked:
        yield f"unacknowledged by {printable(', '.join(rank.unacked[:4]), 160)}"
    if rank.dump:
        yield f"no positions: {printable(rank.dump, 80)}"


def _loaders(loaders: Loaders) -> str:
    counts = ((loaders.alive, "alive"), (loaders.dead, "dead"))
    told = [f"{number} {word}" for number, word in counts if number is not None]
    told += ["at work" if loaders.busy else "idle"] if loaders.busy is not None else []
    told += [STATES.get(loaders.state, "")] if loaders.state == "D" else []
    return f"data loader workers: {', '.join(told) or 'not known'}"


def _wchan(rank: Rank) -> str:
    return f" in {printable(rank.wchan, 60)}" if rank.wchan else ""
