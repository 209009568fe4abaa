"""What a reader of the quick start and of the guides types is typed here, word by word."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import eventually_sync

from rankpulse.drills.children import die_with_parent

REPO = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(Path(__file__).parent))
from blocks import BLOCK, blocks, script  # noqa: E402

PAGES = [REPO / "docs" / "quickstart.md", REPO / "docs" / "production.md", *sorted((REPO / "docs/guides").glob("*.md"))]
# of each page: blocks that run here, blocks that need more than this machine
COUNTS = {
    "quickstart.md": (6, 1),
    "production.md": (2, 5),
    "accelerate.md": (1, 1),
    "kubernetes.md": (0, 0),
    "slurm.md": (0, 3),
    "torchrun.md": (2, 1),
}
NEEDS = {"the network", "root", "several nodes", "Slurm"}
QUICK_START_S = 600.0  # what it promises, with the installation


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_is_run_or_says_what_it_needs(page: Path) -> None:
    found = blocks(page)
    told = page.read_text(encoding="utf-8")
    assert len(re.findall(r"^```bash$", told, flags=re.MULTILINE)) == len(found)
    assert len(re.findall("<!-- not run", told)) == sum(bool(block.needs) for block in found)
    assert {need for block in found if block.needs for need in block.needs.removeprefix("needs ").split(", ")} <= NEEDS
    assert (sum(not block.needs for block in found), sum(bool(block.needs) for block in found)) == COUNTS[page.name]


def test_a_mark_belongs_to_the_block_below_it() -> None:
    mark = "<!-- not run: needs root -->\n"
    page = f"{mark}```bash\na\n```\n\n```bash\nb\n```\n{mark}\n```bash\nc\n```\n"
    assert [(found["why"], found["text"]) for found in BLOCK.finditer(page)] == [
        ("needs root", "a\n"),
        (None, "b\n"),
        (None, "c\n"),
    ]


class Reader:
    """A shell in a fresh directory, for somebody who has installed this checkout and nothing is configured for."""

    def __init__(self, home: Path) -> None:
        from rankpulse.store.embedded import free_ports

        self.home = home
        (home / "work").mkdir()
        store, self.page_port = free_ports(2)
        # other tests may be using the usual ports and the usual run directory of this machine
        config = home / "ports.toml"
        config.write_text(f'[monitor]\nlisten = "127.0.0.1:{self.page_port}"\n[agent]\nlisten = ""\n')
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("RANKPULSE_", "TORCH"))}
        self.environ = clean | {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "RANKPULSE_STORE": f"127.0.0.1:{store}",
            "RANKPULSE_DIR": str(home / "run"),
            "RANKPULSE_CONFIG": str(config),
            "OMP_NUM_THREADS": "1",
        }
        self.shells: list[subprocess.Popen[bytes]] = []

    def start(self, text: str, log: str) -> "subprocess.Popen[bytes]":
        with open(self.home / log, "wb") as out:
            text = text.replace("127.0.0.1:9460", f"127.0.0.1:{self.page_port}")
            self.shells.append(
                subprocess.Popen(
                    die_with_parent(["bash", "-c", text]),  # it polls: a test that is killed leaves no endless loop
                    cwd=self.home / "work",
                    env=self.environ,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            )
        return self.shells[-1]

    def follow(self, page: Path) -> None:
        """Type the blocks of a page, in order. Fails with all that was said when one fails."""
        shell = self.start(script(page), page.name + ".log")
        try:
            code: int | str = shell.wait(timeout=QUICK_START_S)
        except subprocess.TimeoutExpired:
            code = "not yet"
        assert code == 0, f"{page.name}: ended with {code}\n{self.said()}"

    def said(self) -> str:
        logs = [*self.home.glob("*.log"), *(self.home / "work").glob("*.log")]
        return "\n".join(f"--- {log.name}\n{log.read_text(errors='replace')[-4000:]}" for log in logs)

    def end(self) -> None:
        """What a page leaves running ends with its shell."""
        for number, shell in [(number, shell) for number in (signal.SIGTERM, signal.SIGKILL) for shell in self.shells]:
            try:
                os.killpg(shell.pid, number)
                shell.wait(timeout=20)
            except (ProcessLookupError, subprocess.TimeoutExpired):
                continue


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    pytest.importorskip("torch")
    one = Reader(tmp_path)
    yield one
    one.end()


@pytest.mark.live
@pytest.mark.timeout(QUICK_START_S + 60)  # on a machine with other work to do
def test_the_quick_start(reader: Reader) -> None:
    reader.follow(REPO / "docs" / "quickstart.md")
    assert "killed by SIGKILL" in (reader.home / "quickstart.md.log").read_text()
    assert "all 2 ranks of round 2 go on" in (reader.home / "work" / "up.log").read_text()
    assert "rankpulse" in (reader.home / "work" / "page.html").read_text()


@pytest.fixture
def started(reader: Reader) -> Reader:
    """Where the guides begin: as the quick start has it after its first steps."""
    first = [block.text for block in blocks(REPO / "docs" / "quickstart.md") if not block.needs][:2]
    assert "rankpulse up" in first[0]
    assert "cat > train.py" in first[1]
    shell = reader.start("\n".join(["set -e", *first, "echo ready", "wait"]), "started.log")
    eventually_sync(
        lambda: shell.poll() is not None or "ready" in (reader.home / "started.log").read_text(), 60, "rankpulse up"
    )
    assert shell.poll() is None, reader.said()
    return reader


@pytest.mark.live
@pytest.mark.timeout(QUICK_START_S + 60)  # on a machine with other work to do
def test_the_guides_for_one_machine(started: Reader) -> None:
    for name in ("torchrun.md", "accelerate.md"):
        started.follow(REPO / "docs" / "guides" / name)


@pytest.mark.live
@pytest.mark.timeout(QUICK_START_S + 60)  # on a machine with other work to do
def test_the_commands_of_the_way_to_production(reader: Reader) -> None:
    reader.follow(REPO / "docs" / "production.md")
