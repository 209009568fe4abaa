"""What `rankpulse top` reads of a monitor's `/state`, beyond what the other commands read."""

from collections.abc import Mapping

import msgspec

from rankpulse.cli import live


class Capable(msgspec.Struct, frozen=True):
    """What a node says of itself; a node that may be in no round says why under `preflight`."""

    capabilities: dict[str, str] = {}


class Node(live.Node, frozen=True):
    state: Capable | None = None


class Advice(msgspec.Struct, frozen=True):
    """How often the run should save."""

    interval_s: float


class Run(live.Run, frozen=True):
    run_id: str = ""
    outcome: str = ""
    reason: str = ""
    round: int = 0
    mode: str = ""
    waiting: tuple[str, ...] = ()
    advice: Advice | None = None


class Incident(msgspec.Struct, frozen=True):
    id: str
    klass: str
    state: str
    opened_at: float
    summary: str = ""
    run_uid: str = ""
    run_id: str = ""
    nodes: tuple[str, ...] = ()
    action: str = ""
    action_reason: str = ""


class Share(msgspec.Struct, frozen=True):
    """Of a run's time, the part that brought it forward; None where too little is known."""

    ettr: float | None = None


class Ledger(msgspec.Struct, frozen=True):
    runs: dict[str, Share] = {}


class Leader(msgspec.Struct, frozen=True):
    monitor: str = ""


class Held(msgspec.Struct, frozen=True):
    """A cordon, or maintenance: who asked for it, and why."""

    author: str = ""
    reason: str = ""


class State(live.State, frozen=True, kw_only=True):
    nodes: dict[str, Node]  # type: ignore[assignment]
    runs: dict[str, Run]  # type: ignore[assignment]
    cluster: str = ""
    armed: bool = False
    leader: Leader | None = None
    actions_stopped: str = ""
    incidents: tuple[Incident, ...] = ()
    cordons: Mapping[str, Held] = msgspec.field(default_factory=dict)
    maintenance: Mapping[str, Held] = msgspec.field(default_factory=dict)
    ledger: Ledger = Ledger()
