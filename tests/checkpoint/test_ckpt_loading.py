"""Loads by several ranks: every defence, the way back to what is whole, other numbers of ranks, a person's limit."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from ckpt_worlds import build, state_bits, train, world  # noqa: E402

from rankpulse.trainer.checkpoint import CheckpointError, CheckpointManager, NothingVerified  # noqa: E402
from rankpulse.trainer.checkpoint import manifest as manifests  # noqa: E402
from rankpulse.trainer.checkpoint.files import Files  # noqa: E402
from rankpulse.trainer.checkpoint.groups import Group  # noqa: E402
from rankpulse.trainer.checkpoint.loading import Where, load_sharded  # noqa: E402
from rankpulse.trainer.checkpoint.reader import read_manifest, scan  # noqa: E402
from rankpulse.trainer.checkpoint.rotation import set_aside  # noqa: E402
from rankpulse.trainer.checkpoint.saving import How, save_sharded  # noqa: E402
from rankpulse.trainer.checkpoint.together import Alone  # noqa: E402

pytestmark = pytest.mark.live
LAYOUTS = [(kind, mode) for kind in ("ddp", "zero", "fsdp") for mode in ("sharded", "consolidated")]


def save_all(directory: Path, seed: int, layouts: list[tuple[str, str]]) -> Callable[[int], Any]:
    """On every rank: train and save each kind in each mode; the whole state of each, by its bytes."""

    def work(rank: int) -> Any:
        found, group = {}, Group()
        for kind, mode in layouts:
            model, optimizer = build(kind, seed)
            torch.manual_seed(rank)
            train(model, optimizer)
            path = directory / f"{kind}-{mode}"
            CheckpointManager(path, model=model, optimizer=optimizer, mode=mode, together=group).save(2)
            found[f"{kind}-{mode}"] = state_bits(model, optimizer)
        return found

    return work


def load_each(directory: Path, ways: list[tuple[str, str, str]]) -> Callable[[int], Any]:
    """On every rank: the state after a load of (kind, mode) into another kind, and by how many ranks it was saved."""

    def work(rank: int) -> Any:
        found, group = [], Group() if torch.distributed.is_initialized() else Alone()
        for saved, mode, into in ways:
            model, optimizer = build(into, 99)
            if into == "fsdp":
                train(model, optimizer)  # a state of its own, which must go
            manager = CheckpointManager(
                directory / f"{saved}-{mode}", model=model, optimizer=optimizer, allow_reshard=True, together=group
            )
            resumed = manager.load(verify="fast")
            assert resumed is not None
            found.append([state_bits(model, optimizer), resumed.resharded_from])
        return found

    return work


def whole(told: list[Any]) -> dict[str, str]:
    """The state of all ranks together: of what they have each (ZeRO) all, of buffers rank 0's."""
    return {name: value for ranks in reversed(told) for name, value in ranks.items()}


@pytest.fixture(scope="module")
def saved_by_four(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Any]]:
    directory = tmp_path_factory.mktemp("four")
    return directory, world(4, save_all(directory, 5, LAYOUTS), directory)


def ways(*kinds: str) -> list[tuple[str, str, str]]:
    """Every layout into the kinds in turn."""
    return [(kind, mode, kinds[at % len(kinds)]) for at, (kind, mode) in enumerate(LAYOUTS)]


def resharded(directory: Path, saved: list[Any], after: int, chosen: list[tuple[str, str, str]]) -> None:
    loaded = world(after, load_each(directory, chosen), directory)
    for at, (kind, mode, into) in enumerate(chosen):
        expected = whole([ranks[f"{kind}-{mode}"] for ranks in saved])
        found = [ranks[at] for ranks in loaded]
        assert {before for _, before in found} == {0 if after == len(saved) else len(saved)}
        assert whole([state for state, _ in found]) == expected, f"{kind} {mode} of {len(saved)} into {into} of {after}"


def test_four_ranks_into_eight(saved_by_four: tuple[Path, list[Any]]) -> None:
    resharded(*saved_by_four, 8, ways("fsdp", "zero"))


def test_four_ranks_into_three(saved_by_four: tuple[Path, list[Any]]) -> None:
    resharded(*saved_by_four, 3, ways("zero", "fsdp", "ddp"))


def test_four_ranks_into_one_and_into_four_of_another_kind(saved_by_four: tuple[Path, list[Any]]) -> None:
    resharded(*saved_by_four, 1, ways("one"))
    resharded(*saved_by_four, 4, ways("zero", "ddp", "fsdp"))


def test_eight_ranks_into_four(tmp_path: Path) -> None:
    saved = world(
        8, save_all(tmp_path, 6, [("ddp", "sharded"), ("zero", "sharded"), ("fsdp", "consolidated")]), tmp_path
    )
    turns = [("ddp", "sharded", "fsdp"), ("zero", "sharded", "ddp"), ("fsdp", "consolidated", "zero")]
    resharded(tmp_path, saved, 4, [*turns, ("ddp", "sharded", "ddp")])


def test_tensors_on_meshes_of_any_shape_into_any_other(tmp_path: Path) -> None:
    """Two dimensions (HSDP, FSDP with TP), uneven pieces, pieces of no size, part of the ranks, and plain tensors."""
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

    def tensors(rank: int, shapes: list[tuple[Any, list[Any]]], fill: bool) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for at, (ranks, placements) in enumerate(shapes):
            whole = torch.arange(7 * 6 * 3, dtype=torch.float32).reshape(7, 6, 3) + 1000 * at
            whole = whole if fill else torch.zeros_like(whole)
            found[f"t{at}"] = distribute_tensor(whole, meshes[str(ranks)], placements) if ranks else whole
        return found

    square, line, pair = [[0, 1], [2, 3]], [0, 1, 2, 3], [1, 3]
    layouts: list[tuple[Any, list[Any]]] = [
        (square, [Replicate(), Shard(0)]),
        (square, [Shard(0), Shard(1)]),
        (square, [Shard(0), Shard(0)]),
        (line, [Shard(1)]),
        (line, [Shard(2)]),
        (line, [Replicate()]),
        (pair, [Shard(0)]),
        ([], []),
    ]

    meshes: dict[str, Any] = {}

    def work(rank: int) -> int:
        group, compared = Group(), 0
        for ranks in (square, line, pair):
            meshes[str(ranks)] = DeviceMesh("cpu", ranks)
        for mode in ("sharded", "consolidated"):
            where = str(tmp_path / mode)
            save_sharded(where, {"x": tensors(rank, layouts, True)}, 1, together=group, how=How(mode))
            for turn in range(len(layouts)):
                live = tensors(rank, layouts[turn:] + layouts[:turn], False)
                assert load_sharded(where, {"x": live}, together=group) is not None
                expected = tensors(rank, layouts[turn:] + layouts[:turn], True)
                for at in range(len(layouts)):
                    mine, right = live[f"t{at}"], expected[f"t{at}"]
                    if isinstance(mine, DTensor):
                        mine, right = mine.to_local(), right.to_local()
                    assert torch.equal(mine, right), f"{mode}, turn {turn}, tensor {at}"
                    compared += mine.numel()
        return compared

    assert all(compared > 4000 for compared in world(4, work, tmp_path))


def test_another_number_of_ranks_is_for_a_person_to_allow(tmp_path: Path) -> None:
    def work(rank: int) -> str:
        model, optimizer = build("ddp", 1)
        CheckpointManager(tmp_path / "ck", model=model, optimizer=optimizer, mode="sharded").save(1)
        return ""

    def fewer(rank: int) -> str:
        model, optimizer = build("ddp", 1)
        with pytest.raises(CheckpointError) as refused:
            CheckpointManager(tmp_path / "ck", model=model, optimizer=optimizer).load()
        return f"{type(refused.value).__name__}: {refused.value}"

    world(3, work, tmp_path)
    said = world(2, fewer, tmp_path)
    assert said[0] == said[1]
    assert said[0].startswith(f"WorldSizeChanged: {tmp_path}/ck/step-00000001-")
    assert "expected 2 ranks, as there are now, found 3. Give allow_reshard=True" in said[0]


def other_ranks_keep_their_seeds(directory: Path) -> Callable[[int], Any]:
    def work(rank: int) -> Any:
        model, optimizer = build("ddp", 1)
        torch.manual_seed(rank)
        manager = CheckpointManager(directory, model=model, optimizer=optimizer, mode="sharded", allow_reshard=True)
        manager.load()
        return torch.rand(2).tolist()

    return work


def test_ranks_beyond_the_saved_ones_keep_their_seeds_and_it_is_said_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def save(rank: int) -> None:
        model, optimizer = build("ddp", 1)
        torch.manual_seed(1000 + rank)
        CheckpointManager(tmp_path / "ck", model=model, optimizer=optimizer, mode="sharded").save(1)

    def draw(seed: int) -> list[float]:
        return torch.rand(2, generator=torch.Generator().manual_seed(seed)).tolist()

    world(2, save, tmp_path)
    assert world(3, other_ranks_keep_their_seeds(tmp_path / "ck"), tmp_path) == [draw(1000), draw(1001), draw(2)]
    assert capfd.readouterr().err.count("ranks from 2 on have no random number generators") == 1


# the defences: three checkpoints, the newest is harmed, every rank goes back to the one before


def three(directory: Path) -> list[str]:
    """Paths of checkpoints of steps 1, 2 and 3, saved by two ranks."""

    def work(rank: int) -> list[str]:
        model, optimizer = build("ddp", 1)
        manager = CheckpointManager(directory, model=model, optimizer=optimizer, mode="sharded")
        return [manager.save(step, {"loss": 1 / step}).path for step in (1, 2, 3)]

    paths: list[str] = world(2, work, directory.parent)[0]
    return paths


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("sound") / "ck"
    three(directory)
    return directory


@pytest.fixture
def checkpoints(sound: Path, tmp_path: Path) -> list[str]:
    """A copy of the three, the newest first."""
    shutil.copytree(sound, tmp_path / "ck")
    return [found.path for found in scan(str(tmp_path / "ck")).committed]


def flip(path: str, at: int, bit: int = 1) -> None:
    with open(path, "r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ bit]))


def resaved(path: str, **changes: Any) -> None:
    """Write the manifest anew, with a sound digest."""
    file = Path(path) / "manifest.json"
    said = json.loads(file.read_text()) | changes
    said.pop("digest")
    data = (json.dumps(said)[:-1] + ', "digest": "' + "0" * 64 + '"}').encode()
    file.write_bytes(data.replace(b"0" * 64, manifests.digest_of(data).encode()))


def shard(path: str, rank: int) -> str:
    return f"{path}/shard-{rank:05d}.safetensors"


def swap(path: str, other: str) -> None:
    shutil.copyfile(shard(other, 1), shard(path, 1))


HARMS: dict[str, tuple[Callable[[str, str], Any], str]] = {
    "bit flip": (lambda new, old: flip(shard(new, 1), os.path.getsize(shard(new, 1)) - 5), "checksum"),
    "bit flip in a header": (lambda new, old: flip(shard(new, 0), 30), "shard-00000.safetensors"),
    "bit flip in the manifest": (lambda new, old: flip(f"{new}/manifest.json", 300), "manifest.json"),
    "missing": (lambda new, old: os.unlink(shard(new, 1)), "shard-00001.safetensors: is missing"),
    "partial write": (lambda new, old: os.truncate(shard(new, 0), 4000), "wrong size (a partial write?): expected"),
    "partial manifest": (lambda new, old: os.truncate(f"{new}/manifest.json", 900), "partial write"),
    "foreign step": (swap, "belongs to another save: expected step 3, found 2"),
    "too few shards": (
        lambda new, old: resaved(new, shards=json.loads(Path(new, "manifest.json").read_text())["shards"][:1]),
        "lists another number of shards than its world size asks for: expected 2, found 1",
    ),
    "a link": (
        lambda new, old: (os.unlink(shard(new, 1)), os.symlink(shard(old, 1), shard(new, 1))),
        "found a symbolic link",
    ),
}


def loads(directory: str | Path, **settings: Any) -> Callable[[int], Any]:
    """On two ranks: what a load came to, in words."""

    def work(rank: int) -> Any:
        model, optimizer = build("ddp", 7)
        given = {name: value for name, value in settings.items() if name in ("verify", "resume_before_step")}
        before = state_bits(model, optimizer)
        try:
            manager = CheckpointManager(directory, model=model, optimizer=optimizer, mode="sharded")
            resumed = manager.load(**given)
        except CheckpointError as error:
            return [type(error).__name__, str(error), state_bits(model, optimizer) == before]
        return [resumed.step, [list(row) for row in resumed.skipped], resumed.metrics] if resumed else None

    return work


@pytest.mark.parametrize("harm", HARMS)
def test_damage_is_met_by_all_and_the_one_before_is_loaded(
    harm: str, checkpoints: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    newest, older, _ = checkpoints
    do, says = HARMS[harm]
    do(newest, older)
    first, second = world(2, loads(tmp_path / "ck"), tmp_path)
    assert first == second
    step, ((skipped, reason),), metrics = first
    assert (step, skipped, metrics) == (2, 3, {"loss": 0.5})
    assert says in reason
    assert newest in reason
    err = capfd.readouterr().err
    assert err.count("rankpulse: checkpoint of step 3 is skipped") == 1
    assert reason in err


def test_damage_that_one_rank_alone_sees_sends_all_back(checkpoints: list[str], tmp_path: Path) -> None:
    """A node with a stale or broken view of the shared directory."""
    view = tmp_path / "view"
    shutil.copytree(tmp_path / "ck", view)
    name = os.path.basename(checkpoints[0])
    flip(shard(str(view / name), 1), 30_000 % os.path.getsize(shard(checkpoints[0], 1)))

    def work(rank: int) -> Any:
        return loads(tmp_path / "ck" if rank == 0 else view)(rank)

    first, second = world(2, work, tmp_path)
    assert first == second
    assert first[0] == 2
    assert f"{view}/{name}/shard-0000" in first[1][0][1]


def test_another_manifest_than_rank_0_reads_is_damage(checkpoints: list[str], tmp_path: Path) -> None:
    view = tmp_path / "view"
    shutil.copytree(tmp_path / "ck", view)
    resaved(str(view / os.path.basename(checkpoints[0])), metrics={"loss": 9.0})
    first, second = world(2, lambda rank: loads(tmp_path / "ck" if rank == 0 else view)(rank), tmp_path)
    assert first == second
    assert first[0] == 2
    assert "as rank 0 reads it" in first[1][0][1]


def test_a_newer_schema_is_for_a_person_to_decide(checkpoints: list[str], tmp_path: Path) -> None:
    resaved(checkpoints[0], schema_version=2)
    first, second = world(2, loads(tmp_path / "ck"), tmp_path)
    assert first == second
    assert first[0] == "NewerSchema"
    assert "expected at most 1, found 2" in first[1]
    assert first[2], "nothing was changed"


def test_nothing_starts_from_zero_beside_damaged_checkpoints(checkpoints: list[str], tmp_path: Path) -> None:
    for path in checkpoints:
        flip(shard(path, 1), os.path.getsize(shard(path, 1)) - 3)
    first, second = world(2, loads(tmp_path / "ck"), tmp_path)
    assert first == second
    kind, text, unchanged = first
    assert (kind, unchanged) == ("NothingVerified", True)
    assert "none of 3 checkpoints can be trusted" in text
    assert [f"step {step}: {tmp_path}/ck/step-0000000{step}" in text for step in (3, 2, 1)] == [True] * 3


def test_the_fast_level_meets_a_bit_flip_too(checkpoints: list[str], tmp_path: Path) -> None:
    flip(shard(checkpoints[0], 0), os.path.getsize(shard(checkpoints[0], 0)) - 3)
    assert world(2, loads(tmp_path / "ck", verify="fast"), tmp_path)[0][0] == 2


def test_an_empty_directory_is_a_fresh_start_and_half_a_save_is_said(
    checkpoints: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert world(2, loads(tmp_path / "none"), tmp_path) == [None, None]
    assert "rankpulse" not in capfd.readouterr().err
    for path in checkpoints:
        os.unlink(f"{path}/manifest.json")
    assert world(2, loads(tmp_path / "ck"), tmp_path) == [None, None]
    assert capfd.readouterr().err.count("3 saves in") == 1


def loads_from_two(directories: tuple[Path, Path]) -> Callable[[int], Any]:
    """Two nodes between which the directory is not shared."""
    return lambda rank: loads(directories[rank])(rank)


def test_a_directory_that_the_node_of_rank_0_does_not_have_is_no_fresh_start(
    checkpoints: list[str], tmp_path: Path
) -> None:
    for said in world(2, loads_from_two((tmp_path / "none", tmp_path / "ck")), tmp_path):
        assert said[0] == "NothingVerified"
        assert "has 3 checkpoints where rank 1 runs and none where rank 0 does" in said[1]


def test_a_directory_that_another_node_does_not_have_is_said_to_be_that(checkpoints: list[str], tmp_path: Path) -> None:
    for said in world(2, loads_from_two((tmp_path / "ck", tmp_path / "none")), tmp_path):
        assert said[0] == "NothingVerified"
        assert (
            "is missing: expected the file that rank 0 reads, found none where rank 1 runs. The directory m" in said[1]
        )


def test_a_checkpoint_that_goes_while_it_is_loaded_leads_to_the_one_that_came(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """As when one job looks at what another trains, which keeps one."""
    trainer = CheckpointManager(tmp_path, model=torch.nn.Linear(3, 2), keep_last=1)
    trainer.save(1)
    model, coming = torch.nn.Linear(3, 2), [2, 3]
    model.register_state_dict_pre_hook(lambda *about: trainer.save(coming.pop(0)) if coming else None)
    told: list[str] = []
    resumed = load_sharded(str(tmp_path), {"model": model}, where=Where(tell=lambda event, **said: told.append(event)))
    assert resumed is not None
    assert (resumed.step, coming, told) == (3, [], ["loaded"])
    assert capfd.readouterr().err == "", "nothing is damaged"


# a person's limit


def test_a_fresh_start_beside_what_was_set_aside_is_said(
    checkpoints: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for found in scan(str(tmp_path / "ck")).committed:
        set_aside(Files(), found.path, "asked for")
    assert world(2, loads(tmp_path / "ck"), tmp_path) == [None, None]
    assert "were set aside (3), and none is loaded: a fresh start" in capfd.readouterr().err


def test_only_what_is_before_the_limit_is_loaded_and_the_rest_set_aside(
    checkpoints: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    first, second = world(2, loads(tmp_path / "ck", resume_before_step=2), tmp_path)
    assert first == second == [1, [], {"loss": 1.0}]
    assert capfd.readouterr().err.count("is set aside, to resume before step 2") == 2
    listing = scan(str(tmp_path / "ck"))
    assert [found.step for found in listing.committed] == [1]
    assert len(listing.aside) == 2
    assert world(2, loads(tmp_path / "ck"), tmp_path)[0][0] == 1, "they stay aside"


def test_the_lowest_limit_of_all_ranks_counts(checkpoints: list[str], tmp_path: Path) -> None:
    def work(rank: int) -> Any:
        os.environ["RANKPULSE_RESUME_BEFORE_STEP"] = "3" if rank else "2"
        return loads(tmp_path / "ck")(rank)

    assert [said[0] for said in world(2, work, tmp_path)] == [1, 1]


def test_without_anything_before_the_limit_nothing_starts(checkpoints: list[str], tmp_path: Path) -> None:
    for directory in ("ck", "empty"):
        said = world(2, loads(tmp_path / directory, resume_before_step=1), tmp_path)
        assert said[0] == said[1]
        assert said[0][0] == "NothingVerified"
        assert "has no checkpoint of a step before 1" in said[0][1]
    listing = scan(str(tmp_path / "ck"))
    assert (len(listing.committed), listing.aside) == (3, ()), "another limit may be meant: nothing is renamed"
    assert world(2, loads(tmp_path / "x"), tmp_path, RANKPULSE_RESUME_BEFORE_STEP="soon")[1][0] == "NothingVerified"


def test_what_this_round_has_saved_itself_is_not_meant(tmp_path: Path) -> None:
    """The same process loads again: it goes on from what it has saved since, not from before the limit for ever."""
    round_ = {"RANKPULSE_RUN_UID": "uid", "RANKPULSE_RESUME_BEFORE_STEP": "2"}

    def work(rank: int) -> list[int]:
        model, optimizer = build("ddp", 1)
        manager = CheckpointManager(tmp_path / "ck", model=model, optimizer=optimizer, mode="sharded")
        if os.environ["RANKPULSE_ROUND"] == "0":
            [manager.save(step) for step in (1, 2, 3)]
            return []
        steps = []
        for step in (2, 3):
            resumed = manager.load()
            steps.append(resumed.step if resumed else -1)
            manager.save(step)
        return steps

    world(2, work, tmp_path, RANKPULSE_RUN_UID="uid", RANKPULSE_ROUND="0")
    assert world(2, work, tmp_path, **round_, RANKPULSE_ROUND="1") == [[1, 2], [1, 2]]
    assert len(scan(str(tmp_path / "ck")).aside) == 2


# one process


@contextmanager
def heard(directory: Path) -> Iterator[tuple[Where, list[tuple[str, dict[str, Any]]]]]:
    events: list[tuple[str, dict[str, Any]]] = []
    yield Where(tell=lambda event, **said: events.append((event, said))), events


def test_the_monitor_is_told_what_was_refused_and_what_was_loaded(tmp_path: Path) -> None:
    model = torch.nn.Linear(2, 2)
    paths = [CheckpointManager(tmp_path, model=model).save(step).path for step in (1, 2)]
    flip(shard(paths[1], 0), os.path.getsize(shard(paths[1], 0)) - 1)
    with heard(tmp_path) as (where, events):
        assert load_sharded(str(tmp_path), {"model": model}, where=where) is not None
    (refused, why), (loaded, said) = events
    assert (refused, why["step"], loaded) == ("refused", 2, "loaded")
    assert "does not have the checksum it was saved with" in why["reason"]
    assert said["step"] == 1
    assert set(said) == {"step", "bytes", "load_s", "verify_s", "level", "skipped", "resharded_from"}
    assert (said["level"], said["skipped"], said["resharded_from"]) == ("full", 1, 0)
    assert said["bytes"] == os.path.getsize(shard(paths[0], 0))


def test_a_directory_that_cannot_be_listed_is_no_fresh_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NothingVerified, match="cannot be listed"):
        load_sharded(str(tmp_path / "file"), {"x": {}})


def test_a_checkpoint_of_something_else_is_a_mismatch(tmp_path: Path) -> None:
    path = CheckpointManager(tmp_path, model=torch.nn.Linear(2, 2)).save(1).path
    resaved(path, values={"notes": 1})
    with pytest.raises(CheckpointError, match="was not saved by a CheckpointManager"):
        CheckpointManager(tmp_path, model=torch.nn.Linear(2, 2)).load()
    assert read_manifest(path).values == {"notes": 1}
