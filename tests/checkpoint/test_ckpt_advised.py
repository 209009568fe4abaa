"""The trainer follows the monitor's advice: never waits for it, believes nothing absurd, and all ranks save alike."""

import contextlib
import os
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rankpulse.trainer.agentline import LINE_MAX
from rankpulse.trainer.checkpoint.advised import ASK_EVERY_S, Advised
from rankpulse.trainer.checkpoint.interval import LONGEST_S, SHORTEST_S, auto_s

GOOD = b'{"advice":{"interval_s":120.5,"at":1.0}}\n'


class Agent:
    """An agent's socket; the test answers, or does not."""

    def __init__(self, directory: str) -> None:
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(f"{directory}/agent.sock")
        self.listener.listen(4)
        self.listener.settimeout(5.0)

    def answers(self, data: bytes, *, hangs_up: bool = True) -> bytes:
        """What was asked."""
        connection, _ = self.listener.accept()
        connection.settimeout(5.0)
        asked = connection.recv(LINE_MAX)
        connection.sendall(data)
        if hangs_up:
            connection.close()
        else:
            self.kept = connection
        return asked

    def answers_the_newest(self, data: bytes) -> None:
        """Older questions were given up by whoever asked."""
        waiting = []
        self.listener.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                waiting.append(self.listener.accept()[0])
        if data:
            waiting[-1].sendall(data)
        for connection in waiting:
            connection.close()

    def asked_again(self) -> bool:
        self.listener.setblocking(False)
        try:
            self.listener.accept()[0].close()
        except BlockingIOError:
            return False
        return True


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch) -> Iterator[Agent]:
    with tempfile.TemporaryDirectory(prefix="rp-") as directory:
        monkeypatch.setenv("RANKPULSE_DIR", directory)
        made = Agent(directory)
        yield made
        made.listener.close()


def heard(agent: Agent, data: bytes, advised: Advised | None = None, now: float = 0.0) -> float | None:
    """What is followed after this answer."""
    advised = advised or Advised()
    advised.look(now)
    agent.answers(data)
    return advised.look(now + 1.0)


def test_what_the_agent_answers_is_followed_from_the_next_look_on(agent: Agent) -> None:
    advised = Advised()
    assert advised.look(0.0) is None, "nobody waits for the answer"
    assert agent.answers(GOOD) == b'{"op":"advice","v":1}\n'
    assert advised.look(1.0) == 120.5
    assert advised.look(ASK_EVERY_S - 1) == 120.5
    assert not agent.asked_again(), "not at every check point"
    assert advised.look(ASK_EVERY_S) == 120.5
    assert agent.asked_again()


def test_that_there_is_none_any_more_is_an_answer_and_silence_is_not(agent: Agent) -> None:
    advised = Advised()
    assert heard(agent, GOOD, advised) == 120.5
    assert heard(agent, b'{"error":"advice: the store does not tell at present"}\n', advised, 100.0) == 120.5
    assert heard(agent, b"", advised, 200.0) == 120.5
    assert heard(agent, b'{"advice":null}\n', advised, 300.0) is None


@pytest.mark.parametrize(
    "data",
    [
        b"", b"\n", b"[]\n", b'{"advice":5}\n', b'{"advice":{}}\n', b'{"advice":{"interval_s":true}}\n', b"\xff\xfe\n",
        b'{"advice":{"interval_s":"60"}}\n', b'{"advice":{"interval_s":-1}}\n', b'{"advice":{"interval_s":0}}\n',
        b'{"advice":{"interval_s":NaN}}\n', b'{"advice":{"interval_s":Infinity}}\n', b"[" * 4000 + b"\n",
        b'{"advice":{"interval_s":1e999}}\n', b'{"advice":{"interval_s":' + b"9" * 400 + b"}}\n", b"x" * 3 * LINE_MAX,
        b'{"advice":{"interval_s":60}}',
    ],
    ids=range(17),
)  # fmt: skip
def test_what_is_no_interval_is_none(agent: Agent, data: bytes) -> None:
    assert heard(agent, data) is None


def test_an_answer_may_come_in_pieces(agent: Agent) -> None:
    advised = Advised()
    advised.look(0.0)
    agent.answers(GOOD[:12], hangs_up=False)
    assert advised.look(1.0) is None
    agent.kept.sendall(GOOD[12:])
    assert advised.look(2.0) == 120.5


def test_an_agent_that_does_not_serve_holds_nothing_up(agent: Agent) -> None:
    """Stopped, or drowned: its backlog is full soon."""
    askers = [Advised() for _ in range(50)]
    began = time.monotonic()
    for number in range(3):
        assert [one.look(number * ASK_EVERY_S) for one in askers] == [None] * 50
    assert time.monotonic() - began < 5.0
    before = len(os.listdir("/proc/self/fd"))
    for one in askers:
        one.look(3 * ASK_EVERY_S)
    assert len(os.listdir("/proc/self/fd")) <= before + 4, "a question replaces the one before it"
    for one in askers:
        one.close()


@pytest.mark.parametrize("directory", ["/nothing/here", "/" + "x" * 5000])
def test_without_an_agent_nothing_happens(directory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANKPULSE_DIR", directory)
    advised = Advised()
    assert [advised.look(second * ASK_EVERY_S) for second in range(5)] == [None] * 5


@pytest.mark.parametrize("advised_s", [1e-9, 1.0, 1e8])
@pytest.mark.parametrize("save_s", [None, 0.0, 20.0, 1e4])
def test_no_advice_leads_beyond_what_people_expect(save_s: float | None, advised_s: float) -> None:
    cost = 10.0 if save_s is None else save_s
    found = auto_s(save_s, None, 64, advised_s)
    assert max(SHORTEST_S, 10 * cost) <= found <= max(LONGEST_S, 10 * cost)


def test_within_that_the_advice_is_the_interval() -> None:
    assert auto_s(2.0, None, 64, 333.0) == 333.0
    assert auto_s(2.0, None, 64, None) != 333.0


# --- the manager

torch = pytest.importorskip("torch")

from ckpt_worlds import Ranks  # noqa: E402

from rankpulse.trainer.checkpoint import CheckpointManager  # noqa: E402


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def saved(manager: CheckpointManager, clock: Clock, steps: range) -> list[int]:
    found = []
    for step in steps:
        clock.now += 1.0
        if manager.step(step) is not None:
            found.append(step)
    return found


def manager_of(path: Path, clock: Clock, **how: Any) -> CheckpointManager:
    return CheckpointManager(path, model=torch.nn.Linear(3, 2), keep_last=9, clock=clock, **how)


def test_the_manager_follows_the_advice(agent: Agent, tmp_path: Path) -> None:
    clock = Clock()
    manager = manager_of(tmp_path, clock)
    assert saved(manager, clock, range(1, 10)) == []
    agent.answers(GOOD)
    [first] = saved(manager, clock, range(10, 141))
    assert 120 <= first <= 140, "by its own estimate it would be an hour"
    manager.close()


def test_who_gives_a_figure_of_his_own_is_not_advised(agent: Agent, tmp_path: Path) -> None:
    for how in ({"mtbf_s": 1e12}, {"every_seconds": 600}):
        clock = Clock()
        manager = manager_of(tmp_path / next(iter(how)), clock, **how)
        assert saved(manager, clock, range(1, 10)) == []
        agent.answers_the_newest(GOOD)
        assert saved(manager, clock, range(10, 300)) == []
        manager.close()
        agent.answers_the_newest(b"")
    clock = Clock()
    saved(manager_of(tmp_path, clock, every_steps=500), clock, range(1, 10))
    assert not agent.asked_again(), "it has no check points"


@pytest.mark.parametrize("how", [{}, {"mtbf_s": 1e12}, {"every_seconds": 3600}], ids=str)
def test_a_checkpoint_that_is_waited_for_is_saved_once_and_soon(agent: Agent, tmp_path: Path, how: Any) -> None:
    clock = Clock()
    manager = manager_of(tmp_path, clock, **how)
    assert saved(manager, clock, range(1, 10)) == []
    agent.answers_the_newest(b'{"advice":null,"save_now":"3-i0001-0004"}\n')
    [first] = saved(manager, clock, range(10, 75))
    assert first <= 10 + ASK_EVERY_S
    agent.answers_the_newest(b'{"advice":null,"save_now":"3-i0001-0004"}\n')
    assert saved(manager, clock, range(75, 120)) == [], "asked for once, saved once"
    agent.answers_the_newest(b'{"advice":null,"save_now":"3-i0001-0005"}\n')
    assert len(saved(manager, clock, range(120, 185))) == 1
    manager.close()


@pytest.mark.parametrize("mark", [b"5", b"null", b"[]", b'""', b"true"])
def test_what_is_no_mark_asks_for_nothing(agent: Agent, mark: bytes) -> None:
    advised = Advised()
    heard(agent, b'{"advice":null,"save_now":' + mark + b"}\n", advised)
    assert not advised.save_now()


class Other:
    """A rank that is not the first: it hears what rank 0 has said."""

    rank, world_size, local_rank, local_world_size, nodes = 1, 2, 1, 2, (0, 0)

    def __init__(self, told: list[Any]) -> None:
        self.told = told

    def tell(self, value: Any) -> Any:
        return self.told.pop(0)


def test_only_rank_0_asks_and_the_others_do_as_it_says_at_the_same_steps(agent: Agent, tmp_path: Path) -> None:
    clock = Clock()
    other = manager_of(tmp_path, clock, together=Other([[False, 7], [False, 5], [True, 3]]))
    due = []
    for step in range(1, 14):
        clock.now += 1000.0  # by its own clock it would be due at once
        due.append(other._due(step))
    assert [step for step, is_due in enumerate(due, 1) if is_due] == [13]
    assert not agent.asked_again()


@pytest.mark.live
def test_real_ranks_save_at_the_same_steps_when_the_advice_comes_in_the_middle(agent: Agent, tmp_path: Path) -> None:
    """With clocks that run apart, and a rank that lags: who has not heard of it saves at no step of its own."""

    def work(rank: int) -> Any:
        clock = Clock()
        clock.now += 5000.0 * rank
        manager = manager_of(tmp_path / "saved", clock)
        found = []
        for step in range(1, 300):
            clock.now += 1.0 + rank
            if rank == 1 and step % 50 == 0:
                time.sleep(0.05)
            if rank == 0 and step == 20:
                (tmp_path / "at 20").touch()
                deadline = time.monotonic() + 20
                while not (tmp_path / "answered").exists() and time.monotonic() < deadline:
                    time.sleep(0.01)
            if manager.step(step) is not None:
                found.append(step)
        manager.close()
        return found

    ranks = Ranks(2, work, tmp_path)
    deadline = time.monotonic() + 20
    while not (tmp_path / "at 20").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    asked = agent.answers(GOOD)
    (tmp_path / "answered").touch()
    first, second = ranks.results(60)
    assert asked == b'{"op":"advice","v":1}\n'
    assert first == second
    assert len(first) == 2
    assert 120 <= first[0] <= 140
