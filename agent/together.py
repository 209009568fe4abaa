"""Everything on this node that has to do with rounds and orders, put together: torchruns, holders, mirror, presence."""

import asyncio
import os
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import msgspec

from rankpulse.agent import seats
from rankpulse.agent.advice import SaveAdvice
from rankpulse.agent.checkpoints import Checkpoints
from rankpulse.agent.clock import Clock
from rankpulse.agent.dossier import Dossiers
from rankpulse.agent.dumps import Dumps
from rankpulse.agent.evidence import Evidence
from rankpulse.agent.facts import Fact
from rankpulse.agent.folder import BadFolder, Folder, private
from rankpulse.agent.gathering import Gathering
from rankpulse.agent.gpus import Gpus
from rankpulse.agent.holders import Holders
from rankpulse.agent.log import Log
from rankpulse.agent.mirror import Mirror
from rankpulse.agent.orders import Orders
from rankpulse.agent.preflight import Preflight
from rankpulse.agent.preflight_look import Look
from rankpulse.agent.preflight_orphans import Leftovers
from rankpulse.agent.presence import Present, presence_ttl_s
from rankpulse.agent.proc import Exit
from rankpulse.agent.rdzv import Rendezvous
from rankpulse.agent.sock import Session
from rankpulse.agent.talk import Talk
from rankpulse.agent.torchruns import Torchruns
from rankpulse.agent.watch import Who, Workers, alive
from rankpulse.core.keys import Keys
from rankpulse.core.records import RunRow
from rankpulse.core.rendezvous import Timing
from rankpulse.core.settings import EvidenceSettings, PreflightSettings
from rankpulse.store.api import Store


@dataclass(slots=True)
class Together:
    """One per agent. `inc`: its incarnation, 0 while the node's name is not ours; `remember`: write the ledger;
    `gate`: how a node is looked at before it joins; `able`: how a source of the agent does; `collecting`: what is kept
    of evidence."""

    node: str
    boot_id: str
    keys: Keys
    store: Store
    workers: Workers
    clock: Clock
    rng: random.Random
    log: Log
    emit: Callable[[Fact], None]
    inc: Callable[[], int]
    remember: Callable[[], None]
    heartbeat_interval_s: float
    folder: Folder | None = None
    gate: PreflightSettings = field(default_factory=PreflightSettings)
    able: Callable[[str, str], None] = lambda _source, _problem: None
    collecting: EvidenceSettings = field(default_factory=EvidenceSettings)
    timing: Timing = field(default_factory=Timing)
    orders: Orders = field(init=False)
    torchruns: Torchruns = field(init=False)
    holders: Holders = field(init=False)
    rendezvous: Rendezvous = field(init=False)
    checkpoints: Checkpoints = field(init=False)
    dossiers: Dossiers = field(init=False)
    preflight: Preflight = field(init=False)
    _mirror: Mirror = field(init=False)
    _present: Present = field(init=False)

    def __post_init__(self) -> None:
        self._mirror = Mirror(self.keys, self.clock, self.log)
        self.torchruns = Torchruns(self._save)
        self.holders = Holders(self.torchruns, self.log, self.emit)
        self.rendezvous = Rendezvous(
            self.node, self.keys, self.store, self._mirror, self.torchruns, self.clock, self.rng, self.log,
            self.timing, named=lambda: bool(self.inc()), busy=self.workers.busy, lives=alive, saved=self._save,
        )  # fmt: skip
        self.torchruns.died = self._mirror.changed = self.rendezvous.look
        self.preflight = self._preflight()
        self.rendezvous.standing = self.preflight.standing
        ttl_s = presence_ttl_s(self.heartbeat_interval_s)
        self._present = Present(
            self.node, self.keys, self.store, self._mirror, self.clock, self.log, ttl_s, self.inc
        )  # fmt: skip
        self.dossiers = self._dossiers()
        self.orders = Orders(
            self.node, self.workers, self.torchruns, self.holders, self.dossiers, self.emit,
            self.log, self.rendezvous.push, self.remember, self.folder,
        )  # fmt: skip
        self.checkpoints = Checkpoints(self.workers, self.emit, self.log, self.clock.monotonic)
        self._mirror.ordered = self.orders.obey
        self.holders.released = self.orders.released
        self.rendezvous.speaking = self.orders.speaking
        self.workers.vouch, self.workers.holds, self.workers.word = self.vouch, self.holders.holds, self._word

    def _preflight(self) -> Preflight:
        mirror, run_dir = self._mirror, self.workers.run_dir
        left = Leftovers(
            self.workers, self.torchruns, lambda: mirror.view, lambda text: self.log.say("warning", text),
            self.gate.end_leftovers,
        )  # fmt: skip
        return Preflight(
            self.gate, self.node, run_dir, Look(self.gate), left, mirror, self.clock, self.log, self.rendezvous.look,
            self.able,
        )  # fmt: skip

    def _dossiers(self) -> Dossiers:
        gathering = Gathering(Evidence(self.workers.run_dir), Gpus(self.node), time.monotonic)
        dumps = Dumps(self._dumps_folder(), self.collecting.keep, self.collecting.keep_mb << 20)
        clock = self.clock
        return Dossiers(
            self.node, self.workers, gathering, dumps, clock.utc, clock.monotonic, redact=self.collecting.redact
        )

    def _dumps_folder(self) -> Folder | None:
        """A place of its own beside the observations, unless another is set. Without one, dumps are not kept."""
        path = self.collecting.dir or (os.path.join(self.folder.path, "dumps") if self.folder else "")
        try:
            found = private(path) if path and self.collecting.keep else None
        except BadFolder as error:
            self.able("dumps", f"dumps of ranks are not kept: {error}")
            return None
        self.able("dumps", "")
        return found

    def load(self) -> None:
        """Go on where the agent before this one stopped."""
        self.orders.load()
        if self.folder:
            self.torchruns.resume(seats.load(self.folder, self.boot_id))

    def move(self, folder: Folder | None) -> None:
        """The spool lies elsewhere from now on."""
        self.folder = self.orders.folder = folder
        self.dossiers.dumps.folder = self._dumps_folder()
        self.orders.save()
        self._save()

    def sessions(self) -> Mapping[str, Session]:
        return {
            "rendezvous": Talk(self.node, self.rendezvous).session,
            "hold": self.holders.session,
            "checkpoint": self.checkpoints.session,
            "advice": SaveAdvice(self.workers, self.keys, self.store, self.log, self.clock.monotonic).session,
        }

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._mirror.follow(self.store))
            tasks.create_task(self.rendezvous.run())
            tasks.create_task(self._present.run())

    async def close(self) -> None:
        await self.preflight.close()
        await self.orders.close()
        await self.dossiers.close()
        self.checkpoints.close()
        self._save()
        self.torchruns.close()

    def workers_changed(self) -> None:
        """A torchrun that died with workers left behind is gone when they are; one of them may have spoken early."""
        self.checkpoints.look()
        if any(one.dead for one in self.torchruns.table.values()):
            self.rendezvous.look()

    # -- identity: a job's word about its run is measured by what this agent knows ---------------------------------
    def vouch(self, launcher: Who, run: RunRow, owner: int) -> RunRow | None:
        """The run of a worker with this launcher; None while its torchrun should be known and is not."""
        placed = self.torchruns.placed(launcher)
        if placed and placed.sure and placed.owner in (0, owner):
            return _in_round(run, placed.run_uid, placed.round)
        return None if run.run_uid else _plain(run)

    def vouch_dead(self, run: RunRow, owner: int) -> RunRow:
        """The same for a process that was never seen alive: its launcher is not known, but whose it was is."""
        for one in self.torchruns.in_run(run.run_uid):
            if one.sure and one.owner in (0, owner):
                return _in_round(run, one.run_uid, one.round)
        return _plain(run)

    def _word(self, child: Who) -> Exit | None:
        holder = self.holders.of(child)
        return holder.ended if holder else None

    def _save(self) -> None:
        if self.folder:
            seats.save(self.folder, self.boot_id, self.torchruns.rows())


def _in_round(run: RunRow, run_uid: str, current: int) -> RunRow:
    """A worker may be of an earlier round than its torchrun is in by now, never of a later one."""
    round_ = run.round if run.run_uid == run_uid and 1 <= run.round <= current else current
    return msgspec.structs.replace(run, run_uid=run_uid, round=round_)


def _plain(run: RunRow) -> RunRow:
    return msgspec.structs.replace(run, run_uid="", round=-1)
