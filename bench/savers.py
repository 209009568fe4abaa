"""What a rank does in `rankpulse bench checkpoint`: holds its part of a state and saves it in every way, in turn.

All ways write the same tensors and wait for the disk (fsync) before they are done. Needs torch.
"""

import contextlib
import ctypes
import gc
import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

from rankpulse.trainer.checkpoint import division, groups, writer
from rankpulse.trainer.checkpoint.files import Files
from rankpulse.trainer.checkpoint.manifest import CONSOLIDATED, SHARDED, ShardManifest
from rankpulse.trainer.checkpoint.reader import FAST
from rankpulse.trainer.checkpoint.saving import OFF, How, save_sharded
from rankpulse.trainer.checkpoint.together import Together

REPLICATED, SPLIT = "replicated", "split"
STATES: Final = {
    REPLICATED: "replicated (DDP): every rank holds all of it",
    SPLIT: "split (FSDP2): every rank holds its part, as DTensors",
}
PARTS: Final = ("weight", "exp_avg", "exp_avg_sq")
LAYERS: Final = 24
WIDTH: Final = 1024
LIMIT: Final = timedelta(seconds=300)
_MMAP_THRESHOLD, _TRIM_FROM = -3, 1 << 20  # mallopt: from 1 MiB on memory goes back to the system when it is freed

Way = Callable[[torch.nn.Module, Path, Together], None]
Tell = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Plan:
    """What is measured. `megabytes` (MiB) is the whole state's size; `repeat` counted turns follow one that is not."""

    ranks: int
    megabytes: int
    repeat: int
    directory: Path


def rows_of(plan: Plan) -> int:
    """Rows of one tensor: three per layer (the parameter and Adam's two), fp32, divisible by the ranks."""
    wanted = plan.megabytes * 2**20 / (LAYERS * len(PARTS) * WIDTH * 4)
    return max(1, round(wanted / plan.ranks)) * plan.ranks


def made(plan: Plan, state: str) -> torch.nn.Module:
    """This rank's state, as a module. Both kinds have the same names, shapes and, over all ranks, bytes."""
    rows, mesh = rows_of(plan), init_device_mesh("cpu", (plan.ranks,)) if state == SPLIT else None
    generator = torch.Generator().manual_seed(dist.get_rank() if state == SPLIT else 0)
    held, module = rows // plan.ranks if state == SPLIT else rows, torch.nn.Module()
    for name in (f"{part}_{layer}" for layer in range(LAYERS) for part in PARTS):
        tensor = torch.rand(held, WIDTH, generator=generator)
        whole = DTensor.from_local(tensor, mesh, [Shard(0)]) if state == SPLIT else tensor
        module.register_parameter(name, torch.nn.Parameter(whole, requires_grad=False))
    return module


def tensors_of(module: torch.nn.Module) -> dict[str, Any]:
    return {name: parameter.data for name, parameter in module.named_parameters()}


def ours(mode: str, verify_saved: str = OFF) -> Way:
    def save(module: torch.nn.Module, directory: Path, together: Together) -> None:
        how = How(mode=mode, verify_saved=verify_saved)
        save_sharded(str(directory), {"model": module}, 1, together=together, how=how)

    return save


def gather_our_writer(module: torch.nn.Module, directory: Path, _: Together) -> None:
    """All of it in rank 0's memory, then written there as one file of our format, with its checksums."""
    whole = gathered(tensors_of(module))
    if dist.get_rank() == 0:
        _write_as_ours(whole, str(directory))


def gather_torch_save(module: torch.nn.Module, directory: Path, _: Together) -> None:
    """What people write: rank 0 has everything and calls torch.save. Made safe as it should be: fsync, rename."""
    whole = gathered(tensors_of(module))
    if dist.get_rank() == 0:
        with open(directory / "tmp", "wb") as file:
            torch.save(whole, file)
            file.flush()
            os.fsync(file.fileno())
        Files().rename(str(directory / "tmp"), str(directory / "state.pt"))
        Files().sync_dir(str(directory))


def torch_dcp(module: torch.nn.Module, directory: Path, _: Together) -> None:
    dcp.save(tensors_of(module), storage_writer=dcp.FileSystemWriter(str(directory / "dcp"), sync_files=True))


WAYS: Final[dict[str, Way]] = {
    "rankpulse, sharded": ours(SHARDED),
    "rankpulse, sharded, read back": ours(SHARDED, FAST),
    "rankpulse, consolidated": ours(CONSOLIDATED),
    "gather, then our writer": gather_our_writer,
    "gather, then torch.save": gather_torch_save,
    "torch.distributed.checkpoint": torch_dcp,
}
OURS: Final = "rankpulse, sharded"


def gathered(state: dict[str, Any]) -> dict[str, Any]:
    """The whole state on rank 0, received in place: each byte travels once, no tensor is held twice."""
    return {name: _whole(tensor) if isinstance(tensor, DTensor) else tensor for name, tensor in state.items()}


def _whole(tensor: Any) -> Any:
    local = tensor.to_local()
    if dist.get_rank() != 0:
        dist.gather(local, dst=0)
        return local
    whole = torch.empty(tensor.shape, dtype=tensor.dtype)
    dist.gather(local, list(whole.chunk(dist.get_world_size())), dst=0)
    return whole


def _write_as_ours(whole: dict[str, Any], directory: str) -> None:
    files, save_id = Files(), os.urandom(4).hex()
    cut = division.replicated([division.Item(name, "F32", tuple(t.shape), None) for name, t in whole.items()], 1)
    attempt = writer.begin(files, directory, 1, save_id)
    entries = [writer.Entry(name, "F32", tuple(t.shape), _bytes_of(t)) for name, t in whole.items()]
    shard = writer.write_shard(
        files, attempt, rank=0, world_size=1, step=1, save_id=save_id, entries=entries, ranges=cut.ranges[0]
    )
    manifest = ShardManifest(SHARDED, 1, 1, save_id, time.time(), cut.tensors, (shard,))
    writer.commit(files, attempt, manifest)


def _bytes_of(tensor: Any) -> Callable[[], Iterator[memoryview]]:
    return lambda: iter([memoryview(tensor.numpy()).cast("B")])


class Peak:
    """Peak resident memory of this process above what it had, by the kernel's own mark (VmHWM of /proc/self/status).

    The mark is put back to the present by writing 5 to /proc/self/clear_refs. Page cache is not in it.
    """

    def __init__(self) -> None:
        gc.collect()
        libc = ctypes.CDLL(None)
        if hasattr(libc, "malloc_trim"):
            libc.malloc_trim(0)
        self.works = False
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")
            self._base, mark = _status("VmRSS"), _status("VmHWM")
            self.works = mark - self._base < 2**20

    def bytes(self) -> int:
        """-1 where the kernel does not let the mark be put back."""
        return max(0, _status("VmHWM") - self._base) if self.works else -1


def _status(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    return 0


def rank_main(rank: int, plan: Plan, tell: Tell) -> None:
    """Everything one rank does; rank 0 tells what was measured."""
    gc.freeze()  # what torch brought stays: looking through it again before every save would take longer than the save
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(_MMAP_THRESHOLD, _TRIM_FROM)
    meeting = f"file://{plan.directory}/meeting"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=plan.ranks, timeout=LIMIT)
    try:
        together = groups.together()
        for name in STATES:
            module = made(plan, name)
            for turn in range(plan.repeat + 1):
                for way in _in_turn(turn):
                    _measure(plan, module, together, (name, way, turn), tell)
        _left_for_reading(plan, module, together)
    finally:
        dist.destroy_process_group()


def _in_turn(turn: int) -> list[str]:
    """Every way once, another one first in every turn."""
    names, first = list(WAYS), turn % len(WAYS)
    return names[first:] + names[:first]


def _measure(plan: Plan, module: torch.nn.Module, together: Together, what: tuple[str, str, int], tell: Tell) -> None:
    name, way, turn = what
    place = plan.directory / f"{name}-{turn}-{list(WAYS).index(way)}"
    if dist.get_rank() == 0:
        place.mkdir()
    dist.barrier()
    peak = Peak()
    dist.barrier()
    start = time.perf_counter()
    WAYS[way](module, place, together)
    mine = peak.bytes()
    dist.barrier()
    seconds = time.perf_counter() - start
    peaks = [torch.zeros(1, dtype=torch.int64) for _ in range(plan.ranks)]
    dist.all_gather(peaks, torch.tensor([mine]))
    if dist.get_rank() == 0:
        written = sum(file.stat().st_size for file in place.rglob("*") if file.is_file())
        row = {"state": name, "way": way, "turn": turn, "seconds": seconds, "bytes": written}
        tell({**row, "peak_rank0": mine, "peak_others": max([int(p) for p in peaks[1:]], default=-1)})
        shutil.rmtree(place)


def _left_for_reading(plan: Plan, module: torch.nn.Module, together: Together) -> None:
    """A checkpoint that the parent verifies at its leisure."""
    place = plan.directory / "kept"
    if dist.get_rank() == 0:
        place.mkdir()
    dist.barrier()
    ours(SHARDED)(module, place, together)
