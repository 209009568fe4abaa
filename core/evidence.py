"""What the ranks of a round were doing, asked for on suspicion, and what follows from it about who is to blame."""

import msgspec

GROUPS_MAX = 16  # process groups told per rank
ROWS_MAX_BYTES = 512 * 1024  # of one node's answer


class Position(msgspec.Struct, frozen=True, array_like=True):
    """How far a rank is in one process group, from torch's flight recorder. -1: none yet."""

    group: str  # the same name on all members
    enqueued: int  # sequence number of the last collective it called
    completed: int  # of the last that ended
    operation: str  # of the last one called
    size: int = 0  # members, 0: not known


class Row(msgspec.Struct, frozen=True, array_like=True):
    """One local rank, as its agent found it."""

    rank: int
    pid: int
    start: int
    state: str  # as in /proc/PID/stat, "?" unknown
    wchan: str  # the kernel function it waits in, "" unknown
    cpu_moving: bool | None  # whether it used the CPU between two looks, None unknown
    server: str  # "ok", or why its worker server gave no positions
    positions: tuple[Position, ...] = ()
    stack: str = ""  # innermost Python frames where they could be had
