"""What the advised interval between saves loses beside the best one, in runs whose failure rate is known to nobody.

Failures are drawn, and the advice follows them as in a real run. Lost time is not drawn but expected, by the rate that
is really in force: so what is measured is what the advice does not know, and not the luck of a failure before a save.
One history serves all pairs of MTBF and save cost, as time can be counted in units of the MTBF.

    python -m rankpulse.bench.interval_regret
"""

import argparse
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from rankpulse.cli import show
from rankpulse.core import checkpoint_cost as cost
from rankpulse.core import failure_rate
from rankpulse.core.interval_advice import damped
from rankpulse.core.live_advice import GUESS_WORTH

MTBF_S: Final = (3600.0, 10800.0, 28800.0, 86400.0, 604800.0)
SAVE_S: Final = (2.0, 10.0, 60.0, 300.0, 480.0)
RECOVER_S: Final = 300.0
HOPELESS: Final = 0.5  # of the time lost at the best interval: no interval makes such a run worth while
_LOOKS: Final = 5.0  # per mean time between failures, as far as it is known


class Story(NamedTuple):
    """A kind of run. fewest: failures expected in all, or while the lower of two rates is in force (half the time).

    change: the rate in the second half by that of the first. guess: what is believed of the MTBF at the start, by what
    it is; worth: how many failures' evidence that guess stands for.
    """

    name: str
    fewest: int = 200
    change: float = 1.0
    guess: float = 1.0
    worth: float = GUESS_WORTH


STORIES: Final = (
    Story("steady, first guess right"),
    Story("steady, first guess ten times too short", guess=0.1),
    Story("steady, first guess ten times too long", guess=10.0),
    Story("steady, the fleet's rate known from 20 failures", worth=20.0),
    Story("ten times as many failures from the middle on", change=10.0),
    Story("ten times fewer failures from the middle on", change=0.1),
    Story("short: 20 failures, first guess right", fewest=20),
    Story("short: 20 failures, first guess ten times too long", fewest=20, guess=10.0),
    Story("short: 20 failures, the rate of the fleet known from 20 failures", fewest=20, worth=20.0),
)


@dataclass
class Cell:
    """One pair of MTBF and save cost, in units of the first MTBF."""

    mtbf_s: float
    save_s: float
    lost: float = 0.0
    least: float = 0.0
    changes: int = 0
    in_force: float | None = field(default=None, repr=False)

    def pass_by(self, time: float, believed: float, real: float, recover_s: float) -> None:
        """So much time with what is believed and what is real."""
        save, recover = self.save_s / self.mtbf_s, recover_s / self.mtbf_s
        chosen = damped(cost.exact(save, believed), self.in_force, save, believed)
        self.changes += chosen != self.in_force
        self.in_force = chosen
        self.lost += time * cost.overhead(chosen, save, recover, real)
        self.least += time * cost.overhead(cost.exact(save, real), save, recover, real)

    @property
    def regret(self) -> float:
        return self.lost / self.least - 1


def pairs(story: Story, recover_s: float = RECOVER_S) -> list[tuple[float, float]]:
    """MTBF at first, and save cost: those of the grid in which the story is not hopeless at its higher rate."""
    grid = [(mtbf_s, save_s) for mtbf_s in MTBF_S for save_s in SAVE_S]
    worst = max(1.0, story.change)
    return [(mtbf_s, save_s) for mtbf_s, save_s in grid if _least_lost(mtbf_s / worst, save_s, recover_s) <= HOPELESS]


def _least_lost(mtbf_s: float, save_s: float, recover_s: float) -> float:
    return cost.lost_share(cost.exact(save_s, mtbf_s), save_s, recover_s, mtbf_s)


def tell(
    story: Story, seeds: Sequence[int], chosen: Sequence[tuple[float, float]], recover_s: float = RECOVER_S
) -> list[Cell]:
    """All pairs chosen, through as many runs as seeds."""
    cells = [Cell(mtbf_s, save_s) for mtbf_s, save_s in chosen]
    for seed in seeds:
        _live(story, random.Random(seed), cells, recover_s)  # noqa: S311 - the same at every run
        for cell in cells:
            cell.in_force = None
    return cells


def _live(story: Story, chance: random.Random, cells: Sequence[Cell], recover_s: float) -> None:
    half = story.fewest / 2 if story.change == 1 else story.fewest / min(1.0, story.change)
    now, belief = 0.0, failure_rate.believing(story.guess, story.worth)
    until_failure = chance.expovariate(1.0)  # in expected failures
    while now < 2 * half:
        real = 1.0 if now < half else 1.0 / story.change
        believed = failure_rate.mtbf(belief)
        time = min(believed / _LOOKS, (half if now < half else 2 * half) - now)
        fails = until_failure * real <= time
        time = until_failure * real if fails else time
        for cell in cells:
            cell.pass_by(time, believed, real, recover_s)
        belief = failure_rate.passed(belief, time)
        now, until_failure = now + max(time, 1e-9), until_failure - time / real
        if fails:
            belief, until_failure = failure_rate.failed(belief), chance.expovariate(1.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--story", default="", help="only those whose name has this in it")
    asked = parser.parse_args()
    out = show.console()
    for story in (one for one in STORIES if asked.story in one.name):
        cells = {(cell.mtbf_s, cell.save_s): cell for cell in tell(story, range(asked.seeds), pairs(story))}
        regrets = [cell.regret for cell in cells.values()]
        out.print(f"{story.name}: worst {max(regrets):.2%}, mean {sum(regrets) / len(regrets):.2%}")
        rows = [
            (f"{mtbf_s / 3600:g} h", *(_told(cells.get((mtbf_s, save_s))) for save_s in SAVE_S)) for mtbf_s in MTBF_S
        ]
        show.table(out, ("MTBF", *(f"{save_s:g} s a save" for save_s in SAVE_S)), rows)
        out.print()


def _told(cell: Cell | None) -> str:
    return f"{cell.regret:.2%}" if cell else "-"


if __name__ == "__main__":
    main()
