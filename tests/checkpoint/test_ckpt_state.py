"""What a program holds, saved and loaded by one process: every kind of optimizer, scheduler, scaler and module."""

import copy
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from ckpt_worlds import Net, bits, state_bits, train  # noqa: E402

from rankpulse.core import slot  # noqa: E402
from rankpulse.trainer import interfaces  # noqa: E402
from rankpulse.trainer.checkpoint import CheckpointManager, StateMismatch, StateRefused, load_sharded, save_sharded  # noqa: E402
from rankpulse.trainer.checkpoint.reader import read_manifest  # noqa: E402
from rankpulse.trainer.checkpoint.state import captured, program  # noqa: E402
from rankpulse.trainer.pulse import Pulse  # noqa: E402

Make = Callable[[Any], Any]
OPTIMIZERS: dict[str, Make] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.01),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, nesterov=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=torch.tensor(0.01), weight_decay=0.1, foreach=False),
    "fused": lambda p: torch.optim.AdamW(p, lr=0.01, fused=True),
    "nadam": lambda p: torch.optim.NAdam(p, lr=0.01),
    "radam": lambda p: torch.optim.RAdam(p, lr=0.01),
    "adamax": lambda p: torch.optim.Adamax(p, lr=0.01),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.01),
    "adadelta": lambda p: torch.optim.Adadelta(p),
    "asgd": lambda p: torch.optim.ASGD(p, lr=0.01),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.5, centered=True),
    "rprop": lambda p: torch.optim.Rprop(p, lr=0.01),
    "adafactor": lambda p: torch.optim.Adafactor(p, lr=0.01),
}


class Life:
    """A program as it starts: nothing of it is as the one that saved, but its shape."""

    def __init__(self, make: Make, seed: int, **more: Any) -> None:
        torch.manual_seed(seed)
        self.net = Net()
        self.optimizer = make(self.net.parameters())
        self.more = {name: factory(self.optimizer) for name, factory in more.items()}

    def manager(self, path: Path, **settings: Any) -> CheckpointManager:
        given = {"model": self.net, "optimizer": self.optimizer, **self.more, "every_steps": 1000, **settings}
        return CheckpointManager(path, **given)

    def train(self, steps: int) -> list[float]:
        return [train(self.net, self.optimizer, self.more.get("scheduler")) for _ in range(steps)]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_goes_on_bit_for_bit(name: str, tmp_path: Path) -> None:
    first = Life(OPTIMIZERS[name], seed=1)
    first.train(3)
    first.manager(tmp_path).save(3)
    expected = first.train(3)
    second = Life(OPTIMIZERS[name], seed=2)
    resumed = second.manager(tmp_path).load()
    assert resumed is not None
    assert resumed.step == 3
    assert second.train(3) == expected
    assert state_bits(second.net, second.optimizer) == state_bits(first.net, first.optimizer)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_loading_into_a_program_that_has_trained_on(name: str, tmp_path: Path) -> None:
    life = Life(OPTIMIZERS[name], seed=1)
    manager = life.manager(tmp_path)
    life.train(2)
    manager.save(2)
    expected, after = life.train(3), state_bits(life.net, life.optimizer)
    assert manager.load() is not None
    assert life.train(3) == expected
    assert state_bits(life.net, life.optimizer) == after


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_save_before_the_first_step_makes_none(name: str, tmp_path: Path) -> None:
    undisturbed, life = Life(OPTIMIZERS[name], seed=1), Life(OPTIMIZERS[name], seed=1)
    torch.manual_seed(7)
    expected = undisturbed.train(3)
    torch.manual_seed(7)
    life.manager(tmp_path).save(0)
    assert life.train(3) == expected
    late = Life(OPTIMIZERS[name], seed=2)
    late.train(2)
    assert late.manager(tmp_path).load() is not None
    assert late.train(3) == expected


def test_lbfgs_goes_on_bit_for_bit(tmp_path: Path) -> None:
    def life(seed: int) -> tuple[Any, Any, Callable[[], float]]:
        torch.manual_seed(seed)
        model = torch.nn.Linear(4, 3)
        optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4, history_size=3, line_search_fn="strong_wolfe")
        data = torch.linspace(-1, 1, 32).reshape(8, 4)

        def closure() -> Any:
            optimizer.zero_grad()
            loss = (model(data).tanh() - 0.3).square().sum()
            loss.backward()
            return loss

        return model, optimizer, lambda: optimizer.step(closure).item()

    model, optimizer, step = life(1)
    step(), step()
    CheckpointManager(tmp_path, model=model, optimizer=optimizer).save(2)
    expected = [step(), step()]
    again, its, step = life(2)
    assert CheckpointManager(tmp_path, model=again, optimizer=its).load() is not None
    assert [step(), step()] == expected


SCHEDULERS: dict[str, Make] = {
    "multistep": lambda o: torch.optim.lr_scheduler.MultiStepLR(o, [2, 4], gamma=0.5),
    "onecycle": lambda o: torch.optim.lr_scheduler.OneCycleLR(o, max_lr=0.1, total_steps=20),
    "cosine": lambda o: torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(o, 3),
    "lambda": lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda step: 0.9**step),
    "sequence": lambda o: torch.optim.lr_scheduler.SequentialLR(
        o, [torch.optim.lr_scheduler.ConstantLR(o, 0.1), torch.optim.lr_scheduler.ExponentialLR(o, 0.9)], [3]
    ),
    "cyclic": lambda o: torch.optim.lr_scheduler.CyclicLR(o, 0.01, 0.1, step_size_up=2),
}


@pytest.mark.parametrize("name", SCHEDULERS)
def test_schedulers_go_on(name: str, tmp_path: Path) -> None:
    make = OPTIMIZERS["momentum"]
    first = Life(make, 1, scheduler=SCHEDULERS[name])
    first.train(2)
    first.manager(tmp_path).save(2)
    expected = first.train(5)
    second = Life(make, 2, scheduler=SCHEDULERS[name])
    assert second.manager(tmp_path).load() is not None
    assert second.train(5) == expected
    assert second.optimizer.param_groups[0]["lr"] == first.optimizer.param_groups[0]["lr"]


def test_a_scheduler_that_waits_for_better_goes_on(tmp_path: Path) -> None:
    plateau = lambda o: torch.optim.lr_scheduler.ReduceLROnPlateau(o, patience=1)  # noqa: E731
    first = Life(OPTIMIZERS["sgd"], 1)
    waits = plateau(first.optimizer)  # best is inf at first
    first.manager(tmp_path / "new", scheduler=waits).save(0)
    for loss in (3.0, 4.0, 5.0):
        waits.step(loss)
    first.manager(tmp_path / "old", scheduler=waits).save(3)
    second = Life(OPTIMIZERS["sgd"], 2)
    other = plateau(second.optimizer)
    assert second.manager(tmp_path / "old", scheduler=other).load() is not None
    assert other.state_dict() == waits.state_dict()
    assert second.manager(tmp_path / "new", scheduler=other).load() is not None
    assert other.best == float("inf")


def test_a_scaler_goes_on(tmp_path: Path) -> None:
    def scaler() -> Any:
        return torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)

    life = Life(OPTIMIZERS["sgd"], 1)
    first = scaler()
    for scale in (1.0, float("inf"), 1.0):
        life.optimizer.zero_grad()
        first.scale(life.net(torch.randn(4, 8)).sum() * scale).backward()
        first.step(life.optimizer)
        first.update()
    life.manager(tmp_path, scaler=first).save(3)
    second = scaler()
    assert Life(OPTIMIZERS["sgd"], 2).manager(tmp_path, scaler=second).load() is not None
    assert second.state_dict() == first.state_dict()
    assert second.state_dict()["scale"] == 4.0


class Position:
    """A place in the data, as a data loader has one."""

    def __init__(self) -> None:
        self.at: dict[str, Any] = {"epoch": 0, "seen": (), "order": torch.arange(5)}

    def state_dict(self) -> dict[str, Any]:
        return self.at

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.at = state


def test_whatever_has_a_state_dict_goes_along(tmp_path: Path) -> None:
    life, position = Life(OPTIMIZERS["sgd"], 1), Position()
    average = torch.optim.swa_utils.AveragedModel(life.net)
    life.train(1)
    average.update_parameters(life.net)
    position.at = {"epoch": 3, "seen": (1, 2), "order": torch.randperm(9)}
    extra = {"data": position, "ema": average, "plain": {"best": 0.5, "weights": torch.arange(3.0)}}
    life.manager(tmp_path, extra=extra).save(1)
    other, ema = Position(), torch.optim.swa_utils.AveragedModel(Net())
    plain: dict[str, Any] = {"best": None, "weights": torch.zeros(3)}
    weights = plain["weights"]
    extra = {"data": other, "ema": ema, "plain": plain}
    assert Life(OPTIMIZERS["sgd"], 2).manager(tmp_path, extra=extra).load() is not None
    assert other.at["seen"] == (1, 2)
    assert torch.equal(other.at["order"], position.at["order"])
    assert [bits(t) for t in ema.state_dict().values()] == [bits(t) for t in average.state_dict().values()]
    assert plain["best"] == 0.5
    assert weights.tolist() == [0.0, 1.0, 2.0]  # in place


def test_two_optimizers_frozen_parameters_and_groups(tmp_path: Path) -> None:
    def life(seed: int) -> tuple[Any, list[Any]]:
        torch.manual_seed(seed)
        model = torch.nn.ModuleDict(
            {"a": torch.nn.Linear(3, 3), "b": torch.nn.Linear(3, 3), "c": torch.nn.Linear(3, 1)}
        )
        model["c"].bias.requires_grad_(False)
        adam = torch.optim.Adam(
            [{"params": model["a"].parameters(), "lr": 0.1}, {"params": model["c"].parameters(), "betas": (0.5, 0.6)}]
        )
        return model, [adam, torch.optim.SGD(model["b"].parameters(), lr=0.1, momentum=0.9)]

    def step(model: Any, optimizers: list[Any]) -> float:
        loss = model["c"](model["b"](model["a"](torch.ones(2, 3))).tanh()).sum()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        model.zero_grad()
        return float(loss)

    model, optimizers = life(1)
    step(model, optimizers)
    CheckpointManager(tmp_path, model=model, optimizer=optimizers).save(1)
    expected = [step(model, optimizers) for _ in range(3)]
    model, optimizers = life(2)
    optimizers[0].param_groups[1]["betas"] = (0.1, 0.1)
    assert CheckpointManager(tmp_path, model=model, optimizer=optimizers).load() is not None
    assert optimizers[0].param_groups[1]["betas"] == (0.5, 0.6)
    assert [step(model, optimizers) for _ in range(3)] == expected


def test_moments_keep_their_type_beside_parameters_of_another(tmp_path: Path) -> None:
    """torch's own load_state_dict would cast them to the parameter's type."""
    model = torch.nn.Linear(4, 4, dtype=torch.bfloat16)
    optimizer = torch.optim.Adam(model.parameters())
    state = {"step": torch.tensor(5.0), "exp_avg": torch.randn(4, 4), "exp_avg_sq": torch.rand(4, 4)}
    optimizer.state[model.weight] = copy.deepcopy(state)
    CheckpointManager(tmp_path, model=model, optimizer=optimizer).save(5)
    other = torch.nn.Linear(4, 4, dtype=torch.bfloat16)
    fresh = torch.optim.Adam(other.parameters())
    assert CheckpointManager(tmp_path, model=other, optimizer=fresh).load() is not None
    for key, value in state.items():
        assert bits(fresh.state[other.weight][key]) == bits(value)
    assert other.bias not in fresh.state


class Everything(torch.nn.Module):
    """Tensors of every kind that a model may hold, and state of its own kind."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.image = torch.nn.Parameter(torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last))
        self.turned = torch.nn.Parameter(torch.randn(3, 5).t())
        self.scalar = torch.nn.Parameter(torch.randn(()))
        self.nothing = torch.nn.Parameter(torch.empty(0, 3))
        for dtype in (torch.float16, torch.bfloat16, torch.float64, torch.complex64):
            self.register_parameter(f"p_{str(dtype)[6:]}", torch.nn.Parameter(torch.randn(7).to(dtype)))
        for dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
            self.register_buffer(f"b_{str(dtype)[6:]}", torch.randn(5).to(dtype))
        self.register_buffer("mask", torch.rand(9) > 0.5)
        self.register_buffer("ids", torch.randint(0, 255, (3,), dtype=torch.uint8))
        self.register_buffer("scratch", torch.randn(2), persistent=False)
        self.calls = seed

    def get_extra_state(self) -> Any:
        return {"calls": self.calls, "trace": torch.arange(self.calls)}

    def set_extra_state(self, state: Any) -> None:
        self.calls = state["calls"]
        assert state["trace"].tolist() == list(range(self.calls))


def test_every_kind_of_tensor_in_a_model(tmp_path: Path) -> None:
    first, second = Everything(1), Everything(2)
    scratch = bits(second.scratch)
    CheckpointManager(tmp_path, model=first).save(1)
    strides = second.image.stride()
    assert CheckpointManager(tmp_path, model=second).load() is not None
    mine, theirs = first.state_dict(), second.state_dict()
    assert {k: bits(v) for k, v in mine.items() if k != "_extra_state"} == {
        k: bits(v) for k, v in theirs.items() if k != "_extra_state"
    }
    assert second.calls == 1
    assert second.image.stride() == strides
    assert bits(second.scratch) == scratch, "what the model does not save is its own affair"


def test_extra_state_may_be_a_tensor_of_any_length(tmp_path: Path) -> None:
    class Grown(torch.nn.Linear):
        def get_extra_state(self) -> Any:
            return self.seen

        def set_extra_state(self, state: Any) -> None:
            self.seen = state

    first, second = Grown(2, 2), Grown(2, 2)
    first.seen, second.seen = torch.arange(9), torch.zeros(0)
    CheckpointManager(tmp_path, model=first).save(1)
    assert CheckpointManager(tmp_path, model=second).load() is not None
    assert second.seen.tolist() == list(range(9))


def test_names_are_those_of_the_bare_model(tmp_path: Path) -> None:
    net = Net()
    wrapped = torch.compile(net, backend="eager")
    optimizer = torch.optim.AdamW(wrapped.parameters())
    train(net, optimizer)
    saved = CheckpointManager(tmp_path, model=wrapped, optimizer=optimizer).save(1)
    names = {spec.name for spec in read_manifest(saved.path).tensors}
    assert "model.first.weight" in names
    assert "optim.0.first.weight.exp_avg" in names
    assert not [name for name in names if "_orig_mod" in name]
    bare = Net()
    assert CheckpointManager(tmp_path, model=bare, optimizer=torch.optim.AdamW(bare.parameters())).load() is not None
    assert bits(bare.first.weight) == bits(net.first.weight)


def test_a_tied_weight_is_kept_once_and_found_by_an_untied_model(tmp_path: Path) -> None:
    class Untied(Net):
        def __init__(self) -> None:
            super().__init__()
            self.tied = torch.nn.Linear(5, 8, bias=False)

    tied, untied = Net(), Untied()
    saved = CheckpointManager(tmp_path, model=tied).save(1)
    names = [spec.name for spec in read_manifest(saved.path).tensors]
    assert "model.last.weight" in names
    assert "model.tied.weight" not in names
    assert CheckpointManager(tmp_path, model=untied).load() is not None
    assert bits(untied.tied.weight) == bits(untied.last.weight) == bits(tied.last.weight)
    CheckpointManager(tmp_path, model=untied).save(2)
    again = Net()
    assert CheckpointManager(tmp_path, model=again).load() is not None
    assert bits(again.tied.weight) == bits(untied.last.weight)


def test_saving_changes_nothing_and_draws_nothing(tmp_path: Path) -> None:
    life = Life(OPTIMIZERS["adam"], 1)
    life.net(torch.randn(4, 8)).sum().backward()
    before = state_bits(life.net, life.optimizer), bits(torch.get_rng_state()), bits(life.net.first.weight.grad)
    life.manager(tmp_path).save(1)
    captured(program(life.net, [life.optimizer], [], None, {}))
    assert (
        state_bits(life.net, life.optimizer),
        bits(torch.get_rng_state()),
        bits(life.net.first.weight.grad),
    ) == before


def test_neither_a_save_nor_a_load_counts_as_a_step(tmp_path: Path) -> None:
    memory = bytearray(slot.SLOT_SIZE)
    pulse = Pulse(memory)
    assert interfaces.count_optimizer_steps(torch, pulse.optimizer_stepped) == "ok"
    try:
        life = Life(OPTIMIZERS["adam"], 1)
        life.manager(tmp_path).save(0)
        assert Life(OPTIMIZERS["adam"], 2).manager(tmp_path).load() is not None
        written = bytes(memory[slot.PULSE_AT : slot.PULSE_AT + slot.PULSE.size])
        assert slot.PULSE.unpack(written)[1] == slot.NO_STEP
        life.train(1)
        written = bytes(memory[slot.PULSE_AT : slot.PULSE_AT + slot.PULSE.size])
        assert slot.PULSE.unpack(written)[1] == 1
    finally:
        pulse.forsake()


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "meta": (lambda: {"model": torch.nn.Linear(2, 2, device="meta")}, "model.weight: a tensor on the meta device"),
    "foreign": (
        lambda: {"model": Net(), "optimizer": torch.optim.SGD(Net().parameters())},
        "optim.0 optimizes 7 tensors",
    ),
    "object": (
        lambda: {"model": Net(), "extra": {"x": {"f": print}}},
        "extra.x.f: a builtins.builtin_function_or_method",
    ),
    "twice": (
        lambda: {"model": Net(), "extra": {"x": {"y.z": torch.ones(1)}, "x.y": {"z": torch.ones(1)}}},
        "both name a tensor 'extra.x.y.z'",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_saved_is_refused_before_anything_is_written(name: str, tmp_path: Path) -> None:
    make, says = REFUSED[name]
    with pytest.raises(StateRefused) as refused:
        CheckpointManager(tmp_path, **make()).save(1)
    assert says in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_loaded_into_tensors_without_memory(tmp_path: Path) -> None:
    CheckpointManager(tmp_path, model=torch.nn.Linear(2, 2)).save(1)
    with pytest.raises(StateRefused, match="meta device"):
        CheckpointManager(tmp_path, model=torch.nn.Linear(2, 2, device="meta")).load()


def test_another_program_is_told_what_differs(tmp_path: Path) -> None:
    life = Life(OPTIMIZERS["adam"], 1)
    life.train(1)
    life.manager(tmp_path).save(1)
    before = {}

    def told(says: str, model: Any = None, **given: Any) -> None:
        model = model if model is not None else Net()
        before[says] = [bits(t) for t in model.state_dict().values()]
        with pytest.raises(StateMismatch) as mismatch:
            CheckpointManager(tmp_path, model=model, **given).load()
        assert says in str(mismatch.value)
        assert [bits(t) for t in model.state_dict().values()] == before[says], "nothing was changed"

    told("model.first.weight is F32 [7, 8] here and F32 [6, 8] in the checkpoint", Net(width=7))
    told("model.middle.weight is F16 [5, 6] here and BF16 [5, 6]", Net(half=torch.float16))
    told("has model.last.weight", torch.nn.ModuleDict({"first": torch.nn.Linear(8, 6)}))
    more = Net()
    more.register_buffer("more", torch.zeros(1))
    told("the checkpoint has no model.more", more)
    net = Net()
    told("has no scheduler.0", net, scheduler=SCHEDULERS["multistep"](torch.optim.SGD(net.parameters())))
    net = Net()
    groups = [{"params": [parameter]} for parameter in net.parameters()]
    told("optim.0 has 7 parameter groups here and 1 in the checkpoint", net, optimizer=torch.optim.Adam(groups))
    net = Net()
    told("optim.0 is SGD here and was Adam when", net, optimizer=torch.optim.SGD(net.parameters(), lr=0.1))


def test_what_the_program_does_not_ask_for_is_said(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    life = Life(OPTIMIZERS["adam"], 1)
    life.train(1)
    life.manager(tmp_path).save(1)
    net = Net()
    assert CheckpointManager(tmp_path, model=net).load() is not None
    assert bits(net.first.weight) == bits(life.net.first.weight)
    assert "also has optim.0, which this program does not ask for" in capfd.readouterr().err


def test_a_dict_of_tensors_and_values_by_the_functions_alone(tmp_path: Path) -> None:
    state = {
        "weights": {"a": torch.arange(4.0), "deep": [torch.ones(2), {"n": 1}]},
        "note": {"text": "x", "by": (1, 2)},
    }
    saved = save_sharded(str(tmp_path), state, 7, metrics={"loss": 0.5})
    assert (saved.step, saved.verified) == (7, True)
    live = torch.zeros(4)
    other: dict[str, Any] = {"weights": {"a": live}, "note": {}}
    resumed = load_sharded(str(tmp_path), other)
    assert resumed is not None
    assert resumed.metrics == {"loss": 0.5}
    assert live.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert other["weights"]["deep"][1] == {"n": 1}
    assert other["note"] == {"text": "x", "by": (1, 2)}


def test_importing_the_package_loads_no_torch() -> None:
    code = (
        "import sys, rankpulse.trainer.checkpoint as c; c.ShardManifest, c.write_file, c.NothingVerified;"
        "assert not {'torch', 'numpy', 'logging', 'asyncio'} & set(sys.modules);"
        "assert set(c.__all__) <= set(dir(c)) | set(c._LATER)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": ""}, timeout=60)
