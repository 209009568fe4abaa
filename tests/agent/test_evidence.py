"""Evidence of processes in trouble, from stub servers: whatever they answer, there is a row in time."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from agent_bench import Crew
from hypothesis import given
from hypothesis import strategies as st
from support import eventually

from rankpulse.agent import trace
from rankpulse.agent.evidence import Evidence, encode
from rankpulse.agent.facts import Fact
from rankpulse.agent.launchers import Launchers
from rankpulse.agent.slots import Adopted, Scanner
from rankpulse.agent.trace import BadTrace, positions
from rankpulse.agent.usage import is_busy, is_starved
from rankpulse.agent.watch import Worker, Workers
from rankpulse.core.evidence import GROUPS_MAX, ROWS_MAX_BYTES, Position, Row


def entry(
    seq: int, *, group: str = "0", retired: bool = True, op: str = "gloo:all_reduce", **more: Any
) -> dict[str, Any]:
    """As torch 2.13 writes it, less what nobody reads."""
    return {
        "collective_seq_id": seq, "p2p_seq_id": 0, "op_id": seq, "process_group": [group, "default_pg"],
        "profiling_name": op, "record_id": seq, "retired": retired, "is_p2p": False, "state": "scheduled", **more,
    }  # fmt: skip


def body(*entries: dict[str, Any], **more: Any) -> bytes:
    return json.dumps({"version": "2.10", "entries": entries, "pg_status": {"0": {"x": "-1"}}, **more}).encode()


def test_positions_by_group() -> None:
    said = body(entry(1), entry(2, retired=False, op="gloo:barrier"), entry(7, group="tp"))
    assert positions(said) == (Position("0", 2, 1, "gloo:barrier"), Position("tp", 7, 7, "gloo:all_reduce"))


def test_what_comes_after_an_open_one_has_not_passed_it() -> None:
    assert positions(body(entry(1), entry(2, retired=False), entry(3))) == (Position("0", 3, 1, "gloo:all_reduce"),)


def test_nothing_has_ended_yet() -> None:
    assert positions(body(entry(1, retired=False))) == (Position("0", 1, -1, "gloo:all_reduce"),)


def test_nccl_says_completed_and_who_is_in_the_group() -> None:
    config = {"0": {"name": "0", "desc": "", "ranks": "[0, 1, 2, 3]"}}
    said = body(entry(5, retired=False, state="completed"), pg_config=config)
    assert positions(said) == (Position("0", 5, 5, "gloo:all_reduce", 4),)


def test_pairs_count_for_themselves() -> None:
    assert positions(body(entry(1), entry(9, is_p2p=True))) == (Position("0", 1, 1, "gloo:all_reduce"),)


def test_many_groups_leave_those_that_wait() -> None:
    said = [entry(n, group=f"g{n:02}", retired=n not in (3, 5)) for n in range(1, 40)]
    found = {position.group for position in positions(body(*said))}
    assert len(found) == GROUPS_MAX
    assert {"g03", "g05", "g39"} <= found


@pytest.mark.parametrize(
    "said",
    [b"", b"x", b"[]", b"\xff", b'{"entries":3}', b'{"entries":[1]}', b'{"entries":[{}]}', b"[" * 100_000,
     body({**entry(1), "retired": "yes"}), body({**entry(1), "collective_seq_id": 2.5}), b" " * (4 << 20) + b"{}"],
    ids=range(11),
)  # fmt: skip
def test_what_is_no_trace(said: bytes) -> None:
    with pytest.raises(BadTrace):
        positions(said)


JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=5), lambda v: st.lists(v, max_size=3))
ENTRY = st.dictionaries(st.sampled_from(sorted(entry(1))), JSON, max_size=10)


@given(st.dictionaries(st.sampled_from(["entries", "pg_config"]), st.lists(ENTRY, max_size=4) | JSON) | JSON)
def test_reading_is_total(said: Any) -> None:
    try:
        found = positions(json.dumps(said).encode())
    except BadTrace:
        return
    assert all(position.completed <= position.enqueued for position in found)


def test_rows_that_are_too_much_lose_positions_first() -> None:
    fat = tuple(Position("g" * 64, 1, 1, "o" * 64) for _ in range(GROUPS_MAX))
    rows = [Row(rank, 1, 1, "S", "", None, "ok", fat) for rank in range(500)]
    text = encode(rows)
    back = json.loads(text)
    assert len(text) <= ROWS_MAX_BYTES
    assert len(back) == 500
    assert back[0][6] == "ok"
    assert back[-1][6] == "left out: too much at once"


@pytest.mark.parametrize(
    ("ticks", "busy"),
    [(0, False), (1, False), (4, False), (8, True), (40, True)],
    ids=["idle", "waits for a lock", "told a full recorder", "starved of CPU", "at work"],
)
def test_a_little_cpu_is_no_work(ticks: int, busy: bool) -> None:
    """In 0.4 s, at 100 ticks a second."""
    assert is_busy(ticks * os.sysconf("SC_CLK_TCK") // 100, 0.4) is busy


@pytest.mark.parametrize(
    ("ran_ms", "waited_ms", "starved"),
    [(0, 0, False), (1, 390, False), (20, 350, True), (40, 0, False), (20, 100, False), (390, 0, True)],
    ids=["asleep", "looks for a lock", "starved", "idle", "now and then", "at work"],
)
def test_who_waits_for_a_cpu_is_at_work(ran_ms: int, waited_ms: int, starved: bool) -> None:
    assert is_starved(ran_ms * 1_000_000, waited_ms * 1_000_000, 0.4) is starved


# -- with processes -------------------------------------------------------------------------------------------------
class Ward:
    """One watched worker, and a server beside its slot."""

    def __init__(self, run_dir: str, crew: Crew) -> None:
        self.run_dir, self.facts = run_dir, list[Fact]()
        self.job = crew.job()
        self.workers = Workers("n1", run_dir, self.facts.append, lambda: None, Launchers(self.facts.append))
        self.helper: subprocess.Popen[bytes] | None = None

    async def admit(self) -> Worker:
        scanner = Scanner(self.run_dir, sees_all=True)
        (found,) = await eventually(scanner.scan, 10, "the slot")
        assert isinstance(found, Adopted)
        assert not self.workers.adopt(found)
        return next(iter(self.workers.table.values()))

    @property
    def path(self) -> str:
        (slot,) = Path(self.run_dir).glob("u*/*.slot")
        return str(slot.with_suffix(".sock"))


@pytest.fixture
async def ward(run_dir: str, crew: Crew) -> AsyncIterator[Ward]:
    ward = Ward(run_dir, crew)
    yield ward
    ward.workers.close()


SERVER = """
import socket, sys, time
server = socket.socket(socket.AF_UNIX)
server.bind(sys.argv[1])
server.listen(1)
print("ok", flush=True)
line, _ = server.accept()
line.recv(4096)
time.sleep(60)
"""


@pytest.mark.live
@pytest.mark.parametrize(
    ("answer", "server"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", "ok"),
        (b"HTTP/1.1 200 OK\r\n\r\n{}", "ok"),
        (b"HTTP/1.1 404 Not Found\r\n\r\n", "its server answered 'HTTP/1.1 404 Not Found'"),
        (b"hello\r\n\r\n", "its server answered 'hello'"),
        (b"hello", "its server does not speak HTTP"),
        (b"x" * 100_000, "its server does not speak HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", "its server does not speak HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{}", "its server broke off"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 999999999\r\n\r\n", "its answer has more than 4194304 bytes"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b" " * 5_000_000, "its answer has more than 4194304 bytes"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", "its trace cannot be read"),
        (b"", "no answer within 1.2 s"),
    ],
    ids=range(12),
)  # fmt: skip
async def test_whatever_the_server_says(
    ward: Ward, monkeypatch: pytest.MonkeyPatch, answer: bytes, server: str
) -> None:
    """The server here is the test's own, so the worker's pid is taken for the test's."""
    worker = await ward.admit()
    listener = await asyncio.start_unix_server(lambda r, w: _serve(r, w, answer), ward.path)
    real, worker.pid = worker.pid, os.getpid()
    real_start, worker.start = worker.start, int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    try:
        (row,) = await asyncio.wait_for(Evidence(ward.run_dir).gather([worker]), 5)
    finally:
        worker.pid, worker.start = real, real_start
        listener.close()
    assert row.server.startswith(server)
    assert row.positions == ()


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answer: bytes) -> None:
    await reader.readuntil(b"\r\n\r\n")
    try:
        writer.write(answer)
        await writer.drain()
        if not answer:
            await reader.read()
    except OSError:
        pass
    finally:
        writer.close()


@pytest.mark.live
async def test_another_process_in_the_servers_place_is_not_believed(ward: Ward) -> None:
    worker = await ward.admit()
    with subprocess.Popen([sys.executable, "-c", SERVER, ward.path], stdout=subprocess.PIPE) as other:
        assert other.stdout
        other.stdout.readline()
        (row,) = await Evidence(ward.run_dir).gather([worker])
        other.kill()
    assert row.server == "another process listens where its worker server should be"


@pytest.mark.live
@pytest.mark.parametrize("what", ["file", "link"])
async def test_what_is_no_socket_of_its_own(ward: Ward, what: str) -> None:
    worker = await ward.admit()
    if what == "file":
        Path(ward.path).write_text("")
    else:
        elsewhere = socket.socket(socket.AF_UNIX)
        elsewhere.bind(f"{ward.run_dir}/x.sock")
        elsewhere.listen()
        Path(ward.path).symlink_to(f"{ward.run_dir}/x.sock")
    (row,) = await Evidence(ward.run_dir).gather([worker])
    assert row.server == "what lies where its worker server should be is not its socket"


@pytest.mark.live
async def test_a_stopped_process_is_told_and_not_touched(ward: Ward) -> None:
    worker = await ward.admit()
    ward.job.kill(signal.SIGSTOP)
    await eventually(lambda: _state(worker.pid) == "T", 5, "the process stopped")
    listener = await asyncio.start_unix_server(lambda r, w: None, ward.path)
    (row,) = await Evidence(ward.run_dir).gather([worker])
    listener.close()
    assert (row.state, row.cpu_moving, row.server) == ("T", False, "not asked: the process is stopped")
    assert (row.pid, row.start) == (worker.pid, worker.start)


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.live
async def test_a_question_that_another_collection_gave_up_costs_its_answer_alone(ward: Ward) -> None:
    """Two jobs of a node are looked at at the same time, and the second look finds the process of the first gone."""
    worker, asked = await ward.admit(), asyncio.Event()

    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if b"dump_traceback" in await reader.readuntil(b"\r\n\r\n"):
            asked.set()
        await reader.read()
        writer.close()

    listener = await asyncio.start_unix_server(mute, ward.path)
    real, worker.pid = (worker.pid, worker.start), os.getpid()
    worker.start = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    evidence = Evidence(ward.run_dir)
    first = asyncio.create_task(evidence.look([worker]))
    await asyncio.wait_for(asked.wait(), 5)
    evidence.stacks.close()
    (seen,) = await asyncio.wait_for(first, 5)
    worker.pid, worker.start = real
    listener.close()
    assert (seen.python.text, seen.python.why) == ("", "the process is gone")
    assert seen.row.rank == 0


@pytest.mark.live
async def test_whoever_leaves_questions_unanswered_is_asked_no_more(
    ward: Ward, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = await ward.admit()
    asked: list[str] = []

    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        (word,) = (await reader.readuntil(b"\r\n\r\n")).split()[1:2]
        asked.append(word.decode())
        if word.endswith(b"fr_trace_json") and asked.count(asked[-1]) == 2:
            return await serve(writer)
        await reader.read()
        writer.close()

    async def serve(writer: asyncio.StreamWriter) -> None:
        writer.write(b'HTTP/1.1 200 OK\r\nContent-Length: 14\r\n\r\n{"entries":[]}')
        await writer.drain()
        writer.close()

    listener = await asyncio.start_unix_server(mute, ward.path)
    real, worker.pid = (worker.pid, worker.start), os.getpid()
    worker.start = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    evidence = Evidence(ward.run_dir)
    began = time.monotonic()
    rows = [(await evidence.gather([worker]))[0].server for _ in range(6)]
    worker.pid, worker.start = real
    evidence.close()
    listener.close()
    assert rows[1] == "ok", "that it was slow once is forgotten"
    assert {rows[0], *rows[2:5]} == {"no answer within 1.2 s"}
    assert "not asked again" in rows[5]
    assert {one: asked.count(one) for one in set(asked)} == {
        "/handler/dump_traceback": 1, "/handler/fr_trace_json": 5, "/handler/ping": 3,
    }  # fmt: skip
    assert time.monotonic() - began < 20


def test_a_full_recorder_is_within_the_limit() -> None:
    full = body(
        *[entry(n, input_sizes=[[4096, 4096]] * 4, frames=[{"name": "f" * 40, "line": 1}] * 8) for n in range(2000)]
    )
    assert len(full) < trace.TRACE_MAX_BYTES
    assert positions(full)[0].enqueued == 1999


TORCH = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9)
import torch, torch.distributed as dist
from rankpulse.trainer import attach
attach()
dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
for _ in range(3):
    dist.all_reduce(torch.ones(1))
print("ok", flush=True)
sys.stdin.read()
"""


@pytest.mark.live
async def test_torchs_own_server(run_dir: str) -> None:
    env = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "TORCHELASTIC", "RANKPULSE"))}
    env |= {"RANKPULSE_DIR": run_dir, "TORCH_FR_BUFFER_SIZE": "2000", "RANK": "0", "WORLD_SIZE": "1"}
    facts: list[Fact] = []
    workers = Workers("n1", run_dir, facts.append, lambda: None, Launchers(facts.append))
    with subprocess.Popen(
        [sys.executable, "-c", TORCH], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout
        await asyncio.to_thread(process.stdout.readline)
        (found,) = Scanner(run_dir, sees_all=True).scan()
        assert isinstance(found, Adopted)
        workers.adopt(found)
        (row,) = await Evidence(run_dir).gather(workers.table.values())
        process.kill()
    workers.close()
    assert row.server == "ok"
    (position,) = row.positions
    assert (position.enqueued, position.completed, position.operation) == (3, 3, "gloo:all_reduce")
    assert (row.state, row.cpu_moving) == ("S", False)
