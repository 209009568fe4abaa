"""`rankpulse ckpt` as an operator meets it: tables, JSON, exit codes, and a sentence for every bad path. No torch."""

import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from recut_world import Tensor, changed, flip, save, tensor
from typer.testing import CliRunner

from rankpulse.cli.ckpt_diff import in_step, parts_of
from rankpulse.cli.ckpt_reshard import ranks
from rankpulse.cli.main import app
from rankpulse.core.words import size
from rankpulse.trainer.checkpoint import reader, rotation
from rankpulse.trainer.checkpoint.files import Files
from rankpulse.trainer.checkpoint.manifest import MANIFEST, digest_of

STATE = {"model.w": tensor("F32", (16, 4)), "model.b": tensor("BF16", (7,)), "cut": tensor("F32", (8, 3), cuts=(2, 1))}
COMMANDS = ("ls", "verify", "diff", "reshard", "prune")


def ckpt(*args: object) -> subprocess.CompletedProcess[str]:
    result = CliRunner().invoke(app, ["ckpt", *map(str, args)])
    assert "Traceback" not in result.stderr
    return subprocess.CompletedProcess(args, result.exit_code, result.stdout, result.stderr)


def told(*args: object, code: int = 0) -> Any:
    """The JSON that is all there is on stdout."""
    done = ckpt(*args, "--json")
    assert done.returncode == code, (done.stdout, done.stderr)
    return json.loads(done.stdout)


def refused(done: subprocess.CompletedProcess[str], *parts: str) -> None:
    assert (done.returncode, done.stdout) == (2, ""), (done.stdout, done.stderr)
    for part in parts:
        assert part in done.stderr, done.stderr


@pytest.fixture
def some(tmp_path: Path) -> Path:
    """Steps 10 to 40; 25 has a damaged manifest, 50 was set aside, 60 was never committed; and foreign things."""
    for step in (10, 20, 30, 40):
        save(tmp_path, STATE, 2, step=step, metrics={"loss": 1 / step})
    flip(f"{save(tmp_path, STATE, 2, step=25)}/manifest.json", 30)
    rotation.set_aside(Files(), save(tmp_path, STATE, 2, step=50), "asked to resume before step 45 \x1b[31m[bold]")
    partial = tmp_path / "step-00000060-aabbccdd"
    partial.mkdir()
    (partial / ".shard-00000.safetensors.tmp").write_bytes(b"x" * 1000)
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "step-elsewhere").symlink_to("/etc")
    return tmp_path


def path_of(directory: Path, step: int) -> Path:
    (found,) = [Path(one.path) for one in reader.scan(str(directory)).committed if one.step == step]
    return found


# help


def test_help_teaches_with_every_command() -> None:
    text = ckpt("--help").stdout
    assert all(f"rankpulse ckpt {command} " in text for command in COMMANDS)
    for command in COMMANDS:
        done = ckpt(command, "--help")
        assert done.returncode == 0
        assert "Example: rankpulse ckpt" in done.stdout


# ls


def test_ls_shows_what_is_there_and_in_which_state(some: Path) -> None:
    done = ckpt("ls", some)
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["step", "kind", "ranks", "shards", "size", "saved", "by", "metrics", "state", "name"]
    assert [line.split()[0] for line in lines if line[:1].isdigit()] == ["40", "30", "25", "20", "10"]
    assert "llama, round 3" in done.stdout
    assert "loss=0.025" in done.stdout
    assert "damaged: manifest.json" in done.stdout
    assert "\x1b" not in done.stdout
    assert "notes.txt" not in done.stdout


def test_ls_as_json(some: Path) -> None:
    rows = told("ls", some)["checkpoints"]
    assert [(row["step"], row["state"]) for row in rows] == [
        (40, "committed"),
        (30, "committed"),
        (25, "damaged"),
        (20, "committed"),
        (10, "committed"),
        (None, "partial"),
        (None, "set aside"),
    ]
    first = rows[0]
    assert (first["kind"], first["world_size"], first["shards"], first["run_id"]) == ("sharded", 2, 2, "llama")
    assert (first["run_uid"], first["round"], first["metrics"]) == ("0123abcd", 3, {"loss": 0.025})
    assert first["bytes"] == sum(file.stat().st_size for file in Path(first["path"]).glob("shard-*"))
    assert "checksum" in rows[2]["why"]
    assert rows[5]["bytes"] == 1000
    assert "resume before step 45" in rows[6]["why"]


def test_ls_sees_what_is_missing_or_short_without_reading_it(some: Path) -> None:
    (path_of(some, 40) / "shard-00001.safetensors").unlink()
    with open(path_of(some, 30) / "shard-00000.safetensors", "ab") as file:
        file.write(b"x")
    rows = told("ls", some)["checkpoints"]
    assert [row["state"] for row in rows[:2]] == ["damaged", "damaged"]
    assert rows[0]["why"].endswith("shard-00001.safetensors: is missing")
    assert "bytes" in rows[1]["why"]
    page = ckpt("ls", some).stdout.split()
    assert "missing" in page
    assert "wrong" in page


def test_ls_of_a_directory_without_any(tmp_path: Path) -> None:
    done = ckpt("ls", tmp_path)
    assert (done.returncode, done.stdout) == (0, f"{tmp_path} holds no checkpoints\n")
    assert told("ls", tmp_path)["checkpoints"] == []


def test_ls_of_one_checkpoint_asks_for_its_directory(some: Path) -> None:
    assert "is one checkpoint: name the directory that it lies in" in ckpt("ls", path_of(some, 40)).stdout


# verify


def test_verify_goes_from_the_newest_to_a_good_one(some: Path) -> None:
    assert told("verify", some)["newest_good"] == str(path_of(some, 40))
    broken = path_of(some, 40) / "shard-00001.safetensors"
    flip(broken)
    done = ckpt("verify", some)
    assert done.returncode == 1
    assert f"{broken}: does not have the checksum it was saved with: expected " in done.stdout
    assert f"newest that verifies: {path_of(some, 30)}" in done.stdout
    assert "3 older not looked at" in done.stdout
    assert "GB/s" in done.stdout


def test_verify_stops_where_a_load_stops(some: Path) -> None:
    """A newer schema is for a person: an older checkpoint behind it is not what a restart would load."""
    flip(path_of(some, 40) / "shard-00001.safetensors")
    newer = path_of(some, 30)
    data = (newer / MANIFEST).read_bytes().replace(b'"schema_version": 1', b'"schema_version": 2')
    old = json.loads(data)["digest"].encode()
    (newer / MANIFEST).write_bytes(data.replace(old, digest_of(data).encode()))
    done = ckpt("verify", some)
    assert done.returncode == 1
    assert f"refused  {newer}" in done.stdout
    assert f"a job that loads from here stops at {newer}" in done.stdout
    assert str(path_of(some, 20)) not in done.stdout
    report = told("verify", some, code=1)
    assert (report["newest_good"], report["load_stops_at"], report["not_looked_at"]) == (None, str(newer), 3)
    report = told("verify", some, "--all", code=1)
    assert (report["newest_good"], report["load_stops_at"]) == (str(path_of(some, 20)), str(newer))
    assert told("verify", some, "--step", 20)["load_stops_at"] is None


@pytest.mark.parametrize("flags", [[], ["--fast"]])
def test_verify_names_file_expected_and_found(some: Path, flags: list[str]) -> None:
    path = path_of(some, 40)
    shard = reader.read_manifest(str(path)).shards[1]
    flip(path / shard.path)
    report = told("verify", path, *flags, code=1)
    (row,) = report["checkpoints"]
    assert (row["good"], row["file"]) == (False, str(path / shard.path))
    assert row["expected"] == (shard.xxh3 if flags else shard.sha256)
    assert row["found"] not in ("", row["expected"])
    assert report["newest_good"] is None


def test_verify_all_and_one_step(some: Path) -> None:
    report = told("verify", some, "--all", code=1)
    assert [(row["step"], row["good"]) for row in report["checkpoints"] if row["good"]] == [
        (40, True),
        (30, True),
        (20, True),
        (10, True),
    ]
    assert [row["file"] for row in report["checkpoints"] if not row["good"]] == [
        str(path_of(some, 25)) + "/manifest.json"
    ]
    assert told("verify", some, "--step", 20)["newest_good"] == str(path_of(some, 20))
    assert told("verify", some, "--step", 25, code=1)["newest_good"] is None
    assert told("verify", path_of(some, 10))["bytes"] > 0


def test_verify_says_why_there_is_nothing_to_verify(some: Path, tmp_path: Path) -> None:
    refused(ckpt("verify", some, "--step", 7), "no checkpoint of step 7", "40, 30, 25, 20, 10")
    refused(ckpt("verify", path_of(some, 10), "--step", 10), "is one checkpoint")
    refused(ckpt("verify", some / "step-00000060-aabbccdd"), "never committed")
    refused(ckpt("verify", next(some.glob("aside-*"))), "set aside")
    empty = tmp_path / "empty"
    empty.mkdir()
    refused(ckpt("verify", empty), "holds no checkpoint")
    (empty / "step-00000060-aabbccdd").mkdir()
    refused(ckpt("verify", empty), "1 that never were committed")


@pytest.mark.parametrize("level", [[], ["--fast"]])
def test_no_damage_to_any_file_makes_a_traceback(some: Path, level: list[str]) -> None:
    path = path_of(some, 40)
    whole = {file: file.read_bytes() for file in path.iterdir()}
    for file, data in whole.items():
        for bad in (b"", data[:-1], data[: len(data) // 2], data + b"x", b"\0" * len(data), b"[" * len(data)):
            file.write_bytes(bad)
            report = told("verify", path, *level, code=1)
            assert report["checkpoints"][0]["trouble"].startswith(str(file))
        file.write_bytes(data)
    assert told("verify", path)["newest_good"] == str(path)


# diff


def floats(*values: float) -> bytes:
    return struct.pack(f"<{len(values)}f", *values)


def brain(*values: float) -> bytes:
    """bf16: the upper half of a float32."""
    return b"".join(struct.pack("<f", value)[2:] for value in values)


def test_equal_however_they_are_cut(tmp_path: Path) -> None:
    a, b = save(tmp_path / "a", STATE, 2, step=1), save(tmp_path / "b", STATE, 5, step=2, metrics={})
    report = told("diff", a, b)
    assert report["equal"] is True
    assert report["compared"] == len(STATE)
    assert ckpt("diff", a, b).stdout.endswith("equal: 3 tensors, all values\n")
    assert told("diff", tmp_path / "a", tmp_path / "b")["a"]["path"] == a


def test_diff_shows_how_far_numbers_are_apart(tmp_path: Path) -> None:
    old = {
        "f32": Tensor("F32", (3,), floats(1, 2, 4)),
        "bf16": Tensor("BF16", (2,), brain(8, 1)),
        "f16": Tensor("F16", (1,), struct.pack("<e", 1)),
        "i64": Tensor("I64", (1,), struct.pack("<q", 7)),
        "nan": Tensor("F32", (3,), floats(float("nan"), 1, 2)),
        "zero": Tensor("F32", (1,), floats(0.0)),
        "same": tensor("U8", (5,)),
        "boxes": tensor("I32", (4, 4), cuts=(2, 1)),
    }
    new = {
        **old,
        "f32": changed(old["f32"], 1, floats(3, 5)),
        "bf16": changed(old["bf16"], 0, brain(6)),
        "f16": changed(old["f16"], 0, struct.pack("<e", -1)),
        "i64": changed(old["i64"], 0, struct.pack("<q", -7)),
        "nan": changed(old["nan"], 1, floats(float("inf"))),
        "zero": changed(old["zero"], 0, floats(-0.0)),
    }
    report = told("diff", save(tmp_path, old, 2, step=1), save(tmp_path, new, 3, step=2), code=1)
    rows = {row["name"]: row for row in report["tensors"]}
    assert {name: (row["elements"], row["max_abs"], row["max_rel"]) for name, row in rows.items()} == {
        "f32": (2, 1.0, pytest.approx(1 / 3)),
        "bf16": (1, 2.0, 0.25),
        "f16": (1, 2.0, 2.0),
        "i64": (1, 14.0, 2.0),
        "nan": (1, 0.0, 0.0),
        "zero": (0, 0.0, 0.0),
    }
    assert rows["nan"]["not_finite"] == 1


def test_diff_shows_what_cannot_be_compared(tmp_path: Path) -> None:
    old = {"gone": tensor("U8", (2,)), "shape": tensor("F32", (2, 3)), "type": tensor("F32", (2,))}
    new = {"more": tensor("U8", (2,)), "shape": tensor("F32", (3, 2)), "type": tensor("F16", (2,))}
    a = save(tmp_path, old, 2, values={"lr": 0.1, "groups": [{"betas": [0.9, 0.99]}], "old": None})
    b = save(tmp_path, new, 2, values={"lr": 0.1, "groups": [{"betas": [0.9, 0.999]}], "new": 1})
    report = told("diff", a, b, code=1)
    assert {row["name"]: row["what"] for row in report["tensors"]} == {
        "gone": "only in A",
        "more": "only in B",
        "shape": "shape",
        "type": "type",
    }
    assert report["values"] == [
        {"path": "groups/0/betas/1", "a": 0.99, "b": 0.999},
        {"path": "old", "a": None},
        {"path": "new", "b": 1},
    ]
    page = ckpt("diff", a, b)
    assert page.returncode == 1
    for part in ("F32 [2, 3]", "F32 [3, 2]", "only in A", "groups/0/betas/1", "0.999"):
        assert part in page.stdout


def test_the_random_numbers_of_a_rank_are_state_too(tmp_path: Path) -> None:
    a, b = save(tmp_path, STATE, 2, step=1), save(tmp_path, STATE, 2, step=2, own=False)
    rows = told("diff", a, b, code=1)["own"]
    assert {(row["rank"], row["what"]) for row in rows} == {(0, "only in A"), (1, "only in A")}


def test_what_differs_of_a_rank_is_named_where_it_can_be_read() -> None:
    a = b'{"rng": {"python": {"$": "tuple", "v": [3, 1]}, "torch": 1}, "parts": {}}'
    b = b'{"rng": {"python": {"$": "tuple", "v": [3, 2]}, "torch": 1}, "parts": {"extra.data": {"value": 1}}}'
    assert parts_of(a, b) == ": rng/python, parts/extra.data"
    for bad in (b"", b"\xff", b'{"a": NaN}', b"[" * 100_000, b"[" * 500 + b"]" * 500):
        assert parts_of(a, bad) == ""


def test_a_damaged_one_is_not_compared(tmp_path: Path) -> None:
    a, b = save(tmp_path, STATE, 2, step=1), save(tmp_path, STATE, 2, step=2)
    flip(f"{b}/shard-00000.safetensors")
    refused(ckpt("diff", a, b), "shard-00000", "checksum")


def test_streams_are_compared_in_step() -> None:
    a, b = ([memoryview(part) for part in parts] for parts in ([b"abc", b"d", b"efgh"], [b"ab", b"cdefg", b"h"]))
    pairs = list(in_step(iter(a), iter(b)))
    assert all(x == y for x, y in pairs)
    assert b"".join(bytes(x) for x, _ in pairs) == b"abcdefgh"


# reshard


def test_reshard_makes_a_checkpoint_of_the_same_state(tmp_path: Path) -> None:
    path = save(tmp_path, STATE, 2, step=10)
    report = told("reshard", path, "--to", 5, "--out", tmp_path / "five")
    assert (report["step"], report["world_size"]) == (10, 5)
    assert (report["own_kept"], report["own_lost"], report["own_missing"]) == ([0, 1], [], [2, 3, 4])
    assert told("diff", path, report["path"])["equal"] is True
    assert told("verify", tmp_path / "five")["newest_good"] == report["path"]
    page = ckpt("reshard", report["path"], "--to", 1)
    assert page.returncode == 0
    assert "step 10 for 1 ranks" in page.stdout
    assert "rank 1" in page.stdout
    assert len(reader.scan(str(tmp_path / "five")).committed) == 2


def test_reshard_of_a_directory_takes_the_newest_or_the_step(some: Path) -> None:
    assert told("reshard", some, "--to", 3, "--out", some / "out")["step"] == 40
    assert told("reshard", some, "--to", 3, "--out", some / "out", "--step", 20)["step"] == 20


def test_reshard_refuses_what_it_cannot_do(some: Path) -> None:
    path = path_of(some, 40)
    refused(ckpt("reshard", path, "--to", 0), "--to must be")
    refused(ckpt("reshard", path, "--to", 10**9), "--to must be")
    refused(ckpt("reshard", path, "--to", 2, "--out", some / "a" / "b"), "cannot be made")
    refused(ckpt("reshard", path, "--to", 2, "--out", some / "notes.txt"), "notes.txt")
    flip(path / "shard-00000.safetensors")
    refused(ckpt("reshard", path, "--to", 2, "--out", some / "out"), "shard-00000", "checksum")
    assert reader.scan(str(some / "out")).committed == ()


def test_reshard_does_not_lose_what_each_rank_had_for_itself(tmp_path: Path) -> None:
    path = save(tmp_path, STATE, 2, values={"parts": {}, "own": ["extra.data"]})
    refused(ckpt("reshard", path, "--to", 1), "extra.data", "another on each of 2 ranks")
    assert len(list(tmp_path.iterdir())) == 1
    assert told("reshard", path, "--to", 2)["world_size"] == 2


def test_reshard_says_when_the_disk_is_full_and_leaves_nothing(tmp_path: Path) -> None:
    path = save(tmp_path, {"w": tensor("F32", (5000,))}, 2)
    code = "import resource as r; r.setrlimit(r.RLIMIT_FSIZE, (4000, 4000))\n" + _BLOCKED
    argv = [sys.executable, "-c", code, "torch", "ckpt", "reshard", path, "--to", "3", "--out", str(tmp_path / "out")]
    refused(
        subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False),
        "/out",
        ": File too large",
        "--out",
    )
    assert list((tmp_path / "out").iterdir()) == []


def test_ranks_in_words() -> None:
    assert ranks([3]) == "rank 3"
    assert ranks([4, 5, 6, 7]) == "ranks 4-7"
    assert ranks([0, 2, 4, 5, 6]) == "ranks 0, 2, 4-6"


# prune


def steps(directory: Path) -> list[int]:
    return [one.step for one in reader.scan(str(directory)).committed]


def test_prune_keeps_the_newest(some: Path) -> None:
    done = ckpt("prune", some, "--keep", 2, "--dry-run")
    assert done.returncode == 0
    assert "would go" in done.stdout
    assert steps(some) == [40, 30, 25, 20, 10]
    report = told("prune", some, "--keep", 2, "--yes")
    assert report["removed"] is True
    assert report["verified"] == str(path_of(some, 40))
    assert steps(some) == [40, 30]
    assert all(row["bytes"] > 0 for row in report["checkpoints"])
    assert len(report["checkpoints"]) == 3
    assert (some / "notes.txt").exists()
    assert (some / "step-00000060-aabbccdd").exists()
    assert list(some.glob("aside-*"))


def test_prune_never_removes_the_newest_that_verifies(some: Path) -> None:
    for step in (40, 30):
        flip(path_of(some, step) / "shard-00000.safetensors")
    done = ckpt("prune", some, "--keep", 1, "--yes")
    assert done.returncode == 0
    assert "(the newest that verifies)" in done.stdout
    assert done.stderr.count("damaged: ") == 3
    assert 20 in steps(some)
    assert 10 not in steps(some)


def test_prune_removes_nothing_when_nothing_verifies(some: Path) -> None:
    for step in (40, 30, 20, 10):
        flip(path_of(some, step) / "shard-00000.safetensors")
    done = ckpt("prune", some, "--keep", 1, "--yes")
    refused(done, "nothing is removed")
    assert steps(some) == [40, 30, 25, 20, 10]


def test_prune_asks(some: Path) -> None:
    done = ckpt("prune", some, "--keep", 1)
    assert done.returncode == 2
    assert "--yes" in done.stderr
    assert len(steps(some)) == 5
    refused(ckpt("prune", some, "--keep", 0), "--keep must be 1 or more")


def test_prune_takes_attempts_only_when_asked_and_old(some: Path) -> None:
    attempt = some / "step-00000060-aabbccdd"
    assert told("prune", some, "--keep", 9, "--partial", "--yes")["checkpoints"] == []
    for path in (*attempt.iterdir(), attempt):
        os.utime(path, (0, 0))
    assert told("prune", some, "--keep", 9, "--yes")["checkpoints"] == []
    (row,) = told("prune", some, "--keep", 9, "--partial", "--yes")["checkpoints"]
    assert row["path"] == str(attempt)
    assert not attempt.exists()
    assert len(steps(some)) == 5


# any path


def commands(path: object) -> dict[str, list[object]]:
    return {
        "ls": ["ls", path],
        "verify": ["verify", path],
        "diff": ["diff", path, path],
        "reshard": ["reshard", path, "--to", 2],
        "prune": ["prune", path, "--keep", 1, "--yes"],
    }


BAD: dict[str, Callable[[Path], object]] = {
    "missing": lambda at: at / "nowhere",
    "file": lambda at: at / "file",
    "null": lambda at: f"{at}/a\0b",
    "long": lambda at: at / ("x" * 5000),
    "empty name": lambda at: "",
    "link in a circle": lambda at: at / "circle",
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("kind", BAD)
def test_every_bad_path_is_refused_in_a_sentence(tmp_path: Path, command: str, kind: str) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "circle").symlink_to("circle")
    refused(ckpt(*commands(BAD[kind](tmp_path))[command]), "rankpulse: ")


def test_names_in_an_error_cannot_steer_the_terminal(tmp_path: Path) -> None:
    home = tmp_path / "x\x1b[2J\n[bold]y"
    home.mkdir()
    path = save(home, STATE, 2)
    flip(f"{path}/shard-00001.safetensors")
    for done in (ckpt("diff", path, path), ckpt("reshard", path, "--to", 1), ckpt("verify", path)):
        assert "\x1b" not in done.stdout + done.stderr
        assert "[2J" in done.stdout + done.stderr
    assert ckpt("diff", path, path).stderr.count("\n") == 1


@pytest.mark.parametrize("command", COMMANDS)
def test_foreign_things_are_neither_read_nor_touched(tmp_path: Path, command: str) -> None:
    for name in ("step-00000010-3fa9c2d1", "step-00000011-3fa9c2d2", "step-00000012-3fa9c2d3"):
        (tmp_path / name).mkdir()
    (tmp_path / "step-00000010-3fa9c2d1" / "manifest.json").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "step-00000011-3fa9c2d2" / "manifest.json")
    (tmp_path / "step-00000012-3fa9c2d3" / "manifest.json").mkdir()
    (tmp_path / "step-00000013-3fa9c2d4").write_text("a file")
    before = sorted(tmp_path.rglob("*"))
    done = ckpt(*commands(tmp_path)[command])
    assert done.returncode == {"ls": 0, "verify": 1}.get(command, 2), (done.stdout, done.stderr)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("command", COMMANDS)
def test_a_directory_that_may_not_be_read_is_said(tmp_path: Path, command: str) -> None:
    tmp_path.chmod(0)
    try:
        if os.access(tmp_path, os.R_OK):
            pytest.skip("this user may read everything")
        refused(ckpt(*commands(tmp_path)[command]), "cannot be read", "Permission denied")
    finally:
        tmp_path.chmod(0o700)


_BLOCKED = """
import sys
for name in sys.argv[1].split(","):
    sys.modules[name] = None
sys.argv = ["rankpulse", *sys.argv[2:]]
from rankpulse.cli.main import main
main()
"""


def without(modules: str, *args: object) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-c", _BLOCKED, modules, "ckpt", *map(str, args)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)


def test_nothing_needs_torch_or_numpy(tmp_path: Path) -> None:
    old = save(tmp_path, STATE, 2, step=1)
    new = save(tmp_path, {**STATE, "model.w": changed(STATE["model.w"], 3, floats(7))}, 2, step=2)
    modules = "torch,numpy"
    assert without(modules, "ls", tmp_path).returncode == 0
    assert without(modules, "verify", tmp_path, "--all").returncode == 0
    assert without(modules, "reshard", old, "--to", 3, "--out", tmp_path / "out").returncode == 0
    done = without(modules, "diff", old, new)
    assert done.returncode == 1
    assert "needs torch or numpy" in done.stdout
    assert "needs torch" not in without("torch", "diff", old, new).stdout
    done = without(modules, "prune", tmp_path, "--keep", 1, "--yes")
    assert (done.returncode, done.stderr) == (0, "")
    assert steps(tmp_path) == [2]


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 kB"),
        (123456, "123 kB"),
        (999_999, "1 MB"),
        (2.5e12, "2.5 TB"),
        (5e15, "5000 TB"),
    ],
)
def test_bytes_in_words(number: float, text: str) -> None:
    assert size(int(number)) == text
