"""The local socket, /metrics and /healthz."""

import os
import socket
import stat
import time
from pathlib import Path

import aiohttp
import pytest
from agent_bench import Crew, Desk, ask
from support import eventually

from rankpulse.core import catalogue
from rankpulse.store.memory import MemoryStore


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(time.monotonic)


async def test_ping(run_dir: str, store: MemoryStore) -> None:
    async with Desk(run_dir, store).at_work() as desk:
        await eventually(desk.beat, 10, "a beat")
        await eventually(lambda: desk.agent.publisher.connected, 10, "a connected agent")
        answer = await ask(run_dir, b'{"op":"ping"}\n')
        mode = stat.S_IMODE(os.stat(f"{run_dir}/agent.sock").st_mode)
    assert (answer["node"], answer["inc"], answer["store"]) == ("n1", 1, True)
    assert mode == (0o666 if os.geteuid() == 0 else 0o600)
    assert not Path(f"{run_dir}/agent.sock").exists()


@pytest.mark.parametrize(
    "line",
    [
        b"\n",
        b"x\n",
        b"[]\n",
        b'"ping"\n',
        b'{"op":"rm"}\n',
        b'{"op":[]}\n',
        b"\xff\n",
        b"x" * 9000,
        b"[" * 4000 + b"\n",
    ],
    ids=range(9),
)
async def test_bad_requests_are_answered(run_dir: str, store: MemoryStore, line: bytes) -> None:
    async with Desk(run_dir, store).at_work() as desk:
        await eventually(desk.beat, 10, "a beat")
        assert "error" in await ask(run_dir, line)
        assert "node" in await ask(run_dir, b'{"op":"ping"}\n')


@pytest.mark.live
async def test_runs(run_dir: str, crew: Crew, store: MemoryStore) -> None:
    job = crew.job(rank=1)
    async with Desk(run_dir, store).at_work() as desk:
        await eventually(desk.ranks, 10, "ranks in the beat")
        (row,) = (await ask(run_dir, b'{"op":"runs"}\n'))["workers"]
    assert (row["run_id"], row["rank"], row["pid"]) == ("train", 1, job.pid)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def _fetch(port: int, path: str) -> str:
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}{path}") as response:
        assert response.status == 200
        return await response.text()


async def test_every_metric_of_the_catalogue_is_served(run_dir: str, store: MemoryStore) -> None:
    port = _free_port()
    async with Desk(run_dir, store, listen=f"127.0.0.1:{port}").at_work() as desk:
        await eventually(desk.state, 10, "the state")
        metrics = await _fetch(port, "/metrics")
        health = await _fetch(port, "/healthz")
    for one in catalogue.AGENT:
        assert f"# TYPE {one.name}" in metrics
    assert 'rankpulse_agent_incarnation{node="n1"} 1.0' in metrics
    assert 'rankpulse_agent_observations_total{kind="agent_started",node="n1"} 1.0' in metrics
    assert 'rankpulse_agent_capability{node="n1",source="slots"} 1.0' in metrics
    assert '"node": "n1"' in health


@pytest.mark.parametrize("listen", ["taken", "nohost.invalid:1", "203.0.113.1:1"])
async def test_an_address_that_cannot_be_had(run_dir: str, store: MemoryStore, tmp_path: Path, listen: str) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("read prometheus 0123456789abcdef\n")
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        address = f"127.0.0.1:{holder.getsockname()[1]}" if listen == "taken" else listen
        async with Desk(run_dir, store, listen=address, http={"tokens_file": str(tokens)}).at_work() as desk:
            await eventually(desk.beat, 10, "a beat all the same")
    assert any(address in line and "goes on without" in line for line in desk.lines.texts)


async def test_addresses_that_are_free_later_are_served_then(run_dir: str, store: MemoryStore) -> None:
    with socket.socket() as page, socket.socket() as looks:
        for holder in (page, looks):
            holder.bind(("127.0.0.1", 0))
            holder.listen()
        port, other = (int(holder.getsockname()[1]) for holder in (page, looks))
        probe = {"listen": f"127.0.0.1:{other}"}
        async with Desk(run_dir, store, listen=f"127.0.0.1:{port}", probe=probe).at_work() as desk:
            await eventually(lambda: sum("tries again" in line for line in desk.lines.texts) == 2, 10, "two refusals")
            page.close()
            looks.close()
            await eventually(lambda: sum("works again" in line for line in desk.lines.texts) == 2, 10, "both served")
            assert '"node": "n1"' in await _fetch(port, "/healthz")
            assert desk.agent.probe is not None
            assert desk.agent.probe.address == f"127.0.0.1:{other}"
