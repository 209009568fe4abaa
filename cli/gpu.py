"""`rankpulse gpu`: the GPUs of this node and their health, as its agent knows them, or by one look of its own."""

import asyncio
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from rankpulse.agent import gpu_devices, gpu_look, host
from rankpulse.cli import show
from rankpulse.core import gpu_told
from rankpulse.core.records import NodeHealth
from rankpulse.core.settings import Settings, run_dir

_AGENT_S: Final = 5.0
_ANSWER_MAX: Final = 4 << 20
_BAD: Final = ("unknown", "sick", "broken")
_FIGURES: Final = {  # of a GPU, in this order
    "temperature_c": "{:.0f} C", "power_mw": "{:.0f} mW", "sm_clock_mhz": "{:.0f} MHz", "busy_percent": "{:.0f} % busy",
    "ecc_corrected_volatile": "{:.0f} corrected", "ecc_uncorrected_volatile": "{:.0f} uncorrected",
}  # fmt: skip


async def looked(settings: Settings, *, ask_agent: bool, processes: bool) -> dict[str, Any]:
    """What is known, and by whom: `source` is agent or look."""
    if ask_agent and not processes:
        said = await _agents_word(os.path.join(run_dir(settings.agent, os.environ), "agent.sock"))
        if said is not None and said.get("gpus"):
            return {**said, "source": "agent"}
    if not (gpu_devices.there() or settings.preflight.gpus):
        return {"source": "look", "gpus": [], "findings": [], "driver": "", "values": {}, "lacks": {}}
    seen = await gpu_look.look(settings, processes=processes)
    books = seen.books
    rows = tuple(gpu_told.row(gpu) for _, gpu in sorted(books.gpus.items()))
    node = settings.agent.node or host.read().name
    record = NodeHealth(
        node=node, inc=0, at=books.clock.utc(), driver=books.driver, gpus=rows, findings=gpu_told.findings(books.book)
    )
    values = {gpu.bus: gpu.values for gpu in books.gpus.values()}
    links = {gpu.bus: gpu.links for gpu in books.gpus.values()}
    known: dict[str, Any] = msgspec.to_builtins(record)
    lacks = {source: why for source, why in seen.lacks.items() if why}
    return {**known, "source": "look", "values": values, "links": links, "lacks": lacks, "processes": seen.processes}


async def _agents_word(path: str) -> dict[str, Any] | None:
    """None: no agent answers here."""
    try:
        async with asyncio.timeout(_AGENT_S):
            reader, writer = await asyncio.open_unix_connection(path, limit=_ANSWER_MAX)
            writer.write(b'{"op":"hardware"}\n')
            said = json.loads(await reader.readline())
            writer.close()
    except (OSError, TimeoutError, ValueError):
        return None
    return said if isinstance(said, dict) and "error" not in said else None


def bad(known: Mapping[str, Any]) -> bool:
    """Whether anything is sick, broken, or does not answer."""
    levels = [row["level"] for row in known["gpus"]]
    levels += [finding["level"] for finding in known["findings"] if finding["cleared_at"] is None]
    return any(level in _BAD for level in levels)


def lines(known: Mapping[str, Any]) -> Iterator[str]:
    """For people."""
    lacks = known.get("lacks") or {}
    if not known["gpus"]:
        yield next(iter(lacks.values()), "no NVIDIA GPU on this machine")
    for row in known["gpus"]:
        yield _gpu(row, known["values"].get(row["bus"], {}))
        yield from (_finding(finding) for finding in row["findings"] if finding["cleared_at"] is None)
        for pid, used in (known.get("processes") or {}).get(row["bus"], ()):
            yield f"         pid {pid} holds {used / (1 << 30):.1f} GiB"
    for finding in known["findings"]:
        if finding["cleared_at"] is None:
            yield "the node"
            yield _finding(finding)
    if known["gpus"]:
        by = "its agent" if known["source"] == "agent" else "a look now"
        yield f"driver {known['driver'] or 'unknown'}, by {by}"


def _gpu(row: Mapping[str, Any], values: Mapping[str, float]) -> str:
    figures = ", ".join(form.format(values[name]) for name, form in _FIGURES.items() if name in values)
    index = row["index"] if row["index"] >= 0 else "?"
    return show.plain(f"{row['level']:7}  GPU {index} ({row['bus']}) {row['name']}: {figures or 'no figures'}")


def _finding(finding: Mapping[str, Any]) -> str:
    times = f", {finding['count']} times" if finding["count"] > 1 else ""
    return show.plain(f"         -> {finding['what']}: {finding['text']}{times} [{finding['action']}]")
