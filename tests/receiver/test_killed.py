"""The receiver ends at every line: before and after each write of its book and each call that changes something.

Whatever it was killed at, and whether or not an answer was lost, the job is started again exactly once, and the next
one of us knows that it is done.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from receiver_world import KubeWorld, Office, SlurmWorld, SystemdWorld, Time, restart, settings
from support import eventually

from rankpulse.receiver import journal as j
from rankpulse.receiver.acting import Later, Ran
from rankpulse.receiver.command import Command
from rankpulse.receiver.journal import Entry, Journal
from rankpulse.receiver.kubernetes import Kubernetes
from rankpulse.receiver.settings import CommandSettings, KubernetesSettings, SlurmSettings, TorchrunSettings
from rankpulse.receiver.slurm import Slurm
from rankpulse.receiver.torchrun import Torchrun

ID = "prod/i0001-0001-restart/1800000000"
KILLED, LOST = "killed", "its answer is lost"


class Killed(BaseException):
    """SIGKILL: nothing of ours runs after it."""


class Points:
    """Every place at which something can go wrong, in order. `hits`: at which place what goes wrong."""

    def __init__(self) -> None:
        self.met, self.hits, self.dead = list[str](), dict[int, str](), False

    def at(self, what: str) -> None:
        if self.dead:
            raise Killed
        way = self.hits.get(len(self.met))
        self.met.append(what)
        if way == KILLED:
            self.dead = True
            raise Killed
        if way == LOST and what.endswith("done"):
            raise Later("no answer")


class Book(Journal):
    """The journal with a point before and after each write."""

    def __init__(self, path: str, points: Points) -> None:
        super().__init__(path)
        self._points = points

    def _seam(self, what: str, write: Callable[[], None]) -> None:
        self._points.at(f"before {what}")
        write()
        self._points.at(f"after {what}")

    def take(self, entry: Entry, text: str) -> None:
        self._seam("take", lambda: super(Book, self).take(entry, text))

    def finish(self, id_: str, state: str, text: str, at: float) -> None:
        self._seam("finish", lambda: super(Book, self).finish(id_, state, text, at))

    def note(self, id_: str, what: str, text: str, at: float) -> None:
        self._seam(f"note {what}", lambda: super(Book, self).note(id_, what, text, at))

    def remember(self, id_: str, name: str, value: str) -> None:
        self._seam(f"remember {name}", lambda: super(Book, self).remember(id_, name, value))


class Scheduler(SlurmWorld):
    """Starts what may start as soon as it is looked at."""

    async def run(self, argv: Sequence[str], **more: Any) -> Ran:
        if argv[0] == "squeue" and self.state == "PENDING" and not self.held:
            self.start()
        return await super().run(argv, **more)


class Site:
    """`Programs`: a program of the site's that keeps to the rule and does nothing for a decision that it has had."""

    def __init__(self, before: Callable[[str], None]) -> None:
        self._before, self.had = before, list[str]()

    async def run(self, argv: Sequence[str], *, environ: Mapping[str, str], **_: Any) -> Ran:
        self._before("program")
        again = environ["RANKPULSE_DECISION"] in self.had
        assert environ["RANKPULSE_AGAIN"] == "1" or not again
        if not again:
            self.had.append(environ["RANKPULSE_DECISION"])
        self._before("program done")
        return Ran(0, "had it" if again else "ok")


class Play:
    """One decision through one actuator over as many lives of the receiver as it takes."""

    def __init__(self, name: str, folder: Path) -> None:
        name, _, failed = name.partition(" ")
        self.name, self.folder, self.points, self.time = name, folder, Points(), Time()
        folder.mkdir()
        at = self.points.at
        if name == "slurm":
            self.world: Any = Scheduler("FAILED" if failed else "RUNNING", before=at)
            self.actuator: Any = Slurm(SlurmSettings(), self.world, look_every_s=0)
            job: dict[str, Any] = {"users": ["ann"]}
        elif name == "kubernetes":
            self.world = KubeWorld(before=at)
            self.actuator = Kubernetes(KubernetesSettings(), self.world, look_every_s=0)
            job = {"namespace": "train"}
        elif name == "torchrun":
            self.world = SystemdWorld(before=at)
            self.actuator = Torchrun(TorchrunSettings(), self.world)
            job = {"target": "train@{run_id}.service"}
        else:
            self.world = Site(at)
            self.actuator = Command(CommandSettings(), self.world)
            job = {"argv": ["/opt/again", "{run_id}"]}
        self.settings = settings(folder, {"run_id": "*", "actuator": name, **job})

    async def life(self) -> None:
        """From its start until all is done, or until it is killed. The monitor, who heard nothing, tells it again."""
        self.points.dead = False
        office = Office(self.settings, {self.name: self.actuator}, self.time)
        office.journal.close()
        book = Book(self.settings.state_file, self.points)
        office.journal = office.work._journal = office.desk._journal = book
        try:
            office.desk.take_up()
            assert office.hear(restart()).status == 204
            await eventually(lambda: self.points.dead or not office.work.waiting, 20, "the end of this life")
        except Killed:
            pass
        await office.close()

    async def to_the_end(self) -> None:
        for _ in range(len(self.points.hits) + 1):
            await self.life()
        await self.life()  # and once more: nothing is left to be done

    def check(self) -> None:
        journal = Journal(self.settings.state_file)
        had = journal.had(ID)
        assert had is not None
        assert had.state == j.DONE
        journal.close()
        getattr(self, f"_check_{self.name}")()

    def _check_slurm(self) -> None:
        assert (self.world.requeues, self.world.started_with, self.world.state) == (1, ["gpu07"], "RUNNING")
        assert not self.world.held

    def _check_kubernetes(self) -> None:
        assert (self.world.suspends, self.world.resumes, self.world._suspended()) == (1, 1, False)
        assert self.world.nodes["gpu07"]["spec"]["unschedulable"] is True
        assert [one["key"] for one in self.world.nodes["gpu07"]["spec"]["taints"]] == [
            "nvidia.com/gpu",
            "rankpulse/left-out",
        ]

    def _check_torchrun(self) -> None:
        assert self.world.restarts == 1

    def _check_command(self) -> None:
        assert self.world.had == [ID]


async def points_of(name: str, folder: Path) -> list[str]:
    """Of a play in which nothing goes wrong."""
    play = Play(name, folder)
    await play.life()
    met = list(play.points.met)
    play.check()
    return met


@pytest.mark.parametrize("name", ["slurm", "slurm failed", "kubernetes", "command", "torchrun"])
async def test_killed_at_every_point(name: str, ram: Path) -> None:
    met = await points_of(name, ram / "calm")
    assert len(met) >= 10
    draw = random.Random(7)
    for point, what in enumerate(met):
        for way in (KILLED, LOST) if what.endswith("done") else (KILLED,):
            play = Play(name, ram / f"{point}-{way}")
            play.points.hits = {point: way, point + draw.randrange(1, len(met)): KILLED}
            await play.to_the_end()
            try:
                play.check()
            except AssertionError as error:
                raise AssertionError(f"{way} at point {point} ({what}), hits {play.points.hits}: {error}") from error
