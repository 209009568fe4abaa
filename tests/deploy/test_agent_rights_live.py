"""The rights that manifests give an agent, tried: real capabilities, another user's job in a namespace of its own."""

import os
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kustomized import build
from support import eventually_sync

from rankpulse.store.embedded import free_ports

HERE = Path(__file__).resolve().parents[2] / "deploy" / "kubernetes"
USER = 1000
# everything is imported before it becomes another user, who may not read this interpreter; then it lets itself be
# looked at like any program (PR_SET_DUMPABLE). It ends when nobody holds its stdin any more
JOB = f"""
import ctypes, os, select, sys
from rankpulse.trainer import attach
os.setgroups([]); os.setgid({USER}); os.setuid({USER})
ctypes.CDLL(None).prctl(4, 1)
pulse, step = attach(), 0
while not select.select([sys.stdin], [], [], 0.1)[0]:
    pulse.step(step := step + 1)
"""
ENVIRON = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}
ENVIRON |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
APART = ["unshare", "--pid", "--fork", "--mount-proc"]

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can give rights away"),
    pytest.mark.skipif(not all(map(shutil.which, ("setpriv", "unshare"))), reason="no setpriv or unshare here"),
]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Path]:
    """A run directory in memory, as the DaemonSet's first container leaves it."""
    if subprocess.run([*APART, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no namespace of process ids can be made here")
    folder = Path(f"/dev/shm/rankpulse-rights-{os.getpid()}")
    folder.mkdir()
    folder.chmod(0o1777)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@contextmanager
def started(argv: list[str], environ: dict[str, str]) -> Iterator[None]:
    process = subprocess.Popen(argv, env={**os.environ, **environ}, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.terminate()
        process.wait(timeout=30)


def with_rights(names: list[str], argv: list[str], *more: str) -> list[str]:
    bounding = ",".join(["-all", *(f"+{name.lower()}" for name in names)])
    return ["setpriv", "--no-new-privs", "--inh-caps=-all", f"--bounding-set={bounding}", *more, *argv]


def agent(etcd: str, cluster: str, run: Path, listen: str) -> list[str]:
    argv = [sys.executable, "-m", "rankpulse.cli.main", "agent", "--store", etcd, "--cluster", cluster]
    return [*argv, "--node", "box", "--run-dir", str(run), "--listen", listen]


def told(listen: str, metric: str) -> float:
    try:
        with urllib.request.urlopen(f"http://{listen}/metrics", timeout=5) as answer:
            lines = answer.read().decode().splitlines()
    except (urllib.error.URLError, OSError):
        return -1.0
    return next((float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(metric + "{")), -1.0)


def given() -> list[str]:
    pod = build(HERE / "base")["DaemonSet", "rankpulse", "rankpulse-agent"]["spec"]["template"]["spec"]
    return list(pod["containers"][0]["securityContext"]["capabilities"]["add"])


@pytest.mark.parametrize("lacking", ["", "SYS_PTRACE"])
def test_the_daemonsets_rights_are_enough_and_needed(run: Path, etcd: str, cluster: str, lacking: str) -> None:
    listen = f"127.0.0.1:{free_ports(1)[0]}"
    rights = [name for name in given() if name != lacking]
    job = [*APART, sys.executable, "-c", JOB]
    with started(with_rights(rights, agent(etcd, cluster, run, listen)), {}):
        eventually_sync(lambda: told(listen, "rankpulse_agent_workers") == 0, 30, "the agent")
        with started(job, {**ENVIRON, "RANKPULSE_DIR": str(run)}):
            metric = "rankpulse_agent_slots_refused_total" if lacking else "rankpulse_agent_workers"
            eventually_sync(lambda: told(listen, metric) == 1, 30, metric)
            assert told(listen, "rankpulse_agent_workers") == (0 if lacking else 1)
        if not lacking:
            eventually_sync(lambda: told(listen, "rankpulse_agent_workers") == 0, 30, "the worker's end")
