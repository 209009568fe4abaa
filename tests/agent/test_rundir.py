"""The run directory: made like /tmp, and safe where a job was there first."""

import os
import stat
from pathlib import Path

import pytest

from rankpulse.agent import folder, rundir

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: acts as several users")


def test_made_like_tmp(tmp_path: Path) -> None:
    path = tmp_path / "a" / "run"
    rundir.prepare(str(path))
    rundir.prepare(str(path))
    assert stat.S_IMODE(path.stat().st_mode) == 0o1777


def test_a_link_or_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    (tmp_path / "file").write_text("")
    for name in ("link", "file"):
        with pytest.raises(rundir.BadRunDir, match=r"set agent\.run_dir"):
            rundir.prepare(str(tmp_path / name))


def test_one_holder_per_directory(tmp_path: Path) -> None:
    first = rundir.lock(str(tmp_path))
    with pytest.raises(rundir.Locked, match=str(os.getpid())):
        rundir.lock(str(tmp_path))
    os.close(first)
    os.close(rundir.lock(str(tmp_path)))


def test_a_lock_that_was_removed_or_replaced_is_not_held(tmp_path: Path) -> None:
    lock = rundir.lock(str(tmp_path))
    assert rundir.holds(str(tmp_path), lock)
    (tmp_path / "agent.lock").unlink()
    assert not rundir.holds(str(tmp_path), lock)
    (tmp_path / "agent.lock").write_text("")
    assert not rundir.holds(str(tmp_path), lock)
    os.close(lock)


def test_a_private_directory(tmp_path: Path) -> None:
    folder.private(str(tmp_path / "spool")).close()
    assert stat.S_IMODE((tmp_path / "spool").stat().st_mode) == 0o700
    (tmp_path / "link").symlink_to(tmp_path / "spool")
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "file").write_text("")
    for name in ("link", "open", "file"):
        with pytest.raises(folder.BadFolder, match="remove it"):
            folder.private(str(tmp_path / name))


def test_a_folder_is_left_by_no_link(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "file").write_text("secret")
    ours = folder.private(str(tmp_path / "spool"))
    for name in ("a", "b.tmp"):
        (tmp_path / "spool" / name).symlink_to(victim / "file")
    with pytest.raises(OSError, match="symbolic links"):
        ours.read("a", 10)
    with pytest.raises(OSError, match="symbolic links"):
        ours.write("b", b"x")
    (tmp_path / "spool").rename(tmp_path / "away")
    (tmp_path / "spool").symlink_to(victim)
    assert not ours.in_place()
    ours.write("c", b"x")
    assert [path.name for path in victim.iterdir()] == ["file"]
    assert (victim / "file").read_text() == "secret"
    assert ours.read("c", 10) == b"x"
    ours.close()


@root_only
def test_root_takes_over_what_a_job_made(tmp_path: Path) -> None:
    path = tmp_path / "run"
    path.mkdir()
    path.chmod(0o1777)
    os.chown(path, 12345, 12345)
    lock = path / "agent.lock"
    lock.write_text("")
    os.chown(lock, 12345, 12345)
    spool = path / "spool"
    spool.mkdir()
    os.chown(spool, 12345, 12345)
    rundir.prepare(str(path))
    assert path.stat().st_uid == 0
    os.close(rundir.lock(str(path)))
    assert lock.stat().st_uid == 0
    with pytest.raises(folder.BadFolder, match="remove it"):
        folder.private(str(spool))


@root_only
@pytest.mark.parametrize("mode", [0o755, 0o700, 0o777])
def test_root_serves_no_other_directory_of_a_user(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "run"
    path.mkdir()
    path.chmod(mode)
    os.chown(path, 12345, 12345)
    with pytest.raises(rundir.BadRunDir, match=r"belongs to user 12345.*set agent\.run_dir"):
        rundir.prepare(str(path))
    assert path.stat().st_uid == 12345


@root_only
def test_root_lets_nobody_rename_what_others_put_there(tmp_path: Path) -> None:
    path = tmp_path / "run"
    path.mkdir()
    path.chmod(0o777)
    rundir.prepare(str(path))
    assert stat.S_IMODE(path.stat().st_mode) == 0o1777
