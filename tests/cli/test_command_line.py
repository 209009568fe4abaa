"""The command itself, as people meet it: help that teaches, and every failure in a sentence without a traceback."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rankpulse.cli.main import app

COMMANDS = (
    *("agent", "monitor", "up", "demo", "status", "incidents", "explain", "evidence", "arm", "disarm", "restart"),
    *("doctor", "config", "bench", "sim", "ckpt", "version", "pause", "resume", "cordon", "uncordon", "maintenance"),
    *("breaker", "top", "report", "webhook-receiver"),
)
NEEDS_STORE = (
    ["status"],
    ["status", "--json"],
    ["incidents"],
    ["explain", "last"],
    ["evidence", "last"],
    ["arm", "--reason", "x"],
    ["disarm", "--reason", "x"],
    ["restart", "r", "--reason", "x"],
    ["pause", "r", "--reason", "x"],
    ["maintenance", "n", "--reason", "x"],
    ["breaker", "show"],
    ["report"],
)


def rankpulse(*args: str, cwd: Path | None = None, **environ: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, with nothing configured but what is given."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("RANKPULSE_")}
    return subprocess.run(
        [sys.executable, "-m", "rankpulse.cli.main", *args],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=cwd or "/",
        env={**clean, **environ},
    )


def here(*args: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """The command in this process: the same, and quicker."""
    clean = {key: None for key in os.environ if key.startswith("RANKPULSE_")}
    result = CliRunner().invoke(app, list(args), env={**clean, **environ})
    return subprocess.CompletedProcess(args, result.exit_code, result.stdout, result.stderr)


def refused(done: subprocess.CompletedProcess[str], *parts: str) -> None:
    """It failed as bad input should."""
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    for part in parts:
        assert part in done.stderr, done.stderr


@pytest.fixture
def closed_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


@pytest.fixture
def web_server(tmp_path: Path) -> Iterator[str]:
    """A port where something else listens."""
    import http.server
    import threading

    server = http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_help_names_every_command_and_teaches_by_example() -> None:
    text = CliRunner().invoke(app, ["--help"]).stdout
    for command in COMMANDS:
        assert f"\n  {command} " in text, command
    for example in ("rankpulse demo", "rankpulse monitor --store", "rankpulse explain last"):
        assert example in text


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str) -> None:
    result = CliRunner().invoke(app, [command, "--help"])
    assert result.exit_code == 0
    assert len(result.stdout) > 100


def test_help_imports_no_room() -> None:
    code = (
        "import sys\nsys.argv = ['rankpulse', '--help']\nfrom rankpulse.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "heavy = [m for m in ('grpc', 'aiohttp', 'torch', 'msgspec', 'prometheus_client') if m in sys.modules]\n"
        "sys.exit(repr(heavy) if heavy else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_version() -> None:
    assert CliRunner().invoke(app, ["version"]).stdout.startswith("rankpulse ")


@pytest.mark.parametrize("args", NEEDS_STORE, ids=" ".join)
def test_without_a_store_every_command_says_where_it_looked(args: list[str], closed_port: str) -> None:
    refused(here(*args, RANKPULSE_STORE=closed_port), closed_port)


def test_a_web_server_is_not_etcd(web_server: str) -> None:
    refused(rankpulse("status", "--store", web_server), web_server)


def test_an_endpoint_of_no_known_form_is_refused() -> None:
    refused(here("status", "--store", "not a place"), "not a place")


@pytest.mark.parametrize(
    "args",
    [
        ["status", "--config", "/nonexistent/x.toml"],
        ["status", "--config", "/"],
        ["monitor", "--config", "/"],
        ["agent", "--config", "/"],
        ["config", "--check", "/"],
        ["status", "--cluster", "a/b"],
        ["status", "--cluster", ""],
        ["monitor", "--preset", "fastest"],
        ["monitor", "--listen", "nowhere"],
        ["agent", "--node", "../../etc", "--listen", ""],
        ["arm"],
        ["arm", "--reason", "  "],
        ["arm", "--reason", "\udcff"],
        ["webhook", "test", "pag\udcff", "--reason", "x"],
        ["explain"],
        ["nonsense"],
        ["status", "--nonsense"],
    ],
    ids=" ".join,
)
def test_bad_input_is_refused_in_a_sentence(args: list[str], closed_port: str) -> None:
    done = here(*args, RANKPULSE_STORE=closed_port)
    assert done.returncode == 2, (done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    assert done.stderr


@pytest.mark.parametrize("seconds", ["0", "nan", "inf", "1e+300"])
def test_a_cordon_ends_after_a_time_that_there_is(seconds: str, closed_port: str) -> None:
    refused(here("cordon", "n", "--for", seconds, "--reason", "x", RANKPULSE_STORE=closed_port), f"--for {seconds}")


def test_a_bad_file_is_told_whole(tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text("colour = 1\n[store]\ntimeout_s = -1\nendpoint = 2\n")
    refused(here("config", "--check", str(path)), "colour", "store.endpoint")
    path.write_text("[store\n")
    refused(here("config", "--check", str(path)), "line 1")


def test_files_that_a_file_names_are_looked_for_when_it_is_checked(tmp_path: Path) -> None:
    path = tmp_path / "some.toml"
    path.write_text('[store]\nca_file = "/nonexistent/ca"\nuser = "u"\npassword_file = "/nonexistent/p"\n')
    refused(here("config", "--check", str(path)), "/nonexistent/ca does not exist", "/nonexistent/p does not exist")
    refused(here("status", "--config", str(path)), "store.ca_file: /nonexistent/ca does not exist")
    assert here("config", "--config", str(path)).returncode == 0


@pytest.mark.parametrize("content", [b"", b"short\n", b"\xff" * 40])
def test_a_file_of_tokens_that_cannot_serve_is_told_before_anything_starts(tmp_path: Path, content: bytes) -> None:
    token, path = tmp_path / "token", tmp_path / "some.toml"
    token.write_bytes(content)
    token.chmod(0o600)
    path.write_text(f'[probe]\ntoken_file = "{token}"\n')
    said = f"probe.token_file {token}: each line must be a token of at least 16 characters"
    refused(here("config", "--check", str(path)), said)
    refused(here("up", "--config", str(path)), said)
    assert len(here("up", "--config", str(path)).stderr.splitlines()) == 1


def test_the_help_of_the_simulator_names_what_can_be_asked_for() -> None:
    text = here("sim", "--help").stdout
    for what in ("crash", "monitor_cut", "3 to 1,440", "overtaken", "clear"):
        assert what in text


def test_what_is_hardly_meant_is_said_of_a_good_file(tmp_path: Path) -> None:
    (tmp_path / "rankpulse.toml").write_text("[detect]\nnode_dead_after_s = 60.0\n")
    done = rankpulse("config", "--check", "rankpulse.toml", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "rankpulse.toml: good\n")
    assert "rack_dead_after_s is 17 by the cost rule" in done.stderr


def test_a_good_file_is_good_and_the_effective_settings_can_be_printed(tmp_path: Path) -> None:
    (tmp_path / "rankpulse.toml").write_text('cluster = "here"\n')
    assert rankpulse("config", "--check", "rankpulse.toml", cwd=tmp_path).stdout == "rankpulse.toml: good\n"
    assert 'cluster = "here"' in rankpulse("config", cwd=tmp_path).stdout
    assert json.loads(rankpulse("config", "--json", cwd=tmp_path, RANKPULSE_CLUSTER="env").stdout)["cluster"] == "env"


def test_a_taken_port_stops_the_monitor_and_says_how_to_choose_another(closed_port: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        refused(rankpulse("monitor", "--store", closed_port, "--listen", place), place, "--listen")


def test_a_bug_is_one_line_and_a_traceback_on_request() -> None:
    code = (
        "import rankpulse.cli.config as c, sys\n"
        "def load(*a): raise RuntimeError('secret detail')\n"
        "c.load = load\nsys.argv = ['rankpulse', 'status']\nfrom rankpulse.cli.main import main\nmain()\n"
    )
    for debug in ("", "1"):
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={**os.environ, "RANKPULSE_DEBUG": debug},
        )
        assert done.returncode == 70
        assert "this is a bug in rankpulse: RuntimeError: secret detail" in done.stderr
        assert ("Traceback" in done.stderr) is bool(debug)


@pytest.mark.parametrize("args", [["version"], ["--help"], ["config", "--json"]], ids=" ".join)
def test_output_that_has_no_place_is_no_bug(args: list[str]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "rankpulse.cli.main", *args],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr.startswith("rankpulse: the output cannot be written: ")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.live  # imports torch
def test_doctor_finds_what_is_missing_and_says_the_remedy(closed_port: str, tmp_path: Path) -> None:
    done = rankpulse("doctor", "--store", closed_port, "--run-dir", str(tmp_path), "--json")
    found = {check["name"]: check for check in json.loads(done.stdout)}
    assert done.returncode == 1
    assert found["store"]["level"] == "fail"
    assert found["agent"]["level"] == "warn"
    assert found["run directory"]["level"] == "ok"
    assert all(check["remedy"] for check in found.values() if check["level"] != "ok")


def test_ctrl_c_ends_quietly(tmp_path: Path) -> None:
    """A command that waits for a store which never answers."""
    config = tmp_path / "patient.toml"
    config.write_text("[store]\ntimeout_s = 120.0\n")  # it must not end by itself, however slow this machine is
    with socket.create_server(("127.0.0.1", 0)) as silent:
        place = f"127.0.0.1:{silent.getsockname()[1]}"
        process = subprocess.Popen(
            [sys.executable, "-m", "rankpulse.cli.main", "status", "--config", str(config), "--store", place],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's `make check &` ignores it
        )
        silent.settimeout(30)
        with silent.accept()[0] as connection:
            connection.sendall(bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))  # HTTP/2 SETTINGS: else it gives up within seconds
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (130, "", "")


def test_a_monitor_does_not_start_with_a_topology_that_contradicts_itself(tmp_path: Path) -> None:
    topology, config = tmp_path / "topology.toml", tmp_path / "rankpulse.toml"
    topology.write_text('["n[0-3]"]\nrack = "r1"\n["n2"]\nrack = "r2"\n')
    config.write_text(f'[monitor]\nlisten = ""\ntopology_file = "{topology}"\n')
    refused(rankpulse("monitor", "--config", str(config)), "n2: rack is 'r1' in one table and 'r2' in another")
    refused(here("config", "--check", str(config)), "monitor.topology_file", "n2: rack is")
