"""What goes wrong in a rank. None of these comes back by itself, but for the end of the process."""

import ctypes
import itertools
import multiprocessing
import os
import queue
import signal
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NoReturn

import torch
from torch.utils.data import DataLoader

FOR_EVER_S = 100_000
SILENT_CODE = 0  # as if all were well
IDLE_S = 0.5  # a worker of a loader has read ahead by then


def stopped() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def deadlock() -> None:
    """Two threads of the program, each with the lock that the other needs."""
    mine, theirs, taken = threading.Lock(), threading.Lock(), threading.Event()
    with mine:
        threading.Thread(target=_other_side, args=(mine, theirs, taken), daemon=True).start()
        taken.wait()
        with theirs:
            pass


def _other_side(mine: threading.Lock, theirs: threading.Lock, taken: threading.Event) -> None:
    with theirs:
        taken.set()
        with mine:
            pass


def gil_asleep() -> None:
    """In C code that waits, and does not let go of Python's lock."""
    ctypes.PyDLL(None).sleep(FOR_EVER_S)


def gil_busy() -> None:
    """In C code that computes for ever."""
    deque(itertools.repeat(0), maxlen=0)


class Numbers(torch.utils.data.IterableDataset[int]):
    def __iter__(self) -> Any:
        return itertools.count()


def torch_loader_killed() -> None:
    """torch notices the death of a worker of its data loader, and raises in the rank.

    Of plain numbers: a tensor that has been handed over, and not yet fetched, dies with its worker, and the rank of
    an EOFError, whose words do not say whose end it was.
    """
    loader = iter(DataLoader(Numbers(), num_workers=1, batch_size=None, multiprocessing_context="fork"))
    next(loader)
    [worker] = loader._workers
    time.sleep(IDLE_S)  # one that is killed at work may take a lock with it, on which torch then waits for ever
    os.kill(worker.pid, signal.SIGKILL)
    while True:
        next(loader)


def own_loader_killed() -> None:
    """The program's own loader: nobody notices, and its queue stays empty."""
    context = multiprocessing.get_context("fork")
    batches: Any = context.Queue(4)
    worker = context.Process(target=_load, args=(batches,), daemon=True)
    worker.start()
    batches.get()
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGKILL)
    while True:
        next_batch(batches)


def _load(batches: "queue.Queue[int]") -> NoReturn:
    for number in itertools.count():
        batches.put(number)
    raise AssertionError


def next_batch(batches: "queue.Queue[int]") -> int:
    return batches.get()


def stuck_pipe() -> None:
    """Its log goes to a process that does not read any more."""
    _reader, writer = os.pipe()
    line = b"loss 1.25\n" * 400
    while True:
        os.write(writer, line)


def leaves() -> None:
    os._exit(SILENT_CODE)


def killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


FAULTS: dict[str, Callable[[], None]] = {
    "stopped": stopped,
    "deadlock": deadlock,
    "gil_asleep": gil_asleep,
    "gil_busy": gil_busy,
    "torch_loader": torch_loader_killed,
    "own_loader": own_loader_killed,
    "pipe": stuck_pipe,
    "leaves": leaves,
    "killed": killed,
}


def write_slowly(path: str, seconds: float) -> None:
    """A checkpoint that takes its time: bytes move all the while."""
    ends = time.monotonic() + seconds
    with open(path, "wb") as file:
        while time.monotonic() < ends:
            file.write(os.urandom(64 * 1024))
            os.fsync(file.fileno())
            time.sleep(0.05)
