"""Checkpoint storms: many nodes bring their parts to one target of limited bandwidth, all at once or a few at a time.

`rankpulse bench durable [--nodes N] [--megabytes M] [--bandwidth MB_S] [--json]`. The lanes are those of
`CheckpointManager(durable=...)`, one per node, in threads of this process; the target is a directory behind a link that
shares its bandwidth evenly among all who use it. Meanwhile somebody else reads from the same target, one MiB after
another, as a data loader does. All settings bring the same bytes, so all take the same time in sum; what differs is how
soon the parts of nodes are safe, and how long the reader waits.
"""

import json as json_
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

MIB: Final = 2**20
PIECE: Final = 256 << 10  # bytes between two looks at how many share the link
READ: Final = MIB


class Link:
    """`bytes_s`, shared evenly."""

    def __init__(self, bytes_s: float) -> None:
        self._bytes_s, self._users, self._lock = bytes_s, 0, threading.Lock()

    @contextmanager
    def use(self) -> Iterator[None]:
        with self._lock:
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1

    def carry(self, nbytes: int) -> None:
        """Takes as long as so many bytes take, among those who use it now."""
        for at in range(0, nbytes, PIECE):
            time.sleep(min(PIECE, nbytes - at) * max(1, self._users) / self._bytes_s)


def run(nodes: int = 16, megabytes: int = 64, bandwidth: int = 64, json: bool = False) -> int:
    """Measure and print. Returns 0, 2 when it was asked wrongly."""
    for name, value, most in (
        ("--nodes", nodes, 256),
        ("--megabytes", megabytes, 4096),
        ("--bandwidth", bandwidth, 10**5),
    ):
        if not 1 <= value <= most:
            print(f"{name} must be between 1 and {most}, not {value}", file=sys.stderr)
            return 2
    settings = sorted({1, 2, 4, nodes} & set(range(1, nodes + 1)))
    rows = [measured(nodes, megabytes, bandwidth, writers) for writers in settings]
    report = {"nodes": nodes, "megabytes": megabytes, "bandwidth_mib_s": bandwidth, "rows": rows}
    if json:
        print(json_.dumps(report))
    else:
        _show(report)
    return 0


def measured(nodes: int, megabytes: int, bandwidth: int, writers: int) -> dict[str, Any]:
    """`writers`; `all_s` until the copy is complete; `part_s` until a node's part is there, the mean; `read_s` of one
    MiB that somebody else reads meanwhile, the median, and `read_most_s`; `at_once`: most nodes that were seen writing.
    """
    from rankpulse.trainer.checkpoint.durable import Bringing, Lane

    link = Link(bandwidth * MIB)
    with tempfile.TemporaryDirectory(prefix="rankpulse-bench-") as place:
        path = _checkpoint(Path(place) / "near", nodes, megabytes)
        target = _limited(str(Path(place) / "far"), link)
        how = [Bringing(node, range(nodes), writers, 1, _say, poll_s=0.02) for node in range(nodes)]
        lanes = [Lane(target, one) for one in how]
        began = time.monotonic()
        for lane in lanes:
            lane.offer(path)
        reads = []
        while not target.done.is_set():
            start = time.monotonic()
            with link.use():
                link.carry(READ)
            reads.append(time.monotonic() - start)
        all_s = time.monotonic() - began
        for lane in lanes:
            lane.wait(60.0)
    parts = [at - began for at in target.arrivals]
    return {
        "writers": writers, "all_s": all_s, "part_s": statistics.mean(parts), "read_s": statistics.median(reads),
        "read_most_s": max(reads), "at_once": target.most,
    }  # fmt: skip


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def _checkpoint(directory: Path, nodes: int, megabytes: int) -> str:
    """Of as many ranks as nodes."""
    from rankpulse.trainer.checkpoint import division, writer
    from rankpulse.trainer.checkpoint.files import Files
    from rankpulse.trainer.checkpoint.manifest import SHARDED, ShardManifest

    files, save_id = Files(), os.urandom(4).hex()
    cut = division.replicated([division.Item("w", "U8", (megabytes * MIB,), None)], nodes)
    attempt = writer.begin(files, str(directory), 1, save_id)
    shards = []
    for rank, ranges in enumerate(cut.ranges):
        ((start, numel),) = ranges
        key = division.key_of(division.Piece("w", start, numel), cut.tensors[0])
        entry = writer.Entry(key, "U8", (numel,), partial(_zeros, numel))
        shards.append(
            writer.write_shard(
                files, attempt, rank=rank, world_size=nodes, step=1, save_id=save_id, entries=[entry], ranges=ranges
            )
        )
    writer.commit(files, attempt, ShardManifest(SHARDED, 1, nodes, save_id, time.time(), cut.tensors, tuple(shards)))
    return attempt


def _zeros(count: int) -> list[memoryview]:
    return [memoryview(bytes(count))]


def _limited(url: str, link: Link) -> Any:
    """A target behind the link. It notes when parts have arrived, and how many were on their way at once."""
    from rankpulse.trainer.checkpoint.target import Target

    class Limited(Target):
        def __init__(self) -> None:
            super().__init__(url)
            self.arrivals: list[float] = []
            self.done = threading.Event()
            self.most = self._now = 0
            self._lock = threading.Lock()

        def put(self, name: str, local: str, may_go_on: Any = lambda: True) -> None:
            with self._lock:
                self._now += 1
                self.most = max(self.most, self._now)
            try:
                with link.use():
                    link.carry(os.path.getsize(local))
            finally:
                with self._lock:
                    self._now -= 1
            super().put(name, local, may_go_on)
            if local.endswith(".safetensors"):
                with self._lock:
                    self.arrivals.append(time.monotonic())

        def commit(self, name: str, files: Any) -> None:
            super().commit(name, files)
            self.done.set()

    return Limited()


def _show(report: dict[str, Any]) -> None:
    from rich.table import Table

    from rankpulse.cli import show

    title = f"{report['nodes']} nodes bring {report['megabytes']} MiB to a target of {report['bandwidth_mib_s']} MiB/s"
    table = Table(title=title, title_justify="left")
    for column in (
        "writers",
        "copy complete",
        "a node's part, mean",
        "1 MiB read meanwhile",
        "at most",
        "seen at once",
    ):
        table.add_column(column, justify="right")
    for row in report["rows"]:
        table.add_row(
            str(row["writers"]), f"{row['all_s']:.2f} s", f"{row['part_s']:.2f} s", f"{row['read_s']:.3f} s",
            f"{row['read_most_s']:.3f} s", str(row["at_once"]),
        )  # fmt: skip
    show.console().print(table)
