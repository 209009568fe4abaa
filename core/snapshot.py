"""A job at one moment, as it was collected: the only thing a diagnosis is made of. Everything in it is optional.

What is missing is not known; it is never read as healthy nor as broken. Fields and examples: docs/snapshots.md.
Times named `at` are seconds on the clock of whoever told them; `Node.clock_offset_s` makes them comparable.
"""

import msgspec

from rankpulse.core.snapshot_nodes import Device, Node, Place

RANKS_MAX = 16_384

ENQUEUED = "enqueued"  # the host has called it
STARTED = "started"  # the device has begun it
COMPLETED = "completed"


class Operation(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One collective, send or receive of a rank that had not ended, or ended last."""

    seq: int
    op: str = ""  # all_reduce, broadcast, send, recv ...
    sizes: tuple[int, ...] = ()  # elements of the inputs
    dtype: str = ""
    peer: int | None = None  # the other rank, of a send or receive
    state: str = ENQUEUED
    site: str = ""  # where in the program it was called
    order: int | None = None  # its place among all that the rank called, over all groups


class Position(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """How far a rank is in one process group. None: not known; a number below every other: none yet."""

    group: str
    enqueued: int | None = None  # sequence number of the last one that the host called
    started: int | None = None  # that the device began; None where this is not recorded
    completed: int | None = None  # that ended
    open: tuple[Operation, ...] = ()  # those that had not ended, and the last few that did


class Rank(msgspec.Struct, frozen=True, omit_defaults=True):
    rank: int
    node: str = ""
    gpu: int | None = None  # index of the device on its node
    pid: int | None = None
    step: int | None = None
    step_age_s: float | None = None  # since the step last moved
    step_s: float | None = None  # how long its steps take of late
    compute_s: float | None = None  # of that outside of collectives
    phase: str = ""  # init, load, compile, step, eval, checkpoint ...
    phase_s: float | None = None  # for how long it has been in it
    state: str = ""  # as in /proc/PID/stat: R, S, D, T, t, Z, X
    wchan: str = ""  # the kernel function it waits in
    stack: tuple[str, ...] = ()  # frames, innermost last
    cpu_moving: bool | None = None  # at work on the CPU between two looks
    io_moving: bool | None = None  # bytes read or written between two looks
    gpu_util: float | None = None  # percent
    gil_held: bool | None = None  # Python of that process answered nothing while its C++ server did
    beat_age_s: float | None = None  # since its pulse was last seen to move
    pulse: str = ""  # open, paused, closed
    alive: bool | None = None
    exit_code: int | None = None
    signal: int | None = None  # what ended it
    exited_at: float | None = None
    error: str = ""  # its exception, last line
    error_at: float | None = None
    log: tuple[str, ...] = ()  # its last lines
    loss: float | str = ""  # what the trainer reported; JSON has no NaN: "nan", "inf"
    loaders: "Loaders | None" = None
    unacked: tuple[str, ...] = ()  # "ip:port" of peers that acknowledge nothing that is sent to them
    ports: tuple[int, ...] = ()  # TCP ports of its own, to tell by them which rank a peer's address means
    dump: str = ""  # why there are no positions, where there are none: "no answer", "not collected" ...
    positions: tuple[Position, ...] = ()


class Loaders(msgspec.Struct, frozen=True, omit_defaults=True):
    """The worker processes of a rank's data loader."""

    alive: int | None = None
    dead: int | None = None
    busy: bool | None = None  # at work on CPU or disk between two looks
    state: str = ""  # of the worst of them, as in /proc/PID/stat


class Group(msgspec.Struct, frozen=True):
    name: str
    members: tuple[int, ...] = ()
    kind: str = ""  # dp, tp, pp, ep, cp, unknown


class Event(msgspec.Struct, frozen=True):
    """Something that was told, with its time: an error, an exit, a line of a log."""

    at: float | None = None
    node: str = ""
    rank: int | None = None
    gpu: int | None = None
    text: str = ""


class Saving(msgspec.Struct, frozen=True):
    """What is known of checkpoints."""

    last_complete_step: int | None = None
    last_complete_age_s: float | None = None
    interval_s: float | None = None
    resumed_step: int | None = None  # what the present round started from
    announced_step: int | None = None  # the newest that any rank said was saved
    bytes_moving: bool | None = None  # what is being written grows
    broken: tuple[str, ...] = ()  # shards without bytes, left-over temporary files, failed sums


class Failure(msgspec.Struct, frozen=True):
    """An earlier failure of this job or on these nodes."""

    signature: str = ""
    klass: str = msgspec.field(name="class", default="")
    error: str = ""
    node: str = ""
    nodes: tuple[str, ...] = ()
    gpu: int | None = None
    rank: int | None = None
    step: int | None = None
    age_s: float | None = None
    action: str = ""
    run_s: float | None = None  # how long the job had run


class Monitor(msgspec.Struct, frozen=True):
    """The observer itself."""

    blind: bool | None = None
    why: str = ""
    late_s: float = 0.0  # how late its own loop is
    store: str = ""  # ok, silent, unreachable
    blocked: tuple[str, ...] = ()  # probes of its own that do not come back


class Job(msgspec.Struct, frozen=True):
    run: str = ""
    world_size: int | None = None
    phase: str = ""  # of ranks that announce none
    state: str = ""  # starting, running, stopping, finished
    step_s: float | None = None  # a usual step
    still_s: float | None = None  # for how long no rank's step has moved
    steps_moving: bool | None = None
    stop_signal: int | None = None  # what the job's launcher got
    preempted: bool | None = None
    expected_nodes: int | None = None
    arrived_nodes: int | None = None
    arrivals_growing: bool | None = None
    attempt: int | None = None
    timeout_s: float | None = None  # of its process groups
    spares: int | None = None
    failures_per_day: float | None = None
    repair_days: float | None = None


class Snapshot(msgspec.Struct, frozen=True):
    taken_at: float | None = None
    job: Job = msgspec.field(default_factory=Job)
    ranks: tuple[Rank, ...] = ()
    groups: tuple[Group, ...] = ()
    devices: tuple[Device, ...] = ()
    nodes: tuple[Node, ...] = ()
    topology: dict[str, Place] = {}
    phase_limits_s: dict[str, float] = {}  # how long each phase may last, as learned
    events: tuple[Event, ...] = ()
    saving: Saving = msgspec.field(default_factory=Saving)
    history: tuple[Failure, ...] = ()
    monitor: Monitor = msgspec.field(default_factory=Monitor)
    unread: tuple[str, ...] = ()  # what could not be understood, in words
