"""Draining: a job leaves a node that works when it loses nothing by it.

Who asks is whoever cordoned the node with a drain, or took it into maintenance; or the monitor, of broken GPUs, as long
as orders are armed. The run is restarted without it after its next checkpoint, for which its trainers are asked, where
that is all it waits for (`SaveNow`); at once where the node has fallen
silent, for then its job waits for nothing but that. It waits where the job could not go on without the node; what is
saved meanwhile is old by then, and does not count. Should the round end otherwise before that, the next forms without
it.
"""

from collections.abc import Container, Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from rankpulse.core import diagnosis as d
from rankpulse.core import incidents as book_of
from rankpulse.core import modes, policy
from rankpulse.core import records as r
from rankpulse.core.desk import Desk
from rankpulse.core.diagnosis import NAMED_MAX, Diagnosis
from rankpulse.core.gpu_keeping import release
from rankpulse.core.lost import is_lost
from rankpulse.core.policy import Choice, Room
from rankpulse.core.telling import in_words
from rankpulse.core.views import RunView

OURS: Final = "rankpulse"  # owner of cordons that no person made


class Case(NamedTuple):
    """How it stands with a run that is to leave nodes."""

    room: Room  # without them
    refusal: str = ""  # why nothing may be ordered now
    silent: str = ""  # one of them that is gone already
    saved_step: int | None = None  # of a checkpoint that was saved since it was asked for
    saves: int = 1  # checkpoints that the run has told of

    @property
    def ready(self) -> bool:
        """It could go on without them now."""
        return not self.refusal and (self.room.enough or (self.room.elsewhere and not self.silent))


def choose(case: Case) -> Choice:
    """What is done by now, and why."""
    if case.refusal:
        return Choice(policy.DRAIN, f"waits: {case.refusal}")
    if not case.ready:
        return Choice(policy.DRAIN, f"waits for another node: {case.room.words}")
    if case.silent:
        return Choice(policy.RESTART_WITHOUT, f"{case.silent} is silent already: its job waits for it in vain")
    if case.saved_step is not None:
        text = f"the checkpoint of step {case.saved_step} is saved: the next round goes on from it"
        return Choice(policy.RESTART_WITHOUT, text)
    if not case.saves:
        text = "waits for the run's first checkpoint, none was told of: rankpulse restart ends the round at once"
        return Choice(policy.DRAIN, text)
    return Choice(policy.DRAIN, "restarts without it as soon as the next checkpoint is saved")


class Asked(NamedTuple):
    """Who wants a node to be left, and why. What a monitor wants takes armed orders, what a person wants does not."""

    author: str
    why: str
    person: bool


class Draining:
    """One per judge; holds nothing."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def judge(self, failed: Container[str] = ()) -> None:
        """Open, follow and end the incidents of runs that are to leave nodes. `failed`: runs that wait for nothing."""
        asked = self._asked()
        open_ = {i.run_uid: i for i in self._desk.book.open() if i.klass == d.DRAIN or i.drain_after >= 0}
        for run in self._desk.folder.fleet.runs.values() if asked or open_ else ():
            if run.joint is None or not run.rounds or not run.open() or run.uid in failed:
                continue
            nodes = tuple(node for node in run.current.nodes() if node in asked)[:NAMED_MAX]
            incident = open_.get(run.uid)
            if incident is not None and incident.round != run.current.number and nodes:
                incident = None  # of an earlier round, from which it has not recovered yet
            if incident is not None and incident.faults and not incident.order_id and _by_person(asked, nodes):
                release(self._desk, incident, f"a person wants {in_words(nodes)} to be left")
                incident = None
            if run.current.number in run.ordered:
                continue  # it is being ended already: what is asked for now concerns the next round
            if nodes:
                self._go_on(run, incident, {node: asked[node] for node in nodes})
            elif incident is not None and incident.round == run.current.number and not incident.faults:
                self._desk.close(incident, book_of.PASSED, "nobody asks for it any more")

    def _asked(self) -> dict[str, Asked]:
        """By node that jobs are to leave."""
        folder = self._desk.folder
        cordons = {node: cordon for node, cordon in folder.joint.cordons.items() if cordon.drain}
        by_cordon = {node: Asked(c.author, c.reason, c.owner != OURS) for node, c in cordons.items()}
        return by_cordon | {node: Asked(m.author, m.reason, True) for node, m in folder.modes.maintenance.items()}

    def _go_on(self, run: RunView, incident: r.Incident | None, asked: dict[str, Asked]) -> None:
        desk, nodes = self._desk, tuple(asked)
        if incident is None:
            incident = self._open(run, asked)
        if incident.order_id or (incident.faults and incident.asked_by):  # a person does not wait for a checkpoint
            return
        if incident.nodes != nodes:
            incident = desk.note(incident, f"asked for by now: {in_words(nodes)}")
            incident = desk.change(incident, lambda i: msgspec.structs.replace(i, nodes=nodes))
        author = next((one.author for one in asked.values() if one.person), "")
        if incident.klass == d.DRAIN and incident.asked_by != author:
            incident = desk.change(incident, lambda i: msgspec.structs.replace(i, asked_by=author))
        case = self._case(run, incident, nodes, by_person=bool(author))
        choice = choose(case)
        if case.saved_step is not None and not case.ready:
            incident = desk.change(incident, lambda i: msgspec.structs.replace(i, drain_after=case.saves))
        if choice.action != incident.action:
            desk.folder.say("warning", f"incident {incident.id}: action {choice.action}: {choice.reason}")
        desk.change(incident, lambda i: book_of.decided(i, choice, desk.at))
        if choice.action == policy.DRAIN and case.ready and case.saves:
            self._save_now(run, incident)

    def _save_now(self, run: RunView, incident: r.Incident) -> None:
        """Nothing else holds up the drain: the run need not wait for the end of its interval."""
        why = f"{in_words(incident.nodes)} to be left once a checkpoint is saved"
        wanted = r.SaveNow(
            run_uid=run.uid, round=incident.round, incident=incident.id, at=incident.opened_at, why=why[:200]
        )
        self._desk.want(self._desk.keys.save_now(run.uid), wanted, f"{run.uid} should save now: {why}")

    def _open(self, run: RunView, asked: dict[str, Asked]) -> r.Incident:
        desk = self._desk
        saves = self._saves(run)
        author, why, _ = next(iter(asked.values()))
        found = Diagnosis(
            d.DRAIN,
            (),
            (),
            tuple(asked),
            1.0,
            f"{in_words(asked)} to be left, asked for by {author}: {why}",
            tuple(f"{node}: {one.author}: {one.why}" for node, one in list(asked.items())[:8]),
            (),
            desk.now,
        )
        choice = choose(Case(desk.room(run, run.current, asked), saves=saves))
        incident = desk.open(found, (run, run.current), choice)
        return desk.change(incident, lambda i: msgspec.structs.replace(i, drain_after=saves))

    def _case(self, run: RunView, incident: r.Incident, nodes: tuple[str, ...], *, by_person: bool) -> Case:
        desk = self._desk
        leave, told = desk.folder.modes.of(run.uid), desk.folder.checkpoints.of(run.uid)
        return Case(
            desk.room(run, run.current, nodes),
            leave.why if leave.mode in (modes.BY_BREAKER, modes.PAUSED) or not (by_person or leave.armed) else "",
            next((name for name in nodes if is_lost(desk, name)), ""),
            _left_behind(told, incident.drain_after),
            self._saves(run),
        )

    def _saves(self, run: RunView) -> int:
        told = self._desk.folder.checkpoints.of(run.uid)
        return told.saves if told is not None else 0


def _by_person(asked: Mapping[str, Asked], nodes: Iterable[str]) -> bool:
    return any(asked[node].person for node in nodes)


def _left_behind(told: r.CheckpointState | None, after: int) -> int | None:
    """The step of a checkpoint that was saved later than the first `after` of the run, and stays without the node."""
    if told is None:
        return None
    saves, step = (told.durable_saves, told.durable_step) if told.local else (told.saves, told.step)
    return step if saves > after else None
