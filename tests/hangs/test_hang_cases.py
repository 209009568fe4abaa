"""Who froze the job: a rank drawn by lot fails in each of many ways, on CPU and gloo, and the incident must say who.

Once in `make test`, five times in `make drills`. A failure prints its seed: HANG_SEED=... plays it again.
"""

import json
import os
import random
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from rankpulse.drills.hangs.cases import CASES, Case, play
from rankpulse.drills.hangs.cut import EXIT_CANNOT
from rankpulse.drills.hangs.run import judged
from rankpulse.drills.hangs.theatre import MONITOR, Theatre
from rankpulse.drills.stage import Stage

pytestmark = [pytest.mark.live, pytest.mark.timeout(240)]
SPOILT_MAX = 4
REPEATS = [0, *(pytest.param(number, marks=pytest.mark.drill) for number in range(1, 6))]
SCENES = [pytest.param(case, id=name, marks=[pytest.mark.drill] if case.slow else []) for name, case in CASES.items()]


def drawn() -> str:
    return os.environ.get("HANG_SEED") or str(random.SystemRandom().randrange(1 << 30))


@pytest_asyncio.fixture(loop_scope="module", scope="module", params=REPEATS)
async def theatre(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Theatre]:
    """One job for all cases: a round of it for each."""
    async with Theatre(Stage(tmp_path_factory.mktemp("hangs"), monitor=MONITOR)) as theatre:
        yield theatre


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("case", SCENES)
async def test_the_rank_drawn_by_lot_is_named(theatre: Theatre, case: Case) -> None:
    played = await play(theatre, case, drawn())
    for _ in range(SPOILT_MAX):
        played = await play(theatre, case, drawn()) if played.spoilt else played
    print(played.line())
    assert not played.wrong, f"seed {played.seed}: {played.line()}\n{played.wrong}\n{theatre.told()}"


@pytest.mark.parametrize("repeat", REPEATS)
def test_a_wire_that_is_cut_names_its_two_ends(tmp_path: Path, repeat: int) -> None:
    """Three nodes, one rank on each: one of the three has nothing to do with it."""
    seed = drawn()
    done = cut(tmp_path, seed)
    if done.returncode == EXIT_CANNOT and "CI" not in os.environ:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, f"seed {seed}: {done.stderr[-4000:]}"
    outcome = judged(json.loads(done.stdout))
    assert outcome.right, f"seed {seed}: {outcome.line}\n{done.stdout}"


def cut(directory: Path, seed: str) -> subprocess.CompletedProcess[str]:
    """The scene in a process of its own, with namespaces of a user's own where there is no other right to them."""
    argv = [sys.executable, "-m", "rankpulse.drills.hangs.cut", str(directory), seed]
    alone = ["unshare", "-Urn"] if os.geteuid() else []
    try:
        return subprocess.run([*alone, *argv], capture_output=True, text=True, timeout=200, check=False)
    except FileNotFoundError as error:
        return subprocess.CompletedProcess(argv, EXIT_CANNOT, "", f"{error.filename} is not here")
