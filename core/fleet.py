"""The fleet as the records tell it: nodes, runs, rounds, and which process belongs to which round.

A run of our own rendezvous says who it is: its agents vouch for run and round of every process. A plain launch has no
identity of its own: its label is not unique, its restart counter differs between nodes, its port may be fixed. What
identifies it is who met: processes that met at the same place belong to one round, and rounds whose workers have the
same launcher (the torchrun process of a node) belong to one run.
"""

import re

from rankpulse.core.arrival import Anew, Arrival
from rankpulse.core.deadlines import Deadlines
from rankpulse.core.joint import Joint, launchers_of
from rankpulse.core.phases import PhaseClocks
from rankpulse.core.records import Launcher, Meeting, Member, Roster, RunRow, seated
from rankpulse.core.settings import DetectSettings
from rankpulse.core.views import NodeView, Process, RoundView, RunView, process_of
from rankpulse.core.words import printable

ROUNDS_KEPT = 4
INTRUDERS_KEPT = 1000  # told once each


class Fleet:
    """All nodes and runs. Folding is idempotent: the same records in the same order give the same fleet."""

    def __init__(self, settings: DetectSettings) -> None:
        self._settings = settings
        self.nodes: dict[str, NodeView] = {}
        self.anew = Anew()
        self.deadlines = Deadlines(self.nodes, settings)
        self.runs: dict[str, RunView] = {}
        self._by_process: dict[Process, tuple[RunView, RoundView]] = {}
        self._by_launcher: dict[Launcher, RunView] = {}  # of plain launches
        self._by_torchrun: dict[Launcher, RunView] = {}  # of our rendezvous
        self.changed_rosters: set[tuple[str, int]] = set()
        self.merged: list[str] = []  # uids of runs that turned out to be part of others, to be erased
        self.moved: list[tuple[str, str]] = []  # the same, and which others
        self.dropped_rosters: list[tuple[str, int]] = []  # too old to matter, to be erased
        self.dropped_exits: list[str] = []  # observations about such rounds
        self.intruders: list[str] = []  # processes that were placed nowhere, in words
        self._known_intruders: set[Process] = set()

    def node(self, name: str) -> NodeView:
        if name not in self.nodes:
            self.nodes[name] = NodeView(name, Arrival(self._settings, self.anew))
            self.deadlines.watch(self.nodes[name])
        return self.nodes[name]

    def look_anew(self, node: str) -> None:
        """Where processes of this node belong, or whether they count, has changed: its next beat is placed anew."""
        if node in self.nodes:
            self.nodes[node].told = None

    def where(self, process: Process) -> tuple[RunView, RoundView] | None:
        """The run and round of a process, if it has been placed."""
        return self._by_process.get(process)

    def launched_by(self, launcher: Launcher) -> RunView | None:
        return self._by_torchrun.get(launcher) or self._by_launcher.get(launcher)

    def place(self, row: RunRow, member: Member, now: float, revision: int) -> tuple[RunView, RoundView] | None:
        """The run and round that a process belongs to, made when they are new. None: nowhere, see `intruders`.

        A row with a run_uid is its agent's word: run and round are those, and nothing is guessed.
        """
        known = self._by_process.get(process_of(member))
        if row.run_uid and (known is None or known[0].joint is None):
            return self._seat(row, member, now, known)
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

    # --- runs of our rendezvous

    def joint_run(self, uid: str, now: float, run_id: str = "") -> RunView | None:
        """The run of this run_uid, made when it is new; None when a plain launch goes by that name."""
        run = self.runs.get(uid)
        if run is None:
            joint = Joint(gone_at=now)  # until its launch is seen
            run = self.runs[uid] = RunView(uid, run_id, True, PhaseClocks(self._settings), joint=joint)
        return run if run.joint is not None else None

    def launcher_of(self, run: RunView, launcher: Launcher, *, there: bool) -> None:
        """A torchrun takes part in a run of our rendezvous, or does not any more."""
        run.launchers[launcher] = there
        self._by_torchrun[launcher] = run

    def without_launchers(self, run: RunView) -> None:
        """Who takes part is told anew."""
        for launcher in run.launchers:
            self._by_torchrun.pop(launcher, None)
        run.launchers.clear()

    def convene(self, run: RunView, meeting: Meeting, now: float) -> None:
        """A round has met: it is known before any of its workers is."""
        oldest = min(run.rounds, default=0)
        if meeting.round not in run.rounds and meeting.round < oldest and len(run.rounds) >= ROUNDS_KEPT:
            return
        round_ = self._round_numbered(run, meeting.round, RunRow(run.run_id, "", "", 0, True), now)
        round_.places = launchers_of(meeting)
        self.changed_rosters.add((run.uid, meeting.round))

    def _seat(
        self, row: RunRow, member: Member, now: float, known: tuple[RunView, RoundView] | None
    ) -> tuple[RunView, RoundView] | None:
        run = self.joint_run(row.run_uid, now, row.run_id)
        oldest = min(run.rounds, default=0) if run is not None else 0
        if run is not None and row.round < oldest and len(run.rounds) >= ROUNDS_KEPT:
            return None  # long past
        why = self._not_seated(run, row, member)
        if run is None or why:
            self._intruder(member, why)
            return None
        if known is not None:
            self._withdraw(member, *known, run.uid)
        round_ = self._round_numbered(run, row.round, row, now)
        round_.world_size = row.world_size
        if row.launcher and Launcher(member.node, row.launcher) not in run.launchers:
            self.launcher_of(run, Launcher(member.node, row.launcher), there=True)
        self._join(run, round_, member)
        return run, round_

    def _not_seated(self, run: RunView | None, row: RunRow, member: Member) -> str:
        """Why a process gets no seat in the round that it is said to be of; "" when it does."""
        if run is None:
            return f"its run_uid {row.run_uid} is that of a plain launch"
        if row.round < 1:
            return f"of run {row.run_uid}, and no round has the number {row.round}"
        round_ = run.rounds.get(row.round)
        if round_ is None:
            return ""
        sitting = round_.members.get(member.rank)
        if sitting is not None and process_of(sitting) not in round_.exits:
            return f"in round {row.round} of {row.run_uid} that is pid {sitting.pid} on {sitting.node}, which lives"
        if round_.world_size not in (0, row.world_size):
            return f"it counts {row.world_size} ranks in round {row.round} of {row.run_uid}, not {round_.world_size}"
        return ""

    def _intruder(self, member: Member, why: str) -> None:
        process = process_of(member)
        if process not in self._known_intruders and len(self._known_intruders) < INTRUDERS_KEPT:
            self._known_intruders.add(process)
            text = f"{member.node}: pid {member.pid} says that it is rank {member.rank}; {printable(why)}"
            self.intruders.append(f"{text}. It is not counted")

    def _withdraw(self, member: Member, run: RunView, round_: RoundView, to: str) -> None:
        """A process was taken for one of a plain launch until its agent knew better."""
        self._by_process.pop(process_of(member), None)
        round_.members.pop(member.rank, None)
        round_.progress.pop(member.rank, None)
        round_.reporting_changed()
        self.look_anew(member.node)
        if not any(view.members for view in run.rounds.values()):
            self.drop(run)
            self.merged.append(run.uid)
            self.moved.append((run.uid, to))

    # --- plain launches

    def _gather(self, run: RunView, row: RunRow, now: float) -> None:
        """A newcomer's ranks may be seen at a meeting before those of the run that meets there: they are one run."""
        for other in list(self.runs.values()):
            if other is run or not other.open() or other.run_id != run.run_id or other.elastic != run.elastic:
                continue
            if other.joint is not None or not other.rounds:
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
        into.reporting_changed()
        into.exits.update(old.exits)
        for process in old.exits:
            self.look_anew(process.node)
        for launcher, there in other.launchers.items():
            run.launchers.setdefault(launcher, there)
            self._by_launcher[launcher] = run
        run.launcher_keys += other.launcher_keys
        del self.runs[other.uid]
        self.merged.append(other.uid)
        self.moved.append((other.uid, run.uid))

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
        if run.joint is not None or not run.open() or run.elastic != row.elastic or run.run_id != row.run_id:
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
                gone = run.rounds.pop(old)
                self.dropped_rosters.append((run.uid, old))
                self.dropped_exits += [exit_.key for exit_ in gone.exits.values()]
                run.ordered.discard(old)
                for member in gone.members.values():
                    self._by_process.pop(process_of(member), None)
                    self.look_anew(member.node)
        return run.rounds[number]

    def _join(self, run: RunView, round_: RoundView, member: Member) -> None:
        if member.rank in round_.members:
            self.look_anew(round_.members[member.rank].node)
        round_.members[member.rank] = member
        self._by_process[process_of(member)] = (run, round_)
        self.look_anew(member.node)
        self.changed_rosters.add((run.uid, round_.number))

    def ended_beyond(self, kept: int) -> list[RunView]:
        """Ended runs beyond the newest `kept`, the oldest first."""
        ended = [run for run in self.runs.values() if not run.open()]
        return sorted(ended, key=lambda run: run.ended_at or 0.0)[: max(len(ended) - kept, 0)]

    def drop(self, run: RunView) -> None:
        """Forget a run."""
        self.runs.pop(run.uid, None)
        for index in (self._by_launcher, self._by_torchrun):
            for launcher in [launcher for launcher in run.launchers if index.get(launcher) is run]:
                del index[launcher]
        for process in [process for process, found in self._by_process.items() if found[0] is run]:
            del self._by_process[process]
            self.look_anew(process.node)

    def mark_all_rosters(self) -> None:
        """A new leader: rounds that formed while nobody led are written down now."""
        self.changed_rosters |= {(run.uid, number) for run in self.runs.values() for number in run.rounds}

    def roster(self, run: RunView, round_: RoundView) -> Roster:
        """The round as a record."""
        launchers = round_.places if run.joint is not None else run.launchers
        return Roster(
            run_uid=run.uid,
            run_id=run.run_id,
            round=round_.number,
            meeting=round_.meeting,
            world_size=round_.world_size,
            elastic=run.elastic,
            at=round_.at,
            seats=seated(round_.members.values()),
            launchers=tuple(sorted(launchers, key=lambda launcher: (launcher.node, launcher.launcher))),
            joint=run.joint is not None,
        )

    def learn_roster(self, roster: Roster, now: float) -> None:
        """Fold a roster that some monitor wrote: what was agreed on stays so."""
        if roster.run_uid not in self.runs and not roster.joint:
            self.runs[roster.run_uid] = RunView(
                roster.run_uid, roster.run_id, roster.elastic, PhaseClocks(self._settings)
            )
        run = self.joint_run(roster.run_uid, now, roster.run_id) if roster.joint else self.runs[roster.run_uid]
        if run is None or (run.joint is not None) != roster.joint:
            return  # two kinds of launch by one name: what is known already stays
        if roster.round < min(run.rounds, default=0) and len(run.rounds) >= ROUNDS_KEPT:
            self.dropped_rosters.append((run.uid, roster.round))  # long past, and its erasure did not come through
            return
        if not roster.joint:
            for launcher in roster.launchers:
                run.launchers.setdefault(launcher, True)
                self._by_launcher[launcher] = run
        row = RunRow(roster.run_id, roster.meeting, "", roster.world_size, roster.elastic)
        round_ = self._round_numbered(run, roster.round, row, now)
        round_.at, round_.world_size = roster.at, round_.world_size or roster.world_size
        for member in roster.members:
            if process_of(member) not in self._by_process and member.rank not in round_.members:
                round_.members[member.rank] = member
                self._by_process[process_of(member)] = (run, round_)
