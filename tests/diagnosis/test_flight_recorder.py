"""torch's own dumps: pickle and JSON, some missing, some hostile."""

import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rankpulse.cli.main import app

SIZE = 8


def dump(rank: int, seq: int, *, late: bool, sizes: list[int] | None = None, gloo: bool = False) -> dict[str, Any]:
    """What torch writes, of one group of all ranks; a late one has ended the one before and called nothing since."""
    rows = []
    for number in range(1, seq + (0 if late else 1)):
        ended = number < seq
        state = "scheduled" if gloo else "completed" if ended else "started"
        rows.append(
            {
                "record_id": number, "pg_id": 0, "process_group": ["0", "default_pg"], "collective_seq_id": number,
                "p2p_seq_id": 0, "op_id": number, "profiling_name": f"{'gloo' if gloo else 'nccl'}:all_reduce",
                "input_sizes": [sizes or [1024]], "input_dtypes": ["Float"], "state": state, "retired": ended,
                "is_p2p": False, "time_created_ns": number, "frames": [],
            }
        )  # fmt: skip
    config = {} if gloo else {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(SIZE)))}}
    return {
        "version": "2.5",
        "entries": rows,
        "pg_config": config,
        "pg_status": {"0": {"last_enqueued_collective": "9"}},
    }


def told(directory: Path) -> dict[str, Any]:
    answer = CliRunner().invoke(app, ["diagnose", "--flight-recorder", str(directory), "--json"])
    assert answer.exit_code == 0, answer.stderr
    found: dict[str, Any] = json.loads(answer.stdout)
    return found


@pytest.mark.parametrize("gloo", [False, True])
@pytest.mark.parametrize("victim", [0, 5])
def test_the_rank_that_did_not_come_is_named(tmp_path: Path, victim: int, gloo: bool) -> None:
    for rank in range(SIZE):
        data = dump(rank, 9, late=rank == victim, gloo=gloo)
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(data))
    found = told(tmp_path)
    assert (found["class"], found["culprits"]["ranks"]) == ("collective_hang", [victim])
    assert len(found["cascade"]) == SIZE - 1


def test_another_size_is_a_mismatch_and_json_is_read_as_well(tmp_path: Path) -> None:
    for rank in range(SIZE):
        data = dump(rank, 4, late=False, sizes=[64] if rank == 2 else None)
        (tmp_path / f"trace_{rank}.json").write_text(json.dumps(data))
    found = told(tmp_path)
    assert (found["class"], found["culprits"]["ranks"]) == ("collective_mismatch", [2])


def test_a_missing_dump_is_evidence(tmp_path: Path) -> None:
    for rank in range(SIZE):
        if rank != 6:
            (tmp_path / f"rank_{rank}").write_bytes(pickle.dumps(dump(rank, 9, late=False)))
    found = told(tmp_path)
    assert found["culprits"]["ranks"] == [6]
    assert found["confidence"] < 0.9


def test_a_hostile_dump_runs_nothing_and_costs_its_own_rank_alone(tmp_path: Path) -> None:
    class Hostile:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.mkdir, (str(tmp_path / "broken"),)

    for rank in range(SIZE):
        data = Hostile() if rank == 3 else dump(rank, 9, late=rank == 1)
        (tmp_path / f"rank_{rank}").write_bytes(pickle.dumps(data))
    found = told(tmp_path)
    assert not (tmp_path / "broken").exists()
    assert found["culprits"]["ranks"] == [1]
    assert "rank 3" in found["unread"][0]


def test_a_dump_that_asks_for_all_memory_is_refused(tmp_path: Path) -> None:
    """Five bytes: keep this in place 0x0fffffff of the memo. Obeyed, they cost gigabytes."""
    for rank in range(SIZE):
        far = b"\x80\x02]r\xff\xff\xff\x0f."
        (tmp_path / f"rank_{rank}").write_bytes(far if rank == 3 else pickle.dumps(dump(rank, 9, late=rank == 1)))
    found = told(tmp_path)
    assert found["culprits"]["ranks"] == [1]
    assert "rank 3: MemoryError" in found["unread"][0]


def test_why_a_dump_cannot_be_read_is_said(tmp_path: Path) -> None:
    whole = pickle.dumps(dump(0, 9, late=False))
    for rank in range(4):
        (tmp_path / f"rank_{rank}").write_bytes(b"" if rank == 2 else whole[: len(whole) // 2])
    answer = CliRunner().invoke(app, ["diagnose", "--flight-recorder", str(tmp_path)])
    assert answer.exit_code == 2
    assert "can be read: the dump of rank 0: UnpicklingError: pickle data was truncated" in answer.stderr


def test_a_hole_among_the_dumps_is_told_where_groups_name_no_members(tmp_path: Path) -> None:
    for rank in range(SIZE):
        if rank != 6:
            (tmp_path / f"rank_{rank}").write_bytes(pickle.dumps(dump(rank, 9, late=False, gloo=True)))
    found = told(tmp_path)
    assert found["culprits"]["ranks"] == [6]
    assert found["confidence"] < 0.5


def test_dumps_in_a_directory_of_each_node_and_the_newest_of_a_rank(tmp_path: Path) -> None:
    for rank in range(SIZE):
        below = tmp_path / f"node-{rank // 4}"
        below.mkdir(exist_ok=True)
        (below / f"rank_{rank}").write_bytes(pickle.dumps(dump(rank, 9, late=rank == 1)))
        old = below / f"trace_{rank}.json"
        old.write_text(json.dumps(dump(rank, 3, late=rank == 4)))
        os.utime(old, (1.0, 1.0))
    assert told(tmp_path)["culprits"]["ranks"] == [1]


def test_nobody_hangs_where_every_collective_has_ended(tmp_path: Path) -> None:
    for rank in range(SIZE):
        data = dump(rank, 9, late=False)
        data["entries"][-1] |= {"state": "completed", "retired": True}
        (tmp_path / f"rank_{rank}").write_bytes(pickle.dumps(data))
    assert told(tmp_path)["class"] == "unknown"


def test_fields_that_a_version_leaves_empty_cost_nothing(tmp_path: Path) -> None:
    for rank in range(SIZE):
        data = dump(rank, 9, late=rank == 1)
        data["pg_config"] = "none"
        for row in data["entries"]:
            row |= {"input_sizes": None, "input_dtypes": None}
        (tmp_path / f"rank_{rank}").write_bytes(pickle.dumps(data))
    found = told(tmp_path)
    assert (found["culprits"]["ranks"], found["unread"]) == ([1], [])


@pytest.mark.parametrize("arguments", [[], ["a.json", "--flight-recorder", "x"], ["--flight-recorder", "none"]])
def test_what_cannot_be_read_is_said(arguments: list[str]) -> None:
    assert CliRunner().invoke(app, ["diagnose", *arguments]).exit_code == 2
