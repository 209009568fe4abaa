"""The policy's word on a round that is about to form: go, go without some nodes, or no further round.

Agents wait for it a moment only, so it is given as soon as nothing speaks against it. It is created once per round:
whoever leads later finds it there.
"""

from collections.abc import Mapping
from typing import NamedTuple

from rankpulse.core import deaths, policy
from rankpulse.core import records as r
from rankpulse.core.desk import Desk
from rankpulse.core.views import RunView
from rankpulse.core.words import printable

JUDGE_S = 1.5  # exits of the last round that are not judged yet hold the answer up for so long


class Word(NamedTuple):
    go: bool
    without: tuple[str, ...]
    reason: str


def word(run: RunView, cordons: Mapping[str, r.Cordon], stop: str) -> Word:
    """What to say to the next round of a run. `stop`: why there shall be none, "" when there may be one."""
    if stop:
        return Word(False, (), f"no further round: {stop}")
    known = {joiner.node for joiner in run.joint.joiners.values()} if run.joint is not None else set()
    if run.rounds:
        known |= set(run.current.nodes())
    out = sorted(known & cordons.keys())
    if not out:
        return Word(True, (), "nothing speaks against it")
    why = "; ".join(f"{node} is cordoned by {cordons[node].author}: {cordons[node].reason}" for node in out[:8])
    return Word(True, tuple(out), printable(f"without {', '.join(out[:8])}: {why}", 500))


class Gates:
    """One per judge. Remembers only since when a round could begin."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._since: dict[tuple[str, int], float] = {}

    def judge(self) -> None:
        """Ask for the gates that are due, and take back those that name a node whose cordon was lifted."""
        asking = self._asking()
        asked = {(run.uid, run.joint.last + 1) for run in asking if run.joint is not None}
        self._since = {where: since for where, since in self._since.items() if where in asked}
        for run in asking:
            self._answer(run)
        for (uid, round_), gate in list(self._desk.folder.joint.gates.items()):
            lifted = [node for node in gate.without if node not in self._desk.folder.joint.cordons]
            if lifted and (uid, round_) in asked:
                self._desk.erase(self._desk.keys.gate(uid, round_))

    def _asking(self) -> list[RunView]:
        return [
            run
            for run in self._desk.folder.fleet.runs.values()
            if run.open()
            and run.joint is not None
            and run.joint.launch is not None
            and not run.joint.closed
            and run.joint.may_meet(run.ordered)
        ]

    def _answer(self, run: RunView) -> None:
        assert run.joint is not None
        desk, number = self._desk, run.joint.last + 1
        since = self._since.setdefault((run.uid, number), desk.now)
        if (run.uid, number) in desk.folder.joint.gates:
            return
        if not self._judged(run) and desk.now - since < JUDGE_S:
            return
        said = word(run, desk.folder.joint.cordons, self._stop(run))
        told = desk.folder.checkpoints.of(run.uid)
        gate = r.Gate(
            run_uid=run.uid,
            round=number,
            go=said.go,
            reason=said.reason,
            epoch=desk.epoch,
            at=desk.at,
            without=said.without,
            resume_before_step=told.resume_before_step if told is not None else -1,
            resume_before_round=told.resume_before_round if told is not None else 0,
        )
        desk.want(desk.keys.gate(run.uid, number), gate, said.reason, once=True)

    def _judged(self, run: RunView) -> bool:
        last = run.rounds.get(run.joint.last) if run.joint is not None else None
        told = last is None or self._desk.book.of_round(run.uid, last.number) is not None
        return last is None or deaths.is_judged(run, last, told)

    def _stop(self, run: RunView) -> str:
        """Why the run shall have no further round; only an armed monitor says so."""
        last = run.joint.last if run.joint is not None else 0
        incident = self._desk.book.of_round(run.uid, last) if last else None
        stops = incident is not None and incident.action == policy.STOP and self._desk.armed
        return f"incident {incident.id}: {incident.action_reason}" if incident is not None and stops else ""
