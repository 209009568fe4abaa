"""Tokens in a file: changed while everything runs, and never lost by a slip."""

from pathlib import Path

import pytest

from rankpulse.store.api import StoreError
from rankpulse.store.secret import Tokens

OLD, NEW = "an old token, long enough", "a new token, long enough"


class Bench:
    """A token file, a clock, and what was said."""

    def __init__(self, path: Path) -> None:
        self.path, self.now, self.said = path, 0.0, list[str]()
        self.write(OLD)
        self.tokens = Tokens(str(path), "probe.token_file", clock=lambda: self.now, warn=self.said.append)

    def write(self, *lines: str) -> None:
        """In place of the old file, as a careful person or a secret manager does."""
        fresh = self.path.with_suffix(".new")
        fresh.write_text("\n".join(lines) + "\n")
        fresh.chmod(0o600)
        fresh.replace(self.path)

    def later(self) -> tuple[bytes, ...]:
        self.now += 2.0
        return self.tokens.get()


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "token")


def test_without_a_file_there_are_no_tokens() -> None:
    tokens = Tokens("", "probe.token_file")
    assert (tokens.get(), tokens.first()) == ((), b"")


def test_a_token_is_changed_without_a_moment_of_mistrust(bench: Bench) -> None:
    assert bench.tokens.get() == (OLD.encode(),)
    bench.write(OLD, NEW)
    assert bench.later() == (OLD.encode(), NEW.encode())
    bench.write(NEW, OLD)
    assert bench.later()[0] == bench.tokens.first() == NEW.encode()
    bench.write("", f"  {NEW}  ")
    assert bench.later() == (NEW.encode(),)
    assert bench.said == []


@pytest.mark.parametrize("slip", ["gone", "empty", "short", "binary", "directory"])
def test_a_slip_leaves_the_tokens_that_were_known_and_is_said_once(bench: Bench, slip: str) -> None:
    bench.path.unlink()
    if slip == "directory":
        bench.path.mkdir()
    elif slip != "gone":
        bench.path.write_bytes({"empty": b"", "short": b"hunter2\n", "binary": b"\xff" * 40}[slip])
    for _ in range(3):
        assert bench.later() == (OLD.encode(),)
    [line] = bench.said
    assert str(bench.path) in line
    assert OLD not in line
    assert "hunter2" not in line


@pytest.mark.parametrize("content", [b"", b"\n\n", b"short\n", b"long enough for a token\nshort\n", b"x" * 5000])
def test_what_is_no_token_is_refused_at_once(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "token"
    path.write_bytes(content)
    with pytest.raises(StoreError, match="at least 16 characters"):
        Tokens(str(path), "probe.token_file")


def test_a_path_that_is_none(tmp_path: Path) -> None:
    for path in (str(tmp_path / "none"), "a\0b", str(tmp_path)):
        with pytest.raises(StoreError, match=r"probe\.token_file"):
            Tokens(path, "probe.token_file")
