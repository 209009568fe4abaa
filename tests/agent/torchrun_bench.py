"""Torchruns and holders as the agent sees them: processes that talk to its socket, and do what the test tells them."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from typing import Any

from agent_bench import WORKER
from support import eventually

from rankpulse.core import codec, records
from rankpulse.core.records import Record
from rankpulse.store.memory import MemoryStore

# Words on stdin: connect, hang_up, say JSON, work JSON (environment of a worker), hold JSON. Prints what it hears.
TORCHRUN = """
import ctypes, json, os, socket, subprocess, sys, threading
ctypes.CDLL(None).prctl(1, 9)
path, worker = sys.argv[1], sys.argv[2]
line, lock = None, threading.Lock()
def tell(message):
    with lock:
        print(json.dumps(message), flush=True)
def listen(line):
    try:
        for text in line.makefile():
            tell(json.loads(text))
    except OSError:
        pass
    tell({"closed": True})
def work(before, env):
    env = {**os.environ, "TORCHELASTIC_RUN_ID": "train", **env}
    command, pipe = [*before, sys.executable, "-c", worker], subprocess.PIPE
    child = subprocess.Popen(command, env=env, stdin=pipe, stdout=pipe)
    def wait():
        tell({"worker": int(child.stdout.readline())})
        tell({"exited": child.wait()})
    threading.Thread(target=wait, daemon=True).start()
for text in sys.stdin:
    word, _, rest = text.strip().partition(" ")
    if word == "connect":
        line = socket.socket(socket.AF_UNIX)
        line.connect(path)
        threading.Thread(target=listen, args=(line,), daemon=True).start()
    elif word == "hang_up":
        line.shutdown(socket.SHUT_RDWR)
    elif word == "say":
        line.sendall(rest.encode() + b"\\n")
    elif word == "work":
        work([], json.loads(rest))
    elif word == "hold":
        work([sys.executable, "-m", "rankpulse.trainer.hold"], json.loads(rest))
"""


class Torchrun:
    """One of them. `heard` takes messages in order; each is taken once."""

    def __init__(self, run_dir: str) -> None:
        self.run_dir, self.join_no, self.met = run_dir, 0, {}
        self._messages: list[dict[str, Any]] = []
        self.seen: list[dict[str, Any]] = []

    async def start(self) -> "Torchrun":
        env = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "TORCHELASTIC", "RANKPULSE"))}
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", TORCHRUN, f"{self.run_dir}/agent.sock", WORKER,
            env={**env, "RANKPULSE_DIR": self.run_dir},
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        self._listener = asyncio.create_task(self._listen())
        return self

    async def _listen(self) -> None:
        assert self.process.stdout
        async for text in self.process.stdout:
            message = json.loads(text)
            self._messages.append(message)
            self.seen.append(message)

    def tell(self, word: str, value: object = None) -> None:
        assert self.process.stdin
        text = word if value is None else f"{word} {json.dumps(value)}"
        self.process.stdin.write(text.encode() + b"\n")

    def say(self, **message: Any) -> None:
        self.tell("say", message)

    async def connect(self) -> None:
        await eventually(lambda: os.path.exists(f"{self.run_dir}/agent.sock"), 10, "the agent's socket")
        self.tell("connect")
        self.say(op="rendezvous", v=1)
        await self.heard("ok")

    def join(
        self, *, again: bool = False, label: str = "train", nodes: tuple[int, int] = (2, 2), **changes: Any
    ) -> None:
        """`again`: the same request once more."""
        self.join_no += not again
        request = {
            "label": label, "min_nodes": nodes[0], "max_nodes": nodes[1], "join": self.join_no,
            "run_uid": self.met.get("run_uid", ""), "after": self.met.get("round", 0), "address": "127.0.0.1",
            "port": 10000 + self.process.pid % 50000, "last_call_s": 0.3, "timeout_s": 60.0,
        }  # fmt: skip
        self.say(join={**request, **changes})

    async def meet(self, timeout_s: float = 15) -> dict[str, Any]:
        self.met = await self.heard("met", timeout_s)
        return self.met

    def watch(self) -> None:
        self.say(watch={"run_uid": self.met["run_uid"], "round": self.met["round"], "join": self.join_no})

    async def heard(self, what: str, timeout_s: float = 15) -> Any:
        """The value of the next message that says `what`; those before it are passed over."""
        found = await eventually(lambda: self._take(what), timeout_s, f"{what!r} after {self._messages}")
        return found[0]

    def _take(self, what: str) -> list[Any]:
        for index, message in enumerate(self._messages):
            if what in message:
                del self._messages[: index + 1]
                return [message[what]]
        return []

    def silent(self, what: str) -> bool:
        return not any(what in message for message in self._messages)

    async def work(self, rank: int, *, world: int = 2, word: str = "work", timeout_s: float = 20, **env: str) -> int:
        """A worker of the round it is in; returns its pid."""
        env = {
            "RANK": str(rank), "LOCAL_RANK": "0", "WORLD_SIZE": str(world), "MASTER_ADDR": "10.0.0.1",
            "MASTER_PORT": "29500", "RANKPULSE_RUN_UID": self.met.get("run_uid", ""),
            "RANKPULSE_ROUND": str(self.met.get("round", "")), **env,
        }  # fmt: skip
        self.tell(word, env)
        return int(await self.heard("worker", timeout_s))

    def kill(self, number: int = signal.SIGKILL) -> None:
        self.process.send_signal(number)

    async def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()
        self._listener.cancel()


class Torchruns:
    """Starts them and ends them all."""

    def __init__(self) -> None:
        self._started: list[Torchrun] = []

    async def __call__(self, run_dir: str, *, connect: bool = True) -> Torchrun:
        torchrun = await Torchrun(run_dir).start()
        self._started.append(torchrun)
        if connect:
            await torchrun.connect()
        return torchrun

    async def end(self) -> None:
        for torchrun in self._started:
            await torchrun.end()


async def records_of(store: MemoryStore, prefix: str, kind: type[Record], keys: Any) -> list[Any]:
    """Everything of a kind that stands under a prefix; also while the store is away for everybody else."""
    found = []
    for item in (await store.list(prefix)).items:
        parsed = keys.parse(item.key)
        if parsed and parsed.kind is kind:
            found.append(codec.decode_at(parsed, item.value))
    return found


@contextlib.asynccontextmanager
async def torchruns() -> AsyncIterator[Torchruns]:
    started = Torchruns()
    try:
        yield started
    finally:
        await started.end()


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


__all__ = ["Torchrun", "Torchruns", "alive", "records", "records_of", "torchruns"]
