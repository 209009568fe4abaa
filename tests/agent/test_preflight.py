"""The gate before a round, with real agents, torchruns and workers."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from agent_bench import Desk
from gpu_bench import GpuBench, bench
from support import eventually
from torchrun_bench import Torchrun, Torchruns, alive, records_of, torchruns

from rankpulse.core.records import Joiner
from rankpulse.store.memory import MemoryStore

pytestmark = pytest.mark.live
RESET = "refused, because GPU 1 (00000000:0f:00.0) asks for a reset"
HOLDER = "import sys; file = open(sys.argv[1]); print('here', flush=True); sys.stdin.read()"


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(time.monotonic)


@pytest.fixture
def dirs() -> Iterator[list[str]]:
    with tempfile.TemporaryDirectory(prefix="rp-") as one, tempfile.TemporaryDirectory(prefix="rp-") as two:
        for path in (one, two):
            Path(path).chmod(0o1777)
        yield [one, two]


@pytest.fixture
async def start() -> AsyncIterator[Torchruns]:
    async with torchruns() as started:
        yield started


@pytest.fixture
def gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GpuBench:
    return bench(tmp_path, monkeypatch)


def desk(run_dir: str, store: MemoryStore, node: str = "n1", **preflight: Any) -> Desk:
    settings = {"retry_s": 0.2, "retry_max_s": 0.5, "look_timeout_s": 30.0, **preflight}
    return Desk(run_dir, store, node=node, preflight=settings)


async def joiners(at: Desk) -> dict[str, Joiner]:
    found = await records_of(at.store, at.keys.rdzv(), Joiner, at.keys)  # type: ignore[arg-type]
    return {row.node: row for row in found}


def waits(one: Torchrun, text: str) -> bool:
    return any(text in message.get("wait", "") for message in one.seen)


def row(at: Desk, pid: int) -> tuple[str, int] | None:
    found = (worker for worker in at.agent.workers.table.values() if worker.pid == pid)
    return next(((worker.who.run.run_uid, worker.who.run.round) for worker in found), None)


async def test_a_node_whose_gpu_asks_for_a_reset_is_refused_until_it_was_reset(
    dirs: list[str], store: MemoryStore, start: Torchruns, gpus: GpuBench
) -> None:
    """Its torchrun goes on waiting, the other one knows why, and nobody has to be started again."""
    gpus.say([{}, {"action": 1}])
    async with desk(dirs[0], store, gpus=2).at_work() as sick, desk(dirs[1], store, "n2").at_work() as well:
        one, two = await start(dirs[0]), await start(dirs[1])
        one.join()
        two.join()
        await eventually(lambda: waits(one, RESET), 30, "the torchrun told")
        await eventually(lambda: waits(two, f"missing: n1 ({RESET})"), 20, "the others told")
        assert sick.agent.capabilities["preflight"] == RESET
        assert well.agent.capabilities["preflight"] == "ok"
        gpus.say([{}, {}])
        assert (await one.meet(30))["round"] == (await two.meet(30))["round"] == 1
        assert sick.agent.capabilities["preflight"] == "ok"
    assert sum(RESET in text for text in sick.lines.texts) == 1, "said once, however often it is looked at"


async def test_the_others_need_not_wait_for_the_look_to_hear_that_a_member_asks_again(
    dirs: list[str], store: MemoryStore, start: Torchruns, gpus: GpuBench
) -> None:
    async with desk(dirs[0], store, gpus=2).at_work() as at, desk(dirs[1], store, "n2").at_work():
        one, two = await start(dirs[0]), await start(dirs[1])
        one.join()
        two.join()
        await one.meet(30)
        await two.meet(30)
        gpus.say([{}, {}], hangs="init")
        one.join()
        await two.heard("again")
        assert (await joiners(at))["n1"].checking
        await one.heard("wait")
        assert waits(one, "this node is looked at before it joins")


async def test_a_refused_torchrun_gives_up_in_its_own_time(
    dirs: list[str], store: MemoryStore, start: Torchruns, gpus: GpuBench
) -> None:
    gpus.say([{}])
    async with desk(dirs[0], store, gpus=2).at_work() as at:
        one = await start(dirs[0])
        one.join(nodes=(1, 1), timeout_s=3.0)
        refused = await one.heard("refused", 30)
        assert refused["kind"] == "timeout"
        assert "refused, because the driver lists 1 of 2 GPUs" in refused["reason"]
        await eventually(lambda: at.agent.capabilities["preflight"] == "ok", 20, "nobody is refused any more")


async def test_a_spare_that_waits_is_looked_at_again(
    dirs: list[str], store: MemoryStore, start: Torchruns, gpus: GpuBench
) -> None:
    async with desk(dirs[0], store, gpus=2, again_s=0.2).at_work() as at:
        member, spare = await start(dirs[0]), await start(dirs[0])
        member.join(nodes=(1, 1))
        await member.meet(30)
        spare.join(nodes=(1, 1))
        await eventually(lambda: waits(spare, "a spare until the next"), 20, "a spare")
        gpus.say([{}, {"action": 2}])
        await eventually(lambda: waits(spare, "asks for a reboot"), 20, "refused")
        assert at.agent.capabilities["preflight"].startswith("refused, because GPU 1")


async def test_a_disk_without_room_and_a_clock_that_differs(
    dirs: list[str], store: MemoryStore, start: Torchruns
) -> None:
    """The first keeps the node out, the second is only said."""
    full = desk(dirs[0], store, run_dir_free_mb=1 << 40, clock_warn_s=0.1)
    async with full.at_work(), desk(dirs[1], store, "n2").at_work() as ahead:
        one, two = await start(dirs[0]), await start(dirs[1])
        clock = ahead.agent.together.rendezvous.clock
        ahead.agent.together.rendezvous.clock = clock._replace(utc=lambda: time.time() + 60)
        two.join()
        await eventually(lambda: joiners(full), 10, "the other's joiner")
        one.join()
        await eventually(lambda: waits(one, "MiB left, less than"), 20, "refused")
        assert any("s behind that of n2" in text for text in full.lines.texts)


async def test_switched_off_it_asks_nothing(
    dirs: list[str], store: MemoryStore, start: Torchruns, gpus: GpuBench
) -> None:
    gpus.say([{}, {"action": 1}])
    async with desk(dirs[0], store, gpus=2, enabled=False).at_work() as at:
        one = await start(dirs[0])
        one.join(nodes=(1, 1))
        assert (await one.meet())["round"] == 1
        assert "preflight" not in at.agent.capabilities


async def test_without_pynvml_a_node_joins_and_says_that_it_does_not_know(
    dirs: list[str], store: MemoryStore, start: Torchruns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pynvml.py").write_text("raise ImportError('none here')")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}".rstrip(":"))
    async with desk(dirs[0], store, gpus=8).at_work() as at:
        one = await start(dirs[0])
        one.join(nodes=(1, 1))
        await one.meet(30)
        assert at.agent.capabilities["preflight"] == "gpu: pynvml is not installed"


# -- leftovers --


async def test_a_worker_that_outlived_its_round_is_ended_before_the_next(
    dirs: list[str], store: MemoryStore, start: Torchruns
) -> None:
    async with desk(dirs[0], store).at_work() as at:
        one = await start(dirs[0])
        one.join(nodes=(1, 1))
        await one.meet()
        left = await one.work(0, world=1)
        await eventually(lambda: row(at, left), 10, "the worker known")
        one.join(nodes=(1, 1))
        assert (await one.meet())["round"] == 2
        assert not alive(left)
        assert any(f"process {left} of round 1, which is over, holds a slot" in text for text in at.lines.texts)
        exits = await eventually(lambda: at.observations("worker_exited"), 10, "its end told")
        assert exits[0].detail["order_id"] == "preflight"


async def test_nobody_else_is_ended(dirs: list[str], store: MemoryStore, start: Torchruns) -> None:
    """Not of a round that another torchrun of this node is still in, not of another run, not without a run."""
    async with desk(dirs[0], store).at_work() as at:
        one, two, other = [await start(dirs[0]) for _ in range(3)]
        one.join(nodes=(2, 2))
        two.join(nodes=(2, 2))
        other.join(nodes=(1, 1), label="other")
        for torchrun in (one, two, other):
            await torchrun.meet()
        pids = [await two.work(0), await other.work(0, world=1), await other.work(0, RANKPULSE_RUN_UID="")]
        await eventually(lambda: all(row(at, pid) for pid in pids), 10, "all known")
        one.join(nodes=(2, 2))
        await two.heard("again")
        assert all(map(alive, pids))
        os.kill(pids[0], signal.SIGKILL)  # as torchrun does when it is told
        two.join(nodes=(2, 2))
        await one.meet()
        assert all(map(alive, pids[1:]))


async def test_told_only_when_that_is_asked_for(dirs: list[str], store: MemoryStore, start: Torchruns) -> None:
    async with desk(dirs[0], store, end_leftovers=False).at_work() as at:
        one = await start(dirs[0])
        one.join(nodes=(1, 1))
        await one.meet()
        left = await one.work(0, world=1)
        await eventually(lambda: row(at, left), 10, "the worker known")
        one.join(nodes=(1, 1))
        await one.meet()
        assert alive(left)
        assert any("preflight.end_leftovers is off" in text for text in at.lines.texts)


async def test_a_helper_of_a_finished_round_that_holds_a_gpu_is_ended(
    dirs: list[str], store: MemoryStore, start: Torchruns, gpus: GpuBench, tmp_path: Path
) -> None:
    """Nobody watches it: the kernel tells what it was started for and what it has open."""
    device = tmp_path / "nvidia0"
    device.touch()
    helpers: list[subprocess.Popen[str]] = []

    def helper(run_uid: str, round_: int) -> subprocess.Popen[str]:
        env = {**os.environ, "RANKPULSE_RUN_UID": run_uid, "RANKPULSE_ROUND": str(round_)}
        command = [sys.executable, "-c", HOLDER, str(device)]
        process = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        helpers.append(process)
        assert process.stdout
        process.stdout.readline()
        return process

    try:
        async with desk(dirs[0], store, gpus=2).at_work() as at:
            one = await start(dirs[0])
            at.agent.together.preflight.look.devices = f"{tmp_path}/nvidia\\d+"
            one.join(nodes=(1, 1))
            met = await one.meet(30)
            mine, foreign, later = helper(met["run_uid"], 1), helper("another-run", 1), helper(met["run_uid"], 2)
            one.join(nodes=(1, 1))
            assert (await one.meet(30))["round"] == 2
            assert await asyncio.to_thread(mine.wait, 10) == -signal.SIGKILL
            assert foreign.poll() is later.poll() is None
    finally:
        for process in helpers:
            process.kill()
            process.communicate()
