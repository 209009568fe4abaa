"""Last words of one process: what is kept of a step, what is asked and answered, who wakes them."""

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from ckpt_worlds import Net, bits, state_bits, train
from support import fork

from rankpulse.trainer.checkpoint import CheckpointManager, manifest, reader
from rankpulse.trainer.checkpoint import state as states
from rankpulse.trainer.checkpoint.errors import ManifestInvalid, NewerSchema, RanksLost
from rankpulse.trainer.checkpoint.lastwords import serving
from rankpulse.trainer.checkpoint.lastwords.lost import lost_peer
from rankpulse.trainer.checkpoint.lastwords.moment import Keeper, Moment
from rankpulse.trainer.checkpoint.lastwords.offering import limit_s, not_ours
from rankpulse.trainer.checkpoint.lastwords.terminated import Terminated
from rankpulse.trainer.checkpoint.lastwords.words import QUESTION_MAX, Answer, Question
from rankpulse.trainer.checkpoint.recut import recut


class Centred(Net):
    """With a buffer that every forward pass replaces."""

    def __init__(self) -> None:
        super().__init__(half=torch.float32)
        self.register_buffer("centre", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.centre = self.centre * 0.9 + 1
        return super().forward(x)


class Program:
    def __init__(self, directory: Path, net: Any = None, **settings: Any) -> None:
        torch.manual_seed(3)
        self.net = net or Centred()
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=0.01)
        self.scheduler = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.9)
        self.extra = {"at": 0, "mean": torch.zeros(2)}
        self.manager = CheckpointManager(
            directory, model=self.net, optimizer=self.optimizer, scheduler=self.scheduler, extra={"mine": self.extra},
            **{"every_steps": 100, "last_words": True, **settings},
        )  # fmt: skip

    def step(self, step: int) -> None:
        train(self.net, self.optimizer, self.scheduler)
        self.extra["at"] = step
        self.manager.step(step, {"loss": 0.5})

    def held(self) -> dict[str, Any]:
        extra = [self.extra["at"], bits(self.extra["mean"])]
        return {**state_bits(self.net, self.optimizer), "rng": bits(torch.get_rng_state()), "extra": extra,
                "lr": self.scheduler.get_last_lr(), "groups": self.optimizer.param_groups[0]["lr"]}  # fmt: skip

    def move_on(self) -> None:
        """The next step as far as its update: all that goes on changing."""
        (self.net(torch.randn(4, 8)) - 1).square().mean().backward()
        self.scheduler.step()
        self.extra["at"] = -1
        self.extra["mean"].add_(1)

    @property
    def last(self) -> Any:
        return self.manager._last_words


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


def test_what_is_written_is_the_end_of_the_step_though_the_next_has_begun(tmp_path: Path, program: Program) -> None:
    for step in (1, 2):
        program.step(step)
    held = program.held()
    program.move_on()
    assert program.held() != held
    answer = program.last.answer(Question())
    assert (answer.outcome, answer.step, answer.absent) == ("saved", 2, ())
    assert program.last.answer(Question()) == answer
    program.manager.close()
    again = Program(tmp_path)
    resumed = again.manager.load()
    assert resumed is not None
    assert (resumed.step, resumed.kind, resumed.metrics) == (2, "last_words", {"loss": 0.5})
    assert again.held() == held
    again.manager.close()
    assert [name for name in os.listdir(tmp_path) if name.startswith(".")] == []


def test_it_is_a_checkpoint_like_any_other_to_those_who_read_them(tmp_path: Path, program: Program) -> None:
    program.step(1)
    path = program.last.answer(Question()).path
    assert reader.verify(path).kind == "last_words"
    new = recut(path, 3, str(tmp_path / "cut"))
    assert (new.manifest.kind, new.manifest.schema_version, new.manifest.absent) == ("sharded", 1, ())
    reader.verify(new.path)


def test_an_ordinary_save_of_the_step_is_enough(program: Program) -> None:
    program.step(1)
    saved = program.manager.save(1)
    answer = program.last.answer(Question())
    assert (answer.saved, answer.step, answer.path) == (True, 1, saved.path)


def test_a_parameter_that_was_changed_by_hand_is_found(program: Program) -> None:
    program.step(1)
    with torch.no_grad():
        program.net.first.bias.add_(1)
    answer = program.last.answer(Question())
    assert not answer.saved
    assert "model.first.bias was changed since the end of step 1" in answer.reason
    program.step(2)
    assert program.last.answer(Question()).step == 2


def test_an_update_that_raised_leaves_no_step(program: Program) -> None:
    program.step(1)

    def trouble(*_: object) -> None:
        raise RuntimeError("in the step")

    handle = program.optimizer.register_step_pre_hook(trouble)
    with pytest.raises(RuntimeError, match="in the step"):
        train(program.net, program.optimizer)
    handle.remove()
    answer = program.last.answer(Question(within_s=0.4))
    assert not answer.saved
    assert "rank 0 was in the middle of an update" in answer.reason
    program.step(2)
    assert program.last.answer(Question()).saved


@pytest.mark.parametrize(
    ("break_it", "reason"),
    [
        (lambda program: setattr(program.net, "first", torch.nn.Linear(8, 6)), "was replaced since all ranks"),
        (lambda program: setattr(program.net.first.weight, "data", torch.zeros(6, 8)), "was given other memory"),
        (lambda program: program.extra.update(new=object()), "could not be kept"),
        (lambda program: program.extra.update(new=torch.zeros(1)), "holding other tensors than when all ranks agreed"),
    ],
)
def test_what_is_not_as_it_was_agreed_is_refused_with_the_reason(
    program: Program, break_it: Callable[[Program], object], reason: str
) -> None:
    program.step(1)
    break_it(program)
    program.manager.step(2)
    answer = program.last.answer(Question())
    assert not answer.saved
    assert reason in answer.reason


def test_a_state_that_cannot_be_kept_ready_is_said_and_training_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Extra(Net):
        def get_extra_state(self) -> Any:
            return {"a": 1}

        def set_extra_state(self, state: Any) -> None:
            pass

    program = Program(tmp_path, Extra(half=torch.float32))
    program.step(1)
    assert "last words cannot be kept ready: model has modules with get_extra_state" in capsys.readouterr().err
    assert "get_extra_state" in program.last.answer(Question()).reason
    assert program.manager.save(1).step == 1


def test_who_does_not_know_yet_or_any_more_refuses(program: Program) -> None:
    def reason(question: Question) -> str:
        return str(program.last.answer(question).reason)

    assert "no step of this life is done yet" in reason(Question())
    program.step(1)
    program.manager.close()
    assert "was closed" in reason(Question())
    status, text = serving.answered(json.dumps({"v": 1, "within_s": 1}))
    assert (status, json.loads(text)["reason"]) == (200, "no manager of checkpoints keeps last words ready")


@pytest.mark.parametrize(
    ("question", "run", "why"),
    [
        (Question("u1", 3), {"run_uid": "u2", "round": 3}, "asked of run u1, and this is u2"),
        (Question("u1", 3), {"run_uid": "u1", "round": 4}, "asked of round 3, and this is 4"),
        (Question("u1", 3), {"run_uid": "u1", "round": 3}, ""),
        (Question("u1", 3), {"run_uid": "", "round": -1}, ""),
        (Question(), {"run_uid": "u1", "round": 3}, ""),
    ],
)
def test_a_question_for_another_life_is_not_answered_by_this_one(
    question: Question, run: dict[str, Any], why: str
) -> None:
    assert not_ours(question, run) == why


def test_a_save_that_takes_too_long_leaves_no_hope(program: Program) -> None:
    program.step(1)
    program.last.measured(11.0, 0)
    assert "a save takes 11.0 s here, longer than last words may (10 s)" in program.last.answer(Question()).reason


@pytest.mark.parametrize(
    ("measured_s", "cap_s", "limit"),
    [(None, 10.0, 10.0), (0.1, 10.0, 2.0), (2.0, 10.0, 5.0), (9.0, 10.0, 10.0), (10.1, 10.0, 0.0), (0.1, 1.0, 1.0)],
)
def test_for_how_long(measured_s: float | None, cap_s: float, limit: float) -> None:
    assert limit_s(measured_s, cap_s) == limit


@pytest.mark.parametrize(
    "body",
    ["", "[]", "{", '{"v":1}', '{"v":2,"within_s":1}', '{"v":1,"within_s":0}', '{"v":1,"within_s":1e9}',
     '{"v":1,"within_s":1,"absent":[-1]}', '{"v":1,"within_s":1,"torn":"2"}', '{"v":1,"within_s":1,"round":"x"}',
     '{"v":1,"within_s":NaN}', "x" * (QUESTION_MAX + 1)],
)  # fmt: skip
def test_a_question_that_is_not_understood_is_said_to_be(body: str) -> None:
    status, text = serving.answered(body)
    assert status == 400
    assert json.loads(text)["error"]


def test_a_question_and_an_answer_as_others_see_them() -> None:
    said = b'{"v":1,"run_uid":"u","round":3,"absent":[2,1,2],"torn":[],"within_s":5.0,"more":1}'
    assert Question.understood(said) == Question("u", 3, (1, 2), (), 5.0)
    answer = json.loads(Answer("saved", 120, "", "/p", 0.4, (2,)).encoded())
    assert answer == {
        "v": 1, "outcome": "saved", "step": 120, "reason": "", "path": "/p", "took_s": 0.4, "absent": [2]
    }  # fmt: skip


def raised_from(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "lost"),
    [
        (RuntimeError("[..gloo/transport/tcp/pair.cc:537] Read error: Connection reset by peer"), True),
        (RuntimeError("Connection closed by peer [127.0.0.1]:2000"), True),
        (ConnectionResetError("Connection reset by peer"), True),
        (torch.distributed.DistBackendError("NCCL error"), True),
        (torch.distributed.DistNetworkError("x"), True),
        (RanksLost("the ranks could not be reached"), True),
        (raised_from(RuntimeError("wrapped"), RuntimeError("gloo: timed out")), True),
        (RuntimeError("shape mismatch"), False),
        (ValueError("connection reset by peer"), False),
        (KeyboardInterrupt(), False),
        (None, False),
    ],
)
def test_which_errors_mean_that_another_rank_is_gone(error: BaseException | None, lost: bool) -> None:
    assert lost_peer(error) is lost


def test_a_manifest_of_last_words_is_of_a_schema_that_old_readers_leave_alone(tmp_path: Path, program: Program) -> None:
    program.step(1)
    path = program.last.answer(Question()).path
    data = reader.manifest_bytes(path)
    assert b'"schema_version": 2' in data

    def changed(old: bytes, new: bytes) -> bytes:
        made = data.replace(old, new)
        digest = manifest.digest_of(made).encode()
        return made.replace(manifest.digest_of(data).encode(), digest)

    with pytest.raises(ManifestInvalid, match="schema 2 of last_words"):
        manifest.decode(changed(b'"schema_version": 2', b'"schema_version": 1'), path)
    with pytest.raises(NewerSchema):
        manifest.decode(changed(b'"kind": "last_words"', b'"kind": "sharded"'), path)
    for absent in (b"[0]", b"[1]", b"[-1]", b'"x"'):
        with pytest.raises(ManifestInvalid):
            manifest.decode(changed(b'"absent": []', b'"absent": ' + absent), path)


def test_a_keeper_raises_nothing_whatever_a_state_dict_does(program: Program) -> None:
    class Broken:
        fine = True

        def state_dict(self) -> Any:
            if not self.fine:
                raise ZeroDivisionError("mine")
            return {}

        def load_state_dict(self, state: Any) -> None:
            pass

    broken = Broken()
    parts = states.program(program.net, [program.optimizer], [], None, {"broken": broken})
    keeper = Keeper(parts, states.captured(parts))
    assert not keeper.keep(1, {}).trouble
    broken.fine = False
    assert keeper.keep(2, {}) == Moment(2, trouble="the state at the end of step 2 could not be kept: mine")


def in_child(work: Callable[[], None]) -> int:
    """How a child ended that does this: -signal, or its code."""
    pid = fork()
    if not pid:
        try:
            work()
        finally:
            os._exit(99)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def forever() -> None:
    while True:
        time.sleep(0.01)


def test_after_last_words_a_process_ends_by_sigterm_or_as_its_own_handler_says(tmp_path: Path) -> None:
    spoken = tmp_path / "spoken"

    def terminated(handler: Any) -> Callable[[], None]:
        def work() -> None:
            signal.signal(signal.SIGTERM, handler)
            assert Terminated(spoken.touch).install() == ""
            os.kill(os.getpid(), signal.SIGTERM)
            forever()

        return work

    assert in_child(terminated(signal.SIG_DFL)) == -signal.SIGTERM
    assert spoken.exists()
    spoken.unlink()
    assert in_child(terminated(lambda number, frame: os._exit(40 + spoken.exists()))) == 41, "after the last words"


def test_a_worker_of_a_loader_that_is_terminated_wakes_nobody(tmp_path: Path) -> None:
    spoken = tmp_path / "spoken"

    def work() -> None:
        assert Terminated(spoken.touch).install() == ""
        worker = os.fork()
        if not worker:
            forever()
        os.kill(worker, signal.SIGTERM)
        status = os.waitpid(worker, 0)[1]
        os._exit(spoken.exists() * 2 + (os.waitstatus_to_exitcode(status) == -signal.SIGTERM))

    assert in_child(work) == 1


def test_a_program_that_ignores_sigterm_is_left_alone() -> None:
    def work() -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os._exit(7 if Terminated(lambda: None).install() == "the program ignores it" else 8)

    assert in_child(work) == 7
