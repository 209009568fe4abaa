"""What `make test` forgives of live tests, and what not."""

import subprocess
import sys
from pathlib import Path

import pytest

TWICE = Path(__file__).parents[1] / "twice.py"
TESTS = """
import pathlib, pytest
pytestmark = pytest.mark.live

@pytest.mark.parametrize("number", range(4))
def test_once_in_a_while(number):
    seen = pathlib.Path(f"{number}.seen")
    if number < int(pathlib.Path("fail_once").read_text()) and not seen.exists():
        seen.touch()
        raise AssertionError

def test_always():
    assert not pathlib.Path("broken").exists()
"""


@pytest.mark.parametrize(("once", "broken", "code"), [(0, False, 0), (2, False, 0), (3, False, 1), (1, True, 1)])
def test_one_or_two_may_pass_at_the_second_try(tmp_path: Path, once: int, broken: bool, code: int) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = live: x\n")
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "fail_once").write_text(str(once))
    if broken:
        (tmp_path / "broken").touch()
    command = [sys.executable, str(TWICE), "-p", "no:cacheprovider", "test_it.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == code, done.stdout
    assert ("PASSED AT THE SECOND TRY" in done.stdout) == (once == 2)
    assert ("once more, alone" in done.stdout) == (0 < once <= 2)


def test_what_is_no_test_that_failed_is_not_tried_again(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("import nothing_of_the_kind\n")
    command = [sys.executable, str(TWICE), "-p", "no:cacheprovider", "test_it.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2
    assert "once more" not in done.stdout
