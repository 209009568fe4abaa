"""Monitors of a story: everything but the machine and the network is real. And the webhook target that they tell."""

import ssl
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any, Final

import msgspec
from points import Host, Line, Points

from rankpulse.core import events as ev
from rankpulse.core import payloads
from rankpulse.core.keys import Keys
from rankpulse.core.settings import Settings
from rankpulse.drills.sim.clockwork import Heap
from rankpulse.drills.sim.watcher import Eyes, Look, Looks
from rankpulse.monitor.canary import Canary
from rankpulse.monitor.clock import Clock
from rankpulse.monitor.election import Election
from rankpulse.monitor.executor import Executor
from rankpulse.monitor.loop import Loop
from rankpulse.monitor.translate import Translator
from rankpulse.monitor.vitals import Vitals
from rankpulse.monitor.webhook import Answer, Postman, _answer
from rankpulse.store.memory import MemoryStore

UTC: Final = 1_800_000_000.0


class Receiver:
    """Takes an effect once per `webhook-id`, as the convention asks; `status` is what it answers by now."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.status: Callable[[float], int] = lambda _now: 200
        self.raw: Counter[str] = Counter()  # by id, of requests that it took
        self.refused = 0
        self.effects: dict[str, dict[str, Any]] = {}
        self.took: Callable[[dict[str, Any]], None] = lambda _event: None

    def take(self, sending: payloads.Sending) -> int:
        status = self.status(self._now())
        if status != 200:
            self.refused += 1
            return status
        id_, event = sending.headers["webhook-id"], msgspec.json.decode(sending.body)
        self.raw[id_] += 1
        if id_ not in self.effects:
            self.effects[id_] = event
            self.took(event)
        return status

    def events(self, but: tuple[str, ...] = ()) -> list[str]:
        """What had an effect, `but` for incidents of these classes."""
        told = [event["data"] for event in self.effects.values()]
        return [data["event"] for data in told if data["class"] not in but]

    def decisions(self) -> Counter[str]:
        """How many effects each decision had."""
        return Counter(event["data"]["decision"] for event in self.effects.values())


class _Post(Postman):
    """The real one, but for the connection itself."""

    host: Host
    receiver: Receiver

    async def _exchange(self, sending: payloads.Sending, context: ssl.SSLContext | bool) -> Answer:
        async def work() -> Answer:
            return _answer(self.receiver.take(sending), b"", "")

        lost = Answer(ev.FAILED, "no answer within 3 s")
        return await self.host.call(f"post {sending.headers['webhook-id']}", work, lambda: lost)


class Monitor:
    """One process."""

    def __init__(
        self,
        name: str,
        heap: Heap,
        memory: MemoryStore,
        settings: Settings,
        points: Points,
        *,
        look: Look,
        receiver: Receiver,
        died: Callable[[], None],
    ) -> None:
        self.name, keys, vitals = name, Keys(settings.cluster), Vitals()
        seed = sum(name.encode())
        offset_s = 1000.0 * seed
        clock = Clock(now=lambda: heap.now + offset_s, utc=lambda: UTC + heap.now)
        self.host = Host(heap, points, died)
        self.eyes = Eyes(name, settings, keys, offset_s)
        line, token = Line(memory, self.host), f"token of {name}".encode()
        canary = Canary(line, keys.canary(name), token, clock)  # type: ignore[arg-type]
        ttl_s = settings.monitor.lease_ttl_s
        election = Election(line, keys, name=name, url="", ttl_s=ttl_s, clock=clock, rng=Random(seed))  # type: ignore[arg-type]
        postman = _Post(
            settings.webhook, lambda posted: self.loop.hear(posted), leads=lambda: election.term() is not None,
            clock=clock, vitals=vitals,
        )  # fmt: skip
        postman.host, postman.receiver = self.host, receiver
        self.loop = Loop(
            self.eyes, line, keys, settings, election=election, executor=Executor(line, keys, election, vitals),  # type: ignore[arg-type]
            canary=canary, translator=Translator(keys, keys.canary(name), token), clock=clock, vitals=vitals,
            prober=Looks(look, lambda probed: self.loop.hear(probed), settings.probe.timeout_s, clock, vitals),
            postman=postman,
        )  # fmt: skip
        self.host.program.start([self.loop.run(), canary.run(), election.run()])

    def leads(self) -> bool:
        program = self.host.program
        return not program.dead and not program.paused and self.loop.office > 0

    def failures(self) -> list[str]:
        """Bugs of ours that came up in it."""
        failure = self.host.program.failure
        found = [text for text in self.eyes.failures if not text.startswith("the breaker opens")]
        return [*found, *([repr(failure)] if failure is not None else [])]
