"""A real DDP job under plain torchrun: one torchrun per "node", all on this machine."""

import json
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

from rankpulse.drills.children import Child

GRACE_S = 40.0  # torchelastic waits up to 30 s for its workers


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


class Job:
    """`nodes` maps node names to their run directories; `workers` processes per node."""

    def __init__(
        self,
        directory: Path,
        nodes: dict[str, Path],
        *,
        name: str = "demo",
        workers: int = 2,
        max_restarts: int = 3,
        train_args: tuple[str, ...] = (),
        env: dict[str, str] | None = None,
    ) -> None:
        self.directory, self.name, self.workers = directory, name, workers
        self.events_file = directory / "events.jsonl"
        directory.mkdir(parents=True, exist_ok=True)
        port = free_port()
        self.launchers = [
            Child(
                f"torchrun {node}",
                [
                    *(sys.executable, "-m", "torch.distributed.run"),
                    *("--nnodes", str(len(nodes)), "--nproc-per-node", str(workers)),
                    *("--max-restarts", str(max_restarts), "--rdzv-backend", "c10d"),
                    *("--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", name, "--local-addr", "127.0.0.1"),
                    *("--rdzv-conf", f"is_host={int(index == 0)}"),
                    *("-m", "rankpulse.drills.train"),
                    *("--checkpoints", str(directory / "checkpoints"), "--events", str(self.events_file), *train_args),
                ],
                log=directory / f"{node}.log",
                env=job_env(run_dir) | (env or {}),
            )
            for index, (node, run_dir) in enumerate(nodes.items())
        ]

    @property
    def world_size(self) -> int:
        return self.workers * len(self.launchers)

    def start(self) -> "Job":
        for launcher in self.launchers:
            launcher.start()
        return self

    @property
    def started_at(self) -> float:
        return self.launchers[0].started_at

    def alive(self) -> bool:
        return any(launcher.alive() for launcher in self.launchers)

    def ctrl_c(self) -> None:
        """What a terminal does: SIGINT to every process of the foreground group."""
        for launcher in self.launchers:
            launcher.signal(signal.SIGINT, group=True)

    def wait(self, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        return all(launcher.wait(max(deadline - time.monotonic(), 0.0)) for launcher in self.launchers)

    def end(self) -> None:
        for launcher in self.launchers:
            launcher.signal(signal.SIGTERM)
        self.wait(GRACE_S)
        for launcher in self.launchers:
            launcher.end(grace_s=1.0)

    def events(self, event: str | None = None) -> list[dict[str, Any]]:
        """What the training script itself wrote down: resumed, first_step, finished."""
        try:
            lines = self.events_file.read_text(encoding="utf-8").splitlines()
        except OSError:
            return []
        found = [json.loads(line) for line in lines if line.endswith("}")]
        return [entry for entry in found if event is None or entry["event"] == event]

    def tail(self) -> str:
        return "\n".join(f"--- {launcher.name}\n{launcher.tail(12)}" for launcher in self.launchers)


def job_env(run_dir: Path) -> dict[str, str]:
    """The environment that the README asks for, plus what keeps four processes civil on two cores."""
    return {
        "RANKPULSE_DIR": str(run_dir),
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": os.environ.get("GLOO_SOCKET_IFNAME", "lo"),
        "PYTHONUNBUFFERED": "1",
    }
