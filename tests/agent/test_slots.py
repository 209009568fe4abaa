"""Scanning: who is adopted, who is dead, who is refused, and what is cleared away."""

import fcntl
import os
import time
from pathlib import Path

import pytest
from agent_bench import Crew, dead_pid, put_slot, slot_bytes

from rankpulse.agent.slots import Adopted, Departed, Refused, Scanner, remove


def scanner(run_dir: str, *, grace_s: float = 0.0, sees_all: bool = True) -> Scanner:
    return Scanner(run_dir, grace_s=grace_s, sees_all=sees_all)


def test_each_is_found_once(run_dir: str, crew: Crew) -> None:
    job = crew.job()
    put_slot(run_dir, dead_pid(), slot_bytes())
    put_slot(run_dir, os.getpid(), slot_bytes(), tag="00000001")
    looking = scanner(run_dir)
    found = {type(finding): finding for finding in looking.scan()}
    assert set(found) == {Adopted, Departed, Refused}
    assert looking.scan() == []
    adopted = found[Adopted]
    assert isinstance(adopted, Adopted)
    assert adopted.process.pid == job.pid
    adopted.file.close()
    os.close(adopted.process.pidfd)


def test_where_no_name_came_or_went_there_is_nothing_to_look_for(run_dir: str) -> None:
    looking = scanner(run_dir, grace_s=60.0)
    assert not looking.quiet(), "nobody has looked yet"
    assert looking.scan() == []
    assert looking.quiet()
    path = put_slot(run_dir, dead_pid(), b"")
    assert not looking.quiet(), "a name came"
    looking.scan()
    _aged(path.parent)
    looking.scan()
    assert not looking.quiet(), "it is looked at again"
    path.write_bytes(slot_bytes())
    _aged(path.parent)
    assert len(looking.scan()) == 1
    assert looking.quiet()
    path.unlink()
    assert not looking.quiet(), "a name went"


def test_a_directory_that_has_just_changed_may_change_unseen(run_dir: str) -> None:
    """The clock of the times of files stands still for some milliseconds at a time."""
    path = put_slot(run_dir, dead_pid(), slot_bytes())
    looking = scanner(run_dir)
    assert len(looking.scan()) == 1
    now_ns = time.time_ns()
    os.utime(path.parent, ns=(now_ns, now_ns))
    looking.scan()
    assert not looking.quiet()


def _aged(directory: Path) -> None:
    when_ns = time.time_ns() - 1_000_000_000
    os.utime(directory, ns=(when_ns, when_ns))


def test_a_slot_in_the_making_is_looked_at_again(run_dir: str) -> None:
    path = put_slot(run_dir, dead_pid(), b"")
    looking = scanner(run_dir, grace_s=60.0)
    assert looking.scan() == []
    path.write_bytes(slot_bytes())
    (finding,) = looking.scan()
    assert isinstance(finding, Departed)


def test_a_pid_given_to_a_younger_process_is_a_death(run_dir: str) -> None:
    path = put_slot(run_dir, os.getpid(), slot_bytes())
    os.utime(path, (1000.0, 1000.0))  # long before this process began
    (finding,) = scanner(run_dir).scan()
    assert isinstance(finding, Departed)
    assert finding.dead.start == 0


def test_whom_another_namespace_may_hide_is_not_called_dead(run_dir: str) -> None:
    path = put_slot(run_dir, dead_pid(), slot_bytes())
    with path.open("rb") as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)
        (finding,) = scanner(run_dir, sees_all=False).scan()
    assert isinstance(finding, Refused)
    assert "pid namespace" in finding.reason
    (finding,) = scanner(run_dir, sees_all=False).scan()
    assert isinstance(finding, Departed)


@pytest.mark.parametrize("data", [slot_bytes()[:4000], bytes(4096), b"\xff" * 4096, b"RKPULSE\0\2\0" + bytes(4086)])
def test_what_was_refused_is_removed_an_hour_after(run_dir: str, data: bytes) -> None:
    path = put_slot(run_dir, dead_pid(), data)
    looking = scanner(run_dir)
    (finding,) = looking.scan()
    assert isinstance(finding, Refused)
    assert path.exists()
    os.utime(path, (time.time() - 7200,) * 2)
    looking.scan()
    assert not path.exists()


def test_what_a_living_process_may_own_is_kept(run_dir: str) -> None:
    path = put_slot(run_dir, os.getpid(), bytes(4096))
    os.utime(path, (time.time() - 7200,) * 2)
    looking = scanner(run_dir)
    looking.scan()
    looking.scan()
    assert path.exists()


def test_removing_spares_what_took_the_name(run_dir: str) -> None:
    path = put_slot(run_dir, dead_pid(), slot_bytes())
    (finding,) = scanner(run_dir).scan()
    assert isinstance(finding, Departed)
    keeper = path.with_suffix(".old")
    path.rename(keeper)
    path.write_bytes(b"another")
    remove(run_dir, finding.file)
    assert path.exists()
    path.unlink()
    keeper.rename(path)
    remove(run_dir, finding.file)
    assert not path.exists()


def test_a_link_in_place_of_a_users_directory_is_not_followed(run_dir: str, tmp_path: Path) -> None:
    put_slot(str(tmp_path), dead_pid(), slot_bytes())
    (Path(run_dir) / "u77").symlink_to(tmp_path / f"u{os.geteuid()}")
    assert scanner(run_dir).scan() == []


def test_a_run_directory_that_is_gone(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        scanner(str(tmp_path / "gone")).scan()
