"""The checkpoint manager: what a training program calls.

    manager = CheckpointManager("checkpoints", model=model, optimizer=optimizer)
    resumed = manager.load()
    for step in range(resumed.step + 1 if resumed else 1, steps + 1):
        train_one_step()
        manager.step(step, metrics={"loss": loss})
    manager.close()

Every method is called by all ranks, in the same order. The directory is one that all nodes share.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

from rankpulse.core.words import printable
from rankpulse.trainer import attaching
from rankpulse.trainer.checkpoint import choosing, interval, reader, report, rotation, state, writer
from rankpulse.trainer.checkpoint.advised import Advised
from rankpulse.trainer.checkpoint.agreeing import Known
from rankpulse.trainer.checkpoint.background import Background
from rankpulse.trainer.checkpoint.durable import LOOKS_S, POLL_S, Bringing, Durable
from rankpulse.trainer.checkpoint.errors import CheckpointError, SaveFailed
from rankpulse.trainer.checkpoint.files import Files
from rankpulse.trainer.checkpoint.groups import together as this_world
from rankpulse.trainer.checkpoint.lastwords import meeting, serving
from rankpulse.trainer.checkpoint.lastwords.offering import LastWords, Setting
from rankpulse.trainer.checkpoint.loading import Resumed, Where, load_sharded
from rankpulse.trainer.checkpoint.manifest import CONSOLIDATED, SHARDED
from rankpulse.trainer.checkpoint.nearest import fetch_nearest, withdraw_aside
from rankpulse.trainer.checkpoint.parts import NAME_MAX
from rankpulse.trainer.checkpoint.saving import AUTO, OFF, How, Saved, begun, save_sharded
from rankpulse.trainer.checkpoint.staging import Stage
from rankpulse.trainer.checkpoint.target import Target
from rankpulse.trainer.checkpoint.tiers.keeping import LOCAL_KEEP, Tiers, asked
from rankpulse.trainer.checkpoint.tiers.placed import Placed, placed
from rankpulse.trainer.checkpoint.tiers.reach import within
from rankpulse.trainer.checkpoint.tiers.resuming import LOOK_S
from rankpulse.trainer.checkpoint.together import Together, on_first
from rankpulse.trainer.plain import plain_float

PHASE: Final = "checkpoint"
WAIT, SKIP = "wait", "skip"
SAID_MAX: Final = 4000  # characters of a line
_LARGEST: Final = 10**18


class CheckpointManager:
    """Saves and loads a training program: its model, optimizers, schedulers, scaler, step, metrics, random numbers.

    directory: shared by all nodes; made when it is not there. model: a module, wrapped or not (DDP, FSDP2,
    torch.compile). optimizer, scheduler: one or several. extra: by name, what else has state_dict() and
    load_state_dict(), or a dict of tensors and values.
    keep_last: how many checkpoints there are after a save that was verified, at least 1. The last verified one stays
    while the next is written: 1 takes room for two.
    mode: "sharded" (each rank writes its part), "consolidated" (rank 0 writes one file), "auto" (sharded for more
    than one rank and more than 1 GB). every_steps or every_seconds (a number, or "auto"): when `step` saves; neither
    given is "auto": from what a save costs and mtbf_s, the mean time between failures of this job in seconds; where
    you do not know that, the monitor's advice, if it has one.
    allow_reshard: load what another number of ranks has saved. verify_saved: how a save is read back ("fast", "full",
    "off"). async_save: `step` saves beside the training. when_busy: what a save beside the training does while the one
    before is still going on: "wait" for it, or "skip" itself.
    local: a directory on each node's own disk. Then a save goes there, and is saved when all nodes have theirs;
    `directory` gets it beside the training, as much of it as it can take. local_keep: checkpoints that stay there.
    peer_copies: on how many other nodes each node's shards are, too.
    durable: addresses, as fsspec knows them, to which every checkpoint is brought beside the training, the nearest
    first; a load takes from there what is newer than what is here. durable_writers: nodes that write to one of them at
    once, and to the shared directory where there is a local one. durable_keep: copies that stay there, as many as here
    when left out. durable_wait_s: for how long `close` waits for what is under way.
    last_words: at the end of each `step` what is needed is kept so that the survivors of a dying job can write a
    checkpoint of that step; last_words_s: how long that may take at the most.
    pulse: the process's own when one is attached.
    together, files, stage, clock: for tests.
    Raises StateRefused for what cannot be saved, ValueError for settings that contradict each other.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        model: Any,
        optimizer: Any = None,
        scheduler: Any = None,
        scaler: Any = None,
        extra: Mapping[str, Any] | None = None,
        keep_last: int = 3,
        mode: str = AUTO,
        every_steps: int | None = None,
        every_seconds: float | str | None = None,
        allow_reshard: bool = False,
        verify_saved: str = reader.FAST,
        mtbf_s: float | None = None,
        async_save: bool = False,
        when_busy: str = WAIT,
        local: str | os.PathLike[str] | None = None,
        local_keep: int = LOCAL_KEEP,
        peer_copies: int = 0,
        durable: Sequence[str] = (),
        durable_writers: int = 4,
        durable_keep: int | None = None,
        durable_wait_s: float = 600.0,
        last_words: bool = False,
        last_words_s: float = 10.0,
        pulse: Any = None,
        together: Together | None = None,
        files: Files | None = None,
        stage: Stage | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        _check_settings(mode, every_steps, every_seconds, verify_saved, keep_last, mtbf_s)
        _check_beside(when_busy, durable, durable_writers, durable_keep)
        if not _positive(last_words_s):
            raise ValueError(f"last_words_s is {last_words_s!r}: give seconds above 0")
        self._directory = os.path.abspath(os.fspath(directory))
        self._shared = self._directory  # what all nodes see, also where each has a directory of its own before it
        self._targets = _targets(self._directory, durable)
        self._parts = state.program(model, _several(optimizer), _several(scheduler), scaler, extra or {})
        wanted = local is not None or peer_copies
        two = asked(local, self._directory, keep_last, local_keep, peer_copies, self._targets) if wanted else None
        self._together = this_world() if together is None else together
        self._ours = together is None
        self._files = files or Files()
        world = this_world if together is None else lambda: together
        self._tiers: Tiers | None = None
        durable_keep = keep_last if durable_keep is None else durable_keep
        if two is not None:
            self._together = here = placed(self._together, two.local, self._files)
            how = self._bringing(durable_writers, durable_keep)
            self._tiers = Tiers(two, self._targets, here, self._files, how, world)
            self._directory, keep_last = two.local, two.local_keep
        self._keep, self._mode, self._verify = keep_last, mode, verify_saved
        self._reshard, self._mtbf_s, self._pulse = allow_reshard, mtbf_s, pulse
        self._every_steps = every_steps
        self._every_s = interval.AUTO if every_seconds is None and every_steps is None else every_seconds
        self._verified: set[str] = set()
        self._damaged: tuple[str, ...] = ()
        self._memo: reader.Memo = {}
        self._limit: int | None = None  # that the load obeyed
        self._said: set[str] = set()
        self._last_bytes = 0
        self._save_s: float | None = None
        self._advised = Advised()
        self._damped = interval.Damped()
        self._clock = clock
        self._saved_at = self._checked_at = clock()
        self._checked_step: int | None = None
        self._next_check = -1
        self._started_ns = self._probe()
        self._known = Known()
        self._async, self._when_busy, self._stage = async_save, when_busy, stage or Stage()
        self._background = Background(
            self._stage, lambda: self._grouped(world()), self._saved_beside, self._failed_beside
        )
        if async_save:
            self._background.open()
        self._durable_wait_s = durable_wait_s
        first_here = self._together.local_rank == 0
        how = self._bringing(durable_writers, durable_keep)
        self._durable = self._tiers.durable if self._tiers else Durable(self._targets, how, first_here)
        self._newest: tuple[int, str] = (-1, "")  # step and path of what this life has saved, or loaded
        self._last_words = self._ready(last_words_s) if last_words else None

    def load(self, verify: str = reader.FULL, resume_before_step: int | None = None) -> Resumed | None:
        """Load the newest checkpoint that verifies on all ranks; None when there is none (a fresh start).

        verify: "full" (sha256) or "fast" (xxh3). resume_before_step: only checkpoints of earlier steps; later ones
        are set aside. Left out, the monitor's word counts (RANKPULSE_RESUME_BEFORE_STEP).
        Raises NothingVerified, WorldSizeChanged, NewerSchema, StateMismatch, RanksLost, the same on all ranks.
        """
        if verify not in (reader.FULL, reader.FAST):
            raise ValueError(f"verify is {verify!r}: use 'full' or 'fast'")
        if resume_before_step is not None and not (type(resume_before_step) is int and resume_before_step >= 0):
            raise ValueError(f"resume_before_step is {resume_before_step!r}: give a whole number from 0 on")
        self._background.join()
        where = Where(
            allow_reshard=self._reshard,
            verify=verify,
            resume_before_step=resume_before_step,
            files=self._files,
            say=say,
            tell=report.tell,
        )
        if self._last_words is not None:
            self._last_words.forget()
        with self._phase():
            if self._together.rank == 0:
                self._end_leaves()
            resumed = self._loaded(where) if self._tiers is None else self._tiers.load(self._parts, where)
        if resumed is not None:
            self._verified, self._damaged = {resumed.path}, resumed.damaged
            self._stands(resumed.step, resumed.path)
            self._limit = resumed.resume_before_step
        self._saved_at = self._checked_at = self._clock()
        self._checked_step, self._next_check = None, -1
        return resumed

    def _loaded(self, where: Where) -> Resumed | None:
        self._fetch(where)
        resumed = load_sharded(self._directory, self._parts, together=self._together, where=where)
        if self._together.rank == 0:
            withdraw_aside(self._directory, self._targets, say)
        return resumed

    def step(self, step: int, metrics: Mapping[str, Any] | None = None) -> Saved | None:
        """Step `step` is done: save if it is time. A save that fails is said and told, and training goes on.

        With async_save the save is begun, and None is returned: see `wait`.
        Raises StateRefused (a mistake in the program) and RanksLost (another rank has died), also of a save beside the
        training that is over.
        """
        self._background.surface()
        self._keep_ready(step, metrics)
        if not self._due(step):
            return None
        try:
            if not self._async:
                return self._save(step, metrics)
            self._save_async(step, metrics)
            return None
        except SaveFailed:  # said already
            return None

    def save(self, step: int, metrics: Mapping[str, Any] | None = None) -> Saved:
        """Save now, and return when it is saved; one that goes on beside the training is waited for first.

        Raises SaveFailed (the checkpoints before are as they were), StateRefused, RanksLost.
        """
        self._keep_ready(step, metrics)
        return self._save(step, metrics)

    def _save(self, step: int, metrics: Mapping[str, Any] | None) -> Saved:
        numbers, how = _numbers(step, metrics), self._how()
        with self._phase():
            self._background.join()
            try:
                saved = save_sharded(
                    self._directory, self._parts, step, metrics=numbers, together=self._together, how=how
                )
            except SaveFailed as error:
                self._save_failed(step, str(error))
                raise
        self._saved_at = self._clock()
        self._saved(saved, saved.save_s + saved.verify_s)
        self._background.forgive()
        return saved

    def save_async(self, step: int, metrics: Mapping[str, Any] | None = None) -> bool:
        """Begin a save, and return when training may go on. False: skipped, because one is still going on.

        What the checkpoint has is the state of now: parameters and what optimizers keep are copied until the next step
        of an optimizer, which waits if it must, everything else before this returns. Whoever changes parameters by
        other means calls `before_update` first. Files are written, read back and committed beside the training.
        Raises StateRefused, SaveFailed and RanksLost for what goes wrong until it returns; what goes wrong later is
        said and told, and raised by `wait`, `close`, and, where the program must end, by the next `step` or save.
        """
        self._keep_ready(step, metrics)
        return self._save_async(step, metrics)

    def _save_async(self, step: int, metrics: Mapping[str, Any] | None) -> bool:
        numbers, how = _numbers(step, metrics), self._how()
        self._background.surface()
        if self._when_busy == SKIP and self._together.tell(self._background.busy):
            self._skipped(step)
            return False
        with self._phase():
            self._background.join()
            self._background.surface()
            self._background.open()
            try:
                found = begun(self._parts, step, numbers, self._together, how)
            except SaveFailed as error:
                self._save_failed(step, str(error))
                raise
            self._background.start(self._directory, found, how, lambda: self._clock() - found.began)
        self._saved_at = self._clock()
        return True

    def before_update(self) -> None:
        """Call it before parameters, or what an optimizer keeps of them, are changed by anything but its `step`: an
        update by hand, a merge of weights. Returns when a save that was begun has copied what it needs."""
        self._stage.before_update()
        if self._last_words is not None:
            self._last_words.gate.by_hand()

    def wait(self, timeout_s: float | None = None) -> Saved | None:
        """Wait until no save goes on beside the training (on this rank). What the last one has saved; None when there
        was none, or it is not over yet. Raises what it has met: SaveFailed, StateRefused, RanksLost."""
        with self._phase():
            self._background.join(timeout_s)
        return self._background.surface(failures=True)

    @property
    def saving(self) -> bool:
        """Whether a save goes on beside the training, on this rank."""
        return self._background.busy

    def latest(self) -> int | None:
        """The step of the newest committed checkpoint that can be read here; None when there is none."""
        if self._tiers is not None:
            return self._tiers.latest()
        return next((found.step for found in reader.scan(self._directory).committed if not found.refused), None)

    def close(self) -> None:
        """Let the manager's process groups go, when the save is over that goes on beside the training. Nothing that
        was saved is touched. Raises what that save has met, if nobody was told of it by an exception."""
        if self._last_words is not None:
            serving.depart(self._last_words)
        with self._phase():
            self._background.close()
            self._durable.close(self._durable_wait_s)
            if self._tiers is not None:
                self._tiers.close(self._durable_wait_s)
        self._advised.close()
        together = self._together
        if self._ours and hasattr(together, "close"):
            together.close()
        self._background.surface(failures=True)

    def _due(self, step: int) -> bool:
        if self._every_steps is not None and step % self._every_steps == 0:
            return True
        back = self._checked_step is not None and step < self._checked_step  # counted anew: do not wait for ever
        return self._every_s is not None and (back or step >= self._next_check) and self._checked(step)

    def _checked(self, step: int) -> bool:
        """A check point: rank 0 looks at its clock, and all do as it says."""
        now = self._clock()
        steps = 0 if self._checked_step is None else step - self._checked_step
        found = interval.check(
            interval_s=self._interval_s(now),
            since_save_s=now - self._saved_at,
            since_check_s=now - self._checked_at,
            steps=steps,
        )
        asked = self._together.rank == 0 and self._advised.save_now()
        due, next_in = self._together.tell([found.due or asked, found.next_in])
        self._checked_at, self._checked_step, self._next_check = now, step, step + next_in
        return bool(due)

    def _interval_s(self, now: float) -> float:
        """On the other ranks it says nothing: they do as rank 0 says."""
        heard_s = self._advised.look(now) if self._together.rank == 0 else None
        if isinstance(self._every_s, float | int):
            return float(self._every_s)
        advised_s = heard_s if self._mtbf_s is None else None
        wanted_s = interval.auto_s(self._save_s, self._mtbf_s, self._together.world_size, advised_s)
        return self._damped.followed_s(wanted_s, self._save_s, advised=advised_s is not None)

    def _saved(self, saved: Saved, cost_s: float) -> None:
        """cost_s: what it took of the training's time."""
        self._save_s = self._damped.cost_s(cost_s)
        self._last_bytes = saved.bytes
        self._stands(saved.step, saved.path)
        if self._last_words is not None:
            self._last_words.measured(saved.save_s, self._together.rank)
        if saved.verified:
            self._verified = {saved.path}
        if self._tiers is not None:
            self._tiers.saved(saved)
        else:
            self._durable.offer(saved.path)
        if saved.verified and self._keeps_room:
            self._thin_out()
        if self._together.rank == 0:
            report.tell(
                "saved", step=saved.step, bytes=saved.bytes, shards=saved.shards, kind=saved.kind, save_s=saved.save_s,
                verified=saved.verified, verify_s=saved.verify_s,
                oldest=self._oldest(), local=self._tiers is not None,
            )  # fmt: skip

    def _oldest(self) -> int:
        """The earliest step that can still be loaded, as far as manifests tell; -1 when that cannot be told."""
        with suppress(CheckpointError):
            sound = [one for one in reader.scan(self._directory, self._memo).committed if not one.refused]
            oldest = min((one.step for one in sound if one.path not in self._damaged), default=-1)
            return oldest if self._tiers is None else self._tiers.oldest(oldest)
        return -1

    def _bringing(self, writers: int, keep: int) -> Bringing:
        nodes = self._together.nodes
        poll_s = max(POLL_S, max(nodes) / LOOKS_S)
        return Bringing(nodes[self._together.rank], nodes, writers, keep, say, poll_s=poll_s, tell=report.tell)

    def _grouped(self, world: Together) -> Together:
        """Another group of the same ranks, with the same nodes."""
        return Placed(world, self._together.nodes) if self._tiers is not None else world

    @property
    def _keeps_room(self) -> bool:
        """Whether this rank looks after the directory: rank 0, or the first of each node where each has its own."""
        return self._together.rank == 0 if self._tiers is None else self._tiers.first_here

    def _fetch(self, where: Where) -> None:
        """The newest checkpoint comes here from where it is, if it is not here."""
        if not self._targets:
            return

        def fetch() -> str:
            limit = choosing.limit_of(where.resume_before_step, where.environ)
            return fetch_nearest(self._files, self._directory, self._targets, limit, say)

        on_first(self._together, fetch, lambda faults: faults[0].error() or CheckpointError(str(faults[0])))

    def _how(self) -> How:
        return How(
            self._mode,
            self._verify,
            self._files,
            self._room,
            clock=self._clock,
            say=self._say_once,
            resumed_before_step=self._limit,
            known=self._known,
            onto=None if self._tiers is None else self._tiers.onto,
            heard=self._heard,
        )

    def _end_leaves(self) -> None:
        """On rank 0: what survivors of earlier lives have begun, and may still write. A shared directory behind local
        disks may be gone: nobody can write there then, either."""
        own = self._last_words.life if self._last_words else ""
        if self._tiers is None:
            meeting.sweep(self._files, self._shared, own)
            return
        with suppress(TimeoutError):
            within(LOOK_S, lambda: meeting.sweep(self._files, self._shared, own))

    def _stands(self, step: int, path: str) -> None:
        """What lies on the disks of nodes may be lost with the one that dies: it is no reason to write nothing."""
        if self._tiers is None:
            self._newest = (step, path)

    def _ready(self, cap_s: float) -> LastWords:
        """Survivors are on several nodes: they write to what they share."""
        setting = Setting(
            self._parts, self._shared, float(cap_s), self._files, lambda: self._newest, lambda: self._limit,
            self._updating, say, clock=self._clock,
        )  # fmt: skip
        last = LastWords(setting)
        last.gate.open()
        serving.serve(last, say, os.environ)
        return last

    def _heard(self, state: state.Captured, together: Together) -> None:
        if self._last_words is not None:
            self._last_words.heard(state, together)

    def _keep_ready(self, step: int, metrics: Mapping[str, Any] | None) -> None:
        """The state of this step, as far as it will not keep, for last words."""
        if self._last_words is not None:
            self._last_words.at_step(step, _numbers(step, metrics), self._together)

    def _updating(self, begun: bool) -> None:
        pulse = self._pulse if self._pulse is not None else attaching.attached()
        if pulse is not None:
            pulse.updating(begun)

    def _saved_beside(self, saved: Saved) -> None:
        """In the writer thread. The interval counts from when it was begun; what it took of the training is what it
        cost, and a tenth of all it took besides, so that saves as long as the interval never follow one another."""
        self._saved(saved, max(saved.stood_s, interval.MOST_OF_TIME * (saved.save_s + saved.verify_s)))

    def _failed_beside(self, step: int, error: SaveFailed) -> None:
        self._save_failed(step, str(error))

    def _skipped(self, step: int) -> None:
        self._saved_at = self._clock()  # not again at once
        if self._together.rank == 0:
            say(f"step {step} is not saved: the save before is still going on")

    def _say_once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            say(text)

    def _save_failed(self, step: int, reason: str) -> None:
        self._saved_at = self._clock()  # not again at once
        if self._together.rank == 0:
            say(f"{reason.rstrip('.')}. Training goes on; the checkpoints before are untouched.")
            report.tell("save_failed", step=step, reason=reason)

    def _room(self, needed: int) -> str:
        """Before anything is written: make room. Why a save cannot work, "" when it may."""
        rotation.sweep(self._files, self._directory, self._started_ns)
        expected = needed if self._tiers is not None else max(needed, self._last_bytes)
        short = self._removed(max(self._keep - 1, 1), expected)
        return f"{self._directory} needs {short} bytes more than it has: free space there" if short else ""

    def _removed(self, keep: int, needed: int) -> int:
        """Remove all but `keep`, never the last verified one. The bytes that are missing nevertheless. By who looks
        after the directory."""
        if self._tiers is not None:
            short, failed = self._tiers.removed(keep, needed, self._verified, self._damaged, self._memo)
            if failed:
                say(failed)
            return int(short)
        room = rotation.make_room(
            self._files,
            self._directory,
            keep=keep,
            verified=self._verified,
            needed=needed,
            damaged=self._damaged,
            memo=self._memo,
        )
        if room.failed:
            say(room.failed)
        if room.verified:
            self._verified = {room.verified}
        return room.short

    def _thin_out(self) -> None:
        """On one rank, alone: with a verified one more, one before it may go. What cannot goes before the next save."""
        with suppress(CheckpointError, OSError):
            if reader.count(self._directory) > self._keep:
                self._removed(self._keep, 0)

    def _probe(self) -> int:
        """When this manager began, by the clock of the directory's file system: attempts before that are rubbish."""
        if not self._keeps_room:
            return 0
        with suppress(OSError):
            writer.ensure(self._files, self._directory)
            return rotation.probe(self._files, self._directory, os.urandom(4).hex())
        return 0

    @contextmanager
    def _phase(self) -> Iterator[None]:
        pulse = self._pulse if self._pulse is not None else attaching.attached()
        if pulse is None:
            yield
            return
        with pulse.phase(PHASE):
            yield


def say(text: str) -> None:
    """One line for people, on stderr; names in a checkpoint are anybody's."""
    with suppress(Exception):  # it may be closed or absent
        sys.stderr.write(f"rankpulse: {printable(text, SAID_MAX)}\n")


def _label(name: Any) -> str:
    """The name of a metric as a manifest takes it: for a name no save is given up."""
    return str(name).encode("utf-8", "replace").decode()[:NAME_MAX]


def _numbers(step: int, metrics: Mapping[str, Any] | None) -> dict[str, float]:
    """The metrics as a manifest takes them. Raises ValueError for what is no step."""
    if type(step) is not int or not 0 <= step <= _LARGEST:
        raise ValueError(f"step is {step!r}: give a whole number from 0 to 10**18")
    return {_label(name): plain_float(value) for name, value in (metrics or {}).items()}


def _several(given: Any) -> Sequence[Any]:
    if given is None:
        return ()
    return tuple(given) if isinstance(given, list | tuple) else (given,)


def _check_settings(
    mode: str, every_steps: Any, every_seconds: Any, verify_saved: str, keep_last: int, mtbf_s: float | None
) -> None:
    choices = (AUTO, SHARDED, CONSOLIDATED)
    if mode not in choices:
        raise ValueError(f"mode is {mode!r}: use one of {', '.join(choices)}")
    if verify_saved not in (reader.FAST, reader.FULL, OFF):
        raise ValueError(f"verify_saved is {verify_saved!r}: use 'fast', 'full' or 'off'")
    if every_steps is not None and every_seconds is not None:
        raise ValueError("every_steps and every_seconds are both given: choose one")
    if every_steps is not None and (type(every_steps) is not int or every_steps < 1):
        raise ValueError(f"every_steps is {every_steps!r}: give a whole number from 1 on")
    if every_seconds is not None and every_seconds != interval.AUTO and not _positive(every_seconds):
        raise ValueError(f"every_seconds is {every_seconds!r}: give seconds above 0, or 'auto'")
    if type(keep_last) is not int or keep_last < 1:
        raise ValueError(f"keep_last is {keep_last!r}: give a whole number from 1 on")
    if mtbf_s is not None and not _positive(mtbf_s):
        raise ValueError(f"mtbf_s is {mtbf_s!r}: give seconds above 0")


def _check_beside(when_busy: str, durable: Sequence[str], writers: int, keep: int | None) -> None:
    if when_busy not in (WAIT, SKIP):
        raise ValueError(f"when_busy is {when_busy!r}: use 'wait' or 'skip'")
    if isinstance(durable, str):
        raise ValueError(f"durable is {durable!r}: give a list of addresses")
    for name, value in (("durable_writers", writers), ("durable_keep", 1 if keep is None else keep)):
        if type(value) is not int or value < 1:
            raise ValueError(f"{name} is {value!r}: give a whole number from 1 on")


def _targets(directory: str, durable: Sequence[str]) -> list[Target]:
    """Raises ValueError for a place that is given twice: files would be written over while they are read."""
    found = [Target(url) for url in durable]
    places = [os.path.realpath(directory), *(target.place for target in found)]
    twice = next((target.url for at, target in enumerate(found, 1) if target.place in places[:at]), "")
    if twice:
        raise ValueError(f"durable has {twice}, which is the directory itself or another of the targets")
    return found


def _positive(value: Any) -> bool:
    return type(value) in (int, float) and 0 < value < float("inf")
