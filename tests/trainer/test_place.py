"""The run directory: made when missing, refused when not ours, swept of the dead."""

import os
import stat
import time
from pathlib import Path

import pytest

from rankpulse.core import slot
from rankpulse.trainer import place

DEAD_PID = 2**22 + 1  # above the kernel's largest
OLD_S = place.SWEEP_AFTER_S + 60


@pytest.fixture
def own(tmp_path: Path) -> Path:
    return tmp_path / "run" / f"u{os.geteuid()}"


@pytest.fixture
def own_fd(tmp_path: Path, own: Path) -> int:
    fd, path = place.own_dir(str(own.parent), os.geteuid())
    assert path == str(own)
    return fd


def left(own: Path, name: str, age_s: float, data: bytes = b"") -> Path:
    """A file that a process left `age_s` ago."""
    path = own / name
    path.write_bytes(data)
    os.utime(path, (time.time() - age_s,) * 2)
    return path


def test_directories_are_made_like_tmp_and_private(own: Path, own_fd: int) -> None:
    assert stat.S_IMODE(own.parent.stat().st_mode) == 0o1777
    assert stat.S_IMODE(own.stat().st_mode) == 0o700


def test_directories_that_exist_are_kept(own: Path, own_fd: int) -> None:
    own.parent.chmod(0o755)
    place.own_dir(str(own.parent), os.geteuid())
    assert stat.S_IMODE(own.parent.stat().st_mode) == 0o755


@pytest.mark.parametrize("mode", [0o770, 0o702, 0o777])
def test_a_directory_others_may_write_is_refused(own: Path, own_fd: int, mode: int) -> None:
    own.chmod(mode)
    with pytest.raises(place.Unsafe, match="can be written by others"):
        place.own_dir(str(own.parent), os.geteuid())


def test_a_directory_of_another_is_refused(own: Path, own_fd: int) -> None:
    other = os.geteuid() + 1
    (own.parent / f"u{other}").mkdir(0o700)
    with pytest.raises(place.Unsafe, match="can be written by others"):
        place.own_dir(str(own.parent), other)


def test_a_link_or_a_file_in_its_place_is_refused(tmp_path: Path, own: Path) -> None:
    own.parent.mkdir()
    (tmp_path / "elsewhere").mkdir(0o700)
    own.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(place.Unsafe, match="not a directory"):
        place.own_dir(str(own.parent), os.geteuid())
    own.unlink()
    own.write_text("")
    with pytest.raises(place.Unsafe, match="not a directory"):
        place.own_dir(str(own.parent), os.geteuid())


def test_a_slot_is_none_until_published(own: Path, own_fd: int) -> None:
    shared = place.create(own_fd, "1-00000000.slot")
    path = own / "1-00000000.slot"
    assert path.stat().st_size == slot.SLOT_SIZE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(slot.SlotRefused):
        slot.read(path.read_bytes)
    slot.PULSE.pack_into(shared, slot.PULSE_AT, 1, -1, -1, 0, 0.0, b"init", 1, 1)
    place.publish(shared, slot.pack_json({"rank": 0}, slot.IDENTITY_MAX))
    assert slot.read(path.read_bytes).identity == {"rank": 0}


def test_a_slot_never_takes_another_file(own: Path, own_fd: int, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("x")
    (own / "1-00000000.slot").symlink_to(tmp_path / "precious")
    with pytest.raises(FileExistsError):
        place.create(own_fd, "1-00000000.slot")
    assert (tmp_path / "precious").read_text() == "x"


def test_the_dead_are_swept_after_an_hour(own: Path, own_fd: int) -> None:
    swept = [
        left(own, f"{DEAD_PID}-00000001.slot", OLD_S),
        left(own, f"{DEAD_PID}-00000002.sock", OLD_S),
        left(own, f"{DEAD_PID}-00000003.slot", OLD_S, b"rubbish" * 900),
    ]
    kept = [
        left(own, f"{DEAD_PID}-00000004.slot", 60),
        left(own, f"{os.getpid()}-00000005.slot", OLD_S),
        left(own, "1-00000006.slot", OLD_S),
        left(own, "notes.txt", OLD_S),
        left(own, f"{DEAD_PID}-0000000g.slot", OLD_S),
        left(own, f"{DEAD_PID}-00000007.slot", OLD_S, slot_written(seconds_ago=60)),
    ]
    assert place.sweep(own_fd) == len(swept)
    assert not any(path.exists() for path in swept)
    assert all(path.exists() for path in kept)


def slot_written(seconds_ago: float) -> bytes:
    stamp_ns = time.monotonic_ns() - int(seconds_ago * 1e9)
    return slot.image({}, slot.Pulse(1, 1, max(stamp_ns, 0), 0.0, "train", 1))


def test_a_slot_that_some_process_maps_is_kept_though_its_pid_is_unknown_here(own: Path, own_fd: int) -> None:
    name = f"{DEAD_PID}-00000001.slot"
    shared = place.create(own_fd, name)
    sock = left(own, f"{DEAD_PID}-00000001.sock", OLD_S)
    os.utime(own / name, (time.time() - OLD_S,) * 2)
    slot.PULSE.pack_into(shared, slot.PULSE_AT, 1, 1, 1, 2**62, 0.0, b"train", 1, 1)
    assert place.sweep(own_fd) == 0
    assert sock.exists()
    shared.close()
    os.utime(own / name, (time.time() - OLD_S,) * 2)
    assert place.sweep(own_fd) >= 1
    assert not (own / name).exists()


@pytest.mark.parametrize("made", ["directory", "link", "fifo"])
def test_odd_things_named_like_slots_do_not_stop_the_sweep(own: Path, own_fd: int, made: str) -> None:
    odd = own / f"{DEAD_PID}-00000001.slot"
    {"directory": odd.mkdir, "link": lambda: odd.symlink_to("/nowhere"), "fifo": lambda: os.mkfifo(odd)}[made]()
    os.utime(odd, (time.time() - OLD_S,) * 2, follow_symlinks=False)
    old = left(own, f"{DEAD_PID}-00000002.slot", OLD_S)
    place.sweep(own_fd)
    assert not old.exists()


def test_the_run_directory_is_absolute_whatever_is_set() -> None:
    assert place.run_dir({}) == place.DEFAULT_DIR
    assert place.run_dir({"RANKPULSE_DIR": ""}) == place.DEFAULT_DIR
    assert Path(place.run_dir({"RANKPULSE_DIR": "here"})).is_absolute()
