"""What was gathered becomes an answer that fits, and dumps that hold it whole. Values in, values out."""

from typing import Any, Final

import msgspec

from rankpulse.agent import ras, stacks
from rankpulse.agent.beside import Beside
from rankpulse.agent.dumps import NODE
from rankpulse.agent.evidence import Seen
from rankpulse.agent.gathering import Gathered
from rankpulse.agent.loaders import MOVED_BYTES
from rankpulse.agent.trace import MEMBERS_MAX
from rankpulse.core.dossier import GROUPS_MAX
from rankpulse.core.snapshot import Group, Rank
from rankpulse.core.snapshot_nodes import Node

_OWN_BYTES: Final = 4  # times what it told of its stacks: that goes through a file of its own
_LEFT_OUT_MAX: Final = 60


def rank(node: str, gathered: Gathered, seen: Seen, *, redact: bool = False) -> Rank:
    """One rank, whole; `core.reducing` makes it fit."""
    row, positions = seen.row, seen.trace.positions
    beside, gpu = gathered.around.of.get(row.pid, Beside()), gathered.use.of.get(row.pid)
    stack = _stack(gathered, seen)
    return Rank(
        row.rank,
        node,
        gpu=gpu.gpu if gpu else None,
        gpu_util=gpu.util if gpu else None,
        pid=row.pid,
        state=row.state,
        wchan=row.wchan,
        cpu_moving=row.cpu_moving,
        io_moving=_io_moving(beside, seen),
        alive=row.state not in ("X", "Z"),
        dump="" if positions else _why(row.server),
        positions=positions,
        stack=tuple(map(stacks.bare, stack)) if redact else stack,
        gil_held=seen.held,
        loaders=beside.loaders,
        unacked=beside.unacked,
    )


def report(node: str, gathered: Gathered, uptime_s: float, *, disk_stuck: bool | None) -> Node:
    return Node(
        node,
        kernel=gathered.kernel.lines,
        kernel_readable=gathered.kernel.readable,
        addresses=gathered.around.addresses,
        uptime_s=uptime_s,
        disk_stuck=disk_stuck,
    )


def groups(gathered: Gathered) -> tuple[Group, ...]:
    """The smallest first, as many as there is room for, of all that its ranks know."""
    known = {group.name: group for seen in gathered.seen for group in seen.trace.groups}
    found, room = list[Group](), MEMBERS_MAX
    for group in sorted(known.values(), key=lambda one: len(one.members)):
        room -= len(group.members)
        if room >= 0 and len(found) < GROUPS_MAX:
            found.append(group)
    return tuple(found)


def left_out(gathered: Gathered) -> tuple[str, ...]:
    """What is missing and why; then what NCCL itself says."""
    mute = [
        f"rank {seen.row.rank}: no stack: {seen.python.why or 'its main thread cannot be told from the others'}"
        for seen in gathered.seen
        if not _stack(gathered, seen)
    ]
    told = [*gathered.left_out, *gathered.around.left_out, *gathered.use.left_out, *mute]
    return (*told[:_LEFT_OUT_MAX], *ras.first_lines(gathered.ras))


def dumps(node: str, gathered: Gathered, about: dict[str, Any], *, redact: bool = False) -> dict[int, dict[str, Any]]:
    """By rank, and of the machine, what the answer has no room for."""
    machine = {
        "kernel": gathered.kernel.lines,
        "nccl_ras": gathered.ras,
        "gpus": gathered.use.devices,
        "addresses": gathered.around.addresses,
        "left_out": left_out(gathered),
    }
    about = {"v": 1, "node": node, **about}
    found = {seen.row.rank: {**about, **_dump(gathered, seen, redact=redact)} for seen in gathered.seen}
    return {**found, NODE: {**about, **machine}}


def _dump(gathered: Gathered, seen: Seen, *, redact: bool) -> dict[str, Any]:
    row, beside = seen.row, gathered.around.of.get(seen.row.pid, Beside())
    hide = stacks.redacted if redact else str
    return {
        "rank": row.rank,
        "pid": row.pid,
        "state": row.state,
        "wchan": row.wchan,
        "server": row.server,
        "cpu_moving": row.cpu_moving,
        "bytes_moved": beside.moved,
        "loaders": beside.loaders,
        "unacknowledged": beside.unacked,
        "python": {"traceback": hide(seen.python.text), "why": seen.python.why, "held": seen.held},
        "py_spy": hide(gathered.py_spy.get(row.pid, "")),
        "environment": {} if redact else beside.environment,
        "flight_recorder": _raw(seen),
    }


def _raw(seen: Seen) -> msgspec.Raw | str:
    """As it came, where it is JSON."""
    return msgspec.Raw(seen.body) if seen.trace.positions else seen.body.decode("utf-8", "replace")


def _stack(gathered: Gathered, seen: Seen) -> tuple[str, ...]:
    spied = gathered.py_spy.get(seen.row.pid, "")
    return stacks.main_thread(seen.python.text) or stacks.main_thread_of_py_spy(spied)


def _io_moving(beside: Beside, seen: Seen) -> bool | None:
    if beside.moved is None:
        return None
    return beside.moved > MOVED_BYTES + _OWN_BYTES * len(seen.python.text)


def _why(server: str) -> str:
    return "its flight recorder is empty: is TORCH_FR_BUFFER_SIZE set?" if server == "ok" else server
