"""Last words beside a program that has signals, forks, errors, updates and disks of its own: what it does not ask for
does it no harm, and what it does costs it no last words."""

import asyncio
import errno
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from ckpt_worlds import build, state_bits, train
from support import eventually_sync, fork

from rankpulse.trainer.checkpoint import CheckpointManager, reader
from rankpulse.trainer.checkpoint.files import Files
from rankpulse.trainer.checkpoint.lastwords import serving
from rankpulse.trainer.checkpoint.lastwords.offering import LastWords, Setting, poll_s
from rankpulse.trainer.checkpoint.lastwords.terminated import Terminated
from rankpulse.trainer.checkpoint.lastwords.words import Question
from rankpulse.trainer.checkpoint.state import program as parts_of
from rankpulse.trainer.checkpoint.together import Alone

WAIT_S = 20.0


class Program:
    def __init__(self, directory: Path, **settings: Any) -> None:
        torch.manual_seed(3)
        self.net, self.optimizer = build("one", 1)
        settings = {"optimizer": self.optimizer, "every_steps": 100, "last_words": True, **settings}
        self.manager = CheckpointManager(directory, model=self.net, **settings)

    def step(self, step: int) -> None:
        train(self.net, self.optimizer)
        self.manager.step(step)

    def answer(self) -> Any:
        assert self.manager._last_words is not None
        return self.manager._last_words.answer(Question())


def in_child(work: Callable[[], int]) -> int:
    """How a child ended that returns this: -signal, or its code."""
    pid = fork()
    if not pid:
        code = 99
        try:
            code = work()
        finally:
            os._exit(code)
    try:
        ended = eventually_sync(lambda: end if (end := os.waitpid(pid, os.WNOHANG))[0] else None, what="its end")
    except AssertionError:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        raise
    return os.waitstatus_to_exitcode(ended[1])


# --- signals


def test_a_handler_of_sigterm_that_the_program_sets_later_decides_how_it_goes_on() -> None:
    def work() -> int:
        spoken, seen = threading.Event(), list[int]()
        terminated = Terminated(spoken.set)
        assert terminated.install() == ""
        signal.signal(signal.SIGTERM, lambda number, frame: seen.append(number))
        os.kill(os.getpid(), signal.SIGTERM)
        eventually_sync(lambda: spoken.is_set() and terminated._over)
        os.kill(os.getpid(), signal.SIGTERM)  # handled after what the thread might have sent
        eventually_sync(lambda: len(seen) > 1)
        return 40 + len(seen)

    assert in_child(work) == 42


def test_sigterm_ends_a_program_whose_event_loop_has_taken_the_wakeup_descriptor(tmp_path: Path) -> None:
    spoken = tmp_path / "spoken"

    def work() -> int:
        async def main() -> None:
            asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, print)

        assert Terminated(spoken.touch).install() == ""
        asyncio.run(main())
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(WAIT_S)
        return 98

    assert in_child(work) == -signal.SIGTERM
    assert spoken.exists()


def test_a_wakeup_descriptor_that_the_program_sets_later_stays_its_own() -> None:
    def work() -> int:
        terminated = Terminated(print)
        assert terminated.install() == ""
        theirs = os.pipe2(os.O_NONBLOCK)[1]
        signal.set_wakeup_fd(theirs)
        terminated.remove()
        return 50 + (signal.set_wakeup_fd(-1) == theirs) + (signal.getsignal(signal.SIGTERM) == signal.SIG_DFL)

    assert in_child(work) == 52


def test_a_handler_that_calls_what_was_there_before_it_ends_the_process_also_after_a_manager_was_closed() -> None:
    def work() -> int:
        terminated = Terminated(print)
        assert terminated.install() == ""
        before: Any = signal.getsignal(signal.SIGTERM)
        signal.signal(signal.SIGTERM, lambda number, frame: before(number, frame))
        terminated.remove()
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(WAIT_S)
        return 98

    assert in_child(work) == -signal.SIGTERM


# --- a directory that does not answer


class Gone(Files):
    """From `gone` on nothing in the directory answers, until `let`."""

    def __init__(self) -> None:
        self.gone, self.let = threading.Event(), threading.Event()

    def _reach(self) -> None:
        if self.gone.is_set():
            assert self.let.wait(WAIT_S)

    def mkdir(self, path: str) -> None:
        self._reach()
        super().mkdir(path)

    def create(self, path: str) -> int:
        self._reach()
        return super().create(path)


@pytest.fixture
def files() -> Iterator[Gone]:
    found = Gone()
    yield found
    found.let.set()


def test_a_directory_that_is_gone_keeps_no_process_from_its_end(
    files: Gone, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = Program(tmp_path, files=files, last_words_s=0.1)
    program.step(1)
    files.gone.set()
    serving._at_sigterm({})
    assert f"no last words: {tmp_path} does not answer" in capsys.readouterr().err
    program.step(2)  # and the gate is open
    files.let.set()
    program.manager.close()


def test_a_directory_that_is_gone_holds_up_the_first_step_once_and_no_save(files: Gone, tmp_path: Path) -> None:
    net, optimizer = build("one", 1)
    parts, said = parts_of(net, [optimizer], [], None, {}), list[str]()
    last = LastWords(Setting(parts, str(tmp_path), 1.0, files, say=said.append, look_s=0.1))
    files.gone.set()
    for step in (1, 2):
        last.at_step(step, {}, Alone())
        last.forget()
    assert said == ["the folder for last words could not be made: no answer within 0.1 s"]
    last.at_step(3, {}, Alone())
    assert "no answer within" in last.answer(Question()).reason
    last.close()


class NoLinks(Files):
    def link(self, path: str, to: str) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), path)


def test_a_file_system_without_links_is_said_at_the_start_and_not_at_the_death(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = Program(tmp_path, files=NoLinks())
    program.step(1)
    assert "the folder for last words could not be made: [Errno 1] Operation not permitted" in capsys.readouterr().err
    assert "Operation not permitted" in program.answer().reason
    assert program.manager.save(1).step == 1
    program.manager.close()


def test_many_ranks_look_less_often_each() -> None:
    assert [poll_s(world) for world in (2, 100, 1000, 100_000)] == [0.02, 0.02, 0.2, 0.5]


# --- errors on whose way out the program closes its manager


def failing(program: Program, error: Exception) -> None:
    try:
        raise error
    finally:
        program.manager.close()


def test_a_manager_that_is_closed_on_the_way_out_of_an_error_of_communication_speaks_first(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.step(1)
    with pytest.raises(RuntimeError, match="Connection closed"):
        failing(program, RuntimeError("Connection closed by peer [127.0.0.1]:2000"))
    found = reader.scan(str(tmp_path)).committed
    assert [(one.step, one.manifest and one.manifest.kind) for one in found] == [(1, "last_words")]


def test_a_manager_that_is_closed_while_last_words_go_on_waits_for_them(files: Gone, tmp_path: Path) -> None:
    """A handler of SIGTERM that ends the program at once does that."""
    program = Program(tmp_path, files=files)
    program.step(1)
    files.gone.set()
    answers = list[Any]()
    thread = threading.Thread(target=lambda: answers.append(program.answer()))
    thread.start()
    eventually_sync(lambda: program.manager._last_words is not None and not program.manager._last_words.idle)
    threading.Timer(0.2, files.let.set).start()
    program.manager.close()
    thread.join(WAIT_S)
    assert [(one.outcome, one.step) for one in answers] == [("saved", 1)]


def test_a_rank_that_closes_its_manager_for_an_error_of_its_own_takes_the_folder_from_nobody(tmp_path: Path) -> None:
    def folders() -> list[str]:
        return [name for name in os.listdir(tmp_path) if name.startswith(".last-words-")]

    program = Program(tmp_path)
    program.step(1)
    with pytest.raises(ValueError, match="mine"):
        failing(program, ValueError("mine"))
    assert len(folders()) == 1
    assert reader.scan(str(tmp_path)).committed == ()
    again = Program(tmp_path)
    assert again.manager.load() is None
    assert folders() == [], "the next life removes it"
    again.manager.close()


def test_a_forked_child_speaks_for_nobody(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.step(1)
    assert serving._Process.current is not None

    def work() -> int:
        try:
            raise ConnectionResetError("Connection reset by peer")
        except ConnectionResetError:
            sys.excepthook(*sys.exc_info())
        return 0

    assert in_child(work) == 0
    assert reader.scan(str(tmp_path)).committed == ()
    assert program.answer().saved, "and its parent does"
    program.manager.close()


# --- steps


def test_a_step_that_is_counted_twice_is_no_step_that_others_could_mean(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.step(1)
    program.step(1)
    answer = program.answer()
    assert not answer.saved
    assert "step 1 was done twice, with an update in between" in answer.reason
    program.step(2)
    program.manager.step(2)  # without an update: the same state
    assert program.answer().step == 2
    program.manager.close()


def test_a_buffer_that_came_since_all_agreed_is_kept_from_the_save_on_that_found_it(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.step(1)
    program.net.register_buffer("late", torch.ones(3))
    program.manager.save(2)
    program.manager._newest = (-1, "")  # as with a local tier, where a save is no reason to write nothing
    program.net.late.data.add_(5)  # the next forward pass, which counts no versions
    answer = program.answer()
    assert answer.saved
    program.manager.close()
    again = Program(tmp_path / "other")
    again.net.register_buffer("late", torch.zeros(3))
    shutil.move(answer.path, tmp_path / "other")
    assert again.manager.load() is not None
    assert again.net.late.tolist() == [1, 1, 1]
    again.manager.close()


def test_two_optimizers_stand_between_steps_when_both_are_done(tmp_path: Path) -> None:
    net, first = build("one", 1)
    halves = list(net.parameters())
    first = torch.optim.AdamW(halves[:1], lr=0.01)
    second = torch.optim.SGD(halves[1:], lr=0.01, momentum=0.9)
    manager = CheckpointManager(tmp_path, model=net, optimizer=[first, second], every_steps=100, last_words=True)
    last = manager._last_words
    assert last is not None

    def backward() -> None:
        net(torch.randn(4, 8)).square().mean().backward()

    for _ in range(2):
        backward()
        first.step()
        second.step()
    manager.step(1)
    bits = state_bits(net, first), state_bits(net, second)
    backward()
    first.step()
    answer = last.answer(Question(within_s=0.4))
    assert not answer.saved, "one is a step further"
    second.step()
    manager.step(2)
    bits = state_bits(net, first), state_bits(net, second)
    assert last.answer(Question()).step == 2
    manager.close()
    again = CheckpointManager(tmp_path, model=net, optimizer=[first, second], every_steps=100, last_words=True)
    backward()
    first.step()
    assert again.load() is not None
    assert (state_bits(net, first), state_bits(net, second)) == bits
    second.step()
    again.step(3)
    assert serving._Process.current is again._last_words
    assert again._last_words is not None
    assert again._last_words.answer(Question()).step == 3, "a second manager in one process"
    again.close()


# --- two tiers


def test_survivors_of_a_job_with_local_disks_write_to_what_all_share_and_the_next_life_resumes_there(
    tmp_path: Path,
) -> None:
    shared, disk = tmp_path / "shared", tmp_path / "disk"
    program = Program(shared, local=disk, every_steps=1)
    for step in (1, 2):
        program.step(step)
    eventually_sync(lambda: [one.step for one in reader.scan(str(shared)).committed][:1] == [2], WAIT_S)
    program.manager._every_steps = 100
    program.step(3)
    bits = state_bits(program.net, program.optimizer)
    answer = program.answer()
    assert (answer.saved, answer.step, os.path.dirname(answer.path)) == (True, 3, str(shared))
    assert [one.step for one in reader.scan(str(disk)).committed] == [2, 1]
    program.manager.close()
    shutil.rmtree(disk)  # the node was replaced
    again = Program(shared, local=disk, every_steps=1)
    train(again.net, again.optimizer)
    resumed = again.manager.load()
    assert resumed is not None
    assert (resumed.step, resumed.kind, os.path.dirname(resumed.path)) == (3, "last_words", str(disk))
    assert state_bits(again.net, again.optimizer) == bits
    for step in (4, 5):
        again.step(step)
    again.manager.close()
    assert reader.scan(str(shared)).committed[0].step == 5, "and what follows is brought as ever"
