"""Telling the agent of a checkpoint: never raises, never waits, never more than it reads."""

import json
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rankpulse.agent import messages
from rankpulse.trainer.agentline import LINE_MAX
from rankpulse.trainer.checkpoint import report


@pytest.fixture
def listener(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """An agent's socket that nobody serves."""
    monkeypatch.setenv("RANKPULSE_DIR", str(tmp_path))
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(tmp_path / "agent.sock"))
        made.listen(1)
        yield made


def heard(listener: socket.socket) -> bytes:
    """All that one sender said; it has hung up already."""
    connection, _ = listener.accept()
    with connection, connection.makefile("rb") as lines:
        return lines.read()


def test_a_line_waits_for_the_agent_when_the_sender_is_gone(listener: socket.socket) -> None:
    assert report.tell("saved", step=7, bytes=10, shards=2, kind="sharded", save_s=0.5, verified=True, verify_s=0.1)
    line = heard(listener)
    assert line.endswith(b"\n")
    assert json.loads(line) == {
        "op": "checkpoint", "v": 1, "event": "saved", "step": 7, "bytes": 10, "shards": 2, "kind": "sharded",
        "save_s": 0.5, "verified": True, "verify_s": 0.1,
    }  # fmt: skip


def test_without_an_agent_nothing_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANKPULSE_DIR", str(tmp_path / "nothing here"))
    assert not report.tell("saved", step=1)
    (tmp_path / "agent.sock").write_text("no socket")
    monkeypatch.setenv("RANKPULSE_DIR", str(tmp_path))
    assert not report.tell("saved", step=1)
    monkeypatch.setenv("RANKPULSE_DIR", "/" + "x" * 5000)
    assert not report.tell("saved", step=1)


def test_one_that_does_not_serve_is_not_waited_for(listener: socket.socket) -> None:
    """Stopped, or drowned: its backlog is full soon."""
    began = time.monotonic()
    told = [report.tell("save_failed", step=1, reason="r") for _ in range(200)]
    assert time.monotonic() - began < 5.0
    assert told[0]
    assert not told[-1]


@pytest.mark.parametrize(
    "reason",
    ["x" * 100_000, "ä" * 100_000, "\x00\x1b" * 50_000, '"' * 100_000, "\ud800" * 9000, "𐍈" * 50_000],
    ids=["long", "two bytes", "escaped", "quotes", "half characters", "four bytes"],
)
def test_long_reasons_are_cut(listener: socket.socket, reason: str) -> None:
    assert report.tell("refused", step=3, reason=reason)
    line = heard(listener)
    assert len(line) <= LINE_MAX
    news = messages.news(json.loads(line))
    assert isinstance(news, messages.CheckpointRefused)
    assert news.step == 3
    assert len(news.reason) > 100


class Odd:
    def __str__(self) -> str:
        raise RuntimeError("nobody asks me")

    __float__ = __int__ = __index__ = __len__ = __str__  # type: ignore[assignment]


def test_what_cannot_be_said_is_left_out(listener: socket.socket) -> None:
    nan, far = float("nan"), 2**70
    assert report.tell("loaded", step=3, load_s=nan, verify_s=float("inf"), bytes=far, level=Odd())  # type: ignore[arg-type]
    assert json.loads(heard(listener)) == {"op": "checkpoint", "v": 1, "event": "loaded", "step": 3}


def test_nobody_speaks_as_something_else(listener: socket.socket) -> None:
    assert report.tell("saved", op="hold", v=9, step=1)
    assert json.loads(heard(listener)) == {"op": "checkpoint", "v": 1, "event": "saved", "step": 1}


def test_what_never_fits_is_not_said(listener: socket.socket) -> None:
    assert not report.tell("saved", **{f"n{number}": number for number in range(2000)})


def test_numbers_of_numpy_are_numbers(listener: socket.socket) -> None:
    numpy = pytest.importorskip("numpy")
    assert report.tell("loaded", step=numpy.int64(3), load_s=numpy.float32(0.5), verify_s=2)
    said = json.loads(heard(listener))
    assert (said["step"], said["load_s"], said["verify_s"]) == (3, 0.5, 2)


def test_no_descriptor_is_left(listener: socket.socket) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(50):
        report.tell("saved", step=1)
    assert len(os.listdir("/proc/self/fd")) == before
