"""Dumps of agents as pickles that torch's own analyser reads: `torchfrtrace DIR --prefix rank_`.

It wants pickles named by rank, and looks every group up in `pg_config`. Of gloo that says nothing of use, so groups
that are missing there are made of the ranks that have called something in them.
"""

import pickle
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from rankpulse.cli.flight_recorder import unwrapped

PREFIX: Final = "rank_"
FOLDER: Final = "torchfrtrace"


def write(out: Path, dumps: Mapping[int, str]) -> int:
    """Those of the dumps (a path by rank) that hold a flight recorder, below `out`; how many. Raises OSError."""
    traces = {rank: trace for rank, path in sorted(dumps.items()) if (trace := _trace(Path(path))) is not None}
    groups = _groups(traces)
    for rank, trace in traces.items():
        (out / FOLDER).mkdir(mode=0o700, exist_ok=True)
        known = trace.get("pg_config")
        config = {**groups, **(known if isinstance(known, dict) else {})}
        (out / FOLDER / f"{PREFIX}{rank}").write_bytes(pickle.dumps({**trace, "pg_config": config}))
    return len(traces)


def _trace(path: Path) -> dict[str, Any] | None:
    try:
        told = unwrapped(msgspec.json.decode(path.read_bytes()))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return told if isinstance(told, dict) and isinstance(told.get("entries"), list) else None


def _groups(traces: Mapping[int, Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    """Each group as torch would tell it, from who has called something in it."""
    members: dict[str, set[int]] = {}
    words: dict[str, str] = {}
    for rank, trace in traces.items():
        for name, description in _called(trace["entries"]):
            members.setdefault(name, set()).add(rank)
            words.setdefault(name, description)
    return {name: {"name": name, "desc": words[name], "ranks": str(sorted(ranks))} for name, ranks in members.items()}


def _called(entries: Iterable[Any]) -> Iterable[tuple[str, str]]:
    for entry in entries:
        group = entry.get("process_group") if isinstance(entry, dict) else None
        if isinstance(group, list) and len(group) == 2:
            yield str(group[0]), str(group[1])
