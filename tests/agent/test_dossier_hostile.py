"""Eight ranks at once whose servers lie, flood, trickle or say nothing: the answer comes in time and tells of each."""

import contextlib
import gzip
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from torch_bench import watched

from rankpulse.agent.dossier import Dossiers
from rankpulse.agent.dumps import Dumps
from rankpulse.agent.evidence import Evidence
from rankpulse.agent.folder import private
from rankpulse.agent.gathering import Gathering
from rankpulse.agent.gpus import Gpus
from rankpulse.agent.py_spy import PySpy
from rankpulse.core import dossier
from rankpulse.core.dossier import PART_MAX, RANK_MAX, Part, size
from rankpulse.core.look_evidence import Collect

pytestmark = pytest.mark.live
# a worker whose server is what it is told to be
WORKER = r"""
import ctypes, json, os, socket, sys, threading, time, types
ctypes.CDLL(None).prctl(1, 9)
manner = sys.argv[1]
ENTRY = {"process_group": ["0", "default_pg"], "collective_seq_id": 1, "record_id": 1, "profiling_name": "gloo:x",
         "input_sizes": [[4]], "input_dtypes": ["Float"]}

def say(line, body):
    line.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

def answer(line):
    handler = line.recv(4096).split()[1].rpartition(b"/")[2]
    if manner == "mute":
        return
    if manner == "garbage":
        return line.sendall(os.urandom(50_000))
    if manner == "lies":
        return say(line, b'{"entries":[{"process_group":[7]}]}' if handler == b"fr_trace_json" else b"\0\xff" * 5000)
    if manner == "trickle":
        line.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            line.sendall(b"x")
            time.sleep(0.05)
    if manner == "flood":
        line.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            line.sendall(b"x" * 65536)
    if manner == "closes":
        return line.close()
    groups = 300 if manner == "much" else 1
    if handler == b"fr_trace_json":
        entries = [{**ENTRY, "process_group": [f"group {n % groups} " + "g" * 40, ""], "collective_seq_id": n // groups,
                    "record_id": n} for n in range(groups * 6)]
        return say(line, json.dumps({"entries": entries}).encode())
    frame = '  File "/home/me/program/' + "d" * 60 + '/train.py", line %d in step\n'
    frames = "".join(frame % n for n in range(2000 if manner == "much" else 2))
    say(line, ("Thread 0x1 (most recent call first):\n" + frames).encode())

class Server:
    def __init__(self, path):
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen(5)
        threading.Thread(target=self.serve, daemon=True).start()
    def serve(self):
        self.lines = []
        while True:
            line, _ = self.listener.accept()
            self.lines.append(line)
            threading.Thread(target=self.one, args=(line,), daemon=True).start()
    def one(self, line):
        try:
            answer(line)
        except OSError:
            pass

for name in ("torch", "torch._C", "torch._C._distributed_c10d"):
    sys.modules[name] = types.ModuleType(name)
sys.modules["torch._C._distributed_c10d"]._WorkerServer = Server
from rankpulse.trainer import attach
attach()
print("ok", flush=True)
sys.stdin.read()
"""
MANNERS = ("fine", "mute", "garbage", "lies", "trickle", "flood", "closes", "much")


@pytest.fixture(scope="module")
def place() -> Iterator[str]:
    """Where one of each manner lives: rank N is the N-th."""
    path = tempfile.mkdtemp(prefix="rp-")
    Path(path).chmod(0o1777)
    env = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "TORCHELASTIC", "RANKPULSE"))}
    with contextlib.ExitStack() as stack:
        for rank, manner in enumerate(MANNERS):
            mine = {**env, "RANKPULSE_DIR": path, "RANK": str(rank), "WORLD_SIZE": "8", "NCCL_X": "y"}
            process = stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", WORKER, manner], env=mine, stdin=subprocess.PIPE, stdout=subprocess.PIPE
                )
            )
            stack.callback(process.kill)
            assert process.stdout
            assert process.stdout.readline() == b"ok\n"
        yield path
    shutil.rmtree(path, ignore_errors=True)


@contextlib.contextmanager
def asked(place: str, *, redact: bool = False) -> Iterator[Dossiers]:
    with watched(place) as workers:
        gathering = Gathering(Evidence(place), Gpus("n1"), time.monotonic, py_spy=PySpy(lambda: None))
        dumps = Dumps(private(f"{place}/dumps"), 100, 64 << 20)
        yield Dossiers("n1", workers, gathering, dumps, time.time, time.monotonic, redact)


async def collected(dossiers: Dossiers, order: str = "c1") -> Part:
    began = time.monotonic()
    found = await dossiers.of(Collect(order_id=order, run_uid="r1", round=2))
    assert time.monotonic() - began < 2.0
    assert [row.rank for row in found.rows] == list(range(8))
    return found.part


async def test_each_is_told_for_what_it_is(place: str) -> None:
    with asked(place) as dossiers:
        part = await collected(dossiers)
        await dossiers.close()
    data = dossier.encode(part)
    assert len(data) <= PART_MAX
    assert dossier.decode(data) == part
    assert all(size(rank) <= RANK_MAX for rank in part.ranks)
    told = {MANNERS[rank.rank]: rank for rank in part.ranks}
    assert told["fine"].positions[0].enqueued == 5
    assert told["fine"].stack == ("d" * 60 + "/train.py:1 step", "d" * 60 + "/train.py:0 step")
    assert told["fine"].gil_held is False
    assert told["mute"].dump == told["trickle"].dump == "no answer within 1.2 s"
    assert told["mute"].gil_held is None, "its C++ says nothing either"
    assert told["garbage"].dump.startswith("its server")
    assert told["lies"].dump.startswith("its trace cannot be read")
    assert told["flood"].dump == "its answer has more than 4194304 bytes"
    assert told["closes"].dump == "its server does not speak HTTP"
    assert len(told["much"].positions) >= 2
    assert told["much"].stack[-1].endswith(":0 step")
    assert {f"rank {MANNERS.index(one)}" for one in ("mute", "garbage", "trickle", "flood", "closes")} <= {
        text.partition(":")[0] for text in part.left_out if "no stack" in text
    }
    assert any(text.startswith("rank 7: ") and "groups" in text for text in part.left_out)


async def test_nobody_is_asked_twice_what_it_left_unanswered(place: str) -> None:
    """And the other ranks are told as before."""
    with asked(place) as dossiers:
        for number in range(4):
            part = await collected(dossiers, f"c{number}")
            assert part.ranks[0].positions
            assert part.ranks[0].gil_held is False
        assert len(dossiers.gathering.evidence.stacks._open) <= 3  # mute, trickle, flood
        assert part.ranks[1].dump.startswith("left earlier questions unanswered")
        await dossiers.close()


async def test_redacted(place: str) -> None:
    with asked(place, redact=True) as dossiers:
        part = await collected(dossiers, "secret")
        await dossiers.close()
        assert part.ranks[0].stack == ("train.py:1 step", "train.py:0 step")
        names = [dump.name for dump in part.dumps]
        assert len(names) == 9
        for name in names:
            content = gzip.decompress(Path(place, "dumps", name).read_bytes())
            assert b"program/" not in content
            assert b"NCCL_X" not in content


async def test_not_redacted(place: str) -> None:
    with asked(place) as dossiers:
        part = await collected(dossiers, "open")
        await dossiers.close()
    name = next(dump.name for dump in part.dumps if dump.rank == 0)
    content = gzip.decompress(Path(place, "dumps", name).read_bytes())
    assert b"program/" in content
    assert b'"environment":{"NCCL_X":"y"}' in content
