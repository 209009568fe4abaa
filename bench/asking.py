"""Whether asking for evidence disturbs a healthy job, and whether a rank that cannot answer delays anybody.

`rankpulse bench asking [--turns N] [--seconds S] [--every S] [--json]`. A real job of four ranks under torchrun, with
a real agent beside it. The question is the monitor's own, over the agent's endpoint, each time for a new order, so that
everything is collected anew: the kernel's word, worker servers, stacks, connections. Stretches in which the agent is
asked every few seconds alternate with stretches of the same length in which nobody is. How much the latter differ from
each other is the noise that a difference has to be held against.
"""

import asyncio
import contextlib
import json as json_
import os
import platform
import random
import signal
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, NamedTuple

from rankpulse.bench import asking_tables
from rankpulse.bench.asked import FORMAT
from rankpulse.bench.asking_figures import Stretch, compared
from rankpulse.core.dossier import Part
from rankpulse.core.events import Ask, Told
from rankpulse.core.records import Meeting, NodeState
from rankpulse.drills.children import Child
from rankpulse.drills.job import GRACE_S, job_env
from rankpulse.drills.stage import Stage
from rankpulse.monitor.asker import Asker
from rankpulse.monitor.clock import system
from rankpulse.store.secret import Tokens

NODE: Final = "node-0"
RANKS: Final = 4
PAUSES: Final = {"all CPUs busy": 0.0, "CPUs idle while a device works": 0.1}
WARM_S: Final = 5.0
SETTLED_S: Final = 2.0  # between two cases of ranks that cannot answer
QUESTIONS: Final = 5  # of each such case
OTHERS: Final = 48  # questions that wait for Python's lock: more than a server has threads
QUESTION: Final = b"POST /handler/dump_traceback HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"
START_LIMIT_S: Final = 180.0


class Answer(NamedTuple):
    """Of one question. `part`: None where the agent did not answer."""

    asked: float
    seconds: float
    part: Part | None
    detail: str


def run(turns: int = 12, seconds: float = 10.0, every_s: float = 3.0, json: bool = False) -> int:
    """Measure and print. Returns 0, or 1 when a question went unanswered."""
    report: dict[str, Any] = {
        "disturbance": {},
        "turns": turns,
        "seconds": seconds,
        "every_s": every_s,
        "date": datetime.now(UTC).date().isoformat(),
        "cpus": os.cpu_count(),
        "load": [round(one, 1) for one in os.getloadavg()],
        "machine": f"{platform.system()} {platform.release().partition('-')[0]} {platform.machine()}",
        "python": sys.version.split()[0],
        "torch": version("torch"),
    }
    for name, pause_s in PAUSES.items():
        with tempfile.TemporaryDirectory(prefix="rankpulse-bench-") as directory:
            measured = asyncio.run(_measure(Path(directory), pause_s, turns, seconds, every_s))
        report["disturbance"][name] = measured["disturbance"]
        report["cannot"] = measured["cannot"]  # of the job that leaves CPUs to others: of the last
    print(json_.dumps(report) if json else asking_tables.text(report))
    return 0 if all(case["unanswered"] == 0 for case in report["cannot"]) else 1


class Asked:
    """The job, its agent, and the monitor's way to ask it."""

    def __init__(self, times: Path, run_dir: Path, where: NodeState, meeting: Meeting) -> None:
        self.times, self.run_dir, self._where, self._meeting = times, run_dir, where, meeting
        self._told: asyncio.Queue[Told] = asyncio.Queue()
        self.asker = Asker(self._told.put_nowait, tokens=Tokens("", ""), boot_id=where.boot_id, clock=system())
        self._number = 0

    async def ask(self) -> Answer:
        self._number += 1
        order, began = f"bench-{self._number}", time.monotonic()
        run = (self._meeting.run_uid, self._meeting.round)
        self.asker.send([Ask(NODE, self._where.probe, self._where.boot_id, order, *run)])
        told = await self._told.get()
        return Answer(began, time.monotonic() - began, told.part, told.detail)

    def ends(self, rank: int = 0) -> list[float]:
        """When its steps ended."""
        data = (self.times / str(rank)).read_bytes()
        return [end for (end,) in FORMAT.iter_unpack(data[: len(data) // FORMAT.size * FORMAT.size])]


@contextlib.asynccontextmanager
async def _job(directory: Path, pause_s: float) -> AsyncIterator[Asked]:
    """Nobody but the bench asks: the monitor is not needed, and ends."""
    times = directory / "times"
    times.mkdir()
    async with Stage(directory, nodes=(NODE,)) as stage:
        await asyncio.to_thread(stage.monitor.end, grace_s=3.0)
        job = _torchrun(directory, stage.run_dirs[NODE], times, pause_s).start()
        try:
            meeting = await stage.witness.until(
                lambda: next(iter(stage.witness.all(Meeting)), None), START_LIMIT_S, "a round"
            )
            where = await stage.witness.until(
                lambda: next((one for one in stage.witness.all(NodeState) if one.probe), None), 30.0, "the agent"
            )
            asked = Asked(times, stage.run_dirs[NODE], where, meeting)
            await _moving(asked, job)
            yield asked
            await asked.asker.close()
        finally:
            job.signal(signal.SIGTERM)
            await asyncio.to_thread(job.wait, GRACE_S / 4)
            await asyncio.to_thread(job.end, grace_s=1.0)


def _torchrun(directory: Path, run_dir: Path, times: Path, pause_s: float) -> Child:
    argv = [
        *(sys.executable, "-m", "torch.distributed.run", "--nnodes", "1", "--nproc-per-node", str(RANKS)),
        *("--max-restarts", "0", "--rdzv-backend", "rankpulse", "--rdzv-id", "asking", "--local-addr", "127.0.0.1"),
        *("-m", "rankpulse.bench.asked", "--times", str(times), "--pause-s", str(pause_s)),
    ]
    return Child("torchrun", argv, log=directory / "job.log", env=job_env(run_dir, "rankpulse"))


async def _moving(asked: Asked, job: Child | None = None) -> None:
    """Until every rank has made some more steps."""
    deadline, before = time.monotonic() + START_LIMIT_S, _counts(asked)
    while any(now < then + 5 for now, then in zip(_counts(asked), before, strict=True)):
        if time.monotonic() > deadline or (job is not None and not job.alive()):
            raise RuntimeError(f"the job makes no steps\n{job.tail() if job else ''}")
        await asyncio.sleep(0.1)


def _counts(asked: Asked) -> list[int]:
    return [len(asked.ends(rank)) if (asked.times / str(rank)).exists() else 0 for rank in range(RANKS)]


async def _measure(directory: Path, pause_s: float, turns: int, seconds: float, every_s: float) -> dict[str, Any]:
    async with _job(directory, pause_s) as asked:
        await asyncio.sleep(WARM_S)
        stretches, answers = await _stretches(asked, turns, seconds, every_s)
        questions = [(one.asked, one.asked + one.seconds) for one in answers]
        disturbance = compared(stretches, asked.ends(), questions) | {"answers": _summary(answers)}
        return {"disturbance": disturbance, "cannot": [await _case(asked, name) for name in CASES] if pause_s else []}


async def _stretches(asked: Asked, turns: int, seconds: float, every_s: float) -> tuple[list[Stretch], list[Answer]]:
    """Quiet, asked, quiet, asked ... quiet."""
    stretches, answers = list[Stretch](), list[Answer]()
    for number in range(2 * turns + 1):
        began, is_asked = time.monotonic(), number % 2 == 1
        if is_asked:
            answers += await _asked_for(asked, seconds, every_s)
        await asyncio.sleep(max(began + seconds - time.monotonic(), 0.0))
        stretches.append(Stretch(began, time.monotonic(), is_asked))
    return stretches, answers


async def _asked_for(asked: Asked, seconds: float, every_s: float) -> list[Answer]:
    began, answers = time.monotonic(), list[Answer]()
    while time.monotonic() + every_s <= began + seconds or not answers:
        due = time.monotonic() + every_s
        answers.append(await asked.ask())
        await asyncio.sleep(max(due - time.monotonic(), 0.0))
    return answers


# --- ranks that cannot answer


async def _case(asked: Asked, name: str) -> dict[str, Any]:
    """One rank drawn by lot cannot answer; what becomes of the answer of its node."""
    with CASES[name](asked):
        await asyncio.sleep(0.5)
        answers = [await asked.ask() for _ in range(QUESTIONS)]
    await _moving(asked)
    await asyncio.sleep(SETTLED_S)
    return {"case": name, **_summary(answers)}


def _summary(answers: list[Answer]) -> dict[str, Any]:
    parts = [one.part for one in answers if one.part is not None]
    return {
        "questions": len(answers),
        "unanswered": len(answers) - len(parts),
        "seconds": [round(one.seconds, 3) for one in answers],
        "ranks": [len(part.ranks) for part in parts],
        "positions": [sum(bool(rank.positions) for rank in part.ranks) for part in parts],
        "stacks": [sum(bool(rank.stack) for rank in part.ranks) for part in parts],
    }


@contextlib.contextmanager
def _nothing(asked: Asked) -> Iterator[None]:
    yield


@contextlib.contextmanager
def _stopped(asked: Asked) -> Iterator[None]:
    pid = _victim(asked)
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@contextlib.contextmanager
def _held(asked: Asked) -> Iterator[None]:
    """Until it lets go by itself."""
    os.kill(_victim(asked), signal.SIGUSR1)
    yield


@contextlib.contextmanager
def _full(asked: Asked) -> Iterator[None]:
    """Python's lock is held, and all threads of the server wait for it with questions of others."""
    path, open_ = random.choice(_servers(asked)), list[socket.socket]()  # noqa: S311
    os.kill(_pid(path), signal.SIGUSR1)
    try:
        for _ in range(OTHERS):
            open_.append(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK))
            time.sleep(0.02)  # it takes them one by one
            with contextlib.suppress(BlockingIOError, BrokenPipeError):
                open_[-1].connect(str(path))
                open_[-1].sendall(QUESTION)
        yield
    finally:
        for one in open_:
            one.close()


CASES: Final = {
    "every rank can": _nothing,
    "one is stopped": _stopped,
    "one holds Python's lock": _held,
    "one holds it, and its server is full": _full,
}


def _victim(asked: Asked) -> int:
    return _pid(random.choice(_servers(asked)))  # noqa: S311


def _pid(server: Path) -> int:
    """Their names begin with it."""
    return int(server.name.partition("-")[0])


def _servers(asked: Asked) -> list[Path]:
    return sorted(asked.run_dir.rglob("*-*.sock"))
