"""The pictures of the docs, from played stories: `make pictures`. They are of the real page over the real engine."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests/page")]  # tests are no package

import looking  # noqa: E402
import msgspec  # noqa: E402
from page_bench import Site, browser  # noqa: E402
from report_world import DAY_S, DAYS, ENTRIES  # noqa: E402
from scene import Fleet, fleet, healthy, nodes_of, saves  # noqa: E402
from support import eventually_sync  # noqa: E402

from rankpulse.core import ledger_lines  # noqa: E402
from rankpulse.core import records as r  # noqa: E402

OUT = ROOT / "docs/images"
LOST = ("broken", "xid_79", "XID 79: the GPU has fallen off the bus")


def night() -> Fleet:
    """A GPU falls off the bus in one job, a node dies in another, and the rest of the fleet goes on."""
    world = fleet(8)
    saves(world, 4010)
    for rack in "abc":
        for node in nodes_of(rack):
            healthy(world, node)
    world.torchrun("d03", 1, uid="llama-1f")
    world.ask("cordon", node="d01", reason="ECC errors, ticket 4711")
    world.ask("maintenance", node="d02", reason="new firmware")
    world.run(20)
    healthy(world, "c02", (5, *LOST))
    world.run(8)
    world.die("b03")
    world.run(17)
    return world


def taken(driver: Any, name: str, width: int, height: int, scheme: str = "light") -> None:
    looking.media(driver, scheme=scheme, motion="reduce")
    looking.size(driver, width, height)
    eventually_sync(lambda: driver.find_element("id", "live").text == "live", 20, "the stream")
    driver.get_screenshot_as_file(str(OUT / name))


def report() -> Path:
    """The weekly report of an example ledger: eight days of eight nodes, one of which fails again and again."""
    lines, out = (Path(tempfile.mkdtemp()) / name for name in ("ledger.jsonl", "week.html"))
    runs = {"u1": r.RunShare("llama-70b", DAY_S, 64 * DAY_S, 600.0, 0.0)}
    days = [msgspec.structs.replace(day, runs=runs) for day in DAYS]
    entries = [
        msgspec.structs.replace(one, run_id="llama-70b", node="n3" if one.klass == "gpu_fault" else "n6")
        for one in ENTRIES
    ]
    lines.write_bytes(b"".join(ledger_lines.written(one) for one in (*days, *entries)))
    argv = [sys.executable, "-m", "rankpulse.cli.main", "report", "--from", str(lines), "--out", str(out)]
    subprocess.run(argv, check=True, env={**os.environ, "RANKPULSE_CLUSTER": "prod"})
    return out


def main() -> None:
    OUT.mkdir(exist_ok=True)
    world = night()
    site = Site(world.engine, lambda: world.now, monitor="mon-a", version="0.1.0", store_version="3.5.21").start()
    with browser() as driver:
        driver.get(site.url)
        taken(driver, "page-light.png", 1280, 800)
        taken(driver, "page-dark.png", 1280, 800, "dark")
        taken(driver, "page-narrow.png", 390, 844)
        incident = next(i.id for i in site.engine.book if i.klass == "node_dead")
        driver.get(f"{site.url}/incidents/{incident}")
        taken(driver, "page-incident.png", 1280, 640)
        site.close()
        driver.get(report().as_uri())
        looking.media(driver)
        looking.size(driver, 1280, 900)
        driver.get_screenshot_as_file(str(OUT / "report.png"))


if __name__ == "__main__":
    main()
