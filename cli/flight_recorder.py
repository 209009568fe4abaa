"""A directory of torch's flight recorder dumps. Pickle is read by an unpickler that makes nothing but plain values."""

import io
import pickle
import re
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from rankpulse.cli import show
from rankpulse.cli.failing import Failed
from rankpulse.core.flight_recorder import NothingRead, snapshot_of
from rankpulse.core.snapshot import RANKS_MAX, Snapshot

DUMP_MAX_BYTES: Final = 64 * 1024 * 1024
MEMORY_MAX_BYTES: Final = 1024 * 1024 * 1024  # that reading one dump may take
_RANK: Final = re.compile(r"(\d+)(?:\.(?:json|pickle|pkl|bin|dump))?$")


class _Plain(pickle.Unpickler):
    """Numbers, texts, lists and dicts need no class; whoever asks for one wants to run code."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")


def read(directory: str) -> Snapshot:
    """All dumps in a directory and in those right below it, by the rank that each file name ends in. Raises Failed."""
    found = _files(directory)
    if not found:
        raise Failed(f"no dump in {show.plain(directory)}: their names end in the rank, as in nccl_trace_rank_3")
    try:
        return snapshot_of((rank, _load(path)) for rank, path in sorted(found.items()))
    except NothingRead as error:
        raise Failed(f"no dump in {show.plain(directory)} can be read: {show.plain(str(error))}") from None


def _files(directory: str) -> dict[int, Path]:
    """The newest file of each rank: what an earlier failure left may lie beside it."""
    root, found = Path(directory), dict[int, Path]()
    try:
        files = sorted(path for path in (*root.iterdir(), *root.glob("*/*")) if path.is_file())
        files.sort(key=lambda path: path.stat().st_mtime_ns)
    except OSError as error:
        raise Failed(f"cannot read {show.plain(directory)}: {error.strerror}") from None
    for path in files:
        match = _RANK.search(path.name)
        if match and int(match.group(1)) < RANKS_MAX:
            found[int(match.group(1))] = path
    return found


def _load(path: Path) -> object:
    """What is in a dump, or in words why it cannot be read."""
    try:
        if path.stat().st_size > DUMP_MAX_BYTES:
            return f"more than {DUMP_MAX_BYTES} bytes"
        data = path.read_bytes()
        with _little_memory():
            told = msgspec.json.decode(data) if data[:1] in (b"{", b"[") else _Plain(io.BytesIO(data)).load()
            return unwrapped(told)
    except Exception as error:  # an unpickler raises whatever the bytes make it raise
        return f"{type(error).__name__}: {error}"


def unwrapped(told: object) -> object:
    """The flight recorder in a full dump of an agent, which holds more than that; anything else as it is."""
    wrapped = isinstance(told, dict) and "entries" not in told and "flight_recorder" in told
    return told["flight_recorder"] if isinstance(told, dict) and wrapped else told


@contextmanager
def _little_memory() -> Iterator[None]:
    """A few bytes of pickle can ask for all memory there is (a place far out in its memo): it is refused instead."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = _in_use() + MEMORY_MAX_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit if soft == resource.RLIM_INFINITY else min(soft, limit), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _in_use() -> int:
    """Bytes of addresses that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
