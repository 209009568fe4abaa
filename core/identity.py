"""Which job a process belongs to: an untrusted identity (what a slot says) becomes rows we publish. Pure."""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from rankpulse.core.keys import BadName, check_name
from rankpulse.core.records import RunRow

WORLD_MAX: Final = 2**20
TEXT_MAX: Final = 256
_ROUND_MAX: Final = 2**31


class IdentityRefused(ValueError):
    """The identity cannot be used; the text says which field and why."""


class Identity(NamedTuple):
    """A process's place in its job."""

    run: RunRow
    rank: int
    local_rank: int


def text(value: object, limit: int = TEXT_MAX) -> str:
    """`value` as text that can be written anywhere: at most `limit` characters, no lone surrogates; "" if no string."""
    if not isinstance(value, str):
        return ""
    return value[:limit].encode("utf-8", "replace").decode("utf-8")


_LOOPBACK: Final = re.compile(r"(127\.[0-9.]+|localhost|\[?::1\]?):[0-9]*")


def meeting(identity: Mapping[str, Any], node: str, pid: int, start: int, owner: int, machine: str = "") -> str:
    """Where the ranks of one round met, as 16 hex digits: the same on all nodes of a round.

    Known by the rendezvous address or the batch job; a process with neither meets only itself. The owner's uid, which
    the kernel told, is part of it: nobody joins another user's round by claiming its address. `machine` names the
    machine itself (its boot id): a loopback address means another place on each.
    """
    master, slurm = text(identity.get("master")), text(identity.get("slurm"))
    if master or slurm:
        place: list[object] = [text(identity.get("run_id")), master, slurm, identity.get("world_size"), owner]
        place += [machine] if _LOOPBACK.fullmatch(master) else []
    else:
        place = [node, pid, start]
    return hashlib.sha256(json.dumps(place).encode()).hexdigest()[:16]


def understand(
    identity: Mapping[str, Any], *, node: str, pid: int, start: int, launcher: str, owner: int, machine: str = ""
) -> Identity:
    """The identity of process (`pid`, `start`) on `node`, checked. Raises `IdentityRefused`.

    Texts are cut to `TEXT_MAX` characters; numbers out of bounds are refused, never bent.
    """
    world = _number(identity, "world_size", 1, WORLD_MAX)
    rank = _number(identity, "rank", 0, world - 1)
    local_rank = _number(identity, "local_rank", -1, world - 1)  # -1: not every launcher tells
    run = RunRow(
        run_id=text(identity.get("run_id")),
        meeting=meeting(identity, node, pid, start, owner, machine),
        launcher=launcher,
        world_size=world,
        elastic=identity.get("elastic") is True,
        run_uid=_uid(identity.get("run_uid")),
        round=_round(identity),
    )
    return Identity(run, rank, local_rank)


def _number(identity: Mapping[str, Any], field: str, low: int, high: int) -> int:
    value = identity.get(field)
    if type(value) is not int or not low <= value <= high:
        # never the repr of a container: nested deep enough it would raise an error of its own
        shown = repr(value)[:40] if isinstance(value, str | int | float | None) else type(value).__name__
        raise IdentityRefused(f"{field} is {shown}, must be a number from {low} to {high}: check the job's environment")
    return value


def _round(identity: Mapping[str, Any]) -> int:
    return -1 if identity.get("round") is None else _number(identity, "round", -1, _ROUND_MAX)


def _uid(value: object) -> str:
    """A run_uid becomes part of keys: refused here rather than at the store."""
    if value in (None, ""):
        return ""
    try:
        return check_name(text(value) or "?", "run_uid")
    except BadName as error:
        raise IdentityRefused(str(error)) from error
