"""A bench for the agent: real workers under a real launcher, forged slots, and an agent over a store."""

import asyncio
import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec

from rankpulse.agent.agent import Agent
from rankpulse.agent.gpu_devices import Devices
from rankpulse.agent.host import Host
from rankpulse.agent.log import Log
from rankpulse.core import codec, settings, slot
from rankpulse.core.keys import Keys
from rankpulse.core.records import AgentClaim, Beat, Member, NodeHealth, NodeState, Observation, Order, seated
from rankpulse.store.api import Store

WORKER = """
import ctypes, os, signal, sys, types
if not os.environ.get("TEST_ORPHAN"):
    ctypes.CDLL(None).prctl(1, 9)  # no worker outlives its test
sys.modules["torch"] = types.ModuleType("torch")  # the real one takes seconds to import and is not needed here
exec(os.environ.get("TEST_BEFORE", ""))
from rankpulse.trainer import attach
import rankpulse.trainer.endings
uid = int(os.environ.get("TEST_UID", "0"))
if uid:
    os.setresuid(uid, uid, uid)
pulse = attach() if "TEST_UNATTACHED" not in os.environ else None
if "TEST_UPDATING" in os.environ:
    pulse.updating(True)
if "TEST_TELLS" in os.environ:
    from rankpulse.trainer.checkpoint.report import tell
    event, step = os.environ["TEST_TELLS"].split()
    assert tell(event, step=int(step))
if "TEST_ASKS" in os.environ:
    import itertools, time
    from rankpulse.trainer.checkpoint.advised import ASK_EVERY_S, Advised
    advised = Advised()
    deadline = time.monotonic() + 20
    for number in itertools.count():
        if advised.look(number * ASK_EVERY_S / 10) is not None or time.monotonic() > deadline:
            break
        time.sleep(0.02)
    pulse.step(round(advised.look(0.0) or 0))
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
print(os.getpid(), flush=True)
if "TEST_EXIT" in os.environ:
    signal.sigwait({signal.SIGUSR1})  # until the test has seen it
    sys.exit(int(os.environ["TEST_EXIT"]))
for line in sys.stdin:
    word, _, rest = line.strip().partition(" ")
    if word == "step":
        n, *numbers = rest.split()
        pulse.step(int(n), *map(float, numbers))
    elif word == "become":
        os.environ.update(RANK=rest, LOCAL_RANK=rest)
        os.execv(sys.executable, [sys.executable, "-c", os.environ["TEST_WORKER"]])
    elif word == "close":
        pulse.close()
    elif word == "exit":
        sys.exit(int(rest))
    elif word == "raise":
        raise ValueError(rest)
    print("ok", flush=True)
"""
LAUNCHER = """
import ctypes, os, subprocess, sys
ctypes.CDLL(None).prctl(1, 9)
env = {**os.environ, "TORCHELASTIC_RUN_ID": os.environ["TEST_RUN_ID"]}  # as torchrun does: for its workers alone
sys.exit(subprocess.Popen([sys.executable, "-c", sys.argv[1]], env=env).wait() and 1)
"""


class Job:
    """One worker; with a launcher between it and the test when asked for."""

    def __init__(
        self, run_dir: str, *, rank: int, world: int, launcher: bool, run_id: str, uid: int, inside: tuple[str, ...]
    ) -> None:
        env = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "TORCHELASTIC", "RANKPULSE"))}
        env |= {"RANKPULSE_DIR": run_dir, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world)}
        env |= {"TORCHELASTIC_RUN_ID": run_id, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29999", "TEST_UID": str(uid)}
        env["TEST_WORKER"] = WORKER
        if launcher:
            env["TEST_RUN_ID"] = env.pop("TORCHELASTIC_RUN_ID")
        python = [*inside, sys.executable, "-c"]
        command = [*python, LAUNCHER, WORKER] if launcher else [*python, WORKER]
        # nobody collects a worker's exit status before the agent looks, or everybody does: both must work
        self.process = subprocess.Popen(
            command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self.process.stdout
        self.pid = int(self.process.stdout.readline())

    def tell(self, line: str) -> None:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        if not line.startswith(("exit", "raise")):
            self.process.stdout.readline()

    def kill(self, number: int = signal.SIGKILL) -> None:
        os.kill(self.pid, number)

    def reap(self) -> int:
        return self.process.wait(20)

    @property
    def alive(self) -> bool:
        return self.process.poll() is None


class Crew:
    """Starts jobs and ends them all."""

    def __init__(self, run_dir: str) -> None:
        self.run_dir = run_dir
        self.jobs: list[Job] = []

    def __enter__(self) -> "Crew":
        return self

    def __exit__(self, *_: object) -> None:
        for job in self.jobs:
            with contextlib.suppress(ProcessLookupError):
                job.process.kill()
            job.process.wait()
            for pipe in (job.process.stdin, job.process.stdout):
                if pipe:
                    with contextlib.suppress(OSError):
                        pipe.close()

    def job(
        self,
        rank: int = 0,
        world: int = 2,
        *,
        launcher: bool = False,
        run_id: str = "train",
        uid: int = 0,
        inside: tuple[str, ...] = (),
    ) -> Job:
        """A worker that has attached. `uid`: whose; `inside`: a command that runs it elsewhere."""
        job = Job(self.run_dir, rank=rank, world=world, launcher=launcher, run_id=run_id, uid=uid, inside=inside)
        self.jobs.append(job)
        return job


def identity(**changes: Any) -> dict[str, Any]:
    """What a trainer writes into its slot."""
    return {"run_id": "train", "rank": 0, "local_rank": 0, "world_size": 2, "master": "10.0.0.1:29500", **changes}


def slot_bytes(who: dict[str, Any] | None = None, *, step: int = 5, ending: dict[str, Any] | None = None) -> bytes:
    data = bytearray(slot.SLOT_SIZE)
    who = identity() if who is None else who
    packed = slot.pack_json(who, slot.IDENTITY_MAX)
    data[slot.IDENTITY_AT : slot.IDENTITY_AT + len(packed)] = packed
    if ending:
        said = slot.pack_json(ending, slot.ENDING_MAX)
        data[slot.ENDING_AT : slot.ENDING_AT + len(said)] = said
    slot.PULSE.pack_into(data, slot.PULSE_AT, 2, step, 1, 0, 0.5, b"train", 7, 2)
    data[: slot.HEAD.size] = slot.head()
    return bytes(data)


def put_slot(run_dir: str, pid: int, data: bytes, *, tag: str = "0badc0de", uid: int | None = None) -> Path:
    """A slot file that nobody maps."""
    owner = os.geteuid() if uid is None else uid
    directory = Path(run_dir) / f"u{owner}"
    directory.mkdir(mode=0o700, exist_ok=True)
    path = directory / f"{pid}-{tag}.slot"
    path.write_bytes(data)
    path.chmod(0o600)
    if uid is not None:
        os.chown(directory, uid, uid)
        os.chown(path, uid, uid)
    return path


def dead_pid() -> int:
    """The pid of a process that has just ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def agent_settings(
    run_dir: str,
    node: str = "n1",
    *,
    probe: dict[str, Any] | None = None,
    preflight: dict[str, Any] | None = None,
    gpu: dict[str, Any] | None = None,
    http: dict[str, Any] | None = None,
    beat_s: float = 0.2,
    **agent: Any,
) -> settings.Settings:
    tree = {"cluster": "test", "preset": "drill", "detect": {"heartbeat_interval_s": beat_s}, "probe": probe or {}}
    tree |= {"preflight": preflight or {}, "gpu": gpu or {}, "http": http or {}}
    tree["agent"] = {"node": node, "run_dir": run_dir, "listen": "", "scan_interval_s": 0.05, **agent}
    return settings.parse(tree)


class Lines(logging.Handler):
    """What the agent said."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


class Desk:
    """One agent at work, and what the store knows of it."""

    def __init__(
        self,
        run_dir: str,
        store: Store,
        *,
        node: str = "n1",
        host: Host | None = None,
        devices: Devices | None = None,
        **agent: Any,
    ) -> None:
        """`devices`: which GPUs it has; `agent`: its settings; `probe`: those of direct looks; `preflight`: those of
        the look before a round; `gpu`: those of GPUs; `beat_s`: between two beats."""
        self.settings = agent_settings(run_dir, node, **agent)
        self.node, self.store, self.keys = node, store, Keys(self.settings.cluster)
        self.stop = asyncio.Event()
        self.lines = Lines()
        logger = logging.Logger(f"agent-{node}-{time.monotonic_ns()}")
        logger.addHandler(self.lines)
        self.agent = Agent(
            self.settings, store, stop=self.stop, log=Log(logger), host=host, sees_all=True, devices=devices
        )

    @contextlib.asynccontextmanager
    async def at_work(self) -> AsyncIterator["Desk"]:
        self.task = asyncio.create_task(self.agent.run())
        try:
            yield self
        finally:
            self.stop.set()
            if not self.task.cancelled():
                await self.task

    async def die(self) -> None:
        """As by SIGKILL, as far as a task can."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    async def beat(self) -> Beat | None:
        item = await self.store.get(self.keys.beat(self.node))
        return codec.decode(Beat, item.value) if item else None

    async def claim(self) -> AgentClaim | None:
        item = await self.store.get(self.keys.claim(self.node))
        return codec.decode(AgentClaim, item.value) if item else None

    async def state(self) -> NodeState | None:
        item = await self.store.get(self.keys.state(self.node))
        return codec.decode(NodeState, item.value) if item else None

    async def health(self) -> NodeHealth | None:
        item = await self.store.get(self.keys.health(self.node))
        return codec.decode(NodeHealth, item.value) if item else None

    async def observations(self, kind: str = "") -> list[Observation]:
        listing = await self.store.list(self.keys.node(self.node) + "obs/")
        found = [codec.decode_at(parsed, item.value) for item in listing.items if (parsed := self.keys.parse(item.key))]
        return [obs for obs in found if isinstance(obs, Observation) and kind in ("", obs.kind)]

    async def ranks(self) -> list[int]:
        beat = await self.beat()
        return [row.rank for row in beat.ranks] if beat else []

    async def member(self, rank: int = 0) -> Member:
        beat = await self.beat()
        assert beat
        row = next(row for row in beat.ranks if row.rank == rank)
        return Member(row.rank, self.node, row.local_rank, row.pid, row.start)

    async def order(self, *members: Member, order_id: str = "o1", run_id: str = "train", **changes: Any) -> None:
        order = Order(
            order_id=order_id, run_uid="uid", run_id=run_id, round=0, kind="restart", epoch=1, incident="i", reason="r",
            author="m", at=0.0, seats=seated(members),
        )  # fmt: skip
        order = msgspec.structs.replace(order, **changes)
        await self.store.put(self.keys.order(order.run_uid, order.round, order.kind), codec.encode(order))


async def ask(run_dir: str, line: bytes) -> dict[str, Any]:
    """One question to the agent's local socket."""
    reader, writer = await asyncio.open_unix_connection(f"{run_dir}/agent.sock")
    writer.write(line)
    await writer.drain()
    answer = await asyncio.wait_for(reader.readline(), 10)
    writer.close()
    return dict(json.loads(answer))
