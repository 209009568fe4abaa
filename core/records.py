"""Everything that is written to the store, as frozen values.

`at` is UTC seconds, for people and the ledger; no decision reads it. `v` is the schema version. Fields may be added
(readers ignore what they do not know); a field never changes its meaning without a new `SCHEMA`.
"""

from collections.abc import Iterable
from typing import TypeAlias

import msgspec

SCHEMA = 1
Scalar: TypeAlias = str | int | float | bool | None


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=False):
    """Base of all records: the schema version is the first field on the wire."""

    v: int = SCHEMA


class RunRow(msgspec.Struct, frozen=True, array_like=True):
    """One job as a node sees it: which launch the node's workers belong to."""

    run_id: str  # the user's label; not unique
    meeting: str  # where the ranks of one round met (hash of label, master address and port): same on all nodes
    launcher: str  # "pid.start" of the parent of the workers on this node
    world_size: int
    elastic: bool = False  # started by torchelastic, which restarts by itself
    run_uid: str = ""  # reserved for a rendezvous that hands it out; a job's own word for it is not believed
    round: int = -1  # likewise


class RankRow(msgspec.Struct, frozen=True, array_like=True):
    """One local rank in a beat."""

    run: int  # index into Beat.runs
    rank: int
    local_rank: int
    pid: int
    start: int  # kernel start time of the process (clock ticks since boot): with the pid it names the process
    state: str  # R S D T t Z X as in /proc/PID/stat, "?" unknown
    phase: int  # index into Beat.phases
    step: int  # -1: none yet
    first_step: int  # the first step this process reported, -1: none yet


class Beat(Record, frozen=True, kw_only=True):
    """`nodes/<node>/beat`, overwritten every heartbeat interval."""

    node: str
    inc: int  # incarnation
    seq: int
    at: float
    runs: tuple[RunRow, ...] = ()
    phases: tuple[str, ...] = ()
    ranks: tuple[RankRow, ...] = ()


class AgentClaim(Record, frozen=True, kw_only=True):
    """`nodes/<node>/agent`: who speaks for the node. Beats are fenced by this key."""

    node: str
    inc: int
    token: str  # random per start: tells two agents with one name apart
    host: str
    pid: int
    boot_id: str
    at: float


class NodeState(Record, frozen=True, kw_only=True):
    """`nodes/<node>/state`: on change, not more often than every 15 s."""

    node: str
    inc: int
    at: float
    host: str
    agent_version: str
    interval_s: float
    capabilities: dict[str, str] = {}  # source -> "ok" or why it is missing
    devices: tuple[dict[str, Scalar], ...] = ()
    host_facts: dict[str, Scalar] = {}


# kinds of observation
WORKER_JOINED = "worker_joined"
WORKER_EXITED = "worker_exited"
WORKER_STATE = "worker_state"
LAUNCHER_EXITED = "launcher_exited"
SLOT_REFUSED = "slot_refused"
AGENT_STARTED = "agent_started"
AGENT_STOPPING = "agent_stopping"
ORDER_DONE = "order_done"
SPOOL_DROPPED = "spool_dropped"


class Observation(Record, frozen=True, kw_only=True):
    """`nodes/<node>/obs/<inc>/<seq>`: something that happened, sent at once and never lost.

    `worker_exited` detail: `code` (int or None), `signal` (int or None), `closed` (bool: the pulse was closed or the
    interpreter ended by itself), `error` (exception type, ""), `message` (its first words, ""), `step`, `phase`,
    `order_id` (killed at our order, ""). `launcher_exited`: `code`, `signal`. `worker_state`: `state` (one letter).
    `order_done`: `order_id`, `killed` (int). `slot_refused`: `path`, `reason`.
    """

    node: str
    inc: int
    seq: int
    at: float
    kind: str
    run: RunRow | None = None
    rank: int = -1
    local_rank: int = -1
    pid: int = 0
    start: int = 0
    detail: dict[str, Scalar] = {}


class Leader(Record, frozen=True, kw_only=True):
    """`leader`, under a lease. `epoch` is the fence: it only grows."""

    monitor: str
    epoch: int
    at: float
    url: str = ""


class Member(msgspec.Struct, frozen=True, array_like=True):
    """One process of a round: rank -> node and process."""

    rank: int
    node: str
    local_rank: int
    pid: int
    start: int


class Seat(msgspec.Struct, frozen=True, array_like=True):
    """A member of a round, listed under its node: a node's name is written once, not once per rank."""

    rank: int
    local_rank: int
    pid: int
    start: int


Seats: TypeAlias = dict[str, tuple[Seat, ...]]


def seated(members: Iterable[Member]) -> Seats:
    """Members by node, in order of rank."""
    seats: dict[str, list[Seat]] = {}
    for m in sorted(members, key=lambda m: m.rank):
        seats.setdefault(m.node, []).append(Seat(m.rank, m.local_rank, m.pid, m.start))
    return {node: tuple(rows) for node, rows in sorted(seats.items())}


def unseated(seats: Seats) -> tuple[Member, ...]:
    """The members that `seated` was given, in order of rank."""
    found = [Member(s.rank, node, s.local_rank, s.pid, s.start) for node, rows in seats.items() for s in rows]
    return tuple(sorted(found, key=lambda m: m.rank))


class Launcher(msgspec.Struct, frozen=True, array_like=True):
    """The parent of the workers on one node."""

    node: str
    launcher: str  # "pid.start"


class Roster(Record, frozen=True, kw_only=True):
    """`runs/<run_uid>/roster/<round>`: who is in a round. Identity of a round is (run_uid, round)."""

    run_uid: str
    run_id: str
    round: int
    meeting: str
    world_size: int
    elastic: bool
    at: float
    seats: Seats = {}
    launchers: tuple[Launcher, ...] = ()

    @property
    def members(self) -> tuple[Member, ...]:
        return unseated(self.seats)


class RunState(Record, frozen=True, kw_only=True):
    """`runs/<run_uid>/state`: how the launch stands."""

    run_uid: str
    run_id: str
    round: int
    outcome: str  # running | finished | stopped_by_user | failed
    reason: str
    at: float
    ended_at: float | None = None


class Order(Record, frozen=True, kw_only=True):
    """`orders/<run_uid>/<round>/<kind>`: created once, under the leader's epoch. Void for any other process."""

    order_id: str
    run_uid: str
    run_id: str
    round: int
    kind: str  # "restart"
    epoch: int
    incident: str
    reason: str
    author: str
    at: float
    seats: Seats = {}  # the processes it speaks of: agents signal these and no others

    @property
    def members(self) -> tuple[Member, ...]:
        return unseated(self.seats)


class Trail(msgspec.Struct, frozen=True, array_like=True):
    """One line of an incident's story: seconds since it was opened, and what was seen, decided or not decided."""

    after_s: float
    text: str


class Incident(Record, frozen=True, kw_only=True):
    """`incidents/<id>`: first suspicion to confirmed recovery."""

    id: str
    klass: str
    state: str  # open | closed
    opened_at: float
    run_uid: str = ""
    run_id: str = ""
    round: int = -1
    nodes: tuple[str, ...] = ()
    culprits: tuple[Member, ...] = ()
    cascade: tuple[int, ...] = ()
    confidence: float = 0.0
    summary: str = ""
    reasons: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()  # store keys of the observations it rests on
    action: str = "none"
    action_reason: str = ""
    asked_by: str = ""  # the person who asked for the action, if one did
    order_id: str = ""  # the order that stands in the store for it
    outcome: str = ""  # recovered | passed | run_ended | superseded
    fault_at: float | None = None  # the observer's UTC of the first evidence
    closed_at: float | None = None
    time_to_detect_s: float | None = None
    time_to_recover_s: float | None = None
    restarts: int = 0
    resumed_from_step: int | None = None
    epoch: int = 0
    trail: tuple[Trail, ...] = ()


class Arm(Record, frozen=True, kw_only=True):
    """`policy/arm`: whether orders may be given. Absent means observe only."""

    armed: bool
    author: str
    reason: str
    at: float


class Request(Record, frozen=True, kw_only=True):
    """`requests/<id>`: an operator asks for an action; the monitor answers by acting or by refusing with the reason."""

    id: str
    kind: str  # "restart"
    run_uid: str
    author: str
    reason: str
    at: float
