"""A monitor's parts on a virtual clock and a store in memory, and an engine that does as it is told."""

from random import Random
from typing import Any

from rankpulse.core import events, records
from rankpulse.core.events import Action, Event
from rankpulse.core.keys import Keys
from rankpulse.core.settings import Settings, preset
from rankpulse.monitor.canary import Canary
from rankpulse.monitor.clock import Clock
from rankpulse.monitor.election import Election
from rankpulse.monitor.executor import Executor
from rankpulse.monitor.loop import Loop
from rankpulse.monitor.translate import Translator
from rankpulse.monitor.vitals import Vitals
from rankpulse.store.memory import MemoryStore

KEYS = Keys("c")
ORDER_KEY = KEYS.order("run", 1, "restart")


def order(author: str = "m1") -> records.Order:
    return records.Order(
        order_id="o1",
        run_uid="run",
        run_id="run",
        round=1,
        kind="restart",
        epoch=1,
        incident="i1",
        reason="test",
        author=author,
        at=0.0,
    )


def create(author: str = "m1") -> events.Create:
    return events.Create(ORDER_KEY, order(author), "test")


def arm(reason: str = "test") -> events.Write:
    return events.Write(KEYS.arm(), records.Arm(armed=True, author="a", reason=reason, at=0.0), "test")


class Time:
    """Seconds that pass only when told to; a monitor may have one of its own and be paused in it."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds

    def clock(self) -> Clock:
        return Clock(now=self, utc=lambda: 1.7e9 + self.seconds)


class PuppetEngine:
    """Folds nothing; a tick returns what the test put into `plans`, once, if it was told that it leads."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.ticks: list[float] = []
        self.plans: list[tuple[Action, ...]] = []
        self.always: tuple[Action, ...] = ()

    def step(self, event: Event) -> None:
        self.events.append(event)

    def tick(self, now: float, at: float) -> tuple[Action, ...]:
        self.ticks.append(now)
        return self.plans.pop(0) if self.plans else self.always

    def snapshot(self, now: float) -> dict[str, Any]:
        return {"blind": ""}

    def songs(self) -> int:
        return sum(isinstance(event, events.CanarySeen) for event in self.events)

    def names(self) -> list[str]:
        """What was folded, without the canary's songs."""
        return [type(event).__name__ for event in self.events if not isinstance(event, events.CanarySeen)]


class Bench:
    """One monitor, its parts in reach."""

    def __init__(self, store: MemoryStore, time: Time, name: str = "m1", settings: Settings | None = None) -> None:
        settings = settings or preset("drill")
        self.store, self.time, self.name = store, time, name
        self.engine, self.vitals = PuppetEngine(), Vitals()
        clock, token = time.clock(), name.encode()
        self.election = Election(
            store, KEYS, name=name, url="", ttl_s=settings.monitor.lease_ttl_s, clock=clock, rng=Random(1)
        )
        self.executor = Executor(store, KEYS, self.election, self.vitals)
        self.canary = Canary(store, KEYS.canary(name), token, clock)
        self.loop = Loop(
            self.engine,
            store,
            KEYS,
            settings,
            election=self.election,
            executor=self.executor,
            canary=self.canary,
            translator=Translator(KEYS, KEYS.canary(name), token),
            clock=clock,
            vitals=self.vitals,
        )
