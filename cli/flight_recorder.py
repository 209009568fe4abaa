"""A directory of torch's flight recorder dumps. Pickle is read by an unpickler that makes nothing but plain values."""

import io
import pickle
import re
from pathlib import Path
from typing import Any, Final

import msgspec

from rankpulse.cli import show
from rankpulse.cli.failing import Failed
from rankpulse.core.flight_recorder import snapshot_of
from rankpulse.core.snapshot import RANKS_MAX, Snapshot

DUMP_MAX_BYTES: Final = 64 * 1024 * 1024
_RANK: Final = re.compile(r"(\d+)(?:\.(?:json|pickle|pkl|bin|dump))?$")


class _Plain(pickle.Unpickler):
    """Numbers, texts, lists and dicts need no class; whoever asks for one wants to run code."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")


def read(directory: str) -> Snapshot:
    """All dumps below a directory, by the rank that each file name ends in. Raises Failed."""
    try:
        files = sorted(path for path in Path(directory).iterdir() if path.is_file())
    except OSError as error:
        raise Failed(f"cannot read {show.plain(directory)}: {error.strerror}") from None
    found = {int(match.group(1)): path for path in files if (match := _RANK.search(path.name))}
    dumps = {rank: _load(path) for rank, path in found.items() if rank < RANKS_MAX}
    if not dumps:
        raise Failed(f"no dump in {show.plain(directory)}: their names end in the rank, as in nccl_trace_rank_3")
    return snapshot_of(dumps)


def _load(path: Path) -> object:
    """What is in a dump, or in words why it cannot be read."""
    try:
        if path.stat().st_size > DUMP_MAX_BYTES:
            return f"more than {DUMP_MAX_BYTES} bytes"
        data = path.read_bytes()
        return msgspec.json.decode(data) if data[:1] in (b"{", b"[") else _Plain(io.BytesIO(data)).load()
    except Exception as error:  # an unpickler raises whatever the bytes make it raise
        return f"{type(error).__name__}: {error}"
