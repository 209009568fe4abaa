"""What an agent costs its node: eight GPUs, eight ranks, a beat a second. Seconds to measure: FOOTPRINT_S."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from agent_bench import Crew, Job
from gpu_bench import library
from support import eventually

MEASURED_S = float(os.environ.get("FOOTPRINT_S", "20"))
IDLER = "import asyncio\nasync def main():\n    while True: await asyncio.sleep(0.02)\nasyncio.run(main())"
TICKS = os.sysconf("SC_CLK_TCK")
AGENT_IMPORTS = """
import sys
import rankpulse.agent.main
heavy = {"numpy", "torch", "pynvml", "rich", "grafanalib", "pandas"} & set(sys.modules)
sys.exit(f"the agent imports {sorted(heavy)}" if heavy else 0)
"""


def test_the_agent_imports_nothing_heavy() -> None:
    done = subprocess.run([sys.executable, "-c", AGENT_IMPORTS], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_only_its_child_knows_nvml() -> None:
    """Nothing of ours but the standard library is in the process that may hang."""
    code = "import sys; before = set(sys.modules); import rankpulse.agent.nvml_child; print(*set(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    ours = {name for name in done.stdout.split() if name.startswith("rankpulse")}
    assert ours <= {"rankpulse", "rankpulse.agent", "rankpulse.agent.nvml_child", "rankpulse.agent.nvml_gpu"}
    assert not {"asyncio", "msgspec", "threading"} & set(done.stdout.split())


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def resident_mb(pid: int) -> float:
    (kib,) = re.findall(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return int(kib) / 1024


def child_of(pid: int) -> int | None:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(found[0]) if found else None


@pytest.fixture
def agent(run_dir: str, etcd: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    library(tmp_path, monkeypatch).say(
        gpus=8, **{f"field:{number}": 1 for number in (3, 4, 5, 6, 74, 94, 142, 143)}, **{"field:91": 18},
        **{f"field:{number}@{link}": 0 for number in (161, 162, 163, 165) for link in range(18)},
    )  # fmt: skip
    config = tmp_path / "rankpulse.toml"
    config.write_text(
        f'cluster = "footprint"\n[store]\nendpoints = ["{etcd}"]\n[preflight]\ngpus = 8\n'
        f'[agent]\nnode = "n1"\nrun_dir = "{run_dir}"\nlisten = "127.0.0.1:0"\n'
    )
    command = [sys.executable, "-m", "rankpulse.cli.entry", "agent", "--config", str(config)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    yield process.pid
    process.terminate()
    process.wait(20)


@pytest.mark.live
async def test_an_agent_with_eight_gpus_and_eight_ranks(agent: int, crew: Crew) -> None:
    jobs = [crew.job(rank, 8) for rank in range(8)]
    await eventually(lambda: child_of(agent) is not None, 30, "the process that asks NVML")
    _steps(jobs, 5.0)
    child = child_of(agent)
    assert child
    idler = subprocess.Popen([sys.executable, "-c", IDLER])
    pids = (agent, child, idler.pid)
    try:
        _steps(jobs, 1.0)
        began, before = time.monotonic(), [cpu_s(pid) for pid in pids]
        _steps(jobs, MEASURED_S)
        took_s, after = time.monotonic() - began, [cpu_s(pid) for pid in pids]
    finally:
        idler.kill()
        idler.wait()
    share, of_child, of_idler = ((now - then) / took_s for now, then in zip(after, before, strict=True))
    print(f"\nagent: {100 * share:.2f} % of a core, {resident_mb(agent):.1f} MB resident, over {took_s:.0f} s")
    print(f"the process that asks NVML, apart: {100 * of_child:.2f} %, {resident_mb(child):.1f} MB")
    print(
        f"a program that only wakes up 50 times a second: {100 * of_idler:.2f} %, at a load of {os.getloadavg()[0]:.1f}"
    )
    assert child_of(agent) == child, "one process all the time"
    assert resident_mb(agent) <= 80
    assert share <= max(0.01, 1.8 * of_idler), "1 % where waking up costs what it should"


def _steps(jobs: list[Job], for_s: float) -> None:
    """A step a second."""
    until, step = time.monotonic() + for_s, 0
    while time.monotonic() < until:
        step += 1
        for job in jobs:
            job.tell(f"step {step}")
        time.sleep(1.0)
