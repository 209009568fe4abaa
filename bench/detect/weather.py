"""What lies between the monitor and the nodes: the store's writes, the monitor's own pauses, and direct looks.

Direct looks fail as the network does. An agent that stalls does not answer, though its machine takes the connection; a
frozen, dead or cut off machine says nothing; in a burst of loss each packet is lost with 60 %, and TCP tries again.
"""

import bisect
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rankpulse.bench.detect import parameters as z
from rankpulse.bench.detect.job import Death
from rankpulse.bench.detect.senders import stalls
from rankpulse.bench.detect.trace import Day, Spans, draw, union
from rankpulse.core import events as ev

Lost = npt.NDArray[np.bool_]
RTT: Final = z.Lognormal(0.0004, 0.5)
ANSWER: Final = z.Lognormal(0.002, 0.6)  # what an agent needs to make its beat and say it
SYN_AGAIN_S: Final = (0.0, 1.0, 3.0)  # after the first, as Linux does
DATA_AGAIN_S: Final = (0.0, 0.2, 0.6, 1.4)
MOMENT_S: Final = 0.05  # within which the network does not change its mind
OVERSLEPT: Final = 1.5  # times the time allowed, as in monitor/look.py: then the look tells nothing


class Held:
    """Spans apart from each other, asked in any order."""

    def __init__(self, spans: Spans) -> None:
        self._pairs = union(spans).pairs() if len(spans) else []
        self._starts = [start for start, _ in self._pairs]

    def until(self, at: float) -> float:
        """The end of the span that `at` lies in, else `at`."""
        i = bisect.bisect_right(self._starts, at) - 1
        return self._pairs[i][1] if i >= 0 and at < self._pairs[i][1] else at

    def within(self, at: float) -> bool:
        return self.until(at) > at


class Seen(NamedTuple):
    """What a direct look comes to, and when. `said_at`: the moment of which the agent speaks, of an answer."""

    answer: str
    at: float
    said_at: float


class Looks:
    """Answers to direct looks on one day."""

    def __init__(self, day: Day, death: Death | None, timeout_s: float) -> None:
        self._day, self._death, self._timeout_s = day, death, timeout_s
        self._observer, self._regimes = Held(day.observer), Held(day.regimes)
        self._racks = [Held(day.racks.at(rack)) for rack in range(day.nodes // z.NODES_PER_RACK)]
        self._agents: dict[int, Held] = {}
        self._bursts: dict[int, list[tuple[float, float, Lost]]] = {}

    def look(self, node: int, at: float) -> Seen:
        """A look that begins at `at`."""
        seen = self._asked(node, at)
        back = self._observer.until(seen.at)
        if back - at > OVERSLEPT * self._timeout_s + 0.1:
            return Seen(ev.UNABLE, back, at)
        return seen._replace(at=back)

    def _asked(self, node: int, at: float) -> Seen:
        ends = at + self._timeout_s
        rng = self._day.rng("look", node, round(at / MOMENT_S))
        rtt = float(draw(rng, RTT, 1)[0])
        if self._regimes.within(at):
            rtt += float(draw(rng, z.TRACE_Z["jitter_regime"].size, 1)[0])
        taken = self._through(node, at, SYN_AGAIN_S, rtt, machine=True)
        if taken > ends:
            return Seen(ev.SILENT, ends, at)
        said_at = self._agent(node).until(taken) + float(draw(rng, ANSWER, 1)[0])
        heard = self._through(node, max(taken, said_at - rtt), DATA_AGAIN_S, rtt, machine=False)
        if max(heard, said_at) > ends or self._gone(node, said_at):
            return Seen(ev.ACCEPTED, ends, at)
        return Seen(ev.ANSWERED, max(heard, said_at), said_at)

    def _through(self, node: int, at: float, tries: tuple[float, ...], rtt: float, *, machine: bool) -> float:
        """When a packet and what answers it have both passed; infinity: never."""
        for after in tries:
            sent = at + after
            if self._gone(node, sent) or self._racks[node // z.NODES_PER_RACK].within(sent):
                continue
            if machine and self._frozen(node, sent):
                continue
            if not self._lost(node, sent):
                return sent + rtt
        return float("inf")

    def _gone(self, node: int, at: float) -> bool:
        return self._death is not None and node in self._death.nodes and at >= self._death.at

    def _frozen(self, node: int, at: float) -> bool:
        mine = self._day.freezes.at(node)
        return bool(np.any((mine.start <= at) & (at < mine.end)))

    def _agent(self, node: int) -> Held:
        """When the agent of this node does nothing: the same stalls as those of its beats."""
        if node not in self._agents:
            idle = union(stalls(self._day, "node", node), self._day.freezes.at(node))
            self._agents[node] = Held(idle)
        return self._agents[node]

    def _lost(self, node: int, at: float) -> bool:
        """Whether a burst takes the packet or its answer: each moment of it lets each direction pass or does not."""
        if node not in self._bursts:
            self._bursts[node] = [(a, b, self._losses(node, a, b)) for a, b in self._day.bursts.at(node).pairs()]
        return any(a <= at < b and bool(lost[int((at - a) / MOMENT_S)]) for a, b, lost in self._bursts[node])

    def _losses(self, node: int, start: float, end: float) -> Lost:
        count = int((end - start) / MOMENT_S) + 1
        drawn = self._day.rng("loss", node, start).random((count, 2)) < z.BURST_LOSS
        return np.asarray(drawn.any(axis=1))


class StorePath:
    """The monitor's own writes and its watch."""

    def __init__(self, day: Day) -> None:
        self.down, self._rng = Held(day.store), day.rng("own writes")

    def written(self, at: float) -> float:
        """When a write that begins then is done, and seen through the watch."""
        return self.down.until(at) + float(draw(self._rng, z.PUT, 1)[0])
