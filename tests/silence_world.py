"""A world in which machines die, freeze and are cut off, and in which direct looks at them come to something."""

from dataclasses import dataclass, field, replace

from core_world import UTC, World

from rankpulse.core import events as ev
from rankpulse.core import records as r
from rankpulse.core.settings import Settings, preset

LOOK_S = 0.3  # until a look is answered
TIMEOUT_S = 1.0
LOST = "Connection closed by peer [10.0.0.2]:4242"

__all__ = ["LOST", "SilenceWorld", "replace", "settings", "trained"]


def settings(name: str = "fast", **detect: float) -> Settings:
    import msgspec

    chosen = preset(name)
    return msgspec.structs.replace(chosen, detect=msgspec.structs.replace(chosen.detect, **detect))


@dataclass
class SilenceWorld(World):
    """`machines`: what a look at a node comes to where it is not `answered`; nodes listed there send no beats."""

    settings: Settings = field(default_factory=settings)
    steps_per_beat: int = 1
    machines: dict[str, str] = field(default_factory=dict)  # node -> refused, accepted, silent, unable
    cut_off: set[str] = field(default_factory=set)  # beats do not come through, looks do
    racks: dict[str, str] = field(default_factory=dict)
    unreachable: bool = False  # no agent tells an address
    looks: list[tuple[float, ev.Probed]] = field(default_factory=list)
    gone: set[int] = field(default_factory=set)  # processes that ended with their machine

    def joins(self, nodes: dict[str, int]) -> None:
        """Nodes whose agents have told their state, and a round of theirs."""
        for node in nodes:
            self.states(node)
        self.meets(nodes, 1)

    def states(self, node: str) -> None:
        state = r.NodeState(
            node=node, inc=self.inc.setdefault(node, 1), at=UTC, host=node, agent_version="1", interval_s=1.0,
            probe="" if self.unreachable else f"10.0.0.1:{9465}", rack=self.racks.get(node, ""), boot_id=f"boot-{node}",
        )  # fmt: skip
        self.put(self.keys.state(node), state)

    def die(self, *nodes: str) -> None:
        """Without a word. The job waits for them."""
        for node in nodes:
            self.machines[node] = ev.SILENT
            self.silent.add(node)
        self.training = False

    def thaw(self, *nodes: str) -> None:
        """It was only frozen."""
        for node in nodes:
            self.machines.pop(node, None)
            self.silent.discard(node)
        self.training = True

    def cut(self, *nodes: str) -> None:
        self.cut_off.update(nodes)
        self.silent.update(nodes)

    def tick(self) -> None:
        due = [event for at, event in self.looks if at <= self.now]
        self.looks = [(at, event) for at, event in self.looks if at > self.now]
        for event in due:
            self.engine.step(event._replace(received_at=self.now))
        asked = len(self.probes)
        super().tick()
        for probe in self.probes[asked:]:
            answer = self.machines.get(probe.node, ev.ANSWERED)
            took = TIMEOUT_S if answer in (ev.SILENT, ev.ACCEPTED) else LOOK_S
            beat = self.told(probe.node) if answer == ev.ANSWERED else None
            self.looks.append((self.now + took, ev.Probed(probe.node, probe.number, answer, beat, "", 0.0)))

    def told(self, node: str) -> r.Beat:
        """The present beat of its agent, as it tells it to who looks."""
        held: list[ev.Event] = []
        step, self.engine.step = self.engine.step, held.append  # type: ignore[method-assign]
        stored, revision = dict(self.store), self.revision
        self.beat(node)
        self.store, self.revision = stored, revision
        self.engine.step = step  # type: ignore[method-assign]
        event = held[-1]
        assert isinstance(event, ev.Seen)
        assert isinstance(event.record, r.Beat)
        return event.record

    def state_of(self, node: str) -> str:
        return str(self.engine.snapshot(self.now)["nodes"][node]["suspicion"]["state"])

    def klasses(self) -> list[str]:
        return [incident.klass for incident in self.incidents()]

    def until(self, seconds: float, klass: str, *, step_s: float = 0.1) -> float | None:
        """Run until an incident of this class stands, at most so long; how long that took."""
        began = self.now
        while self.now - began < seconds:
            self.run(step_s, step_s=step_s)
            if klass in self.klasses():
                return self.now - began
        return None


def trained(count: int, *, racks: int = 0) -> SilenceWorld:
    """A job over all nodes; `racks`: nodes per rack."""
    nodes = {f"n{number}": 1 for number in range(count)}
    world = SilenceWorld(racks={name: f"rack-{int(name[1:]) // racks}" for name in nodes} if racks else {})
    world.arm()
    launch = r.Launch(run_uid="job-1", label="job", owner=1, min_nodes=1, max_nodes=count, at=0.0)
    world.put(world.keys.launch("job-1"), launch)
    world.joins(nodes)
    world.run(30)
    assert world.incidents() == []
    return world
