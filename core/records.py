"""Everything that is written to the store, as frozen values.

`at` is UTC seconds, for people and the ledger; no decision reads it. `v` is the schema version. Fields may be added
(readers ignore what they do not know); a field never changes its meaning without a new `SCHEMA`.
"""

from collections.abc import Iterable
from typing import TypeAlias

import msgspec

from rankpulse.core.snapshot import Rank

SCHEMA = 1
Scalar: TypeAlias = str | int | float | bool | None


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=False):
    """Base of all records: the schema version is the first field on the wire."""

    v: int = SCHEMA


# `gc=False`: rows hold no container, so that the collector need not know of the thousands that arrive every second
class RunRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One job as a node sees it: which launch the node's workers belong to."""

    run_id: str  # the user's label; not unique
    meeting: str  # where the ranks of one round met (hash of label, master address and port): same on all nodes
    launcher: str  # "pid.start" of the parent of the workers on this node
    world_size: int
    elastic: bool = False  # started by torchelastic, which restarts by itself
    run_uid: str = ""  # from our rendezvous, by the agent's own knowledge: a job's word for it is not believed
    round: int = -1  # likewise


class RankRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
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
    probe: str = ""  # host:port at which the agent answers a direct look, "" when it does not
    rack: str = ""  # the machine's rack or switch, as configured; "" when not known
    boot_id: str = ""


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
EVIDENCE = "evidence"
CHECKPOINT = "checkpoint"
GPU_FAULT = "gpu_fault"
NON_FINITE = "non_finite"
CHECKSUMS = "checksums"


class Observation(Record, frozen=True, kw_only=True):
    """`nodes/<node>/obs/<inc>/<seq>`: something that happened, sent at once and never lost.

    `worker_exited` detail: `code` (int or None), `signal` (int or None), `closed` (bool: the pulse was closed or the
    interpreter ended by itself), `error` (exception type, ""), `message` (its first words, ""), `step`, `phase`,
    `order_id` (killed at our order, ""), `held` (bool: its holder waits for a verdict). `launcher_exited`: `code`,
    `signal`. `worker_state`: `state` (one letter). `order_done`: `order_id`, `killed` (int), and where last words were
    asked for `last_words` (saved | refused | unanswered), `last_words_why`, `last_words_step`, `last_words_absent`
    (text: ranks). `slot_refused`: `path`, `reason`. `evidence`: `order_id`, `rows` (JSON text: a list of
    `core.evidence.Row`). `checkpoint`, as the job itself says: `event`, `times` (this many of that event came at once;
    the newest is told), `step`; of `saved`: `bytes`, `shards`, `kind`, `save_s`, `verified` (read back), `verify_s`; of
    `loaded`: `bytes`, `load_s`, `verify_s`, `level`, `skipped` (newer ones that were refused), `resharded_from` (ranks,
    0: not); of `last_words` (they are offered): `within_s`; of the others: `reason`. `gpu_fault`:
    `how` (opened | changed | cleared | seen), `bus` ("": of the node), `uuid`, `index`, and of the finding `what`,
    `level`, `action`, `text`, `source`, `count`; `injected` (true): somebody wrote it into the kernel's log.
    `non_finite`, of all ranks of a run on the node: `how` (row | over), and of a row `first`, `finite`, `what`, `text`,
    `movers` (ranks), `moved`, `bad`, `telling`: see `core.numbers.Told`. `checksums`, of ranks of a run on the node:
    `how` (sums), `step`, `rows` (text): see `core.checksums`.
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
    joint: bool = False  # of our own rendezvous: run and round are its agents' word

    @property
    def members(self) -> tuple[Member, ...]:
        return unseated(self.seats)


class RunState(Record, frozen=True, kw_only=True):
    """`runs/<run_uid>/state`: how the launch stands."""

    run_uid: str
    run_id: str
    round: int
    outcome: str  # running | finished | stopped_by_user | failed | abandoned (nobody is left to say how it ended)
    reason: str
    at: float
    ended_at: float | None = None


class Refusal(msgspec.Struct, frozen=True, array_like=True):
    """A checkpoint that the job did not load: it is damaged, or was set aside at a person's word."""

    round: int
    step: int
    reason: str


class Heard(msgspec.Struct, frozen=True, array_like=True):
    """Up to where the observations of a node are counted in a record: none is counted twice."""

    node: str
    inc: int
    seq: int


class PhaseRow(msgspec.Struct, frozen=True, array_like=True):
    """What a run has shown of one phase. Seconds."""

    phase: str
    count: int  # stays (of the train phase: steps) seen
    quantiles: tuple[float, ...]  # at equal distances, from the shortest to the longest


class RunLearned(Record, frozen=True, kw_only=True):
    """`runs/<run_uid>/learned`: what the monitors have learned of a run's pace, so that a new leader knows it."""

    run_uid: str
    at: float
    phases: tuple[PhaseRow, ...] = ()
    healed_s: tuple[float, ...] = ()  # standstills of the training that passed by themselves, the newest
    apart: int = -1  # steps that its ranks were seen apart at most, once they have shown that they keep step


class FleetLearned(Record, frozen=True, kw_only=True):
    """`learned/fleet`: what the cost rule knows of this fleet."""

    at: float
    node_days: float = 0.0  # watched with good sight
    deaths: int = 0  # nodes convicted alone that did not come back by themselves
    healed_s: tuple[float, ...] = ()  # silences of one node on every path that healed, the newest; seconds
    healed: int = 0  # how many there were in all
    restart_s: tuple[float, ...] = ()  # the newest recoveries: until every rank stepped, and the lost steps once more


class Recent(msgspec.Struct, frozen=True):
    """A save: which one of the run, and its step."""

    number: int
    step: int


class CheckpointState(Record, frozen=True, kw_only=True):
    """`runs/<run_uid>/checkpoint`: what the job itself has said of its checkpoints, over all its rounds.

    Steps are -1, seconds 0 where nothing was said. After a load the newest checkpoint is the one that was loaded.
    """

    run_uid: str
    step: int = -1  # of the newest one
    verified_step: int = -1  # of the newest one that was read back, or loaded
    oldest_step: int = -1  # of the oldest one that the job kept at its last save, -1: not known
    at: float | None = None  # when the newest one was saved or loaded
    bytes: int = 0
    kind: str = ""  # sharded | consolidated | last_words
    saved_round: int = -1  # in which the newest one was saved
    shards: int = 0
    save_s: float = 0.0  # of the last save
    verify_s: float = 0.0  # of the last reading back, or checking before a load
    load_s: float = 0.0
    saves: int = 0  # that succeeded
    verifications: int = 0  # saves that were read back, and loads
    loads: int = 0
    loaded_step: int = -1
    loaded_round: int = -1
    level: str = ""  # full | fast: how the loaded one was checked
    skipped: int = 0  # newer ones passed over at the last load
    resharded_from: int = 0  # ranks that had saved it, 0: as many as loaded it
    failures: int = 0  # saves that failed, of all
    failed_since: int = 0  # of them, since the last that succeeded
    failed_step: int = -1
    failure: str = ""  # why the last one failed; "" once one has succeeded
    refused: int = 0  # checkpoints that were not loaded, of all
    refusals: tuple[Refusal, ...] = ()  # the newest of them
    local: bool = False  # the newest save lies on the disks of nodes, and is lost with one until it was uploaded
    uploads: int = 0  # complete copies at places that outlive the nodes
    durable_step: int = -1  # of the newest one that is complete there
    durable_saves: int = 0  # `saves` as of that one
    upload_failures: int = 0  # parts of checkpoints that did not get there, or to peers, of all
    upload_failed_since: int = 0  # of them, since the last that was complete
    upload_failed_step: int = -1
    upload_failure: str = ""  # why the last one failed; "" once one was complete
    recent: tuple[Recent, ...] = ()  # the newest saves
    resume_before_step: int = -1  # a person's limit for the next load that nobody has obeyed yet, -1: none
    resume_before_round: int = 0  # the round in which the last limit was asked for: it speaks of what lay there by then
    last_words_s: float = 0.0  # survivors can save within so long; 0: the job does not offer it
    last_words_round: int = -1  # the round that said so last
    heard: tuple[Heard, ...] = ()


class RunAdvice(Record, frozen=True, kw_only=True):
    """`advice/<run_uid>`: how often the run should save, for its trainers. Written only when it moves, as of then."""

    run_uid: str
    at: float
    interval_s: float  # of work between two saves
    low_s: float  # what it would be at the ends of the 90 % interval of the time between failures
    high_s: float
    mtbf_s: float  # mean time between failures of the run, as believed
    mtbf_low_s: float
    mtbf_high_s: float
    save_s: float  # what a save holds up training
    saves: int  # that this counts
    recover_s: float  # from a failure until training goes on
    failures: int  # of this run, that it rests on
    lost_share: float  # of its time, that saves and failures take at this interval
    why: str


class SaveNow(Record, frozen=True, kw_only=True):
    """`advice/<run_uid>/now`: something waits for the run's next checkpoint; its trainers save at their next check."""

    run_uid: str
    round: int  # trainers of another round are not meant
    incident: str
    at: float
    why: str


class Order(Record, frozen=True, kw_only=True):
    """`orders/<run_uid>/<round>/<kind>`: created once, under the leader's epoch. Void for any other process.

    Kinds: `restart` (all nodes of the round stop and meet again), `kill` (the second rung: every worker of the round
    that still lives gets SIGKILL), `release` (holders end with their trainer's status: what torchelastic does then is
    its own affair), `collect-<n>` (tell what the ranks are doing).
    """

    order_id: str
    run_uid: str
    run_id: str
    round: int
    kind: str
    epoch: int
    incident: str
    reason: str
    author: str
    at: float
    seats: Seats = {}  # the processes it speaks of: agents signal these and no others
    nodes: tuple[str, ...] = ()  # the nodes of the round: their launchers are told, also where no worker lives any more
    culprits: tuple[Member, ...] = ()  # killed at once, so that nobody waits for them; the others get the grace
    grace_s: float = 0.0  # between the end that torchelastic asks for (SIGTERM) and SIGKILL
    resume_before_step: int = -1  # of a restart: what is loaded next is of an earlier step than this, -1: no limit
    without: tuple[str, ...] = ()  # of a restart: nodes that the next round neither includes nor waits for
    last_words_s: float = (
        0.0  # of a restart: trainers that live are asked to save within so long first, 0: they are not
    )
    absent: tuple[int, ...] = ()  # ranks of which these are not to wait for a word

    @property
    def members(self) -> tuple[Member, ...]:
        return unseated(self.seats)


class Trail(msgspec.Struct, frozen=True, array_like=True):
    """One line of an incident's story: seconds since it was opened, and what was seen, decided or not decided."""

    after_s: float
    text: str


class DeviceFault(msgspec.Struct, frozen=True):
    """What an incident says of one fault of a GPU or of what joins GPUs: what its agent told last."""

    node: str
    bus: str  # dddd:bb:dd; "": of the node
    what: str  # as in a `HealthFinding`
    level: str
    action: str
    text: str
    index: int = -1
    uuid: str = ""
    source: str = ""
    first_at: float = 0.0  # by the node's own clock
    count: int = 1
    cleared: str = ""  # the proof that it is over; "" while there is none
    boot: str = ""  # of the machine, when it was told of
    let_in: int = 0  # at this count a person let the node in again; 0: nobody has


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
    resumed_from_step: int | None = None  # as the job says, else one before the first step that its ranks finished
    epoch: int = 0
    trail: tuple[Trail, ...] = ()
    fault: str = ""  # the program's own error that ended the culprit, without names; "" when it was none
    fault_step: int = -1  # the highest step of the round when the incident was opened
    lost_steps: int | None = None  # steps of the broken round beyond the one that the run resumed from
    resume_before_step: int = -1  # a person's limit for what is resumed from, -1: none
    last_words: str = (
        ""  # "" | asked | saved | refused | unanswered: a checkpoint by those that lived, before the order
    )
    last_words_step: int = -1  # of it, -1: there is none
    rung: str = ""  # how far the action has come: "" | order | kill | webhook | page
    acked: int = 0  # acknowledgements of the order that the story tells of
    told: tuple[str, ...] = ()  # what is told of it outside, as `<event>/<target>`: page, restart, closed
    foreign: bool = False  # a hand from outside may have been in it: the culprit was killed, or is stopped
    strike: str = ""  # the node that it counts against: one that does so too often is cordoned
    drain_after: int = -1  # of a drain: saves of the run that were known when it was asked for, -1: it is none
    signature: str = ""  # what is the same when it happens again; "" where it was not diagnosed from evidence
    bad_step: int = -1  # the first step whose numbers were not finite, -1: it is not about numbers
    faults: tuple[DeviceFault, ...] = ()  # of GPUs, that it is about
    ranks: int = 0  # of the round, once the incident is over
    lost_s: dict[str, float] = {}  # of its run's time, by what it went to: see `core.stages`


class Before(msgspec.Struct, frozen=True):
    """The same failure before."""

    times: int = 0
    nodes: tuple[str, ...] = ()
    last_action: str = ""


class DumpRow(msgspec.Struct, frozen=True, array_like=True):
    """A full dump that lies on the disk of a node. `rank` -1: of the node as a whole."""

    node: str
    rank: int
    name: str
    bytes: int


class Missing(msgspec.Struct, frozen=True, array_like=True):
    """A rank of which there is no evidence, and why."""

    rank: int
    node: str
    why: str


class Counts(msgspec.Struct, frozen=True):
    """How many there were, of what a finding lists only the first of."""

    asked: int = 0
    answered: int = 0
    missing: int = 0
    dumps: int = 0


class Finding(Record, frozen=True, kw_only=True):
    """`findings/<incident>`: what an incident's evidence came to. Written with the incident, and goes with it.

    Lists are cut: of many alike the first say enough, and the record stays small.
    """

    id: str  # of the incident
    at: float
    order_id: str = ""  # that asked for the evidence
    klass: str = ""
    kind: str = ""  # the family that people file it under
    confidence: float = 0.0
    summary: str = ""
    reasons: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()  # what to do, in the words of operators
    signature: str = ""
    seen: Before = Before()
    waits: tuple[str, ...] = ()  # who waits for the culprits, in which group and operation
    machines: tuple[str, ...] = ()  # what hardware and kernels of theirs say
    stacks: tuple[str, ...] = ()  # where ranks are, outliers first
    also: tuple[str, ...] = ()  # what else is wrong, and not the cause
    culprits: tuple[Rank, ...] = ()  # their own rows
    outliers: tuple[Rank, ...] = ()  # rows of those that are not where the others are
    dumps: tuple[DumpRow, ...] = ()
    missing: tuple[Missing, ...] = ()
    asked: tuple[str, ...] = ()  # nodes
    answered: tuple[str, ...] = ()
    counts: Counts = Counts()


class Arm(Record, frozen=True, kw_only=True):
    """`policy/arm`: whether orders may be given. Absent means observe only."""

    armed: bool
    author: str
    reason: str
    at: float


class RunMode(Record, frozen=True, kw_only=True):
    """`policy/runs/<run_uid>`: what may be done about one run. Absent: as for the cluster."""

    run_uid: str
    mode: str  # armed | observe | paused
    author: str
    reason: str
    at: float
    then: str = ""  # of paused: the mode to return to, "" for none of its own
    restart_on_non_finite: bool | None = None  # such restarts of this run; null: as the settings say
    restart_on_corruption: bool | None = None  # likewise, where a replica's parameters are not those of the others


class Breaker(Record, frozen=True, kw_only=True):
    """`policy/breaker`: while it is open nothing is ordered and nobody is cordoned. Absent: closed.

    The monitor opens it, and closes it at a person's request only.
    """

    open: bool
    author: str
    reason: str
    at: float


class Request(Record, frozen=True, kw_only=True):
    """`requests/<id>`: an operator asks for an action; the monitor answers by acting or by refusing with the reason."""

    id: str
    kind: str  # restart | cordon | uncordon | maintenance | maintenance_end | breaker_close
    run_uid: str  # "" for those about a node
    author: str
    reason: str
    at: float
    node: str = ""  # of those about a node
    resume_before_step: int = -1  # of restart, -1: no limit
    about: str = ""  # of webhook_test: a target; of webhook_retry: `<event>` or `<event>/<target>`; "": all
    drain: bool = False  # of cordon: jobs leave the node after their next checkpoint
    for_s: float = 0.0  # of cordon: lifted after so long, 0: by a person only


class Cordon(Record, frozen=True, kw_only=True):
    """`cordons/<node>`: no round is to include this node."""

    node: str
    author: str
    reason: str
    at: float
    owner: str = "person"  # | rankpulse
    incident: str = ""  # that led to it, of those by rankpulse
    until: float = 0.0  # UTC, by the leader's own clock; 0: until somebody lifts it
    drain: bool = False  # jobs that run on it leave it after their next checkpoint


class Maintenance(Record, frozen=True, kw_only=True):
    """`maintenance/<node>`: its silence is nobody's fault, no round includes it, and jobs on it leave it."""

    node: str
    author: str
    reason: str
    at: float


class Spent(Record, frozen=True, kw_only=True):
    """`learned/spent`: how old the incidents are that budgets and strikes count, so that a new leader forgets none.

    Ages are by the monitors' own clocks: what passes while none leads does not count.
    """

    at: float
    ages_s: dict[str, float] = {}  # incident -> seconds since it was opened
    pardoned: tuple[str, ...] = ()  # of them, those that are no strike any more: their node was uncordoned


class Outgoing(Record, frozen=True, kw_only=True):
    """`outbox/<event>/<target>`: something to be told to a webhook, created once. Its event never changes.

    `event` is the decision that it tells of (`<incident>-page`, `-restart`, `-closed`), or `test-<request>`.
    """

    event: str
    target: str
    body: str  # a CloudEvent as JSON; "" once it was delivered
    first_at: float
    incident: str = ""  # "" of a test
    state: str = "pending"  # pending | delivered | dead (given up: a person may have it tried anew) | withdrawn
    attempts: int = 0
    pause_s: float = 0.0  # between the last attempt and the next, on the clock of whoever leads
    waited_s: float = 0.0  # all pauses before the last attempt
    next_at: float = 0.0  # when that will be, for people; 0: at once, or never
    last_error: str = ""  # of the last attempt that failed
    ended_at: float | None = None  # delivered or given up


class Gate(Record, frozen=True, kw_only=True):
    """`gates/<run_uid>/<round>`: the policy's word on a round that is about to form, created once."""

    run_uid: str
    round: int
    go: bool  # False: no further round, the run ends
    reason: str
    epoch: int
    at: float
    without: tuple[str, ...] = ()  # nodes that must stay out
    lost: tuple[str, ...] = ()  # nodes that are dead: not in this round, and not waited for; nobody refuses them
    resume_before_step: int = -1  # a limit that stands for the run, -1: none
    resume_before_round: int = 0  # the round in which it was asked for


# --- the ledger: what happened and for how long nothing did, over months


class LedgerOrigin(Record, frozen=True, kw_only=True):
    """`ledger/origin`: when this store's ledger was begun, as a name. A store that was deleted begins another."""

    origin: str
    at: float


class LedgerEntry(Record, frozen=True, kw_only=True):
    """`ledger/entries/<closed, UTC ms>-<id>`: an incident that is over. Follows from it, and is created once."""

    id: str  # of the incident
    klass: str
    component: str  # what failed: gpu, node, network ...: see `core.ledger`
    blame: str  # whose fault: machine | network | storage | program | person | observer | unknown
    outcome: str
    action: str
    opened_at: float
    closed_at: float
    fault_at: float | None = None
    run_uid: str = ""  # "" of the fleet
    run_id: str = ""
    round: int = -1
    restarts: int = 0  # rounds begun because of it
    ranks: int = 0  # that it stopped: a rank is counted as a GPU
    nodes: tuple[str, ...] = ()
    node: str = ""  # the one that is to blame, "" where there is no single one
    rank: int = -1  # likewise
    gpu: int = -1  # its index on the node, -1: not known
    pci: str = ""
    uuid: str = ""
    confidence: float = 0.0
    signature: str = ""
    time_to_detect_s: float | None = None
    time_to_recover_s: float | None = None
    lost_s: dict[str, float] = {}
    lost_steps: int | None = None


class NodeShare(msgspec.Struct, frozen=True, array_like=True):
    """A node's part in a day: seconds in which it was heard, and seconds of ranks that lived on it."""

    node_s: float
    gpu_s: float


class RunShare(msgspec.Struct, frozen=True, array_like=True):
    """A run's part in a day, in seconds."""

    run_id: str
    run_s: float  # in which it went on, standstills and restarts included
    gpu_s: float  # of its ranks that lived
    checkpoint_s: float  # its saves took, as it says itself
    straggling_s: float  # it would have gone on faster without its slowest rank


class LedgerDay(Record, frozen=True, kw_only=True):
    """`ledger/days/<day>.<origin>`: what could have failed on a day of UTC, and for how long. Seconds."""

    day: str  # 2026-11-30
    origin: str
    at: float  # up to when it counts
    node_s: float = 0.0
    gpu_s: float = 0.0
    run_s: float = 0.0
    unseen_s: float = 0.0  # in which no monitor saw the cluster: no time of running, nor of silence
    nodes: dict[str, NodeShare] = {}
    runs: dict[str, RunShare] = {}


class LedgerPast(Record, frozen=True, kw_only=True):
    """`ledger/past/<origin>`: the sums of what the ledger kept longest and has let go."""

    origin: str
    at: float
    entries_upto: str = ""  # the name of the last entry that is in the sums
    days_upto: str = ""  # the last day that is
    failures: dict[str, int] = {}  # by `<class>/<component>`
    lost_s: dict[str, float] = {}  # by what it went to
    lost_gpu_s: dict[str, float] = {}
    node_s: float = 0.0
    gpu_s: float = 0.0
    run_s: float = 0.0
    unseen_s: float = 0.0


# --- the rendezvous: written by agents, under rdzv/


class Label(Record, frozen=True, kw_only=True):
    """`rdzv/labels/<name>`: the newest launch that the user's label stands for. One label per owner."""

    label: str
    owner: int  # uid of the user who launched
    run_uid: str
    at: float


class Launch(Record, frozen=True, kw_only=True):
    """`rdzv/<run_uid>/launch`: made by the first torchrun that joins, closed once and for good."""

    run_uid: str
    label: str
    owner: int
    min_nodes: int
    max_nodes: int
    at: float
    closed: str = ""  # why no round follows any more; "" while it goes on
    outcome: str = ""  # finished | failed | abandoned, when closed
    round: int = 0  # the newest, written with its meeting: whoever knows the launch knows which meeting it must know


class Joiner(Record, frozen=True, kw_only=True):
    """`rdzv/<run_uid>/nodes/<node>.<pid>.<start>`: one torchrun, kept by the agent of its node."""

    run_uid: str
    node: str
    launcher: str  # "pid.start"
    join: int  # it asks for a round for the how-manieth time, from 1; waiting until a meeting lists this number
    after: int  # the last round it was in, 0: none
    address: str  # of the TCPStore that it has opened for this join
    port: int
    at: float
    left: str = ""  # why it takes no part any more; "" while it does
    outcome: str = ""  # finished | failed | gone, when it left
    last_call_s: float = 30.0  # how long more than min_nodes wait for still more
    checking: bool = False  # its node is being looked at first: no round includes it yet
    refused: str = ""  # why its node may be in no round at present; "" while it may


class Place(msgspec.Struct, frozen=True, array_like=True):
    """One torchrun in a meeting; its group rank is its index."""

    node: str
    launcher: str
    join: int


class Meeting(Record, frozen=True, kw_only=True):
    """`rdzv/<run_uid>/rounds/<round>`: who is in a round, node by node. Created once: no round has two of them."""

    run_uid: str
    round: int
    places: tuple[Place, ...]
    address: str  # of the TCPStore of group rank 0
    port: int
    at: float
    reason: str  # why now
    resume_before_step: int = -1  # what its workers resume from is of an earlier step than this, -1: no limit
    resume_before_round: int = 0  # the round in which that was asked for


class Presence(Record, frozen=True, kw_only=True):
    """`rdzv/agents/<node>`, under a lease: the agent of the node is there. Without it an established round goes on."""

    node: str
    inc: int
    at: float


# --- what hardware tells, written by agents, under nodes/


class HealthFinding(msgspec.Struct, frozen=True):
    """Something that is, or was, the matter. Open while `cleared_at` is null."""

    what: str  # xid_79, probe_stuck, recovery_action ...: docs/gpu.md lists them
    level: str  # watch | unknown | sick | broken
    action: str  # ignore | restart_app | inspect | reset_gpu | drain_reboot | contact_vendor
    text: str
    first_at: float
    last_at: float
    count: int = 1
    cleared_at: float | None = None
    source: str = ""  # who says so: kernel | nvml | injected (by a program, into the kernel's log); "": it was read


class GpuRow(msgspec.Struct, frozen=True):
    """One GPU as its node's agent knows it."""

    bus: str  # dddd:bb:dd, as in the kernel's lines
    uuid: str = ""
    name: str = ""
    index: int = -1
    level: str = "unknown"  # ok | watch | unknown | sick | broken: the worst of its open findings
    action: str = "ignore"  # the heaviest of them
    findings: tuple[HealthFinding, ...] = ()  # open ones first, then the newest that are over
    xids: dict[str, int] = {}  # how often each was seen since the agent started


class NodeHealth(Record, frozen=True, kw_only=True):
    """`nodes/<node>/health`: at once when something opens, clears or gets worse; figures at most every 30 s.

    Not written by nodes that have no GPU and nothing to complain of.
    """

    node: str
    inc: int
    at: float
    driver: str = ""  # version; "" while NVML does not tell
    gpus: tuple[GpuRow, ...] = ()
    findings: tuple[HealthFinding, ...] = ()  # of the node: NVML as a whole, memory, disks, network, clock
