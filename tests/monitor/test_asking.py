"""Questions for evidence and large snapshots, carried out by the monitor's shell: never in the loop's way."""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable

import msgspec
import pytest
from monitor_bench import Bench, Time
from probe_bench import BOOT, closed, nothing, place, words
from support import eventually

from rankpulse.core import dossier, look, look_evidence
from rankpulse.core.dossier import Part
from rankpulse.core.events import Ask, Diagnose, Diagnosed, Told
from rankpulse.core.settings import Settings
from rankpulse.core.snapshot import Job, Operation, Position, Rank, Snapshot
from rankpulse.core.snapshot_nodes import Node
from rankpulse.monitor import clock as clocks
from rankpulse.monitor.asker import AT_ONCE, Asker
from rankpulse.monitor.diagnoser import Diagnoser
from rankpulse.store.memory import MemoryStore
from rankpulse.store.secret import Tokens

Speaker = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def part(node: str = "n1", order_id: str = "c1") -> Part:
    return Part(node=node, order_id=order_id, taken_at=1.0, ranks=(Rank(0, pid=7, stack=("a",)),), report=Node(node))


def tells(told: Part, pause_s: float = 0.0) -> Speaker:
    """An agent that answers with this."""

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        said = look.understand(await reader.readline())
        await asyncio.sleep(pause_s)
        writer.write(look.answer_part(said, dossier.encode(told), b""))

    return speak


class Hall:
    """An asker, and what it has told."""

    def __init__(self, time_s: float = 2.0) -> None:
        self.told: list[Told] = []
        clock = clocks.system()
        tokens = Tokens("", "probe.token_file", clock=clock.now, warn=lambda _text: None)
        self.asker = Asker(self.told.append, tokens=tokens, boot_id=BOOT, clock=clock, time_s=time_s)

    async def ask(self, address: str, node: str = "n1") -> Told:
        self.asker.send([Ask(node, address, BOOT, "c1", "run-1", 3)])
        await eventually(lambda: bool(self.told), 5, "the answer")
        [told] = self.told
        return told


async def test_what_an_agent_tells_is_handed_on() -> None:
    async with place(tells(part())) as address:
        told = await Hall().ask(address)
    assert (told.node, told.order_id, told.part, told.detail) == ("n1", "c1", part(), "")


@pytest.mark.parametrize(
    ("speaker", "why"),
    [
        (words(look.failure("unknown op collect: this agent answers probe")), "unknown op collect"),
        (tells(part("n2")), "node n2 answers there"),
        (words(b"not json\n"), "not understood"),
        (words(b"x" * (look_evidence.LINE_MAX + 70_000) + b"\n"), "does not stop talking"),
        (nothing, "said nothing in time"),
    ],
)
async def test_everything_else_is_no_evidence_and_says_why(speaker: Speaker, why: str) -> None:
    async with place(speaker) as address:
        told = await Hall(time_s=0.4).ask(address)
    assert told.part is None
    assert why in told.detail


async def test_nobody_there_and_no_address() -> None:
    assert "nobody listens" in (await Hall().ask(closed())).detail
    assert "no address" in (await Hall().ask("")).detail


async def test_one_that_says_nothing_delays_nobody() -> None:
    hall = Hall(time_s=3.0)
    async with place(nothing) as mute, place(tells(part())) as good:
        began = time.monotonic()
        hall.asker.send([Ask("n0", mute, BOOT, "c1", "run-1", 3) for _ in range(8)])
        hall.asker.send([Ask("n1", good, BOOT, "c1", "run-1", 3)])
        await eventually(lambda: any(told.part for told in hall.told), 2, "the answer of the other")
        assert time.monotonic() - began < 1.5
        await hall.asker.close()


async def test_more_than_can_be_asked_at_once_are_all_answered() -> None:
    hall = Hall(time_s=5.0)
    async with place(tells(part(), pause_s=0.05)) as address:
        hall.asker.send([Ask("n1", address, BOOT, "c1", "run-1", 3) for _ in range(AT_ONCE + 40)])
        assert len(hall.asker._running) == AT_ONCE
        await eventually(lambda: len(hall.told) == AT_ONCE + 40, 10, "all answers")
    assert all(told.part for told in hall.told)


# --- large snapshots


def snapshot(ranks: int) -> Snapshot:
    """One rank in a lock, the others wait for it."""
    open_ = (Operation(8, "all_reduce"),)
    waits = Rank(
        0, stack=("train.py:4 step", "c10d.py:9 all_reduce"), positions=(Position("w", 8, completed=7, open=open_),)
    )
    stuck = Rank(7, stack=("train.py:5 f", "threading.py:300 acquire"), positions=(Position("w", 7, completed=7),))
    told = (msgspec.structs.replace(stuck if r == 7 else waits, rank=r, node=f"n{r // 8}") for r in range(ranks))
    return Snapshot(job=Job(still_s=9.0, steps_moving=False, world_size=ranks), ranks=tuple(told))


async def test_a_large_snapshot_is_diagnosed_while_the_loop_turns() -> None:
    told: list[Diagnosed] = []
    diagnoser = Diagnoser(told.append, clock=clocks.system(), time_s=60.0)
    gaps, last = [0.0], time.monotonic()
    diagnoser.send([Diagnose(5, snapshot(16_384))])
    deadline = time.monotonic() + 60
    while not told and time.monotonic() < deadline:
        await asyncio.sleep(0.01)
        now = time.monotonic()
        gaps.append(now - last)
        last = now
    [found] = told
    assert (found.number, found.detail) == (5, "")
    assert found.verdict is not None
    assert (found.verdict.klass, found.verdict.culprits.ranks) == ("collective_hang", (7,))
    assert len(gaps) > 10
    assert max(gaps) < Settings().detect.observer_gap_s, "the monitor would seem asleep to itself"
    await diagnoser.close()


@pytest.mark.parametrize(
    ("child", "why"),
    [
        ((sys.executable, "-c", "import sys; sys.stdin.read(); sys.exit(3)"), "code 3"),
        ((sys.executable, "-c", "import sys; sys.stdin.read(); print('{}')"), "nothing sound"),
        ((sys.executable, "-c", "import time; time.sleep(60)"), "longer than"),
        (("/nowhere/python",), "could be started"),
    ],
)
async def test_a_child_that_fails_leaves_the_reason_and_not_itself(child: tuple[str, ...], why: str) -> None:
    told: list[Diagnosed] = []
    diagnoser = Diagnoser(told.append, clock=clocks.system(), child=child, time_s=1.0)
    diagnoser.send([Diagnose(1, snapshot(16)), Diagnose(2, snapshot(16))])
    await eventually(lambda: len(told) == 2, 10, "both answers")
    assert [found.number for found in told] == [1, 2]
    assert all(found.verdict is None and why in found.detail for found in told)
    await diagnoser.close()


async def test_only_a_leader_asks_and_answers_are_folded_in_their_turn() -> None:
    sent: list[object] = []

    class Helper:
        def send(self, actions: object) -> None:
            sent.append(actions)

        async def close(self) -> None:
            pass

    clock = Time()
    bench = Bench(MemoryStore(clock), clock)
    bench.loop._helpers = (Helper(),)
    bench.loop.follow_anew()
    for _ in range(3):
        await asyncio.sleep(0.01)
        await bench.loop.turn()
    assert sent == []
    await bench.election.campaign()
    bench.loop.hear(Told("n1", "c1", None, "", clock.seconds))
    for _ in range(3):
        await asyncio.sleep(0.01)
        bench.time.seconds += 0.1
        await bench.loop.turn()
    assert sent
    assert any(isinstance(event, Told) for event in bench.engine.events)
