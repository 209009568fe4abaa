"""The policy's word on a round that is about to form: go, go without some nodes, or no further round.

Agents wait for it a moment only, so it is given as soon as nothing speaks against it. It is created once per round:
whoever leads later finds it there. Only which nodes are lost is told anew while the round has not formed: whoever
forms it does so by the word as it stands, for the transaction of a meeting guards that.
"""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from rankpulse.core import deaths
from rankpulse.core import records as r
from rankpulse.core.desk import Desk
from rankpulse.core.fold import RESTART
from rankpulse.core.lost import is_back, lost
from rankpulse.core.views import RunView
from rankpulse.core.words import printable

JUDGE_S = 1.5  # exits of the last round that are not judged yet hold the answer up for so long


class Word(NamedTuple):
    go: bool
    without: tuple[str, ...]
    reason: str


def word(run: RunView, barred: Mapping[str, str], stop: str) -> Word:
    """What to say to the next round of a run. `barred`: nodes and why. `stop`: why there shall be none, or ""."""
    if stop:
        return Word(False, (), f"no further round: {stop}")
    out = sorted(known(run) & barred.keys())
    if not out:
        return Word(True, (), "nothing speaks against it")
    why = "; ".join(f"{node} is {barred[node]}" for node in out[:8])
    return Word(True, tuple(out), printable(f"without {', '.join(out[:8])}: {why}", 500))


def known(run: RunView) -> set[str]:
    """The nodes that the next round of a run might include."""
    names = {joiner.node for joiner in run.joint.joiners.values()} if run.joint is not None else set()
    return names | set(run.current.nodes() if run.rounds else ())


def barred(cordons: Mapping[str, r.Cordon], maintenance: Mapping[str, r.Maintenance]) -> dict[str, str]:
    """The nodes that no round may include, and why."""
    out = {node: f"in maintenance, by {one.author}: {one.reason}" for node, one in maintenance.items()}
    return out | {node: f"cordoned by {cordon.author}: {cordon.reason}" for node, cordon in cordons.items()}


class Gates:
    """One per judge. Remembers only since when a round could begin."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._since: dict[tuple[str, int], float] = {}
        self._acting = False

    def judge(self, *, acting: bool) -> None:
        """Ask for the gates that are due, and take back those that are not true any more.

        `acting`: this monitor can see, so that who is silent to it may be lost.
        """
        self._acting = acting
        asked = {(run.uid, run.joint.last + 1): run for run in self._asking() if run.joint is not None}
        self._since = {where: since for where, since in self._since.items() if where in asked}
        for run in asked.values():
            self._answer(run)
        for where, gate in list(self._desk.folder.joint.gates.items()):
            if where in asked and self._is_old(asked[where], gate):
                self._desk.erase(self._desk.keys.gate(*where))

    def _is_old(self, run: RunView, gate: r.Gate) -> bool:
        """It names a node whose cordon was lifted, or not one that is in maintenance, of which agents do not know."""
        lifted = set(gate.without) - self._barred().keys()
        in_hand = known(run) & self._desk.folder.modes.maintenance.keys()
        return bool(lifted) or (gate.go and not in_hand <= set(gate.without))

    def _barred(self) -> dict[str, str]:
        folder = self._desk.folder
        return barred(folder.joint.cordons, folder.modes.maintenance)

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
        stands = desk.folder.joint.gates.get((run.uid, number))
        if stands is not None:
            self._tell_lost(run, stands)
            return
        if not self._judged(run) and desk.now - since < JUDGE_S:
            return
        said = word(run, self._barred(), self._stop(run))
        told = desk.folder.checkpoints.of(run.uid)
        gate = r.Gate(
            run_uid=run.uid,
            round=number,
            go=said.go,
            reason=said.reason,
            epoch=desk.epoch,
            at=desk.at,
            without=said.without,
            lost=self._lost(run, ()),
            resume_before_step=told.resume_before_step if told is not None else -1,
            resume_before_round=told.resume_before_round if told is not None else 0,
        )
        desk.want(desk.keys.gate(run.uid, number), gate, said.reason, once=True)

    def _tell_lost(self, run: RunView, gate: r.Gate) -> None:
        """Somebody is lost by now, or back."""
        now_lost = self._lost(run, gate.lost)
        if now_lost == gate.lost or not gate.go:
            return
        new, back = set(now_lost) - set(gate.lost), set(gate.lost) - set(now_lost)
        text = f"without {', '.join(sorted(new)[:8])}, of whom nothing is heard" if new else "nobody is lost by now"
        text = f"{', '.join(sorted(back)[:8])} is back" if back and not new else text
        told = msgspec.structs.replace(gate, lost=now_lost, reason=printable(text, 500))
        self._desk.want(self._desk.keys.gate(run.uid, gate.round), told, text)

    def _lost(self, run: RunView, before: tuple[str, ...]) -> tuple[str, ...]:
        """Whom the round forms without: those whom the order leaves out or the last word did, until they are heard
        again, and those who have been silent for long enough since."""
        last = run.joint.last if run.joint is not None else 0
        order = self._desk.folder.ordered(run.uid, last, RESTART)
        known = {*before, *(order.without if order is not None else ())}
        kept = {name for name in known if not is_back(self._desk, name)}
        return tuple(sorted({*kept, *(lost(self._desk, run) if self._acting else ())}))

    def _judged(self, run: RunView) -> bool:
        last = run.rounds.get(run.joint.last) if run.joint is not None else None
        told = last is None or self._desk.book.of_round(run.uid, last.number) is not None
        return last is None or deaths.is_judged(run, last, told)

    def _stop(self, run: RunView) -> str:
        """Why the run shall have no further round; only an armed monitor says so."""
        last = run.joint.last if run.joint is not None else 0
        incident = self._desk.book.stop_of(run.uid, last) if last else None
        armed = self._desk.folder.modes.of(run.uid).armed
        return f"incident {incident.id}: {incident.action_reason}" if incident is not None and armed else ""
