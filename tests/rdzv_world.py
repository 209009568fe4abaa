"""A world of agents and torchruns around one simulated store: everybody sees late, everything can fail.

The store checks at every write what must never be broken, and the world at every answer: see `Store.commit` and
`World.met`. Time is the world's; every agent reads it with an offset of its own.
"""

import random
from dataclasses import dataclass, field

from rankpulse.core import codec
from rankpulse.core import records as r
from rankpulse.core import rendezvous as rv
from rankpulse.core.keys import Keys

KEYS = Keys("sim")
TTL_S = 10.0
UTC = 1_800_000_000.0


class Store:
    """Records with revisions, guards, and the history by which it is judged."""

    def __init__(self) -> None:
        self.revision = 0
        self.items: dict[str, tuple[r.Record, int]] = {}
        self.log: list[tuple[int, str, r.Record | None]] = []
        self.meetings: dict[tuple[str, int], r.Meeting] = {}  # all there ever were
        self.used: set[tuple[str, r.Place]] = set()

    def modified(self, key: str) -> int:
        return self.items[key][1] if key in self.items else 0

    def commit(self, txn: rv.Txn, view: rv.View | None = None, node: str = "") -> bool:
        """The writes of an agent (`view`: what it knew), if the guards hold."""
        assert len(txn.guards) <= 128, "etcd takes no more"
        assert len(txn.puts) + len(txn.deletes) <= 128, "etcd takes no more"
        assert len({key for key, _ in txn.puts} | set(txn.deletes)) == len(txn.puts) + len(txn.deletes)
        if any(self.modified(key) != modified for key, modified in txn.guards):
            return False
        for key, record in txn.puts:
            self._judge(key, record, view, node)
        self.write(txn.puts, txn.deletes)
        return True

    def write(self, puts: tuple[tuple[str, r.Record], ...], deletes: tuple[str, ...] = ()) -> None:
        self.revision += 1
        for key, record in puts:
            parsed = KEYS.parse(key)
            assert parsed is not None, key
            record = codec.decode_at(parsed, codec.encode(record))
            self.items[key] = (record, self.revision)
            self.log.append((self.revision, key, record))
        for key in deletes:
            if self.items.pop(key, None) is not None:
                self.log.append((self.revision, key, None))

    def get(self, key: str) -> r.Record | None:
        return self.items[key][0] if key in self.items else None

    def all(self, kind: type[r.Record]) -> list[r.Record]:
        return [record for record, _ in self.items.values() if type(record) is kind]

    def _judge(self, key: str, record: r.Record, view: rv.View | None, node: str) -> None:
        before = self.get(key)
        if isinstance(record, r.Meeting):
            assert before is None, "a round has one roster"
            self._judge_meeting(record, view)
        elif isinstance(record, r.Launch) and isinstance(before, r.Launch):
            assert not before.closed or before == record, "closed once and for good"
            if record.closed and not before.closed and record.outcome in ("finished", "failed"):
                self._judge_closing(record.run_uid, node)
        elif isinstance(record, r.Joiner):
            assert record.node == node, "only its own agent writes a joiner"
            if not record.left and before is None:
                launch = self.get(KEYS.launch(record.run_uid))
                assert not (isinstance(launch, r.Launch) and launch.closed), "nobody joins a closed launch"

    def _judge_closing(self, uid: str, node: str) -> None:
        """By a member of the newest round, or by the policy's word."""
        last = max((n for of, n in self.meetings if of == uid), default=0)
        gate = self.get(KEYS.gate(uid, last + 1))
        stopped = isinstance(gate, r.Gate) and not gate.go
        assert stopped or node in {p.node for p in self.meetings[uid, last].places}, "spares close nothing"

    def _judge_meeting(self, meeting: r.Meeting, view: rv.View | None) -> None:
        uid = meeting.run_uid
        numbers = [n for of, n in self.meetings if of == uid]
        assert meeting.round == max(numbers, default=0) + 1, "rounds are consecutive, and never made twice"
        launch = self.get(KEYS.launch(uid))
        assert isinstance(launch, r.Launch)
        assert not launch.closed, "a closed launch gets no meeting"
        assert launch.min_nodes <= len(meeting.places) <= launch.max_nodes
        assert len({(p.node, p.launcher) for p in meeting.places}) == len(meeting.places)
        for place in meeting.places:
            assert (uid, place) not in self.used, "a join is good for one round"
            joiner = self.get(KEYS.joiner(uid, place.node, place.launcher))
            assert isinstance(joiner, r.Joiner)
            assert not joiner.left
            assert not joiner.checking, "its node was looked at"
            assert not joiner.refused, "and found well"
            assert joiner.join == place.join
            assert view is None or place.node not in view.cordons, "the decider knew of the cordon"
            self.used.add((uid, place))
        gate = self.get(KEYS.gate(uid, meeting.round))
        order = self.get(KEYS.order(uid, meeting.round - 1, "restart"))
        if isinstance(order, r.Order) and order.resume_before_step >= 0:
            limit = (order.resume_before_step, order.round)
            assert (meeting.resume_before_step, meeting.resume_before_round) == limit, "no limit is lost"
        if isinstance(gate, r.Gate):
            assert gate.go, "the policy's word was heard"
            assert not {p.node for p in meeting.places} & {*gate.without, *gate.lost}, "and it was heard whole"
        elif isinstance(order, r.Order):
            assert not {p.node for p in meeting.places} & set(order.without), "who is lost is not in it"
        self.meetings[uid, meeting.round] = meeting


@dataclass
class Torchrun:
    node: str
    launcher: str
    label: str = "job"
    min_nodes: int = 2
    max_nodes: int = 2
    state: str = "asking"  # asking | in | stopping | leaving | dead | refused | left
    join: int = 1
    run_uid: str = ""
    after: int = 0  # the round it is or was in
    started_rev: int = 0
    asked_at: float = 0.0
    outcome: str = ""
    answer: rv.Answer | None = None
    said: list[str] = field(default_factory=list)
    last_call_s: float = 30.0
    timeout_s: float = 600.0
    stuck: bool = False  # it never gets its workers stopped
    checking: bool = False  # its node is looked at
    refused: str = ""  # and may be in no round

    def me(self) -> rv.Me:
        return rv.Me(
            self.node, self.launcher, 0, self.label, self.min_nodes, self.max_nodes, self.join,
            f"addr-{self.node}-{self.launcher}", 1000 + self.join, self.asked_at, self.run_uid, self.after,
            self.last_call_s, self.timeout_s, self.checking, self.refused,
        )  # fmt: skip


class Agent:
    """One node's agent: its view is as old as what was delivered to it."""

    def __init__(self, node: str, offset: float) -> None:
        self.node, self.offset = node, offset
        self.up = True
        self.view = rv.View(KEYS)
        self.seen = 0  # of the store's log
        self.sighted = False  # False: it has to list before it may decide
        self.lease_ends = 0.0
        self.known: dict[str, int] = {}  # revision by key
        self.lags = False  # little of what happens reaches it in time


class World:
    def __init__(self, nodes: str = "abcd", seed: int = 0, min_nodes: int = 2, max_nodes: int = 2) -> None:
        self.store, self.random = Store(), random.Random(seed)
        self.t, self.away, self.min_nodes, self.max_nodes = 0.0, False, min_nodes, max_nodes
        self.agents = {n: Agent(n, self.random.choice([0.0, 3600.0, -3600.0, 1e6])) for n in nodes}
        self.torchruns: list[Torchrun] = []
        self.fault = ""  # of the next transaction: fails | lost answer
        self.timing = rv.Timing()
        self._uids = self._pids = 0
        for agent in self.agents.values():
            self.turn(agent)

    # what happens

    def start(self, node: str, label: str = "job", **kwargs: object) -> Torchrun:
        self._pids += 1
        torchrun = Torchrun(node, f"{self._pids}.{self._pids}", label, self.min_nodes, self.max_nodes)
        torchrun.started_rev, torchrun.asked_at = self.store.revision, self.now(self.agents[node])
        for name, value in kwargs.items():
            setattr(torchrun, name, value)
        self.torchruns.append(torchrun)
        return torchrun

    def rejoin(self, torchrun: Torchrun) -> None:
        torchrun.state, torchrun.join, torchrun.answer = "asking", torchrun.join + 1, None
        torchrun.asked_at = self.now(self.agents[torchrun.node])

    def power_cut(self, node: str) -> None:
        self.agents[node].up = False
        for torchrun in self.of(node):
            torchrun.state = "dead"

    def agent_down(self, node: str) -> None:
        self.agents[node].up = False

    def agent_up(self, node: str) -> None:
        """Everything it knew is lost; its torchruns ask again with the same join."""
        old = self.agents[node]
        if old.up:
            return
        self.agents[node] = agent = Agent(node, old.offset + self.random.choice([0.0, 50.0]))
        agent.lease_ends = old.lease_ends
        for torchrun in self.of(node):
            torchrun.asked_at = self.now(agent)
        for torchrun in self.torchruns:
            if torchrun.node == node and torchrun.state == "dead":
                torchrun.state = "buried"  # nobody tells the new agent

    def outage(self, on: bool) -> None:
        self.away = on
        for agent in self.agents.values():
            agent.sighted = agent.sighted and not on

    def cordon(self, node: str, reason: str = "broken fan") -> None:
        self.store.write(((KEYS.cordon(node), r.Cordon(node=node, author="eve", reason=reason, at=UTC)),))

    def uncordon(self, node: str) -> None:
        self.store.write((), (KEYS.cordon(node),))

    def order(
        self, uid: str, round_: int, reason: str = "hang", before: int = -1, without: tuple[str, ...] = ()
    ) -> None:
        order = r.Order(
            order_id="o", run_uid=uid, run_id="job", round=round_, kind="restart", epoch=1, incident="i",
            reason=reason, author="monitor", at=UTC, resume_before_step=before, without=without,
        )  # fmt: skip
        self.store.write(((KEYS.order(uid, round_, "restart"), order),))

    def gate(
        self,
        uid: str,
        round_: int,
        *,
        go: bool = True,
        without: tuple[str, ...] = (),
        lost: tuple[str, ...] | None = None,
        before: tuple[int, int] = (-1, 0),
    ) -> None:
        """`before`: a limit for what is resumed from, and the round of its order. `lost`: also of one that stands."""
        key = KEYS.gate(uid, round_)
        if self.store.get(key) is None or lost is not None:
            gate = r.Gate(
                run_uid=uid, round=round_, go=go, reason="policy", epoch=1, at=UTC, without=without, lost=lost or (),
                resume_before_step=before[0], resume_before_round=before[1],
            )  # fmt: skip
            self.store.write(((key, gate),))

    # how it goes on

    def now(self, agent: Agent) -> float:
        return self.t + agent.offset

    def of(self, node: str) -> list[Torchrun]:
        return [
            tr for tr in self.torchruns if tr.node == node and tr.state not in ("dead", "buried", "refused", "left")
        ]

    def pass_time(self, seconds: float) -> None:
        self.t += seconds
        if not self.away:
            ended = tuple(KEYS.presence(a.node) for a in self.agents.values() if a.lease_ends <= self.t)
            self.store.write((), tuple(key for key in ended if self.store.get(key)))

    def turn(self, agent: Agent, most: int = 1_000_000) -> None:
        """One pass of one agent; `most`: so many changes reach it at once."""
        if not agent.up or self.away:
            return
        self.see(agent, most)
        self.presence(agent)
        for torchrun in [tr for tr in self.torchruns if tr.node == agent.node]:
            self.serve(agent, torchrun)
        if self.random.random() < 0.2:
            living = frozenset(tr.launcher for tr in self.of(agent.node))
            for txn in rv.sweep(agent.view, agent.node, living, UTC):
                self.execute(agent, txn)

    def see(self, agent: Agent, most: int) -> None:
        now, log = self.now(agent), self.store.log
        if not agent.sighted:
            agent.view.relisted(frozenset(self.store.items), now)
            agent.known.clear()
            for key, (record, modified) in sorted(self.store.items.items(), key=lambda item: item[1][1]):
                self.fold(agent, key, record, modified)
            agent.sighted, agent.seen = True, len(log)
        until = min(len(log), agent.seen + most)
        while until < len(log) and until > 0 and log[until][0] == log[until - 1][0]:
            until += 1  # a transaction is seen whole
        for revision, key, record in log[agent.seen : until]:
            self.fold(agent, key, record, revision)
        agent.seen = until

    def fold(self, agent: Agent, key: str, record: r.Record | None, revision: int) -> None:
        """What is older than what is known of a key says nothing."""
        if revision <= agent.known.get(key, 0):
            return
        agent.known[key] = revision
        if record is None:
            agent.view.gone(key, self.now(agent))
        else:
            agent.view.put(key, record, revision, self.now(agent))

    def look(self, agent: Agent, txn: rv.Txn) -> None:
        """The keys of a transaction are read, ahead of all others: what is known is no state that ever was."""
        for key in dict.fromkeys([key for key, _ in txn.guards + txn.puts]):
            record, modified = self.store.items.get(key, (None, self.store.revision))
            self.fold(agent, key, record, modified)

    def presence(self, agent: Agent) -> None:
        key = KEYS.presence(agent.node)
        if self.store.get(key) is None:
            self.store.write(((key, r.Presence(node=agent.node, inc=1, at=UTC)),))
        agent.lease_ends = self.t + TTL_S

    def serve(self, agent: Agent, tr: Torchrun) -> None:
        if tr.state == "asking":
            self.ask(agent, tr)
        elif tr.state == "in":
            again = rv.again(agent.view, tr.run_uid, tr.after)
            if again is not None:
                assert again.waiting >= 1
                assert again.round == tr.after
                tr.state = "stopping"
        elif tr.state == "stopping":
            if not tr.stuck and self.random.random() < 0.5:
                self.rejoin(tr)
        elif tr.state in ("leaving", "dead"):
            self.leave(agent, tr)

    def leave(self, agent: Agent, tr: Torchrun) -> None:
        outcome = "gone" if tr.state == "dead" else tr.outcome
        runs = [run.uid for run in agent.view.runs_of((tr.node, tr.launcher))]
        txns = [t for uid in runs if (t := rv.leave(agent.view, uid, tr.node, tr.launcher, outcome, "", UTC))]
        for txn in txns:
            self.execute(agent, txn)
        if not txns and tr.state == "leaving" and agent.seen == len(self.store.log):
            tr.state = "left"

    def ask(self, agent: Agent, tr: Torchrun) -> None:
        self._uids += 1
        uid = f"run-{self._uids}"
        step = rv.decide(agent.view, tr.me(), self.now(agent), UTC, self.timing, uid)
        done = self.execute(agent, step.txn) if step.txn else True
        if isinstance(step.answer, rv.Waiting):
            if not tr.said or tr.said[-1] != step.answer.reason:
                tr.said.append(step.answer.reason)
            return
        if not done:
            return
        tr.answer = step.answer
        if isinstance(step.answer, rv.Met):
            self.met(tr, step.answer)
            return
        tr.state = "refused"
        if isinstance(step.answer, rv.Refused) and step.answer.kind == "closed" and not tr.after:
            assert "(abandoned)" not in step.answer.reason, "who was in no round goes where the label is"

    def met(self, tr: Torchrun, met: rv.Met) -> None:
        meeting = self.store.meetings[met.run_uid, met.round]
        assert meeting.places[met.rank] == r.Place(tr.node, tr.launcher, tr.join), "met only who is listed"
        assert met.nodes == len(meeting.places)
        first = meeting.places[0]
        assert (met.address, met.port) == (f"addr-{first.node}-{first.launcher}", 1000 + first.join)
        assert not tr.run_uid or tr.run_uid == met.run_uid, "one torchrun, one run"
        closed_at = [rev for rev, key, x in self.store.log if key == KEYS.launch(met.run_uid) and x and x.closed]  # type: ignore[attr-defined]
        assert not closed_at or tr.started_rev < closed_at[0], "an old launch reaches no new torchrun"
        tr.state, tr.run_uid, tr.after = "in", met.run_uid, met.round

    def execute(self, agent: Agent, txn: rv.Txn) -> bool:
        """True: it is known to be done."""
        fault, self.fault = self.fault, ""
        if fault == "fails":
            return False
        self._judge_founding(txn)
        done = self.store.commit(txn, agent.view, agent.node)
        if fault != "lost answer" and self.random.random() < 0.5:
            self.look(agent, txn)
        return done and fault != "lost answer"

    def _judge_founding(self, txn: rv.Txn) -> None:
        """Nobody takes a label away from a round whose agents are there (who has only just come follows the label)."""
        if any(self.store.modified(key) != modified for key, modified in txn.guards):
            return
        taken = [x.run_uid for _, x in txn.puts if isinstance(x, r.Launch) and x.outcome == "abandoned"]
        founding = any(isinstance(x, r.Label) for _, x in txn.puts)
        for joiner in self.store.all(r.Joiner):
            assert isinstance(joiner, r.Joiner)
            rounds = [m for (uid, _), m in self.store.meetings.items() if uid == joiner.run_uid]
            was_in = any((p.node, p.launcher) == (joiner.node, joiner.launcher) for m in rounds for p in m.places)
            if founding and joiner.run_uid in taken and not joiner.left and was_in:
                assert self.store.get(KEYS.presence(joiner.node)) is None

    def run(self, seconds: float, tick_s: float = 0.5) -> None:
        """Everybody is served in turn, and sees all."""
        until = self.t + seconds
        while self.t < until:
            for agent in self.random.sample(list(self.agents.values()), len(self.agents)):
                self.turn(agent, self.random.choice([0, 0, 0, 0, 1, 2]) if agent.lags else 1_000_000)
            self.pass_time(tick_s)

    # what is true

    def launches(self) -> list[r.Launch]:
        return [x for x in self.store.all(r.Launch) if isinstance(x, r.Launch)]

    def last_round(self, uid: str) -> int:
        return max((n for of, n in self.store.meetings if of == uid), default=0)

    def unsettled(self) -> list[str]:
        """What is not as it must become when nothing fails any more: everybody in its run's newest round, or told
        why not, or a spare of a round that stands, or in too small a company."""
        trouble = []
        there = [tr for tr in self.torchruns if self.agents[tr.node].up]
        for label in {tr.label for tr in there}:
            asking = [tr for tr in there if tr.label == label and tr.state == "asking"]
            inside = [tr for tr in there if tr.label == label and tr.state in ("in", "stopping", "leaving")]
            inside = [tr for tr in inside if not (tr.stuck and tr.state == "stopping")]
            stale = [tr for tr in inside if tr.state != "in" or tr.after != self.last_round(tr.run_uid)]
            open_ = {x.run_uid for x in self.launches() if not x.closed}
            trouble += [f"{tr.node} is {tr.state} in round {tr.after}" for tr in stale if tr.run_uid in open_]
            going = [tr for tr in inside if tr.run_uid in open_]
            able = [tr for tr in asking if self.store.get(KEYS.cordon(tr.node)) is None]
            trouble += [f"{tr.node} is cordoned and not told" for tr in asking if tr not in able]
            if not going and len(able) >= self.min_nodes:
                trouble.append(f"{[(tr.node, tr.launcher, tr.said[-1:]) for tr in able]} could be in a round")
            for tr in going:
                meeting = self.store.meetings[tr.run_uid, tr.after]
                here = {(x.node, x.launcher) for x in inside if (x.run_uid, x.after) == (tr.run_uid, tr.after)}
                missing = {(p.node, p.launcher) for p in meeting.places} - here
                stuck = {(x.node, x.launcher) for x in there if x.stuck}
                away = {p for p in missing if not self.agents[p[0]].up} | stuck
                if missing - away:
                    trouble.append(f"round {tr.after} of {tr.run_uid} lacks {missing}")
        return trouble
