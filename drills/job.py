"""A real DDP job under torchrun: one torchrun per "node", all on this machine."""

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


HOLDER = ("-m", "rankpulse.trainer.hold", sys.executable)  # stands between torchrun and the trainer


class Job:
    """`nodes` maps node names to their run directories; `workers` processes per node.

    `backend`: how the torchruns meet, "c10d" (torch's own) or "rankpulse"; `hold`: with the worker holder.
    """

    def __init__(
        self,
        directory: Path,
        nodes: dict[str, Path],
        *,
        name: str = "demo",
        workers: int = 2,
        max_restarts: int = 3,
        backend: str = "c10d",
        hold: bool = False,
        nnodes: str = "",
        save_every: int = 10,
        last_words: bool = False,
        train_args: tuple[str, ...] = (),
        env: dict[str, str] | None = None,
        node_env: dict[str, dict[str, str]] | None = None,
    ) -> None:
        self.directory, self.name, self.workers, self.backend = directory, name, workers, backend
        self.nnodes, self.max_restarts = nnodes or str(len(nodes)), max_restarts
        self.events_file, self.losses_file = directory / "events.jsonl", directory / "losses.jsonl"
        self.save_every = save_every  # steps between two checkpoints
        directory.mkdir(parents=True, exist_ok=True)
        checkpoints = str(directory / "checkpoints")
        files = ("--checkpoints", checkpoints, "--events", str(self.events_file), "--losses", str(self.losses_file))
        self.last_words = last_words  # survivors of a fault save what they hold
        words = ("--last-words",) if last_words else ()
        self._train = (*files, "--save-every", str(save_every), *words, *train_args)
        self._hold, self._port, self._env, self._node_env = hold, free_port(), env or {}, node_env or {}
        self.launchers = [
            self.new_launcher(node, run_dir, index) for index, (node, run_dir) in enumerate(nodes.items())
        ]

    def new_launcher(self, node: str, run_dir: Path, index: int) -> Child:
        """A torchrun of this job, not started yet; with the rankpulse rendezvous any number may come and go."""
        return Child(
            f"torchrun {node}",
            [
                *(sys.executable, "-m", "torch.distributed.run"),
                *("--nnodes", self.nnodes, "--nproc-per-node", str(self.workers)),
                *("--max-restarts", str(self.max_restarts), "--rdzv-id", self.name, "--local-addr", "127.0.0.1"),
                *self._meeting(index),
                *(("--no-python", sys.executable, *HOLDER) if self._hold else ()),
                *("-m", "rankpulse.drills.train", *self._train),
            ],
            log=self.directory / f"{node}.log",
            env=job_env(run_dir, self.backend) | self._env | self._node_env.get(node, {}),
        )

    def _meeting(self, index: int) -> tuple[str, ...]:
        if self.backend != "c10d":
            return ("--rdzv-backend", self.backend)
        place = ("--rdzv-endpoint", f"127.0.0.1:{self._port}", "--rdzv-conf", f"is_host={int(index == 0)}")
        return ("--rdzv-backend", "c10d", *place)

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

    def last_step(self) -> int:
        """The step that a rank told of last, 0 before the first."""
        try:
            with open(self.losses_file, "rb") as file:
                file.seek(max(file.seek(0, os.SEEK_END) - 1024, 0))
                lines = file.read().split(b"\n")[:-1]
        except OSError:
            return 0
        return int(json.loads(lines[-1])["step"]) if lines else 0

    def tail(self) -> str:
        return "\n".join(f"--- {launcher.name}\n{launcher.tail(12)}" for launcher in self.launchers)


def job_env(run_dir: Path, backend: str = "c10d") -> dict[str, str]:
    """The environment that the README asks for, plus what keeps four processes civil on two cores."""
    own_store = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"} if backend == "c10d" else {}
    return {
        "RANKPULSE_DIR": str(run_dir),
        **own_store,
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": os.environ.get("GLOO_SOCKET_IFNAME", "lo"),
        "PYTHONUNBUFFERED": "1",
    }
