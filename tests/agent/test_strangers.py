"""A job at the node's socket: what is not its own it does not get, and that is logged and counted."""

import asyncio
import json
import os
import subprocess
import sys
import time

import pytest
from agent_bench import Crew, Desk, ask
from support import eventually

from rankpulse.store.memory import MemoryStore

ASK = """
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
s.sendall(b'{"op":"runs"}\\n')
print(s.makefile().readline())
"""


def _runs(run_dir: str, uid: int) -> list[dict[str, object]]:
    """What the agent tells a process of this user."""
    argv = ["/usr/bin/python3" if os.access("/usr/bin/python3", os.X_OK) else sys.executable, "-ISc", ASK]
    done = subprocess.run(
        [*argv, f"{run_dir}/agent.sock"], user=uid, capture_output=True, text=True, timeout=20, check=True, cwd="/"
    )
    return list(json.loads(done.stdout)["workers"])


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(time.monotonic)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user as well")
async def test_another_user_sees_nothing_of_a_run(run_dir: str, crew: Crew, store: MemoryStore) -> None:
    job = crew.job(uid=12345)
    async with Desk(run_dir, store).at_work() as desk:
        await eventually(desk.ranks, 10, "ranks in the beat")
        assert await asyncio.to_thread(_runs, run_dir, 54321) == []
        assert [row["pid"] for row in await asyncio.to_thread(_runs, run_dir, 12345)] == [job.pid]
    assert os.stat(f"{run_dir}/u12345").st_mode & 0o077 == 0


async def test_nobody_orders_anything_at_the_socket(run_dir: str, store: MemoryStore) -> None:
    tries = ("restart", "cordon", "kill", "order", "arm", "orders", "pause")
    async with Desk(run_dir, store).at_work() as desk:
        await eventually(desk.state, 10, "the state")
        for op in tries:
            answer = await ask(run_dir, json.dumps({"op": op, "node": "n1", "run_uid": "r", "v": 1}).encode() + b"\n")
            assert set(answer) == {"error"}
        assert (await store.list(desk.keys.requests())).items == ()
        assert (await store.list(desk.keys.orders())).items == ()
        assert desk.agent._report.at_socket == len(tries)
        told = [line for line in desk.lines.texts if f"refused user {os.geteuid()} at the socket" in line]
        assert len(told) == 3, "and no more, however often it is tried"
