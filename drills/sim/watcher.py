"""A monitor of the simulation: its loop, election, executor, prober, canary and engine are the real ones."""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any, Final, NamedTuple

from rankpulse.core import codec
from rankpulse.core import events as ev
from rankpulse.core import records as r
from rankpulse.core.engine import Engine
from rankpulse.core.keys import Keys
from rankpulse.core.settings import Settings
from rankpulse.drills.sim.clockwork import Heap, Program
from rankpulse.drills.sim.etcd import Etcd
from rankpulse.drills.sim.line import Line
from rankpulse.monitor.canary import Canary
from rankpulse.monitor.clock import Clock
from rankpulse.monitor.election import Election
from rankpulse.monitor.executor import Executor
from rankpulse.monitor.loop import Loop
from rankpulse.monitor.prober import Prober
from rankpulse.monitor.translate import Translator
from rankpulse.monitor.vitals import Vitals
from rankpulse.store.secret import Tokens

UTC: Final = 1_800_000_000.0
Seen = tuple[str, float, r.Beat | None]  # what a direct look comes to, after how many seconds
Look = Callable[[str], Seen]  # by node
LATE_S: Final = 0.5  # a look that ends so much later than it should was slept through


class Decision(NamedTuple):
    """What an engine knew when it wanted a record written."""

    at: float
    monitor: str
    blind: str
    epoch: int


class Eyes:
    """The engine as the loop sees it; what it decides, fails at and says is kept for the checkers."""

    def __init__(self, name: str, settings: Settings, keys: Keys, offset_s: float) -> None:
        self.engine = Engine(settings, keys)
        self.name, self._offset_s = name, offset_s
        self.failures: list[str] = []
        self.decided: dict[tuple[str, bytes], Decision] = {}
        self.said: list[str] = []

    def step(self, event: ev.Event) -> None:
        try:
            self.engine.step(event)
        except Exception as error:
            self.failures.append(f"step({type(event).__name__}): {error!r}")

    def tick(self, now: float, at: float) -> tuple[ev.Action, ...]:
        try:
            actions = self.engine.tick(now, at)
        except Exception as error:
            self.failures.append(f"tick: {error!r}")
            return ()
        for action in actions:
            self._keep(action, now)
        return actions

    def _keep(self, action: ev.Action, now: float) -> None:
        if isinstance(action, ev.Say):
            self.said.append(f"{action.level}: {action.text}")
            if action.level == "error":
                self.failures.append(action.text)
        elif isinstance(action, ev.Write | ev.Create) and isinstance(action.record, r.Incident | r.Order):
            blind = self.engine.sight.why_blind(now)
            self.decided[action.key, codec.encode(action.record)] = Decision(
                now - self._offset_s, self.name, blind, self.engine.epoch or 0
            )

    def snapshot(self, now: float) -> dict[str, Any]:
        return self.engine.snapshot(now)


class Looks(Prober):
    """The real prober, but for the connection itself: that is the simulated network's."""

    def __init__(
        self, look: Look, tell: Callable[[ev.Probed], None], timeout_s: float, clock: Clock, vitals: Vitals
    ) -> None:
        tokens = Tokens("", "probe.token_file", clock=clock.now, warn=lambda _text: None)
        super().__init__(tell, timeout_s=timeout_s, tokens=tokens, boot_id="", clock=clock, vitals=vitals)
        self._see = look

    async def _look(self, probe: ev.Probe) -> tuple[str, str, r.Beat | None]:
        if not probe.address:
            return ev.UNABLE, "no address", None
        began = self._clock.now()
        answer, wait_s, beat = self._see(probe.node)
        await asyncio.sleep(wait_s)
        if self._clock.now() - began > wait_s + LATE_S:
            return ev.UNABLE, "this monitor slept meanwhile", None
        return answer, answer, beat


class Monitor:
    """One process. Its monotonic clock begins somewhere; its UTC may jump."""

    def __init__(
        self, name: str, heap: Heap, etcd: Etcd, keys: Keys, settings: Settings, rng: Random, look: Look
    ) -> None:
        self.name, self.heap = name, heap
        self.program = Program(heap)  # type: ignore[abstract]
        self.offset_s = rng.uniform(100.0, 1e6)
        self.utc_off = 0.0
        clock = Clock(now=lambda: heap.now + self.offset_s, utc=lambda: UTC + heap.now + self.utc_off)
        self.eyes = Eyes(name, settings, keys, self.offset_s)
        token = b"%016x" % rng.getrandbits(64)
        line, vitals = Line(self.program, etcd, name, settings.store.timeout_s), Vitals()
        self.vitals = vitals
        self.canary = Canary(line, keys.canary(name), token, clock)
        ttl_s = settings.monitor.lease_ttl_s
        self.election = Election(
            line, keys, name=name, url="", ttl_s=ttl_s, clock=clock, rng=Random(rng.getrandbits(32))
        )
        prober = Looks(look, lambda probed: self.loop.hear(probed), settings.probe.timeout_s, clock, vitals)
        self.loop = Loop(
            self.eyes, line, keys, settings, election=self.election,
            executor=Executor(line, keys, self.election, vitals), canary=self.canary,
            translator=Translator(keys, keys.canary(name), token), clock=clock, vitals=vitals,
            prober=prober,
        )  # fmt: skip
        self.program.start([self.loop.run(), self.canary.run(), self.election.run()])

    def now(self) -> float:
        return self.heap.now + self.offset_s

    def leads(self) -> bool:
        return not self.program.dead and not self.program.paused and self.loop.office > 0

    def blind(self) -> str:
        return self.vitals.sight_lost or self.eyes.engine.sight.why_blind(self.now())
