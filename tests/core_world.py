"""A fleet on a virtual clock: tells the engine a story, record by record, and keeps what it answers.

The store is played by the world: what a tick wants written is stored and echoed back, as the watch would.
"""

from dataclasses import dataclass, field
from typing import Any

import msgspec

from rankpulse.core import codec
from rankpulse.core import events as ev
from rankpulse.core import records as r
from rankpulse.core.engine import Engine
from rankpulse.core.evidence import Position, Row
from rankpulse.core.keys import Keys
from rankpulse.core.settings import Settings, preset

DRILL = preset("drill")
UTC = 1_800_000_000.0
FINE_S, COARSE_S = 20.0, 0.5  # of a long time, so much tick by tick; how far apart ticks are in the rest


@dataclass
class Proc:
    """A worker process of the story."""

    rank: int
    node: str
    local_rank: int
    pid: int
    start: int
    row: r.RunRow
    step: int = -1
    first_step: int = -1
    phase: str = "train"
    state: str = "S"
    alive: bool = True


@dataclass
class World:
    settings: Settings = DRILL
    now: float = 1000.0
    revision: int = 10
    store: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    procs: list[Proc] = field(default_factory=list)
    inc: dict[str, int] = field(default_factory=dict)
    seq: dict[str, int] = field(default_factory=dict)
    silent: set[str] = field(default_factory=set)
    pid: int = 100
    said: list[str] = field(default_factory=list)
    actions: list[ev.Action] = field(default_factory=list)
    probes: list[ev.Probe] = field(default_factory=list)
    posts: list[ev.Post] = field(default_factory=list)
    questions: list[ev.Ask] = field(default_factory=list)
    diagnoses: list[ev.Diagnose] = field(default_factory=list)
    canary: bool = True
    refuse_writes: bool = False
    training: bool = True
    steps_per_beat: int = 3
    launchers: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.keys = Keys("story")
        self.engine = Engine(self.settings, self.keys)
        self.engine.step(ev.Relisted(self.revision, self.now))
        self.engine.step(ev.SightBack(self.now))
        self.engine.step(ev.TookOffice(1, self.now))

    # --- the store

    def put(self, key: str, record: r.Record) -> None:
        self.revision += 1
        data = codec.encode(record)
        self.store[key] = (data, self.revision)
        parsed = self.keys.parse(key)
        assert parsed is not None, key
        self.engine.step(ev.Seen(key, codec.decode_at(parsed, data), self.revision, self.now))

    def erase(self, key: str) -> None:
        self.revision += 1
        if self.store.pop(key, None) is not None:
            self.engine.step(ev.Gone(key, self.revision, self.now))

    def apply(self, action: ev.Action) -> None:
        self.actions.append(action)
        if isinstance(action, ev.Say):
            self.said.append(action.text)
        elif isinstance(action, ev.Probe):
            self.probes.append(action)
        elif isinstance(action, ev.Post):
            self.posts.append(action)
        elif isinstance(action, ev.Ask):
            self.questions.append(action)
        elif isinstance(action, ev.Diagnose):
            self.diagnoses.append(action)
        elif self.refuse_writes:
            pass
        elif isinstance(action, ev.Erase):
            self.erase(action.key)
        elif isinstance(action, ev.Create) and action.key in self.store:
            pass
        else:
            self.put(action.key, action.record)

    def successor(self, epoch: int) -> None:
        """The monitor dies; another reads the store from the start and takes office."""
        self.engine = Engine(self.settings, self.keys)
        self.relist()
        self.engine.step(ev.SightBack(self.now))
        self.engine.step(ev.TookOffice(epoch, self.now))

    def relist(self) -> None:
        """The store is listed anew, in the order in which it was written."""
        self.engine.step(ev.Relisted(self.revision, self.now))
        for key, (data, revision) in sorted(self.store.items(), key=lambda item: item[1][1]):
            parsed = self.keys.parse(key)
            assert parsed is not None
            self.engine.step(ev.Seen(key, codec.decode_at(parsed, data), revision, self.now))

    # --- the job

    def launch(
        self,
        nodes: dict[str, int],
        *,
        meeting: str,
        run_id: str = "none",
        elastic: bool = True,
        launchers: dict[str, str] | None = None,
        first_step: int = 1,
    ) -> list[Proc]:
        """A round: `nodes` gives workers per node. Returns its processes, in rank order."""
        world_size, made = sum(nodes.values()), []
        for node, count in nodes.items():
            launcher = (launchers or {}).get(node, f"{node}-torchrun")
            row = r.RunRow(run_id, meeting, launcher, world_size, elastic)
            for local in range(count):
                self.pid += 1
                made.append(Proc(len(made), node, local, self.pid, self.pid * 7, row, step=first_step - 1))
        self.procs = [p for p in self.procs if p.alive] + made
        return made

    def beat(self, node: str) -> None:
        mine = [p for p in self.procs if p.node == node and p.alive]
        runs = list(dict.fromkeys(p.row for p in mine))
        phases = list(dict.fromkeys(p.phase for p in mine))
        self.seq[node] = self.seq.get(node, 0) + 1
        rows = tuple(
            r.RankRow(
                runs.index(p.row),
                p.rank,
                p.local_rank,
                p.pid,
                p.start,
                p.state,
                phases.index(p.phase),
                p.step,
                p.first_step,
            )
            for p in mine
        )
        beat = r.Beat(
            node=node, inc=self.inc.setdefault(node, 1), seq=self.seq[node], at=UTC + self.now,
            runs=tuple(runs), phases=tuple(phases), ranks=rows,
        )  # fmt: skip
        self.put(self.keys.beat(node), beat)

    def observe(self, kind: str, node: str, proc: Proc | None = None, /, **detail: Any) -> str:
        seq = self.seq[f"obs-{node}"] = self.seq.get(f"obs-{node}", 0) + 1
        inc = self.inc.setdefault(node, 1)
        obs = r.Observation(
            node=node, inc=inc, seq=seq, at=UTC + self.now, kind=kind, detail=detail,
            **({} if proc is None else {
                "run": proc.row, "rank": proc.rank, "local_rank": proc.local_rank, "pid": proc.pid, "start": proc.start,
            }),
        )  # fmt: skip
        key = self.keys.obs(node, inc, seq)
        self.put(key, obs)
        return key

    def ends(self, proc: Proc, **detail: Any) -> None:
        proc.alive = False
        full = {"code": None, "signal": None, "closed": False, "error": "", "message": "", "order_id": ""} | detail
        self.observe(r.WORKER_EXITED, proc.node, proc, **full)

    def launcher_ends(self, proc: Proc, code: int | None = 1) -> None:
        self.observe(r.LAUNCHER_EXITED, proc.node, proc, code=code, signal=None)

    # --- the rendezvous

    def torchrun(
        self, node: str, join: int, *, uid: str = "job-1", left: str = "", outcome: str = "", refused: str = ""
    ) -> None:
        """The word of one torchrun, as its agent writes it."""
        joiner = r.Joiner(
            run_uid=uid, node=node, launcher=self.launcher(node), join=join, after=join - 1, address="10.0.0.1",
            port=29400, at=UTC + self.now, left=left, outcome=outcome, refused=refused,
        )  # fmt: skip
        self.put(self.keys.joiner(uid, node, self.launcher(node)), joiner)

    def launcher(self, node: str) -> str:
        return f"{self.launchers.setdefault(node, 9000 + len(self.launchers))}.77"

    def lists(self, uid: str = "job-1", *, closed: str = "", outcome: str = "", nodes: int = 2) -> None:
        """The launch, open or closed."""
        launch = r.Launch(
            run_uid=uid, label="job", owner=1000, min_nodes=1, max_nodes=nodes, at=UTC, closed=closed, outcome=outcome
        )
        self.put(self.keys.launch(uid), launch)

    def asks(self, nodes: dict[str, int] | list[str], round_: int, uid: str = "job-1") -> None:
        """Torchruns ask for this round, the launch is made if it is the first."""
        if self.keys.launch(uid) not in self.store:
            self.lists(uid, nodes=len(nodes))
        for node in nodes:
            self.torchrun(node, round_, uid=uid)

    def meets(
        self,
        nodes: dict[str, int],
        round_: int,
        *,
        uid: str = "job-1",
        first_step: int = 1,
        asks: bool = True,
        before: tuple[int, int] = (-1, 0),
    ) -> list[Proc]:
        """A round of our rendezvous: torchruns ask, meet, and start their workers. `before`: limit and its round."""
        if asks:
            self.asks(nodes, round_, uid)
        places = tuple(r.Place(node, self.launcher(node), round_) for node in nodes)
        meeting = r.Meeting(
            run_uid=uid, round=round_, places=places, address="10.0.0.1", port=29400, at=UTC + self.now, reason="all",
            resume_before_step=before[0], resume_before_round=before[1],
        )  # fmt: skip
        self.put(self.keys.meeting(uid, round_), meeting)
        launchers = {node: self.launcher(node) for node in nodes}
        made = self.launch(nodes, meeting=f"{uid}-{round_}", run_id="job", launchers=launchers, first_step=first_step)
        for proc in made:
            proc.row = r.RunRow("job", f"{uid}-{round_}", launchers[proc.node], len(made), True, uid, round_)
        return made

    def leaves(self, node: str, outcome: str, reason: str = "", *, round_: int = 1, uid: str = "job-1") -> None:
        """A torchrun takes no part any more; one that finished or failed closes the launch."""
        self.torchrun(node, round_, uid=uid, left=reason or outcome, outcome=outcome)
        launch = codec.decode(r.Launch, self.store[self.keys.launch(uid)][0])
        if outcome in ("finished", "failed") and not launch.closed:
            self.lists(uid, closed=f"{node}: {reason or outcome}", outcome=outcome)

    def answers(
        self, order: r.Order, node: str, positions: dict[int, tuple[Position, ...]] | None = None, **change: Any
    ) -> str:
        """A node tells what its ranks do. `positions` by rank."""
        rows = [
            Row(p.rank, p.pid, p.start, p.state, "futex", False, "ok", (positions or {}).get(p.rank, ()))
            for p in self.procs
            if p.node == node and p.alive
        ]
        text = msgspec.json.encode(rows).decode()
        return self.observe(r.EVIDENCE, node, **{"order_id": order.order_id, "rows": text, **change})

    # --- time

    def run(self, seconds: float, *, step_s: float = 0.1) -> None:
        """Let time pass: the job trains, nodes beat (unless silent), the canary sings, the monitor ticks.

        `step_s` from tick to tick, in a long time only at first: what goes on for minutes would cost most of what all
        tests cost.
        """
        beat_every = self.settings.detect.heartbeat_interval_s
        end = round(self.now + seconds, 6)
        fine, coarse_s = self.now + FINE_S, max(step_s, min(COARSE_S, beat_every))
        while self.now < end - 1e-9:
            pace = step_s if self.now < fine else coarse_s
            before, self.now = self.now, round(min(self.now + pace, end), 6)
            if self.canary:
                self.engine.step(ev.CanarySeen(self.now))
            if int(before / beat_every) != int(self.now / beat_every):
                self._advance()
                for node in sorted({p.node for p in self.procs} | set(self.inc)):
                    if node not in self.silent:
                        self.beat(node)
            self.tick()

    def _advance(self) -> None:
        for proc in self.procs:
            if self.training and proc.alive and proc.phase == "train" and proc.state != "T":
                proc.step = max(proc.step, 0) + self.steps_per_beat
                if proc.first_step < 0:
                    proc.first_step = proc.step - self.steps_per_beat + 1

    def tick(self) -> None:
        for action in self.engine.tick(self.now, UTC + self.now):
            self.apply(action)

    # --- what came of it

    def incidents(self) -> list[r.Incident]:
        found = []
        for key, (data, _) in sorted(self.store.items()):
            if key.startswith(self.keys.incidents()):
                found.append(codec.decode(r.Incident, data))
        return found

    def orders(self) -> list[r.Order]:
        return [
            codec.decode(r.Order, d) for k, (d, _) in sorted(self.store.items()) if k.startswith(self.keys.orders())
        ]

    def of_kind(self, kind: str) -> list[r.Order]:
        return [order for order in self.orders() if order.kind.startswith(kind)]

    def gates(self) -> list[r.Gate]:
        return [codec.decode(r.Gate, d) for k, (d, _) in sorted(self.store.items()) if k.startswith(self.keys.gates())]

    def ask(self, kind: str, *, node: str = "", uid: str = "", reason: str = "test", **more: Any) -> None:
        """An operator's request."""
        id_ = f"q{self.revision}"
        request = r.Request(id=id_, kind=kind, run_uid=uid, node=node, author="ann", reason=reason, at=UTC, **more)
        self.put(self.keys.request(id_), request)

    def run_states(self) -> list[r.RunState]:
        return [
            codec.decode(r.RunState, data)
            for key, (data, _) in sorted(self.store.items())
            if key.startswith(self.keys.runs()) and key.endswith("/state")
        ]

    def arm(self) -> None:
        self.put(self.keys.arm(), r.Arm(armed=True, author="ann", reason="test", at=0.0))
