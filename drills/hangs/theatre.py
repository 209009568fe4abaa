"""Where hangs are played: one stage and one small job for all of them. Orders are not armed: the verdict is wanted."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rankpulse.core import records as r
from rankpulse.drills.children import Child
from rankpulse.drills.hangs.wires import Wires
from rankpulse.drills.job import Job, job_env
from rankpulse.drills.stage import NO_STRIKES, Stage
from rankpulse.drills.witness import Timeout

NAME = "hangs"
LEARNED_STEPS = 40  # before the first fault: the monitor knows the pace of the job
GOES_ON_STEPS = 10  # of a later round
SAVE_S = 20.0
# who computes for so long without a step hangs, whatever it computes; minutes by default
MONITOR = f"{NO_STRIKES}[detect]\nhang_prior_s = 30.0\n"


class HangJob(Job):
    """Its torchruns fork their workers. `wires`: its nodes have namespaces of their own, and wires between them."""

    def __init__(self, stage: Stage, workers: int, wires: Wires | None = None) -> None:
        self._wires = wires
        super().__init__(stage.directory / "job", stage.run_dirs, name=NAME, workers=workers, backend="rankpulse")

    def new_launcher(self, node: str, run_dir: Path, index: int) -> Child:
        wires = self._wires
        argv = [sys.executable, "-m", "rankpulse.drills.hangs.launch", "--nnodes", self.nnodes]
        argv += ["--nproc-per-node", str(self.workers), "--max-restarts", "1000", "--rdzv-id", self.name]
        argv += ["--local-addr", wires.address(node) if wires else "127.0.0.1", "--rdzv-backend", self.backend]
        argv += ["rankpulse.drills.hangs.train", "--asked", str(self.asked)]
        env = job_env(run_dir, self.backend) | {"SAVE_S": str(SAVE_S)}
        if wires is not None:
            argv, env["GLOO_SOCKET_IFNAME"] = wires.on(node, argv), wires.interface(node)
        return Child(f"torchrun {node}", argv, log=self.directory / f"{node}.log", env=env)

    @property
    def asked(self) -> Path:
        return self.directory / "asked.json"

    def ask(self, pid: int, fault: str) -> None:
        draft = self.asked.with_suffix(".draft")
        draft.write_text(json.dumps({"pid": pid, "fault": fault}), encoding="utf-8")
        draft.replace(self.asked)


class Theatre:
    """`async with Theatre(stage) as theatre`: the stage is up, and a job of so many workers per node trains."""

    def __init__(self, stage: Stage, *, workers: int = 2, wires: Wires | None = None) -> None:
        self.stage, self._workers, self._wires = stage, workers, wires

    async def __aenter__(self) -> "Theatre":
        await self.stage.__aenter__()
        try:
            self.job = HangJob(self.stage, self._workers, self._wires)
            self.job.start()
            await self.trains(LEARNED_STEPS, 90.0)
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        if hasattr(self, "job"):
            await asyncio.to_thread(self._end)
        await self.stage.__aexit__()

    def _end(self) -> None:
        for launcher in self.job.launchers:
            launcher.signal(signal.SIGKILL)  # its workers die with it
        for launcher in self.job.launchers:
            launcher.end(grace_s=1.0)

    # --- what is so

    def roster(self) -> r.Roster:
        found = self._roster()
        assert found is not None
        return found

    def _roster(self) -> r.Roster | None:
        state = self.stage.witness.run(NAME)
        return self.stage.witness.roster(state.run_uid) if state is not None else None

    def incidents(self, since: float) -> list[r.Incident]:
        """Those about the job."""
        return [one for one in self.stage.witness.incidents(since) if one.run_uid]

    def told(self) -> str:
        """What everybody said last, for error messages."""
        children = [self.stage.monitor, *self.stage.agents.values(), *self.job.launchers]
        logs = [f"--- {child.name}\n{child.tail(25)}" for child in children]
        stories = [f"{one.id}: {one.klass} {one.action} {one.summary}" for one in self.stage.witness.incidents()]
        return "\n".join([*logs, *stories])

    # --- what is waited for

    async def until(self, found: Callable[[], Any], timeout_s: float, what: str) -> Any:
        try:
            return await self.stage.witness.until(found, timeout_s, what)
        except Timeout as error:
            raise Timeout(f"{error}\n{self.told()}") from error

    async def trains(self, steps: int, timeout_s: float) -> None:
        """Until every rank of a whole round has made so many steps, and no incident is open."""

        def whole() -> bool:
            roster = self._roster()
            made = {row.pid: row.step for beat in self.stage.witness.all(r.Beat) for row in beat.ranks}
            members = roster.members if roster is not None else ()
            there = len(members) == self.job.world_size and all(made.get(m.pid, -1) >= steps for m in members)
            return there and all(one.state == "closed" for one in self.incidents(0.0))

        await self.until(whole, timeout_s, f"a job that has made {steps} steps, and no open incident")

    async def begin_anew(self) -> None:
        """The round ends with all its ranks, and the next one trains."""
        before = self.roster().round
        for member in self.roster().members:
            if _lives(member):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(member.pid, signal.SIGKILL)
        await self.until(lambda: self.roster().round > before, 60.0, "another round")
        await self.trains(GOES_ON_STEPS, 60.0)


def _lives(member: r.Member) -> bool:
    try:
        fields = Path(f"/proc/{member.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return False
    return fields[19] == str(member.start) and fields[0] not in "ZX"
