"""What happened, before it has a number: facts become observations when the agent has its incarnation. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from rankpulse.agent.proc import Exit
from rankpulse.core.identity import text
from rankpulse.core.records import Beat, Observation, RankRow, RunRow, Scalar
from rankpulse.core.slot import Pulse

MESSAGE_MAX = 200
PLACE_MAX = 120
PHASE_MAX = 32


class Fact(NamedTuple):
    """An observation without node, number and time."""

    kind: str
    run: RunRow | None = None
    rank: int = -1
    local_rank: int = -1
    pid: int = 0
    start: int = 0
    detail: Mapping[str, Scalar] = {}

    def observe(self, node: str, inc: int, seq: int, at: float) -> Observation:
        return Observation(
            node=node,
            inc=inc,
            seq=seq,
            at=at,
            kind=self.kind,
            run=self.run,
            rank=self.rank,
            local_rank=self.local_rank,
            pid=self.pid,
            start=self.start,
            detail=dict(self.detail),
        )


class Reading(NamedTuple):
    """One local rank as it is now."""

    run: RunRow
    rank: int
    local_rank: int
    pid: int
    start: int
    state: str
    pulse: Pulse


def exit_detail(
    exit_: Exit,
    ending: Mapping[str, Any] | None,
    pulse: Pulse | None,
    order_id: str,
    note: str = "",
    held: bool = False,
) -> dict[str, Scalar]:
    """The detail of `worker_exited`. `closed`: its writer said goodbye, by closing or by the interpreter's end.
    `held`: it has a holder, which waits for a verdict unless the end was a good one.

    `note` stands in for the message where the process left none.
    """
    said = ending or {}
    return {
        "code": exit_.code,
        "signal": exit_.signal,
        "closed": said.get("kind") in ("closed", "exit"),
        "error": text(said.get("error"), MESSAGE_MAX),
        "message": text(said.get("message"), MESSAGE_MAX) or note,
        "place": text(said.get("place"), PLACE_MAX),
        "step": pulse.step if pulse else -1,
        "phase": text(pulse.phase, PHASE_MAX) if pulse else "",
        "order_id": order_id,
        "held": held and exit_.code != 0,
    }


def joined_detail(identity: Mapping[str, Any]) -> dict[str, Scalar]:
    """The detail of `worker_joined`: versions, and what the trainer's side lacks, as "name: reason; ..."."""
    capabilities = identity.get("capabilities")
    missing = (
        f"{text(name, 40)}: {text(reason, 160)}"
        for name, reason in (capabilities.items() if isinstance(capabilities, dict) else ())
        if reason != "ok"
    )
    return {
        "torch": text(identity.get("torch"), 40),
        "python": text(identity.get("python"), 40),
        "source": text(identity.get("source"), 40),
        "missing": "; ".join(sorted(missing))[:512],
    }


def build_beat(node: str, inc: int, seq: int, at: float, readings: Iterable[Reading]) -> Beat:
    """The node's beat: runs and phases are named once and referred to by index."""
    runs: dict[RunRow, int] = {}
    phases: dict[str, int] = {}
    ranks = []
    for one in readings:
        phase = text(one.pulse.phase, PHASE_MAX)
        row = RankRow(
            run=runs.setdefault(one.run, len(runs)),
            rank=one.rank,
            local_rank=one.local_rank,
            pid=one.pid,
            start=one.start,
            state=one.state,
            phase=phases.setdefault(phase, len(phases)),
            step=max(one.pulse.step, -1),
            first_step=max(one.pulse.first_step, -1),
        )
        ranks.append(row)
    return Beat(node=node, inc=inc, seq=seq, at=at, runs=tuple(runs), phases=tuple(phases), ranks=tuple(ranks))


def state_class(said: str, state: str, waiting_s: float) -> str:
    """What a process state means for people: "T", "t", "Z", "D" (only when it lasts) or "run".

    `said` is the class told last, `waiting_s` how long it has been in state D.
    """
    if state in "TtZ":
        return state
    if state == "D" and (said == "D" or waiting_s > 5.0):
        return "D"
    return "run"
