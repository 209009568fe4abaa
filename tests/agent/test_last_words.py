"""Before a round is ended those that live are asked to save, and only then torchrun hears of it; never for long."""

import json
import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from agent_bench import Crew, Desk
from support import eventually
from torchrun_bench import Torchrun, Torchruns, alive, torchruns

from rankpulse.agent.last_words import Answer, _sum_up
from rankpulse.core import codec, records
from rankpulse.core.last_words import Words
from rankpulse.core.records import Cordon, Member, Observation
from rankpulse.store.memory import MemoryStore

# What torch's worker server is to the agent: HTTP on a unix socket, from another thread. MANNER: the answer, or what
# it does instead of one. What it is asked is written down; it answers when the gate is open.
STAND_IN = """
import json, pathlib, socket, threading, time, types
def answer(line):
    head = b""
    while b"\\r\\n\\r\\n" not in head:
        head += line.recv(65536)
    head, _, body = head.partition(b"\\r\\n\\r\\n")
    assert b"/handler/rankpulse_last_words " in head, head
    length = int(head.lower().partition(b"content-length:")[2].split()[0])
    while len(body) < length:
        body += line.recv(65536)
    place, manner = pathlib.Path(os.environ["TEST_PLACE"]), os.environ["TEST_MANNER"]
    asked = place / f"asked-{os.environ['RANK']}-{time.monotonic_ns()}"
    asked.with_suffix(".part").write_bytes(body)
    asked.with_suffix(".part").rename(asked)
    while not (place / "open").exists():
        time.sleep(0.01)
    if manner == "mute":
        threading.Event().wait()
    if manner == "404":
        line.sendall(b"HTTP/1.1 404 Not Found\\r\\nContent-Length: 0\\r\\n\\r\\n")
    else:
        line.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: %d\\r\\n\\r\\n%s" % (len(manner), manner.encode()))
    line.close()
class Server:
    def __init__(self, path):
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen(5)
        threading.Thread(target=self.serve, daemon=True).start()
    def serve(self):
        while True:
            line, _ = self.listener.accept()
            threading.Thread(target=answer, args=(line,), daemon=True).start()
for name in ("torch._C", "torch._C._distributed_c10d"):
    sys.modules[name] = types.ModuleType(name)
sys.modules["torch._C._distributed_c10d"]._WorkerServer = Server
"""
# The same on torch's own server, while the main thread reads its stdin.
ON_TORCH = """
import json
del sys.modules["torch"]
import torch
from torch._C._distributed_c10d import _register_handler
def handler(request, response):
    asked = json.loads(request.body())
    answer = {"v": 1, "outcome": "saved", "step": 7, "reason": "", "path": "", "took_s": 0.1, "absent": asked["absent"]}
    response.set_content(json.dumps(answer), "application/json")
    response.set_status(200)
_register_handler("rankpulse_last_words", handler)
"""


def saved(step: int, *absent: int) -> str:
    said = {"v": 1, "outcome": "saved", "step": step, "reason": "", "path": "/x", "took_s": 0.4, "absent": absent}
    return json.dumps(said)


REFUSED = json.dumps({"v": 1, "outcome": "refused", "step": -1, "reason": "nobody holds w0", "path": "", "took_s": 0.0})


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(time.monotonic)


@pytest.fixture
async def start() -> AsyncIterator[Torchruns]:
    async with torchruns() as started:
        yield started


class Place:
    """What the trainers of a test are asked, and the gate before their answers."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def env(self, manner: str) -> dict[str, str]:
        return {"TEST_BEFORE": STAND_IN, "TEST_PLACE": str(self.path), "TEST_MANNER": manner}

    def open(self) -> None:
        (self.path / "open").touch()

    def asked(self, rank: int) -> list[dict[str, Any]]:
        found = sorted(one for one in self.path.glob(f"asked-{rank}-*") if one.suffix != ".part")
        return [json.loads(one.read_bytes()) for one in found]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


async def in_round(
    start: Torchruns, run_dir: str, desk: Desk, place: Place, *manners: str, updating: tuple[int, ...] = ()
) -> tuple[Torchrun, list[Member]]:
    """One torchrun in round 1 with a worker of each manner, known to the agent. updating: within an update."""
    one = await start(run_dir)
    one.join(nodes=(1, 1))
    await one.meet()
    for rank, manner in enumerate(manners):
        more = {"TEST_UPDATING": "1"} if rank in updating else {}
        await one.work(rank, world=len(manners), **place.env(manner), **more)
    return one, await members(desk, len(manners))


async def members(desk: Desk, count: int) -> list[Member]:
    async def there() -> bool:
        return len(await desk.ranks()) == count

    await eventually(there, 20, f"{count} ranks in the beat")
    return [await desk.member(rank) for rank in range(count)]


async def order(desk: Desk, one: Torchrun, seats: list[Member], **changes: Any) -> None:
    changes = {"run_uid": one.met["run_uid"], "round": 1, "nodes": ("n1",), "grace_s": 0.2, **changes}
    await desk.order(*seats, **changes)


async def obeyed(one: Torchrun) -> None:
    """It stops its workers, as it was told to."""
    await one.heard("again")
    one.say(restarting={"round": 1})


async def done(desk: Desk) -> Observation:
    found = await eventually(lambda: desk.observations(records.ORDER_DONE), 20, "the order reported")
    return found[0]


@pytest.mark.live
async def test_those_that_live_save_before_torchrun_hears_of_it(
    run_dir: str, store: MemoryStore, start: Torchruns, place: Place
) -> None:
    """One is dead, one is stopped: they are named, and only the others are asked."""
    async with Desk(run_dir, store).at_work() as desk:
        one, seats = await in_round(start, run_dir, desk, place, *([saved(120, 1, 2)] * 4), updating=(1, 2))
        os.kill(seats[1].pid, signal.SIGKILL)
        os.kill(seats[2].pid, signal.SIGSTOP)
        await eventually(lambda: desk.observations(records.WORKER_EXITED), 10, "the death told")
        await order(desk, one, seats, culprits=(seats[2],), last_words_s=30.0, absent=(5, 6))
        await eventually(lambda: place.asked(0) and place.asked(3), 10, "both asked")
        await store.put(desk.keys.cordon("other"), codec.encode(Cordon(node="other", author="a", reason="r", at=0.0)))
        await eventually(lambda: desk.agent.together.rendezvous.mirror.view.cordons, 10, "news after the order")
        assert one.silent("again"), "it would stop them while they write"
        assert alive(seats[2].pid), "its end may be what the others notice"
        place.open()
        await obeyed(one)
        report = await done(desk)
        uid = one.met["run_uid"]
    question = {"v": 1, "run_uid": uid, "round": 1, "absent": [1, 2, 5, 6], "torn": [1, 2], "within_s": 30.0}
    assert place.asked(0) == place.asked(3) == [question]
    assert not place.asked(1) + place.asked(2)
    assert report.detail["last_words"] == "saved"
    assert (report.detail["last_words_step"], report.detail["last_words_absent"]) == (120, "1,2")


@pytest.mark.live
@pytest.mark.parametrize(
    ("manner", "limit_s", "why"),
    [
        ("mute", 0.1, "rank 0 (and 1 more): no answer within 1.1 s"),
        ("404", 250.0, "rank 0 (and 1 more): it does not offer them"),
        ("{}", 250.0, "rank 0 (and 1 more): its answer is none of ours"),
    ],
)
async def test_who_does_not_answer_holds_up_nothing(
    run_dir: str, store: MemoryStore, start: Torchruns, place: Place, manner: str, limit_s: float, why: str
) -> None:
    place.open()
    async with Desk(run_dir, store).at_work() as desk:
        one, seats = await in_round(start, run_dir, desk, place, manner, manner)
        await order(desk, one, seats, last_words_s=limit_s)
        await obeyed(one)
        report = await done(desk)
    assert (report.detail["last_words"], report.detail["last_words_why"]) == ("unanswered", why)
    assert len(place.asked(0)) == len(place.asked(1)) == 1


@pytest.mark.live
async def test_one_that_hangs_does_not_hold_up_those_that_have_saved(
    run_dir: str, store: MemoryStore, start: Torchruns, place: Place
) -> None:
    place.open()
    async with Desk(run_dir, store).at_work() as desk:
        one, seats = await in_round(start, run_dir, desk, place, "mute", saved(9, 0))
        await order(desk, one, seats, last_words_s=250.0)
        await obeyed(one)
        report = await done(desk)
    assert (report.detail["last_words"], report.detail["last_words_step"]) == ("saved", 9)


@pytest.mark.live
async def test_the_next_agent_asks_again(run_dir: str, store: MemoryStore, start: Torchruns, place: Place) -> None:
    async with Desk(run_dir, store).at_work() as desk:
        one, seats = await in_round(start, run_dir, desk, place, REFUSED)
        await order(desk, one, seats, last_words_s=30.0)
        await eventually(lambda: place.asked(0), 10, "the first question")
        await desk.die()
    async with Desk(run_dir, store).at_work() as desk:
        await one.connect()
        one.watch()
        await eventually(lambda: len(place.asked(0)) == 2, 10, "the second question")
        assert one.silent("again")
        place.open()
        await obeyed(one)
        report = await done(desk)
    assert (report.detail["last_words"], report.detail["last_words_why"]) == ("refused", "nobody holds w0")


@pytest.mark.live
async def test_a_holder_is_told_to_wait_as_long_as_survivors_write(
    run_dir: str, store: MemoryStore, start: Torchruns, place: Place
) -> None:
    """It would let go after less than that, and torchrun would stop them all."""
    async with Desk(run_dir, store).at_work() as desk:
        one = await start(run_dir)
        one.join(nodes=(1, 1))
        await one.meet()
        await one.work(0, **place.env(saved(3, 1)))
        dead = await one.work(1, word="hold", RANKPULSE_HOLD_S="2")
        seats = await members(desk, 2)
        os.kill(dead, signal.SIGKILL)
        await eventually(lambda: desk.observations(records.WORKER_EXITED), 10, "the death told")
        asked_at = time.monotonic()
        await order(desk, one, seats, last_words_s=30.0)
        await eventually(lambda: time.monotonic() > asked_at + 3.5, 10, "longer than the holder waits")
        assert one.silent("exited")
        place.open()
        await obeyed(one)
        assert (await done(desk)).detail["last_words"] == "saved"


@pytest.mark.live
async def test_workers_of_a_plain_launch_are_asked_before_they_are_killed(
    run_dir: str, crew: Crew, store: MemoryStore, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in place.env(saved(4)).items():
        monkeypatch.setenv(name, value)
    job = crew.job()
    async with Desk(run_dir, store).at_work() as desk:
        [member] = await members(desk, 1)
        await desk.order(member, last_words_s=30.0)
        await eventually(lambda: place.asked(0), 10, "the question")
        assert job.alive
        place.open()
        report = await done(desk)
        assert job.reap() == -9
    assert (report.detail["killed"], report.detail["last_words"]) == (1, "saved")
    assert (place.asked(0)[0]["run_uid"], place.asked(0)[0]["round"]) == ("", -1)


@pytest.mark.live
async def test_torchs_own_server_is_asked_with_a_body(run_dir: str, store: MemoryStore, start: Torchruns) -> None:
    async with Desk(run_dir, store).at_work() as desk:
        one = await start(run_dir)
        one.join(nodes=(1, 1))
        await one.meet()
        await one.work(0, world=3, TEST_BEFORE=ON_TORCH)
        seats = await members(desk, 1)
        await order(desk, one, seats, last_words_s=20.0, absent=(1, 2))
        await obeyed(one)
        report = await done(desk)
    assert report.detail["last_words"] == "saved", report.detail
    assert (report.detail["last_words_step"], report.detail["last_words_absent"]) == (7, "1,2")


@pytest.mark.parametrize(
    ("heard", "words"),
    [
        ({0: Answer("saved", 5, "", (2,)), 1: Answer("refused", -1, "late")}, Words("saved", 5, (2,))),
        ({0: Answer("saved", 5), 1: Answer("saved", 6, "", (3,))}, Words("saved", 6, (3,))),
        ({0: "", 1: Answer("refused", -1, "rank 2 held w\n0")}, Words("refused", reason="rank 2 held w\\x0a0")),
        ({4: "", 3: "the process is gone"}, Words("unanswered", reason="rank 3 (and 1 more): the process is gone")),
    ],
)
def test_what_several_say(heard: dict[int, Answer | str], words: Words) -> None:
    assert _sum_up(heard, 6.0) == words
