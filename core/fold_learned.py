"""What the monitors have learned of each run's pace, as the store keeps it: a new leader does not start from nothing.

It is knowledge, no decision: losing it costs caution for a while, nothing else. So it is written now and then, and a
monitor takes it only where it has seen far less itself. Two things are written as soon as they are believed. Who does
not know the pace takes a job that hangs for one that starts, and waits as long; and peers that wait for a lost node are
no witnesses for who does not know that their job keeps step.
"""

from collections.abc import Iterator

from rankpulse.core.fleet import Fleet
from rankpulse.core.records import RunLearned
from rankpulse.core.views import RunView

WRITE_EVERY_S = 60.0


class LearnedFolder:
    """Of all runs, by run_uid. Times are the observer's."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._waiting: dict[str, RunLearned] = {}  # of runs that are not known yet
        self._written: dict[str, tuple[float, int, int, int]] = {}  # when, in which round, how much, how sure
        self._looked_at = float("-inf")

    def stored(self, learned: RunLearned) -> None:
        """What the store says; the run may be told of later."""
        run = self._fleet.runs.get(learned.run_uid)
        if run is not None:
            _hand_out(learned, run)
        else:
            self._waiting[learned.run_uid] = learned

    def settle(self) -> None:
        """Hand out what waits for its run."""
        for uid in [uid for uid in self._waiting if uid in self._fleet.runs]:
            _hand_out(self._waiting.pop(uid), self._fleet.runs[uid])

    def due(self, now: float) -> Iterator[RunView]:
        """The runs of which more is known than was written, once a minute; at once what makes a difference."""
        if now - self._looked_at < 1.0:
            return
        self._looked_at = now
        for run in self._fleet.runs.values():
            if run.rounds and run.open() and self._is_due(run, now):
                yield run

    def _is_due(self, run: RunView, now: float) -> bool:
        number, known = run.current.number, run.clocks.counts()
        sure = (run.clocks.typical_step_s() is not None) + (run.ahead.apart() >= 0)
        at, round_, before, was_sure = self._written.setdefault(run.uid, (now, number, 0, 0))
        if known == before or (now - at < WRITE_EVERY_S and number == round_ and sure <= was_sure):
            return False
        self._written[run.uid] = (now, number, known, sure)
        return True

    def drop(self, run_uid: str) -> None:
        """Forget a run."""
        self._waiting.pop(run_uid, None)
        self._written.pop(run_uid, None)

    def relisted(self) -> None:
        """The listing tells it again; what it does not tell any more is written anew."""
        self._waiting.clear()
        self._written.clear()


def _hand_out(learned: RunLearned, run: RunView) -> None:
    run.clocks.take(learned)
    run.ahead.take(learned.apart)
