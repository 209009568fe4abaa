"""A Slurm job as `squeue` and `scontrol` show it, and what is still to be done to start it again. Pure.

What decides (owner, state, restarts) is read from columns of `squeue` that no user writes. The mark and the excluded
nodes come from `scontrol show job`, whose lines a user can forge by a job's name; that harms the user's own job alone.
"""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from rankpulse.receiver.acting import Refused
from rankpulse.receiver.deciding import Plan

COLUMNS: Final = ("JobID", "JobArrayID", "HetJobID", "UserName", "State", "RestartCnt", "Reason", "NodeList", "Comment")
FORMAT: Final = ",".join(f"{name}:|" for name in COLUMNS)
GONE: Final = "Invalid job id"
LIVE: Final = ("RUNNING", "COMPLETING")
FAILED: Final = ("FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "LAUNCH_FAILED")
WAITING: Final = ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED")
HELD: Final = re.compile(r"held|JobHeld", re.IGNORECASE)
_MARK: Final = re.compile(r"rankpulse=([0-9a-f]{16}):([0-9]{1,9}):(begun|done)")
_EXCLUDED: Final = re.compile(r" ExcNodeList=(\S*)")
_NODE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


class SlurmJob(NamedTuple):
    """`restarts`: how often Slurm has started it again. `marked`: our last mark as (decision, restarts then, stage)."""

    number: str
    user: str
    state: str
    restarts: int
    held: bool
    nodes: str  # as Slurm writes lists of nodes
    excluded: str
    note: str  # what else stands in the field of our mark
    marked: tuple[str, int, str] | None


class Step(NamedTuple):
    """One command, and why. Without a command: wait and look again."""

    argv: tuple[str, ...]
    why: str


def job(rows: str, shown: str, field: str) -> SlurmJob:
    """From the output of `squeue -O` (FORMAT) and of `scontrol -o show job`. Raises `Refused`."""
    lines = [line.split("|") for line in rows.splitlines() if line.count("|") >= len(COLUMNS) - 1]
    if not lines:
        raise Refused("Slurm knows no such job (any more): start it by hand")
    if len(lines) > 1 and len({line[0] for line in lines}) > 1:
        raise Refused("is a job array: name one task of it, like 1234_7")
    number, _, het, user, state, restarts, reason, nodes = lines[0][: len(COLUMNS) - 1]
    comment = "|".join(lines[0][len(COLUMNS) - 1 :]).removesuffix("|")
    if het not in ("N/A", "", "0"):
        raise Refused("is a part of a heterogeneous job, which cannot be requeued alone")
    if not restarts.isdecimal():
        raise Refused(f"squeue says {restarts[:20]!r} of its restarts: this version of Slurm is not understood")
    found = _EXCLUDED.findall(shown)
    note = comment if field == "Comment" else _admin_comment(shown)
    marks = _MARK.findall(note)
    excluded = found[-1] if found and found[-1] != "(null)" else ""
    marked = (marks[-1][0], int(marks[-1][1]), marks[-1][2]) if marks else None
    plain = _MARK.sub("", note).strip()
    return SlurmJob(number, user, state, int(restarts), bool(HELD.search(reason)), nodes, excluded, plain, marked)


def _admin_comment(shown: str) -> str:
    found = re.search(r" AdminComment=(.*?)\s+(?:SystemComment=|Comment=|StdErr=|StdIn=|Power=)", shown)
    return found[1] if found else ""


def steps(
    now: SlurmJob, plan: Plan, field: str, without: Sequence[str] = (), remembered: int | None = None
) -> list[Step]:
    """What is to be done yet, in order; [] when all is done. Raises `Refused`.

    `without`: nodes by Slurm's names. `remembered`: the job's restarts when we began with this decision, None: we have
    not. A job that has ended takes no mark, so the mark alone cannot tell.
    """
    if now.user not in plan.job.users:
        raise Refused(f"job {now.number} belongs to {now.user!r}, who is none of `users`")
    marked = now.marked if now.marked is not None and now.marked[0] == plan.mark else None
    if marked is not None and marked[2] == "done":
        return []
    before = marked[1] if marked else remembered
    _check(now, plan, begun=before is not None)
    before = now.restarts if before is None else before
    mark = [] if marked else [_mark(now, plan, field, before, "begun", "the decision is written into the job")]
    return _rest(
        now, before, mark, _exclude(now, without), _mark(now, plan, field, before, "done", "it is carried out")
    )


def _check(now: SlurmJob, plan: Plan, begun: bool) -> None:
    if now.state not in (*LIVE, *FAILED, *WAITING):
        raise Refused(f"job {now.number} is {now.state}: ended on purpose or by its limit, and is left alone")
    if not begun and not plan.may_begin:
        raise Refused("the decision has become too old to begin with: a person must look")
    if not begun and now.state in WAITING and now.held:
        raise Refused(f"job {now.number} waits and is held by somebody: it is left alone")


def _rest(now: SlurmJob, before: int, mark: list[Step], exclude: list[Step], done: Step) -> list[Step]:
    hold = Step(("requeuehold", now.number), "ended and put back into the queue, held until nodes are left out")
    release = Step(("release", now.number), "it may start")
    wait = Step((), "its old processes are being ended")
    again = now.restarts > before
    if now.state == "COMPLETING":
        return [*mark, wait, *exclude, release, done]
    if now.state in WAITING:
        return [*mark, *exclude, *([release] if again and now.held else []), done]
    if now.state in FAILED:  # takes no update; where it has failed anew, that is another story
        return [] if again else [hold, *mark, *exclude, release, done]
    return [*mark, done] if again else [*mark, hold, wait, *exclude, release, done]


def _exclude(now: SlurmJob, without: Sequence[str]) -> list[Step]:
    known = [name for name in now.excluded.split(",") if name]
    names = ",".join(dict.fromkeys([*known, *without]))
    return [_update(now, f"ExcNodeList={names}", "these nodes are left out")] if names != ",".join(known) else []


def node_names(name: str) -> tuple[str, ...]:
    """What Slurm may call that node: its name, or that without a domain. Raises `Refused`."""
    if not _NODE.fullmatch(name):
        raise Refused(f"node {name[:60]!r} is no name of a node of Slurm")
    return tuple(dict.fromkeys((name, name.partition(".")[0])))


def _update(now: SlurmJob, what: str, why: str) -> Step:
    return Step(("update", f"JobId={now.number}", what), why)


def _mark(now: SlurmJob, plan: Plan, field: str, before: int, stage: str, why: str) -> Step:
    text = f"{now.note} rankpulse={plan.mark}:{before}:{stage}".strip()
    return _update(now, f"{field}={text}", why)


def shares_a_node(named: Sequence[str], job_nodes: Sequence[str]) -> bool:
    """Whether the event and the job speak of a common machine; domains after a host's name do not count."""
    short = {name.partition(".")[0] for name in job_nodes}
    return any(name.partition(".")[0] in short for name in named)
