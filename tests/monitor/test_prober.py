"""Direct looks: each way in which one can end is another fact, or none, and none is ever in the loop's way."""

import asyncio
import errno
import re
import resource
import socket
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from monitor_bench import KEYS, Bench, Time, create
from probe_bench import (
    BOOT,
    Lookout,
    broken_off,
    closed,
    hole,
    nothing,
    place,
    state,
    stopped,
    truth,
    words,
)
from support import eventually

from rankpulse.core import codec, look
from rankpulse.core.events import ACCEPTED, ANSWERED, REFUSED, SILENT, UNABLE, Action, Probe, Probed
from rankpulse.core.records import Beat, NodeState
from rankpulse.monitor.look import FROM_AFAR, HERE, sign
from rankpulse.monitor.names import Names, Unresolved
from rankpulse.monitor.prober import AT_ONCE, QUEUED_MAX, REHEARSE_S, WAITING_MAX
from rankpulse.store.memory import MemoryStore

TOKEN = b"a token that is long enough"


async def test_answered_with_its_beat() -> None:
    lookout = Lookout()
    async with place(truth()) as address:
        seen = await lookout.look(address)
    assert (seen.answer, seen.node, seen.number) == (ANSWERED, "n1", 1)
    assert seen.beat == Beat(node="n1", inc=3, seq=4, at=0.0)
    assert lookout.vitals.probes == {ANSWERED: 1}
    assert lookout.vitals.probe_s is not None


async def test_accepted_where_the_agent_says_nothing() -> None:
    lookout = Lookout(timeout_s=0.2)
    async with place(nothing) as address:
        assert (await lookout.look(address)).answer == ACCEPTED
    with stopped() as address:
        assert (await lookout.look(address)).answer == ACCEPTED
    async with place(words(b'{"v":1,', pause_s=30)) as address:  # a line that never ends
        assert (await lookout.look(address)).answer == ACCEPTED
    async with place(words(*[b"x"] * 100, pause_s=0.02)) as address:
        assert (await lookout.look(address)).answer == ACCEPTED


async def test_refused_where_nobody_listens() -> None:
    lookout = Lookout()
    seen = await lookout.look(closed())
    assert (seen.answer, seen.beat) == (REFUSED, None)
    assert "nobody listens" in seen.detail


async def test_silent_where_nothing_comes_back() -> None:
    lookout = Lookout(timeout_s=0.3)
    with hole() as address:
        lookout.learn(address)
        lookout.prober.known["n1"].reached = address  # as it was before the machine died
        assert (await lookout.look(address)).answer == SILENT


async def test_silence_of_a_place_that_was_never_reached_is_no_fact() -> None:
    lookout = Lookout(timeout_s=0.3)
    with hole() as address:
        seen = await lookout.look(address)
    assert seen.answer == UNABLE
    assert "firewall" in seen.detail


async def test_silence_of_one_that_was_never_reached_counts_where_all_others_are() -> None:
    """It had died before this monitor began."""
    lookout = Lookout(timeout_s=0.3)
    async with place(truth("n2")) as good:
        assert (await lookout.look(good, "n2")).answer == ANSWERED
    with hole() as address:
        assert (await lookout.look(address)).answer == SILENT
        for node in ("n3", "n4"):  # two of four cannot be reached: now it is no fact about one of them
            await lookout.look(address, node)
        lookout.prober._counted_at = -1e9
        assert (await lookout.look(address, "n5")).answer == UNABLE


async def test_silence_behind_our_own_waiting_looks_is_no_fact() -> None:
    """A stopped agent takes no connection: once its queue is full its kernel drops ours, though the machine lives."""
    lookout = Lookout(timeout_s=0.05)
    with stopped() as address:
        for _ in range(QUEUED_MAX):
            assert (await lookout.look(address)).answer == ACCEPTED
    lookout.prober._timeout_s = 0.3
    with hole() as address:
        known = lookout.prober.known["n1"]
        known.reached = address
        seen = await lookout.look(address)
    assert seen.answer == UNABLE
    assert "wait there" in seen.detail


@pytest.mark.parametrize(
    ("talk", "why"),
    [
        (truth("n2"), "node n2"),
        (truth(token=b"a token we do not know"), "not proved"),
        (words(b"SSH-2.0-OpenSSH_9.6\r\n", pause_s=1), "not understood"),
        (words(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "not understood"),
        (words(b"x" * 100_000, b"x" * 200_000, b"x" * 200_000), "does not stop talking"),
        (words(look.failure("busy")), "it says: busy"),
        (words(look.ask("n1", "ab" * 16, b"")), "another question"),
        (words(), "closed without an answer|broken off"),
        (broken_off, "broken off"),
    ],
    ids=range(9),
)
async def test_somebody_else_who_sits_there_is_no_fact(talk: object, why: str) -> None:
    lookout = Lookout()
    async with place(talk) as address:  # type: ignore[arg-type]
        seen = await lookout.look(address)
    assert (seen.answer, seen.beat) == (UNABLE, None)
    assert re.search(why, seen.detail)


async def test_yesterdays_answer_proves_nothing_today(tmp_path: Path) -> None:
    (tmp_path / "token").write_bytes(TOKEN)
    lookout = Lookout(token_file=str(tmp_path / "token"))
    kept: list[bytes] = []

    async def recorded(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = look.understand(await reader.readline())
        beat = codec.encode(Beat(node="n1", inc=3, seq=4, at=0.0))
        kept.append(look.answer(asked, beat, TOKEN))
        writer.write(kept[0])

    async with place(recorded) as address:
        assert (await lookout.look(address)).answer == ANSWERED
        seen = await lookout.look(address)
        assert (seen.answer, seen.beat) == (UNABLE, None)
        assert "another question" in seen.detail


@pytest.mark.parametrize(
    ("address", "boot_id", "why"),
    [
        ("", BOOT, "no address"),
        ("127.0.0.1:9", "boot-2", "only its own machine reaches"),
        ("localhost:9", "", "only its own machine reaches"),
        ("[::1]:9", "boot-2", "only its own machine reaches"),
        ("0.0.0.0:9", BOOT, "write host:port"),
        ("[::]:9", BOOT, "write host:port"),
        ("10.0.0.1", BOOT, "write host:port"),
        ("10.0.0.1:0", BOOT, "write host:port"),
        ("10.0.0.256:5", BOOT, "write host:port"),
        ("\x1b[2J:5", BOOT, "write host:port"),
        ("nohost.invalid:9", BOOT, "does not resolve"),
        ("255.255.255.255:9", BOOT, ""),
    ],
)
async def test_where_no_look_can_be_taken(address: str, boot_id: str, why: str) -> None:
    lookout = Lookout()
    seen = await lookout.look(address, boot_id=boot_id)
    assert seen.answer == UNABLE
    assert why in seen.detail
    assert seen.detail.isprintable()


@given(st.text(max_size=40))
def test_an_address_is_understood_or_is_no_fact(address: str) -> None:
    async def one() -> Probed:
        lookout = Lookout(timeout_s=0.01)
        lookout.prober._names = Names(lookout.clock, lambda name: [])
        return await lookout.look(address, boot_id="")

    assert asyncio.run(one()).answer == UNABLE


async def test_out_of_descriptors_is_our_own_trouble() -> None:
    lookout = Lookout()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        seen = await lookout.look("127.0.0.1:9")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert seen.answer == UNABLE
    assert "file descriptors" in seen.detail


@pytest.mark.parametrize("number", [*errno.errorcode, 0, 9999])
def test_every_errno_has_its_meaning(number: int) -> None:
    here, afar = sign(number, left=False), sign(number, left=True)
    assert here.answer == (REFUSED if number == errno.ECONNREFUSED else UNABLE)
    assert afar.answer in (REFUSED, SILENT, UNABLE)
    assert here.reason
    assert afar.reason


def test_only_what_the_other_side_or_its_path_did_is_a_fact() -> None:
    facts = {number for number, found in FROM_AFAR.items() if found.answer != UNABLE}
    assert facts == {errno.ECONNREFUSED, errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.EHOSTDOWN}
    assert {errno.ENETUNREACH, errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL} <= HERE.keys()


async def test_a_monitor_that_slept_concludes_nothing_from_its_looks() -> None:
    """The clock runs on while it sleeps: the time allowed has passed, and nothing that came was read in time."""
    seconds = iter([0.0, 0.0, 20.0, 20.0, 20.0, 20.0])
    lookout = Lookout(timeout_s=0.2, now=lambda: next(seconds, 20.0))
    with stopped() as address:
        seen = await lookout.look(address)
    assert seen.answer == UNABLE
    assert "did not run" in seen.detail


async def test_a_port_that_meets_itself_is_nobody() -> None:
    """On loopback TCP can connect a socket to itself; here it is made to."""
    from rankpulse.monitor import look as looks

    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.setblocking(False)
        deadline = asyncio.get_running_loop().time() + 1.0
        assert await looks._connect(sock, sock.getsockname(), deadline) == FROM_AFAR[errno.ECONNREFUSED]


async def test_many_at_once_are_bounded_and_none_is_lost() -> None:
    lookout, most = Lookout(timeout_s=10.0), 0

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal most
        most = max(most, len(lookout.prober._running))
        await asyncio.sleep(0.02)
        await truth()(reader, writer)

    async with place(slow) as address:
        lookout.prober.send([Probe("n1", address, BOOT, number) for number in range(200)])
        assert lookout.told == []  # nothing happens within the caller's turn
        await eventually(lambda: len(lookout.told) == 200, 20, "all results")
    assert most == AT_ONCE
    assert sorted(seen.number for seen in lookout.told) == list(range(200))
    assert {seen.answer for seen in lookout.told} == {ANSWERED}
    assert [seen.received_at for seen in lookout.told] == sorted(seen.received_at for seen in lookout.told)


async def test_more_than_can_wait_are_told_at_once() -> None:
    lookout = Lookout()
    lookout.prober.send([Probe(f"n{n}", "", BOOT, n) for n in range(AT_ONCE + 3 * WAITING_MAX)])
    assert any("too many looks" in seen.detail for seen in lookout.told)
    await eventually(lambda: len(lookout.told) == AT_ONCE + 3 * WAITING_MAX, 20, "a result for each")


async def test_a_bug_in_a_look_is_no_fact_and_no_end() -> None:
    lookout = Lookout()

    class Broken(Names):
        async def resolve(self, host: str, timeout_s: float) -> list[str]:
            raise ZeroDivisionError("a bug")

    lookout.prober._names = Broken(lookout.clock)
    seen = await lookout.look("10.0.0.1:9")
    assert (seen.answer, "ZeroDivisionError" in seen.detail) == (UNABLE, True)


async def test_agents_are_reached_once_before_it_matters() -> None:
    now = 100.0
    lookout = Lookout(timeout_s=0.3, now=lambda: now)
    async with place(truth()) as address:
        lookout.learn(address)
        lookout.learn("", "n2")  # an agent of an older version
        lookout.learn("127.0.0.1:9", "n3", "boot-2")
        lookout.prober.rehearse()
        await eventually(lambda: lookout.prober.shown()["n3"]["answer"], 5, "the last rehearsal")
        await eventually(lambda: lookout.prober.shown()["n1"]["reached"], 5, "the first rehearsal")
    shown = lookout.prober.shown()
    assert shown["n1"] == {"answer": ANSWERED, "detail": "", "age_s": 0.0, "reached": True}
    assert (shown["n2"]["answer"], shown["n2"]["reached"]) == ("", False)
    assert (shown["n3"]["answer"], shown["n3"]["reached"]) == (UNABLE, False)
    assert lookout.told == []
    assert lookout.vitals.probes == {}
    lookout.prober.rehearse()
    assert not lookout.prober._running, "who was reached is left alone, the others have time"
    now += REHEARSE_S
    lookout.prober.rehearse()
    assert len(lookout.prober._running) == 1
    await lookout.prober.close()


async def test_an_agent_of_an_older_version_cannot_be_looked_at_and_is_no_trouble() -> None:
    old = b'{"v":1,"node":"n1","inc":1,"at":0.0,"host":"h","agent_version":"0.0.9","interval_s":1.0}'
    found = codec.decode(NodeState, old)
    lookout = Lookout()
    lookout.prober.learn(found)
    lookout.prober.rehearse()
    assert not lookout.prober._running
    assert (await lookout.look(found.probe, boot_id=found.boot_id)).answer == UNABLE


async def test_a_new_address_is_reached_anew() -> None:
    lookout = Lookout(timeout_s=0.3)
    async with place(truth()) as first:
        assert (await lookout.look(first)).answer == ANSWERED
    with hole() as second:
        lookout.learn(second)
        assert (await lookout.look(second)).answer == UNABLE
    lookout.prober.forget("n1")
    assert lookout.prober.shown() == {}


async def test_names_are_remembered_while_the_resolver_hangs() -> None:
    now, hang = 0.0, threading.Event()

    def lookup(name: str) -> list[str]:
        if now:
            hang.wait(20)
        return ["10.0.0.7"]

    names = Names(Lookout(now=lambda: now).clock, lookup)
    assert await names.resolve("gpu07", 5.0) == ["10.0.0.7"]
    now = 1000.0
    try:
        assert await names.resolve("gpu07", 0.05) == ["10.0.0.7"]
        for n in range(30):
            with pytest.raises(Unresolved, match="does not answer"):
                await names.resolve(f"gpu{n:02d}x", 0.01)
        assert sum(thread.name == "resolve" for thread in threading.enumerate()) <= 8
    finally:
        hang.set()
    await eventually(lambda: not names._asked, 5, "the answers that come late")
    assert await names.resolve("::1", 1.0) == ["::1"]


async def test_the_system_resolver_knows_localhost() -> None:
    lookout = Lookout()
    async with place(truth()) as address:
        assert (await lookout.look(address.replace("127.0.0.1", "localhost"))).answer == ANSWERED


# -- in the loop ------------------------------------------------------------------------------------------------


class Told:
    """Stands in for the prober: what it was asked for."""

    def __init__(self) -> None:
        self.sent: list[Action] = []
        self.learned: dict[str, str] = {}
        self.rehearsals = 0

    def send(self, actions: tuple[Action, ...]) -> None:
        self.sent += [action for action in actions if isinstance(action, Probe)]

    def rehearse(self) -> None:
        self.rehearsals += 1

    def learn(self, found: object) -> None:
        self.learned[found.node] = found.probe  # type: ignore[attr-defined]

    def forget(self, node: str) -> None:
        self.learned.pop(node, None)

    async def close(self) -> None:
        pass


ASKED = Probe("n1", "127.0.0.1:9", BOOT, 7)
SEEN = Probed("n1", 7, REFUSED, None, "", 1001.0)


async def _bench(leads: bool = True) -> tuple[Bench, Told]:
    clock = Time()
    bench, told = Bench(MemoryStore(clock), clock), Told()
    bench.loop._prober = told  # type: ignore[assignment]
    bench.loop.follow_anew()
    if leads:
        await bench.election.campaign()
        await _turn(bench, 3)
        assert bench.loop.office > 0
    else:
        await _turn(bench, 3)
    return bench, told


async def _turn(bench: Bench, times: int = 1) -> None:
    for _ in range(times):
        await asyncio.sleep(0.01)
        bench.time.seconds += 0.1
        await bench.loop.turn()


async def test_looks_begin_before_the_writes_and_whatever_becomes_of_them() -> None:
    bench, told = await _bench()
    bench.store.outage(True)
    bench.engine.plans = [(create(), ASKED)]
    await bench.loop.turn()
    assert told.sent == [ASKED]
    await bench.loop.close()


async def test_a_standby_disturbs_no_agent() -> None:
    bench, told = await _bench(leads=False)
    bench.engine.always = (ASKED,)
    await _turn(bench, 3)
    assert bench.engine.ticks
    assert (told.sent, told.rehearsals) == ([], 0)
    await bench.loop.close()


async def test_what_was_seen_is_folded_in_its_turn_and_survives_a_new_listing() -> None:
    bench, _ = await _bench()
    await bench.store.put(KEYS.beat("n1"), codec.encode(Beat(node="n1", inc=1, seq=1, at=0.0)))
    await asyncio.sleep(0.01)
    bench.loop.hear(SEEN)
    await bench.loop.turn()
    assert bench.engine.names()[-2:] == ["Seen", "Probed"]
    bench.loop.hear(SEEN)
    bench.loop.follow_anew()
    await _turn(bench, 3)
    assert bench.engine.names().count("Probed") == 2
    assert SEEN in bench.engine.events
    await bench.loop.close()


async def test_where_agents_can_be_looked_at_is_learned_from_the_store() -> None:
    bench, told = await _bench()
    await bench.store.put(KEYS.state("n1"), codec.encode(state("10.0.0.1:5")))
    await bench.store.put(KEYS.state("n2"), codec.encode(state("", "n2")))
    await _turn(bench)
    assert told.learned == {"n1": "10.0.0.1:5", "n2": ""}
    await bench.store.delete(KEYS.state("n1"))
    await _turn(bench)
    assert told.learned == {"n2": ""}
    await bench.loop.close()
