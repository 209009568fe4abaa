"""A sum over two GPUs of this node, in a process that may hang: does NCCL get from one to the other?

Prints one line of JSON: {"ok": "..."}, {"unknown": "..."} or {"fail": "..."}. No process group is made: both GPUs are
this process's own.
"""

import json
import signal
import sys
import time
from typing import Any

_NUMBERS = 1 << 20


def main() -> None:
    import ctypes

    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    try:
        level, text = add_up()
    except Exception as error:  # CUDA and NCCL raise what they like
        level, text = "fail", f"a sum over two GPUs failed: {type(error).__name__}: {error}"
    sys.stdout.write(json.dumps({level: text[:300]}) + "\n")
    sys.stdout.flush()


def add_up() -> tuple[str, str]:
    try:
        import torch
        from torch.cuda import nccl
    except ImportError as error:
        return "unknown", f"torch is not in the agent's environment ({error})"
    if torch.cuda.device_count() < 2:
        return "unknown", f"it takes two GPUs, and torch sees {torch.cuda.device_count()}"
    parts: list[Any] = [torch.full((_NUMBERS,), float(n + 1), device=f"cuda:{n}") for n in (0, 1)]
    sums = [torch.empty_like(part) for part in parts]
    began = time.monotonic()
    nccl.all_reduce(parts, sums)
    for number, total in enumerate(sums):
        torch.cuda.synchronize(number)
        if not bool((total == 3.0).all()):
            return "fail", f"a sum over two GPUs came out wrong on GPU {number}"
    return "ok", f"a sum over two GPUs took {time.monotonic() - began:.2f} s"


if __name__ == "__main__":
    main()
