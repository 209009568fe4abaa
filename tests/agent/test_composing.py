"""What was gathered, put into words of a snapshot."""

import json
import time
from typing import Any

import msgspec
import pytest

from rankpulse.agent import composing, trace
from rankpulse.agent.beside import Around, Beside
from rankpulse.agent.evidence import Seen
from rankpulse.agent.gathering import Gathered
from rankpulse.agent.gpus import Use
from rankpulse.agent.kernel_lines import Lines
from rankpulse.agent.stacks import Told
from rankpulse.core.evidence import Row
from rankpulse.core.snapshot import COMPLETED, ENQUEUED, STARTED, Group, Operation
from rankpulse.core.snapshot_nodes import Device


def entry(seq: int, state: str, *, group: str = "0", **more: Any) -> dict[str, Any]:
    """As NCCL is recorded."""
    return {
        "process_group": [group, "default_pg"], "collective_seq_id": seq, "record_id": seq, "state": state,
        "profiling_name": "nccl:all_reduce", "input_sizes": [[4, 5]], "input_dtypes": ["Float"], **more,
    }  # fmt: skip


def recorded(*entries: dict[str, Any], **groups: list[int]) -> trace.Trace:
    config = {name: {"name": name, "desc": "dp", "ranks": str(ranks)} for name, ranks in groups.items()}
    return trace.read(json.dumps({"entries": entries, "pg_config": config}).encode())


def gathered(found: trace.Trace, *, text: str = "", server: str = "ok", **around: Any) -> Gathered:
    row = Row(3, 41, 1, "S", "futex", False, server)
    seen = Seen(None, row, found, b"{}", Told(text, "why not"), None)  # type: ignore[arg-type]
    use = Use((Device("n1", 5, util=9.0),), {41: Device("n1", 5, util=9.0)})
    return Gathered([seen], Around({41: Beside(**around)}, ("10.0.0.1",)), Lines(("[1.0] x",), True), use)


def rank(found: Gathered) -> Any:
    return composing.rank("n1", found, found.seen[0])


def test_operations_as_they_stand() -> None:
    found = recorded(entry(7, "completed"), entry(8, "started"), entry(9, "scheduled"))
    (position,) = rank(gathered(found)).positions
    assert (position.enqueued, position.started, position.completed) == (9, 8, 7)
    assert [(op.seq, op.state) for op in position.open] == [(7, COMPLETED), (8, STARTED), (9, ENQUEUED)]
    assert position.open[1] == Operation(8, "all_reduce", (4, 5), "Float", None, STARTED, "", 8)


def test_a_send_and_its_peer_by_their_ranks() -> None:
    send = entry(0, "started", group="pp", is_p2p=True, p2p_seq_id=4, profiling_name="nccl:send 0->1")
    (position,) = rank(gathered(recorded(send, pp=[3, 11]))).positions
    assert [(op.op, op.seq, op.peer) for op in position.open] == [("send", 4, 11)]


def test_members_are_told_as_far_as_there_is_room() -> None:
    everybody = list(range(5000))
    found = gathered(recorded(entry(1, "completed"), tp=[0, 1, 2, 3], world=everybody))
    assert composing.groups(found) == (Group("tp", (0, 1, 2, 3), "dp"),)


@pytest.mark.parametrize(
    ("moved", "told", "moving"),
    [(None, 0, None), (0, 0, False), (9000, 0, False), (40_000, 10_000, False), (70_000, 10_000, True)],
)
def test_our_own_question_is_no_work(moved: int | None, told: int, moving: bool | None) -> None:
    """What it tells of its stacks goes through a file."""
    assert rank(gathered(trace.Trace(), text="x" * told, moved=moved)).io_moving is moving


def test_the_gpu_is_that_of_the_process() -> None:
    found = rank(gathered(trace.Trace()))
    assert (found.gpu, found.gpu_util) == (5, 9.0)


def test_why_there_are_no_positions() -> None:
    assert "TORCH_FR_BUFFER_SIZE" in rank(gathered(trace.Trace(), server="ok")).dump
    assert rank(gathered(trace.Trace(), server="no answer within 1 s")).dump == "no answer within 1 s"


def test_the_machine() -> None:
    found = composing.report("n1", gathered(trace.Trace()), 5.0, disk_stuck=True)
    assert (found.kernel, found.kernel_readable, found.addresses) == (("[1.0] x",), True, ("10.0.0.1",))
    assert (found.uptime_s, found.disk_stuck) == (5.0, True)


def test_what_is_missing_is_told_and_what_nccl_says() -> None:
    found = gathered(trace.Trace())._replace(left_out=("its GPUs: not in time",), ras="Group 0: 7 of 8\n")
    assert composing.left_out(found) == (
        "its GPUs: not in time", "rank 3: no stack: why not", "NCCL RAS: Group 0: 7 of 8",
    )  # fmt: skip


def test_a_dump_holds_the_recorder_as_it_came() -> None:
    found = gathered(recorded(entry(1, "completed")), environment={"NCCL_DEBUG": "INFO"})
    body = b'{"entries": [1], "more":  2}'
    found = found._replace(seen=[found.seen[0]._replace(body=body)])
    whole = composing.dumps("n1", found, {"taken_at": time.time()})
    assert body in msgspec.json.encode(whole[3])
    assert whole[3]["environment"] == {"NCCL_DEBUG": "INFO"}
    assert composing.dumps("n1", found, {}, redact=True)[3]["environment"] == {}
