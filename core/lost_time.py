"""Keeps account of what the time of runs goes to while incidents of theirs are open, and says it when they close."""

from typing import TYPE_CHECKING

import msgspec

from rankpulse.core import stages
from rankpulse.core.incidents import SUPERSEDED
from rankpulse.core.records import Incident
from rankpulse.core.stages import Stages
from rankpulse.core.views import RunView

if TYPE_CHECKING:
    from rankpulse.core.desk import Desk

MOVED_S = 3.0  # a rank that moved so lately, beyond its beats and a step, moves


class LostTime:
    """One per desk; a new term begins with what the store tells."""

    def __init__(self, desk: "Desk") -> None:
        self._desk = desk
        self._of: dict[str, Stages] = {}

    def new_term(self) -> None:
        self._of.clear()

    def follow(self, incident: Incident, run: RunView) -> Incident:
        """Count the time since the last tick. The incident tells of it from stage to stage."""
        desk = self._desk
        mine = self._of.get(incident.id)
        if mine is None:
            began = desk.book.began.get(incident.id, desk.now)
            mine = self._of[incident.id] = Stages.of(incident, began, desk.now)
        if not mine.passed(stages.stage(incident, run, moving=lambda: self._moving(run)), desk.now):
            return incident
        told = mine.told()
        if told == incident.lost_s:
            return incident
        return desk.change(incident, lambda i: msgspec.structs.replace(i, lost_s=told))

    def settled(self, incident: Incident) -> Incident:
        """The incident, closed, with all that it cost."""
        desk, mine = self._desk, self._of.pop(incident.id, None)
        run = desk.folder.fleet.runs.get(incident.run_uid)
        if run is None or (incident.outcome == SUPERSEDED and not incident.restarts):  # another tells of the same
            return msgspec.structs.replace(incident, lost_s={})
        elapsed_s = desk.at - incident.opened_at if incident.epoch != desk.epoch else 0.0
        lost_s = stages.lost(
            incident,
            mine.spent_s if mine is not None else dict(incident.lost_s),
            desk.folder.checkpoints.of(run.uid),
            run.clocks.typical_step_s(),
            elapsed_s,
        )
        round_ = run.rounds.get(incident.round)
        ranks = max(round_.world_size, len(round_.members)) if round_ is not None else 0
        return msgspec.structs.replace(incident, lost_s=lost_s, ranks=ranks)

    def _moving(self, run: RunView) -> bool:
        step_s, beat_s = run.clocks.typical_step_s() or 0.0, self._desk.settings.detect.heartbeat_interval_s
        since = self._desk.now - MOVED_S - beat_s - step_s
        return any(progress.moved_at > since for progress in run.current.progress.values())
