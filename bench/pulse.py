"""What the pulse costs the training process, beside what Python itself costs on the same machine in the same minute.

`python -m rankpulse.bench.pulse [--json]`. All figures of a run are taken in turns, so that a busy machine slows all
of them alike and the ratios stay; each is the median of many short batches.
"""

import json as json_
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

BATCH = 2_000  # calls per sample
SAMPLES = 60
STARTS = 5  # fresh interpreters for attach()

_ATTACH = """
import time
start = time.perf_counter_ns()
from rankpulse.trainer import attach
imported = time.perf_counter_ns()
pulse = attach()
print(imported - start, time.perf_counter_ns() - imported)
"""


def run(json: bool) -> dict[str, Any]:
    """Measure and print, as one JSON line or as a table; returns what was measured.

    `ns`: median nanoseconds per call; `ratio`: the same over an empty call; `import_ms`, `attach_ms`: medians in fresh
    interpreters. Needs no store, no agent and no torch.
    """
    with tempfile.TemporaryDirectory(prefix="rankpulse-bench-", dir=_memory_dir()) as run_dir:
        environ = {**os.environ, "RANKPULSE_DIR": run_dir}
        ns = {name: round(value, 1) for name, value in _per_call(run_dir).items()}
        import_ms, attach_ms = _fresh(environ)
    empty = ns["empty call"]
    result = {
        "ns": ns,
        "ratio": {name: round(value / empty, 1) for name, value in ns.items()},
        "import_ms": import_ms,
        "attach_ms": attach_ms,
        "batch": BATCH,
        "samples": SAMPLES,
        "python": sys.version.split()[0],
        "cpus": os.cpu_count(),
    }
    print(json_.dumps(result) if json else _table(result))
    return result


def _per_call(run_dir: str) -> dict[str, float]:
    """Median nanoseconds per call of each subject, the subjects taken in turns."""
    subjects = _subjects(run_dir)
    samples: dict[str, list[float]] = {name: [] for name in subjects}
    for _ in range(SAMPLES):
        for name, batch in subjects.items():
            start = time.perf_counter_ns()
            batch()
            samples[name].append((time.perf_counter_ns() - start) / BATCH)
    return {name: statistics.median(values) for name, values in samples.items()}


def _subjects(run_dir: str) -> dict[str, Callable[[], None]]:
    """Name -> a function that makes `BATCH` calls in a plain loop."""
    from rankpulse.core import slot
    from rankpulse.trainer import place
    from rankpulse.trainer.pulse import Pulse

    dir_fd, _path = place.own_dir(run_dir, os.geteuid())
    made = {
        name: Pulse(place.create(dir_fd, f"1-{number:08x}.slot")) for number, name in enumerate(["explicit", "auto"])
    }
    os.close(dir_fd)
    pulse, counting, nothing = made["explicit"], made["auto"], Pulse(None)
    optimizer, now, phase = _Optimizer(), time.monotonic_ns, slot.PHASE_TRAIN

    def empty() -> None:
        pass

    def in_phase() -> None:
        with pulse.phase(phase):
            pass

    return {
        "empty call": lambda: _loop(empty),
        "time.monotonic_ns()": lambda: _loop(now),
        "step(n)": lambda: _loop_with(pulse.step),
        "step(n, loss)": lambda: _loop_loss(pulse.step),
        "step(n, loss, norm)": lambda: _loop_norm(pulse.step),
        "step(n, loss=nan)": lambda: _loop_nan(pulse.step),
        "step()": lambda: _loop(pulse.step),
        "optimizer hook": lambda: _loop(lambda: counting.optimizer_stepped(optimizer)),
        "with phase(name)": lambda: _loop(in_phase),
        "step(n), no slot": lambda: _loop_with(nothing.step),
    }


class _Optimizer:
    """Stands for torch's, so that the figure is ours alone."""


def _loop(call: Callable[[], object]) -> None:
    for _ in range(BATCH):
        call()


def _loop_with(call: Callable[[int], object]) -> None:
    for n in range(BATCH):
        call(n)


def _loop_loss(call: Callable[..., object]) -> None:
    loss = 0.5
    for n in range(BATCH):
        call(n, loss=loss)


def _loop_norm(call: Callable[..., object]) -> None:
    loss, norm = 0.5, 1.5
    for n in range(BATCH):
        call(n, loss=loss, grad_norm=norm)


def _loop_nan(call: Callable[..., object]) -> None:
    loss = math.nan
    for n in range(BATCH):
        call(n, loss=loss)


def _fresh(environ: dict[str, str]) -> tuple[float, float]:
    """Median milliseconds of the import and of attach() in fresh interpreters."""
    times = []
    for _ in range(STARTS):
        done = subprocess.run([sys.executable, "-c", _ATTACH], env=environ, capture_output=True, text=True, check=True)
        times.append([int(part) / 1e6 for part in done.stdout.split()])
    imports, attaches = zip(*times, strict=True)
    return round(statistics.median(imports), 2), round(statistics.median(attaches), 2)


def _memory_dir() -> str | None:
    """Shared memory, as in production; None (the default for temporary files) where there is none."""
    place = "/dev/shm"  # noqa: S108 (the directory made there has a random name and mode 0700)
    return place if os.access(place, os.W_OK) else None


def _table(result: dict[str, Any]) -> str:
    lines = [f"{'':22}{'ns':>10}{'x empty call':>16}"]
    lines += [f"{name:22}{value:>10.0f}{result['ratio'][name]:>16.1f}" for name, value in result["ns"].items()]
    lines.append(f"import {result['import_ms']} ms, attach() {result['attach_ms']} ms, in a fresh interpreter")
    return "\n".join(lines)


if __name__ == "__main__":
    run("--json" in sys.argv[1:])
