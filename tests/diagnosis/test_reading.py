"""Snapshots are read totally: what cannot be understood costs itself, and the page says what there is to write."""

import json
import random
import re
from pathlib import Path
from typing import Any

import diagnosis_incidents
import msgspec
import pytest
from diagnosis_world import Json, job
from typer.testing import CliRunner

from rankpulse.cli.main import app
from rankpulse.core import snapshot, snapshot_nodes, verdict
from rankpulse.core.diagnosing import diagnose
from rankpulse.core.snapshot import RANKS_MAX
from rankpulse.core.snapshot_codec import Unreadable, decode

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "snapshots.md").read_text()
KINDS = [
    kind
    for module in (snapshot, snapshot_nodes)
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind.__module__ == module.__name__
]
JUNK = [None, 0, -1, 3, 1e9, "", "x", [], {}, True, [1], ["a"], -9, "nan"]


def read(snap: Any) -> snapshot.Snapshot:
    return decode(json.dumps(snap).encode())


@pytest.mark.parametrize("data", [b"", b"[]", b"3", b'"x"', b"\xff", b'{"a":', b"[" * 100_000, b'{"ranks":' * 9_000])
def test_what_is_no_snapshot_is_refused_with_a_reason(data: bytes) -> None:
    with pytest.raises(Unreadable, match=r"\w"):
        decode(data)


def test_more_ranks_than_the_limit_are_refused() -> None:
    with pytest.raises(Unreadable, match=str(RANKS_MAX)):
        read({"ranks": [{"rank": i} for i in range(RANKS_MAX + 1)]})


def test_a_wrong_value_costs_that_value_alone() -> None:
    row = {"rank": 1, "step": "x", "node": 7, "signal": "SIGKILL", "gpu": None, "stack": "a\nb"}
    row["positions"] = [{"group": "w", "enqueued": "z", "completed": "4", "open": [{"seq": 5}, {"op": "y"}]}, 3]
    found = read({"ranks": [row, {"node": "no rank"}, 5], "taken_at": None, "devices": {"node": "a", "xids": 79}})
    (rank,) = found.ranks
    assert (rank.node, rank.signal, rank.gpu, rank.step, rank.stack) == ("7", 9, None, None, ("a", "b"))
    (position,) = rank.positions
    assert (position.enqueued, position.completed, [op.seq for op in position.open]) == (None, 4, [5])
    assert found.devices[0].xids == (79,)
    told = " ".join(found.unread)
    assert all(where in told for where in ("ranks[0].step", "positions[0].enqueued", "open[1]", "ranks[1]", "ranks[2]"))


def spoiled(value: Any, much: float, chance: random.Random) -> Any:
    if isinstance(value, dict):
        kept = {k: v for k, v in value.items() if chance.random() > much}
        return {k: chance.choice(JUNK) if chance.random() < much else spoiled(v, much, chance) for k, v in kept.items()}
    if isinstance(value, list):
        return [spoiled(one, much, chance) for one in value if chance.random() > much]
    return value


@pytest.mark.parametrize("seed", range(40))
def test_whatever_is_missing_or_wrong_there_is_a_verdict(seed: int) -> None:
    chance = random.Random(seed)
    for make in diagnosis_incidents.ALL.values():
        snap = make()
        snap["ranks"] = snap["ranks"][:24]
        found = diagnose(read(spoiled(snap, chance.choice((0.01, 0.05, 0.2)), chance)))
        assert found.klass in verdict.KINDS
        assert 0 < found.confidence <= 1
        assert json.loads(msgspec.json.encode(found))["class"] == found.klass


def test_null_is_the_same_as_leaving_it_out() -> None:
    snap: Json = job(2, phase=None, positions=None, error=None)
    assert read({**snap, "nodes": None}) == read(job(2))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_field_is_documented(kind: type[msgspec.Struct]) -> None:
    missing = [field.encode_name for field in msgspec.structs.fields(kind) if f"`{field.encode_name}`" not in PAGE]
    assert missing == []


def test_every_class_step_and_field_of_the_verdict_is_documented() -> None:
    section = PAGE.partition("## The verdict")[2]
    words = [*verdict.KINDS, *verdict.KINDS.values(), *verdict.STEPS, *verdict.STEPS.values()]
    words += [field.encode_name for field in msgspec.structs.fields(verdict.Verdict)]
    assert [word for word in words if not re.search(rf"`{word}\b", section)] == []


def test_the_examples_of_the_page_are_read_as_it_says() -> None:
    examples = re.findall(r"^```json\n(.*?)^```\n\n`(\w+)`, (?:rank|node) `?(\w+)`?", PAGE, flags=re.M | re.S)
    assert len(examples) == 4
    for text, klass, culprit in examples:
        found = diagnose(decode(text.encode()))
        assert found.klass == klass
        assert culprit in (*map(str, found.culprits.ranks), *found.culprits.nodes)


def test_the_command_prints_json_and_a_page(tmp_path: Path) -> None:
    file = tmp_path / "snapshot.json"
    file.write_text(json.dumps(diagnosis_incidents.loader_stuck(3)))
    told = json.loads(CliRunner().invoke(app, ["diagnose", str(file), "--json"]).stdout)
    assert (told["class"], told["culprits"]["ranks"], told["action"]) == ("data_stall", [3], "restart")
    assert len(told["cascade"]) == 31
    page = CliRunner().invoke(app, ["diagnose", str(file)]).stdout
    assert page.startswith("rank 3 is waiting for its data loader")
    assert "restart_job" in page


def test_the_command_refuses_what_it_cannot_read(tmp_path: Path) -> None:
    file = tmp_path / "snapshot.json"
    file.write_text("[]")
    for name in (str(file), str(tmp_path / "none.json")):
        answer = CliRunner().invoke(app, ["diagnose", name, "--json"])
        assert answer.exit_code == 2
        assert answer.stdout == ""
