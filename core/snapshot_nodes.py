"""What a snapshot says of machines: devices, links, node reports, and where they stand. Everything is optional."""

import msgspec


class Xid(msgspec.Struct, frozen=True, omit_defaults=True):
    code: int
    at: float | None = None
    text: str = ""
    process: str = ""  # named in the line: whoever happened to call, not whoever is to blame
    count: int = 1


class Device(msgspec.Struct, frozen=True, omit_defaults=True):
    """One GPU."""

    node: str = ""
    gpu: int | None = None
    rank: int | None = None  # where the GPU of a rank is known by no index
    xids: tuple[int | Xid, ...] = ()
    ecc_uncorrected: int = 0  # since the job began
    ecc_corrected_per_s: float = 0.0
    remap_failed: bool = False
    remap_pending: bool = False
    recovery_action: str = ""  # the driver's word: none, reset, reboot, drain ...
    lost: bool = False  # the driver does not list it any more
    nvlink_errors: int = 0  # that counters gained since the job began
    pci: str = ""  # its address on the bus: 0000:18:00.0
    uuid: str = ""
    domain: str = ""  # its NVLink domain
    query_s: float | None = None  # how long the last health query took
    util: float | None = None
    memory_used_gib: float | None = None
    throttled: str = ""  # why its clocks are held down


class Link(msgspec.Struct, frozen=True, omit_defaults=True):
    """One network port of a node."""

    name: str
    state: str = ""  # active, down, polling, flapping
    flaps: int = 0
    errors: int = 0  # that counters gained
    peer: str = ""  # the node at the other end, where errors name one
    moving: bool | None = None  # bytes pass
    at: float | None = None


class Process(msgspec.Struct, frozen=True, omit_defaults=True):
    """A process on a node that is no rank of this job."""

    pid: int
    parent: int | None = None
    name: str = ""
    state: str = ""
    gpu: int | None = None
    gpu_memory_gib: float = 0.0
    of_job: str = ""  # the run that started it, as far as is known
    job_alive: bool | None = None  # whether that run still is


class Node(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is known of one machine and its agent."""

    node: str
    silent_s: float | None = None  # since its agent was last heard
    agent_alive: bool | None = None
    probe: str = ""  # a direct look: answered, refused, timeout, unreachable
    peers_reach: bool | None = None  # other nodes of the job reach it
    exporter_alive: bool | None = None
    clock_offset_s: float = 0.0  # its clock minus that of the snapshot
    kernel: tuple[str, ...] = ()  # the kernel's lines of the last minutes, oldest first
    kernel_readable: bool | None = None
    addresses: tuple[str, ...] = ()  # IP addresses of its own, as its ranks see them
    links: tuple[Link, ...] = ()
    processes: tuple[Process, ...] = ()
    disk_free_gib: float | None = None
    disk_stuck: bool | None = None  # a small write did not come back
    memory_free_gib: float | None = None
    launcher_signal: int | None = None  # what its torchrun got
    launcher_exit: int | None = None
    launcher_at: float | None = None  # when its torchrun ended or was told to
    launcher_error: str = ""
    registered: bool | None = None  # has arrived at the meeting of its round
    resolves: bool | None = None  # it can resolve the name of the store
    connects: bool | None = None  # and reach it
    round: int | None = None  # the round it believes to be in
    planned_stop: bool | None = None  # maintenance or preemption was announced
    driver_mismatch: bool | None = None
    rack: str = ""
    switch: str = ""
    domain: str = ""  # NVLink domain, of all its devices
    uptime_s: float | None = None


class Place(msgspec.Struct, frozen=True):
    """Where a node stands."""

    rack: str = ""
    switch: str = ""
    domain: str = ""
