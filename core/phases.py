"""How long may a phase last? Each phase of a run has its own clock, learned from that run's own past.

A duration counts once per event, not once per rank: sixteen ranks that leave an evaluation together are one stay, and
a step that all of them make is one step. What is learned is that of the slowest, for that is what everybody waits for.
"""

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from rankpulse.core.pace import Pace
from rankpulse.core.recent import Recent
from rankpulse.core.records import PhaseRow, RunLearned
from rankpulse.core.settings import DetectSettings
from rankpulse.core.slot import PHASE_CLOSED, PHASE_INIT, PHASE_PAUSED, PHASE_TRAIN

# Clocks that no job can announce: their names are longer than a phase's may be.
START = "until the first step"  # it compiles, connects and reads, whatever the phase is called meanwhile
START_FLOOR_S = 60.0  # few starts are ever seen, and one from a cold cache or a far store takes many times as long
AT_WORK = "unannounced work"  # standing still in a train phase, and seen at work by its agent: it recompiles, for one
AT_WORK_PRIOR_S = 180.0
SAMPLES = 400  # train steps remembered: minutes, so that a lasting change of pace is learned
STAYS = 64  # of every other phase
ENOUGH = 10  # steps from which on they are believed
ENOUGH_LOOKS = 5  # and beats that showed them: one may show several
ENOUGH_STAYS = 3  # the same of stays, which are rare
OUTLIERS = 5  # from so many stays on a single one far off is not believed
OUTLIERS_STEPS = 20  # the same of steps
PHASES_KEPT = 32  # a job may announce any name
HIGH = 0.99
FAR_MORE = 2  # times as many events: then another monitor's knowledge is taken
HEALED_KEPT = 5  # stalls that passed by themselves
HEALED_FACTOR = 1.5
HEALED_LOOKS = 5000  # beats that showed steps, after which such a stall is forgotten: an hour or more
JUST_OVER_S, EXPLAINED = 30.0, 0.8  # a stay that has ended so lately and was so much of a stall was that stall
BEATS_LATE = 2  # intervals: a step may be made one before its beat, and the last one shown so late
_RESTING = frozenset((PHASE_PAUSED, PHASE_CLOSED))
_STARTING = frozenset((PHASE_INIT, PHASE_TRAIN))


def clock_of(phase: str, first_step: int) -> str:
    """Whose clock runs for a rank in `phase` whose first step was `first_step` (-1: none yet)."""
    return START if first_step < 0 and phase in _STARTING else phase


@dataclass
class Stays:
    """The stays in one phase. Stays that overlap are one event, and the longest of them is what it took."""

    recent: Recent = field(default_factory=lambda: Recent(STAYS))
    first_end: float = -math.inf  # when the first rank of the newest event left

    def add(self, elapsed_s: float, now: float | None) -> None:
        """A rank left after `elapsed_s`. `now`: when; None: by itself an event."""
        if now is not None and now - elapsed_s <= self.first_end:
            self.recent.prolong(elapsed_s)
        else:
            self.recent.add(elapsed_s)
            self.first_end = -math.inf if now is None else now

    def explains(self, stall_s: float, now: float) -> bool:
        """Whether a standstill of so long that is over by `now` was the newest stay."""
        return now - self.first_end <= JUST_OVER_S and self.recent.newest() >= EXPLAINED * stall_s


@dataclass
class PhaseClocks:
    """Learned durations of one run: seconds per train step, and of stays in every other phase, over all its rounds."""

    settings: DetectSettings
    pace: Pace = field(default_factory=Pace)
    _steps: Recent = field(default_factory=lambda: Recent(SAMPLES))
    _stays: dict[str, Stays] = field(default_factory=dict)
    _healed: deque[tuple[str, float, int]] = field(default_factory=lambda: deque(maxlen=HEALED_KEPT))
    _looks: int = 0  # beats that taught a step
    _front: tuple[int, int] = (0, -1)  # round, and the highest step that it has shown

    def stepped(self, steps: int, elapsed_s: float, ranks: int = 1, step: int | None = None, round_: int = 0) -> None:
        """`steps` train steps up to `step` of a round were seen to take `elapsed_s`, by so many ranks.

        Only who shows a step first tells something new: the others make the same one. Without `step` each counts.
        """
        if step is not None:
            number, front = self._front
            if round_ == number and step <= front and steps >= 0:
                return
            self._front = (round_, step)  # also a lower one: the job went back within its round
        if steps <= 0 or elapsed_s < 0:
            return
        sample = elapsed_s / steps
        self._steps.add(sample, steps)
        self._looks += 1
        self.pace.add(sample)

    def stayed(self, phase: str, elapsed_s: float, now: float | None = None, first_step: int = 0) -> None:
        """A rank left `phase` after `elapsed_s`, at `now`; `first_step` as it was until then."""
        name = clock_of(phase, first_step)
        if name == PHASE_TRAIN or name in _RESTING or elapsed_s < 0:
            return
        stays = self._stays.get(name)
        if stays is None:
            if len(self._stays) >= PHASES_KEPT:
                return
            stays = self._stays[name] = Stays()
        stays.add(elapsed_s, now)

    def healed(self, incident: str, stall_s: float, now: float = math.inf) -> None:
        """A standstill of the training passed by itself after `stall_s`: such a one is no hang the next time.

        One that was a long stay in another phase, over just before `now`, has been learned as such.
        """
        told = any(known == incident for known, _, _ in self._healed)
        if not told and not any(stays.explains(stall_s, now) for stays in self._stays.values()):
            self._healed.append((incident, stall_s, self._looks))

    def typical_step_s(self) -> float | None:
        """The median time of a train step, None until enough have been seen."""
        return self._steps.quantile(0.5) if self._believed(PHASE_TRAIN) else None

    def high_s(self, clock: str) -> float | None:
        """How long a step, or a stay in another phase, takes at most (p99); None until enough have been seen.

        A beat shows what has changed up to one interval late, so that two changes may seem an interval further apart.
        """
        recent = self._recent(clock)
        if recent is None or not self._believed(clock):
            return None
        outliers = OUTLIERS_STEPS if clock == PHASE_TRAIN else OUTLIERS
        seen = recent.high(HIGH, self.settings.hang_factor, outliers)
        return max(seen - self.settings.heartbeat_interval_s, recent.quantile(0.5))

    def deadline_s(self, clock: str) -> float:
        """Standing still for longer than this is a suspicion. `clock`: a phase, or what `clock_of` says."""
        detect, high = self.settings, self.high_s(clock)
        if high is None:
            recent = self._recent(clock) if clock != PHASE_TRAIN else None
            longest_s = recent.quantile(1.0) if recent else 0.0
            return max(self._prior_s(clock), detect.hang_factor * longest_s)
        learned = detect.hang_factor * high
        if clock == AT_WORK:  # of all kinds: many short ones do not tell how long the next may take
            return max(self._prior_s(clock), learned)
        if clock != PHASE_TRAIN:
            return max(START_FLOOR_S if clock == START else detect.hang_floor_s, learned)
        healed = min(HEALED_FACTOR * self._healed_s(), detect.hang_prior_s)
        return max(detect.hang_floor_s, learned + BEATS_LATE * detect.heartbeat_interval_s, healed)

    def _prior_s(self, clock: str) -> float:
        return min(AT_WORK_PRIOR_S, self.settings.hang_prior_s) if clock == AT_WORK else self.settings.hang_prior_s

    def _believed(self, clock: str) -> bool:
        """Whether enough has been seen of it."""
        recent = self._recent(clock)
        if clock == PHASE_TRAIN:
            return self._steps.count >= ENOUGH and len(self._steps) >= ENOUGH_LOOKS
        return recent is not None and len(recent) >= ENOUGH_STAYS

    def _recent(self, clock: str) -> Recent | None:
        if clock == PHASE_TRAIN:
            return self._steps
        return self._stays[clock].recent if clock in self._stays else None

    def _healed_s(self) -> float:
        """The longest stall that passed by itself lately."""
        return max((s for _, s, at in self._healed if self._looks - at <= HEALED_LOOKS), default=0.0)

    # --- what outlives this monitor

    def seen(self, clock: str) -> int:
        """How many steps, or stays in another phase, have been seen."""
        recent = self._recent(clock)
        return recent.count if recent is not None else 0

    def known(self) -> list[str]:
        """The clocks of which anything was seen."""
        return [PHASE_TRAIN, *sorted(self._stays)] if self._steps.count else sorted(self._stays)

    def counts(self) -> int:
        """How much has been learned: grows with every event."""
        stays = sum(stays.recent.count for stays in self._stays.values())
        return self._steps.count + stays + len(self._healed)

    def rows(self) -> Iterable[tuple[str, int, tuple[float, ...]]]:
        """What is known of each phase: clock, events seen, durations at equal distances."""
        known = {PHASE_TRAIN: self._steps, **{name: stays.recent for name, stays in sorted(self._stays.items())}}
        return [(name, recent.count, recent.marks()) for name, recent in known.items() if recent.count]

    def record(self, run_uid: str, at: float) -> RunLearned:
        """What is known, for monitors to come."""
        rows = tuple(PhaseRow(name, count, marks) for name, count, marks in self.rows())
        return RunLearned(run_uid=run_uid, at=at, phases=rows, healed_s=tuple(s for _, s, _ in self._healed))

    def take(self, learned: RunLearned) -> None:
        """What another monitor has learned of this run, where that is far more than this one has seen itself.

        What was seen here is newer: it stays, and counts as part of what the other saw.
        """
        for row in learned.phases:
            if row.phase != PHASE_TRAIN and row.phase not in self._stays and len(self._stays) >= PHASES_KEPT:
                continue
            recent = self._steps if row.phase == PHASE_TRAIN else self._stays.setdefault(row.phase, Stays()).recent
            if row.count > FAR_MORE * recent.count and row.quantiles:
                recent.restore(row.count, row.quantiles)
                if row.phase == PHASE_TRAIN and len(recent):
                    self.pace.resume(recent.quantile(0.5))
        for stall_s in learned.healed_s[-HEALED_KEPT:] if not self._healed else ():
            self._healed.append((f"learned {stall_s}", stall_s, self._looks))
