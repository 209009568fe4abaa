"""Three nodes with a wire between each two of them, one of which is cut while the job trains.

A program of its own, for it may need namespaces that only a process of its own can be in: `python -m
rankpulse.drills.hangs.cut DIRECTORY SEED` prints one JSON object about what was done, and what was said about it.
"""

import asyncio
import json
import random
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

from rankpulse.drills.hangs.theatre import Theatre
from rankpulse.drills.hangs.wires import NoWires, Wires
from rankpulse.drills.stage import NO_STRIKES, NODES, Stage

KNOWN_S = 20.0  # a verdict that has not come by then does not come
STAYS_S = 2.0  # and it has to stand
EXIT_CANNOT = 77
THREE = (*NODES, "node-2")


class WiredStage(Stage):
    """Its agents are in namespaces, and speak to monitor and store over the wires for management."""

    def __init__(self, directory: Path, wires: Wires) -> None:
        token = directory / "probe.token"
        token.write_text("a secret of this drill alone\n", encoding="utf-8")
        token.chmod(0o600)
        self._probe = f'[probe]\ntoken_file = "{token}"\n'
        super().__init__(directory, nodes=wires.nodes, monitor=NO_STRIKES + self._probe)
        self._wires, self.listen = wires, wires.here

    def of_agent(self, node: str) -> str:
        return f'{self._probe}listen = "{self._wires.address(node)}:0"\n'

    def on(self, node: str, argv: list[str]) -> list[str]:
        return self._wires.on(node, argv)


async def played(directory: Path, rng: random.Random) -> dict[str, Any]:
    """What was cut, and the incidents that it led to."""
    with Wires(THREE) as wires:
        async with Theatre(WiredStage(directory, wires), workers=1, wires=wires) as theatre:
            one, other = rng.sample(THREE, 2)
            await asyncio.sleep(rng.uniform(0.0, 0.05))  # wherever in a step that falls
            since = time.time()
            wires.cut(one, other)
            await theatre.until(lambda: bool(theatre.incidents(since)), KNOWN_S, "an incident")
            await asyncio.sleep(STAYS_S)
            ranks = sorted(m.rank for m in theatre.roster().members if m.node in (one, other))
            incidents = [msgspec.to_builtins(incident) for incident in theatre.incidents(since)]
            after_s = min(incident["opened_at"] for incident in incidents) - since
            return {"cut": sorted((one, other)), "ranks": ranks, "after_s": after_s, "incidents": incidents}


def main(directory: str, seed: str) -> int:
    try:
        print(json.dumps(asyncio.run(played(Path(directory), random.Random(seed)))))  # noqa: S311
    except NoWires as error:
        print(error, file=sys.stderr)
        return EXIT_CANNOT
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
