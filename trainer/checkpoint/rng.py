"""The random number generators of a process: what is drawn after a load is what would have been drawn after the save.

Python's, numpy's global one if numpy is loaded, torch's for the CPU and for every CUDA device that this process has
set up. Taking their state draws nothing. Generators that the program made for itself are for it to save (`extra`).
"""

import hashlib
import random
import sys
from typing import Any

import torch


def captured() -> dict[str, Any]:
    """Plain values and tensors, for `tree`."""
    state: dict[str, Any] = {"python": random.getstate(), "torch": torch.get_rng_state()}
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        state["numpy"] = numpy.random.get_state(legacy=False)
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        state["cuda"] = [torch.cuda.get_rng_state(device) for device in range(torch.cuda.device_count())]
    return state


def derived(state: dict[str, Any], rank: int) -> dict[str, Any]:
    """Generators for a rank of whose own nothing is known: from those of another rank and its number, the same for the
    same, and different for different ranks."""
    seed = _seed_of(state, rank)
    found: dict[str, Any] = {
        "python": random.Random(seed).getstate(),  # noqa: S311 (no secret)
        "torch": _seeded(seed, "cpu"),
    }
    numpy = sys.modules.get("numpy")
    if numpy is not None and "numpy" in state:
        found["numpy"] = numpy.random.RandomState(seed & 0xFFFFFFFF).get_state(legacy=False)
    if "cuda" in state:
        found["cuda"] = [_seeded(seed, f"cuda:{device}") for device in range(len(state["cuda"]))]
    return found


def _seed_of(state: dict[str, Any], rank: int) -> int:
    """63 bits."""
    hasher = hashlib.sha256(repr(state["python"]).encode())
    hasher.update(bytes(state["torch"].cpu().tolist()))
    hasher.update(str(rank).encode())
    return int.from_bytes(hasher.digest()[:8], "big") >> 1


def _seeded(seed: int, device: str) -> Any:
    return torch.Generator(device).manual_seed(seed).get_state()


def restore(state: dict[str, Any]) -> list[str]:
    """Set every generator that was saved; returns what could not be, for people."""
    random.setstate(state["python"])
    torch.set_rng_state(state["torch"].cpu())
    numpy = sys.modules.get("numpy")
    if numpy is not None and "numpy" in state:
        numpy.random.set_state(state["numpy"])
    saved = state.get("cuda", [])
    found = torch.cuda.device_count() if saved and torch.cuda.is_available() else 0
    for device in range(min(len(saved), found)):
        torch.cuda.set_rng_state(saved[device].cpu(), device)
    if len(saved) > found:
        return [f"random numbers of {len(saved)} CUDA devices were saved, and this process sees {found}"]
    return []
