"""Folding: what each record adds to what is believed. Idempotent, total, and without decisions."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec

from rankpulse.core import events as ev
from rankpulse.core import last_words
from rankpulse.core import records as r
from rankpulse.core.acks import Ack, Acks
from rankpulse.core.ceiling import is_of_ceiling
from rankpulse.core.diagnoses import Diagnoses
from rankpulse.core.diagnosis import STANDSTILLS
from rankpulse.core.dossiers import Dossiers
from rankpulse.core.evidence import Answers
from rankpulse.core.exits import exit_of
from rankpulse.core.exposure import Exposure
from rankpulse.core.fleet import Fleet
from rankpulse.core.fleet_learned import FleetMemory
from rankpulse.core.fold_beats import BeatFolder
from rankpulse.core.fold_checkpoints import CheckpointFolder
from rankpulse.core.fold_checksums import ChecksumsFolder
from rankpulse.core.fold_health import HealthFolder
from rankpulse.core.fold_joint import JointFolder
from rankpulse.core.fold_learned import LearnedFolder
from rankpulse.core.fold_numbers import NumbersFolder
from rankpulse.core.fold_outbox import OutboxFolder
from rankpulse.core.incidents import PASSED, Book
from rankpulse.core.keys import Keys
from rankpulse.core.ledger_book import LedgerBook
from rankpulse.core.ledger_scores import LedgerScores
from rankpulse.core.modes import Modes
from rankpulse.core.settings import Settings
from rankpulse.core.suspects import BLIND, LEFT
from rankpulse.core.topology import Topology
from rankpulse.core.views import RoundView, RunView, process_of
from rankpulse.core.words import printable

LINES_MAX = 2000
WORDS_MAX, NAME_MAX = 1000, 200  # of what operators write
RESTART, RELEASE = "restart", "release"  # kinds of order: a round ends, and: holders end with their trainers
KILL = "kill"  # every worker of the round that still lives is killed


class Folder:
    """Everything believed that comes from records. The judge reads it."""

    def __init__(self, settings: Settings, keys: Keys, book: Book, topology: Topology) -> None:
        self.settings = settings
        self.topology = topology
        self.keys = keys
        self.book = book
        self.fleet = Fleet(settings.detect)
        self.modes = Modes()
        self.spent: tuple[r.Spent | None, float] = None, 0.0  # ages of incidents as the store has them, and seen when
        self.pardoned: dict[str, None] = {}  # incidents that are no strike any more
        self.leader: r.Leader | None = None
        self.orders: dict[tuple[str, int, str], r.Order] = {}  # by run_uid, round and kind
        self.answers = Answers()  # evidence that was asked for
        self.dossiers = Dossiers()  # the same, as nodes told it directly
        self.diagnoses = Diagnoses()
        self.findings: dict[str, r.Finding] = {}  # by incident, as the store has them
        self.joint = JointFolder(self.fleet)
        self.checkpoints = CheckpointFolder()
        self.learned = LearnedFolder(self.fleet)
        self.advice: dict[str, r.RunAdvice] = {}  # by run_uid, as the store has it
        self.saves_now: dict[str, r.SaveNow] = {}  # likewise
        self.numbers = NumbersFolder()
        self.checksums = ChecksumsFolder()
        self.outbox = OutboxFolder()
        self.memory = FleetMemory(settings.detect)
        self.ledger = LedgerBook(keys)
        self.ledger_scores = LedgerScores(self.ledger)
        self.exposure = Exposure(settings.detect.heartbeat_interval_s, self.ledger.day)
        self.beats = BeatFolder(self.fleet, settings.detect, self.fold)
        believed = settings.gpu.believe_injected
        self.health = HealthFolder(self.fleet, self.say, self.fold, believe_injected=believed)
        self.acks = Acks()  # of orders that were carried out
        self.requests: dict[str, r.Request] = {}
        self.counts: Counter[type] = Counter()  # records by kind
        self.refused = 0
        self.listings = 0  # of the store, so far
        self.outcomes: dict[str, r.RunState] = {}  # as the store has them
        self._folded: dict[str, None] = {}
        self._erased: set[str] = set()
        self._lines: list[ev.Say] = []
        self._by_record: dict[type, Callable[[Any, ev.Seen, bool], None]] = {
            r.Beat: self.beats.beat,
            r.NodeState: self._node_state,
            r.NodeHealth: self.health.health,
            r.Observation: self._observation,
            r.Roster: self._roster,
            r.CheckpointState: self._checkpoint_state,
            r.RunState: self._run_state,
            r.RunLearned: lambda learned, event, leading: self.learned.stored(learned),
            r.RunAdvice: lambda advice, event, leading: self.advice.update({advice.run_uid: advice}),
            r.SaveNow: lambda asked, event, leading: self.saves_now.update({asked.run_uid: asked}),
            r.FleetLearned: lambda learned, event, leading: self.memory.seen(learned),
            r.Incident: self._incident,
            r.Finding: self._finding,
            r.Order: self._order,
            r.Arm: self.modes.armed,
            r.RunMode: self.modes.run_mode,
            r.Breaker: self.modes.breaker_seen,
            r.Maintenance: self.modes.maintained,
            r.Spent: self._spent,
            r.Request: self._request,
            r.Leader: self._leader,
            r.Cordon: self.joint.cordon,
            r.Gate: self.joint.gate,
            r.Outgoing: self.outbox.seen,
            r.LedgerOrigin: self._ledger,
            r.LedgerEntry: self._ledger,
            r.LedgerDay: self._ledger,
            r.LedgerPast: self._ledger,
            r.Launch: self._rendezvous,
            r.Joiner: self._rendezvous,
            r.Meeting: self._rendezvous,
        }
        self._by_kind: dict[str, Callable[[r.Observation, ev.Seen], None]] = {
            r.WORKER_JOINED: self._worker_joined,
            r.WORKER_EXITED: self._worker_exited,
            r.LAUNCHER_EXITED: self._launcher_exited,
            r.AGENT_STOPPING: self._agent_stopping,
            r.ORDER_DONE: self._order_done,
            r.SLOT_REFUSED: self._slot_refused,
            r.SPOOL_DROPPED: self._spool_dropped,
            r.EVIDENCE: self._evidence,
            r.CHECKPOINT: self._checkpoint,
            r.NON_FINITE: self._non_finite,
            r.CHECKSUMS: self._checksums,
            r.GPU_FAULT: self.health.observed,
        }

    # --- events

    def seen(self, event: ev.Seen, leading: bool) -> None:
        record = event.record
        kind = type(record)
        self.counts[kind] += 1
        handler = self._by_record.get(kind)
        if handler is not None:
            handler(record, event, leading)

    def gone(self, event: ev.Gone) -> None:
        self._erased.discard(event.key)
        self._folded.pop(event.key, None)
        self.requests.pop(event.key, None)
        parsed = self.keys.parse(event.key)
        if parsed is None:
            return
        if parsed.kind is r.Incident:
            self.book.drop(parsed.names["id"])
        elif parsed.kind is r.Finding:
            self.findings.pop(parsed.names["id"], None)
        elif parsed.kind is r.Beat:
            self._beat_gone(parsed.names["node"], event.received_at)
        elif parsed.kind is r.Observation:
            self.checkpoints.gone(event.key)
            self.numbers.gone(event.key)
            self.checksums.gone(event.key)
            self.health.gone(event.key)
        elif parsed.kind is r.CheckpointState:
            self.checkpoints.lost(parsed.names["run_uid"], event.received_at)
        elif parsed.kind is r.RunAdvice:
            self.advice.pop(parsed.names["run_uid"], None)
        elif parsed.kind is r.SaveNow:
            self.saves_now.pop(parsed.names["run_uid"], None)
        elif parsed.kind in (r.Arm, r.RunMode, r.Breaker, r.Maintenance):
            self.modes.gone(parsed.kind, parsed.names)
        elif parsed.kind is r.Spent:
            self.spent = None, event.received_at
        elif parsed.kind in (r.LedgerOrigin, r.LedgerEntry, r.LedgerDay, r.LedgerPast):
            self.ledger.gone(event.key)
        elif parsed.kind is r.Outgoing:
            self.outbox.gone(parsed.names["event"], parsed.names["target"])
        elif parsed.kind is r.Order:
            names = parsed.names
            self.orders.pop((names["run_uid"], names["round"], names["kind"]), None)
        else:
            self.joint.gone(parsed, event.received_at)

    def took_office(self) -> None:
        """Decisions that never reached the store were none: they are taken again, from the evidence."""
        self.book.took_office()
        self.memory.took_office()
        self.modes.took_office()
        stored, _ = self.spent
        self.pardoned = dict.fromkeys(stored.pardoned if stored is not None else ())
        self.fleet.mark_all_rosters()
        for run in self.fleet.runs.values():
            for round_ in run.rounds.values():
                round_.accounted, round_.released = False, None
        self.account()

    def left_office(self) -> None:
        """Who does not lead asks nobody, and waits for no answer."""
        self.dossiers.clear()
        self.diagnoses.clear()

    def account(self) -> None:
        """Rounds whose exits are told by the stored incident of an earlier round have no incident of their own."""
        for run in self.fleet.runs.values():
            for round_ in run.rounds.values():
                if self.book.of_round(run.uid, round_.number) is None:
                    round_.accounted |= any(self.book.cites(exit_.key) for exit_ in round_.exits.values())

    def drop_run(self, run: RunView) -> None:
        """Forget an ended run, here and in the store, and what is left of its rendezvous."""
        self.fleet.drop(run)
        self.outcomes.pop(run.uid, None)
        self.beats.forget(run)
        self.checkpoints.drop(run.uid)
        self.learned.drop(run.uid)
        self.fold(self.keys.run_learned(run.uid))
        if run.uid in self.advice:
            self.fold(self.keys.advice(run.uid))
        if run.uid in self.saves_now:
            self.fold(self.keys.save_now(run.uid))
        self.fold(self.keys.checkpoint(run.uid))
        self.fold(self.keys.run_state(run.uid))
        if run.uid in self.modes.runs:
            self.fold(self.keys.run_mode(run.uid))
        for number in run.rounds:
            self.fold(self.keys.roster(run.uid, number))
        for key in self.joint.leftovers(run, self.keys):
            self.fold(key)

    def relisted(self, now: float) -> None:
        """What is listed now is all there is; memory that the listing repeats is kept."""
        self.listings += 1
        self.book.relisted()
        self.joint.relisted(now)
        self.acks.clear()
        self.answers.clear()
        self.findings.clear()
        self.checkpoints.relisted()
        self.numbers.relisted()
        self.checksums.relisted()
        self.health.relisted()
        self.learned.relisted()
        self.advice.clear()
        self.saves_now.clear()
        self.outbox.relisted()
        self.ledger.relisted()
        self.outcomes.clear()
        self.fleet.mark_all_rosters()
        self._erased.clear()
        self.requests.clear()
        self.orders.clear()
        self.modes.relisted()
        self.spent = None, now
        for node in self.fleet.nodes.values():
            node.relisted = True  # a store that was wiped counts incarnations from one again

    def renew_deadlines(self, now: float, grace_s: float) -> None:
        """Silence begins to count now: for all nodes at once, and for those that are late one by one."""
        self.fleet.anew.start(now, grace_s)
        for node in self.fleet.deadlines.late.values():
            if node.silent_since is not None:
                node.silent_since = None
                node.suspect.learn(BLIND, now, "this monitor could not see, deadlines start anew")

    def probed(self, event: ev.Probed) -> None:
        """What came of a direct look. One that nobody asked for, or of an agent that is no more, is ignored."""
        node = self.fleet.nodes.get(event.node)
        if node is None or (event.beat is not None and (event.beat.node != node.name or event.beat.inc < node.inc)):
            return
        suspect, now = node.suspect, event.received_at
        silence_s, mute = now - node.life_at(self.fleet.anew.at), suspect.mute and not suspect.grouped
        if not suspect.looked(event.number, event.answer, event.detail, now):
            return
        if mute and not suspect.mute:
            suspect.muted_s = max(suspect.muted_s, silence_s)
        if event.answer == ev.ANSWERED and event.beat is not None:
            suspect.beat = event.beat
            self.beats.looked(event.beat, now)

    # --- what the judge takes and gives

    def fold(self, key: str) -> None:
        """This observation has done its work: it may be erased once what cites it is written."""
        if key and key not in self._erased:
            self._folded[key] = None

    def take_folded(self) -> list[str]:
        for key in (*self.checkpoints.take_done(), *self.numbers.take_done(), *self.checksums.take_done()):
            self.fold(key)
        keys = list(self._folded)
        self._folded.clear()
        self._erased.update(keys)
        dropped, self.fleet.dropped_rosters = self.fleet.dropped_rosters, []
        merged, self.fleet.merged = self.fleet.merged, []
        of_merged = (
            self.keys.advice,
            self.keys.save_now,
            self.keys.run_learned,
            self.keys.checkpoint,
            self.keys.run_state,
            lambda uid: self.keys.roster(uid, 1),
        )
        keys += [key(uid) for uid in merged for key in of_merged]
        exits, self.fleet.dropped_exits = self.fleet.dropped_exits, []
        keys += [key for key in exits if key not in self._erased]
        return keys + [self.keys.roster(uid, number) for uid, number in dropped]

    def take_lines(self) -> list[ev.Say]:
        for text in self.fleet.intruders:
            self.say("warning", text)
        self.fleet.intruders.clear()
        lines, self._lines = self._lines, []
        return lines

    def say(self, level: str, text: str) -> None:
        if len(self._lines) < LINES_MAX:
            self._lines.append(ev.Say(level, text))

    # --- records

    def _beat_gone(self, name: str, now: float) -> None:
        """The lease ran out. Never a verdict; but a node that left, or on which nothing runs, is no longer watched."""
        node = self.fleet.nodes.get(name)
        if node is None:
            return
        going = [run.current for run in self.fleet.runs.values() if run.open() and run.rounds]
        busy = any(name in {m.node for m in round_.alive()} | {p.node for p in round_.places} for round_ in going)
        if not busy:
            self.fold(node.goodbye_key)
            del self.fleet.nodes[name]
            self.say("info", f"{name} is no longer watched: its lease ended and no job needs it")
        else:
            node.lapsed_at = now
            if node.leaving:  # a goodbye excuses it while its lease lasts; its job needs it still
                self.fold(node.goodbye_key)
                node.leaving, node.goodbye_key = False, ""

    def _node_state(self, state: r.NodeState, event: ev.Seen, leading: bool) -> None:
        state, usual_s = self.topology.told(state), self.settings.detect.heartbeat_interval_s
        node = self.fleet.node(state.node)
        node.state, node.interval_s = state, state.interval_s if state.interval_s != usual_s else None

    def _roster(self, roster: r.Roster, event: ev.Seen, leading: bool) -> None:
        self.fleet.learn_roster(roster, event.received_at)
        outcome = self.outcomes.get(roster.run_uid)
        if outcome is not None:
            self._apply(outcome)

    def _run_state(self, state: r.RunState, event: ev.Seen, leading: bool) -> None:
        self.outcomes[state.run_uid] = state
        self._apply(state)

    def _checkpoint_state(self, state: r.CheckpointState, event: ev.Seen, leading: bool) -> None:
        self.checkpoints.stored(state, event.received_at)

    def _apply(self, state: r.RunState) -> None:
        run = self.fleet.runs.get(state.run_uid)
        if run is not None and run.open() and state.outcome != "running":
            run.outcome, run.reason, run.ended_at = state.outcome, state.reason, state.ended_at

    def _incident(self, incident: r.Incident, event: ev.Seen, leading: bool) -> None:
        self.book.stored(incident, event.received_at, leading=leading)
        run = self.fleet.runs.get(incident.run_uid)
        passed = incident.outcome == PASSED and incident.klass in STANDSTILLS and not is_of_ceiling(incident)
        if run is not None and passed:
            stall_s = (incident.time_to_detect_s or 0.0) + (incident.time_to_recover_s or 0.0)
            run.clocks.healed(incident.id, stall_s, event.received_at)

    def _ledger(self, record: r.Record, event: ev.Seen, leading: bool) -> None:
        followed = self.ledger.followed
        self.ledger.seen(event.key, record)
        origin = self.ledger.origin
        if isinstance(record, r.LedgerOrigin) and followed is not None and followed.origin != record.origin:
            self.exposure.begun_anew()
        if isinstance(record, r.LedgerDay) and origin is not None and record.origin == origin.origin:
            self.exposure.stored(record, event.received_at, leading=leading)

    def _finding(self, finding: r.Finding, event: ev.Seen, leading: bool) -> None:
        self.findings[finding.id] = finding

    def _order(self, order: r.Order, event: ev.Seen, leading: bool) -> None:
        self.orders[order.run_uid, order.round, order.kind] = order
        run = self.fleet.runs.get(order.run_uid)
        if run is not None and order.kind == RESTART:
            run.ordered.add(order.round)
        if order.kind == RESTART:
            self.checkpoints.ordered(order, event.received_at)

    def ordered(self, run_uid: str, round_: int, kind: str) -> r.Order | None:
        """The order of this kind that stands for a round."""
        return self.orders.get((run_uid, round_, kind))

    def _rendezvous(self, record: r.Launch | r.Joiner | r.Meeting, event: ev.Seen, leading: bool) -> None:
        self.joint.rendezvous(record, event)
        outcome = self.outcomes.get(record.run_uid)
        if outcome is not None:
            self._apply(outcome)

    @property
    def armed(self) -> r.Arm | None:
        """The cluster's word."""
        return self.modes.arm

    def _spent(self, spent: r.Spent, event: ev.Seen, leading: bool) -> None:
        self.spent = spent, event.received_at
        self.pardoned.update(dict.fromkeys(spent.pardoned))

    def _request(self, request: r.Request, event: ev.Seen, leading: bool) -> None:
        """Its words get into records of ours several times over: a pasted log must not make one that no store takes."""
        long = {"reason": WORDS_MAX, "author": NAME_MAX, "kind": NAME_MAX, "id": NAME_MAX, "run_uid": NAME_MAX}
        short = {name: printable(getattr(request, name), limit) for name, limit in long.items()}
        self.requests[event.key] = msgspec.structs.replace(request, **short)

    def _leader(self, leader: r.Leader, event: ev.Seen, leading: bool) -> None:
        self.leader = leader

    # --- observations

    def _observation(self, obs: r.Observation, event: ev.Seen, leading: bool) -> None:
        handler = self._by_kind.get(obs.kind)
        if handler is None:  # beats repeat what it says, or a newer agent says what we do not know
            self.fold(event.key)
        else:
            handler(obs, event)

    def _worker_joined(self, obs: r.Observation, event: ev.Seen) -> None:
        """Beats repeat who it is; what it lacks is said once per run, by its first rank on the node."""
        missing = printable(obs.detail.get("missing") or "")
        if missing and obs.local_rank <= 0:
            self.say(
                "warning", f"{obs.node}: rank {obs.rank} of {printable(obs.run.run_id if obs.run else '')}: {missing}"
            )
        self.fold(event.key)

    def _worker_exited(self, obs: r.Observation, event: ev.Seen) -> None:
        if obs.run is None:
            self.fold(event.key)
            return
        member = r.Member(obs.rank, obs.node, obs.local_rank, obs.pid, obs.start)
        placed = self.fleet.place(obs.run, member, event.received_at, event.revision)
        if placed is None:
            self.fold(event.key)
            return
        run, round_ = placed
        if not run.open() or run.rounds.get(round_.number) is not round_:
            self.fold(event.key)
            return
        ended = exit_of(event.key, obs, event.received_at, event.revision)
        self.fleet.look_anew(obs.node)
        if round_.exits.setdefault(process_of(member), ended).key != event.key:
            self.fold(event.key)  # told before
        if self.book.of_round(run.uid, round_.number) is None and self.book.cites(event.key):
            round_.accounted = True

    def _launcher_exited(self, obs: r.Observation, event: ev.Seen) -> None:
        launcher = r.Launcher(obs.node, obs.run.launcher) if obs.run is not None else None
        run = self.fleet.launched_by(launcher) if launcher is not None else None
        if run is None or launcher is None or not run.open():
            self.fold(event.key)
            return
        run.launchers[launcher] = False
        if run.joint is not None:  # its rendezvous repeats it, once nothing of it runs any more
            self.fold(event.key)
        else:
            run.launcher_keys.append(event.key)

    def _agent_stopping(self, obs: r.Observation, event: ev.Seen) -> None:
        node = self.fleet.node(obs.node)
        if obs.inc < node.inc:
            self.fold(event.key)
            return
        node.leaving, node.goodbye_key, node.silent_since, node.afterwards = True, event.key, None, 0
        node.suspect.learn(LEFT, event.received_at, "its agent said goodbye")

    def _order_done(self, obs: r.Observation, event: ev.Seen) -> None:
        """Kept until its incident is over."""
        killed, order_id = obs.detail.get("killed"), str(obs.detail.get("order_id") or "")
        order = next((order for order in self.orders.values() if order.order_id == order_id), None)
        asked = order is not None and (obs.node in order.nodes or obs.node in order.seats)
        count = killed if isinstance(killed, int) else 0
        ack = Ack(order_id, obs.node, count, event.key, event.revision, last_words.read(obs.detail))
        if not asked or self.acks.told(ack):
            self.fold(event.key)

    def _slot_refused(self, obs: r.Observation, event: ev.Seen) -> None:
        path, reason = printable(obs.detail.get("path")), printable(obs.detail.get("reason"))
        self.say("warning", f"{obs.node}: slot {path} refused: {reason}")
        self.fold(event.key)

    def _spool_dropped(self, obs: r.Observation, event: ev.Seen) -> None:
        self.say("error", f"{obs.node}: observations were lost, its spool was full: {obs.detail.get('dropped')!r:.20}")
        self.fold(event.key)

    def _evidence(self, obs: r.Observation, event: ev.Seen) -> None:
        order_id, rows = str(obs.detail.get("order_id") or ""), obs.detail.get("rows")
        order = next((order for order in self.orders.values() if order.order_id == order_id), None)
        if order is None or obs.node not in order.nodes:
            self.fold(event.key)  # too late, or not asked for
            return
        superfluous, refused = self.answers.told(order_id, obs.node, event.key, rows)
        if refused:
            self.say("warning", f"{obs.node}: evidence for order {printable(order_id, 80)} refused: {refused}")
        if superfluous:
            self.fold(event.key)

    def _placed(self, obs: r.Observation, event: ev.Seen) -> tuple[RunView, RoundView] | None:
        """Whose word that is; None: of no run that is known."""
        placed = None
        if obs.run is not None:
            member = r.Member(obs.rank, obs.node, obs.local_rank, obs.pid, obs.start)
            placed = self.fleet.place(obs.run, member, event.received_at, event.revision)
        self.follow_moves(event.received_at)
        return placed

    def _checkpoint(self, obs: r.Observation, event: ev.Seen) -> None:
        """Kept until a state that counts it stands in the store."""
        placed = self._placed(obs, event)
        if placed is None:
            self.fold(event.key)
        else:
            run, round_ = placed
            self.checkpoints.heard(run.uid, event.key, obs, round_.number, event.received_at)

    def _non_finite(self, obs: r.Observation, event: ev.Seen) -> None:
        """Kept while it holds."""
        placed = self._placed(obs, event)
        if placed is None:
            self.fold(event.key)
            return
        refused = self.numbers.heard(placed[0].uid, placed[1].number, event.key, obs, event.received_at)
        if refused:
            self.say("warning", f"{obs.node}: what it tells of numbers that are not finite is refused: {refused}")

    def _checksums(self, obs: r.Observation, event: ev.Seen) -> None:
        """Kept while its step decides anything."""
        placed = self._placed(obs, event)
        if placed is None:
            self.fold(event.key)
            return
        refused = self.checksums.heard(placed[0].uid, placed[1].number, event.key, obs, event.received_at)
        if refused:
            self.say("warning", f"{obs.node}: what it tells of checksums is refused: {refused}")

    def follow_moves(self, now: float) -> None:
        """What was said of a run that is part of another goes to that one."""
        moved, self.fleet.moved = self.fleet.moved, []
        for old, new in moved:
            self.checkpoints.moved(old, new, now)
            self.numbers.moved(old, new)
            self.checksums.moved(old, new)
