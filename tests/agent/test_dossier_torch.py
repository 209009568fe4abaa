"""What is collected of a real trainer, held against what it was told to do."""

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import eventually
from torch_bench import Trainer, trainer, watched

from rankpulse.agent.dossier import Dossiers
from rankpulse.agent.dumps import Dumps
from rankpulse.agent.evidence import Evidence
from rankpulse.agent.folder import private
from rankpulse.agent.gathering import Gathering
from rankpulse.agent.gpus import Gpus
from rankpulse.agent.py_spy import PySpy
from rankpulse.core.dossier import Part
from rankpulse.core.look_evidence import Collect
from rankpulse.core.snapshot import Rank

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def place() -> Iterator[str]:
    path = tempfile.mkdtemp(prefix="rp-")
    Path(path).chmod(0o1777)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="module")
def one(place: str) -> Iterator[Trainer]:
    with trainer(place) as started:
        yield started


async def collected(run_dir: str, evidence: Evidence | None = None) -> Part:
    """Within its time, whatever they do."""
    with watched(run_dir) as workers:
        gathering = Gathering(evidence or Evidence(run_dir), Gpus("n1"), time.monotonic, py_spy=PySpy(lambda: None))
        folder = private(f"{run_dir}/dumps")
        dossiers = Dossiers("n1", workers, gathering, Dumps(folder, 10, 1 << 20), time.time, time.monotonic)
        began = time.monotonic()
        found = await dossiers.of(Collect(order_id="c1", run_uid="r1", round=2))
        took = time.monotonic() - began
        if evidence is None:
            await dossiers.close()
    assert took < 2.0
    return found.part


async def rank(run_dir: str, evidence: Evidence | None = None) -> Rank:
    (found,) = (await collected(run_dir, evidence)).ranks
    return found


async def test_positions_and_what_ended_last(place: str, one: Trainer) -> None:
    one.tell("reduce", 9)
    one.done()
    found = await rank(place)
    (position,) = found.positions
    assert (position.enqueued, position.started, position.completed) == (9, None, 9)
    assert [op.seq for op in position.open] == [4, 5, 6, 7, 8, 9]
    assert (position.open[-1].op, position.open[-1].sizes, position.open[-1].dtype) == ("all_reduce", (4, 5), "Float")
    assert (found.state, found.alive, found.dump, found.gil_held) == ("S", True, "", False)


async def test_the_stack_of_the_main_thread(place: str, one: Trainer) -> None:
    one.tell("wait_for_a_lock", 3)
    found = await rank(place)
    one.done()
    assert [frame.split()[-1] for frame in found.stack] == ["<module>", "wait_for_a_lock"]
    assert (found.gil_held, found.cpu_moving) == (False, False)


async def test_a_deep_stack_keeps_both_ends(place: str, one: Trainer) -> None:
    one.tell("go_deep", 3)
    found = await rank(place)
    one.done()
    assert found.stack[0].endswith("<module>")
    assert found.stack[-1].endswith("go_deep")


async def test_python_held_is_told_and_asked_once(place: str, one: Trainer) -> None:
    """Each question that is not answered holds a thread of the trainer's server until it is."""
    evidence = Evidence(place)
    one.tell("hold_the_lock_of_python", 5)
    for _ in range(3):
        found = await rank(place, evidence)
        assert (found.gil_held, found.stack, found.state) == (True, (), "S")
        assert found.positions[0].enqueued == 9
        assert server_connections(one.process.pid) == 1
    one.done()
    assert (await rank(place, evidence)).gil_held is False
    evidence.close()


def server_connections(pid: int) -> int:
    """Accepted ones of its worker server."""
    inodes = {os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")}
    rows = [line.split() for line in Path(f"/proc/{pid}/net/unix").read_text().splitlines()[1:]]
    mine = [row for row in rows if f"socket:[{row[6]}]" in inodes and row[-1].endswith(".sock")]
    return len([row for row in mine if row[5] == "03"])


async def test_a_stopped_one_is_not_asked(place: str, one: Trainer) -> None:
    os.kill(one.process.pid, signal.SIGSTOP)
    try:
        await eventually(lambda: " T " in Path(f"/proc/{one.process.pid}/stat").read_text(), 5, "it stopped")
        found = await rank(place)
        assert server_connections(one.process.pid) == 0
    finally:
        os.kill(one.process.pid, signal.SIGCONT)
    assert (found.state, found.gil_held, found.stack) == ("T", None, ())
    assert found.dump == "not asked: the process is stopped"


async def test_at_work(place: str, one: Trainer) -> None:
    one.tell("compute", 3)
    found = await rank(place)
    one.done()
    assert found.cpu_moving is True
    assert found.stack[-1].endswith("compute")
