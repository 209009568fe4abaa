"""Two agents over one store, and torchruns that meet through them."""

import os
import shutil
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from agent_bench import Desk
from support import eventually
from torchrun_bench import Torchrun, Torchruns, records_of, torchruns

from rankpulse.core import codec, records
from rankpulse.core.records import Cordon, Joiner, Launch, Meeting
from rankpulse.core.rendezvous import label_name
from rankpulse.store.memory import MemoryStore

pytestmark = pytest.mark.live


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(time.monotonic)


@pytest.fixture
def dirs() -> Iterator[list[str]]:
    with tempfile.TemporaryDirectory(prefix="rp-") as one, tempfile.TemporaryDirectory(prefix="rp-") as two:
        for path in (one, two):
            Path(path).chmod(0o1777)
        yield [one, two]


@pytest.fixture
async def start() -> AsyncIterator[Torchruns]:
    async with torchruns() as started:
        yield started


async def established(start: Torchruns, dirs: list[str]) -> tuple[Torchrun, Torchrun]:
    """Two torchruns in round 1."""
    one, two = await start(dirs[0]), await start(dirs[1])
    one.join()
    two.join()
    await one.meet()
    await two.meet()
    return one, two


async def rejoin(*members: Torchrun) -> None:
    for one in members:
        one.join()
    for one in members:
        await one.meet()


async def of_kind(desk: Desk, kind: type[records.Record]) -> list[Any]:
    return await records_of(desk.store, desk.keys.rdzv(), kind, desk.keys)  # type: ignore[arg-type]


async def joiner(desk: Desk, one: Torchrun) -> Joiner | None:
    found = [row for row in await of_kind(desk, Joiner) if row.launcher.startswith(f"{one.process.pid}.")]
    return found[-1] if found else None


async def test_two_nodes_meet(dirs: list[str], store: MemoryStore, start: Torchruns) -> None:
    async with Desk(dirs[0], store).at_work(), Desk(dirs[1], store, node="n2").at_work() as desk:
        one, two = await start(dirs[0]), await start(dirs[1])
        one.join()
        assert "1 of 2" in str(await eventually(lambda: _said(one, "1 of 2"), 10, "the reason for waiting"))
        two.join()
        first, second = await one.meet(), await two.meet()
        (meeting,) = await of_kind(desk, Meeting)
    assert (first["rank"], second["rank"], first["nodes"], first["round"]) == (0, 1, 2, 1)
    assert first["run_uid"] == second["run_uid"]
    assert (first["address"], first["port"]) == (second["address"], second["port"])
    assert first["port"] == 10000 + one.process.pid % 50000
    assert [place.node for place in meeting.places] == ["n1", "n2"]


def _said(one: Torchrun, text: str) -> list[str]:
    return [message["wait"] for message in one.seen if text in message.get("wait", "")]


async def test_a_member_that_asks_again_brings_all_together_again(
    dirs: list[str], store: MemoryStore, start: Torchruns
) -> None:
    async with Desk(dirs[0], store).at_work(), Desk(dirs[1], store, node="n2").at_work():
        one, two = await established(start, dirs)
        two.join()
        again = await one.heard("again")
        one.join()
        first, second = await one.meet(), await two.meet()
    assert (again["round"], again["waiting"]) == (1, 1)
    assert (first["round"], first["rank"], second["rank"]) == (2, 0, 1)


async def test_the_agent_starts_again_in_an_established_round(
    dirs: list[str], store: MemoryStore, start: Torchruns
) -> None:
    """Also without the store: who is in which round is on disk."""
    async with Desk(dirs[1], store, node="n2").at_work():
        async with Desk(dirs[0], store).at_work() as desk:
            one, two = await established(start, dirs)
            await desk.die()
        store.outage(True)
        async with Desk(dirs[0], store).at_work() as desk:
            await one.connect()
            one.watch()
            pid = await one.work(0)
            await eventually(lambda: _row(desk, pid), 10, "the worker known")
            assert _row(desk, pid) == (one.met["run_uid"], 1)
            assert one.silent("again")
            assert one.silent("error")
            store.outage(False)
            two.join()
            await one.heard("again")
            one.join()
            assert (await one.meet())["round"] == 2


def _row(desk: Desk, pid: int) -> tuple[str, int] | None:
    for worker in desk.agent.workers.table.values():
        if worker.pid == pid:
            return worker.who.run.run_uid, worker.who.run.round
    return None


async def test_the_agent_starts_again_in_the_middle_of_a_join(
    dirs: list[str], store: MemoryStore, start: Torchruns
) -> None:
    async with Desk(dirs[1], store, node="n2").at_work() as other:
        async with Desk(dirs[0], store).at_work() as desk:
            one = await start(dirs[0])
            one.join()
            await eventually(lambda: joiner(desk, one), 10, "its joiner")
            await desk.die()
        two = await start(dirs[1])
        two.join()
        async with Desk(dirs[0], store).at_work():
            await one.connect()
            one.join(again=True)
            first, second = await one.meet(), await two.meet()
        assert len(await of_kind(other, Launch)) == 1
    assert (first["run_uid"], first["round"]) == (second["run_uid"], 1)


async def test_the_answer_that_was_not_heard_is_given_again(
    dirs: list[str], store: MemoryStore, start: Torchruns
) -> None:
    """Its agent ends after the round was made and before the torchrun heard of it."""
    async with Desk(dirs[1], store, node="n2").at_work():
        async with Desk(dirs[0], store).at_work() as desk:
            one, two = await start(dirs[0]), await start(dirs[1])
            one.join()
            await eventually(lambda: joiner(desk, one), 10, "its joiner")
            one.tell("hang_up")
            await one.heard("closed")
            two.join()
            await two.meet()
            await desk.die()
        async with Desk(dirs[0], store).at_work():
            await one.connect()
            one.join(again=True)
            assert (await one.meet())["round"] == 1


async def test_an_established_round_does_not_notice_an_outage(
    dirs: list[str], store: MemoryStore, start: Torchruns
) -> None:
    async with Desk(dirs[0], store).at_work() as desk, Desk(dirs[1], store, node="n2").at_work() as other:
        one, two = await established(start, dirs)
        store.outage(True)
        await eventually(lambda: not desk.agent.publisher.connected, 20, "the outage noticed")
        one.tell("hang_up")
        await one.heard("closed")
        await one.connect()
        one.watch()
        await eventually(lambda: not other.agent.publisher.connected, 20, "the outage noticed")
        store.outage(False)
        await eventually(lambda: desk.agent.publisher.connected, 20, "the store seen again")
        assert one.silent("again")
        assert two.silent("again")
        two.join()
        await one.heard("again")


async def test_a_join_during_an_outage_meets_when_it_is_over(
    dirs: list[str], store: MemoryStore, start: Torchruns
) -> None:
    async with Desk(dirs[0], store).at_work() as desk, Desk(dirs[1], store, node="n2").at_work():
        one, two = await established(start, dirs)
        store.outage(True)
        await eventually(lambda: not desk.agent.publisher.connected, 20, "the outage noticed")
        one.join()
        two.join()
        assert "store" in await one.heard("wait")
        store.outage(False)
        assert (await one.meet(30))["round"] == (await two.meet(30))["round"] == 2


@pytest.mark.parametrize("applied", [True, False], ids=["done", "not done"])
async def test_a_write_of_which_nobody_knows_what_came(
    dirs: list[str], store: MemoryStore, start: Torchruns, applied: bool
) -> None:
    """The beats, which come too, may take the doubt instead; then this is the plain story."""
    async with Desk(dirs[0], store).at_work() as desk, Desk(dirs[1], store, node="n2").at_work():
        one, two = await start(dirs[0]), await start(dirs[1])
        one.join()
        await eventually(lambda: joiner(desk, one), 10, "its joiner")
        store.uncertain_next_write(applied)
        two.join()
        assert (await one.meet())["round"] == (await two.meet())["round"] == 1


async def test_a_torchrun_that_dies_is_gone_once_its_workers_are(
    dirs: list[str], store: MemoryStore, start: Torchruns
) -> None:
    async with Desk(dirs[0], store).at_work() as desk, Desk(dirs[1], store, node="n2").at_work():
        one, two = await established(start, dirs)
        pid = await one.work(0, TEST_ORPHAN="1")
        await eventually(lambda: _row(desk, pid), 10, "the worker known")
        os.kill(pid, signal.SIGSTOP)  # it would end when its input does
        one.kill()
        await eventually(lambda: _dead(desk), 10, "the death of torchrun noticed")
        present = await joiner(desk, one)
        assert two.silent("again")
        os.kill(pid, signal.SIGKILL)
        again = await two.heard("again")
        gone = await joiner(desk, one)
    assert present
    assert not present.left
    assert gone
    assert (gone.outcome, gone.left) == ("gone", "its torchrun was killed by signal 9")
    assert again["round"] == 1


def _dead(desk: Desk) -> bool:
    return any(one.dead for one in desk.agent.together.torchruns.table.values())


async def test_one_that_finishes_closes_the_run_and_nothing_stays(
    dirs: list[str], store: MemoryStore, start: Torchruns
) -> None:
    async with Desk(dirs[0], store).at_work() as desk, Desk(dirs[1], store, node="n2").at_work():
        one, two = await established(start, dirs)
        spare = await start(dirs[0])
        spare.join()
        await eventually(lambda: joiner(desk, spare), 10, "the spare's joiner")
        one.say(leave={"outcome": "finished", "reason": ""})
        await one.heard("left")
        refused = await spare.heard("refused")
        two.say(leave={"outcome": "finished", "reason": ""})
        await two.heard("left")
        await eventually(lambda: _empty(desk), 20, "the run's keys deleted")
    assert refused["kind"] == "finished"


async def _empty(desk: Desk) -> bool:
    return not await of_kind(desk, Launch) and not await of_kind(desk, Joiner) and not await of_kind(desk, Meeting)


async def test_a_cordoned_node_is_refused_with_the_reason(
    dirs: list[str], store: MemoryStore, start: Torchruns
) -> None:
    async with Desk(dirs[0], store).at_work() as desk:
        await store.put(desk.keys.cordon("n1"), codec.encode(Cordon(node="n1", author="mia", reason="hot", at=0.0)))
        one = await start(dirs[0])
        one.join(nodes=(1, 1))
        refused = await one.heard("refused")
    assert refused["kind"] == "cordoned"
    assert "hot" in refused["reason"]


async def test_a_second_conversation_replaces_the_first(dirs: list[str], store: MemoryStore, start: Torchruns) -> None:
    async with Desk(dirs[0], store).at_work():
        one = await start(dirs[0])
        one.join(nodes=(1, 1))
        await one.meet()
        await one.connect()
        await eventually(lambda: {"closed": True} in one.seen, 10, "the first one closed")
        one.watch()
        one.join(nodes=(1, 1))
        assert (await one.meet())["round"] == 2


async def test_a_leave_that_overtakes_its_own_join(dirs: list[str], store: MemoryStore, start: Torchruns) -> None:
    """Nobody may wait for a torchrun that left before its joiner was written."""
    async with Desk(dirs[0], store).at_work() as desk:
        one = await start(dirs[0])
        one.join()
        one.say(leave={"outcome": "gone", "reason": "interrupted"})
        await one.heard("left")
        await eventually(lambda: _empty(desk), 10, "nothing left of it")
        one.say(op="nothing")
        await one.heard("closed")


async def test_one_that_dies_while_it_waits_is_gone(dirs: list[str], store: MemoryStore, start: Torchruns) -> None:
    async with Desk(dirs[0], store).at_work() as desk:
        one = await start(dirs[0])
        one.join()
        await eventually(lambda: joiner(desk, one), 10, "its joiner")
        one.kill()
        await eventually(lambda: _empty(desk), 10, "nothing left of it")


async def test_one_that_died_while_no_agent_ran_is_gone(dirs: list[str], store: MemoryStore, start: Torchruns) -> None:
    """Known from the disk; where that is lost, from the store and the kernel."""
    for lost in (False, True):
        async with Desk(dirs[0], store).at_work() as desk:
            one = await start(dirs[0])
            one.join()
            await eventually(lambda one=one, desk=desk: joiner(desk, one), 10, "its joiner")
            await desk.die()
        one.kill()
        await one.process.wait()
        if lost:
            shutil.rmtree(f"{dirs[0]}/spool")
        async with Desk(dirs[0], store).at_work() as desk:
            await eventually(lambda desk=desk: _empty(desk), 10, "nothing left of it")


async def test_a_timeout_says_who_is_missing(dirs: list[str], store: MemoryStore, start: Torchruns) -> None:
    async with Desk(dirs[0], store).at_work() as desk:
        one = await start(dirs[0])
        one.join(timeout_s=0.5)
        refused = await one.heard("refused")
        await eventually(lambda: _empty(desk), 10, "nothing left of it")
    assert refused["kind"] == "timeout"
    assert "1 of 2 nodes" in refused["reason"]


async def test_without_a_store_a_join_times_out_with_the_reason(
    dirs: list[str], store: MemoryStore, start: Torchruns
) -> None:
    store.outage(True)
    async with Desk(dirs[0], store).at_work():
        one = await start(dirs[0])
        one.join(timeout_s=0.5)
        assert "store" in await one.heard("wait")
        refused = await one.heard("refused")
    assert (refused["kind"], "cannot reach the store" in refused["reason"]) == ("timeout", True)


async def test_what_lies_under_a_label_and_cannot_be_read(
    dirs: list[str], store: MemoryStore, start: Torchruns
) -> None:
    async with Desk(dirs[0], store).at_work() as desk:
        key = desk.keys.label(label_name("train", os.geteuid()))
        await store.put(key, b"\xff")
        one = await start(dirs[0])
        one.join()
        refused = await one.heard("refused")
        item = await store.get(key)
    assert refused["kind"] == "corrupt"
    assert key in refused["reason"]
    assert item
    assert item.value == b"\xff"


async def test_whoever_launched_nothing_is_harmless(dirs: list[str], store: MemoryStore, start: Torchruns) -> None:
    async with Desk(dirs[0], store).at_work() as desk:
        one = await start(dirs[0])
        one.say(restarting={"round": 7})
        one.say(leave={"outcome": "failed", "reason": "x"})
        await one.heard("left")
        one.say(watch={"run_uid": "other", "round": 1, "join": 1})
        await one.heard("error")
        await one.heard("closed")
        assert not desk.agent.together.torchruns.rows()
        assert await _empty(desk)


@pytest.mark.parametrize(
    "message",
    [
        {"dance": 1},
        {"join": {}},
        {"join": 3},
        {"watch": {"run_uid": "a/b"}},
        {"leave": {"outcome": "rich"}},
        {"leave": {"outcome": "failed", "reason": "\ud800"}},  # half a character: nothing could write it down again
        {"join": {"label": "\ud800", "min_nodes": 1, "max_nodes": 1, "join": 1, "address": "127.0.0.1", "port": 9}},
        {"join": {"label": "x", "min_nodes": 1, "max_nodes": 1, "join": 1, "address": "127.0.0.1\n", "port": 9}},
        {},
    ],
    ids=range(9),
)
async def test_garbage_is_told_and_ends_the_conversation(
    dirs: list[str], store: MemoryStore, start: Torchruns, message: dict[str, Any]
) -> None:
    async with Desk(dirs[0], store).at_work():
        one = await start(dirs[0])
        one.say(**message)
        assert await one.heard("error")
        await one.heard("closed")
        await one.connect()
        one.join(nodes=(1, 1))
        await one.meet()


async def test_one_that_cannot_be_served_costs_the_others_nothing(
    dirs: list[str], store: MemoryStore, start: Torchruns
) -> None:
    """Whatever the agent stumbles over with one torchrun that leaves."""
    async with Desk(dirs[0], store).at_work() as desk:
        one, two = await start(dirs[0]), await start(dirs[0])
        one.join(nodes=(1, 1), label="one")
        await one.meet()
        (row,) = (row for row in desk.agent.together.torchruns.table.values() if row.met)
        row.leaving = ("failed", "\ud800")
        desk.agent.together.rendezvous.look()
        two.join(nodes=(1, 1), label="two")
        assert (await two.meet())["round"] == 1
        assert desk.agent.capabilities.get("rendezvous", "ok") == "ok"


async def test_the_rows_of_beats_are_the_agents_word(dirs: list[str], store: MemoryStore, start: Torchruns) -> None:
    """A worker may be of an earlier round than its torchrun is in, never of a later one, nor of another run."""
    async with Desk(dirs[0], store).at_work() as desk:
        one = await start(dirs[0])
        one.join(nodes=(1, 1))
        await one.meet()
        await rejoin_alone(one)
        honest = await one.work(0, world=4)
        late = await one.work(1, world=4, RANKPULSE_ROUND="1")
        ahead = await one.work(2, world=4, RANKPULSE_ROUND="9")
        liar = await one.work(3, world=4, RANKPULSE_RUN_UID="another")
        await eventually(lambda: _ranks(desk, 4), 10, "four ranks in the beat")
        beat = await desk.beat()
        stranger = await start(dirs[0])
        foreign = await stranger.work(0, RANKPULSE_RUN_UID=one.met["run_uid"], RANKPULSE_ROUND="2")
        await eventually(lambda: _row(desk, foreign), 20, "the stranger's worker known")
        assert _row(desk, foreign) == ("", -1)
    assert beat
    said = {row.pid: (beat.runs[row.run].run_uid, beat.runs[row.run].round) for row in beat.ranks}
    uid = one.met["run_uid"]
    assert (said[honest], said[late], said[ahead], said[liar]) == ((uid, 2), (uid, 1), (uid, 2), (uid, 2))


async def rejoin_alone(one: Torchrun) -> None:
    one.join(nodes=(1, 1))
    await one.meet()


async def _ranks(desk: Desk, count: int) -> bool:
    return len(await desk.ranks()) == count


async def test_a_worker_that_is_seen_before_its_torchrun_waits_for_it(
    dirs: list[str], store: MemoryStore, start: Torchruns
) -> None:
    """An agent that has lost its own memory hears of the round from torchrun, and that it is true from the store."""
    async with Desk(dirs[0], store).at_work() as desk:
        one = await start(dirs[0])
        one.join(nodes=(1, 1))
        await one.meet()
        pid = await one.work(0, world=1)
        await eventually(lambda: _row(desk, pid), 10, "the worker known")
        await desk.die()
    for path in filter(Path.is_file, Path(dirs[0], "spool").iterdir()):
        path.unlink()
    async with Desk(dirs[0], store).at_work() as desk:
        await one.connect()
        one.watch()
        await eventually(lambda: _row(desk, pid), 10, "the worker known")
        assert _row(desk, pid) == (one.met["run_uid"], 1)


async def test_the_run_directory_is_made_anew(dirs: list[str], store: MemoryStore, start: Torchruns) -> None:
    async with Desk(dirs[0], store).at_work():
        one = await start(dirs[0])
        one.join(nodes=(1, 1))
        await one.meet()
        shutil.rmtree(dirs[0])
        await one.heard("closed")
        await one.connect()
        one.watch()
        await rejoin_alone(one)
        assert one.met["round"] == 2
    Path(dirs[0]).mkdir(exist_ok=True)


async def test_signals_of_a_frozen_torchrun_wait(dirs: list[str], store: MemoryStore, start: Torchruns) -> None:
    """A torchrun that is stopped is not gone."""
    async with Desk(dirs[0], store).at_work() as desk, Desk(dirs[1], store, node="n2").at_work():
        one, two = await established(start, dirs)
        one.kill(signal.SIGSTOP)
        two.join()
        await eventually(lambda: _said(two, "missing: n1"), 10, "who is missing")
        one.kill(signal.SIGCONT)
        await one.heard("again")
        one.join()
        assert (await one.meet())["round"] == (await two.meet())["round"] == 2
        left = await joiner(desk, one)
        assert left
        assert not left.left
