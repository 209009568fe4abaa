"""Keeping nodes out whose GPUs are broken, and following their incidents while no job suffers by them.

Such an incident is over by proof that the fault is; or when the node is in a person's hands: cordoned by a person, or
in maintenance, and no job runs there any more; or when a person has lifted the cordon that rankpulse made for it.
"""

from typing import Final

import msgspec

from rankpulse.core import gpu_choice, gpu_words, modes, policy
from rankpulse.core import gpu_faults as faults
from rankpulse.core import incidents as book_of
from rankpulse.core import records as r
from rankpulse.core.breaker import tripped
from rankpulse.core.desk import Desk
from rankpulse.core.diagnosis import Diagnosis
from rankpulse.core.fold import RESTART
from rankpulse.core.gpu_choice import Case
from rankpulse.core.naming import names_in_words
from rankpulse.core.repeats import highest_step
from rankpulse.core.strikes import BROKEN
from rankpulse.core.views import RunView

BLIND: Final = "this monitor is blind, or too many nodes are late together: what it knows may be old"
_STOPPED: Final = (modes.BY_BREAKER, modes.PAUSED)


def is_broken(incident: r.Incident) -> bool:
    """Whether it is about a device that no order has dealt with, and that nobody has seen well again."""
    return incident.klass in BROKEN and not incident.order_id and any(not row.cleared for row in incident.faults)


def still_broken(incident: r.Incident) -> tuple[str, ...]:
    """Its nodes on which something is broken yet, and not with a person's leave: who is well again is not kept out."""
    well = {row.node for row in incident.faults} - {
        row.node for row in incident.faults if not row.cleared and row.let_in < row.count
    }
    return tuple(node for node in incident.nodes if node not in well)


def release(desk: Desk, incident: r.Incident, why: str) -> None:
    """The GPU is still broken: its incident goes on as one that concerns no round."""
    incident = desk.note(incident, f"{why}: run {incident.run_uid} is not concerned any more")
    of_nobody = {"run_uid": "", "run_id": "", "round": -1, "drain_after": -1}
    desk.change(incident, lambda i: msgspec.structs.replace(i, **of_nobody))


def let_in(desk: Desk, node: str) -> None:
    """A person lets a node in again: whoever does has looked at it. What is broken there is broken with their leave."""
    for incident in desk.book:
        if any(row.node == node and not row.cleared for row in incident.faults):
            rows = (_let_in(row) if row.node == node and not row.cleared else row for row in incident.faults)
            desk.change(msgspec.structs.replace(incident, faults=tuple(rows)))


def _let_in(row: r.DeviceFault) -> r.DeviceFault:
    return msgspec.structs.replace(row, let_in=row.count)


class Keeping:
    """One per judge; remembers for one tick where jobs run and who is kept out: of a large fleet that takes a while."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._runs: dict[str, list[RunView]] | None = None
        self._ours: set[str] | None = None  # nodes that rankpulse keeps out
        self._watched = 0

    def begin(self) -> None:
        """Jobs may have moved since."""
        self._runs = self._ours = None

    def open(self, found: Diagnosis, *, acting: bool) -> None:
        """An incident of a fault by which no job suffers yet. What is done about it, `follow` says."""
        case = self._case(found.nodes, found.faults, found.confidence, "" if acting else BLIND)
        self._desk.open(found, None, gpu_choice.choose(case).choice)

    def follow(self, incident: r.Incident, *, acting: bool) -> None:
        """Over, or what is done about it by now."""
        desk, runs = self._desk, self._running(incident.nodes)
        ordered = incident.order_id or (incident.run_uid, incident.round, RESTART) in desk.folder.orders
        if ordered or incident.asked_by:
            return  # its round is being ended
        why = self._over(incident, busy=bool(runs))
        if why:
            self._stay(incident)
            desk.close(incident, book_of.PASSED, why)
            return
        if incident.drain_after >= 0 and self._out(incident.nodes):
            return  # it is being left: see `core.draining`
        if incident.action == policy.DRAIN and not acting:
            desk.note(incident, f"not kept out yet: {BLIND}")  # decided is decided: a moment's blindness wakes nobody
            return
        case = self._case(still_broken(incident), incident.faults, incident.confidence, "" if acting else BLIND)
        move = gpu_choice.choose(case)
        if move.choice.action != incident.action:
            desk.folder.say("warning", f"incident {incident.id}: action {move.choice.action}: {move.choice.reason}")
        incident = desk.change(incident, lambda i: book_of.decided(i, move.choice, desk.at))
        if move.cordon:
            self._keep_out(incident, case, runs)

    def without(self, incident: r.Incident, *, acting: bool) -> None:
        """Its round has ended, and the next begins by itself: not on that node again."""
        case = self._case(still_broken(incident), incident.faults, incident.confidence, "" if acting else BLIND)
        if gpu_choice.choose(case).cordon:
            self._keep_out(incident, case._replace(busy=False), [])

    def after_order(self, incident: r.Incident, *, acting: bool) -> None:
        """Its round was ended before anybody spoke of the GPU. Should the next have met by now, it leaves the node."""
        run = self._desk.folder.fleet.runs.get(incident.run_uid)
        if run is None or not run.rounds or run.current.number != incident.round:
            return
        nodes = still_broken(incident)
        if not nodes or not self._desk.room(run, run.current, nodes).enough:
            return
        case = self._case(nodes, incident.faults, incident.confidence, "" if acting else BLIND)
        if gpu_choice.choose(case).cordon:
            self._keep_out(incident, case._replace(busy=True), [])

    # --- the case

    def _case(self, nodes: tuple[str, ...], rows: tuple[r.DeviceFault, ...], sure: float, refusal: str) -> Case:
        open_ = [row for row in rows if not row.cleared] or list(rows)
        runs, out = self._running(nodes), self._out(nodes)
        leave = [self._desk.folder.modes.of(run.uid) for run in runs] or [self._desk.folder.modes.of("")]
        unarmed = next((one.why for one in leave if not one.armed and one.mode not in _STOPPED), "")
        return Case(
            nodes=nodes,
            why=gpu_words.title(open_),
            action=faults.action(rows),
            advice=gpu_words.advice(open_),
            confidence=sure,
            out=out,
            busy=bool(runs),
            plain=any(run.joint is None for run in runs),
            unarmed=unarmed,
            paused=leave[0].why if all(one.mode == modes.PAUSED for one in leave) else "",
            # fleets are counted only where nothing simpler settles it
            refusal="" if unarmed or len(out) == len(nodes) else refusal or self._refusal(nodes, runs, leave),
        )

    def _refusal(self, nodes: tuple[str, ...], runs: list[RunView], leave: list[modes.Leave]) -> str:
        """Why the nodes are not kept out now although orders are armed."""
        stopped = next((one.why for one in leave if not one.armed and one.mode in _STOPPED), "")
        return stopped or self._too_many(nodes) or self._spent(nodes, runs)

    def _running(self, nodes: tuple[str, ...]) -> list[RunView]:
        """Runs that have processes on one of them, or are to."""
        if self._runs is None:
            self._runs = {}
            for run in self._desk.folder.fleet.runs.values():
                for node in run.current.nodes() if run.rounds and run.open() else ():
                    self._runs.setdefault(node, []).append(run)
        return list({run.uid: run for node in nodes for run in self._runs.get(node, ())}.values())

    def _out(self, nodes: tuple[str, ...]) -> frozenset[str]:
        folder = self._desk.folder
        return frozenset(node for node in nodes if node in folder.joint.cordons or node in folder.modes.maintenance)

    def _too_many(self, nodes: tuple[str, ...]) -> str:
        """Why so many at once are a person's affair: keeping them out would open the breaker."""
        folder = self._desk.folder
        if self._ours is None:
            self._ours = {node for node, cordon in folder.joint.cordons.items() if cordon.owner == "rankpulse"}
            self._watched = len(folder.fleet.nodes.keys() | self._ours)
        out, watched = self._ours | set(nodes), self._watched
        why = tripped(set(), out, watched, self._desk.settings.policy.breaker_share)
        return f"they would be too many at once: {len(out)} of {watched}" if why else ""

    def _spent(self, nodes: tuple[str, ...], runs: list[RunView]) -> str:
        budgets = self._desk.budgets
        if any(budgets.left(run) <= 0 for run in runs):
            return policy.RUN_SPENT
        return next((why for run in runs if (why := budgets.spent(run.uid, run.current.number, nodes))), "")

    # --- keeping out

    def _keep_out(self, incident: r.Incident, case: Case, runs: list[RunView]) -> None:
        desk = self._desk
        for node in case.nodes:
            if node in case.out:
                continue
            cordon = r.Cordon(
                node=node, author=f"monitor, epoch {desk.epoch}", reason=f"{case.why} (incident {incident.id})",
                at=desk.at, owner="rankpulse", incident=incident.id, drain=case.busy,
            )  # fmt: skip
            desk.want(desk.keys.cordon(node), cordon, f"cordon of {node}: {case.why}", once=True)
            self._ours = None
            desk.folder.joint.cordons[node] = cordon  # for gates of this very tick; a listing tells the truth
            desk.folder.say("warning", f"{node} is cordoned: {case.why}")
        desk.note(incident, f"{names_in_words(case.nodes, 4)} cordoned: no round includes them")
        if runs and not incident.run_uid:
            self._of_run(desk.book.get(incident.id) or incident, runs[0])

    def _stay(self, incident: r.Incident) -> None:
        """What is well again is no reason to end a round: its node stays out of the next until a person lets it in."""
        desk = self._desk
        for node in incident.nodes if all(row.cleared for row in incident.faults) else ():
            cordon = desk.folder.joint.cordons.get(node)
            if cordon is None or not cordon.drain or (cordon.owner, cordon.incident) != ("rankpulse", incident.id):
                continue
            cordon = msgspec.structs.replace(cordon, drain=False)
            desk.want(
                desk.keys.cordon(node), cordon, f"{node} is not to be left any more: {incident.faults[0].cleared}"
            )
            desk.folder.joint.cordons[node] = cordon

    def _of_run(self, incident: r.Incident, run: RunView) -> None:
        """The job leaves the node: from now on the incident is that of its round. Others are drained beside it."""
        if self._desk.book.of_round(run.uid, run.current.number) is not None:
            return
        told = self._desk.folder.checkpoints.of(run.uid)
        of_run = {
            "run_uid": run.uid,
            "run_id": run.run_id,
            "round": run.current.number,
            "fault_step": highest_step(run.current),
            "drain_after": told.saves if told is not None else 0,
        }
        self._desk.change(incident, lambda i: msgspec.structs.replace(i, **of_run))

    # --- its end

    def _over(self, incident: r.Incident, *, busy: bool) -> str:
        """Why it is over, "" while it is not."""
        if all(row.cleared for row in incident.faults):
            return f"over: {incident.faults[0].cleared}"
        if all(row.cleared or row.let_in >= row.count for row in incident.faults):
            return f"{names_in_words(incident.nodes, 4)}: a person has let it in again"
        folder = self._desk.folder
        nodes = still_broken(incident)
        in_hand = [
            node
            for node in nodes
            if node in folder.modes.maintenance
            or ((cordon := folder.joint.cordons.get(node)) is not None and cordon.owner == "person")
        ]
        if busy or len(in_hand) < len(nodes):
            return ""
        who = names_in_words(in_hand, 4)
        return f"{who}: in a person's hands, and no job runs there. To do: {gpu_words.advice(incident.faults)}"
