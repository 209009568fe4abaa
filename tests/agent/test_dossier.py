"""Evidence on suspicion, asked for directly: over the wire, from real processes, the same for whoever asks."""

import asyncio
import gzip
import json
import time
from pathlib import Path

import msgspec
import pytest
from agent_bench import Crew, Desk
from support import eventually

from rankpulse.agent.watch import Worker
from rankpulse.core import look_evidence as wire
from rankpulse.core.addresses import parse_peer
from rankpulse.core.codec import Refused
from rankpulse.core.dossier import Part
from rankpulse.core.look_evidence import Collect, Fetch
from rankpulse.core.settings import EvidenceSettings
from rankpulse.store.memory import MemoryStore

NONCE = "5a" * 16
ABOUT = Collect(order_id="c0001-0001", run_uid="r1", round=2)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(time.monotonic)


async def say(address: str, line: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(*parse_peer(address), limit=wire.LINE_MAX)
    try:
        async with asyncio.timeout(10):
            writer.write(line)
            return await reader.readline()
    finally:
        writer.close()


async def ask(desk: Desk, about: Collect = ABOUT, token: bytes = b"", node: str = "n1") -> Part:
    """Its evidence. Raises `Refused`."""
    assert desk.agent.probe
    line = await say(desk.agent.probe.address, wire.ask_collect(node, NONCE, token, about))
    return wire.hear_collect(line, "n1", NONCE, token)


def of_round(worker: Worker, run_uid: str = "r1", round_: int = 2) -> Worker:
    """As if it had met through us."""
    run = msgspec.structs.replace(worker.who.run, run_uid=run_uid, round=round_)
    worker.who = worker.who._replace(run=run)
    return worker


async def joined(desk: Desk, count: int = 1) -> list[Worker]:
    async def there() -> bool:
        return len(await desk.ranks()) == count

    await eventually(there, 10, "the workers")
    return [of_round(worker) for worker in desk.agent.workers.table.values()]


@pytest.mark.live
async def test_the_monitor_is_answered_directly(run_dir: str, crew: Crew, store: MemoryStore) -> None:
    crew.job()
    async with Desk(run_dir, store).at_work() as desk:
        (worker,) = await joined(desk)
        part = await ask(desk)
        assert (part.node, part.order_id) == ("n1", "c0001-0001")
        assert abs(part.taken_at - time.time()) < 5
        (rank,) = part.ranks
        assert (rank.rank, rank.node, rank.pid, rank.state, rank.alive) == (0, "n1", worker.pid, "S", True)
        assert await ask(desk, Collect(order_id="c2", run_uid="r1", round=1)) != part
        with pytest.raises(Refused, match="this is node n1"):
            await ask(desk, node="n2")


@pytest.mark.live
async def test_whoever_asks_second_gets_what_the_first_got(run_dir: str, crew: Crew, store: MemoryStore) -> None:
    """The direct question and the order in the store are one collection: ranks are asked once."""
    crew.job()
    async with Desk(run_dir, store).at_work() as desk:
        await joined(desk)
        first, second = await asyncio.gather(ask(desk), ask(desk))
        assert first == second
        await desk.order(order_id=ABOUT.order_id, kind="collect-5", run_uid="r1", round=2, nodes=("n1",))
        (told,) = await eventually(lambda: desk.observations("evidence"), 10, "the observation")
        assert '"S"' in str(told.detail["rows"])
        assert (await ask(desk)).taken_at == first.taken_at


@pytest.mark.live
async def test_who_is_not_proved_is_told_nothing(run_dir: str, crew: Crew, store: MemoryStore, tmp_path: Path) -> None:
    secret = tmp_path / "token"
    secret.write_text("a token that is long enough")
    secret.chmod(0o600)
    crew.job()
    async with Desk(run_dir, store, probe={"token_file": str(secret)}).at_work() as desk:
        await joined(desk)
        with pytest.raises(Refused, match="not proved"):
            await ask(desk)
        assert (await ask(desk, token=b"a token that is long enough")).ranks


@pytest.mark.live
async def test_a_dump_is_fetched_over_the_wire(run_dir: str, crew: Crew, store: MemoryStore) -> None:
    crew.job()
    async with Desk(run_dir, store).at_work() as desk:
        await joined(desk)
        part = await ask(desk)
        assert sorted(dump.rank for dump in part.dumps) == [-1, 0]
        assert desk.agent.probe
        for dump in part.dumps:
            about = Fetch(name=dump.name)
            line = await say(desk.agent.probe.address, wire.ask_dump("n1", NONCE, b"", about))
            piece = wire.hear_dump(line, NONCE, b"", about)
            assert piece.size == len(piece.data) == dump.bytes
            content = json.loads(gzip.decompress(piece.data))
            assert (content["node"], content["order_id"]) == ("n1", "c0001-0001")
        gone = Fetch(name="gone.json.gz")
        line = await say(desk.agent.probe.address, wire.ask_dump("n1", NONCE, b"", gone))
        with pytest.raises(Refused, match="no such file"):
            wire.hear_dump(line.replace(b"No such", b"no such"), NONCE, b"", gone)


@pytest.mark.live
@pytest.mark.parametrize("keep", [0, 5])
async def test_without_a_place_for_dumps_the_rest_is_told(
    run_dir: str, crew: Crew, store: MemoryStore, tmp_path: Path, keep: int
) -> None:
    """None are wanted, or the directory is not ours alone."""
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    crew.job()
    desk = Desk(run_dir, store)
    desk.agent._settings = msgspec.structs.replace(
        desk.settings, evidence=EvidenceSettings(keep=keep, dir=str(shared) if keep else "")
    )
    async with desk.at_work():
        await joined(desk)
        part = await ask(desk)
        assert (len(part.ranks), part.dumps) == (1, ())
        state = await eventually(desk.state, 10, "the state")
        assert ("not kept" in state.capabilities["dumps"]) == bool(keep)
    assert list(shared.iterdir()) == []
