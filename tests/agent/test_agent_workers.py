"""The whole agent over a store in memory, with real processes: what happens to workers is told, and told right."""

import os
import shutil
import signal
import time
from pathlib import Path

import pytest
from agent_bench import Crew, Desk, dead_pid, identity, put_slot, slot_bytes
from support import eventually

from rankpulse.agent.facts import Fact
from rankpulse.agent.host import Host
from rankpulse.agent.launchers import Launchers
from rankpulse.agent.proc import Exit
from rankpulse.agent.slots import Adopted, Scanner
from rankpulse.agent.watch import Workers
from rankpulse.core import records
from rankpulse.store.memory import MemoryStore

pytestmark = pytest.mark.live
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: acts as several users")


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(time.monotonic)


async def one(desk: Desk, kind: str) -> records.Observation:
    """The first observation of that kind."""
    found = await eventually(lambda: desk.observations(kind), 10, f"an observation {kind}")
    return found[0]


async def test_a_worker_appears_in_the_beat_with_its_step(run_dir: str, crew: Crew, store: MemoryStore) -> None:
    job = crew.job(rank=1, world=4)
    job.tell("step 41")
    async with Desk(run_dir, store).at_work() as desk:
        joined = await one(desk, records.WORKER_JOINED)
        await eventually(desk.ranks, 10, "ranks in the beat")
        beat = await desk.beat()
    assert beat
    (row,) = beat.ranks
    assert (row.rank, row.local_rank, row.pid, row.step) == (1, 1, job.pid, 41)
    run = beat.runs[row.run]
    assert (run.run_id, run.world_size, run.elastic) == ("train", 4, True)
    assert (joined.pid, joined.start, joined.run) == (row.pid, row.start, run)
    assert joined.detail["source"] == "torchelastic"


@pytest.mark.parametrize("launcher", [False, True], ids=["zombie", "collected"])
@pytest.mark.parametrize(
    ("word", "code", "number", "closed", "error"),
    [
        ("exit 0", 0, None, True, ""),
        ("exit 7", 7, None, True, ""),
        ("raise too bad", 1, None, False, "ValueError"),
        ("kill", None, 9, False, ""),
    ],
)
async def test_how_a_worker_ended(
    run_dir: str, crew: Crew, store: MemoryStore, launcher: bool, word: str, code: int | None, number: int | None,
    closed: bool, error: str,
) -> None:  # fmt: skip
    job = crew.job(launcher=launcher)
    async with Desk(run_dir, store).at_work() as desk:
        await eventually(desk.ranks, 10, "ranks in the beat")
        job.tell("step 3")
        if word == "kill":
            job.kill()
        else:
            job.tell(word)
        gone = await one(desk, records.WORKER_EXITED)
        await eventually(lambda: not list(Path(run_dir).glob("u*/*.slot")), 5, "the slot removed")
    assert (gone.detail["code"], gone.detail["signal"]) == (code, number)
    assert (gone.detail["closed"], gone.detail["error"]) == (closed, error)
    assert gone.detail["step"] == 3
    assert gone.pid == job.pid


async def test_a_launcher_that_ends_is_told_with_its_code(run_dir: str, crew: Crew, store: MemoryStore) -> None:
    job = crew.job(launcher=True)
    async with Desk(run_dir, store).at_work() as desk:
        await eventually(desk.ranks, 10, "ranks in the beat")
        beat = await desk.beat()
        job.tell("exit 5")
        gone = await one(desk, records.LAUNCHER_EXITED)
    assert beat
    assert (gone.detail["code"], gone.detail["signal"]) == (1, None)
    assert gone.run
    assert gone.run.launcher == beat.runs[0].launcher == f"{gone.pid}.{gone.start}"
    assert gone.pid == job.process.pid


async def test_a_stopped_worker_is_told_and_so_is_its_going_on(run_dir: str, crew: Crew, store: MemoryStore) -> None:
    job = crew.job()
    async with Desk(run_dir, store).at_work() as desk:
        await eventually(desk.ranks, 10, "ranks in the beat")
        job.kill(signal.SIGSTOP)
        stopped = await one(desk, records.WORKER_STATE)
        job.kill(signal.SIGCONT)
        await eventually(lambda: _count(desk, records.WORKER_STATE, 2), 10, "the second state")
        _, again = await desk.observations(records.WORKER_STATE)
    assert stopped.detail == {"state": "T"}
    assert again.detail["state"] in "RSD"


async def test_the_holders_word_stands_in_for_the_kernels(run_dir: str, crew: Crew) -> None:
    """Older kernels do not say how a process ended that its holder has collected already."""
    facts: list[Fact] = []
    job = crew.job()
    workers = Workers("n1", run_dir, facts.append, lambda: None, Launchers(facts.append))
    (found,) = await eventually(Scanner(run_dir, sees_all=True).scan, 10, "the slot")
    assert isinstance(found, Adopted)
    workers.adopt(found)
    (worker,) = workers.table.values()
    workers.holds = lambda child: (worker.pid, worker.start) if child == (worker.pid, worker.start) else None
    workers.word = lambda child: Exit(code=3)
    workers._tell_exit(worker, Exit())
    assert job.alive
    workers.close()
    assert (facts[-1].kind, facts[-1].detail["code"], facts[-1].detail["held"]) == (records.WORKER_EXITED, 3, True)


async def _count(desk: Desk, kind: str, count: int) -> bool:
    return len(await desk.observations(kind)) >= count


async def test_the_next_agent_tells_who_died_in_between(run_dir: str, crew: Crew, store: MemoryStore) -> None:
    job, stays = crew.job(rank=0), crew.job(rank=1)
    async with Desk(run_dir, store).at_work() as desk:
        await eventually(lambda: _two(desk), 10, "two ranks in the beat")
        member = await desk.member(0)
        await desk.die()
    job.kill()
    job.reap()
    async with Desk(run_dir, store).at_work() as desk:
        gone = await one(desk, records.WORKER_EXITED)
        await eventually(lambda: _is_incarnation(desk, 2), 10, "incarnation 2")
        assert await eventually(desk.ranks, 10, "ranks") == [1]
        joined = await desk.observations(records.WORKER_JOINED)
    assert (gone.pid, gone.start, gone.rank) == (member.pid, member.start, 0)
    assert (gone.detail["code"], gone.detail["message"]) == (None, "died while no agent watched")
    assert sorted(obs.rank for obs in joined) == [0, 1]  # the one that stayed did not join twice
    assert stays.alive


async def _two(desk: Desk) -> bool:
    return len(await desk.ranks()) == 2


async def _is_incarnation(desk: Desk, inc: int) -> bool:
    beat = await desk.beat()
    return beat is not None and beat.inc == inc


async def test_workers_of_an_earlier_boot_are_told(run_dir: str, crew: Crew, store: MemoryStore) -> None:
    crew.job()
    async with Desk(run_dir, store, host=Host("h", "boot-1", "6.15.0", 1, 1)).at_work() as desk:
        await eventually(desk.ranks, 10, "ranks in the beat")
        await desk.die()
    for path in Path(run_dir).glob("u*/*.slot"):
        path.unlink()
    async with Desk(run_dir, store, host=Host("h", "boot-2", "6.15.0", 1, 1)).at_work() as desk:
        gone = await one(desk, records.WORKER_EXITED)
        launcher = await one(desk, records.LAUNCHER_EXITED)
    assert gone.detail["message"] == "the machine restarted"
    assert launcher.detail == {"code": None, "signal": None}


async def test_a_slot_of_a_dead_process_that_no_agent_ever_saw(run_dir: str, store: MemoryStore) -> None:
    pid = dead_pid()
    said = {"kind": "exception", "error": "OSError", "message": "disk"}
    path = put_slot(run_dir, pid, slot_bytes(step=12, ending=said))
    async with Desk(run_dir, store).at_work() as desk:
        gone = await one(desk, records.WORKER_EXITED)
        await eventually(lambda: not path.exists(), 5, "the slot removed")
    assert (gone.pid, gone.detail["step"], gone.detail["error"], gone.detail["message"]) == (pid, 12, "OSError", "disk")


@pytest.mark.parametrize("run_id", ["a/b c\n☃", "x" * 300, "", "none", '{"v":1}'])
async def test_odd_run_ids(run_dir: str, crew: Crew, store: MemoryStore, run_id: str) -> None:
    job = crew.job(run_id=run_id)
    async with Desk(run_dir, store).at_work() as desk:
        await eventually(desk.ranks, 10, "ranks in the beat")
        beat = await desk.beat()
        job.kill()
        gone = await one(desk, records.WORKER_EXITED)
    assert beat
    assert gone.run
    assert beat.runs[0].run_id == gone.run.run_id == run_id[:256]


async def test_refused_slots_are_told_once_and_the_rest_is_served(run_dir: str, crew: Crew, store: MemoryStore) -> None:
    put_slot(run_dir, os.getpid(), slot_bytes(), tag="00000001")  # alive, but does not map it
    put_slot(run_dir, dead_pid(), b"\0" * 4096, tag="00000002")
    put_slot(run_dir, dead_pid(), slot_bytes(identity(rank=9, world_size=2)), tag="00000003")
    own = Path(run_dir) / f"u{os.geteuid()}"
    os.mkfifo(own / "5-00000004.slot")
    (own / "5-00000005.slot").symlink_to("/etc/passwd")
    (own / "5-00000006.slot").mkdir()
    crew.job()
    async with Desk(run_dir, store).at_work() as desk:
        await eventually(desk.ranks, 10, "ranks in the beat")
        await eventually(lambda: _count(desk, records.SLOT_REFUSED, 6), 10, "six refusals")
        reasons = {
            str(obs.detail["path"])[-6]: str(obs.detail["reason"])
            for obs in await desk.observations(records.SLOT_REFUSED)
        }
    assert len(reasons) == 6
    assert "does not map this file" in reasons["1"]
    assert "magic" in reasons["2"]
    assert "rank" in reasons["3"]
    assert all("plain file" in reasons[name] for name in "456")


@root_only
async def test_workers_of_another_user(run_dir: str, crew: Crew, store: MemoryStore) -> None:
    job = crew.job(uid=12345)
    async with Desk(run_dir, store).at_work() as desk:
        await eventually(desk.ranks, 10, "ranks in the beat")
        job.tell("exit 3")
        gone = await one(desk, records.WORKER_EXITED)
    assert gone.detail["code"] == 3


@root_only
async def test_a_user_cannot_speak_for_anothers_process(run_dir: str, crew: Crew, store: MemoryStore) -> None:
    job = crew.job()
    put_slot(run_dir, job.pid, slot_bytes(identity(rank=1)), uid=12345)
    async with Desk(run_dir, store).at_work() as desk:
        refused = await one(desk, records.SLOT_REFUSED)
        assert await eventually(desk.ranks, 10, "ranks in the beat") == [0]
    assert "belongs to user 0" in str(refused.detail["reason"])


async def test_a_user_can_have_so_many_workers(run_dir: str, crew: Crew) -> None:
    crew.job(rank=0)
    crew.job(rank=1)
    facts: list[Fact] = []
    workers = Workers("n1", run_dir, facts.append, lambda: None, Launchers(facts.append), per_user=1)
    found = Scanner(run_dir, grace_s=0.0).scan()
    reasons = [workers.adopt(one) for one in found if isinstance(one, Adopted)]
    workers.close()
    assert reasons == ["", f"user {os.geteuid()} has 1 watched workers on this node already"]
    assert len(facts) == 1


async def test_a_program_replaced_by_exec_speaks_through_its_new_slot(
    run_dir: str, crew: Crew, store: MemoryStore
) -> None:
    job = crew.job(rank=0)
    async with Desk(run_dir, store).at_work() as desk:
        await eventually(desk.ranks, 10, "ranks in the beat")
        job.tell("become 1")

        async def other() -> bool:
            return await desk.ranks() == [1]

        await eventually(other, 10, "the new rank in the beat")
        job.kill()
        gone = await one(desk, records.WORKER_EXITED)
        assert len(await desk.observations(records.WORKER_EXITED)) == 1
    assert (gone.rank, gone.pid) == (1, job.pid)


@root_only
@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare")
async def test_a_worker_in_a_pid_namespace_of_its_own(run_dir: str, crew: Crew, store: MemoryStore) -> None:
    job = crew.job(inside=("unshare", "--pid", "--fork", "--mount-proc"))
    assert job.pid < 100  # what it takes for its pid
    async with Desk(run_dir, store).at_work() as desk:
        await eventually(desk.ranks, 10, "ranks in the beat")
        member = await desk.member(0)
        job.tell("exit 6")
        gone = await one(desk, records.WORKER_EXITED)
    assert member.pid != job.pid
    assert (gone.pid, gone.detail["code"]) == (member.pid, 6)
