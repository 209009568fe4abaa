"""One day of the trace through every detector: counts and times, as plain values that can be kept and added up."""

from collections.abc import Callable

import msgspec
import numpy as np

from rankpulse.bench.detect import counting, nvrx, pauses
from rankpulse.bench.detect import parameters as z
from rankpulse.bench.detect.baselines import BASELINES
from rankpulse.bench.detect.deaths import Told, die, victims
from rankpulse.bench.detect.drive import Way
from rankpulse.bench.detect.job import Timeline
from rankpulse.bench.detect.patrol import FLEET, Found, node_day, patrol
from rankpulse.bench.detect.plan import Plan
from rankpulse.bench.detect.points import DEFAULT, LAYERS, MANNERS, POINTS
from rankpulse.bench.detect.senders import Beats, rank_beats
from rankpulse.bench.detect.trace import Day, make_day
from rankpulse.bench.detect.weather import Held
from rankpulse.core import records as r

NODE_STREAM, RANK_STREAM = "one sender per node", "one sender per rank"


_COUNTS = ("mistakes", "restarts", "never", "before", "innocents", "trials")


class Score(msgspec.Struct):
    """What one detector did on one day, or on several."""

    senders_per_job: int = 0
    job_days: float = 0.0
    mistakes: int = 0  # living senders suspected (ours: convicted)
    mistaken_s: float = 0.0
    restarts: int = 0
    detection_s: list[float] = []
    never: int = 0  # deaths not told within the limit
    before: int = 0  # deaths where something else was convicted first
    innocents: int = 0  # living nodes that were named with the dead
    racks_s: list[float] = []
    rack_decisions: list[int] = []
    others: dict[str, int] = {}  # further incidents, by class
    phases: dict[str, list[float]] = {}  # detection, by the phase in which the node died
    driven_s: float = 0.0
    trials: int = 0  # pauses lived through

    def add(self, other: "Score") -> None:
        self.senders_per_job = other.senders_per_job or self.senders_per_job
        for name in (*_COUNTS, "job_days", "mistaken_s", "driven_s"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("detection_s", "racks_s", "rack_decisions"):
            setattr(self, name, [*getattr(self, name), *getattr(other, name)])
        for klass, count in other.others.items():
            self.others[klass] = self.others.get(klass, 0) + count
        for phase, times in other.phases.items():
            self.phases[phase] = [*self.phases.get(phase, []), *times]


class Shift(msgspec.Struct):
    """One day. `scores`: table -> detector -> score."""

    day: int
    whole: bool  # not only the default point
    scores: dict[str, dict[str, Score]]


EARLIER = 1_000_000  # numbers of the days that only teach
OURS, LAYER, MANNER, PAUSE = "ours", "layers", "manners", "pauses"


def learn(plan: Plan, number: int) -> r.FleetLearned:
    """What the cost rule learns on a day that is not measured."""
    day = make_day(plan.seed, EARLIER + number, plan.scale)
    found = patrol(day, node_day(day), Timeline(day), DEFAULT)
    record = found.learned[FLEET]
    assert isinstance(record, r.FleetLearned)
    return record


def work(plan: Plan, number: int, experience: r.FleetLearned | None = None) -> Shift:
    """Everything the plan wants of this day. Depends on plan, number and experience alone."""
    day = make_day(plan.seed, number, plan.scale, seconds=plan.seconds)
    beats, scores, whole = node_day(day), dict[str, dict[str, Score]](), number < plan.days
    if whole:
        scores[NODE_STREAM] = baselines(day, lambda n: beats[n], day.nodes, plan.deaths)
    if number < plan.rank_days:
        scores[RANK_STREAM] = baselines(day, lambda n: rank_beats(day, n), day.nodes * z.RANKS_PER_NODE, plan.deaths)
    line = Timeline(day)
    scores[OURS] = {
        point.name: _ours(plan, day, beats, line, point, experience)
        for point in POINTS
        if number < plan.days or point is DEFAULT
    }
    if number < plan.layer_days:
        scores[LAYER] = _layers(plan, day, beats, line)
    if number < plan.manner_days:
        scores[MANNER] = _manners(plan, day, beats, line)
    if number < plan.pause_days:
        scores[PAUSE] = _pauses(plan, number)
    return Shift(number, whole, scores)


def baselines(day: Day, beats_of: Callable[[int], Beats], senders: int, deaths: int) -> dict[str, Score]:
    """The usual detectors over one stream of the day."""
    job_days, scores = day.seconds / z.DAY_S, dict[str, Score]()
    starts: dict[str, list[float]] = {one.name: [] for one in BASELINES}
    for one in BASELINES:
        scores[one.name] = Score(senders, job_days)
    dying = _dying(day, senders, deaths)
    observer, longest = Held(day.observer), nvrx.LongestSeen(day.seconds)
    last_heard: list[tuple[float, float]] = []  # of the dying: (last arrival, death)
    for sender in range(senders):
        beats = beats_of(sender)
        longest.add(beats)
        mine = dying.get(sender, [])
        last_heard += [(float(beats.until(at).arrived[-1]), at) for at in mine if len(beats.until(at))]
        for one in BASELINES:
            deadline, score = one.deadlines(beats), scores[one.name]
            wrong = counting.mistakes(beats, deadline)
            score.mistakes += len(wrong.start)
            score.mistaken_s += float(wrong.length.sum())
            starts[one.name] += wrong.start.tolist()
            for at in mine:
                found = counting.detected(beats, deadline, at)
                score.detection_s.append(observer.until(at + found) - at)
    for name, when in starts.items():
        scores[name].restarts = counting.restarts(when)
    scores[nvrx.NAME] = _nvrx(longest, last_heard, senders, job_days)
    return scores


def _nvrx(longest: nvrx.LongestSeen, heard: list[tuple[float, float]], senders: int, job_days: float) -> Score:
    wrong, timeouts = longest.mistakes(), longest.timeouts()
    score = Score(senders, job_days, len(wrong), sum(length for _, length in wrong))
    score.restarts = counting.restarts(start for start, _ in wrong)
    score.detection_s = [max(longest.suspected_at(last, timeouts) - at, 0.0) for last, at in heard]
    return score


def _dying(day: Day, senders: int, count: int) -> dict[int, list[float]]:
    """When which sender dies, for the usual detectors: the same moments on both streams."""
    found: dict[int, list[float]] = {}
    for death in victims(day, count, racks=False):
        sender = min(death.nodes) * (senders // day.nodes)
        found.setdefault(sender, []).append(death.at)
    return found


def _ours(
    plan: Plan, day: Day, beats: list[Beats], line: Timeline, point: Way, experience: r.FleetLearned | None
) -> Score:
    found = patrol(day, beats, line, point, experience=experience)
    score = _score(found, day)
    if day.number < plan.days:
        for racks, count in ((False, plan.our_deaths), (True, plan.rack_deaths)):
            _add(score, die(day, beats, line, point, victims(day, count, racks=racks), found.learned))
    return score


def _score(found: Found, day: Day) -> Score:
    score = Score(day.nodes, day.seconds / z.DAY_S, restarts=len(found.convicted), others=found.others)
    score.mistakes = sum(len(verdict.nodes) for verdict in found.convicted)
    score.driven_s = found.driven_s
    return score


def _add(score: Score, told: Told) -> None:
    score.detection_s += [s for s in told.nodes_s if np.isfinite(s)]
    score.racks_s += [s for s in told.racks_s if np.isfinite(s)]
    score.rack_decisions += told.rack_decisions
    score.never += sum(not np.isfinite(s) for s in (*told.nodes_s, *told.racks_s))
    score.before += told.before
    score.innocents += told.innocents
    for phase, times in told.phases.items():
        score.phases.setdefault(phase, []).extend(s for s in times if np.isfinite(s))


def _layers(plan: Plan, day: Day, beats: list[Beats], line: Timeline) -> dict[str, Score]:
    scores = {}
    dead = victims(day, plan.layer_deaths, racks=False)
    for layer in LAYERS:
        scores[layer.name] = _score(patrol(day, beats, line, layer), day)
        _add(scores[layer.name], die(day, beats, line, layer, dead))
    return scores


def _manners(plan: Plan, day: Day, beats: list[Beats], line: Timeline) -> dict[str, Score]:
    scores = {}
    dead = victims(day, plan.manner_deaths, racks=False)
    for way in MANNERS:
        scores[way.name] = Score(day.nodes, day.seconds / z.DAY_S)
        _add(scores[way.name], die(day, beats, line, way, dead))
    return scores


def _pauses(plan: Plan, number: int) -> dict[str, Score]:
    scores = {}
    for kind, what in pauses.KINDS.items():
        day = pauses.paused(plan.seed, number, kind, plan.pauses)
        for point in POINTS:
            wrong = pauses.convicted(day, point)
            scores[f"{point.name}: {what}"] = Score(day.nodes, restarts=wrong, trials=plan.pauses)
    return scores
