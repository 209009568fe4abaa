"""Who is slower than its peers, and by how much? Slow is not hung: it is told, and nothing is done about it.

Ranks of a synchronous job all step at the pace of the slowest, so that their steps tell nothing. What tells is what
they do while the others wait, sampled from the beats: a rank in a phase of its own (reading data, saving) while most
are in their step; one that is behind the others of its node, whose steps were read at the same instant; one whose
process hardly ever sleeps while those of the others do. If it does so for a share `x` of the time more than is usual,
the others need at most `1 - x` of it: it is slower than they are by `1 / (1 - x)`. Ranks that do not wait for each
other show their pace plainly: steps in the same time.

Beats and steps may keep time with each other, and then each node is always looked at in the same place of its step:
what it does there says nothing. So nodes are compared only where the looks have swept over the step; ranks of one node,
which are looked at together, always.
"""

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from rankpulse.core.progress import RankProgress
from rankpulse.core.settings import DetectSettings
from rankpulse.core.slot import PHASE_TRAIN
from rankpulse.core.views import RoundView, RunView

LOOKS = 40  # make a window
STEPS_MIN = 4  # fully within a window: else it is prolonged, up to LOOKS_MAX
LOOKS_MAX = 240
RANKS_PER_S = 2000  # looked at: of a large job seldom, so that a look costs no more
SLOWEST_S = 10.0  # between two looks
SWEPT = 3.0  # times that the looks have passed over the step
BEHIND_MIN = 3  # steps in a window: fewer are the beats' own
BUSY_MIN = 0.8  # of the looks in state R or D: it hardly ever waits
FEW = 0.15  # of the ranks: what more of them do is how the job is built, not one that is slow
FEW_BY_PACE = 0.45  # the same where nobody waits: steps are steps
TOLD_AFTER, CLEARED_AFTER = 2, 2  # windows in a row
RATIO_MAX = 20.0
SURE = 4.0  # times what a share that is the same for all differs by chance, over the looks of one window
NAMED_MAX = 16


class Straggler(NamedTuple):
    """A rank that is slower than its peers. `since`: observer's seconds when the first such window began."""

    rank: int
    node: str
    ratio: float
    since: float
    why: str


@dataclass(slots=True, eq=False)
class Looks:
    """What the looks of one window have shown of one rank."""

    rank: int
    node: str
    progress: RankProgress
    began: int  # its step when the window began
    apart: int = 0  # in a phase of its own
    busy: int = 0  # running, or waiting in the kernel
    lag: int = 0  # steps behind the first of its node, over all looks
    lag_min: int = 1 << 30  # at each of them: where its count of steps is another, or its host runs less far ahead
    where: str = ""  # the phase it was in last when it was apart


class Slow(NamedTuple):
    """What one window says of one rank."""

    ratio: float
    why: str
    sure: bool = True  # no chance: who is told of already may be less far off
    most: float = 0.0  # the largest ratio that anything told of it, sure or not


@dataclass
class Watched:
    """One run. Times are the observer's."""

    round: int
    ranks: int
    began_at: float
    looked_at: float
    looks: int = 0
    by_node: dict[str, list[Looks]] = field(default_factory=dict)
    slow: dict[int, tuple[int, int, Straggler]] = field(default_factory=dict)  # windows slow, windows well, the newest

    def told(self) -> list[Straggler]:
        """Those that have been slow for long enough, the slowest first."""
        found = [straggler for windows, _, straggler in self.slow.values() if windows >= TOLD_AFTER]
        return sorted(found, key=lambda one: (-one.ratio, one.rank))[:NAMED_MAX]


class Stragglers:
    """Of all runs. `look` is called at every tick and looks now and then."""

    def __init__(self, detect: DetectSettings) -> None:
        self._detect = detect
        self._of: dict[str, Watched] = {}

    def told(self, run_uid: str) -> list[Straggler]:
        """The stragglers of a run, at most 16, the slowest first."""
        watched = self._of.get(run_uid)
        return watched.told() if watched is not None else []

    def forget(self, run_uid: str) -> None:
        self._of.pop(run_uid, None)

    def look(self, run: RunView, now: float) -> list[str]:
        """Take note of what the ranks of the current round do. Returns what is new about its stragglers, in words."""
        round_, watched = run.current, self._of.get(run.uid)
        if watched is None or (watched.round, watched.ranks) != (round_.number, len(round_.progress)):
            self._begin(run, now, watched)
            return []
        every_s = min(max(self._detect.heartbeat_interval_s, watched.ranks / RANKS_PER_S), SLOWEST_S)
        if now - watched.looked_at < every_s or watched.ranks < 2:
            return []
        watched.looked_at = now
        _look(watched)
        if watched.looks < LOOKS or (_steps(watched) < STEPS_MIN and watched.looks < LOOKS_MAX):
            return []
        before = {straggler.rank for straggler in watched.told()}
        _conclude(watched, run, self._detect)
        _renew(watched, round_, now)
        return _news(run.uid, before, watched.told())

    def _begin(self, run: RunView, now: float, before: Watched | None) -> None:
        """A new round, or another rank was seen. Ranks keep their numbers, not their places: nothing is kept."""
        round_ = run.current
        if before is not None and before.round != round_.number and before.ranks != len(round_.progress):
            run.clocks.pace.forget()
        watched = self._of[run.uid] = Watched(round_.number, len(round_.progress), now, now)
        _renew(watched, round_, now)


def _renew(watched: Watched, round_: RoundView, now: float) -> None:
    """A new window."""
    watched.began_at, watched.looks, watched.by_node = now, 0, {}
    for rank, progress in round_.progress.items():
        if rank in round_.members:
            node = round_.members[rank].node
            watched.by_node.setdefault(node, []).append(Looks(rank, node, progress, progress.step))


def _look(watched: Watched) -> None:
    """One look at every rank, unless most of them are in no step: then waiting says nothing."""
    training = sum(one.progress.phase == PHASE_TRAIN for mates in watched.by_node.values() for one in mates)
    if 2 * training <= watched.ranks:
        return
    watched.looks += 1
    for mates in watched.by_node.values():
        highest = max(one.progress.mark.step for one in mates)
        for one in mates:
            progress, step = one.progress, one.progress.mark.step
            if progress.phase != PHASE_TRAIN:
                one.apart += 1
                one.where = progress.phase
            elif progress.state in "RD":
                one.busy += 1
            if one.began < 0:
                one.began = step
            lag = highest - step
            one.lag += lag
            one.lag_min = min(lag, one.lag_min)


def _all(watched: Watched) -> list[Looks]:
    return [one for mates in watched.by_node.values() for one in mates]


def _steps(watched: Watched) -> float:
    """How many steps the window has, of the rank in the middle."""
    return statistics.median(one.progress.mark.step - one.began for one in _all(watched))


def _conclude(watched: Watched, run: RunView, detect: DetectSettings) -> None:
    """What the window says, and how long that has been so."""
    synchronous = run.ahead.synchronous()
    found = _in_lockstep(watched) if synchronous else _by_pace(_all(watched))
    slow = {rank: one for rank, one in found.items() if one.sure and one.ratio >= detect.straggler_factor}
    if len(slow) > max(1, (FEW if synchronous else FEW_BY_PACE) * watched.ranks):
        slow = {}
    well = 1 + (detect.straggler_factor - 1) / 2
    nodes = {one.rank: one.node for one in _all(watched)}
    for rank in nodes:
        windows, wells, before = watched.slow.get(rank, (0, 0, None))
        one = found.get(rank)
        if rank in slow:
            since = before.since if before is not None else watched.began_at
            watched.slow[rank] = (windows + 1, 0, Straggler(rank, nodes[rank], *slow[rank][:1], since, slow[rank].why))
        elif before is not None and windows >= TOLD_AFTER and one is not None and max(one.ratio, one.most) >= well:
            watched.slow[rank] = (windows, 0, before._replace(ratio=max(one.ratio, one.most), why=one.why))
        elif before is not None:
            if windows < TOLD_AFTER or wells + 1 >= CLEARED_AFTER:
                del watched.slow[rank]
            else:
                watched.slow[rank] = (windows, wells + 1, before)


def _in_lockstep(watched: Watched) -> dict[int, Slow]:
    """By rank, what tells most against it where all wait for the slowest."""
    steps, looks = _steps(watched), watched.looks
    swept = abs(steps - round(steps / looks) * looks) >= SWEPT
    groups = [_all(watched)] if swept else list(watched.by_node.values())
    found: dict[int, Slow] = {}
    for group in groups:
        _worse(found, _by_occupation(group, watched.looks))
    for mates in watched.by_node.values():
        _worse(found, _by_order(mates, watched.looks))
    return found


def _worse(found: dict[int, Slow], other: dict[int, Slow]) -> None:
    """What is sure goes first, then the larger ratio; the largest of all is kept beside it."""
    for rank, one in other.items():
        mine = found.get(rank, one)
        first = max(mine, one, key=lambda slow: (slow.sure, slow.ratio))
        found[rank] = first._replace(most=max(mine.most, one.most, mine.ratio, one.ratio))


def _ratio(excess: float) -> float:
    """How much slower one is that is occupied for this share of the time more than its peers."""
    return min(1.0 / (1.0 - excess), RATIO_MAX) if excess < 1.0 else RATIO_MAX


def _sure(excess: float, usual: float, looks: int) -> bool:
    """Whether a share is so far above the usual one that equal ranks would hardly ever show it by chance."""
    return excess >= SURE * math.sqrt(usual * (1.0 - usual) / looks)


def _median(numbers: Iterable[float]) -> float:
    return statistics.median(numbers)


def _by_occupation(group: list[Looks], looks: int) -> dict[int, Slow]:
    """In a phase of its own, or at work, while the others are not."""
    if len(group) < 2 or not looks:
        return {}
    apart, busy = _median(one.apart for one in group), _median(one.busy for one in group)
    found: dict[int, Slow] = {}
    for one in group:
        own, work = (one.apart - apart) / looks, (one.busy - busy) / looks
        if own > 0:
            share = f"in phase {one.where} for {one.apart / looks:.0%} of the time, its peers for {apart / looks:.0%}"
            found[one.rank] = Slow(_ratio(own), share, _sure(own, apart / looks, looks))
        if one.busy >= BUSY_MIN * looks and work > max(own, 0):
            share = f"at work for {one.busy / looks:.0%} of the time, its peers for {busy / looks:.0%}"
            found[one.rank] = Slow(_ratio(work), share, _sure(work, busy / looks, looks))
    return found


def _by_order(mates: list[Looks], looks: int) -> dict[int, Slow]:
    """Behind the others of its node, which were looked at together with it."""
    if len(mates) < 2 or not looks:
        return {}
    behind = {one.rank: one.lag / looks - one.lag_min for one in mates}
    usual = min(_median(behind.values()), 1.0)
    late = {rank: min(share, 1.0) - usual for rank, share in behind.items() if share > usual}
    return {
        rank: Slow(_ratio(x), f"a step behind its peers for {x:.0%} of the time", _sure(x, usual, looks))
        for rank, x in late.items()
    }


def _by_pace(ranks: list[Looks]) -> dict[int, Slow]:
    """Steps in the same time, where nobody waits for anybody."""
    made = {one.rank: one.progress.step - one.began for one in ranks}
    usual = _median(made.values())
    return {
        rank: Slow(
            min(usual / steps, RATIO_MAX) if steps > 0 else RATIO_MAX, f"{steps} steps where its peers made {usual:g}"
        )
        for rank, steps in made.items()
        if usual - steps >= BEHIND_MIN
    }


def _news(uid: str, before: set[int], told: list[Straggler]) -> list[str]:
    now = {one.rank: one for one in told}
    lines = [
        f"run {uid}: rank {one.rank} on {one.node} is slower than its peers, {one.ratio:.1f} times: {one.why}"
        for rank, one in now.items()
        if rank not in before
    ]
    return lines + [
        f"run {uid}: rank {rank} is no longer slower than its peers" for rank in sorted(before - now.keys())
    ]
