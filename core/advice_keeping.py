"""Which advice should stand in the store: how often each run should save. Asked once per tick, only while leading.

One run per tick, and each once a minute: what is believed of a run's failures is worked out anew from the ledger, of
many over several ticks, so that none is held up. It is written only where another interval would lose noticeably less:
trainers are not told a new one all the time.
"""

from typing import Final

from rankpulse.core import live_advice as live
from rankpulse.core.desk import Desk
from rankpulse.core.failure_rate import RateBelief
from rankpulse.core.records import RunAdvice
from rankpulse.core.views import RunView

LOOK_EVERY_S: Final = 60.0
AT_ONCE: Final = 50  # failures that are learned of within one tick: a tenth of a millisecond each


class AdviceKeeping:
    """One per judge. What it remembers saves time; the next leader finds the same without it."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._looked_at: dict[str, float] = {}
        self._saving: dict[str, live.SaveCost] = {}
        self._learned: dict[str, tuple[tuple[str, int, float], live.Learning]] = {}  # up to the last failure
        self._broken: set[str] = set()  # said of these

    def judge(self) -> None:
        going = {run.uid: run for run in self._desk.folder.fleet.runs.values() if run.rounds and run.open()}
        for uid in [uid for uid in self._looked_at if uid not in going]:
            del self._looked_at[uid]
            self._saving.pop(uid, None)
            self._learned.pop(uid, None)
        run = self._next(going)
        if run is None:
            return
        try:
            if not self._look(run):
                return  # the next tick goes on with it
        except Exception as error:  # a bug of ours costs the advice, not what watches over the runs
            if run.uid not in self._broken:
                self._broken.add(run.uid)
                self._desk.folder.say("error", f"no advice for run {run.uid}, a bug in rankpulse: {error!r:.200}")
        self._looked_at[run.uid] = self._desk.now

    def _next(self, going: dict[str, RunView]) -> RunView | None:
        """The run at which nobody has looked for longest, if that is long enough ago."""
        desk = self._desk
        struck = {incident.run_uid for incident in desk.book.open()}
        told = (uid for uid in going if uid not in struck and self._has_saved(uid))
        uid = min(told, key=lambda uid: self._looked_at.get(uid, float("-inf")), default="")
        due = uid and desk.now - self._looked_at.get(uid, float("-inf")) >= LOOK_EVERY_S
        return going[uid] if due else None

    def _has_saved(self, uid: str) -> bool:
        state = self._desk.folder.checkpoints.of(uid)
        return state is not None and state.saves > 0

    def _look(self, run: RunView) -> bool:
        """Whether that is done: not before all of its failures are learned of."""
        desk, in_force = self._desk, self._desk.folder.advice.get(run.uid)
        saving = self._measured(run.uid, in_force)
        if saving is None:
            return True
        history = self._history(run)
        known = self._known(run.uid, history)
        if known is None:
            return False
        believed = live.belief(history, desk.at, known)
        if live.moved(in_force, believed, saving.save_s):
            made = live.record(run.uid, desk.at, history, believed, saving)
            desk.want(desk.keys.advice(run.uid), made, f"{run.uid} should save every {made.interval_s:.0f} s")
        return True

    def _measured(self, uid: str, in_force: RunAdvice | None) -> live.SaveCost | None:
        """What a save costs. Another leader goes on from what the advice in force rests on."""
        state, before = self._desk.folder.checkpoints.of(uid), self._saving.get(uid)
        if before is None and in_force is not None:
            before = live.SaveCost(in_force.saves, in_force.save_s)
        found = live.measured(before, state) if state is not None else None
        if found is not None:
            self._saving[uid] = found
        return found

    def _history(self, run: RunView) -> live.History:
        totals = self._desk.folder.ledger.totals()
        own = totals.runs.get(run.uid)
        ranks = max(run.current.world_size, len(run.current.members))
        return live.history(
            self._desk.folder.ledger.failures(run.uid),
            own.run_s if own is not None else 0.0,
            live.guess_s(totals, run.uid, ranks),
            whole=not self._desk.folder.ledger.past.entries_upto,
        )

    def _known(self, uid: str, history: live.History) -> RateBelief | None:
        """As of its last failure; None where a part of that was worked out just now: the next tick has the rest."""
        last = history.failures[-1].id if history.failures else ""
        mark = last, len(history.failures), history.guess_s
        before = self._learned.get(uid)
        learned = before[1] if before is not None and before[0] == mark else live.learning(history, self._desk.at)
        self._learned[uid] = mark, learned.further(AT_ONCE)
        return None if learned.left else learned.then
