"""The fast tier: what goes from a local disk, from where a file is taken, what a shared directory that hangs or is full
does to a job, whom the nodes follow."""

import errno
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import ckpt_store as store
from ckpt_worlds import build, state_bits, train
from support import eventually_sync
from tier_world import resumed, saved

from rankpulse.trainer.checkpoint import CheckpointManager, Damaged, NothingVerified, StateRefused
from rankpulse.trainer.checkpoint.durable import Bringing, Lane
from rankpulse.trainer.checkpoint.files import Files
from rankpulse.trainer.checkpoint.reader import Found, scan, verify
from rankpulse.trainer.checkpoint.tiers.holdings import Held, Row, moves, nearest, offered
from rankpulse.trainer.checkpoint.tiers.rooms import Wanted, going
from rankpulse.trainer.checkpoint.tiers.shared import SharedPlace

WAIT_S = 20.0


# --- decisions


def test_what_goes_from_a_local_disk() -> None:
    paths = ["e", "d", "c", "b", "a"]
    all_ = [Found(path, 9 - at, "0" * 8) for at, path in enumerate(paths)]
    sizes = dict.fromkeys(paths, 10)
    assert going(all_, Wanted(2), sizes, 100) == ["a", "b", "c"]
    assert going(all_, Wanted(2, anchors=["b"], busy=["c"]), sizes, 100) == ["a"]
    short = Wanted(2, anchors=["b"], busy=["c"], needed=30)
    assert going(all_, short, sizes, 0) == ["a", "d", "e"], "what is on its way goes last"
    assert going(all_, Wanted(2, anchors=["b"], needed=99), sizes, 0) == ["a", "c", "d", "e"], "the verified one never"
    assert going(all_, Wanted(1, needed=99), sizes, 0)[-1] != "e", "without one the newest is it"
    assert "e" not in going(all_, Wanted(1, needed=99), sizes, 0)
    broken = [Found("e", 9, "0" * 8, refused=Damaged("e")), *all_[1:]]
    assert going(broken, Wanted(1), sizes, 100) == ["a", "b", "c"], "a damaged one is no reason to lose the last good"


def test_a_file_comes_from_the_nearest_that_has_it_whole_and_spreads_by_doubling() -> None:
    assert nearest([-2, -1, 0, 2, 1], 1) == [1, 2, 0, -1, -2]
    rows = {
        -2: Row(5, files={"x": 4, "y": 4}), -1: Row(5, files={"x": 4}), 0: Row(5, files={"x": 4}),
        3: Row(5, files={"x": 3}),
    }  # fmt: skip
    sizes = {"x": 4, "y": 4, "z": 4}
    found, missing = moves({(1, "x"), (2, "x"), (1, "y"), (1, "z")}, sizes, rows, set())
    assert [(move.to, move.file, move.source) for move in found] == [(1, "x", 0), (1, "y", -2)]
    assert missing == ["z"]
    found, _ = moves({(2, "x"), (4, "x")}, sizes, rows | {1: Row(5, files={"x": 4})}, set())
    assert [(move.to, move.source) for move in found] == [(2, 0), (4, 1)], "who has received it sends it on"
    found, missing = moves({(1, "x")}, sizes, rows, {(0, "x"), (-1, "x"), (-2, "x")})
    assert (found, missing) == ([], ["x"]), "none that was no good is asked again"


def test_what_was_set_aside_anywhere_is_offered_nowhere_and_of_two_at_one_step_the_later_comes_first() -> None:
    one = Held({"a": Row(5, 1.0, "d"), "b": Row(5, 2.0, "d"), "c": Row(9, 1.0, "d"), "half": Row(7)})
    other = Held({"a": Row(5, 1.0, "d")}, ("c",))
    told = Held.of(one.told)
    assert [found.name for found in offered({0: told, 1: other})] == ["b", "a"]


# --- the shared directory


def brought(place: SharedPlace, path: str, said: list[str], told: list[Any]) -> None:
    lane = Lane(
        place,
        Bringing(0, [0, 0], 2, 2, said.append, poll_s=0.01, tell=lambda event, **more: told.append((event, more))),
    )
    lane.offer(path)
    assert lane.wait(WAIT_S) == ""


def test_what_is_brought_is_a_checkpoint_like_any_other_and_so_many_stay(tmp_path: Path) -> None:
    said, told = list[str](), list[Any]()
    place = SharedPlace(str(tmp_path / "shared"), store.Quick(), 2)
    for step in (1, 2, 3):
        brought(place, store.save(store.Quick(), str(tmp_path / "near"), step, f"0000000{step}"), said, told)
    found = scan(str(tmp_path / "shared"))
    assert ([one.step for one in found.committed], found.partial, said) == ([3, 2], (), [])
    store.assert_of_one_save(found.committed[0].path, verify(found.committed[0].path))
    assert [(event, more["step"]) for event, more in told] == [("uploaded", 1), ("uploaded", 2), ("uploaded", 3)]
    assert place.oldest == 2


def test_a_local_file_that_is_damaged_gets_no_name_in_the_shared_directory(tmp_path: Path) -> None:
    said, told = list[str](), list[Any]()
    path = store.save(store.Quick(), str(tmp_path / "near"), 1)
    shard = Path(path, "shard-00001.safetensors")
    data = bytearray(shard.read_bytes())
    data[-1] ^= 1
    shard.write_bytes(data)
    brought(SharedPlace(str(tmp_path / "shared"), store.Quick(), 2), path, said, told)
    assert scan(str(tmp_path / "shared")).committed == ()
    assert "does not have the checksum" in said[0]
    assert [(event, more["step"]) for event, more in told] == [("upload_failed", 1)]


def test_nodes_bring_what_node_0_brings_though_they_were_offered_a_newer_one(tmp_path: Path) -> None:
    """Else each would bring another one, and none would ever be whole."""
    paths = [store.save(store.Quick(), str(tmp_path / "near"), step, f"0000000{step}") for step in (1, 2)]
    how = [Bringing(node, [0, 1], 1, 9, print, poll_s=0.01) for node in (0, 1)]
    first, second = [Lane(SharedPlace(str(tmp_path / "shared"), store.Quick(), 9), one) for one in how]
    second._known[os.path.basename(paths[0])] = paths[0]  # it was offered, and dropped for the newer one
    second.offer(paths[1])
    first.offer(paths[0])
    eventually_sync(lambda: [one.step for one in scan(str(tmp_path / "shared")).committed] == [1], WAIT_S)
    first.offer(paths[1])
    assert [lane.wait(WAIT_S) for lane in (first, second)] == ["", ""]
    assert [one.step for one in scan(str(tmp_path / "shared")).committed] == [2, 1]


# --- the manager


class Hanging(Files):
    """A shared directory that does not answer until it is let, and then is full."""

    def __init__(self, shared: Path, let: threading.Event) -> None:
        self.shared, self.let, self.reached = str(shared), let, threading.Event()

    def mkdir(self, path: str) -> None:
        if path.startswith(self.shared):
            self.reached.set()
            assert self.let.wait(WAIT_S)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        super().mkdir(path)


@pytest.fixture
def let() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def managed(tmp_path: Path, **more: Any) -> tuple[CheckpointManager, Any, Any]:
    net, optimizer = build("one", 1)
    train(net, optimizer)
    manager = CheckpointManager(
        tmp_path / "shared", model=net, optimizer=optimizer, local=tmp_path / "disk", every_steps=1, **more
    )
    return manager, net, optimizer


@pytest.mark.parametrize("beside", [False, True])
def test_a_shared_directory_that_hangs_and_then_is_full_holds_up_no_step_and_loses_nothing(
    beside: bool, let: threading.Event, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    files = Hanging(tmp_path / "shared", let)
    manager, net, optimizer = managed(tmp_path, files=files, async_save=beside, durable_wait_s=WAIT_S, local_keep=2)
    for step in range(1, 6):
        manager.step(step)
        manager.wait()
        train(net, optimizer)
    assert files.reached.wait(WAIT_S)
    assert not let.is_set(), "five saves while it hung"
    assert [one.step for one in scan(str(tmp_path / "disk")).committed] == [5, 4, 1], "and what it still reads stays"
    let.set()
    manager.close()
    assert "was not brought to" in (err := capfd.readouterr().err)
    assert "No space left on device" in err
    again, net, optimizer = managed(tmp_path)
    found = again.load()
    assert found is not None
    assert found.step == 5
    again.close()
    shared = scan(str(tmp_path / "shared"))
    assert [one.step for one in shared.committed] == [5], "the next life brings what the last one could not"


def test_a_lost_disk_comes_from_the_shared_directory_bit_for_bit(tmp_path: Path) -> None:
    manager, net, optimizer = managed(tmp_path)
    manager.step(1)
    bits = state_bits(net, optimizer)
    manager.close()
    shutil.rmtree(tmp_path / "disk")
    other, net, optimizer = managed(tmp_path)
    train(net, optimizer)
    found = other.load()
    assert found is not None
    assert state_bits(net, optimizer) == bits
    assert found.path.startswith(str(tmp_path / "disk"))
    assert other.latest() == 1
    other.close()


def test_where_nothing_is_here_and_the_shared_directory_cannot_be_looked_at_it_is_no_fresh_start(
    tmp_path: Path,
) -> None:
    (tmp_path / "shared").write_text("no directory")
    manager, _, _ = managed(tmp_path)
    with pytest.raises(NothingVerified, match="what is elsewhere cannot be known"):
        manager.load()
    manager.close()


def test_one_directory_that_two_nodes_see_is_not_each_ones_own(tmp_path: Path) -> None:
    (tmp_path / "disk-0").mkdir(parents=True)
    (tmp_path / "disk-1").symlink_to(tmp_path / "disk-0")
    life = saved(tmp_path, 1, [store.Quick(), store.Quick()], set())
    assert any(isinstance(error, StateRefused) and "own" in str(error) for error in life.ended.values())
    assert resumed(tmp_path) is None, "and nothing of it is left"


def test_settings_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    net, _ = build("one", 1)
    for wrong, text in (
        ({"local": tmp_path / "shared"}, "is the directory itself"),
        ({"peer_copies": 1}, "give local="),
        ({"local": tmp_path / "disk", "local_keep": 0}, "local_keep"),
        ({"local": tmp_path / "disk", "peer_copies": -1}, "peer_copies"),
    ):
        with pytest.raises(ValueError, match=text):
            CheckpointManager(tmp_path / "shared", model=net, **wrong)
