"""A real trainer that does what it is told to, for as long as it is told to: what the agent finds can be compared."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator

import msgspec

from rankpulse.agent.facts import Fact
from rankpulse.agent.launchers import Launchers
from rankpulse.agent.slots import Adopted, Scanner
from rankpulse.agent.watch import Worker, Workers

TRAINER = """
import ctypes, os, sys, tempfile, threading, time
ctypes.CDLL(None).prctl(1, 9)
import torch, torch.distributed as dist
from rankpulse.trainer import attach
attach()
dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())

class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 1000
    def __getitem__(self, index):
        if index >= 4:
            time.sleep(60)
        return torch.ones(2)

def hold_the_lock_of_python(seconds):
    ctypes.PyDLL(None).usleep(int(seconds * 1e6))

def wait_for_a_lock(seconds):
    lock = threading.Lock()
    lock.acquire()
    lock.acquire(timeout=seconds)

def write_files(seconds):
    until = time.monotonic() + seconds
    with tempfile.TemporaryFile() as file:
        while time.monotonic() < until:
            file.write(b"x" * 262144)
            file.flush()
            time.sleep(0.05)

def fill_a_pipe(seconds):
    reader, writer = os.pipe()
    threading.Timer(seconds, lambda: [os.read(reader, 1 << 20) for _ in range(2)]).start()
    os.write(writer, b"x" * ((1 << 16) + 4096))

def compute(seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        sum(range(1000))

def go_deep(seconds, depth=90):
    return go_deep(seconds, depth - 1) if depth else time.sleep(seconds)

def load(_):
    global loader
    loader = iter(torch.utils.data.DataLoader(Rows(), batch_size=2, num_workers=2))
    next(loader)
    print(*[worker.pid for worker in loader._workers], flush=True)

def reduce(count):
    for _ in range(int(count)):
        dist.all_reduce(torch.ones(4, 5))

print("ok", flush=True)
for line in sys.stdin:
    what, _, rest = line.partition(" ")
    print("begins", flush=True)
    globals()[what](float(rest))
    print("ok", flush=True)
"""


class Trainer:
    """One, watched. `tell` begins something; `done` waits for its end."""

    def __init__(self, run_dir: str) -> None:
        env = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "TORCHELASTIC", "RANKPULSE"))}
        env |= {"RANKPULSE_DIR": run_dir, "TORCH_FR_BUFFER_SIZE": "2000", "RANK": "0", "WORLD_SIZE": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-c", TRAINER],
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.done()

    def done(self) -> list[str]:
        """What it said up to the end of what it was told to do."""
        assert self.process.stdout
        said = []
        while (line := self.process.stdout.readline().strip()) != "ok":
            assert self.process.poll() is None, "the trainer has ended"
            said.append(line)
        return said

    def tell(self, what: str, amount: float = 0.0) -> None:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(f"{what} {amount}\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "begins\n"


@contextlib.contextmanager
def trainer(run_dir: str) -> Iterator[Trainer]:
    one = Trainer(run_dir)
    try:
        yield one
    finally:
        with one.process:
            one.process.kill()


@contextlib.contextmanager
def watched(run_dir: str, run_uid: str = "r1", round_: int = 2) -> Iterator[Workers]:
    """The workers of that directory, as if they had met through us. Needs a loop."""
    facts: list[Fact] = []
    workers = Workers("n1", run_dir, facts.append, lambda: None, Launchers(facts.append))
    for found in Scanner(run_dir, sees_all=True).scan():
        if isinstance(found, Adopted):
            workers.adopt(found)
    for worker in workers.table.values():
        run = msgspec.structs.replace(worker.who.run, run_uid=run_uid, round=round_)
        worker.who = worker.who._replace(run=run)
    try:
        yield workers
    finally:
        workers.close()


def only(workers: Workers) -> Worker:
    (worker,) = workers.table.values()
    return worker
