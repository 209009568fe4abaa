"""An agent of the simulation: the real builders of beats and observations, and the publisher's rules on a heap.

What it tells is made by `agent.facts`, as in a real agent; when it tells it follows `agent.publish` (absolute
schedule, fenced by the claim, observations created once and kept until the store has them).
"""

from collections import deque
from collections.abc import Callable, Iterable
from random import Random
from typing import Any, Final

from rankpulse.agent.facts import Fact, Reading, build_beat
from rankpulse.agent.presence import presence_ttl_s
from rankpulse.agent.publish import next_due
from rankpulse.core import codec
from rankpulse.core import records as r
from rankpulse.core.keys import Keys
from rankpulse.drills.sim.etcd import Etcd
from rankpulse.drills.sim.machine import Machine
from rankpulse.store.api import Guard, Lease, LeaseLost, Put, StoreError
from rankpulse.store.memory import MemoryStore

UTC: Final = 1_800_000_000.0
BEAT_TTL_S: Final = 30.0


class Sidecar:
    """One per machine. `readings`: its ranks as they are now."""

    def __init__(
        self,
        machine: Machine,
        etcd: Etcd,
        keys: Keys,
        rng: Random,
        interval_s: float,
        readings: Callable[[], Iterable[Reading]],
    ) -> None:
        self.machine, self.node, self._etcd, self._keys, self._rng = machine, machine.name, etcd, keys, rng
        self._interval_s, self._readings = interval_s, readings
        self.inc = self.seq = 0
        self._obs_seq = 0
        self._claim = 0  # its revision
        self._lease: Lease | None = None
        self._presence: Lease | None = None
        self._renewed_at = 0.0
        self._outbox: deque[r.Observation] = deque()
        self._unnumbered: list[Fact] = []
        self._sending = False
        self.started: Callable[[], None] = lambda: None  # it speaks for the node from now on

    def utc(self) -> float:
        return UTC + self._etcd.heap.now + self.machine.utc_off

    # --- lives

    def start(self) -> None:
        """A new incarnation, as soon as the store takes its claim. What the one before could not send is sent."""
        self.machine.life += 1
        self.machine.agent_up = True
        self._claim, self._lease, self._presence, self._sending = 0, None, None, False
        self._claim_name()

    def wipe(self) -> None:
        """The machine is gone, and with it what lay in its memory."""
        self._outbox.clear()
        self._unnumbered.clear()

    def _call(self, work: Callable[[MemoryStore], Any], done: Callable[[Any, StoreError | None], None]) -> None:
        life = self.machine.life

        def known(value: Any, error: StoreError | None, at: float) -> None:
            self.machine.agent_at(life, at, done, value, error)

        self._etcd.call(self.node, work, known)

    def _claim_name(self) -> None:
        key, token = self._keys.claim(self.node), f"{self.machine.boot}.{self.machine.life}"

        async def claim(store: MemoryStore) -> tuple[int, int]:
            item = await store.get(key)
            held = codec.decode(r.AgentClaim, item.value) if item else None
            if held is not None and held.token == token and item is not None:
                return held.inc, item.modified
            inc = max(held.inc if held else 0, self.inc) + 1
            record = r.AgentClaim(
                node=self.node, inc=inc, token=token, host=self.node, pid=1, boot_id=self.boot_id, at=self.utc()
            )
            return inc, await store.put(key, codec.encode(record))

        def claimed(value: Any, error: StoreError | None) -> None:
            if error is not None:
                self.machine.agent_after(self._rng.uniform(0.1, 2.0), self._claim_name)
                return
            self._speak(*value)

        self._call(claim, claimed)

    @property
    def boot_id(self) -> str:
        return f"{self.node}-boot{self.machine.boot}"

    def _speak(self, inc: int, revision: int) -> None:
        if inc != self.inc:
            self.inc, self.seq, self._obs_seq = inc, 0, 0
        self._claim = revision
        facts, self._unnumbered = self._unnumbered, []
        self.emit(Fact(r.AGENT_STARTED))
        for fact in facts:
            self.emit(fact)
        self._tell_state()
        self._keep_presence()
        self._beat(self._etcd.heap.now + self._rng.uniform(0.0, self._interval_s))
        self.started()

    def _tell_state(self) -> None:
        state = r.NodeState(
            node=self.node, inc=self.inc, at=self.utc(), host=self.node, agent_version="sim",
            interval_s=self._interval_s, probe=f"{self.node}:9466", rack=self.machine.rack, boot_id=self.boot_id,
        )  # fmt: skip
        guards, puts = (
            [Guard(self._keys.claim(self.node), self._claim)],
            [Put(self._keys.state(self.node), codec.encode(state))],
        )

        def told(_value: Any, error: StoreError | None) -> None:
            if error is not None:
                self.machine.agent_after(self._interval_s, self._tell_state)

        self._call(lambda store: store.txn(guards, puts), told)

    # --- beats

    def beat(self) -> r.Beat:
        """As it is now; also what a direct look is answered with."""
        return build_beat(self.node, self.inc, self.seq, self.utc(), self._readings())

    def _beat(self, due: float) -> None:
        now = self._etcd.heap.now
        if now < due:
            self.machine.agent_at(self.machine.life, due, self._beat, due)
            return
        self.seq += 1
        life, key, data = self.machine.life, self._keys.beat(self.node), codec.encode(self.beat())
        guards = [Guard(self._keys.claim(self.node), self._claim)]

        async def put(store: MemoryStore) -> bool:
            if self._lease is None:
                self._lease = await store.grant(BEAT_TTL_S)
                self._renewed_at = now
            elif now - self._renewed_at >= BEAT_TTL_S / 3:
                await store.keep_alive(self._lease)
                self._renewed_at = now
            return (await store.txn(guards, [Put(key, data, self._lease.id)])).done

        def known(_value: Any, error: StoreError | None, at: float) -> None:
            if life != self.machine.life:
                return
            if isinstance(error, LeaseLost):
                self._lease = None
                self.machine.agent_at(life, at, self._beat, at)
                return
            following = next_due(due, at, self._interval_s)
            self.machine.agent_at(life, max(following, at), self._beat, following)

        self._etcd.call(self.node, put, known)

    def _keep_presence(self) -> None:
        key, ttl_s = self._keys.presence(self.node), presence_ttl_s(self._interval_s)
        record = codec.encode(r.Presence(node=self.node, inc=self.inc, at=self.utc()))

        async def keep(store: MemoryStore) -> None:
            if self._presence is not None:
                try:
                    await store.keep_alive(self._presence)
                    return
                except LeaseLost:
                    self._presence = None
            lease = await store.grant(ttl_s)
            await store.put(key, record, lease=lease.id)
            self._presence = lease

        def kept(_value: Any, error: StoreError | None) -> None:
            self.machine.agent_after(0.5 if error else ttl_s / 4, self._keep_presence)

        self._call(keep, kept)

    # --- observations

    def emit(self, fact: Fact) -> None:
        """Sent at once, and kept until the store has it."""
        if not self._claim:
            self._unnumbered.append(fact)
            return
        self._obs_seq += 1
        self._outbox.append(fact.observe(self.node, self.inc, self._obs_seq, self.utc()))
        if not self._sending:
            self._send()

    def _send(self) -> None:
        if not self._outbox:
            self._sending = False
            return
        self._sending = True
        obs = self._outbox[0]
        key, data = self._keys.obs(obs.node, obs.inc, obs.seq), codec.encode(obs)

        def sent(_value: Any, error: StoreError | None) -> None:
            if error is not None:
                self.machine.agent_after(self._rng.uniform(0.1, 2.0), self._send)
                return
            if self._outbox and self._outbox[0] is obs:
                self._outbox.popleft()
            self._send()

        self._call(lambda store: store.txn([Guard(key, 0)], [Put(key, data)]), sent)
