"""A whole agent beside GPUs that break: it beats on, tells the store, and serves metrics."""

import asyncio
import socket
import time
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from agent_bench import Desk, ask
from gpu_bench import NvmlStub, library
from support import eventually

from rankpulse.agent.gpu_devices import Devices
from rankpulse.core import catalogue
from rankpulse.core.records import GPU_FAULT
from rankpulse.store.memory import MemoryStore

pytestmark = pytest.mark.live
QUICK = {"poll_s": 1.0, "slow_poll_s": 1.0, "call_timeout_s": 2.0, "retry_s": 60.0, "publish_s": 1.0, "kernel_log": ""}
BEAT_S = 0.2


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(time.monotonic)


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NvmlStub:
    made = library(tmp_path, monkeypatch)
    made.say(gpus=8)
    return made


def eight(count: int = 8) -> Devices:
    return Devices(lambda: True, lambda: [NvmlStub.bus(number) for number in range(count)])


async def _level(desk: Desk, gpu: int) -> str:
    health = await desk.health()
    return next((row.level for row in health.gpus if row.bus == NvmlStub.bus(gpu)), "") if health else ""


@pytest.mark.parametrize("gpu", [QUICK, pytest.param({}, id="as-shipped", marks=pytest.mark.drill)])
async def test_a_gpu_that_blocks_costs_no_beat_and_no_other_gpu(
    run_dir: str, store: MemoryStore, stub: NvmlStub, gpu: dict[str, Any]
) -> None:
    """Its calls block for as long as the test lasts: nothing may wait for that."""
    async with Desk(run_dir, store, devices=eight(), gpu=gpu, beat_s=BEAT_S).at_work() as desk:

        async def well() -> bool:
            return [await _level(desk, number) for number in range(8)] == ["ok"] * 8

        await eventually(well, 60, "eight GPUs that are well")
        stub.say({"3.hang": 1})
        gaps, last, began = list[float](), time.monotonic(), time.monotonic()
        seq = (await desk.beat()).seq  # type: ignore[union-attr]
        while await _level(desk, 3) != "unknown":
            assert time.monotonic() - began < 30, "the finding is published within 30 s"
            beat = await desk.beat()
            if beat and beat.seq != seq:
                gaps.append(time.monotonic() - last)
                seq, last = beat.seq, time.monotonic()
            await asyncio.sleep(0.01)
        took_s = time.monotonic() - began
        print(f"\ntold after {took_s:.1f} s; {len(gaps)} beats in it, at most {max(gaps):.2f} s apart")
        assert len(gaps) >= 0.5 * took_s / BEAT_S, "it beats on"
        assert max(gaps) < 2.0, "no beat waited for the GPU"
        stub.say({f"{number}.temperature": 70 + number for number in range(8)})

        def others_are_read() -> bool:
            known = desk.agent.books.gpus
            wanted = {NvmlStub.bus(n): 70.0 + n for n in range(8) if n != 3}
            return all(known[bus].values.get("temperature_c") == value for bus, value in wanted.items())

        await eventually(others_are_read, 40, "the other seven")
        (fault,) = await desk.observations(GPU_FAULT)
        assert (fault.detail["what"], fault.detail["bus"], fault.detail["how"]) == (
            "probe_stuck", NvmlStub.bus(3), "opened",
        )  # fmt: skip


async def test_an_xid_is_told_in_the_store_on_the_page_and_on_the_socket(
    run_dir: str, store: MemoryStore, stub: NvmlStub
) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    stub.say({"field:3": 4, "field:271": 5_000_000_000, "1.power": 300_000})
    desk = Desk(run_dir, store, devices=eight(2), gpu=QUICK, listen=f"127.0.0.1:{port}")
    async with desk.at_work():
        await eventually(lambda: desk.agent.capabilities.get("gpu_events") == "ok", 20, "events")
        stub.event(1, 79)
        stub.event(1, 79)

        async def told() -> bool:
            health = await desk.health()
            return bool(health and health.gpus and health.gpus[1].xids == {"79": 1})

        await eventually(told, 20, "the record")
        health = await desk.health()
        assert health
        assert (health.driver, health.gpus[1].level, health.gpus[1].action) == ("595.45.04", "broken", "drain_reboot")
        assert (health.gpus[1].findings[0].what, health.gpus[1].findings[0].count) == ("xid_79", 1)
        faults = [obs.detail["what"] for obs in await desk.observations(GPU_FAULT)]
        assert faults == ["xid_79"], "once: two events within seconds are one fault"
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/metrics") as response:
            page = await response.text()
        said = await ask(run_dir, b'{"op":"hardware"}\n')
    for metric in (*catalogue.GPU, *catalogue.HOST):
        assert f"# TYPE {metric.name}" in page
    for source in ("gpu", "host", "slots"):
        assert f'rankpulse_agent_source_age_seconds{{node="{desk.agent.node}",source="{source}"}}' in page
    assert 'rankpulse_build_info{component="agent"' in page
    assert "process_resident_memory_bytes" in page
    host = desk.agent._host.name
    labels = f'Hostname="{host}",UUID="GPU-00000000-0000-0000-0000-000000000001",gpu="1",pci_bus_id="{NvmlStub.bus(1)}"'
    assert f'rankpulse_gpu_xids_total{{{labels},xid="79"}} 1.0' in page
    assert f"rankpulse_gpu_power_watts{{{labels}}} 300.0" in page
    assert f'rankpulse_gpu_held_down_seconds_total{{{labels},reason="hw_power_brake"}} 5.0' in page
    assert [row["level"] for row in said["gpus"]] == ["ok", "broken"]
    assert said["values"][NvmlStub.bus(1)]["power_mw"] == 300_000


async def test_a_restart_of_the_agent_clears_nothing(run_dir: str, store: MemoryStore, stub: NvmlStub) -> None:
    async with Desk(run_dir, store, devices=eight(2), gpu=QUICK).at_work() as first:
        await eventually(lambda: first.agent.capabilities.get("gpu_events") == "ok", 20, "events")
        stub.event(1, 79)

        async def broken() -> bool:
            return await _level(first, 1) == "broken"

        await eventually(broken, 20, "the fault")
        told = (await first.observations(GPU_FAULT))[0]
    async with Desk(run_dir, store, devices=eight(2), gpu=QUICK).at_work() as second:

        async def read() -> bool:
            known = await second.health()
            return bool(known and known.inc == 2 and known.gpus[0].level == "ok")

        await eventually(read, 20, "what the next agent tells")
        known = await second.health()
        assert known
        assert (known.gpus[1].level, known.gpus[1].xids) == ("broken", {"79": 1})
        assert known.gpus[1].findings[0].first_at <= told.at
        assert len(await second.observations(GPU_FAULT)) == 1, "it is not told again"
        assert second.agent.health.show(0)["gpus"][1]["level"] == "broken"


async def test_an_agent_without_gpus_says_and_starts_nothing(run_dir: str, store: MemoryStore) -> None:
    async with Desk(run_dir, store, devices=Devices(lambda: False, lambda: None)).at_work() as desk:
        await eventually(desk.state, 10, "the state")
        state = await desk.state()
        assert state
        assert not {"gpu", "gpu_events"} & state.capabilities.keys()
        assert desk.agent.gpus.started == 0
        assert not [name for name in desk.agent.health.samples() if name.startswith("rankpulse_gpu")]
