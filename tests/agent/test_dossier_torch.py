"""What is collected of a real trainer, held against what it was told to do."""

import gzip
import os
import shutil
import signal
import sys
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
from rankpulse.core.snapshot import Loaders, Rank

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


async def collected(run_dir: str, evidence: Evidence | None = None, py_spy: str | None = None) -> Part:
    """Within its time, whatever they do."""
    with watched(run_dir) as workers:
        gathering = Gathering(evidence or Evidence(run_dir), Gpus("n1"), time.monotonic, py_spy=PySpy(lambda: py_spy))
        folder = private(f"{run_dir}/dumps")
        dossiers = Dossiers("n1", workers, gathering, Dumps(folder, 10, 1 << 20), time.time, time.monotonic)
        began = time.monotonic()
        found = await dossiers.of(Collect(order_id="c1", run_uid="r1", round=2))
        took = time.monotonic() - began
        if evidence is None:
            await dossiers.close()
    assert took < 2.0
    return found.part


async def rank(run_dir: str, evidence: Evidence | None = None, py_spy: str | None = None) -> Rank:
    (found,) = (await collected(run_dir, evidence, py_spy)).ranks
    return found


async def test_positions_and_what_ended_last(place: str, one: Trainer) -> None:
    one.tell("reduce", 9)
    one.done()
    found = await rank(place)
    (position,) = found.positions
    last = position.enqueued
    assert last is not None
    assert last >= 9
    assert (position.started, position.completed) == (None, last)
    assert [op.seq for op in position.open] == list(range(last - 5, last + 1))
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
    one.tell("reduce", 1)
    one.done()
    one.tell("hold_the_lock_of_python", 8)
    for _ in range(3):
        found = await rank(place, evidence)
        assert (found.gil_held, found.stack, found.state) == (True, (), "S")
        assert found.positions[0].enqueued
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


SPY = """#!{python}
import sys
assert sys.argv[1:3] == ["dump", "--nonblocking"], "it must not be paused"
print("Process 1: train --token secret")
print("Python v3.11.7 (/usr/bin/python3.11)")
print()
print('Thread 1 (idle): "MainThread"')
print("    hold (mod/ext.py:3)")
print("    <module> (train.py:9)")
print('Thread 2 (active): "other"')
print("    run (threading.py:1)")
"""


async def test_where_python_does_not_answer_it_is_looked_at_from_outside(
    place: str, one: Trainer, tmp_path: Path
) -> None:
    spy = tmp_path / "py-spy"
    spy.write_text(SPY.format(python=sys.executable))
    spy.chmod(0o755)
    evidence = Evidence(place)
    one.tell("hold_the_lock_of_python", 3)
    found = await rank(place, evidence, str(spy))
    one.done()
    evidence.close()
    assert (found.gil_held, found.stack) == (True, ("train.py:9 <module>", "mod/ext.py:3 hold"))
    (dump,) = [path for path in Path(place, "dumps").iterdir() if "rank0" in path.name and b"MainThread" in read(path)]
    assert b"secret" not in read(dump)


def read(path: Path) -> bytes:
    return gzip.decompress(path.read_bytes())


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
    """On a machine that is full, perhaps only at another look."""
    one.tell("compute", 9)
    found = [await rank(place) for _ in range(3)]
    one.done()
    assert any(one.cpu_moving for one in found)
    assert {one.io_moving for one in found} == {False}
    assert all(one.stack[-1].endswith("compute") for one in found)


async def test_bytes_that_move(place: str, one: Trainer) -> None:
    one.tell("write_files", 3)
    found = await rank(place)
    one.done()
    assert found.io_moving is True
    assert found.stack[-1].endswith("write_files")


async def test_a_pipe_that_nobody_reads(place: str, one: Trainer) -> None:
    one.tell("fill_a_pipe", 3)
    found = await rank(place)
    one.done()
    assert (found.io_moving, found.cpu_moving, found.gil_held) == (False, False, False)
    assert found.stack[-1].endswith("fill_a_pipe")
    if found.wchan:  # some kernels do not tell
        assert "pipe" in found.wchan


async def test_the_workers_of_a_data_loader(place: str, one: Trainer) -> None:
    """They are in `sleep`: idle; one of them dies, and nobody has noticed yet; one is stopped."""
    one.tell("load")
    pids = [int(pid) for pid in " ".join(one.done()).split()]
    assert len(pids) == 2
    assert (await rank(place)).loaders == Loaders(2, 0, False, "S")
    os.kill(pids[1], signal.SIGSTOP)
    assert (await rank(place)).loaders == Loaders(2, 0, False, "T")
    one.tell("hold_the_lock_of_python", 3)
    os.kill(pids[0], signal.SIGKILL)
    await eventually(lambda: state(pids[0]) == "Z", 5, "its end")
    found = (await rank(place)).loaders
    assert found is not None
    assert (found.alive, found.dead) == (1, 1)
    os.kill(pids[1], signal.SIGKILL)


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
