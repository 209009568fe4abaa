"""The run directory: made like /tmp, and safe where a job was there first."""

import os
import stat
from pathlib import Path

import pytest

from rankpulse.agent import rundir

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


def test_a_private_directory(tmp_path: Path) -> None:
    assert rundir.private(str(tmp_path / "spool")) == ""
    assert stat.S_IMODE((tmp_path / "spool").stat().st_mode) == 0o700
    (tmp_path / "link").symlink_to(tmp_path / "spool")
    assert "remove it" in rundir.private(str(tmp_path / "link"))
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    assert "remove it" in rundir.private(str(tmp_path / "open"))


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
    assert "remove it" in rundir.private(str(spool))
