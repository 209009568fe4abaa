"""From what is believed of a standing job and what its nodes told of it to one snapshot: what is diagnosed. Pure.

A node speaks for itself alone: a rank counts only where it is that very member of the round, on that node and by its
pid, and what the monitor has seen itself (steps, phases, beats, exits) goes before what it is told.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from rankpulse.core import diagnosis as d
from rankpulse.core import incidents as book_of
from rankpulse.core.desk import Desk
from rankpulse.core.dossier import Part
from rankpulse.core.dossiers import Dossier
from rankpulse.core.evidence import SILENT, Row
from rankpulse.core.evidence import Position as RowPosition
from rankpulse.core.exits import Exit, Kind
from rankpulse.core.outside import NAMELESS
from rankpulse.core.phases import clock_of
from rankpulse.core.records import Incident, Member
from rankpulse.core.slot import PHASE_CLOSED, PHASE_PAUSED, PHASE_TRAIN
from rankpulse.core.snapshot import Failure, Group, Job, Monitor, Operation, Position, Rank, Saving, Snapshot
from rankpulse.core.snapshot_nodes import Device, Node, Place
from rankpulse.core.standstill import Stand
from rankpulse.core.views import RoundView, RunView, process_of

NOT_COLLECTED: Final = "not collected"
CLOCK_S: Final = 2.0  # a clock that is less wrong than this is not told from the time that collecting takes
OF_MACHINES: Final = (d.GPU_FAULT, d.NVLINK_DOMAIN, d.NODE_DEAD)
NOBODY_TOLD: Final = ("no answer from its node", "its agent does not tell of it")
FIXES: Final = ("restart", "restart_without", "adopt", "release")
_PULSES: Final = {PHASE_PAUSED: "paused", PHASE_CLOSED: "closed"}


class Told(NamedTuple):
    """What the nodes of a round told, by either way."""

    dossier: Dossier
    rows: Mapping[str, Sequence[Row]]


def assembled(desk: Desk, run: RunView, stand: Stand, told: Told) -> Snapshot:
    """The job as it stands, by all that is known of it."""
    round_ = run.current
    return Snapshot(
        taken_at=desk.at,
        job=_job(desk, run, stand),
        ranks=tuple(ranks(desk, round_, told)),
        groups=tuple(_groups(round_, told.dossier)),
        devices=tuple(_devices(round_, told.dossier)),
        nodes=tuple(_node(desk, name, told.dossier.parts.get(name)) for name in round_.nodes()),
        topology={name: place for name in round_.nodes() if (place := desk.folder.topology.of(name)) != Place()},
        phase_limits_s=_limits(run),
        saving=_saving(desk, run),
        history=tuple(history(desk, run, round_)),
        monitor=Monitor(blind=False, store="ok"),
    )


def _job(desk: Desk, run: RunView, stand: Stand) -> Job:
    return Job(
        run=run.uid,
        world_size=run.current.world_size or None,
        state="running" if run.current.reporting() else "starting",
        step_s=run.clocks.typical_step_s(),
        still_s=stand.lasted_s,
        steps_moving=False,
        spares=desk.room(run, run.current, ()).waiting if run.joint is not None else None,
    )


def _limits(run: RunView) -> dict[str, float]:
    """How long its phases may last by now; of those that somebody is in."""
    first = 0 if run.current.reporting() else -1
    phases = {progress.phase for progress in run.current.progress.values()}
    limits = {phase: run.clocks.deadline_s(clock_of(phase, first)) for phase in phases if phase not in _PULSES}
    return limits | {"step": limits.get(PHASE_TRAIN, run.clocks.deadline_s(PHASE_TRAIN))}


def _saving(desk: Desk, run: RunView) -> Saving:
    state = desk.folder.checkpoints.of(run.uid)
    if state is None or state.step < 0:
        return Saving()
    return Saving(last_complete_step=state.step)


def _groups(round_: RoundView, dossier: Dossier) -> Iterable[Group]:
    """Process groups whose members are known: by the ranks that tell of them, of whom none says otherwise."""
    told: dict[str, set[Group]] = {}
    for part, _ in dossier.parts.values():
        for group in part.groups:
            told.setdefault(group.name, set()).add(msgspec.structs.replace(group, members=tuple(sorted(group.members))))
    for found in told.values():
        group = found.pop()
        if not found and set(group.members) <= round_.members.keys():
            yield group


# --- ranks


def ranks(desk: Desk, round_: RoundView, told: Told) -> Iterable[Rank]:
    """Every member of the round, as its node tells of it, and as it was seen."""
    rows = {(node, row.rank, row.pid, row.start): row for node, mine in told.rows.items() for row in mine}
    parts = {(node, rank.rank, rank.pid): rank for node, (part, _) in told.dossier.parts.items() for rank in part.ranks}
    for member in sorted(round_.members.values(), key=lambda member: member.rank):
        rank = parts.get((member.node, member.rank, member.pid))
        row = rows.get((member.node, member.rank, member.pid, member.start))
        if rank is None:
            rank = of_row(row) if row is not None else Rank(member.rank, dump=_why(member, told))
        yield _seen(desk, round_, member, rank)


def _why(member: Member, told: Told) -> str:
    """Why nothing is told of a rank."""
    if member.node in told.dossier.parts or member.node in told.rows:
        return NOBODY_TOLD[1]
    return f"{NOBODY_TOLD[0]}: {told.dossier.failed.get(member.node, 'none came in time')}"


def of_row(row: Row) -> Rank:
    """What an answer in the store tells of a rank: less than one that was asked for directly."""
    return Rank(
        row.rank,
        pid=row.pid,
        state=row.state if row.state != "?" else "",
        wchan=row.wchan,
        cpu_moving=row.cpu_moving,
        stack=tuple(row.stack.splitlines()),
        dump="" if row.positions else row.server,
        positions=tuple(
            Position(
                place.group,
                place.enqueued,
                completed=place.completed,
                open=(Operation(place.enqueued, place.operation),) if place.enqueued > place.completed else (),
            )
            for place in row.positions
        ),
    )


def to_row(rank: Rank, member: Member) -> Row:
    """What a rank told, as an answer in the store tells it: for the rules that weigh those."""
    return Row(
        rank.rank,
        member.pid,
        member.start,
        rank.state or "?",
        rank.wchan,
        rank.cpu_moving,
        "ok" if rank.positions or not rank.dump else rank.dump,
        positions=tuple(_place(position) for position in rank.positions),
    )


def _place(position: Position) -> RowPosition:
    enqueued = -1 if position.enqueued is None else position.enqueued
    completed = -1 if position.completed is None else position.completed
    last = next((op.op for op in position.open if op.seq == enqueued), "")
    return RowPosition(position.group, enqueued, completed, last)


def _seen(desk: Desk, round_: RoundView, member: Member, rank: Rank) -> Rank:
    """A rank as it was told of, with what this monitor knows better."""
    progress = round_.progress.get(member.rank)
    known: dict[str, object] = {"rank": member.rank, "node": member.node, "pid": member.pid}
    if (
        not rank.positions
        and rank.state not in ("T", "t", "Z", "X")
        and not rank.dump.startswith((*SILENT, *NOBODY_TOLD))
    ):
        known["dump"] = NOT_COLLECTED
    if progress is not None:
        known |= {
            "step": progress.step if progress.step >= 0 else None,
            "step_age_s": progress.stale_s(),
            "phase": progress.phase,
            "phase_s": progress.stale_s(),
            "state": rank.state or (progress.state if progress.state != "?" else ""),
            "beat_age_s": max(desk.now - progress.seen_at, 0.0),
            "pulse": _PULSES.get(progress.phase, "open"),
        }
    ended = round_.exits.get(process_of(member))
    return msgspec.structs.replace(rank, **known, **(_end(desk, ended) if ended is not None else {}))


def _end(desk: Desk, ended: Exit) -> dict[str, object]:
    clean = ended.kind is Kind.CLEAN
    at = desk.at - (desk.now - ended.received_at)
    return {"alive": False, "signal": ended.signal, "exit_code": 0 if clean else None, "exited_at": at}


# --- machines


def _node(desk: Desk, name: str, told: tuple[Part, float] | None) -> Node:
    view = desk.folder.fleet.nodes.get(name)
    report = told[0].report if told is not None else Node(name)
    place = desk.folder.topology.of(name)
    return msgspec.structs.replace(
        report,
        node=name,
        silent_s=max(desk.now - view.heard_at(), 0.0) if view is not None and view.arrival.last is not None else None,
        agent_alive=True if told is not None else None,
        clock_offset_s=_offset_s(desk, *told) if told is not None else 0.0,
        rack=place.rack,  # by the topology alone: who says that it stands with others would have them blamed
        switch=place.switch,
        domain=place.domain,
    )


def _offset_s(desk: Desk, part: Part, received_at: float) -> float:
    """By how much the node's clock is wrong, as far as that is more than what collecting may have taken."""
    off = part.taken_at - (desk.at - (desk.now - received_at))
    return off if abs(off) > CLOCK_S else 0.0


def _devices(round_: RoundView, dossier: Dossier) -> Iterable[Device]:
    for node, (part, _) in sorted(dossier.parts.items()):
        for device in part.devices:
            member = round_.members.get(device.rank) if device.rank is not None else None
            own = member is not None and member.node == node
            yield msgspec.structs.replace(device, node=node, rank=device.rank if own else None, domain="")


# --- the past


def history(desk: Desk, run: RunView, round_: RoundView) -> Iterable[Failure]:
    """Failures of this job before this round, and of the machines it runs on."""
    nodes = set(round_.nodes())
    for incident in sorted(desk.book, key=lambda incident: (incident.opened_at, incident.id)):
        if (incident.run_uid == run.uid and incident.round >= round_.number) or not _counts(incident):
            continue
        job = incident.run_uid == run.uid or (incident.run_id == run.run_id and run.run_id not in NAMELESS)
        if job or (incident.klass in OF_MACHINES and nodes & set(incident.nodes)):
            yield _failure(desk, incident)


def _counts(incident: Incident) -> bool:
    return bool(incident.signature or incident.fault) and incident.outcome != book_of.PASSED


def _failure(desk: Desk, incident: Incident) -> Failure:
    return Failure(
        signature=incident.signature,
        klass=incident.klass,
        error=incident.fault,
        nodes=incident.nodes[:8],
        rank=incident.culprits[0].rank if incident.culprits else None,
        step=incident.fault_step if incident.fault_step >= 0 else None,
        age_s=desk.budgets.age_s(incident),
        action=incident.action if incident.action in FIXES else "",
    )
