"""Saves beside the training: what is saved is the state of the moment, never a mixture; what goes wrong is heard of."""

import errno
import json
import os
import signal
import socket
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from ckpt_worlds import Net, build, state_bits, train  # noqa: E402
from support import eventually_sync  # noqa: E402

from rankpulse.trainer.checkpoint import CheckpointManager, RanksLost, SaveFailed, StateRefused  # noqa: E402
from rankpulse.trainer.checkpoint.entries import whole  # noqa: E402
from rankpulse.trainer.checkpoint.files import Files  # noqa: E402
from rankpulse.trainer.checkpoint.reader import scan, verify  # noqa: E402
from rankpulse.trainer.checkpoint.staging import Arena, Stage  # noqa: E402
from rankpulse.trainer.checkpoint.together import Alone  # noqa: E402

OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "momentum": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9),
    "adamw": lambda p: torch.optim.AdamW(p, lr=torch.tensor(0.01), foreach=False),
    "fused": lambda p: torch.optim.AdamW(p, lr=0.01, fused=True),
    "foreach": lambda p: torch.optim.Adam(p, lr=0.01, foreach=True, amsgrad=True),
    "adafactor": lambda p: torch.optim.Adafactor(p, lr=0.01),
}
WAIT_S = 20.0


def steps(directory: Path) -> list[int]:
    return [found.step for found in scan(str(directory)).committed]


def life(make: Callable[[Any], Any], seed: int) -> tuple[Any, Any, Any]:
    torch.manual_seed(seed)
    net = Net(half=torch.float32)
    optimizer = make(net.parameters())
    return net, optimizer, torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_what_is_saved_is_the_state_of_then(name: str, tmp_path: Path) -> None:
    """Running statistics, a learning rate in a tensor, moments, random numbers: all while training goes on."""
    net, optimizer, scheduler = life(OPTIMIZERS[name], 1)
    manager = CheckpointManager(
        tmp_path, model=net, optimizer=optimizer, scheduler=scheduler, every_steps=2, async_save=True
    )
    at_save, losses = {}, []
    for step in range(1, 6):
        losses.append(train(net, optimizer, scheduler))
        assert manager.step(step) is None
        at_save[step] = state_bits(net, optimizer)
    saved = manager.wait()
    assert saved is not None
    assert (saved.step, saved.verified) == (4, True)
    assert 0 <= saved.stood_s <= saved.save_s
    manager.close()
    again, other, its = life(OPTIMIZERS[name], 2)
    loading = CheckpointManager(tmp_path, model=again, optimizer=other, scheduler=its)
    resumed = loading.load()
    assert resumed is not None
    assert resumed.step == 4
    assert state_bits(again, other) == at_save[4]
    assert train(again, other, its) == losses[4]
    assert steps(tmp_path) == [4, 2]


class Late(Stage):
    """Copies the last of the parameters as late as it may: when an update has been made, or cannot come any more."""

    guarded, watched = True, True

    def __init__(self) -> None:
        super().__init__()
        self.updated = threading.Event()

    def _make(self, pairs: Any) -> None:
        if not self.guarded:
            assert self.updated.wait(WAIT_S)
        else:
            self.updated.wait(0.2)  # the update that must not come has this long to come
        super()._make(pairs)

    def before_update(self) -> None:
        if self.guarded:
            super().before_update()

    def _judge(self) -> None:
        if self.watched:
            super()._judge()


class Unguarded(Late):
    """The barrier is gone."""

    guarded = False


class Blind(Unguarded):
    """And nobody looks whether it was needed."""

    watched = False


def saved_beside_an_update(stage: Late, directory: Path) -> tuple[dict[str, str], dict[str, str]]:
    """The state when a save was begun, and what was saved: an optimizer's step comes while it is being copied."""
    torch.manual_seed(1)
    net, optimizer = build("one", 1)
    train(net, optimizer)
    manager = CheckpointManager(directory, model=net, optimizer=optimizer, stage=stage)
    at_save = state_bits(net, optimizer)
    manager.save_async(1)
    train(net, optimizer)
    stage.updated.set()
    manager.wait()
    manager.close()
    again, other = build("one", 2)
    CheckpointManager(directory, model=again, optimizer=other).load()
    return at_save, state_bits(again, other)


def test_an_update_cannot_tear_the_copies(tmp_path: Path) -> None:
    at_save, saved = saved_beside_an_update(Late(), tmp_path)
    assert saved == at_save


def test_without_the_barrier_the_same_test_finds_a_torn_copy(tmp_path: Path) -> None:
    """The test above can fail: parameters of step 2 lie beside running statistics of step 1."""
    at_save, saved = saved_beside_an_update(Blind(), tmp_path)
    torn = {name for name in saved if saved[name] != at_save[name]}
    assert "first.weight" in torn
    assert "norm.running_mean" not in torn


def test_a_copy_that_may_be_torn_is_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(SaveFailed, match=r"call before_update\(\) of the manager"):
        saved_beside_an_update(Unguarded(), tmp_path)
    assert steps(tmp_path) == []


@pytest.mark.parametrize("warned", [True, False])
def test_an_update_by_hand(warned: bool, tmp_path: Path) -> None:
    net, optimizer = build("one", 1)
    train(net, optimizer)
    stage = Late()
    manager = CheckpointManager(tmp_path, model=net, optimizer=optimizer, stage=stage)
    at_save = state_bits(net, optimizer)
    manager.save_async(1)
    if warned:
        manager.before_update()
    with torch.no_grad():
        net.first.weight.mul_(2.0)
    stage.updated.set()
    if not warned:
        with pytest.raises(SaveFailed, match="before_update"):
            manager.wait()
        return
    assert manager.wait() is not None
    assert manager.load() is not None
    assert state_bits(net, optimizer) == at_save


class Interrupted(Stage):
    """Somebody presses Ctrl-C while a save is begun: after its copies are known, before anybody makes them."""

    once = True

    def begin(self, slices: Any) -> Any:
        found = super().begin(slices)
        if self.once:
            self.once = False
            raise KeyboardInterrupt
        return found


def test_a_save_that_a_person_breaks_off_holds_up_no_later_step(tmp_path: Path) -> None:
    net, optimizer = build("one", 1)
    train(net, optimizer)
    manager = CheckpointManager(tmp_path, model=net, optimizer=optimizer, stage=Interrupted(), async_save=True)
    with pytest.raises(KeyboardInterrupt):
        manager.save_async(1)
    step = threading.Thread(target=train, args=(net, optimizer), daemon=True)
    step.start()
    step.join(WAIT_S)
    assert not step.is_alive()
    assert steps(tmp_path) == []
    assert manager.save_async(2)
    assert manager.wait() is not None
    assert steps(tmp_path) == [2]


def test_copies_that_were_given_up_are_no_checkpoint() -> None:
    """Whoever writes them nevertheless (its thread had begun) is told."""
    stage = Stage()
    net, _ = build("one", 1)
    stage.begin([whole(net.first.weight, stepped=True)])
    stage.give_up()
    with pytest.raises(SaveFailed, match="broken off"):
        stage.finish()


def test_a_forked_child_does_not_wait_for_a_thread_that_it_has_not(tmp_path: Path) -> None:
    net, optimizer = build("one", 1)
    train(net, optimizer)
    stage = Late()
    manager = CheckpointManager(tmp_path, model=net, optimizer=optimizer, stage=stage)
    manager.save_async(1)
    child = os.fork()
    if not child:
        signal.alarm(int(WAIT_S))
        manager.before_update()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    stage.updated.set()
    assert manager.wait() is not None
    manager.close()


class Gate(Files):
    """A disk that does not answer until it is let."""

    def __init__(self) -> None:
        self.open, self.reached, self.full = threading.Event(), threading.Event(), False

    def fsync(self, fd: int) -> None:
        self.reached.set()
        assert self.open.wait(WAIT_S)
        if self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().fsync(fd)


def test_a_slow_disk_stops_no_step(tmp_path: Path) -> None:
    files = Gate()
    net, optimizer = build("one", 1)
    manager = CheckpointManager(tmp_path, model=net, optimizer=optimizer, files=files, every_steps=2, async_save=True)
    for step in range(1, 4):
        train(net, optimizer)
        manager.step(step)
    assert files.reached.wait(WAIT_S)
    assert manager.wait(timeout_s=0.01) is None
    assert steps(tmp_path) == []
    files.open.set()
    saved = manager.wait()
    assert saved is not None
    assert steps(tmp_path) == [2]
    verify(saved.path)


def test_a_save_that_is_due_meanwhile_is_skipped_or_waits(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    files = Gate()
    net, optimizer = build("one", 1)
    more: dict[str, Any] = {"model": net, "optimizer": optimizer, "files": files, "every_steps": 1, "async_save": True}
    manager = CheckpointManager(tmp_path, when_busy="skip", **more)
    train(net, optimizer)
    manager.step(1)
    assert manager.save_async(2) is False
    manager.step(3)
    assert "step 3 is not saved: the save before is still going on" in capfd.readouterr().err
    files.open.set()
    manager.close()
    assert steps(tmp_path) == [1]

    files.open.clear()
    patient = CheckpointManager(tmp_path, **more)
    patient.step(4)
    opened = threading.Timer(0.1, files.open.set)
    opened.start()
    patient.step(5)
    assert 4 in steps(tmp_path), "the one before was waited for"
    patient.close()
    opened.join()
    assert steps(tmp_path) == [5, 4, 1]


def test_an_explicit_save_comes_after_the_one_that_goes_on(tmp_path: Path) -> None:
    net, optimizer = build("one", 1)
    manager = CheckpointManager(tmp_path, model=net, optimizer=optimizer, every_steps=1, async_save=True)
    manager.step(1)
    assert manager.save(2).step == 2
    assert steps(tmp_path) == [2, 1]
    manager.close()


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """Something that listens where the node's agent would."""
    monkeypatch.setenv("RANKPULSE_DIR", str(tmp_path))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(tmp_path / "agent.sock"))
        listener.listen(64)
        listener.settimeout(5)
        yield listener


def heard(agent: socket.socket) -> dict[str, Any]:
    connection, _address = agent.accept()
    with connection:
        said: dict[str, Any] = json.loads(connection.makefile().readline())
        return said


def test_a_save_that_fails_is_said_and_told_and_training_goes_on(
    agent: socket.socket, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    files, place = Gate(), tmp_path / "ck"
    files.open.set()
    net, optimizer = build("one", 1)
    manager = CheckpointManager(place, model=net, optimizer=optimizer, files=files, every_steps=1, async_save=True)
    manager.step(1)
    assert manager.wait() is not None
    files.full = True
    manager.step(2)
    assert heard(agent)["event"] == "saved"
    told = heard(agent)
    assert (told["event"], told["step"]) == ("save_failed", 2)
    with pytest.raises(SaveFailed, match="No space left on device"):
        manager.wait()
    assert manager.wait() is None, "it is raised once"
    assert "step 2 was not saved" in capfd.readouterr().err
    manager.step(3)
    train(net, optimizer)
    manager.step(4)  # nothing is raised: it was said
    assert [heard(agent)["step"], heard(agent)["step"]] == [3, 4]
    files.full = False
    manager.save(5)
    manager.close()
    assert steps(place) == [5, 1]


def test_the_end_of_a_program_hears_that_its_last_save_failed(tmp_path: Path) -> None:
    files = Gate()
    files.full = True
    files.open.set()
    net, optimizer = build("one", 1)
    manager = CheckpointManager(tmp_path, model=net, optimizer=optimizer, files=files, every_steps=1, async_save=True)
    manager.step(1)
    with pytest.raises(SaveFailed, match="No space left"):
        manager.close()


def test_what_cannot_be_saved_is_raised_at_once(tmp_path: Path) -> None:
    net, optimizer = build("one", 1)
    manager = CheckpointManager(
        tmp_path, model=net, optimizer=optimizer, extra={"odd": {"thing": object()}}, every_steps=1, async_save=True
    )
    with pytest.raises(StateRefused, match="odd"):
        manager.step(1)
    manager.close()


class Lost(Alone):
    """A world whose other ranks die once the writer thread speaks with them."""

    def gather(self, value: Any) -> list[Any]:
        if threading.current_thread() is not threading.main_thread():
            raise RanksLost("gone")
        return [value]


def test_ranks_that_are_lost_meanwhile_are_raised_once_by_what_comes_next(tmp_path: Path) -> None:
    for ending in ("step", "save_async", "wait", "close"):
        net, optimizer = build("one", 1)
        manager = CheckpointManager(tmp_path, model=net, optimizer=optimizer, every_steps=5, together=Lost())
        manager.save_async(1)
        eventually_sync(lambda manager=manager: not manager._background.busy, WAIT_S, "the end of the save")
        with pytest.raises(RanksLost):
            getattr(manager, ending)(*([2] if ending in ("step", "save_async") else []))
        manager.close()


def test_without_a_thread_training_waits_for_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def none_left(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    pytest.importorskip("fsspec")
    net, optimizer = build("one", 1)
    train(net, optimizer)
    manager = CheckpointManager(tmp_path / "ck", model=net, optimizer=optimizer, durable=[str(tmp_path / "far")])
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", none_left)
        manager.save_async(1)
    assert steps(tmp_path / "ck") == [1]
    assert "is not brought to" in capfd.readouterr().err
    train(net, optimizer)  # its step waits for nobody
    manager.save_async(2)
    manager.close()
    assert steps(tmp_path / "ck") == [2, 1]
    assert steps(tmp_path / "far") == [2]


def test_what_a_device_still_reads_is_held_until_it_has() -> None:
    """A parameter that does not lie dense (channels_last) is made dense for the copy; were that memory let go, the
    next forward pass would be given it while it is read."""

    class Device(Stage):
        def _copy(self, device: Any, pairs: Any, waited_for: bool = True) -> None:
            dense.extend(map(weakref.ref, pairs.sources))

    dense: list[Any] = []
    stage = Device()
    strided = torch.empty(2, 3, 4, 4, device="meta").to(memory_format=torch.channels_last)
    stage.begin([whole(strided, stepped=True)])
    assert [one() is not None for one in dense] == [True]
    stage.finish()
    assert [one() is not None for one in dense] == [False]


def test_buffers_are_kept_from_save_to_save(tmp_path: Path) -> None:
    stage = Stage()
    net, optimizer = build("one", 1)
    train(net, optimizer)
    manager = CheckpointManager(tmp_path, model=net, optimizer=optimizer, stage=stage, keep_last=9)
    sizes = []
    for step in range(3):
        manager.save_async(step)
        manager.wait()
        sizes.append(stage.arena.nbytes)
    manager.close()
    assert sizes[0] == sizes[1] == sizes[2] > 0


def test_every_type_has_its_place_in_a_buffer() -> None:
    arena = Arena()
    arena.reset(pinned=False)
    types = (torch.bool, torch.bfloat16, torch.float64, torch.complex64, torch.float8_e4m3fn, torch.int16)
    given = [torch.ones(7).to(dtype) for dtype in types]
    pieces = [arena.piece(one) for one in given]
    for piece, one in zip(pieces, given, strict=True):
        piece.copy_(one)
    for piece, one in zip(pieces, given, strict=True):
        assert piece.view(torch.uint8).tolist() == one.view(torch.uint8).tolist()
    assert arena.piece(torch.empty(0, 3)).numel() == 0
    assert arena.piece(torch.empty(20_000_000)).numel() == 20_000_000
    before = arena.nbytes
    arena.reset(pinned=False)
    assert [arena.piece(one).data_ptr() for one in given] == [piece.data_ptr() for piece in pieces]
    assert arena.nbytes == before


@pytest.mark.parametrize(
    "wrong",
    [{"when_busy": "never"}, {"when_busy": None}, {"durable": "s3://x"}, {"durable_writers": 0}, {"durable_keep": 0}],
    ids=str,
)
def test_settings_that_mean_nothing_are_refused(wrong: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        CheckpointManager(tmp_path, model=Net(), **wrong)
