"""What the on-call page costs the monitor: `rankpulse bench page [--nodes 2048] [--ranks 8] [--json]`.

A fleet in one job, on the real engine. Told are medians and worst times, in milliseconds of one core, of what holds up
the monitor's loop while somebody looks: a page where steps went on, one where a node was cordoned, and the first one.
"""

import json as json_
import statistics
import time
from collections.abc import Callable
from typing import Any, Final

from rankpulse.bench.engine import KEYS, Lot
from rankpulse.core import records as r
from rankpulse.core.glance import glance
from rankpulse.core.node_standing import Standings
from rankpulse.monitor.page.about import About
from rankpulse.monitor.page.board import Board
from rankpulse.monitor.page.compose import Frame, document
from rankpulse.monitor.page.views import Views

TURNS: Final = 40
PER_RACK: Final = 32
ABOUT: Final = About("mon-a", "bench", leads=True)


def complain(part: str, error: Exception) -> None:
    raise error  # a page that is not whole is not measured


class Page:
    """One overview over a fleet, made again and again."""

    def __init__(self, nodes: int, ranks: int) -> None:
        self.lot = Lot(nodes, ranks)
        self.board, self.views = Board("bench"), Views(self.lot.engine, complain)
        self.standings = Standings()
        for number in range(nodes):
            name = f"n{number}"
            state = r.NodeState(
                node=name, inc=1, at=0.0, host=name, agent_version="1", interval_s=1.0,
                rack=f"r{number // PER_RACK:03}",
                capabilities={"host": "ok", "gpu": "ok", "kernel_log": "ok"},
            )  # fmt: skip
            self.lot.tell(KEYS.state(name), state)

    def look(self) -> Any:
        return glance(self.lot.engine, self.lot.now, self.lot.now, self.standings)

    def update(self) -> None:
        """All that is done for a watcher: look, draw what changed, and say it."""
        mark = self.board.mark
        self.board.update(self.views.pieces("/", self.look(), ABOUT)[0])
        self.board.news(mark, 0.0, "look")

    def whole(self) -> tuple[bytes, bytes]:
        return self.board.document(lambda board: document(Frame(ABOUT, "bench", "bench", "/", "look", 0.0), board), 0.0)


def run(nodes: int = 2048, ranks: int = 8, json: bool = False) -> int:
    """Measure and print. Returns 0."""
    report = measured(nodes, ranks)
    if json:
        print(json_.dumps(report))
        return 0
    print(f"{nodes:,} nodes, {ranks} ranks on each; milliseconds of one core")
    for name, times in report["ms"].items():
        print(f"  {name:28} typical {times['typical']:8.2f}   worst {times['worst']:8.2f}")
    raw, squeezed, rack = report["bytes"], report["gzip_bytes"], report["rack"]
    print(f"  a page: {raw:,} bytes, by gzip {squeezed:,}; a rack that changed: {rack:,}")
    return 0


def measured(nodes: int, ranks: int, turns: int = TURNS) -> dict[str, Any]:
    page = Page(nodes, ranks)
    first_s = _timed(page.update)
    whole_s = _timed(page.whole)
    raw, squeezed = page.whole()
    times: dict[str, list[float]] = {"glance": [], "update, steps went on": [], "update, a node was cordoned": []}
    rack = 0
    for turn in range(turns):
        page.lot.turn()
        times["glance"].append(_timed(page.look))
        times["update, steps went on"].append(_timed(page.update))
        mark = page.board.mark
        name = f"n{turn * 7 % nodes}"
        page.lot.tell(KEYS.cordon(name), r.Cordon(node=name, author="ann", reason="bench", at=0.0))
        times["update, a node was cordoned"].append(_timed(page.update))
        rack = max((len(html) for id_, html in page.board.since(mark).items() if id_.startswith("rack")), default=0)
    told = {"first update": [first_s], "document and gzip": [whole_s], **times}
    return {
        "nodes": nodes,
        "ranks": ranks,
        "ms": {
            name: {"typical": _ms(statistics.median(found)), "worst": _ms(max(found))} for name, found in told.items()
        },
        "bytes": len(raw),
        "gzip_bytes": len(squeezed),
        "rack": rack,
    }


def _timed(call: Callable[[], object]) -> float:
    began = time.process_time()
    call()
    return time.process_time() - began


def _ms(seconds: float) -> float:
    return round(seconds * 1e3, 2)
