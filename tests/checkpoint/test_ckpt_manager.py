"""The manager of one process: when it saves, what it keeps, what it says, and that training goes on."""

import errno
import json
import os
import socket
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from rankpulse.core import slot  # noqa: E402
from rankpulse.trainer import attaching  # noqa: E402
from rankpulse.trainer.checkpoint import CheckpointManager, RanksLost, SaveFailed, StateRefused, interval  # noqa: E402
from rankpulse.trainer.checkpoint.files import Files  # noqa: E402
from rankpulse.trainer.checkpoint.manager import say  # noqa: E402
from rankpulse.trainer.checkpoint.reader import scan, verify  # noqa: E402
from rankpulse.trainer.checkpoint.saving import kind_of  # noqa: E402
from rankpulse.trainer.checkpoint.together import Alone  # noqa: E402
from rankpulse.trainer.pulse import Pulse  # noqa: E402


def model() -> Any:
    return torch.nn.Linear(3, 2)


def steps(path: Path) -> list[int]:
    return [found.step for found in scan(str(path)).committed]


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def saves(manager: CheckpointManager, clock: Clock, count: int, step_s: float, first: int = 1) -> list[int]:
    found = []
    for step in range(first, first + count):
        clock.now += step_s
        if manager.step(step) is not None:
            found.append(step)
    return found


def test_every_so_many_steps(tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path, model=model(), every_steps=3, keep_last=9)
    assert saves(manager, Clock(), 10, 1.0) == [3, 6, 9]
    assert manager.latest() == 9


def test_every_so_many_seconds(tmp_path: Path) -> None:
    clock = Clock()
    manager = CheckpointManager(tmp_path, model=model(), every_seconds=60, keep_last=9, clock=clock)
    found = saves(manager, clock, 400, 1.0)
    assert len(found) in (5, 6)
    assert all(60 <= later - earlier <= 70 for earlier, later in pairwise(found))


def test_steps_that_are_counted_anew_are_saved_too(tmp_path: Path) -> None:
    """As when every epoch begins with 1."""
    clock = Clock()
    manager = CheckpointManager(tmp_path, model=model(), every_seconds=600, keep_last=9, clock=clock)
    found = [len(saves(manager, clock, 200, 1.0)) for _ in range(6)]
    assert sum(found) == 1200 // 600


def test_by_itself_it_weighs_saves_against_losses(tmp_path: Path) -> None:
    clock = Clock()
    manager = CheckpointManager(tmp_path, model=model(), mtbf_s=1800.0, keep_last=9, clock=clock)
    first = interval.auto_s(None, 1800.0, 1)
    assert 100 < first < 300
    found = saves(manager, clock, 60, 10.0)
    assert first <= found[0] * 10 <= first * 1.25
    assert found[1] - found[0] <= 5, "what a save costs is known now: next to nothing"


@pytest.mark.parametrize(
    "wrong",
    [
        {"mode": "fast"},
        {"every_steps": 0},
        {"every_steps": 2, "every_seconds": 2},
        {"every_seconds": "soon"},
        {"every_seconds": -1},
        {"verify_saved": "yes"},
        {"keep_last": 0},
        {"mtbf_s": float("inf")},
    ],
    ids=str,
)
def test_settings_that_mean_nothing_are_refused(wrong: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        CheckpointManager(tmp_path, model=model(), **wrong)


@pytest.mark.parametrize("step", [-1, 1.0, True, None, 10**19])
def test_a_step_is_a_whole_number(step: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="step is"):
        CheckpointManager(tmp_path, model=model()).save(step)


def test_the_newest_stay_and_the_rest_goes(tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path, model=model(), every_steps=1, keep_last=2)
    for step in range(1, 6):
        assert manager.step(step) is not None
    assert steps(tmp_path) == [5, 4]


def test_room_is_made_before_the_next_save(tmp_path: Path) -> None:
    seen: list[list[int]] = []

    class Watched(Files):
        def mkdir(self, path: str) -> None:
            seen.append(steps(tmp_path))
            super().mkdir(path)

    manager = CheckpointManager(tmp_path, model=model(), every_steps=1, keep_last=3, files=Watched())
    for step in range(1, 7):
        manager.step(step)
    assert seen == [[], [1], [2, 1], [3, 2], [4, 3], [5, 4]]


def test_one_is_kept_when_one_is_asked_for(tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path, model=model(), every_steps=1, keep_last=1)
    for step in range(1, 4):
        assert manager.step(step) is not None
        assert steps(tmp_path) == [step]
    unread = CheckpointManager(tmp_path, model=model(), every_steps=1, keep_last=1, verify_saved="off")
    unread.step(4)
    assert steps(tmp_path) == [4, 3], "the last verified one stays"


def test_a_new_directory_is_on_the_disk_before_anything_in_it(tmp_path: Path) -> None:
    synced: list[str] = []

    class Watched(Files):
        def sync_dir(self, path: str) -> None:
            synced.append(path)
            super().sync_dir(path)

    CheckpointManager(tmp_path / "a" / "b", model=model(), files=Watched())
    assert synced == [str(tmp_path), str(tmp_path / "a")]


def test_what_a_load_skipped_is_not_counted_among_the_kept(tmp_path: Path) -> None:
    first = CheckpointManager(tmp_path, model=model(), keep_last=9)
    for step in (1, 2, 10, 11):
        path = first.save(step).path
        if step >= 10:
            os.truncate(f"{path}/shard-00000.safetensors", 10)
    manager = CheckpointManager(tmp_path, model=model(), every_steps=1, keep_last=2)
    resumed = manager.load()
    assert resumed is not None
    assert len(resumed.damaged) == 2
    for step in (3, 4):
        manager.step(step)
    assert steps(tmp_path) == [11, 10, 4, 3]


def test_a_line_for_people_cannot_steer_their_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    say("extra.\x1b[2Jx\n is damaged")
    assert capfd.readouterr().err == "rankpulse: extra.\\x1b[2Jx\\x0a is damaged\n"


def test_what_was_loaded_stays_when_what_came_after_is_damaged(tmp_path: Path) -> None:
    first = CheckpointManager(tmp_path, model=model(), keep_last=3)
    for step in (1, 2, 3):
        first.save(step)
    for found in scan(str(tmp_path)).committed[:2]:
        os.truncate(f"{found.path}/shard-00000.safetensors", 10)
    manager = CheckpointManager(tmp_path, model=model(), every_steps=1, keep_last=1, verify_saved="off")
    resumed = manager.load()
    assert resumed is not None
    assert resumed.step == 1
    assert [step for step, _ in resumed.skipped] == [3, 2]
    manager.save(4)
    assert 1 in steps(tmp_path)
    verify(resumed.path)


def test_old_rubbish_is_swept_and_young_is_left(tmp_path: Path) -> None:
    old, young = tmp_path / "step-00000007-00000001", tmp_path / "step-00000008-00000002"
    old.mkdir()
    (old / ".shard-00000.safetensors.tmp").write_bytes(b"half")
    os.utime(old / ".shard-00000.safetensors.tmp", (1e9, 1e9))
    os.utime(old, (1e9, 1e9))
    manager = CheckpointManager(tmp_path, model=model())
    young.mkdir()
    os.utime(young, (4e9, 4e9))
    manager.save(9)
    assert not old.exists()
    assert young.exists()


@pytest.mark.parametrize(
    ("mode", "nbytes", "world", "kind"),
    [
        ("auto", 10**9, 8, "consolidated"),
        ("auto", 10**9 + 1, 8, "sharded"),
        ("auto", 10**12, 1, "consolidated"),
        ("sharded", 1, 1, "sharded"),
        ("consolidated", 10**12, 8, "consolidated"),
    ],
)
def test_large_states_of_several_ranks_are_sharded(mode: str, nbytes: int, world: int, kind: str) -> None:
    assert kind_of(mode, nbytes, world) == kind


class Full(Files):
    full = True

    def fsync(self, fd: int) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().fsync(fd)


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """Something that listens where the node's agent would."""
    monkeypatch.setenv("RANKPULSE_DIR", str(tmp_path))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(tmp_path / "agent.sock"))
        listener.listen(64)
        listener.settimeout(5)
        yield listener


def heard(agent: socket.socket, count: int) -> list[dict[str, Any]]:
    found = []
    for _ in range(count):
        connection, _address = agent.accept()
        with connection:
            found.append(json.loads(connection.makefile().readline()))
    return found


def test_a_failed_save_is_said_and_told_and_training_goes_on(
    agent: socket.socket, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    files = Full()
    manager = CheckpointManager(tmp_path / "ck", model=model(), every_steps=1, files=files)
    files.full = False
    assert manager.step(1) is not None
    files.full = True
    assert manager.step(2) is None
    with pytest.raises(SaveFailed, match="No space left on device"):
        manager.save(3)
    err = capfd.readouterr().err
    assert "rankpulse: step 2 was not saved: rank 0: [Errno 28] No space left on device: '" in err
    assert "shard-00000.safetensors'. Training goes on" in err
    files.full = False
    assert manager.step(4) is not None
    assert steps(tmp_path / "ck") == [4, 1]
    saved, failed, again, last = heard(agent, 4)
    assert [said["event"] for said in (saved, failed, again, last)] == ["saved", "save_failed", "save_failed", "saved"]
    assert (saved["step"], saved["shards"], saved["kind"], saved["verified"]) == (1, 1, "consolidated", True)
    assert {"bytes", "save_s", "verify_s"} <= set(saved)
    assert (saved["oldest"], last["oldest"]) == (1, 1)
    assert (failed["step"], "No space left" in failed["reason"]) == (2, True)


def test_loads_are_told_too(agent: socket.socket, tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path / "ck", model=model())
    paths = [manager.save(step).path for step in (1, 2)]
    os.truncate(f"{paths[1]}/shard-00000.safetensors", 20)
    assert manager.load() is not None
    _, _, refused, loaded = heard(agent, 4)
    assert (refused["event"], refused["step"]) == ("refused", 2)
    assert (loaded["event"], loaded["step"], loaded["level"], loaded["skipped"]) == ("loaded", 1, "full", 1)


class Leaves(Alone):
    """A world whose other ranks die at exchange number `at`."""

    def __init__(self, at: int) -> None:
        self.left = at

    def gather(self, value: Any) -> list[Any]:
        self.left -= 1
        if self.left < 0:
            raise RanksLost("gone")
        return [value]


def test_a_rank_that_dies_costs_no_checkpoint_that_stands_already(tmp_path: Path) -> None:
    stood = []
    for at in range(20):
        manager = CheckpointManager(tmp_path / str(at), model=model(), together=Leaves(at))
        try:
            manager.save(1)
        except RanksLost:
            stood.append(steps(tmp_path / str(at)))
            assert scan(str(tmp_path / str(at))).partial == ()
        else:
            break
    assert stood[0] == []
    assert stood[-1] == [1], "a load will verify it"


def test_too_little_space_is_said_before_anything_is_written(tmp_path: Path) -> None:
    class Vast:
        """More than any disk has."""

        def state_dict(self) -> dict[str, Any]:
            return {"zeros": torch.zeros(1).expand(1 << 60)}

        def load_state_dict(self, state: Any) -> None: ...

    manager = CheckpointManager(tmp_path, model=model())
    manager.save(1)
    with pytest.raises(SaveFailed, match=r"needs \d+ bytes more than it has: free space there"):
        CheckpointManager(tmp_path, model=model(), extra={"vast": Vast()}).save(2)
    assert steps(tmp_path) == [1]


def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    manager = CheckpointManager(tmp_path / "file" / "ck", model=model(), every_steps=1)
    with pytest.raises(SaveFailed, match=r"Not a directory|File exists"):
        manager.save(1)
    assert manager.step(2) is None


class Phases(Files):
    """What the pulse says at every file-system call."""

    def __init__(self, pulse_bytes: bytearray) -> None:
        self.memory, self.seen = pulse_bytes, set[str]()

    def fsync(self, fd: int) -> None:
        self.seen.add(phase(self.memory))
        super().fsync(fd)


def phase(memory: bytearray) -> str:
    return slot.PULSE.unpack_from(memory, slot.PULSE_AT)[5].rstrip(b"\0").decode()


def test_a_save_is_a_phase_of_the_pulse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = bytearray(slot.SLOT_SIZE)
    pulse, files = Pulse(memory), Phases(memory)
    pulse.step(1)
    manager = CheckpointManager(tmp_path, model=model(), pulse=pulse, files=files)
    manager.save(1)
    assert files.seen == {"checkpoint"}
    assert phase(memory) == "train"
    assert manager.load() is not None
    assert phase(memory) == "train"
    files.seen.clear()
    monkeypatch.setattr(attaching._Process, "pulse", pulse)
    CheckpointManager(tmp_path, model=model(), files=files).save(2)
    assert files.seen == {"checkpoint"}


def test_without_a_pulse_none_is_attached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attaching._Process, "pulse", None)
    CheckpointManager(tmp_path, model=model()).save(1)
    assert attaching.attached() is None


def test_the_newest_that_can_be_read_is_the_latest(tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path, model=model())
    assert manager.latest() is None
    assert manager.load() is None
    paths = [manager.save(step).path for step in (1, 2)]
    os.truncate(f"{paths[1]}/manifest.json", 100)
    assert manager.latest() == 1
    manager.close()


@pytest.mark.parametrize("level", ["fast", "full", "off"])
def test_a_save_is_read_back_as_asked(level: str, tmp_path: Path) -> None:
    saved = CheckpointManager(tmp_path, model=model(), verify_saved=level).save(1)
    assert saved.verified == (level != "off")
    verify(saved.path)


def test_what_is_read_back_wrongly_is_no_checkpoint(tmp_path: Path) -> None:
    class Rotten(Files):
        """The last rename is the manifest's: then a byte on the disk turns."""

        def rename(self, old: str, new: str) -> None:
            super().rename(old, new)
            if new.endswith("manifest.json"):
                with open(new.replace("manifest.json", "shard-00000.safetensors"), "r+b") as file:
                    file.seek(-1, os.SEEK_END)
                    last = file.read(1)[0]
                    file.seek(-1, os.SEEK_END)
                    file.write(bytes([last ^ 1]))

    CheckpointManager(tmp_path, model=model()).save(1)
    with pytest.raises(SaveFailed, match="does not have the checksum it was saved with"):
        CheckpointManager(tmp_path, model=model(), files=Rotten()).save(2)
    assert steps(tmp_path) == [1]


def test_a_save_that_a_person_interrupts_leaves_nothing_behind(tmp_path: Path) -> None:
    class Interrupted(Files):
        def fsync(self, fd: int) -> None:
            raise KeyboardInterrupt

    CheckpointManager(tmp_path, model=model()).save(1)
    with pytest.raises(KeyboardInterrupt):
        CheckpointManager(tmp_path, model=model(), files=Interrupted()).save(2)
    assert steps(tmp_path) == [1]
    assert scan(str(tmp_path)).partial == ()


@pytest.mark.parametrize("limit", [-1, 1.5, "20", True])
def test_a_limit_is_a_whole_number(limit: Any, tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path, model=model())
    manager.save(30)
    with pytest.raises(ValueError, match="resume_before_step"):
        manager.load(resume_before_step=limit)
    assert steps(tmp_path) == [30]


def test_for_the_name_of_a_metric_no_save_is_given_up(tmp_path: Path) -> None:
    manager = CheckpointManager(tmp_path, model=model())
    manager.save(1, {"x" * 5000: 1, "\ud800": 2, "": 3, 4: 4})
    resumed = manager.load()
    assert resumed is not None
    assert resumed.metrics == {"x" * 1024: 1.0, "?": 2.0, "": 3.0, "4": 4.0}


def test_what_is_no_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(StateRefused, match="model is a list"):
        CheckpointManager(tmp_path, model=[model(), model()])
    assert list(tmp_path.iterdir()) == []
