"""A second place for checkpoints: brought there beside the training, complete or no copy, fetched when it is nearer."""

import errno
import json
import os
import random
import shutil
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
fsspec = pytest.importorskip("fsspec")

import ckpt_store as store  # noqa: E402
from ckpt_worlds import build, state_bits, train  # noqa: E402
from fsspec.implementations.local import LocalFileSystem  # noqa: E402
from support import eventually_sync  # noqa: E402

from rankpulse.trainer.checkpoint import CheckpointManager, NothingVerified, turns  # noqa: E402
from rankpulse.trainer.checkpoint.durable import Bringing, Lane  # noqa: E402
from rankpulse.trainer.checkpoint.files import Files  # noqa: E402
from rankpulse.trainer.checkpoint.nearest import fetch_nearest  # noqa: E402
from rankpulse.trainer.checkpoint.reader import scan, verify  # noqa: E402
from rankpulse.trainer.checkpoint.target import UPLOAD, Target, TargetMissing  # noqa: E402

WAIT_S = 20.0


def steps(directory: Path) -> list[int]:
    return [found.step for found in scan(str(directory)).committed]


@pytest.fixture
def memory() -> str:
    """An address in the memory of this process, where nobody else has anything."""
    return f"memory://{uuid.uuid4().hex}/run"


# --- whose turn it is


def test_at_most_so_many_write_at_once_and_all_arrives() -> None:
    """Random parts, arrivals seen late by each node: by what each one sees it never begins too early."""
    chance = random.Random(7)
    for _ in range(300):
        nodes, most = chance.randint(1, 9), chance.randint(1, 4)
        parts = [{f"{node}-{at}": chance.randint(1, 9) for at in range(chance.randint(0, 3))} for node in range(nodes)]
        arrived: dict[str, int] = {}
        history = [dict(arrived)]
        for _ in range(200):
            if turns.complete(parts, arrived):
                break
            truly = turns.writing(parts, arrived, most)
            assert 1 <= len(truly) <= most
            for node in range(nodes):
                seen = chance.choice(history[-3:])
                if node in turns.writing(parts, seen, most) and (left := turns.missing(parts[node], arrived)):
                    assert node in truly, "a late look makes nobody early"
                    arrived[left[0]] = parts[node][left[0]]
                    truly = turns.writing(parts, arrived, most)
            history.append(dict(arrived))
        assert turns.complete(parts, arrived)


def test_a_file_that_is_not_whole_has_not_arrived() -> None:
    assert turns.missing({"a": 3, "b": 4}, {"a": 3, "b": 1}) == ["b"]
    assert turns.writing([{"a": 3}, {"b": 4}], {"a": 2}, 1) == (0,)
    assert turns.complete([{}, {"a": 1}], {"a": 1, "more": 2})


# --- what counts as a copy


def brought(target: Target, local: Path, step: int, save_id: str = "0badcafe", keep: int = 9) -> str:
    path = store.save(store.Quick(), str(local), step, save_id)
    lane = Lane(target, Bringing(0, [0, 0], 2, keep, say=lambda text: None, poll_s=0.01))
    lane.offer(path)
    assert lane.wait(WAIT_S) == ""
    return path


@pytest.mark.parametrize("kind", ["directory", "memory"])
def test_a_copy_is_there_when_all_of_it_is(kind: str, memory: str, tmp_path: Path) -> None:
    url = memory if kind == "memory" else str(tmp_path / "far" / "run")
    target = Target(url)
    assert target.copies() == []
    path = brought(target, tmp_path / "near", 3)
    (copy,) = target.copies()
    assert (copy.step, copy.name) == (3, os.path.basename(path))
    assert set(copy.files) == set(os.listdir(path))
    for file, size in copy.files.items():
        data = b"".join(target.pieces(copy, file))
        assert data == Path(path, file).read_bytes()
        assert size == len(data)


@pytest.mark.parametrize(
    "wrong",
    [
        b"", b"{", b"[]", b'{"schema_version": 2, "name": "NAME", "files": {"manifest.json": 1}}',
        b'{"schema_version": 1, "name": "step-00000009-00000000", "files": {"manifest.json": 1}}',
        b'{"schema_version": 1, "name": "NAME", "files": {}}',
        b'{"schema_version": 1, "name": "NAME", "files": {"manifest.json": 1, "../../etc/passwd": 1}}',
        b'{"schema_version": 1, "name": "NAME", "files": {"manifest.json": -1}}',
    ],
    ids=str,
)  # fmt: skip
def test_what_its_last_file_says_is_not_trusted(wrong: bytes, tmp_path: Path) -> None:
    target = Target(str(tmp_path / "far"))
    name = os.path.basename(brought(target, tmp_path / "near", 3))
    (tmp_path / "far" / name / UPLOAD).write_bytes(wrong.replace(b"NAME", name.encode()))
    assert target.copies() == []


def test_a_file_that_went_or_shrank_is_no_copy(tmp_path: Path) -> None:
    target = Target(str(tmp_path / "far"))
    name = os.path.basename(brought(target, tmp_path / "near", 3))
    os.truncate(tmp_path / "far" / name / "shard-00001.safetensors", 5)
    assert target.copies() == []


def test_so_many_stay_and_what_never_became_one_goes(tmp_path: Path) -> None:
    target = Target(str(tmp_path / "far"))
    half = tmp_path / "far" / "step-00000001-00000000"
    half.mkdir(parents=True)
    (half / "shard-00000.safetensors").write_bytes(b"half")
    foreign = tmp_path / "far" / "notes"
    foreign.mkdir()
    for step in (1, 2, 3, 4):
        brought(target, tmp_path / "near", step, f"0000000{step}", keep=2)
    assert [copy.step for copy in target.copies()] == [4, 3]
    assert sorted(os.listdir(tmp_path / "far")) == [
        "bringing.json",
        "notes",
        "step-00000003-00000003",
        "step-00000004-00000004",
    ]


def test_what_was_given_up_takes_no_room_from_what_may_arrive(tmp_path: Path) -> None:
    """It goes before the next one is brought: on a full disk no commit would come that removes it."""
    half = tmp_path / "far" / "step-00000001-00000000"
    half.mkdir(parents=True)
    (half / "shard-00000.safetensors").write_bytes(b"half")

    class Full(Target):
        def put(self, name: str, local: str, may_go_on: Any = lambda: True) -> None:
            if half.exists():
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            super().put(name, local, may_go_on)

    target = Full(str(tmp_path / "far"))
    brought(target, tmp_path / "near", 2)
    assert [copy.step for copy in target.copies()] == [2]


def test_an_address_that_nobody_knows_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(TargetMissing, match="nowhere://x is no address"):
        Target("nowhere://x")


# --- a crash at every call


class Breaks:
    """A file system of which call number `at` fails, before or after it is made; as when the process dies there."""

    def __init__(self, real: Any, at: int, after: bool) -> None:
        self.real, self.left, self.after, self.calls = real, at, after, 0

    def __getattr__(self, name: str) -> Any:
        real = getattr(self.real, name)
        if name not in ("makedirs", "open", "rm_file", "rmdir"):
            return real

        def call(*args: Any, **more: Any) -> Any:
            self.calls += 1
            if self.calls > self.left:
                if self.after and self.calls == self.left + 1:
                    real(*args, **more)
                raise KeyboardInterrupt  # nothing that comes after is done, as in a process that was killed
            return real(*args, **more)

        return call


def test_killed_at_any_call_there_is_the_copy_before_or_the_new_one(tmp_path: Path) -> None:
    """Of bringing, committing and removing; what is listed as a copy is one, every byte of it."""
    points = 0
    for after in (False, True):
        for at in range(100):
            place = tmp_path / f"{at}-{after}"
            target = Target(str(place / "far"))
            brought(target, place / "near", 1, "00000001", keep=1)
            path = store.save(store.Quick(), str(place / "near"), 2, "00000002")
            broken = Target(str(place / "far"))
            broken._fs = files = Breaks(broken._fs, at, after)
            lane = Lane(broken, Bringing(0, [0, 0], 2, 1, say=lambda text: None))
            try:
                lane._bring(path)
            except KeyboardInterrupt:
                points += 1
            copies = target.copies()
            assert [copy.step for copy in copies] in ([1], [2], [2, 1])
            away = str(place / "away")
            fetched = fetch_nearest(store.Quick(), away, [target], None, lambda text: None)
            store.assert_of_one_save(fetched, verify(fetched))
            brought(target, place / "near", 3, "00000003", keep=1)
            assert [copy.step for copy in target.copies()] == [3]
            if files.calls <= at:
                break
    assert points > 16


# --- the manager's


def trained(directory: Path, targets: list[str], **more: Any) -> tuple[CheckpointManager, Any, Any]:
    net, optimizer = build("one", 1)
    train(net, optimizer)
    return CheckpointManager(directory, model=net, optimizer=optimizer, durable=targets, **more), net, optimizer


def test_a_lost_directory_is_fetched_and_goes_on_bit_for_bit(
    memory: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    manager, net, optimizer = trained(
        tmp_path / "near", [str(tmp_path / "far"), memory], every_steps=1, async_save=True
    )
    manager.step(1)
    train(net, optimizer)
    manager.step(2)
    at_save = state_bits(net, optimizer)
    manager.close()
    assert [[copy.step for copy in Target(url).copies()] for url in (str(tmp_path / "far"), memory)][1][0] == 2
    for gone in ([], ["far"]):
        shutil.rmtree(tmp_path / "near")
        for name in gone:
            shutil.rmtree(tmp_path / name)
        again, other = build("one", 2)
        fresh = CheckpointManager(
            tmp_path / "near", model=again, optimizer=other, durable=[str(tmp_path / "far"), memory]
        )
        resumed = fresh.load()
        assert resumed is not None
        assert resumed.step == 2
        assert state_bits(again, other) == at_save
        said = capfd.readouterr().err
        assert f"was fetched from {memory if gone else tmp_path / 'far'}" in said, "the nearest that has it"
        fresh.close()


def test_what_is_here_is_not_fetched_and_what_is_torn_here_is(memory: str, tmp_path: Path) -> None:
    manager, _, _ = trained(tmp_path, [memory])
    path = manager.save(1).path
    manager.close()
    targets = [Target(memory)]
    assert fetch_nearest(Files(), str(tmp_path), targets, None, lambda text: None) == ""
    os.truncate(f"{path}/shard-00000.safetensors", 100)
    assert fetch_nearest(Files(), str(tmp_path), targets, None, lambda text: None) == path
    verify(path)
    os.unlink(f"{path}/manifest.json")
    assert fetch_nearest(Files(), str(tmp_path), targets, None, lambda text: None) == path
    verify(path)


def test_what_does_not_fit_here_takes_no_room_from_the_next_save(memory: str, tmp_path: Path) -> None:
    class Small(Files):
        def fsync(self, fd: int) -> None:
            if os.readlink(f"/proc/self/fd/{fd}").endswith(".shard-00001.safetensors.tmp"):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            super().fsync(fd)

    said: list[str] = []
    path = brought(Target(memory), tmp_path, 3)
    shutil.rmtree(path)
    assert fetch_nearest(Small(), str(tmp_path), [Target(memory)], None, said.append) == ""
    assert "No space left on device" in said[0]
    assert os.listdir(tmp_path) == []
    assert fetch_nearest(Files(), str(tmp_path), [Target(memory)], None, said.append) == path


def test_a_limit_and_what_was_set_aside_are_obeyed(memory: str, tmp_path: Path) -> None:
    manager, _, _ = trained(tmp_path, [memory], durable_keep=9)
    for step in (1, 2, 3):
        manager.save(step)
        eventually_sync(
            lambda step=step: Target(memory).copies()[:1] and Target(memory).copies()[0].step == step, WAIT_S
        )
    manager.close()
    manager, _, _ = trained(tmp_path, [memory])
    resumed = manager.load(resume_before_step=3)
    assert resumed is not None
    assert resumed.step == 2
    resumed = manager.load()
    assert resumed is not None
    assert resumed.step == 2, "what was set aside here is not fetched from there"
    shutil.rmtree(tmp_path / os.path.basename(resumed.path))
    resumed = manager.load(resume_before_step=2)
    assert resumed is not None
    assert resumed.step == 1
    manager.close()


def test_what_was_set_aside_comes_from_nowhere_when_the_directory_is_lost(memory: str, tmp_path: Path) -> None:
    """The corrupted steps 2 and 3 neither come back nor push out what was saved since."""
    manager, _, _ = trained(tmp_path / "near", [memory])
    for step in (1, 2, 3):
        manager.save(step)
        eventually_sync(
            lambda step=step: Target(memory).copies()[:1] and Target(memory).copies()[0].step == step, WAIT_S
        )
    manager.close()
    manager, _, _ = trained(tmp_path / "near", [memory], durable_keep=2)
    assert manager.load(resume_before_step=2) is not None
    assert [copy.step for copy in Target(memory).copies()] == [1]
    kept = Target(memory).names()
    manager.save(2)
    manager.close()
    assert [copy.step for copy in Target(memory).copies()] == [2, 1]
    assert set(kept[1:]) < set(Target(memory).names()), "for people to look at"
    shutil.rmtree(tmp_path / "near")
    manager, _, _ = trained(tmp_path / "near", [memory])
    resumed = manager.load()
    assert resumed is not None
    assert resumed.step == 2
    manager.close()


def test_one_place_is_not_given_twice(memory: str, tmp_path: Path) -> None:
    """Files would be emptied while they are read."""
    near = tmp_path / "near"
    near.mkdir()
    (tmp_path / "link").symlink_to(near)
    for twice in ([str(near)], [f"file://{tmp_path}/link/"], [memory, f"{memory}/"]):
        with pytest.raises(ValueError, match="is the directory itself or another of the targets"):
            trained(near, twice)
    manager, _, _ = trained(near, [str(near / "far"), memory])
    manager.close()


class Stuck(LocalFileSystem):  # type: ignore[misc]
    """A target that does not answer, until it is let; then its disk is full."""

    protocol = "stuck"
    let, reached = threading.Event(), threading.Event()
    cachable = False

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path.removeprefix("stuck://")))

    def open(self, path: str, mode: str = "rb", **more: Any) -> Any:
        if "w" in mode:
            self.reached.set()
            assert self.let.wait(WAIT_S)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().open(path, mode, **more)

    def ls(self, path: str, detail: bool = False, **more: Any) -> Any:
        if (Path(self._strip_protocol(path)) / "gone").exists():
            raise OSError(errno.EHOSTUNREACH, os.strerror(errno.EHOSTUNREACH))
        return super().ls(path, detail=detail, **more)


@pytest.fixture
def stuck() -> Iterator[type[Stuck]]:
    fsspec.register_implementation("stuck", Stuck, clobber=True)
    Stuck.let.clear()
    Stuck.reached.clear()
    yield Stuck
    Stuck.let.set()


def test_a_target_that_is_slow_and_full_blocks_no_step_and_no_other_target(
    stuck: type[Stuck], memory: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "far").mkdir()
    manager, net, optimizer = trained(
        tmp_path / "near", [f"stuck://{tmp_path}/far", memory], every_steps=1, async_save=True, durable_wait_s=0.05
    )
    for step in (1, 2, 3):
        manager.step(step)
        train(net, optimizer)
        assert manager.wait() is not None
    assert stuck.reached.wait(WAIT_S)
    eventually_sync(lambda: Target(memory).copies()[:1] and Target(memory).copies()[0].step == 3, WAIT_S)
    assert steps(tmp_path / "near") == [3, 2, 1]
    manager.close()
    assert f"has not arrived at stuck://{tmp_path}/far, and is given up" in capfd.readouterr().err
    manager, _, _ = trained(tmp_path / "near", [f"stuck://{tmp_path}/far"])
    manager.save(4)
    stuck.let.set()
    manager.close()
    err = capfd.readouterr().err
    assert "was not brought to stuck://" in err
    assert "No space left on device" in err
    assert steps(tmp_path / "near")[0] == 4


def test_a_target_that_is_gone_is_no_fresh_start(stuck: type[Stuck], tmp_path: Path) -> None:
    url = f"stuck://{tmp_path}/far"
    (tmp_path / "far" / "gone").mkdir(parents=True)
    manager, _, _ = trained(tmp_path / "near", [url])
    with pytest.raises(NothingVerified, match="No route to host"):
        manager.load()
    manager.save(5)
    resumed = manager.load()
    assert resumed is not None
    assert resumed.step == 5, "what is here is enough"
    manager.close()


def test_a_node_that_is_gone_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    said: list[str] = []
    path = store.save(store.Quick(), str(tmp_path / "near"), 1)
    lane = Lane(Target(str(tmp_path / "far")), Bringing(0, [0, 1], 2, 1, said.append, quiet_s=0.05, poll_s=0.01))
    lane.offer(path)
    assert lane.wait(WAIT_S) == ""
    assert "nothing has arrived for 0.05 s; missing are shard-00001.safetensors" in said[0]
    assert Target(str(tmp_path / "far")).copies() == []


def test_two_nodes_bring_each_its_part(tmp_path: Path) -> None:
    path = store.save(store.Quick(), str(tmp_path / "near"), 1, world=4)
    lanes = [
        Lane(Target(str(tmp_path / "far")), Bringing(node, [0, 1, 1, 2], 1, 1, print, poll_s=0.01)) for node in range(3)
    ]
    for lane in reversed(lanes):
        lane.offer(path)
    assert [lane.wait(WAIT_S) for lane in lanes] == ["", "", ""]
    (copy,) = Target(str(tmp_path / "far")).copies()
    assert json.loads((tmp_path / "far" / copy.name / UPLOAD).read_bytes())["files"] == dict(copy.files)
    assert len(copy.files) == 5
