"""Direct looks at an agent: answered from what is true now, whatever the store does and whoever knocks."""

import asyncio
import contextlib
import logging
import socket
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path

import pytest
from agent_bench import Crew, Desk
from support import eventually

from rankpulse.agent import probe, reach
from rankpulse.agent.host import Host
from rankpulse.agent.log import Log
from rankpulse.agent.probe import CLIENTS_MAX, ProbeServer
from rankpulse.core import look
from rankpulse.core.addresses import parse_peer
from rankpulse.core.codec import Refused
from rankpulse.core.records import Beat, NodeState
from rankpulse.core.settings import ProbeSettings
from rankpulse.store.memory import MemoryStore

TOKEN = "a token that is long enough"
NONCE = "5a" * 16


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(time.monotonic)


async def say(address: str, *pieces: bytes, pause_s: float = 0.0) -> bytes:
    """What an address answers to these bytes, until it closes."""
    reader, writer = await asyncio.open_connection(*parse_peer(address))
    try:
        async with asyncio.timeout(10):
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(pause_s)
            return await reader.read()
    except OSError:
        return b""
    finally:
        writer.close()


async def ask(address: str, node: str = "n1", token: str = "") -> Beat:
    """The beat it tells. Raises `Refused`."""
    secret = token.encode()
    return look.hear(await say(address, look.ask(node, NONCE, secret)), node, NONCE, secret)


async def told(desk: Desk) -> NodeState:
    return await eventually(desk.state, 10, "the state of the node")  # type: ignore[no-any-return]


@contextlib.asynccontextmanager
async def serving(
    beat: Beat | None = None, more: Mapping[str, Callable[[look.Ask], Awaitable[bytes]]] | None = None, **settings: str
) -> AsyncIterator[ProbeServer]:
    """The endpoint alone."""
    server = ProbeServer(
        "n1",
        ProbeSettings(**settings),
        lambda: beat or Beat(node="n1", inc=1, seq=2, at=3.0),
        towards=(),
        name="machine",
        clock=time.monotonic,
        log=Log(),
        more=more,
    )
    await server.open()
    try:
        yield server
    finally:
        await server.close()


async def test_the_state_tells_where_and_the_answer_is_the_present_beat(run_dir: str, store: MemoryStore) -> None:
    host = Host("h", "boot-7", "6.15.0", 1, 1)
    async with Desk(run_dir, store, host=host, rack="r1").at_work() as desk:
        state = await told(desk)
        beat = await ask(state.probe)
        published = await desk.beat()
    assert (state.boot_id, state.rack, state.capabilities["probe"]) == ("boot-7", "r1", "ok")
    assert state.probe.startswith("127.0.0.1:")
    assert published
    assert (beat.node, beat.inc) == ("n1", published.inc)
    assert 0 < beat.seq <= published.seq


@pytest.mark.live
async def test_it_tells_what_no_beat_has_told_yet(run_dir: str, crew: Crew, store: MemoryStore) -> None:
    job = crew.job()
    async with Desk(run_dir, store, beat_s=30.0).at_work() as desk:
        state = await told(desk)
        assert await desk.ranks() == [0]
        store.outage(True)
        job.tell("step 41")
        assert [row.step for row in (await ask(state.probe)).ranks] == [41]
        store.outage(False)


async def test_without_a_place_to_listen_nothing_is_told(run_dir: str, store: MemoryStore) -> None:
    async with Desk(run_dir, store, probe={"listen": ""}).at_work() as desk:
        state = await told(desk)
    assert state.probe == ""
    assert "probe" not in state.capabilities


@pytest.mark.parametrize("what", ["port", "token", "address"])
async def test_what_cannot_be_served_is_said_and_the_agent_goes_on(
    run_dir: str, store: MemoryStore, tmp_path: Path, what: str
) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        settings = {
            "port": {"listen": f"127.0.0.1:{port}"},
            "token": {"token_file": str(tmp_path / "none")},
            "address": {"listen": "203.0.113.1:1", "token_file": str(_token_file(tmp_path))},
        }[what]
        async with Desk(run_dir, store, probe=settings).at_work() as desk:
            state = await told(desk)
            await eventually(desk.beat, 10, "a beat all the same")
    assert state.probe == ""
    assert "not served" in state.capabilities["probe"]
    assert any("probe: not served" in line and "goes on without" in line for line in desk.lines.texts)


def _token_file(directory: Path, *lines: str) -> Path:
    path = directory / "token"
    path.write_text("\n".join(lines or (TOKEN,)))
    path.chmod(0o600)
    return path


async def test_with_a_token_only_who_knows_it_is_told_anything(tmp_path: Path) -> None:
    async with serving(token_file=str(_token_file(tmp_path))) as server:
        assert (await ask(server.address, token=TOKEN)).seq == 2
        for wrong in ("", "another token, as long as it"):
            answer = await say(server.address, look.ask("n1", NONCE, wrong.encode()))
            assert b"not proved" in answer
            assert b"seq" not in answer
        assert b"not proved" in await say(server.address, look.ask("n2", NONCE, b"")), "not even its name"
        assert server.counts == {probe.ANSWERED: 1, probe.REFUSED: 3}


async def test_a_token_is_changed_while_all_run(tmp_path: Path) -> None:
    path = _token_file(tmp_path)
    fresh = "the token that follows it"
    async with serving(token_file=str(path)) as server:
        await ask(server.address, token=TOKEN)
        _token_file(tmp_path, TOKEN, fresh)

        async def believed(token: str) -> bool:
            with contextlib.suppress(Refused):
                await ask(server.address, token=token)
                return True
            return False

        await eventually(lambda: believed(fresh), 10, "the new token to be believed")
        assert await believed(TOKEN)
        _token_file(tmp_path, fresh)
        await eventually(lambda: _not(believed(TOKEN)), 10, "the old token to be worth nothing")
        assert await believed(fresh)


async def _not(answer: object) -> bool:
    return not await answer  # type: ignore[misc]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"\n", b"not understood"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"not understood"),
        (b"\xff\xfe\n", b"not understood"),
        (b"x" * 5000, b"more than"),
        (b"[" * 1000 + b"\n", b"not understood"),
        (look.ask("n2", NONCE, b""), b"this is node n1"),
        (look.ask("n1", NONCE, b"", op="evidence"), b"unknown op evidence"),
        (look.ask("n1", NONCE, b"").replace(b'"v":1', b'"v":7'), b"version 7"),
    ],
)
async def test_garbage_is_answered_with_what_is_wrong(line: bytes, why: bytes) -> None:
    async with serving() as server:
        answer = await say(server.address, line)
        assert why in answer or (not answer and len(line) > look.ASK_MAX)  # the kernel may drop it: bytes were unread
        assert (await ask(server.address)).seq == 2
        assert server.counts[probe.REFUSED] == 1


async def test_a_question_may_come_in_pieces_but_not_for_ever() -> None:
    line = look.ask("n1", NONCE, b"")
    async with serving() as server:
        answer = await say(server.address, line[:5], line[5:60], line[60:], pause_s=0.05)
        assert look.hear(answer, "n1", NONCE, b"").seq == 2
        began = time.monotonic()
        assert await say(server.address, line[:-1]) == b""
        assert time.monotonic() - began < 8
        assert (await ask(server.address)).seq == 2


async def test_whoever_holds_connections_open_keeps_nobody_out() -> None:
    async with serving() as server:
        crowd = [await asyncio.open_connection(*parse_peer(server.address)) for _ in range(2 * CLIENTS_MAX)]
        try:
            assert (await ask(server.address)).seq == 2
            assert len(server._clients) <= CLIENTS_MAX
        finally:
            for _, writer in crowd:
                writer.close()


async def test_whoever_knocks_displaces_nobody_who_is_believed(tmp_path: Path) -> None:
    """Evidence takes two seconds to collect: anybody could keep the monitor from it otherwise."""
    begun, go = asyncio.Event(), asyncio.Event()

    async def slow(_said: look.Ask) -> bytes:
        begun.set()
        await go.wait()
        return b"{}"

    secret = TOKEN.encode()
    async with serving(more={"collect": slow}, token_file=str(_token_file(tmp_path))) as server:
        asked = asyncio.create_task(say(server.address, look.ask("n1", NONCE, secret, "collect", b"{}")))
        await begun.wait()
        crowd = [await asyncio.open_connection(*parse_peer(server.address)) for _ in range(2 * CLIENTS_MAX)]
        try:
            await ask(server.address, token=TOKEN)  # all of them have been taken
            go.set()
            assert look.hear_part(await asked, NONCE, secret, "collect", 1000) == b"{}"
            assert len(server._clients) <= CLIENTS_MAX
        finally:
            for _, writer in crowd:
                writer.close()
        assert await eventually(lambda: not server._proved, 5, "nothing is remembered of it")


@pytest.mark.live
async def test_the_heart_beats_on_under_a_flood(run_dir: str, store: MemoryStore) -> None:
    """Half of those who knock say nothing, half ask, as fast as they can, from another process."""
    async with Desk(run_dir, store).at_work() as desk:
        address = (await told(desk)).probe
        flood = await asyncio.create_subprocess_exec(sys.executable, "-c", FLOOD, *address.rsplit(":", 1))
        try:
            before = desk.agent.publisher.figures.beats
            await asyncio.sleep(3.0)
            beats = desk.agent.publisher.figures.beats - before
        finally:
            flood.kill()
            await flood.wait()
        assert sum(desk.agent.probe.counts.values()) > 200, "that was no flood"
        assert beats >= 8, "of 15 that were due: this machine may be slow, the heart may not stand still"
        assert (await ask(address)).node == "n1"


FLOOD = """
import socket, sys
where, asked = (sys.argv[1], int(sys.argv[2])), b'{"v":1,"op":"probe","node":"n1","nonce":"%s","mac":""}' % (b"5a" * 16)
held = []
while True:
    try:
        silent, asker = socket.create_connection(where, 1), socket.create_connection(where, 1)
        asker.sendall(asked + bytes([10]))
        asker.close()
        held.append(silent)
    except OSError:
        pass
    while len(held) > 200:
        held.pop(0).close()
"""


async def test_a_flood_of_looks_costs_few_beats_of_work() -> None:
    made = 0

    def beat() -> Beat:
        nonlocal made
        made += 1
        return Beat(node="n1", inc=1, seq=made, at=0.0)

    now = 0.0
    server = ProbeServer(
        "n1", ProbeSettings(), beat, towards=(), name="machine", clock=lambda: now, log=Log()
    )  # fmt: skip
    await server.open()
    try:
        for _ in range(5):
            await asyncio.gather(*(ask(server.address) for _ in range(20)))
        assert made == 1
        now = 1.0
        assert (await ask(server.address)).seq == 2
    finally:
        await server.close()


async def test_a_beat_that_cannot_be_made_is_no_answer_and_no_end() -> None:
    def broken() -> Beat:
        raise ZeroDivisionError("a bug")

    server = ProbeServer("n1", ProbeSettings(), broken, towards=(), name="m", clock=time.monotonic, log=Log())
    await server.open()
    try:
        for _ in range(2):
            with pytest.raises(Refused, match="cannot tell its beat"):
                await ask(server.address)
    finally:
        await server.close()
    assert server.address == ""


async def test_of_an_agent_that_has_no_incarnation_yet(run_dir: str) -> None:
    store = MemoryStore(time.monotonic)
    store.outage(True)
    async with Desk(run_dir, store).at_work() as desk:
        await eventually(lambda: getattr(desk.agent, "probe", None) and desk.agent.probe.address, 10, "an address")
        beat = await ask(desk.agent.probe.address)
        store.outage(False)
    assert (beat.node, beat.inc, beat.seq) == ("n1", 0, 0)


@pytest.mark.parametrize(
    ("host", "towards", "address"),
    [
        ("127.0.0.1", ("192.0.2.7",), "127.0.0.1:5"),
        ("10.1.2.3", (), "10.1.2.3:5"),
        ("::1", (), "[::1]:5"),
    ],
)
def test_a_place_is_told_as_it_is(host: str, towards: tuple[str, ...], address: str) -> None:
    assert reach.advertised(host, 5, "machine", towards) == address


def test_of_a_wildcard_an_address_that_others_reach_or_the_name_is_told() -> None:
    for host in ("0.0.0.0", "::"):
        shown, port = parse_peer(reach.advertised(host, 5, "machine", ("127.0.0.1", "::1")))
        assert port == 5
        assert shown not in ("127.0.0.1", "::1", host)


async def test_a_store_by_name_or_nowhere_holds_up_nothing() -> None:
    assert await reach.numbers_of(["nohost.invalid", "127.0.0.9", "::1"]) == ["127.0.0.9", "::1"]


async def test_what_is_advertised_is_believed() -> None:
    async with serving(advertise="gpu07.example:9466") as server:
        assert server.address == "gpu07.example:9466"


async def test_who_knocks_in_vain_and_is_believed_in_turns_cannot_fill_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Whoever has recorded a question can ask it again, and be answered, between two lines of junk."""
    now = 0.0
    beat = Beat(node="n1", inc=1, seq=2, at=3.0)
    server = ProbeServer(
        "n1", ProbeSettings(), lambda: beat, towards=(), name="m", clock=lambda: now, log=Log(logging.getLogger())
    )
    await server.open()
    try:
        for _ in range(20):
            await say(server.address, b"junk\n")
            await ask(server.address)
        assert len(refusals(caplog)) == 1
        now = 61.0
        await say(server.address, b"junk\n")
        await say(server.address, b"junk\n")
    finally:
        await server.close()
    assert len(refusals(caplog)) == 2
    assert "and 19 more" in refusals(caplog)[1]


def refusals(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line for line in caplog.messages if "was refused" in line]
