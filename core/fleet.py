"""The fleet as the records tell it: nodes, runs, rounds, and which process belongs to which round.

A plain launch has no identity of its own: its label is not unique, its restart counter differs between nodes, its
port may be fixed. What identifies it is who met: processes that met at the same place belong to one round, and rounds
whose workers have the same launcher (the torchrun process of a node) belong to one run.
"""

import re
from dataclasses import dataclass, field
from typing import NamedTuple

from rankpulse.core.arrival import Arrival
from rankpulse.core.exits import Exit
from rankpulse.core.progress import PhaseClocks, RankProgress, RunAhead
from rankpulse.core.records import Beat, Launcher, Member, NodeState, Roster, RunRow, seated
from rankpulse.core.settings import DetectSettings

ROUNDS_KEPT = 4
RUNNING = "running"


class Process(NamedTuple):
    """A process, named so that it cannot be mistaken for another that got its number later."""

    node: str
    pid: int
    start: int


def process_of(member: Member) -> Process:
    return Process(member.node, member.pid, member.start)


class Silence(NamedTuple):
    """What is remembered of a silence that has ended."""

    lasted_s: float
    ended_at: float  # observer's monotonic seconds
    steps: dict[tuple[int, int], int]  # (pid, start) -> step in the last beat before it


@dataclass
class NodeView:
    """One node, as its beats show it."""

    name: str
    arrival: Arrival
    inc: int = -1
    seq: int = -1
    beat: Beat | None = None
    state: NodeState | None = None
    leaving: bool = False  # its agent said goodbye: silence is expected
    silent_since: float | None = None  # the deadline it missed
    relisted: bool = False  # the next beat is taken as it is, whatever its incarnation
    silence: Silence | None = None  # the one it came back from, until it is known whether its job went on meanwhile
    goodbye_key: str = ""  # the observation in which it said so


@dataclass
class RoundView:
    """One round: a set of processes that met."""

    number: int
    meeting: str
    world_size: int
    began_at: float
    at: float = 0.0  # UTC, for people: when its roster was first written
    written_at: float = float("-inf")  # when its roster was last asked to be written
    members: dict[int, Member] = field(default_factory=dict)
    progress: dict[int, RankProgress] = field(default_factory=dict)
    exits: dict[Process, Exit] = field(default_factory=dict)
    accounted: bool = False  # its failure is part of the incident of an earlier round

    def complete(self) -> bool:
        return len(self.members) == self.world_size

    def membership(self) -> tuple[int, frozenset[str]]:
        """What changes when a node joins or leaves."""
        return self.world_size, frozenset(member.node for member in self.members.values())

    def alive(self) -> list[Member]:
        return [member for member in self.members.values() if process_of(member) not in self.exits]

    def reporting(self) -> set[int]:
        """The ranks that have reported a step."""
        return {rank for rank, progress in self.progress.items() if progress.first_step >= 0}

    def stepped(self) -> bool:
        """Every rank of the round has finished a step."""
        return self.complete() and len(self.reporting()) == self.world_size

    def resumed_from(self) -> int | None:
        """The step the round went on from: one before the first that its ranks finished.

        None when no rank says so: counted optimizer steps start at nothing in every process.
        """
        firsts = [self.progress[rank].first_step for rank in self.reporting()]
        return min(firsts) - 1 if firsts and min(firsts) > 0 else None


@dataclass
class RunView:
    """One launch of a job, over its rounds."""

    uid: str
    run_id: str
    elastic: bool
    clocks: PhaseClocks
    ahead: RunAhead = field(default_factory=RunAhead)
    rounds: dict[int, RoundView] = field(default_factory=dict)
    launchers: dict[Launcher, bool] = field(default_factory=dict)  # -> still there
    launcher_keys: list[str] = field(default_factory=list)  # observations that told of their end
    outcome: str = RUNNING
    reason: str = ""
    ended_at: float | None = None  # UTC, for people

    @property
    def current(self) -> RoundView:
        return self.rounds[max(self.rounds)]

    def open(self) -> bool:
        return self.outcome == RUNNING

    def launchers_gone(self) -> bool:
        """All known launchers have ended (a plain launch without torchelastic has none that counts)."""
        return self.elastic and bool(self.launchers) and not any(self.launchers.values())


class Fleet:
    """All nodes and runs. Folding is idempotent: the same records in the same order give the same fleet."""

    def __init__(self, settings: DetectSettings) -> None:
        self._settings = settings
        self.nodes: dict[str, NodeView] = {}
        self.runs: dict[str, RunView] = {}
        self._by_process: dict[Process, tuple[RunView, RoundView]] = {}
        self._by_launcher: dict[Launcher, RunView] = {}
        self.changed_rosters: set[tuple[str, int]] = set()
        self.merged: list[str] = []  # uids of runs that turned out to be part of others, to be erased
        self.dropped_rosters: list[tuple[str, int]] = []  # too old to matter, to be erased

    def node(self, name: str) -> NodeView:
        if name not in self.nodes:
            self.nodes[name] = NodeView(name, Arrival(self._settings))
        return self.nodes[name]

    def where(self, process: Process) -> tuple[RunView, RoundView] | None:
        """The run and round of a process, if it has been placed."""
        return self._by_process.get(process)

    def launched_by(self, launcher: Launcher) -> RunView | None:
        return self._by_launcher.get(launcher)

    def place(self, row: RunRow, member: Member, now: float, revision: int) -> tuple[RunView, RoundView]:
        """The run and round that a process belongs to, made when they are new."""
        known = self._by_process.get(process_of(member))
        if known is not None:
            return known
        launcher = Launcher(member.node, row.launcher)
        run = self._run(row, launcher, member.rank) or self._new_run(row, revision)
        self._gather(run, row, now)
        if row.elastic and row.launcher and launcher not in run.launchers:
            run.launchers[launcher] = True
            self._by_launcher[launcher] = run
        round_ = self._round(run, row, member, now)
        self._join(run, round_, member)
        return run, round_

    def _gather(self, run: RunView, row: RunRow, now: float) -> None:
        """A newcomer's ranks may be seen at a meeting before those of the run that meets there: they are one run."""
        for other in list(self.runs.values()):
            if other is run or not other.open() or other.run_id != run.run_id or other.elastic != run.elastic:
                continue
            if len(other.rounds) == 1 and other.current.meeting == row.meeting and run.elastic:
                self._merge(other, run, row, now)

    def _merge(self, other: RunView, run: RunView, row: RunRow, now: float) -> None:
        old = other.current
        fresh = run.rounds and run.current.meeting == row.meeting
        into = run.current if fresh else self._round_numbered(run, max(run.rounds, default=0) + 1, row, now)
        for member in old.members.values():
            if member.rank not in into.members:
                self._join(run, into, member)
        into.progress.update({rank: seen for rank, seen in old.progress.items() if rank not in into.progress})
        into.exits.update(old.exits)
        for launcher, there in other.launchers.items():
            run.launchers.setdefault(launcher, there)
            self._by_launcher[launcher] = run
        run.launcher_keys += other.launcher_keys
        del self.runs[other.uid]
        self.merged.append(other.uid)

    def _run(self, row: RunRow, launcher: Launcher, rank: int) -> RunView | None:
        """The open run it belongs to. What a job says of its own run_uid is not believed: see `RunRow`."""
        run = self._by_launcher.get(launcher) if row.elastic and row.launcher else None
        if run is not None and not run.open() and all(row.meeting != old.meeting for old in run.rounds.values()):
            run = None  # it was taken for ended, and its torchrun went on to another meeting after all
        return run or next((run for run in self.runs.values() if self._meets(run, row, launcher, rank)), None)

    def _meets(self, run: RunView, row: RunRow, launcher: Launcher, rank: int) -> bool:
        """Whether a stranger's meeting place makes it one of this run.

        Where its rank is still wanted, yes, whatever launched it (a node may have several launchers). Where its rank is
        taken, only as the next round: not when its node was launched anew.
        """
        if not run.open() or run.elastic != row.elastic or run.run_id != row.run_id:
            return False
        here = [round_ for round_ in run.rounds.values() if round_.meeting == row.meeting]
        if not here or any(rank not in round_.members for round_ in here):
            return bool(here)
        mine = [other for other in run.launchers if other.node == launcher.node]
        others_live = any(there for other, there in run.launchers.items() if other.node != launcher.node)
        return not mine or (others_live and not any(run.launchers[other] for other in mine))

    def _new_run(self, row: RunRow, revision: int) -> RunView:
        slug = re.sub(r"[^A-Za-z0-9]+", "-", row.run_id).strip("-")[:24] or "run"
        uid = f"{slug}-{revision:x}"
        while uid in self.runs:
            uid += "x"
        run = self.runs[uid] = RunView(uid, row.run_id, row.elastic, PhaseClocks(self._settings))
        return run

    def _round(self, run: RunView, row: RunRow, member: Member, now: float) -> RoundView:
        if not run.rounds:
            return self._round_numbered(run, 1, row, now)
        for number in sorted(run.rounds, reverse=True):
            round_ = run.rounds[number]
            if round_.meeting == row.meeting and member.rank not in round_.members:
                return round_
            if round_.meeting == row.meeting:
                break
        return self._round_numbered(run, max(run.rounds) + 1, row, now)

    def _round_numbered(self, run: RunView, number: int, row: RunRow, now: float) -> RoundView:
        if number not in run.rounds:
            run.rounds[number] = RoundView(number, row.meeting, row.world_size, now)
            for old in sorted(run.rounds)[:-ROUNDS_KEPT]:
                self.dropped_rosters.append((run.uid, old))
                for member in run.rounds.pop(old).members.values():
                    self._by_process.pop(process_of(member), None)
        return run.rounds[number]

    def _join(self, run: RunView, round_: RoundView, member: Member) -> None:
        round_.members[member.rank] = member
        self._by_process[process_of(member)] = (run, round_)
        self.changed_rosters.add((run.uid, round_.number))

    def ended_beyond(self, kept: int) -> list[RunView]:
        """Ended runs beyond the newest `kept`, the oldest first."""
        ended = [run for run in self.runs.values() if not run.open()]
        return sorted(ended, key=lambda run: run.ended_at or 0.0)[: max(len(ended) - kept, 0)]

    def drop(self, run: RunView) -> None:
        """Forget a run."""
        self.runs.pop(run.uid, None)
        self._by_launcher = {launcher: other for launcher, other in self._by_launcher.items() if other is not run}
        self._by_process = {process: found for process, found in self._by_process.items() if found[0] is not run}

    def mark_all_rosters(self) -> None:
        """A new leader: rounds that formed while nobody led are written down now."""
        self.changed_rosters |= {(run.uid, number) for run in self.runs.values() for number in run.rounds}

    def roster(self, run: RunView, round_: RoundView) -> Roster:
        """The round as a record."""
        return Roster(
            run_uid=run.uid,
            run_id=run.run_id,
            round=round_.number,
            meeting=round_.meeting,
            world_size=round_.world_size,
            elastic=run.elastic,
            at=round_.at,
            seats=seated(round_.members.values()),
            launchers=tuple(sorted(run.launchers, key=lambda launcher: (launcher.node, launcher.launcher))),
        )

    def learn_roster(self, roster: Roster, now: float) -> None:
        """Fold a roster that some monitor wrote: what was agreed on stays so."""
        if roster.run_uid not in self.runs:
            self.runs[roster.run_uid] = RunView(
                roster.run_uid, roster.run_id, roster.elastic, PhaseClocks(self._settings)
            )
        run = self.runs[roster.run_uid]
        for launcher in roster.launchers:
            run.launchers.setdefault(launcher, True)
            self._by_launcher[launcher] = run
        row = RunRow(roster.run_id, roster.meeting, "", roster.world_size, roster.elastic)
        round_ = self._round_numbered(run, roster.round, row, now)
        round_.at = roster.at
        for member in roster.members:
            if process_of(member) not in self._by_process and member.rank not in round_.members:
                round_.members[member.rank] = member
                self._by_process[process_of(member)] = (run, round_)
