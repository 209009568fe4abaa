"""`rankpulse top`: what is on its screen, at any width; that q leaves and a pipe gets plain text."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec
import pytest
from rich.cells import cell_len
from support import eventually_sync
from typer.testing import CliRunner

from rankpulse.cli import books
from rankpulse.cli.main import app
from rankpulse.cli.top import Watcher
from rankpulse.cli.top_page import LEAST_WIDTH, Seen, screen
from rankpulse.cli.top_state import State
from rankpulse.core import codec
from rankpulse.core.keys import Keys
from rankpulse.core.records import Leader
from rankpulse.core.settings import parse

NOW = 1_900_000_000.0
STATE: dict[str, Any] = {
    "monitor": "mon-a", "leads": True, "epoch": 4, "cluster": "prod", "armed": True, "leader": {"monitor": "mon-a"},
    "nodes": {
        **{f"n{i:02}": {"silence_s": 0.4} for i in range(8)},
        "n08": {"silence_s": 41, "suspect": True, "suspicion": {"state": "convicted"}, "look": {"answer": "refused"}},
        "n09": {"silence_s": 9, "suspect": True, "suspicion": {"state": "suspect"}},
        "n10": {"silence_s": 1, "state": {"capabilities": {"preflight": "refused, because a disk is full"}}},
    },
    "runs": {
        "u1": {
            "run_id": "llama", "outcome": "running", "round": 3, "step": 1200, "step_spread": 1, "world_size": 16,
            "phases": ["step"], "ranks": [{"rank": r, "node": "n00"} for r in range(16)],
            "checkpoint": {"age_s": 63.0}, "advice": {"interval_s": 1260.0},
            "pace": {"step_s": 1.25, "usual_step_s": 0.6, "slowdown": 2.1, "slower": True},
        },
        "u2": {"run_id": "past-run", "outcome": "finished", "round": 1},
    },
    "incidents": [
        {"id": "i0004-0001", "klass": "node_dead", "state": "open", "opened_at": NOW - 35, "run_uid": "u1",
         "run_id": "llama", "nodes": ["n08"], "action": "restart", "summary": "node n08 is gone"},
        {"id": "i0003-0001", "klass": "oom", "state": "closed", "opened_at": NOW - 900},
    ],
    "cordons": {"n11": {"author": "jo", "reason": "bad memory"}},
    "ledger": {"runs": {"u1": {"ettr": 0.9512}}},
}  # fmt: skip


def state(**change: Any) -> State:
    return msgspec.json.decode(json.dumps({**STATE, **change}).encode(), type=State)


def shown(one: State | None, width: int = 120, height: int | None = None, trouble: str = "") -> str:
    return "\n".join(line.text for line in screen(Seen(one, trouble, 12.0, NOW), width, height))


def test_all_that_matters_is_on_the_screen() -> None:
    text = shown(state())
    for part in (
        "mon-a leads, epoch 4, armed", "11 nodes, 2 silent, 1 cordoned; 1 run, 16 ranks; 1 incident open",
        "i0004-0001  node_dead  35 s", "node n08 is gone", "1200 (+1)", "1.25", "95.1%", "16/16", "63 s ago    21 min",
        "all ranks are 2.1 times slower than usual", "CONVICTED, looked at directly: refused",
        "in no round: a disk is full", "cordoned by jo: bad memory",
    ):  # fmt: skip
        assert part in text, text
    assert "i0003-0001" not in text
    assert "past-run" not in text


def test_a_run_that_is_treated_unlike_its_cluster_says_so() -> None:
    def row(armed: bool, mode: str) -> str:
        run = {"run_id": "llama", "outcome": "running", "mode": mode}
        lines = shown(state(armed=armed, runs={"u9": run})).splitlines()
        return next(line for line in lines if " llama " in line and "node_dead" not in line)

    for armed, mode, word in (
        (True, "armed", "goes on"), (True, "observe", "observed only"), (True, "paused", "paused"),
        (False, "observe", "goes on"), (False, "armed", "armed"), (False, "paused", "paused"),
    ):  # fmt: skip
        assert row(armed, mode).endswith(word), (armed, mode)


def test_state_is_told_by_marks_and_the_worst_come_first() -> None:
    rows = shown(state()).split("SILENT, BROKEN OR TAKEN OUT\n")[1].splitlines()[1:]
    assert [row.split()[:2] for row in rows] == [["!", "n08"], ["!", "n10"], ["?", "n09"], ["-", "n11"]]
    (run,) = [row for row in shown(state()).splitlines() if "1200" in row]
    assert run.startswith("!"), "an incident of it is open"


@pytest.mark.parametrize("width", [1, LEAST_WIDTH, 40, 61, 80, 1000])
@pytest.mark.parametrize("height", [4, 12, 30, None])
def test_it_fits_any_terminal(width: int, height: int | None) -> None:
    many = {f"很{i}": {"silence_s": 1, "suspect": True} for i in range(300)}
    lines = screen(Seen(state(nodes=many), "the store is gone " * 9, 5.0, NOW), width, height)
    assert max(cell_len(line.text) for line in lines) <= max(min(width, 200), LEAST_WIDTH)
    assert height is None or len(lines) <= height


def test_a_narrow_terminal_keeps_what_matters_most() -> None:
    text = shown(state(), 40)
    for part in ("i0004-0001", "node_dead", "llama", "1200 (+1)", "n08"):
        assert part in text, text
    assert "16/16" not in text


def test_what_has_no_room_is_counted() -> None:
    many = {f"n{i}": {"silence_s": 1, "suspect": True} for i in range(300)}
    lines = shown(state(nodes=many), 100, 30).splitlines()
    (told,) = [line for line in lines if line.endswith(" more")]
    assert int(told.split()[1]) + sum(line.startswith("?") for line in lines) == 300


def test_the_monitors_own_sight_is_told_first() -> None:
    blind = shown(state(blind=True, blind_reason="the watch is behind"))
    assert "! BLIND, nothing is concluded: the watch is behind" in blind.splitlines()
    stopped = shown(state(actions_stopped="the breaker is open: 9 of 10 nodes"))
    assert "! ACTIONS STOPPED: the breaker is open: 9 of 10 nodes" in stopped
    follower = shown(state(leads=False, leader={"monitor": "mon-b"}))
    assert "! mon-a does not lead: mon-b does" in follower
    old = shown(state(), trouble="http://x did not answer")
    assert "! 12 s old: http://x did not answer" in old
    assert "! nothing is known: no monitor leads" in shown(None, trouble="no monitor leads")


def test_names_steer_no_terminal() -> None:
    evil = "\x1b[2Jx\n"
    one = {**STATE["runs"]["u1"], "run_id": evil, "phases": [evil]}
    held = {"n\x1b[1m": {"author": evil, "reason": evil}}
    text = shown(state(cluster=evil, runs={"u1": one}, cordons=held, actions_stopped=evil), trouble=evil)
    assert "\x1b" not in text
    assert "[2Jx" in text


def test_an_older_monitor_without_these_figures_is_shown() -> None:
    bare = msgspec.json.decode(b'{"monitor":"m","nodes":{"a":{}},"runs":{"r":{"step":3}},"leads":true}', type=State)
    assert "1 node, 0 silent" in shown(bare)


class Monitor:
    """A page that answers as `told` says, until it is closed."""

    def __init__(self, **change: Any) -> None:
        self.told: dict[str, Any] = {**STATE, **change}
        outer = self

        class Page(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(json.dumps(outer.told).encode())

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def monitor() -> Iterator[Monitor]:
    made = Monitor()
    yield made
    made.close()


def test_a_pipe_gets_one_plain_look(monitor: Monitor) -> None:
    found = CliRunner().invoke(app, ["top", "--monitor", monitor.url + "/"])
    assert found.exit_code == 0, found.stderr
    assert "i0004-0001" in found.stdout
    assert "\x1b" not in found.stdout


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (("--monitor", "http://127.0.0.1:1"), 1, "! nothing is known: http://127.0.0.1:1"),
        (("--store", "127.0.0.1:1"), 1, "127.0.0.1:1"),
        (("--every", "0"), 2, "give seconds from 0.2"),
        (("--every", "nan"), 2, "give seconds from 0.2"),
    ],
)
def test_what_cannot_be_read_is_said(args: tuple[str, ...], code: int, words: str) -> None:
    found = CliRunner().invoke(app, ["top", "--once", *args])
    assert (found.exit_code, words in found.stdout + found.stderr) == (code, True), (found.stdout, found.stderr)


class Terminal:
    """The command on a terminal of its own."""

    def __init__(self, *args: str) -> None:
        self.ours, theirs = pty.openpty()
        self.before = os.get_terminal_size(theirs), self._modes(theirs)
        self.theirs = theirs
        self.process = subprocess.Popen(
            [sys.executable, "-m", "rankpulse.cli.main", "top", *args], stdin=theirs, stdout=theirs, stderr=theirs,
            env={**os.environ, "NO_COLOR": "1", "TERM": "xterm", "COLUMNS": "100", "LINES": "40"}, cwd="/",
        )  # fmt: skip
        self.text = ""

    @staticmethod
    def _modes(fd: int) -> list[Any]:
        import termios

        return termios.tcgetattr(fd)

    def read(self) -> str:
        while select.select([self.ours], [], [], 0.05)[0]:
            self.text += os.read(self.ours, 65536).decode(errors="replace")
        return self.text

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.ours)
        os.close(self.theirs)


@pytest.fixture
def terminal(monitor: Monitor) -> Iterator[Terminal]:
    made = Terminal("--monitor", monitor.url, "--every", "0.2")
    yield made
    made.close()


def gave_back(terminal: Terminal) -> None:
    eventually_sync(lambda: (terminal.read(), terminal.process.poll() is not None)[1], 10, "the end")
    assert terminal.process.returncode == 0, terminal.text
    assert "\x1b[?1049l" in terminal.text
    assert "Traceback" not in terminal.text
    assert Terminal._modes(terminal.theirs) == terminal.before[1]


def test_it_looks_again_and_q_gives_the_terminal_back(terminal: Terminal, monitor: Monitor) -> None:
    eventually_sync(lambda: "i0004-0001" in terminal.read(), 30, "the first screen")
    monitor.told = {**STATE, "cluster": "another-day"}
    eventually_sync(lambda: "another-day" in terminal.read(), 10, "the next one")
    os.write(terminal.ours, b"q")
    gave_back(terminal)
    assert "\x1b[31m" not in terminal.text, "without colour"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_gives_the_terminal_back_too(terminal: Terminal, number: signal.Signals) -> None:
    eventually_sync(lambda: "i0004-0001" in terminal.read(), 30, "the first screen")
    terminal.process.send_signal(number)
    gave_back(terminal)


@pytest.mark.live
async def test_it_follows_the_lead_and_says_how_old_its_words_are(etcd: str, cluster: str) -> None:
    settings = parse({"store": {"endpoints": [etcd]}, "cluster": cluster})
    key, watcher = Keys(cluster).leader(), Watcher(settings)
    assert "no monitor leads" in (await watcher.look()).trouble
    first, second = Monitor(monitor="mon-a"), Monitor(monitor="mon-b")
    async with books.opened(settings) as store:
        await store.put(key, codec.encode(Leader(monitor="mon-a", epoch=1, at=0.0, url=first.url)))
        seen = await watcher.look()
        assert (seen.state and seen.state.monitor, seen.trouble) == ("mon-a", "")
        await store.put(key, codec.encode(Leader(monitor="mon-b", epoch=2, at=0.0, url=second.url)))
        first.told["leads"] = False
        seen = await watcher.look()
        assert (seen.state and seen.state.monitor, seen.trouble) == ("mon-b", "")
    first.close()
    second.close()
    seen = await watcher.look()
    assert seen.state is not None, "what was read last stands"
    assert second.url in seen.trouble
    assert seen.age_s > 0
