"""One play of a story: its fleet, its monitors, what hits them, and what came of it. And all plays of it.

A play is hit once. To explore them all, the one that is not hit is played, and at every call it forks: the child is hit
there, plays on to its end, and says what came of it.
"""

import json
import os
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from fleet import EVERY_S, UID, Fleet
from monitors import Monitor, Receiver
from points import KILLED_AFTER, KILLED_BEFORE, LATE, LOST, LOST_DONE, PAUSED_AFTER, PAUSED_BEFORE, Points
from stories import Story
from support import fork

from rankpulse.drills.sim.clockwork import Heap

BACK_S: Final = 1.0  # from the death of a monitor to its successor
QUIET_S: Final = 10.0  # nothing may happen any more for so long after the end


class Play:
    """`standby`: a second monitor runs all the time, and nobody is restarted; else each one that dies is."""

    def __init__(self, story: Story, ways: Callable[[int], str] = lambda _call: "", *, standby: bool) -> None:
        self.story, self.points, self._standby = story, Points(ways), standby
        self.heap = Heap()
        self.fleet = Fleet(self.heap, story.settings)
        self.receiver = Receiver(lambda: self.heap.now)
        self.monitors: list[Monitor] = []
        self.came: list[str] = []
        self._start()
        if standby:
            self.heap.after(1.5, self._start)
        self.heap.after(2.0, lambda: self.fleet.begin(story.nodes, **story.spares))

    def _start(self) -> None:
        self.monitors.append(
            Monitor(
                f"m{len(self.monitors) + 1}",
                self.heap,
                self.fleet.memory,
                self.story.settings,
                self.points,
                look=self.fleet.look,
                receiver=self.receiver,
                died=self._died,
            )
        )

    def _died(self) -> None:
        if not self._standby:
            self.heap.after(BACK_S, self._start)

    def run(self) -> "Play":
        """To the end and a while beyond, or to the limit."""
        self._until(2.0 + self.story.trains_s)
        assert not self.fleet.incidents(), "it has to begin in peace"
        self.points.counting = True
        self.story.fault(self.fleet, self.receiver)
        began, quiet_since, calls = self.heap.now, self.heap.now, -1
        while self.heap.now - began < self.story.limit_s:
            self._until(self.heap.now + EVERY_S)
            self.story.goes_on(self.fleet, self.receiver)
            if calls != len(self.points.calls) or self._unsettled():
                calls, quiet_since = len(self.points.calls), self.heap.now
            if self.heap.now - quiet_since >= QUIET_S and not self.wrong():
                break
        self.came = self.wrong()
        for monitor in self.monitors:
            monitor.host.program.close()
        return self

    def _unsettled(self) -> bool:
        return any(monitor.host.program.paused for monitor in self.monitors)

    def _until(self, when: float) -> None:
        while self.heap.step(when):
            pass

    def wrong(self) -> list[str]:
        """Everything that is not as the story must end."""
        story, fleet = self.story, self.fleet
        found = [f"{monitor.name}: {text}" for monitor in self.monitors for text in monitor.failures()]
        restarts = tuple(order.round for order in fleet.ordered("restart") if order.run_uid == UID)
        book = [i for i in fleet.incidents() if i.klass not in story.besides]
        incidents = sorted((i.klass, i.action, i.outcome) for i in book)
        effects = tuple(sorted(self.receiver.events(but=story.besides)))
        for what, is_, must in (
            ("restart orders of rounds", restarts, story.restarts),
            ("kill orders", len(fleet.ordered("kill")), story.kills),
            ("incidents", incidents, sorted(story.incidents)),
            ("effects", effects, story.told),
            ("ledger entries", sorted(self._entered()), sorted(i.id for i in fleet.incidents() if i.state == "closed")),
            ("decisions told more than once", [d for d, n in self.receiver.decisions().items() if n > 1], []),
        ):
            if is_ != must:
                found.append(f"{what}: {is_}, not {must}")
        if not found and not story.holds(fleet):
            found.append("what the story asks for does not hold")
        return found

    def _entered(self) -> list[str]:
        """The incident of each entry that was ever written to the ledger."""
        return [key.rsplit("/", 1)[-1][14:] for key, _ in self.fleet.written(f"{self.fleet.keys.ledger()}entries/")]


class Came(NamedTuple):
    """What came of one play: where it was hit and how, what was wrong with it, how often an event was sent at most."""

    standby: bool
    call: int
    way: str
    what: str
    wrong: list[str]
    sent: int

    def __str__(self) -> str:
        who = "with a standby" if self.standby else "alone"
        return f"{who}, {self.way or 'not hit'}, call {self.call} ({self.what}): {'; '.join(self.wrong)}"


DEATHS: Final = (KILLED_BEFORE, KILLED_AFTER)
SILENCES: Final = (LOST_DONE, LOST, LATE)
PAUSES: Final = (PAUSED_BEFORE, PAUSED_AFTER)  # what is paused comes back: only where another takes over is it a matter


def explore(story: Story, *, standby: bool, every: int = 1, first: int = 0) -> Iterator[Came]:
    """All plays of a story; last the one that is not hit. `every`: only one in so many, from the `first` on."""
    came, count = list[Came](), 0
    ways = (*DEATHS, *SILENCES, *(PAUSES if standby else ()))

    def ask(call: int) -> str:
        nonlocal count
        for way in ways:
            count += 1
            if (count + first) % every:
                continue
            reading, writing = os.pipe()
            if not (child := fork()):
                os.close(reading)
                told.append(writing)
                return way
            os.close(writing)
            with open(reading, "rb") as pipe:
                came.append(Came(standby, call, way, *json.loads(pipe.read() or b'["?", ["the play broke off"], 0]')))
            os.waitpid(child, 0)
        return ""

    told: list[int] = []
    try:
        play = Play(story, ask, standby=standby).run()
        result: Any = play.points.was_hit, play.came, max(play.receiver.raw.values(), default=0)
        if not told:
            yield from came
            yield Came(standby, len(play.points.calls), "", *result)
            return
        os.write(told[0], json.dumps(result).encode())
    finally:
        if told:
            os._exit(0)
