"""Replicas compared: who holds what alike, what is told, and that training is never disturbed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from ckpt_worlds import Ranks, build, train  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402
from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: E402

from rankpulse.core import checksums, slot, slot_checks  # noqa: E402
from rankpulse.core.checksums import Row, Told  # noqa: E402
from rankpulse.core.fold_checksums import ChecksumsFolder  # noqa: E402
from rankpulse.core.records import CHECKSUMS, Observation  # noqa: E402
from rankpulse.core.slot_checks import Check, Checks  # noqa: E402
from rankpulse.trainer.guard import ReplicaGuard  # noqa: E402
from rankpulse.trainer.guard.replicas import groups  # noqa: E402
from rankpulse.trainer.pulse import Pulse  # noqa: E402


def flip(parameter: Any, bit: int = 3) -> None:
    local = parameter.to_local() if hasattr(parameter, "to_local") else parameter
    with torch.no_grad():
        local.view(-1)[:1].view(torch.int32)[0] ^= 1 << bit


def told(folder: ChecksumsFolder, by_rank: list[Any]) -> None:
    """As agents would tell it, one for each rank."""
    for rank, steps in enumerate(by_rank):
        for step, checks in steps:
            rows = tuple(Row(rank, Check(*check)) for check in checks)
            obs = Observation(
                node=f"n{rank}", inc=1, seq=step, at=0.0, kind=CHECKSUMS, detail=checksums.detail(Told(step, rows))
            )
            assert folder.heard("u", 1, f"n{rank}/{step}", obs, 0.0) == ""


def plain(found: Checks | None) -> Any:
    return None if found is None else (found.step, [list(check) for check in found.checks])


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "clean", [pytest.param(100, marks=pytest.mark.live), pytest.param(1000, marks=pytest.mark.drill)]
)
def test_clean_checks_raise_nothing_and_one_flipped_bit_is_found_at_the_next(tmp_path: Path, clean: int) -> None:
    """Three real ranks under DDP with AdamW; a bit of rank 2 flips in the step after so many checks."""

    def work(rank: int) -> Any:
        torch.manual_seed(3)
        model, optimizer = build("ddp", 3)
        guard = ReplicaGuard(model, optimizer, every_steps=1)
        found = []
        for step in range(1, clean + 4):
            train(model, optimizer)
            if step == clean + 1 and rank == 2:
                flip(model.module.first.weight)
            found.append(plain(guard.step(step)))
        return found

    ranks = Ranks(3, work, tmp_path).results(400)
    folder = ChecksumsFolder()
    for step in range(clean):
        told(folder, [[found[step]] for found in ranks])
        assert folder.verdict("u", 1, 1e9) is None
    told(folder, [[found[clean]] for found in ranks])
    verdict = folder.verdict("u", 1, 0.0)
    assert verdict == checksums.Verdict(clean + 1, clean, (2,), True, 3)
    told(folder, [found[clean + 1 :] for found in ranks])
    assert folder.verdict("u", 1, 0.0) == verdict, "it stays corrupted, and it began there"


@pytest.mark.live
def test_of_hybrid_shards_the_replicas_of_each_are_compared(tmp_path: Path) -> None:
    """FSDP2 over two times two: ranks 0 and 2 hold one shard, 1 and 3 the other."""

    def work(rank: int) -> Any:
        torch.manual_seed(3)
        net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 4))
        mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
        torch.distributed.fsdp.fully_shard(net, mesh=mesh)
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
        guard = ReplicaGuard(net, optimizer, every_steps=1)
        found = []
        for step in (1, 2, 3):
            net(torch.randn(2, 8)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            if step == 3 and rank == 1:
                flip(net[0].weight)
            found.append(plain(guard.step(step)))
        return [list(groups(net)[0].members), found]

    ranks = Ranks(4, work, tmp_path).results(90)
    assert [members for members, _ in ranks] == [[0, 2], [1, 3], [0, 2], [1, 3]]
    folder = ChecksumsFolder()
    told(folder, [found for _, found in ranks])
    assert folder.verdict("u", 1, 0.0) == checksums.Verdict(3, 2, (1, 3), False, 2), "of two nobody is picked"


def single(**how: Any) -> tuple[Any, ReplicaGuard]:
    model = torch.nn.Linear(4, 3)
    return model, ReplicaGuard(model, replicas=(0, 1), **how)


def test_it_looks_at_its_period_and_says_it_in_the_slot() -> None:
    memory = bytearray(slot.image({}, slot.Pulse(-1, -1, 0, float("nan"), "init", 1)))
    model, guard = single(every_steps=3, pulse=Pulse(memory))
    assert [plain(guard.step(step)) for step in (1, 2)] == [None, None]
    assert slot.read(lambda: bytes(memory)).checks is None
    found = guard.step(3)
    assert found is not None
    assert found.step == 3
    assert slot.read(lambda: bytes(memory)).checks == found
    [check] = found.checks
    assert check.replicas == 2
    flip(model.weight)
    again = guard.step(6)
    assert again is not None
    assert again.checks[0].digest != check.digest
    assert again.checks[0].group == check.group


def test_the_state_of_an_optimizer_is_compared_by_choice() -> None:
    model = torch.nn.Linear(4, 3)
    optimizer = torch.optim.AdamW(model.parameters())
    with_it, without = (ReplicaGuard(model, more, replicas=(0, 1), every_steps=1) for more in (optimizer, ()))
    model(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    before = with_it.step(1), without.step(1)
    flip(optimizer.state[model.weight]["exp_avg"])
    after = with_it.step(2), without.step(2)
    assert before[0].checks != after[0].checks
    assert before[1].checks == after[1].checks


def test_a_model_of_which_nobody_holds_a_copy_is_refused() -> None:
    with pytest.raises(ValueError, match="no two ranks are known"):
        ReplicaGuard(torch.nn.Linear(2, 2))
    with pytest.raises(ValueError, match="every_steps is 0"):
        ReplicaGuard(torch.nn.Linear(2, 2), replicas=(0, 1), every_steps=0)


@pytest.fixture
def world_of_two() -> Iterator[None]:
    """This process is rank 0 of two, as far as torch can tell; nobody is spoken with."""
    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("world_of_two")
def test_what_ddp_was_told_to_ignore_is_each_ranks_own() -> None:
    """Experts differ between the ranks of a healthy job."""
    net = torch.nn.ModuleDict({"shared": torch.nn.Linear(3, 3), "expert": torch.nn.Linear(3, 3)})
    ignored = ["expert.weight", "expert.bias"]
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(net, ignored)
    model = DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(model.parameters())
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    [group] = groups(model, [optimizer])
    assert {name.split(".")[-2] for name in group.names if name.startswith("module")} == {"shared"}
    assert len(group.names) == 6, "weight and bias, and two moments of each"
    [whole] = groups(model, [optimizer], replicas=(0, 1))
    assert len(whole.names) == 12, "who names the ranks means all of it"


def test_what_goes_wrong_is_said_once_and_training_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    model, guard = single(every_steps=1)
    model.weight = torch.nn.Parameter(torch.empty(2, 2, device="meta"))
    assert [guard.step(step) for step in (1, 2, 3)] == [None] * 3
    assert capsys.readouterr().err.count("replicas are not compared any more") == 1


def test_nothing_is_drawn_and_nothing_is_changed() -> None:
    model, guard = single(every_steps=1)
    before, drawn = [parameter.clone() for parameter in model.parameters()], torch.get_rng_state()
    guard.step(1)
    assert torch.equal(torch.get_rng_state(), drawn)
    assert all(torch.equal(one, other) for one, other in zip(before, model.parameters(), strict=True))


def test_half_a_write_is_no_check() -> None:
    good = slot_checks.packed(Checks(7, (Check(1, 2, 3),)), 5)
    whole = bytearray(slot.SLOT_SIZE)
    whole[slot_checks.CHECKS_AT : slot_checks.CHECKS_AT + len(good)] = good
    assert slot_checks.read(whole, whole, whole) == Checks(7, (Check(1, 2, 3),))
    torn = bytearray(whole)
    torn[slot_checks.CHECKS_AT] = 6
    assert slot_checks.read(torn, torn, torn) is None
    assert slot_checks.read(whole, whole, bytes(slot.SLOT_SIZE)) is None
